package chart

import (
	"image/color"
	"io"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/go-throttle/throttle/bench/report"
	"github.com/go-throttle/throttle/bench/scenario"
)

// Courses is a picture of how many calls were answered over time: one panel a client, three in a row.
type Courses struct {
	Title  string
	About  string
	Panels []Course
}

// A Course is one client.
type Course struct {
	Name   string
	Strong bool // its name in bold
	Kept   float64
	*scenario.Course
}

// Sizes of Courses, in pixels. No text is smaller than 12, at which a page of this width is read.
const (
	coursesWidth   = 980
	coursesGap     = 24
	coursesTop     = 40 // a panel's name and figure
	coursesPlot    = 120
	coursesBottom  = 14
	coursesColumns = 3
	small, large   = 12, 18
	courseLine     = 20
)

var possibleLine = draw.LineStyle{Color: color.RGBA{0xB0, 0x00, 0x20, 0xFF}, Width: 1.5, Dashes: []vg.Length{5, 3}}

// NewCourses makes the picture of one scenario: of the first repetition of each client that has a course. It is false if there is none.
func NewCourses(s *report.Scenario) (Courses, bool) {
	f := Courses{Title: s.Title, About: s.About}
	for _, r := range s.Runs {
		if r.Course != nil && r.Course.Bin > 0 && len(r.Course.Answers) > 0 {
			f.Panels = append(f.Panels, Course{r.Client, strings.HasPrefix(r.Client, "throttle"), r.Values["kept"], r.Course})
		}
	}
	return f, len(f.Panels) > 0
}

// only keeps the panels that are named, in that order.
func (f *Courses) only(names []string) (err error) {
	f.Panels, err = named(f.Panels, names, func(c Course) string { return c.Name })
	return err
}

// SVG draws the picture.
func (f Courses) SVG(w io.Writer) error {
	about := breakLines(f.About, small+1, coursesWidth-2*margin)
	rows := (len(f.Panels) + coursesColumns - 1) / coursesColumns
	head := vg.Length(margin + large + 14 + courseLine*(len(about)+1))
	height := head + vg.Length(rows*(coursesTop+coursesPlot)) + courseLine + coursesBottom
	canvas := vgsvg.New(coursesWidth, height)
	page := draw.New(canvas)
	card(page)
	at := vg.Point{X: margin, Y: height - margin - large + 2}
	write(page, at, f.Title, large, ink, bold)
	at.Y -= large + 8
	for _, line := range about {
		write(page, at, line, small+1, grey)
		at.Y -= courseLine
	}
	f.legend(page, at)
	wide := vg.Length(coursesWidth-2*margin-coursesGap*(coursesColumns-1)) / coursesColumns
	for i, c := range f.Panels {
		left := margin + vg.Length(i%coursesColumns)*(wide+coursesGap)
		top := height - head - vg.Length(i/coursesColumns*(coursesTop+coursesPlot))
		c.draw(draw.Canvas{Canvas: page.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: left, Y: top - coursesTop - coursesPlot}, Max: vg.Point{X: left + wide, Y: top},
		}}, f.most())
	}
	write(page, vg.Point{X: coursesWidth - margin, Y: coursesBottom}, toRight+"minutes", small, grey)
	return finish(w, canvas, f.Title)
}

// most is the end of the axis, the same for all: the highest of what is possible, and a little more.
func (f Courses) most() float64 {
	most := 1.
	for _, c := range f.Panels {
		for _, row := range [][]int{c.Answers, c.Possible} {
			most = max(most, float64(slices.Max(row))/c.Bin.Seconds())
		}
	}
	return 1.05 * most
}

func (f Courses) legend(page draw.Canvas, at vg.Point) {
	page.FillPolygon(layers[0].color, []vg.Point{at, {X: at.X + 11, Y: at.Y}, {X: at.X + 11, Y: at.Y + 10}, {X: at.X, Y: at.Y + 10}})
	at.X += signing
	at.X += write(page, at, "answers a second", small+1, ink) + apart
	page.StrokeLine2(possibleLine, at.X, at.Y+5, at.X+26, at.Y+5)
	at.X += 32
	write(page, at, "what is possible", small+1, ink)
}

func (c Course) draw(area draw.Canvas, most float64) {
	var weight []option
	if c.Strong {
		weight = append(weight, bold)
	}
	top := vg.Point{X: area.Min.X, Y: area.Max.Y - coursesTop + 12}
	write(area, top, c.Name, small+1, ink, weight...)
	write(area, vg.Point{X: area.Max.X, Y: top.Y}, toRight+report.Number(c.Kept, 0)+" %", small+1, ink, weight...)
	pl := plot.New()
	pl.BackgroundColor = color.Transparent
	pl.X.Min, pl.X.Max, pl.Y.Min, pl.Y.Max = 0, float64(len(c.Answers))*c.Bin.Minutes(), 0, most
	pl.X.Tick.Marker, pl.Y.Tick.Marker = ticks(5), ticks(3)
	for _, axis := range []*plot.Axis{&pl.X, &pl.Y} {
		axis.Padding, axis.Color, axis.Width = 0, rule, 0.8
		axis.Tick.Color, axis.Tick.Width, axis.Tick.Length = rule, 0.8, 3
		axis.Tick.Label.Font.Typeface, axis.Tick.Label.Font.Variant, axis.Tick.Label.Font.Size = sans.Typeface, sans.Variant, small
		axis.Tick.Label.Color = grey
	}
	pl.Add(c)
	area.Max.Y -= coursesTop
	pl.Draw(area)
}

// Plot is part of plot.Plotter: the answers as an area, and what is possible as a line over it.
func (c Course) Plot(area draw.Canvas, pl *plot.Plot) {
	x, y := pl.Transforms(&area)
	points := func(row []int) (out []vg.Point) {
		for i, n := range row {
			out = append(out, vg.Point{X: round(x((float64(i) + 0.5) * c.Bin.Minutes())), Y: round(y(float64(n) / c.Bin.Seconds()))})
		}
		return out
	}
	answers := points(c.Answers)
	floor := round(y(0))
	area.FillPolygon(layers[0].color, slices.Concat([]vg.Point{{X: answers[0].X, Y: floor}}, answers, []vg.Point{{X: answers[len(answers)-1].X, Y: floor}}))
	area.StrokeLines(possibleLine, points(c.Possible))
}
