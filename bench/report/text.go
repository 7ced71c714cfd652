package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Text prints all tables for a terminal.
func (f *File) Text(w io.Writer) error {
	var b strings.Builder
	b.WriteString(wrap(f.where(), 100) + "\n")
	for _, t := range f.Tables() {
		b.WriteByte('\n')
		t.text(&b)
	}
	b.WriteString("\n" + wrap(Rule, 100) + "\n")
	if v := f.Machine.Versions(); len(v) > 0 {
		b.WriteString(wrap(strings.Join(v, ", "), 100) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// text prints one table: titles above, figures to the right, "*" after the best.
func (t Table) text(b *strings.Builder) {
	fmt.Fprintf(b, "%s, %s (%s)\n", t.Scenario.Title, clock(t.Mode), t.Scenario.Name)
	if t.Scenario.About != "" {
		b.WriteString(wrap(t.Scenario.About, 100) + "\n")
	}
	columns := [][]string{t.names()}
	for i := range t.Columns {
		columns = append(columns, t.column(i))
	}
	if t.Shares {
		columns = append(columns, t.shares())
	}
	heads := 0
	for i := range columns {
		heads = max(heads, len(t.head(i)))
	}
	for i := range columns {
		head := t.head(i)
		columns[i] = pad(columns[i], i == 0, slices.Concat(make([]string, heads-len(head)), head))
	}
	for line := range columns[0] {
		var row strings.Builder
		for i, c := range columns {
			if i > 0 {
				row.WriteString("  ")
			}
			row.WriteString(c[line])
		}
		b.WriteString(strings.TrimRight(row.String(), " ") + "\n")
	}
	for _, r := range t.Rows {
		if r.Failed != "" {
			fmt.Fprintf(b, "%s: failed: %s\n", r.Client, r.Failed)
		}
	}
}

func clock(mode string) string { return mode + " time" }

func (t Table) names() []string {
	var out []string
	for _, r := range t.Rows {
		out = append(out, r.Client)
	}
	return out
}

// head are the title lines of a column: of the name, of a metric, of the share.
func (t Table) head(i int) []string {
	switch {
	case i == 0:
		return []string{"client"}
	case i > len(t.Columns):
		return strings.Split(wrap("share of the oracle, %", 10), "\n")
	}
	return strings.Split(wrap(title(t.Columns[i-1].Title, t.Columns[i-1].Unit), 10), "\n")
}

func title(name, unit string) string {
	if unit == "" {
		return name
	}
	return name + ", " + unit
}

// column are the figures of a metric, one a row, of one width.
func (t Table) column(i int) []string {
	var medians, spreads []string
	for _, r := range t.Rows {
		median, spread := r.Cells[i].show(t.Columns[i].Digits)
		medians, spreads = append(medians, median), append(spreads, spread)
	}
	medians, spreads = pad(medians, false, nil), pad(spreads, true, nil)
	for j, r := range t.Rows {
		best := " "
		if r.Cells[i].Best {
			best = "*"
		}
		medians[j] += best + spreads[j]
	}
	return medians
}

func (t Table) shares() []string {
	var out []string
	for _, r := range t.Rows {
		share, _ := r.Share.show(1)
		out = append(out, share+" ")
	}
	return out
}

// show writes the median, and the spread where there is one to be seen.
func (c Cell) show(digits int) (median, spread string) {
	if c.Runs == 0 {
		return "-", ""
	}
	if s := Number(c.Spread(), digits); s != Number(0, digits) {
		spread = " ±" + s
	}
	return Number(c.Median, digits), spread
}

// pad brings all lines to one width, the title lines above them and a rule between.
func pad(lines []string, left bool, head []string) []string {
	width := 0
	for _, s := range slices.Concat(head, lines) {
		width = max(width, utf8.RuneCountInString(s))
	}
	fit := func(s string) string {
		space := strings.Repeat(" ", width-utf8.RuneCountInString(s))
		if left {
			return s + space
		}
		return space + s
	}
	var out []string
	if head != nil {
		for _, s := range head {
			out = append(out, fit(s))
		}
		out = append(out, strings.Repeat("-", width))
	}
	for _, s := range lines {
		out = append(out, fit(s))
	}
	return out
}

// wrap breaks a text into lines of at most so many letters, or one word.
func wrap(text string, width int) string {
	var b strings.Builder
	used := 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case used == 0:
		case used+1+n > width:
			b.WriteByte('\n')
			used = 0
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += n
	}
	return b.String()
}
