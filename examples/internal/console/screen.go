package console

import (
	"bytes"
	"fmt"
	"io"
)

// A Screen is a table on a terminal, which is drawn again and again in its place. It is not safe for concurrent
// use.
type Screen struct {
	Out   io.Writer
	Width func() int // columns of the terminal, which may change
	drawn int        // lines of the last drawing
}

// Draw replaces the last drawing by what print writes in so many columns. A line that the terminal would wrap
// counted as two, so a word that is wider than the terminal is cut.
func (s *Screen) Draw(print func(out io.Writer, columns int)) {
	var table, frame bytes.Buffer
	columns := max(1, s.Width()-1)
	print(&table, columns)
	s.erase(&frame)
	for line := range bytes.Lines(table.Bytes()) {
		s.drawn++
		if text := bytes.TrimSuffix(line, []byte("\n")); len(text) > columns {
			line = append(text[:columns:columns], '\n')
		}
		frame.Write(line)
	}
	_, _ = s.Out.Write(frame.Bytes()) // what cannot be drawn is no reason to stop
}

// Erase removes the last drawing.
func (s *Screen) Erase() { s.erase(s.Out) }

// erase moves to the left, because the terminal may have written a ^C, then up to the first line, and clears from
// there to the end of the screen.
func (s *Screen) erase(to io.Writer) {
	if s.drawn > 0 {
		fmt.Fprintf(to, "\r\x1b[%dA\x1b[J", s.drawn)
	}
	s.drawn = 0
}
