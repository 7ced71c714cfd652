package report

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-throttle/throttle/bench/scenario"
)

var update = flag.Bool("update", false, "write the golden files anew")

// sample is two scenarios: one with an oracle, spread and a failure, one of a single repetition.
func sample() *File {
	f := &File{
		Clients: []string{"bare", "rehttp", "x/time/rate", "throttle", Oracle},
		Command: "go run ./bench/cmd/compare -scenario 'b*'",
		Made:    time.Date(2026, 11, 21, 9, 45, 0, 0, time.UTC),
		Machine: Machine{
			CPU: "Some CPU", Cores: 2, System: "linux/amd64", Go: "go1.26",
			Modules: map[string]string{"golang.org/x/time": "v0.14.0", "example.com/other": "v1.0.0"},
		},
	}
	backfill := scenario.Scenario{
		Name: "backfill", Title: "Backfill, limit known", About: "An upstream of 100/s. Right is to use all of it and never to be throttled.",
		Metrics: []scenario.Metric{
			{Name: "used", Title: "quota used", Unit: "%", Better: 1, Digits: 1},
			{Name: "throttled", Title: "throttled by the upstream", Better: -1},
			{Name: "sent", Title: "sent", Digits: 0},
			{Name: "delivered", Title: "delivered", Unit: "%", Better: 1},
			{Name: "never", Title: "never measured"},
		},
	}
	add := func(client string, used, throttled, sent float64, rep int) {
		done := 100.0
		if client == "bare" {
			done = 98
		}
		f.Add(backfill, Run{Client: client, Mode: Virtual, Rep: rep, Values: map[string]float64{"used": used, "throttled": throttled, "sent": sent, "delivered": done}})
	}
	for rep, d := range []float64{0, 0.2, -0.4} {
		add("bare", 101, 12345+100*d, 1234567, rep+1)
		add("x/time/rate", 99.5+d, 3, 400, rep+1)
		add("throttle", 99.3+d, 0, 400, rep+1)
		add(Oracle, 99.9, 0, 400, rep+1)
	}
	f.Add(backfill, Run{Client: "rehttp", Mode: Virtual, Rep: 1, Failed: "it never came back"})
	cost := scenario.Scenario{
		Name: "cost", Title: "Cost of a call",
		Metrics: []scenario.Metric{{Name: "ns", Title: "time", Unit: "ns", Better: -1, Digits: 0}, {Name: "allocs", Title: "allocations", Better: -1}},
	}
	f.Add(cost, Run{Client: "x/time/rate", Mode: Real, Rep: 1, Values: map[string]float64{"ns": 131.4, "allocs": 0}})
	f.Add(cost, Run{Client: "throttle", Mode: Real, Rep: 1, Values: map[string]float64{"ns": 300.6, "allocs": 0}, Traffic: &Traffic{
		Bin: 100 * time.Millisecond, Accepted: []int{1, 2, 0, 0}, Throttled: []int{0, 0, 0, 0}, Failed: []int{0, 4, 5, 6}, Limit: []float64{10, 10, 0, 10},
	}})
	return f
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("not as in %s; got\n%s", path, got)
	}
}

func TestOutput(t *testing.T) {
	var text, markdown, file bytes.Buffer
	f := sample()
	if err := f.Text(&text, 80); err != nil {
		t.Fatal(err)
	}
	golden(t, "tables.txt", text.String())
	if err := f.Markdown(&markdown); err != nil {
		t.Fatal(err)
	}
	golden(t, "tables.md", markdown.String())
	if err := f.encode(&file); err != nil {
		t.Fatal(err)
	}
	golden(t, "results.json", file.String())
}

