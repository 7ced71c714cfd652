package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/bench/fleets"
	"github.com/go-throttle/throttle/bench/report"
	"github.com/go-throttle/throttle/bench/scenario"
)

func TestMain(m *testing.M) {
	scenario.ServeVirtual()
	fleets.Serve()
	os.Exit(m.Run())
}

// TestShort runs one scenario with two clients in virtual time, then shows the results again.
func TestShort(t *testing.T) {
	dir := t.TempDir()
	c := configure(t, "-short", "-scenario", "backfill-known-bucket", "-clients", "x/time/rate,throttle: limit configured", "-mode", "virtual", "-reps", "2", "-out", dir)
	var out bytes.Buffer
	if err := c.run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	contains(t, out.String(), "4 runs: about", "4/4", "Backfill, limit known: token bucket", "x/time/rate", "throttle: limit configured")
	if strings.Contains(out.String(), "failed") {
		t.Error(out.String())
	}
	first := read(t, filepath.Join(dir, "backfill-known-bucket-virtual.svg"))
	contains(t, first, "<svg ", "throttle: limit configured")
	contains(t, read(t, filepath.Join(dir, "compare.md")), "| x/time/rate |")

	page := filepath.Join(dir, "page.md")
	text := "<!-- chart backfill-known-bucket virtual a.svg: throttle: limit configured -->\n<!-- compare backfill-known-bucket.quota_used@virtual -->\n<!-- /compare -->\n"
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	again := configure(t, "-from", filepath.Join(dir, "compare.json"), "-clients", "x/*", "-out", filepath.Join(dir, "again"), "-readme", page)
	out.Reset()
	if err := again.run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if contains(t, out.String(), "x/time/rate"); strings.Contains(out.String(), "throttle: limit") {
		t.Error(out.String())
	}
	contains(t, read(t, page), "| throttle: limit configured | **")
	if svg := read(t, filepath.Join(dir, "a.svg")); strings.Contains(svg, "x/time/rate") {
		t.Error("a panel that is not wanted")
	}
}

