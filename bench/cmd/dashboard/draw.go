package main

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/palette/brewer"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A view is what a panel shows.
type view struct {
	title, unit string
	heat        bool
	series      []series
	legend      []entry
}

// An entry is one name of the legend.
type entry struct {
	name  string
	style vgdraw.LineStyle
}

// Of Okabe and Ito, for all eyes.
var colors = []color.Color{
	color.RGBA{0x00, 0x72, 0xB2, 0xFF}, color.RGBA{0xE6, 0x9F, 0x00, 0xFF}, color.RGBA{0x00, 0x9E, 0x73, 0xFF},
	color.RGBA{0xD5, 0x5E, 0x00, 0xFF}, color.RGBA{0x56, 0xB4, 0xE9, 0xFF}, color.RGBA{0xCC, 0x79, 0xA7, 0xFF},
	color.RGBA{0x8C, 0x8C, 0x8C, 0xFF}, color.RGBA{0x40, 0x40, 0x40, 0xFF},
}

// units are the names of Grafana's units that the dashboard has.
var units = map[string]string{"reqps": "per second", "cps": "per second", "percentunit": "%", "s": "seconds", "short": ""}

// draw writes the panels, two in a row.
func draw(out string, views []view, length time.Duration) error {
	const width, height = 420, 230
	rows := (len(views) + 1) / 2
	c := vgsvg.New(2*width, vg.Length(rows*height))
	dc := vgdraw.New(c)
	dc.SetColor(color.White)
	dc.Fill(dc.Rectangle.Path())
	for i := range views {
		v := &views[i]
		p, err := v.plot(length)
		if err != nil {
			return fmt.Errorf("%s: %w", v.title, err)
		}
		x, y := vg.Length(i%2*width), vg.Length((rows-1-i/2)*height)
		area := vgdraw.Crop(dc, x+8, x-width-12, y+8, y-vg.Length((rows-1)*height)-8)
		p.Draw(vgdraw.Crop(area, 0, 0, drawLegend(area, v.legend), 0))
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	if _, err := c.WriteTo(f); err != nil {
		return err
	}
	return f.Close()
}

// plot makes the plot of a panel.
func (v *view) plot(length time.Duration) (*plot.Plot, error) {
	p := plot.New()
	p.X.Label.Text, p.X.Label.TextStyle.Font.Size = "seconds", 8
	p.Title.Text, p.Title.TextStyle.Font.Size = v.title, 11
	p.Y.Label.Text, p.Y.Label.TextStyle.Font.Size = units[v.unit], 8
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Tick.Label.Font.Size = 8
	}
	p.X.Min, p.X.Max, p.Y.Min = 0, length.Seconds(), 0
	if v.heat {
		return p, v.drawHeat(p)
	}
	grid := plotter.NewGrid()
	grid.Vertical.Width, grid.Horizontal.Color = 0, color.Gray{225}
	p.Add(grid)
	return p, v.drawLines(p)
}

// drawLegend writes the names below a panel, as many in a line as fit, and returns how high that is.
func drawLegend(area vgdraw.Canvas, entries []entry) (height vg.Length) {
	const line, thumb = 11, 12
	sty := plot.New().Legend.TextStyle
	sty.Font.Size = 8
	type spot struct{ x, row vg.Length }
	var spots []spot
	at, rows := spot{}, vg.Length(1)
	for _, e := range entries {
		width := thumb + 4 + 1.1*sty.Width(e.name) + 12 // a browser may have a wider font
		if at.x > 0 && at.x+width > area.Size().X {
			at = spot{0, at.row + 1}
			rows++
		}
		spots = append(spots, at)
		at.x += width
	}
	for i, e := range entries {
		x, y := area.Min.X+spots[i].x, area.Min.Y+(rows-1-spots[i].row)*line+3
		area.StrokeLine2(e.style, x, y+2, x+thumb, y+2)
		area.FillText(sty, vg.Point{X: x + thumb + 4, Y: y}, e.name)
	}
	return rows*line + 4
}

