package chart

import (
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/go-throttle/throttle/bench/report"
)

// A stack draws the layers on top of each other, and the limit over them. It is a plot.Plotter.
type stack struct{ traffic *report.Traffic }

// Plot draws. The sum of all layers comes first and the lowest last, each down to the axis, but only
// in bins that have something of it: else its edge would shine through.
func (s stack) Plot(c draw.Canvas, pl *plot.Plot) {
	for n := len(layers); n > 0; n-- {
		heights := make([]float64, s.traffic.Bins())
		for i, own := range layers[n-1].row(s.traffic) {
			if own == 0 {
				continue
			}
			for _, l := range layers[:n] {
				if row := l.row(s.traffic); i < len(row) {
					heights[i] += float64(row[i])
				}
			}
		}
		s.area(c, pl, heights, layers[n-1].color)
	}
	if limit := s.traffic.Limit; len(limit) > 0 { // it holds on after the last request
		bins := int(math.Ceil(pl.X.Max / s.traffic.Bin.Seconds()))
		rest := slices.Repeat(limit[len(limit)-1:], max(0, bins-len(limit)))
		c.StrokeLines(limitLine, s.steps(c, pl, slices.Concat(limit, rest)))
	}
	s.marks(c, pl)
}

// marks puts a sign above each stretch of bins that are cut off at the end of the axis; stretches that are
// nearer to each other than the sign is wide share one. Example: of bins of one pixel, 100 to 103 and 105 to
// 106 are cut, so one sign stands above 103.5.
func (s stack) marks(c draw.Canvas, pl *plot.Plot) {
	const near = 9
	x, y := pl.Transforms(&c)
	bin, top := s.traffic.Bin.Seconds(), y(pl.Y.Max)+1
	var from, to vg.Length
	cut := false
	for i, n := range s.traffic.Total() {
		left, right := x(float64(i)*bin), x(min(float64(i+1)*bin, pl.X.Max))
		switch {
		case float64(n) <= pl.Y.Max || left >= right:
			continue
		case !cut:
			from, cut = left, true
		case left > to+near:
			peak(c, vg.Point{X: (from + to) / 2, Y: top})
			from = left
		}
		to = right
	}
	if cut {
		peak(c, vg.Point{X: (from + to) / 2, Y: top})
	}
}

// area fills what is below the steps: one path, with a piece for each row of bins above 0.
func (s stack) area(c draw.Canvas, pl *plot.Plot, heights []float64, fill color.Color) {
	_, y := pl.Transforms(&c)
	floor := round(y(0))
	var path vg.Path
	open := false
	var last vg.Point
	for _, p := range s.steps(c, pl, heights) {
		switch {
		case p.Y > floor && !open:
			path.Move(vg.Point{X: p.X, Y: floor})
			path.Line(p)
		case p.Y > floor:
			path.Line(p)
		case open:
			path.Line(vg.Point{X: last.X, Y: floor})
			path.Close()
		}
		open, last = p.Y > floor, p
	}
	if open {
		path.Line(vg.Point{X: last.X, Y: floor})
		path.Close()
	}
	if len(path) > 0 {
		c.SetColor(fill)
		c.Fill(path)
	}
}

// steps are the corners of a line that is level in each bin, cut off at the ends of the axes. Bins
// of one height share their corners.
func (s stack) steps(c draw.Canvas, pl *plot.Plot, heights []float64) []vg.Point {
	x, y := pl.Transforms(&c)
	bin := s.traffic.Bin.Seconds()
	var out []vg.Point
	for i, h := range heights {
		from, to := float64(i)*bin, min(float64(i+1)*bin, pl.X.Max)
		if from >= pl.X.Max {
			break
		}
		level := round(y(min(h, pl.Y.Max)))
		if n := len(out); n > 0 && out[n-1].Y == level {
			out[n-1].X = round(x(to))
			continue
		}
		out = append(out, vg.Point{X: round(x(from)), Y: level}, vg.Point{X: round(x(to)), Y: level})
	}
	return out
}

// round keeps files small: a tenth of a pixel is not seen.
func round(l vg.Length) vg.Length { return vg.Length(math.Round(float64(l)*10) / 10) }

// ticks marks round numbers, about as many as it says.
type ticks int

// Ticks is part of plot.Ticker.
func (t ticks) Ticks(low, high float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/float64(t))))
	for _, factor := range []float64{1, 2, 5, 10} {
		if (high-low)/(step*factor) <= float64(t) {
			step *= factor
			break
		}
	}
	var out []plot.Tick
	for i := math.Ceil(low / step); i*step <= high; i++ {
		out = append(out, plot.Tick{Value: i * step, Label: strconv.FormatFloat(i*step, 'g', 6, 64)})
	}
	return out
}

func sum(row []int) (total int) {
	for _, n := range row {
		total += n
	}
	return total
}
