package chart

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-throttle/throttle/bench/report"
	"github.com/go-throttle/throttle/bench/scenario"
)

// courses are clients that answer so many of 200 calls a second.
func courses(answers map[string]int) *report.Scenario {
	s := &report.Scenario{Name: "free", Title: "Sample", About: sample().About}
	for name, n := range answers {
		c := &scenario.Course{Bin: 5 * time.Second, Answers: slices.Repeat([]int{5 * n}, 120), Possible: slices.Repeat([]int{1000}, 120)}
		s.Runs = append(s.Runs, report.Run{Client: name, Mode: report.Virtual, Rep: 1, Values: map[string]float64{"kept": float64(n) / 2}, Course: c})
	}
	return s
}

// TestCourses: a mark in a page draws the clients that it names, under its question. Nothing is too small to be read, leaves the page or
// runs into something else, in a wider font too, and neither does anything in the charts of docs/adaptive.md.
func TestCourses(t *testing.T) {
	f := &report.File{Scenarios: []report.Scenario{*courses(map[string]int{
		"go-concurrency-limits: Gradient2": 40, "failsafe-go: adaptive limiter": 150, "throttle: target 1.2 × p90": 200, "no limit": 200,
	})}}
	page := filepath.Join(t.TempDir(), "page.md")
	mark := "<!-- chart free virtual free.svg: Is it slow? failsafe-go: adaptive limiter; throttle: target 1.2 × p90; go-concurrency-limits: Gradient2; no limit -->\n"
	if err := os.WriteFile(page, []byte(mark), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Refresh(f, page); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(filepath.Join(filepath.Dir(page), "free.svg"))
	if err != nil {
		t.Fatal(err)
	}
	check(t, string(svg), "Is it slow?", "20 %", "75 %", "100 %", "minutes", "what is possible")
	pictures := map[string][]byte{"sample": svg}
	committed, err := filepath.Glob("../../docs/adaptive-*.svg")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range committed {
		if pictures[path], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	for name, svg := range pictures {
		texts := textsOf(t, svg)
		fits(t, name, texts, coursesWidth)
		if i := slices.IndexFunc(texts, func(p placed) bool { return p.size < 12 }); i >= 0 {
			t.Errorf("%s: %q is too small to be read", name, texts[i].text)
		}
		if heading := texts[0].text; !strings.HasSuffix(heading, "?") {
			t.Errorf("%s: %q is not a question", name, heading)
		}
	}
	if err := drawn(&f.Scenarios[0], report.Virtual, "nobody", new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Error(err)
	}
}