// drawLines draws a line for each series, without its gaps. One on the right that is 0 all the time is left out.
func (v *view) drawLines(p *plot.Plot) error {
	scale := 1.0
	if v.unit == "percentunit" {
		scale = 100
	}
	most := 0.0
	for _, s := range v.series {
		if !s.right {
			most = max(most, scale*s.most())
		}
	}
	most = cmp.Or(most, 1)
	for _, s := range v.series {
		own := scale
		if s.right && s.most() == 0 {
			continue
		}
		if s.right { // in a share of its maximum
			own = most / cmp.Or(s.most(), 1)
			s.name += " (top: " + strconv.FormatFloat(s.most(), 'g', 2, 64) + ")"
		}
		style := vgdraw.LineStyle{Color: colors[len(v.legend)%len(colors)], Width: 1}
		if strings.HasPrefix(s.name, "limit") || s.right {
			style.Dashes = []vg.Length{4, 3}
		}
		v.legend = append(v.legend, entry{s.name, style})
		for _, run := range s.runs(own) {
			p.Add(&plotter.Line{XYs: run, LineStyle: style})
		}
	}
	p.Y.Max = most * 1.05
	return nil
}

// most is the highest value of a series.
func (s *series) most() (most float64) {
	for _, x := range s.values {
		if !math.IsNaN(x) {
			most = max(most, x)
		}
	}
	return most
}

// runs are the parts of a series between its gaps.
func (s *series) runs(scale float64) (runs []plotter.XYs) {
	var run plotter.XYs
	for at, x := range s.values {
		if !math.IsNaN(x) {
			run = append(run, plotter.XY{X: float64(at), Y: scale * x})
		}
		if len(run) > 0 && (math.IsNaN(x) || at == len(s.values)-1) {
			runs, run = append(runs, run), nil
		}
	}
	return runs
}

// A grid is the heatmap: how many waits fell into each bucket each second.
type grid struct {
	counts [][]float64 // by bucket
}

func (g *grid) Dims() (c, r int)   { return len(g.counts[0]), len(g.counts) }
func (g *grid) Z(c, r int) float64 { return g.counts[r][c] }
func (g *grid) X(c int) float64    { return float64(c) }
func (g *grid) Y(r int) float64    { return float64(r) }

// drawHeat draws the buckets of a histogram. Prometheus counts in each what is below its bound, so the one below is taken
// off. The root of a count shows few beside many.
func (v *view) drawHeat(p *plot.Plot) error {
	bound := func(s series) float64 {
		x, err := strconv.ParseFloat(s.labels["le"], 64)
		if err != nil {
			return math.Inf(1)
		}
		return x
	}
	slices.SortFunc(v.series, func(a, b series) int { return cmp.Compare(bound(a), bound(b)) })
	g := new(grid)
	var ticks []plot.Tick
	if len(v.series) == 0 {
		return nil
	}
	below := make([]float64, len(v.series[0].values))
	for row, s := range v.series {
		counts := make([]float64, len(s.values))
		for i, x := range s.values {
			if counts[i] = math.NaN(); x-below[i] > 0.01 {
				counts[i] = math.Sqrt(x - below[i])
			}
			if !math.IsNaN(x) {
				below[i] = x
			}
		}
		g.counts = append(g.counts, counts)
		if row%2 == 1 || s.labels["le"] == "+Inf" {
			ticks = append(ticks, plot.Tick{Value: float64(row) + 0.5, Label: s.labels["le"]})
		}
	}
	oranges, err := brewer.GetPalette(brewer.TypeSequential, "Oranges", 9)
	if err != nil {
		return err
	}
	p.Add(plotter.NewHeatMap(g, oranges))
	p.Y.Tick.Marker, p.Y.Label.Text = plot.ConstantTicks(ticks), "seconds"
	p.Y.Min, p.Y.Max = -0.5, float64(len(g.counts))-0.5
	return nil
}
