package report

import (
	"math"
	"slices"
	"strconv"

	"github.com/go-throttle/throttle/bench/scenario"
)

// Rule says how figures are to be read; it stands below the tables.
const Rule = "Each figure is the median of the repetitions, ± how far off the farthest is. Marked are the best of each column and those that are " +
	"not clearly behind it: the ranges overlap, the same figures are shown, or single runs in real time differ by 2 % at most. Who delivers " +
	"less than 99 % of the best is marked in no other column. The oracle knows everything, and is no rival."

// noise of a single run in real time.
const noise = 0.02

// delivered is the metric that says whether a client did its job; without that, the other figures
// are no merit.
const delivered = "delivered"

// A Table is one scenario in one mode.
type Table struct {
	Scenario *Scenario
	Mode     string
	Columns  []scenario.Metric
	Rows     []Row
	Reps     int  // most that a client ran
	Shares   bool // there is an oracle: Row.Share is set
}

// A Row is one client.
type Row struct {
	Client string
	Cells  []Cell // one a column
	Share  Cell   // the first column as a share of the oracle's, in percent
	Failed string // why there are no figures, or fewer
}

// A Cell is a metric over the repetitions.
type Cell struct {
	Runs              int // 0: not measured
	Median, Low, High float64
	Best              bool
}

// Tables are made in the order of the file, the real mode before the virtual.
func (f *File) Tables() []Table {
	var out []Table
	for i := range f.Scenarios {
		s := &f.Scenarios[i]
		for _, mode := range []string{Real, Virtual} {
			if clients := s.Clients(mode); len(clients) > 0 {
				out = append(out, s.table(mode, clients))
			}
		}
	}
	return out
}

func (s *Scenario) table(mode string, clients []string) Table {
	t := Table{Scenario: s, Mode: mode}
	for _, m := range s.Metrics {
		if slices.ContainsFunc(clients, func(c string) bool { return s.Cell(c, mode, m.Name).Runs > 0 }) {
			t.Columns = append(t.Columns, m)
		}
	}
	for _, c := range clients {
		row := Row{Client: c}
		for _, m := range t.Columns {
			row.Cells = append(row.Cells, s.Cell(c, mode, m.Name))
		}
		runs := s.Of(c, mode)
		t.Reps = max(t.Reps, len(runs))
		for _, r := range runs {
			if r.Failed != "" {
				row.Failed = r.Failed
			}
		}
		t.Rows = append(t.Rows, row)
	}
	for i, m := range t.Columns {
		mark(t.Rows, i, m, mode, s.able(mode, m.Name))
	}
	t.share(s.able(mode, ""))
	return t
}

// Cell sums up one figure of one client. Runs that failed do not count.
func (s *Scenario) Cell(client, mode, metric string) Cell {
	var values []float64
	for _, r := range s.Of(client, mode) {
		if v, ok := r.Values[metric]; ok && r.Failed == "" {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return Cell{}
	}
	slices.Sort(values)
	n := len(values)
	return Cell{Runs: n, Median: (values[(n-1)/2] + values[n/2]) / 2, Low: values[0], High: values[n-1]}
}

// Spread is 0 for a single run, else how far the farthest repetition is from the median.
func (c Cell) Spread() float64 { return max(c.High-c.Median, c.Median-c.Low) }

// able tells who may be marked in a column: rivals that did their job.
func (s *Scenario) able(mode, metric string) func(client string) bool {
	most := 0.0
	for _, c := range s.Clients(mode) {
		if c != Oracle {
			most = max(most, s.Cell(c, mode, delivered).Median)
		}
	}
	return func(c string) bool {
		return c != Oracle && (metric == delivered || s.Cell(c, mode, delivered).Median >= 0.99*most)
	}
}

// mark marks the best of a column, and what does not differ from it by more than noise.
func mark(rows []Row, col int, m scenario.Metric, mode string, able func(client string) bool) {
	var best *Cell
	for i := range rows {
		c := &rows[i].Cells[col]
		if m.Better == 0 || c.Runs == 0 || !able(rows[i].Client) {
			continue
		}
		if best == nil || float64(m.Better)*(c.Median-best.Median) > 0 {
			best = c
		}
	}
	if best == nil {
		return
	}
	for i := range rows {
		c := &rows[i].Cells[col]
		if c.Runs == 0 || !able(rows[i].Client) {
			continue
		}
		overlap := c.Low <= best.High && c.High >= best.Low
		near := mode == Real && c.Runs == 1 && math.Abs(c.Median-best.Median) <= noise*math.Abs(best.Median)
		c.Best = overlap || near || Number(c.Median, m.Digits) == Number(best.Median, m.Digits)
	}
}

// share sets the shares of those who did their job.
func (t *Table) share(able func(client string) bool) {
	i := slices.IndexFunc(t.Rows, func(r Row) bool { return r.Client == Oracle })
	if i < 0 || len(t.Columns) == 0 || t.Columns[0].Better == 0 || t.Rows[i].Cells[0].Runs == 0 {
		return
	}
	possible := t.Rows[i].Cells[0].Median
	for i := range t.Rows {
		c := t.Rows[i].Cells[0]
		if c.Runs == 0 || !able(t.Rows[i].Client) && t.Rows[i].Client != Oracle {
			continue
		}
		share := c.Median / possible
		if t.Columns[0].Better < 0 {
			share = possible / c.Median
		}
		digits := t.Columns[0].Digits
		switch zero := Number(0, digits); { // of next to nothing there are no shares
		case Number(c.Median, digits) == Number(possible, digits):
			share = 1
		case Number(c.Median, digits) == zero || Number(possible, digits) == zero:
			continue
		}
		t.Shares = true
		t.Rows[i].Share = Cell{Runs: c.Runs, Median: 100 * share}
	}
}

// Number writes a figure with so many digits after the point, and commas between thousands.
func Number(v float64, digits int) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	s := strconv.FormatFloat(math.Abs(v), 'f', max(digits, 0), 64)
	whole := len(s)
	if digits > 0 {
		whole -= digits + 1
	}
	for i := whole - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if v < 0 && slices.ContainsFunc([]byte(s), func(b byte) bool { return b >= '1' && b <= '9' }) {
		s = "-" + s
	}
	return s
}
