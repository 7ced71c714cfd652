// Package chart draws what came to an upstream over time: one panel a client, all with the same
// axes, as an SVG that is the same bytes for the same figures.
package chart

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/go-throttle/throttle/bench/report"
)

// A Figure is one picture.
type Figure struct {
	Title  string
	About  string // a line or two below it
	Panels []Panel
}

// A Panel is one client.
type Panel struct {
	Name    string
	Strong  bool // its name in bold
	Traffic *report.Traffic
}

// Sizes, in pixels.
const (
	width    = 880
	margin   = 14
	gap      = 18 // between columns
	caption  = 28 // a panel's name and sum, and the marks of cut peaks
	plotting = 92 // a panel's axes and data
	titling  = 26
	telling  = 16 // a line of About, or the legend
	timing   = 18 // what the time axis shows
)

// New makes the figure of one scenario in one mode: the first repetition of each client that has
// traffic. It is false if there is none.
func New(s *report.Scenario, mode string) (Figure, bool) {
	f := Figure{Title: s.Title + ", " + mode + " time", About: s.About}
	for _, name := range s.Clients(mode) {
		for _, r := range s.Of(name, mode) {
			if r.Traffic != nil && r.Traffic.Bins() > 0 {
				f.Panels = append(f.Panels, Panel{Name: name, Strong: strings.HasPrefix(name, "throttle"), Traffic: r.Traffic})
				break
			}
		}
	}
	return f, len(f.Panels) > 0
}

// SVG draws the figure.
func (f Figure) SVG(w io.Writer) error {
	if len(f.Panels) == 0 {
		return fmt.Errorf("chart %q has no panels", f.Title)
	}
	f = f.coarse()
	s := f.sheet()
	canvas := vgsvg.New(width, s.height)
	f.paint(draw.New(canvas), s)
	return finish(w, canvas, f.Title)
}

// A sheet is what has to be known of a figure before it is drawn.
type sheet struct {
	axes    axes
	about   []string // lines
	legend  []legendLine
	head    vg.Length // down to the first panel
	columns int
	height  vg.Length
}

func (f Figure) sheet() sheet {
	s := sheet{axes: f.axes(), columns: 1}
	for _, text := range slices.Concat([]string{f.About}, f.words()) {
		s.about = append(s.about, breakLines(text, 11, width-2*margin)...)
	}
	s.legend = f.legend(s.axes)
	s.head = vg.Length(margin + titling + telling*(len(s.about)+len(s.legend)) + 6)
	if len(f.Panels) > 3 {
		s.columns = 2
	}
	rows := (len(f.Panels) + s.columns - 1) / s.columns
	s.height = s.head + vg.Length(rows*(caption+plotting)+timing+margin)
	return s
}

// words explains names of panels that a reader cannot know.
func (f Figure) words() (said []string) {
	for _, word := range []struct{ name, text string }{
		{"throttle: zero value", "Zero value: a &throttle.Transport{}, in which nothing is configured."},
		{"oracle", "Oracle: a client that knows the limit and the outages beforehand. It shows what is possible, and is no rival."},
	} {
		if slices.ContainsFunc(f.Panels, func(p Panel) bool { return p.Name == word.name }) {
			said = append(said, word.text)
		}
	}
	return said
}

// paint draws the figure on its page.
func (f Figure) paint(page draw.Canvas, s sheet) {
	card(page)
	f.head(page, s)
	wide := (vg.Length(width-2*margin) - vg.Length(gap*(s.columns-1))) / vg.Length(s.columns)
	for i, p := range f.Panels {
		left := margin + vg.Length(i%s.columns)*(wide+gap)
		top := s.height - s.head - vg.Length(i/s.columns*(caption+plotting))
		area := draw.Canvas{Canvas: page.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: left, Y: top - caption - plotting}, Max: vg.Point{X: left + wide, Y: top},
		}}
		p.draw(area, s.axes)
		if i+s.columns >= len(f.Panels) {
			at := vg.Point{X: area.Max.X, Y: area.Min.Y - 4}
			write(page, at, toRight+"time, s", 10, grey)
		}
	}
}

// coarse joins bins of the time axis until each is about a pixel wide or wider.
func (f Figure) coarse() Figure {
	most := 0
	for _, p := range f.Panels {
		most = max(most, p.Traffic.Bins())
	}
	for _, factor := range []int{1, 2, 5, 10, 20, 50, 100} {
		if most/factor > 460 {
			continue
		}
		panels := slices.Clone(f.Panels)
		for i := range panels {
			panels[i].Traffic = panels[i].Traffic.Coarse(factor)
		}
		f.Panels = panels
		break
	}
	return f
}

// card is the paper: light on any background, with an edge.
func card(page draw.Canvas) {
	size := page.Max
	page.FillPolygon(paper, []vg.Point{{}, {X: size.X}, size, {Y: size.Y}})
	edge := draw.LineStyle{Color: rule, Width: 1}
	page.StrokeLines(edge, []vg.Point{{X: .5, Y: .5}, {X: size.X - .5, Y: .5}, {X: size.X - .5, Y: size.Y - .5}, {X: .5, Y: size.Y - .5}, {X: .5, Y: .5}})
}

// head writes the title, the lines below it, and what the colours mean.
func (f Figure) head(page draw.Canvas, s sheet) {
	at := vg.Point{X: margin, Y: page.Max.Y - margin - 13}
	write(page, at, f.Title, 16, ink, bold)
	at.Y -= titling - 5
	for _, line := range s.about {
		write(page, at, line, 11, grey)
		at.Y -= telling
	}
	at.Y -= 2
	for _, line := range s.legend {
		line.draw(page, at)
		at.Y -= telling
	}
}

// finish writes the picture. The library's fonts may not be there: others of the same widths will
// do. Sizes are in pixels rather than points.
func finish(w io.Writer, canvas *vgsvg.Canvas, title string) error {
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	text := b.String()
	if i := strings.Index(text, "<svg "); i >= 0 {
		text = text[i:]
	}
	head, body, ok := strings.Cut(text, ">")
	if !ok {
		return fmt.Errorf("chart %q: the library has drawn no SVG", title)
	}
	head = strings.NewReplacer("pt\"", "\"", "\n\txmlns:xlink=\"http://www.w3.org/1999/xlink\"", "").Replace(head)
	body = strings.NewReplacer(
		"font-family:Liberation Sans;", "font-family:Liberation Sans,Arimo,Helvetica,Arial,sans-serif;",
		"font-variant:normal;", "",
		">"+toRight, " text-anchor=\"end\">",
		"\n\tstyle=", " style=",
	).Replace(body)
	_, err := fmt.Fprintf(w, "%s role=\"img\">\n<title>%s</title>%s", head, html.EscapeString(title), body)
	return err
}