func configure(t *testing.T, args ...string) *config {
	t.Helper()
	c, err := parse(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func contains(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in\n%s", w, text)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// fakes are two scenarios and three clients that only sleep.
func fakes() ([]scenario.Scenario, []client.Client) {
	run := func(takes time.Duration) func(context.Context, client.Client, scenario.Options) (scenario.Result, error) {
		return func(ctx context.Context, c client.Client, o scenario.Options) (r scenario.Result, err error) {
			sleep := takes
			switch c.Name {
			case "broken":
				return r, errors.New("it broke")
			case "panics":
				panic("it fell")
			case "hangs":
				sleep = time.Hour
			}
			select {
			case <-time.After(sleep):
			case <-ctx.Done():
			}
			r.Values = map[string]float64{"seed": float64(o.Seed)}
			r.Traffic = &scenario.Traffic{Bin: time.Second, Accepted: []int{1, 2}}
			return r, ctx.Err()
		}
	}
	metrics := []scenario.Metric{{Name: "seed", Title: "seed", Better: 1}}
	start := func(client.Job) (client.Doer, error) { return http.DefaultClient, nil }
	return []scenario.Scenario{
		{Name: "slow", Title: "Slow", Metrics: metrics, Takes: 40 * time.Second, Run: run(40 * time.Second)},
		{Name: "quick-alone", Title: "Quick", Metrics: metrics, Takes: time.Second, Alone: true, Run: run(time.Second), Fits: func(c client.Client) bool { return c.Limits }},
	}, []client.Client{{Name: "good/a", Limits: true, Start: start}, {Name: "good/b", Start: start}, {Name: "broken"}, {Name: "panics"}, {Name: "hangs"}}
}

func planned(t *testing.T, args ...string) *plan {
	t.Helper()
	p, err := configure(t, append(args, "-mode", "real")...).plan(fakes())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := planned(t, "-reps", "2", "-parallel", "4")
		var out bytes.Buffer
		begun := time.Now()
		f, err := p.run(t.Context(), &out)
		if err != nil {
			t.Fatal(err)
		}
		contains(t, strings.Join(strings.Fields(out.String()), " "), "2 scenarios, 5 clients, 12 runs: about 1m42s.", "12/12", "failed: it broke", "failed: panic: it fell", "failed: not done after 2m30s")
		if took := time.Since(begun); took != 192*time.Second { // four sleep, two hang, two run alone
			t.Errorf("it took %v", took)
		}
		s := f.Scenarios[0]
		if got := s.Clients(report.Real); s.Name != "slow" || !slices.Equal(got, []string{"good/a", "good/b", "broken", "panics", "hangs"}) {
			t.Errorf("%s: %v", s.Name, got)
		}
		if c := s.Cell("good/b", report.Real, "seed"); c.Runs != 2 || c.Low != 1 || c.High != 2 {
			t.Errorf("seeds %+v", c)
		}
		if runs := s.Of("good/a", report.Real); runs[0].Traffic == nil || runs[1].Traffic != nil {
			t.Error("traffic is kept of the first repetition")
		}
		if got := f.Scenarios[1].Clients(report.Real); !slices.Equal(got, []string{"good/a"}) {
			t.Errorf("%v ran what only one fits", got)
		}
	})
}

// TestInterrupt: what has ended is there, what was cut short is not.
func TestInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := planned(t, "-reps", "1")
		ctx, cancel := context.WithTimeout(t.Context(), 41*time.Second)
		defer cancel()
		f, err := p.run(ctx, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Scenarios) != 1 || !slices.Equal(f.Scenarios[0].Clients(report.Real), []string{"good/a", "good/b", "broken", "panics"}) {
			t.Errorf("%+v", f.Scenarios)
		}
	})
}

func TestBar(t *testing.T) {
	var terminal, out bytes.Buffer
	b := newProgress(2, 80, &terminal, &out)
	for range 2 {
		b.done(job{scenario: scenario.Scenario{Name: "one"}}, &report.Run{})
	}
	b.end()
	if got := terminal.String(); !strings.Contains(got, "one") || !strings.Contains(got, "(2/2") || out.Len() > 0 {
		t.Errorf("%q, and %q", got, out.String())
	}
}

func TestList(t *testing.T) {
	var out bytes.Buffer
	if err := configure(t, "-list").run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	contains(t, out.String(), "outage-known", "throttle: zero value", "oracle", "fleet-16", "redis_rate")
	checkWidth(t, out.String(), 80)
}

// checkWidth checks that no line is wider.
func checkWidth(t *testing.T, text string, columns int) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns {
			t.Errorf("%d columns of %d: %s", n, columns, line)
		}
	}
}

// TestHelp: -h says in a line each what the program is for and how to run it.
func TestHelp(t *testing.T) {
	for _, columns := range []int{80, 40} {
		t.Setenv("COLUMNS", strconv.Itoa(columns))
		var out, errs bytes.Buffer
		if status := command(t.Context(), []string{"-h"}, &out, &errs); status != 0 || errs.Len() > 0 {
			t.Errorf("%d, %s", status, &errs)
		}
		checkWidth(t, out.String(), columns)
		contains(t, strings.Join(strings.Fields(out.String()), " "), "do to the same upstreams. Usage: go run ./bench/cmd/compare [flags]",
			"-from file make tables and charts", "(default 16)")
	}
}

