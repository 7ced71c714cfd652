package chart

import (
	"fmt"
	"slices"
	"time"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A legendEntry is a sign and what it stands for.
type legendEntry struct {
	text string
	sign func(page draw.Canvas, at vg.Point) // draws 16 pixels wide; nil: the text stands alone
}

type legendLine []legendEntry

const (
	signing = 20 // a sign and the space after it
	apart   = 14 // between entries
)

// width is that of an entry, in the reader's font.
func (e legendEntry) width() vg.Length {
	w := style(11, ink).Width(e.text) * others
	if e.sign != nil {
		w += signing
	}
	return w
}

// legend says what the colours mean, in as many lines as that needs.
func (f Figure) legend(a axes) (lines []legendLine) {
	all := legendLine{{text: "Requests that arrive, per " + span(f.Panels[0].Traffic.Bin) + ":"}}
	for _, l := range layers {
		if slices.ContainsFunc(f.Panels, func(p Panel) bool { return sum(l.row(p.Traffic)) > 0 }) {
			all = append(all, legendEntry{l.name, func(page draw.Canvas, at vg.Point) {
				page.FillPolygon(l.color, []vg.Point{at, {X: at.X + 10, Y: at.Y}, {X: at.X + 10, Y: at.Y + 9}, {X: at.X, Y: at.Y + 9}})
			}})
		}
	}
	all = append(all, legendEntry{"what the upstream admits", func(page draw.Canvas, at vg.Point) {
		page.StrokeLine2(limitLine, at.X, at.Y+4, at.X+16, at.Y+4)
	}})
	if slices.ContainsFunc(f.Panels, func(p Panel) bool { return p.cut(a) }) {
		all = append(all, legendEntry{"cut off: the peak is higher than the axis", func(page draw.Canvas, at vg.Point) {
			peak(page, vg.Point{X: at.X + 6, Y: at.Y + 1})
		}})
	}
	used := vg.Length(0)
	for _, e := range all {
		if used += e.width() + apart; len(lines) == 0 || used-apart > width-2*margin {
			lines, used = append(lines, nil), e.width()+apart
		}
		lines[len(lines)-1] = append(lines[len(lines)-1], e)
	}
	return lines
}

func (line legendLine) draw(page draw.Canvas, at vg.Point) {
	for _, e := range line {
		text := at
		if e.sign != nil {
			e.sign(page, at)
			text.X += signing
		}
		write(page, text, e.text, 11, ink)
		at.X += e.width() + apart
	}
}

// peak marks where something is higher than the axis: an arrowhead that stands on the point.
func peak(c draw.Canvas, at vg.Point) {
	x, y := round(at.X), round(at.Y)
	c.FillPolygon(ink, []vg.Point{{X: x - 3.5, Y: y}, {X: x + 3.5, Y: y}, {X: x, Y: y + 6}})
}

// span writes a length of time as people do: "100 ms".
func span(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return fmt.Sprintf("%g ms", float64(d)/float64(time.Millisecond))
}
