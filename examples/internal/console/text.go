package console

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// defaultColumns is what 0 columns stand for, and the most that a program writes.
const defaultColumns = 80

// Fill breaks a text between words into lines of at most so many columns; 0: 80. What begins the text as white
// space stays; the other lines begin with indent. A word that is longer has a line of its own.
func Fill(text string, columns int, indent string) string {
	columns = cmp.Or(columns, defaultColumns)
	lead := text[:len(text)-len(strings.TrimLeft(text, " "))]
	var b strings.Builder
	b.WriteString(lead)
	used, first := utf8.RuneCountInString(lead), true
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case first:
		case used+1+n > columns:
			b.WriteString("\n" + indent)
			used = utf8.RuneCountInString(indent)
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used, first = used+n, false
	}
	return b.String()
}

// Print writes rows of cells, the head first, in so many columns; 0: 80. A table that is wider than the columns is
// turned, so that the head is its first column; one that is still too wide becomes a list. With right, all
// but the first column are aligned to the right.
func Print(out io.Writer, columns int, right bool, rows [][]string) error {
	columns = cmp.Or(columns, defaultColumns)
	lines, wide := layout(rows, right)
	if wide > columns {
		lines, wide = layout(turn(rows), right)
	}
	if wide > columns {
		lines = list(rows, columns)
	}
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}

// layout brings the cells of each column to one width.
func layout(rows [][]string, right bool) (lines []string, wide int) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		cells := slices.Clone(row)
		for i, cell := range cells {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if right && i > 0 {
				cells[i] = space + cell
			} else {
				cells[i] = cell + space
			}
		}
		line := strings.TrimRight(strings.Join(cells, "   "), " ")
		lines, wide = append(lines, line), max(wide, utf8.RuneCountInString(line))
	}
	return lines, wide
}

// turn makes columns of rows.
func turn(rows [][]string) [][]string {
	turned := make([][]string, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			turned[i] = append(turned[i], cell)
		}
	}
	return turned
}

// list writes each row as lines of "head: cell".
func list(rows [][]string, columns int) (lines []string) {
	for n, row := range rows[1:] {
		if n > 0 {
			lines = append(lines, "")
		}
		for i, cell := range row {
			lines = append(lines, strings.Split(Fill(fmt.Sprintf("%s: %s", rows[0][i], cell), columns, "  "), "\n")...)
		}
	}
	return lines
}