// TestStatus: Ctrl-C is 130, as shells have it; flags that make no sense are 2.
func TestStatus(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for args, want := range map[string]int{"-list": 130, "-scenario backfill-known-bucket -mode virtual -clients oracle": 130} {
		if got := command(gone, append(strings.Fields(args), "-out", t.TempDir()), io.Discard, io.Discard); got != want {
			t.Errorf("%s, interrupted: %d, want %d", args, got, want)
		}
	}
	for args, want := range map[string]int{"-list": 0, "-none": 2, "-reps -1": 2, "-from none.json": 1} {
		var errs bytes.Buffer
		if got := command(t.Context(), strings.Fields(args), io.Discard, &errs); got != want || (want > 0) != strings.HasPrefix(errs.String(), "compare: ") {
			t.Errorf("%s: %d, %q, want %d", args, got, &errs, want)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, args := range []string{"-reps -1", "-mode later", "more", "-parallel 0", "-none"} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
	for _, args := range []string{"-scenario none*", "-clients none", "-from none.json"} {
		if err := configure(t, strings.Fields(args)...).run(t.Context(), io.Discard); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
}

func TestNothingFits(t *testing.T) {
	if _, err := configure(t, "-scenario", "quick-alone", "-clients", "good/b").plan(fakes()); err == nil {
		t.Error("no error")
	}
}

// TestFleets: scenarios of fleets run with the clients of fleets alone, and only if their names are asked for.
func TestFleets(t *testing.T) {
	for pattern, want := range map[string]bool{"*": false, "fleet*": true, "rate-*": false} {
		p, err := configure(t, "-scenario", pattern).plan(scenarios(), clients())
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range p.jobs {
			if j.scenario.Fleet != want || j.client.Fleet != want {
				t.Fatalf("%s: %s with %s", pattern, j.scenario.Name, j.client.Name)
			}
		}
		if slices.ContainsFunc(p.clients, func(c client.Client) bool { return c.Fleet != want }) {
			t.Errorf("%s: clients that do not run", pattern)
		}
	}
}

// TestAdaptive: scenarios of limits that adapt run with their own clients alone, in virtual time, and only if their names are asked for.
func TestAdaptive(t *testing.T) {
	all, err := configure(t, "-scenario", "*").plan(scenarios(), clients())
	if err != nil || slices.ContainsFunc(all.jobs, func(j job) bool { return j.scenario.Adapts || j.client.Adapts }) {
		t.Error("they run unasked", err)
	}
	p, err := configure(t, "-scenario", "adaptive-*", "-reps", "1").plan(scenarios(), clients())
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range p.jobs {
		if !j.client.Adapts || j.mode != report.Virtual {
			t.Errorf("%s with %s in %s time", j.scenario.Name, j.client.Name, j.mode)
		}
	}
	if want := len(p.scenarios) * len(client.Adaptive()); len(p.jobs) != want {
		t.Errorf("%d runs, want %d", len(p.jobs), want)
	}
}

// TestMeters: scenarios of meters run with the clients of meters alone, and in virtual time.
func TestMeters(t *testing.T) {
	p, err := configure(t, "-scenario", "meters-*", "-reps", "2").plan(scenarios(), clients())
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range p.jobs {
		if !j.client.Metered || j.mode != report.Virtual {
			t.Errorf("%s with %s in %s time", j.scenario.Name, j.client.Name, j.mode)
		}
	}
	if want := len(p.scenarios) * len(client.Metered()) * 2; len(p.jobs) != want {
		t.Errorf("%d runs, want %d", len(p.jobs), want)
	}
	if got, want := p.command(), "go run ./bench/cmd/compare -scenario 'meters-*' -reps 2"; got != want {
		t.Errorf("command is %s, want %s", got, want)
	}
}

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		patterns, name string
		want           bool
	}{
		{"*", "x/time/rate", true}, {"x/*", "x/time/rate", true}, {"a, x/time/rate", "x/time/rate", true},
		{"x", "x/time/rate", false}, {"throttle*", "throttle: zero value", true}, {"", "a", false}, {"[", "[", false},
	} {
		if got := matcher(test.patterns)(test.name); got != test.want {
			t.Errorf("%q matches %q: %v", test.patterns, test.name, got)
		}
	}
}
