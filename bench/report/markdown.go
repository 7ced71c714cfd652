package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-throttle/throttle/bench/scenario"
)

// pageWidth is where lines of text break on pages.
const pageWidth = 120

// Markdown prints all tables as a page.
func (f *File) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Side by side\n\n%s\n\n%s\n", Wrap(f.where(), pageWidth), Wrap(Rule, pageWidth))
	if f.Command != "" {
		fmt.Fprintf(&b, "\nMade by `%s`.\n", f.Command)
	}
	for _, t := range f.Tables() {
		fmt.Fprintf(&b, "\n## %s, %s\n\n", t.Scenario.Title, clock(t.Mode))
		if t.Scenario.About != "" {
			fmt.Fprintf(&b, "%s\n\n", t.Scenario.About)
		}
		t.markdown(&b)
	}
	if v := f.Machine.Versions(); len(v) > 0 {
		fmt.Fprintf(&b, "\n%s\n", strings.Join(v, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// where tells what the figures hold for.
func (f *File) where() string {
	s := fmt.Sprintf("%s; %s.", f.Machine, f.Made.Format("2 January 2006"))
	if w := f.Machine.Warning(); w != "" && f.real() {
		s += " " + w
	}
	if f.Short {
		s += " A tenth of the load: these figures say nothing."
	}
	return s
}

// real reports whether a run was made in real time.
func (f *File) real() bool {
	return slices.ContainsFunc(f.Scenarios, func(s Scenario) bool { return len(s.Clients(Real)) > 0 })
}

func (t Table) markdown(b *strings.Builder) {
	head := []string{"client"}
	for _, m := range t.Columns {
		head = append(head, title(m.Title, m.Unit))
	}
	if t.Shares {
		head = append(head, "share of the oracle, %")
	}
	lines(b, head, t.Rows, func(r Row) []string {
		var cells []string
		for i, c := range r.Cells {
			cells = append(cells, c.bold(t.Columns[i].Digits))
		}
		if t.Shares {
			share, _ := r.Share.show(1)
			cells = append(cells, share)
		}
		return cells
	})
	for _, r := range t.Rows {
		if r.Failed != "" {
			fmt.Fprintf(b, "\n%s failed: %s\n", r.Client, r.Failed)
		}
	}
}

// lines prints a Markdown table of rows.
func lines(b *strings.Builder, head []string, rows []Row, cells func(Row) []string) {
	fmt.Fprintf(b, "| %s |\n|---|%s\n", strings.Join(head, " | "), strings.Repeat("---:|", len(head)-1))
	for _, r := range rows {
		fmt.Fprintf(b, "| %s | %s |\n", strings.ReplaceAll(r.Client, "|", `\|`), strings.Join(cells(r), " | "))
	}
}

func (c Cell) bold(digits int) string {
	median, spread := c.show(digits)
	if c.Best {
		median = "**" + median + "**"
	}
	return median + spread
}

// A Column picks one metric of one scenario for a Summary.
type Column struct{ Scenario, Metric, Mode string }

// ParseColumn reads "scenario.metric" or "scenario.metric@virtual".
func ParseColumn(s string) (Column, error) {
	rest, mode, ok := strings.Cut(s, "@")
	if !ok {
		mode = Real
	}
	name, metric, ok := strings.Cut(rest, ".")
	if !ok || name == "" || metric == "" || mode != Real && mode != Virtual {
		return Column{}, fmt.Errorf("column %q: want scenario.metric or scenario.metric@virtual", s)
	}
	return Column{name, metric, mode}, nil
}

// Summary is one Markdown table over several scenarios, and a line on how it came about.
func (f *File) Summary(columns []Column) (string, error) {
	head := []string{"client"}
	var metrics []scenario.Metric
	var rows []Row
	for i, col := range columns {
		s, ok := f.Scenario(col.Scenario)
		if !ok {
			return "", fmt.Errorf("there is no scenario %q in the results", col.Scenario)
		}
		j := slices.IndexFunc(s.Metrics, func(m scenario.Metric) bool { return m.Name == col.Metric })
		if j < 0 {
			return "", fmt.Errorf("scenario %s has no metric %q", col.Scenario, col.Metric)
		}
		metrics = append(metrics, s.Metrics[j])
		head = append(head, s.Name+": "+title(s.Metrics[j].Title, s.Metrics[j].Unit))
		for _, c := range s.Clients(col.Mode) {
			k := slices.IndexFunc(rows, func(r Row) bool { return r.Client == c })
			if k < 0 {
				k = len(rows)
				rows = append(rows, Row{Client: c, Cells: make([]Cell, len(columns))})
			}
			rows[k].Cells[i] = s.Cell(c, col.Mode, col.Metric)
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return slices.Index(f.Clients, a.Client) - slices.Index(f.Clients, b.Client)
	})
	for i, m := range metrics {
		s, _ := f.Scenario(columns[i].Scenario)
		mark(rows, i, m, columns[i].Mode, s.able(columns[i].Mode, m.Name))
	}
	var b strings.Builder
	lines(&b, head, rows, func(r Row) []string {
		var cells []string
		for i, c := range r.Cells {
			cells = append(cells, c.bold(metrics[i].Digits))
		}
		return cells
	})
	fmt.Fprintf(&b, "\n%s\n", Wrap(f.where()+" "+Rule, pageWidth))
	return b.String(), nil
}
