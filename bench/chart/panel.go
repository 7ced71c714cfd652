package chart

import (
	"image/color"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/go-throttle/throttle/bench/report"
)

// A layer is one row of the traffic. They are stacked in this order.
type layer struct {
	name  string
	short string
	color color.Color
	row   func(*report.Traffic) []int
}

// The colours are of Okabe and Ito's palette, which colour-blind readers can tell apart.
var layers = []layer{
	{"accepted", "accepted", color.RGBA{0x00, 0x72, 0xB2, 0xFF}, func(t *report.Traffic) []int { return t.Accepted }},
	{"throttled by the limit", "throttled", color.RGBA{0xE6, 0x9F, 0x00, 0xFF}, func(t *report.Traffic) []int { return t.Throttled }},
	{"failed: the upstream is down", "failed", color.RGBA{0x8C, 0x8C, 0x8C, 0xFF}, func(t *report.Traffic) []int { return t.Failed }},
}

var limitLine = draw.LineStyle{Color: color.RGBA{0xB0, 0x00, 0x20, 0xFF}, Width: 1.2}

// axes are the same for all panels of a figure.
type axes struct {
	seconds float64 // the end of the time axis
	most    float64 // the end of the other
}

// axes end with the longest traffic, and where a panel is far above the limit, at three times that.
func (f Figure) axes() axes {
	var a axes
	limit := 0.0
	for _, p := range f.Panels {
		total := p.Traffic.Total()
		last := 0
		for i, n := range total {
			a.most = max(a.most, float64(n))
			if n > 0 {
				last = i + 1
			}
		}
		a.seconds = max(a.seconds, float64(last)*p.Traffic.Bin.Seconds())
		for _, l := range p.Traffic.Limit {
			limit = max(limit, l)
		}
	}
	if limit > 0 {
		a.most = max(1.5*limit, min(a.most, 3*limit))
	}
	a.most, a.seconds = max(a.most*1.04, 1), max(a.seconds, 1)
	return a
}

func (p Panel) draw(area draw.Canvas, a axes) {
	at := vg.Point{X: area.Min.X, Y: area.Max.Y - caption + 11}
	var weight []option
	if p.Strong {
		weight = append(weight, bold)
	}
	space := area.Size().X - 10 - write(area, at, p.Name, 12, ink, weight...)
	at.X = area.Max.X
	sums := p.sums(a)
	for sty := style(11, grey); len(sums) > 1 && others*sty.Width(strings.Join(sums, ", ")) > space; {
		sums = sums[:len(sums)-1]
	}
	write(area, at, toRight+strings.Join(sums, ", "), 11, grey)

	pl := plot.New()
	pl.BackgroundColor = color.Transparent
	pl.X.Min, pl.X.Max, pl.Y.Min, pl.Y.Max = 0, a.seconds, 0, a.most
	pl.X.Tick.Marker, pl.Y.Tick.Marker = ticks(8), ticks(4)
	for _, axis := range []*plot.Axis{&pl.X, &pl.Y} {
		axis.Padding, axis.Color, axis.Width = 0, rule, 0.8
		axis.Tick.Color, axis.Tick.Width, axis.Tick.Length = rule, 0.8, 3
		axis.Tick.Label.Font.Typeface, axis.Tick.Label.Font.Variant, axis.Tick.Label.Font.Size = sans.Typeface, sans.Variant, 9
		axis.Tick.Label.Color = grey
	}
	pl.Y.Label.Text = "requests\nper " + span(p.Traffic.Bin)
	pl.Y.Label.TextStyle.Font.Typeface, pl.Y.Label.TextStyle.Font.Variant, pl.Y.Label.TextStyle.Font.Size = sans.Typeface, sans.Variant, 9
	pl.Y.Label.TextStyle.Color, pl.Y.Label.Padding = grey, 2
	pl.Add(stack{p.Traffic})
	area.Max.Y -= caption
	pl.Draw(area)
}

// cut tells whether a panel is higher than its axis somewhere.
func (p Panel) cut(a axes) bool { return float64(slices.Max(p.Traffic.Total())) > a.most }

// sums tell what all of it comes to, the least important last.
func (p Panel) sums(a axes) []string {
	var parts []string
	for i, l := range layers {
		if n := sum(l.row(p.Traffic)); n > 0 || i < 2 {
			parts = append(parts, report.Number(float64(n), 0)+" "+l.short)
		}
	}
	if p.cut(a) {
		parts = append(parts, "peak "+report.Number(float64(slices.Max(p.Traffic.Total())), 0))
	}
	return parts
}
