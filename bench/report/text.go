package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Text prints all tables for a terminal of so many columns.
func (f *File) Text(w io.Writer, columns int) error {
	var b strings.Builder
	b.WriteString(Wrap(f.where(), columns) + "\n")
	for _, t := range f.Tables() {
		b.WriteByte('\n')
		t.text(&b, columns)
	}
	b.WriteString("\n" + Wrap(Rule, columns) + "\n")
	if v := f.Machine.Versions(); len(v) > 0 {
		b.WriteString(Wrap(strings.Join(v, ", "), columns) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// text prints one table: titles above, figures to the right, "*" after the best.
func (t Table) text(b *strings.Builder, width int) {
	b.WriteString(Wrap(fmt.Sprintf("%s, %s (%s)", t.Scenario.Title, clock(t.Mode), t.Scenario.Name), width) + "\n")
	if t.Scenario.About != "" {
		b.WriteString(Wrap(t.Scenario.About, width) + "\n")
	}
	columns := [][]string{nil}
	for i := range t.Columns {
		columns = append(columns, t.column(i))
	}
	if t.Shares {
		columns = append(columns, t.shares())
	}
	// A name that is wider than half of the terminal takes several lines; the first one has the figures.
	for _, name := range t.names() {
		lines := strings.Split(Wrap(name, width/2), "\n")
		at := len(columns[0])
		columns[0] = append(columns[0], lines...)
		for i := range columns[1:] {
			columns[i+1] = slices.Insert(columns[i+1], at+1, make([]string, len(lines)-1)...)
		}
	}
	heads := 0
	for i := range columns {
		heads = max(heads, len(t.head(i)))
	}
	for i := range columns {
		head := t.head(i)
		columns[i] = pad(columns[i], i == 0, slices.Concat(make([]string, heads-len(head)), head))
	}
	printColumns(b, columns, width)
	for _, r := range t.Rows {
		if r.Failed != "" {
			b.WriteString(Wrap(fmt.Sprintf("%s: failed: %s", r.Client, r.Failed), width) + "\n")
		}
	}
}

// printColumns prints the columns side by side. Those that do not fit go below, beside the names once more.
func printColumns(b *strings.Builder, columns [][]string, width int) {
	for names, rest := columns[0], columns[1:]; ; b.WriteByte('\n') {
		some, used := 0, utf8.RuneCountInString(names[0])
		for _, c := range rest {
			if used += 2 + utf8.RuneCountInString(c[0]); used > width && some > 0 {
				break
			}
			some++
		}
		for line := range names {
			row := names[line]
			for _, c := range rest[:some] {
				row += "  " + c[line]
			}
			b.WriteString(strings.TrimRight(row, " ") + "\n")
		}
		if rest = rest[some:]; len(rest) == 0 {
			return
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
		return strings.Split(Wrap("share of the oracle, %", 10), "\n")
	}
	return strings.Split(Wrap(title(t.Columns[i-1].Title, t.Columns[i-1].Unit), 10), "\n")
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

// Wrap breaks a text into lines of at most so many letters, or one word.
func Wrap(text string, width int) string {
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