// TestNarrow: whatever the terminal's width, no line is wider, no word is broken and no figure is lost.
func TestNarrow(t *testing.T) {
	f, err := Read("../results/compare.json")
	if err != nil {
		t.Fatal(err)
	}
	var wide bytes.Buffer
	if err := f.Text(&wide, 1000); err != nil {
		t.Fatal(err)
	}
	has := make(map[string]bool)
	for _, word := range strings.Fields(wide.String()) {
		has[word] = true
	}
	for _, columns := range []int{80, 60, 40} {
		var b bytes.Buffer
		if err := f.Text(&b, columns); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(line) - 1; n > columns && strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("%d columns of %d: %s", n, columns, line)
			}
		}
		words := strings.Fields(b.String())
		for _, word := range words {
			if !has[word] && strings.Trim(word, "-") != "" {
				t.Errorf("%d columns: %q is no word", columns, word)
			}
		}
		if n := len(strings.Fields(wide.String())); len(words) < n {
			t.Errorf("%d columns: %d words of %d", columns, len(words), n)
		}
	}
}

func TestFileComesBack(t *testing.T) {
	for _, want := range []*File{sample(), New(true)} {
		path := filepath.Join(t.TempDir(), "new", "results.json")
		if err := want.Write(path); err != nil {
			t.Fatal(err)
		}
		got, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(want.Scenarios) == 0 {
			want.Scenarios = []Scenario{}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("read  %+v\nwrote %+v", got, want)
		}
	}
	if m := New(false).Machine; m.Cores < 1 || m.Go == "" || m.CPU == "" {
		t.Errorf("machine %+v", m)
	}
}

func TestReadRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON": "hello",
		"no bin":  `{"scenarios":[{"name":"a","runs":[{"client":"c","traffic":{"bin":"0s","bins":1}}]}]}`,
		"bad bin": `{"scenarios":[{"name":"a","runs":[{"client":"c","traffic":{"bin":"x"}}]}]}`,
	} {
		path := filepath.Join(t.TempDir(), "results.json")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := Read("testdata/none.json"); err == nil {
		t.Error("no file, no error")
	}
}

// TestMarks: the median decides, then ranges that overlap, then what is shown.
func TestMarks(t *testing.T) {
	cell := func(median, low, high float64) Cell { return Cell{Runs: 3, Median: median, Low: low, High: high} }
	tests := []struct {
		name   string
		better int
		mode   string
		cells  []Cell
		want   []bool
	}{
		{"more", 1, Real, []Cell{cell(1, 1, 1), cell(3, 3, 3), cell(2, 2, 2)}, []bool{false, true, false}},
		{"less", -1, Real, []Cell{cell(1, 1, 1), cell(3, 3, 3), cell(2, 2, 2)}, []bool{true, false, false}},
		{"neither", 0, Real, []Cell{cell(1, 1, 1), cell(3, 3, 3)}, []bool{false, false}},
		{"overlap", 1, Real, []Cell{cell(1, 0, 2.5), cell(3, 2, 4), cell(1.9, 1.8, 1.95)}, []bool{true, true, false}},
		{"same as shown", 1, Real, []Cell{cell(1.04, 1.04, 1.04), cell(1.01, 1.01, 1.01), cell(0.94, 0.94, 0.94)}, []bool{true, true, false}},
		{"once", -1, Real, []Cell{{1, 100, 100, 100, false}, {1, 102, 102, 102, false}, {1, 103, 103, 103, false}}, []bool{true, true, false}},
		{"once, exact", -1, Virtual, []Cell{{1, 100, 100, 100, false}, {1, 102, 102, 102, false}}, []bool{true, false}},
		{"not measured", -1, Real, []Cell{{}, cell(3, 3, 3)}, []bool{false, true}},
	}
	for _, test := range tests {
		var rows []Row
		for _, c := range test.cells {
			rows = append(rows, Row{Cells: []Cell{c}})
		}
		rows = append(rows, Row{Client: Oracle, Cells: []Cell{cell(2.2, -9, 9)}})
		mark(rows, 0, scenario.Metric{Better: test.better, Digits: 1}, test.mode, func(c string) bool { return c != Oracle })
		var got []bool
		for _, r := range rows {
			got = append(got, r.Cells[0].Best)
		}
		if want := append(test.want, false); !slices.Equal(got, want) {
			t.Errorf("%s: marked %v, want %v", test.name, got, want)
		}
	}
}

