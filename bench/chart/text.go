package chart

import (
	"image/color"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

var (
	paper = color.RGBA{0xFF, 0xFF, 0xFF, 0xFF}
	ink   = color.RGBA{0x1F, 0x23, 0x28, 0xFF}
	grey  = color.RGBA{0x59, 0x63, 0x6E, 0xFF}
	rule  = color.RGBA{0xC4, 0xCB, 0xD3, 0xFF}
	sans  = font.Font{Typeface: "Liberation", Variant: "Sans"}
)

// toRight before a text lets it end at its place rather than begin there, in the reader's font.
const toRight = "\u2060"

type option func(*text.Style)

// bold is for titles.
func bold(s *text.Style) { s.Font.Weight = xfont.WeightBold }

func style(size vg.Length, c color.Color, options ...option) text.Style {
	s := text.Style{Color: c, Font: sans, Handler: plot.DefaultTextHandler}
	s.Font.Size = size
	for _, o := range options {
		o(&s)
	}
	return s
}

// write writes a line of text and returns its width.
func write(c draw.Canvas, at vg.Point, s string, size vg.Length, color color.Color, options ...option) vg.Length {
	sty := style(size, color, options...)
	c.FillText(sty, vg.Point{X: round(at.X), Y: round(at.Y)}, s)
	return sty.Width(s) * others
}

// others are how much wider a text may be where Liberation Sans and its kin are missing.
const others = 1.2

// filled is how much of a line a text fills. What is left is for wider fonts, and keeps lines readable.
const filled = 0.8

// breakLines breaks a text so that its lines fill 80 % of the width, and less than all of it in other fonts.
func breakLines(s string, size, width vg.Length) []string {
	sty := style(size, grey)
	var lines []string
	for _, word := range strings.Fields(s) {
		if n := len(lines); n > 0 && sty.Width(lines[n-1]+" "+word) <= filled*width {
			lines[n-1] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}