func TestNumber(t *testing.T) {
	for _, test := range []struct {
		v      float64
		digits int
		want   string
	}{
		{0, 0, "0"}, {999.4, 0, "999"}, {999.5, 0, "1,000"}, {1234567.891, 2, "1,234,567.89"}, {-1234, 0, "-1,234"}, {-0.04, 1, "0.0"}, {-12.5, 1, "-12.5"}, {100, 1, "100.0"},
	} {
		if got := Number(test.v, test.digits); got != test.want {
			t.Errorf("Number(%v, %d) = %q, want %q", test.v, test.digits, got, test.want)
		}
	}
}

func TestRefresh(t *testing.T) {
	f := sample()
	page := "# Page\n\n<!-- compare backfill.used@virtual cost.ns -->\nold\n<!-- /compare -->\nafter\n"
	got, err := f.refresh(page)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "readme.md", got)
	again, err := f.refresh(got)
	if err != nil || again != got {
		t.Errorf("a second time: %v\n%s", err, again)
	}
	for name, page := range map[string]string{
		"no mark":      "text",
		"no end":       "<!-- compare cost.ns -->\n",
		"no scenario":  "<!-- compare none.ns -->\n<!-- /compare -->",
		"no metric":    "<!-- compare cost.none -->\n<!-- /compare -->",
		"no column":    "<!-- compare cost -->\n<!-- /compare -->",
		"unknown mode": "<!-- compare cost.ns@later -->\n<!-- /compare -->",
	} {
		if _, err := f.refresh(page); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	path := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := f.Refresh(path); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(path); string(text) != got {
		t.Errorf("file: %s", text)
	}
}

func TestKeep(t *testing.T) {
	f := sample()
	all := func(string) bool { return true }
	f.Keep(all, func(c string) bool { return c == "throttle" }, func(m string) bool { return m == Real })
	if len(f.Scenarios) != 1 || f.Scenarios[0].Name != "cost" || len(f.Scenarios[0].Runs) != 1 {
		t.Errorf("kept %+v", f.Scenarios)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "loadavg")
	if err := os.WriteFile(path, []byte("1.25 0.50 0.40 1/200 4242\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	m := Machine{Cores: 2, Load: load(path)}
	if m.Load != 1.25 || !strings.Contains(m.Warning(), "load 1.2") || load("testdata/none") != 0 || (Machine{Cores: 4, Load: m.Load}).Warning() != "" {
		t.Errorf("load %v: %q", m.Load, m.Warning())
	}
}

func TestCPU(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cpuinfo")
	if err := os.WriteFile(path, []byte("processor\t: 0\nmodel name\t: Some  CPU @ 2 GHz\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := cpu(path); got != "Some CPU @ 2 GHz" {
		t.Errorf("cpu %q", got)
	}
	if got := cpu("testdata/none"); !strings.Contains(got, "unknown") {
		t.Errorf("cpu %q", got)
	}
}

// TestPeers: what bench/go.mod requires is a peer, or known to be none.
func TestPeers(t *testing.T) {
	tools := []string{"github.com/go-throttle/throttle", "github.com/go-throttle/throttle/throttleotel", "github.com/go-throttle/throttle/throttleredis", "github.com/redis/go-redis/v9", "github.com/go-chi/chi/v5", "github.com/schollz/progressbar/v3", "golang.org/x/image", "golang.org/x/term", "gonum.org/v1/plot"}
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(mod), "\n") {
		words := strings.Fields(line)
		if !strings.HasPrefix(line, "\t") || len(words) != 2 {
			continue // not required by the module itself
		}
		if !slices.Contains(Peers, words[0]) && !slices.Contains(tools, words[0]) && !strings.HasPrefix(words[0], "go.opentelemetry.io/") {
			t.Errorf("%s is required; is it a peer?", words[0])
		}
	}
	m := Machine{Modules: map[string]string{"resty.dev/v3": "v3.0.0", "golang.org/x/term": "v0.1.0"}}
	if got := m.Versions(); !slices.Equal(got, []string{"resty.dev/v3 v3.0.0"}) {
		t.Errorf("versions %q", got)
	}
}
