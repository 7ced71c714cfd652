package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/plot/vg"

	"github.com/go-throttle/throttle/bench/report"
)

var update = flag.Bool("update", false, "write the golden file anew")

// outage is 40 s of an upstream of 100/s that is down from 5 s to 15 s, and of a client that sends
// so many a second and comes back with so many.
func outage(name string, during, after int) report.Run {
	r := rand.New(rand.NewPCG(1, 2))
	t := &report.Traffic{Bin: 100 * time.Millisecond}
	for i := range 400 {
		accepted, throttled, failed, limit := 0, 0, 0, 10.0
		switch {
		case i < 50:
			accepted = 5 + r.IntN(3)
		case i < 150:
			failed, limit = during*r.IntN(3)/2, 0
		case i < 250:
			accepted = min(after, 10)
			throttled = max(after-10, 0) * r.IntN(3)
		default:
			accepted = r.IntN(3)
		}
		t.Accepted, t.Throttled = append(t.Accepted, accepted), append(t.Throttled, throttled)
		t.Failed, t.Limit = append(t.Failed, failed), append(t.Limit, limit)
	}
	return report.Run{Client: name, Mode: report.Real, Rep: 1, Traffic: t}
}

func sample() *report.Scenario {
	return &report.Scenario{
		Name: "outage", Title: "An outage of ten seconds", About: "200 senders make 60 calls a second; the upstream is down from 5 s to 15 s and admits 100 a second after it. " +
			"Right is to leave it alone while it is down, and to come back at what it admits.",
		Runs: []report.Run{
			outage("bare", 6, 8), outage("retry & <hope>", 30, 60), outage("x/time/rate", 10, 10), outage("throttle: limit known", 0, 10),
			{Client: "no traffic", Mode: report.Real}, outage("throttle: limit unknown", 1, 12),
		},
	}
}

func TestSVG(t *testing.T) {
	f, ok := New(sample(), report.Real)
	if !ok || len(f.Panels) != 5 {
		t.Fatalf("%v, %d panels", ok, len(f.Panels))
	}
	var a, b bytes.Buffer
	if err := f.SVG(&a); err != nil {
		t.Fatal(err)
	}
	if err := f.SVG(&b); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("twice the same figure, two pictures")
	}
	const path = "testdata/outage.svg"
	if *update {
		if err := os.WriteFile(path, a.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), want) {
		t.Errorf("the picture is not %s; look at it, and run with -update", path)
	}
	if a.Len() > 100<<10 {
		t.Errorf("%d bytes", a.Len())
	}
	check(t, a.String(), "An outage of ten seconds", "throttle: limit known", "retry &amp; &lt;hope&gt;", "time, s", "throttled by the limit", "per 100 ms")
}

// check parses the picture and looks for texts in it.
func check(t *testing.T, svg string, texts ...string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range texts {
		if !strings.Contains(svg, want) {
			t.Errorf("no text %q", want)
		}
	}
}

// TestWiderFont: where Liberation Sans is missing a text may be a fifth wider. No text then leaves the
// page or runs into the next one on its line, in the charts of the README and in any other.
func TestWiderFont(t *testing.T) {
	results, err := report.Read("../results/compare.json")
	if err != nil {
		t.Fatal(err)
	}
	pictures := map[string][]byte{}
	for i := range results.Scenarios {
		for _, mode := range []string{report.Real, report.Virtual} {
			if f, ok := New(&results.Scenarios[i], mode); ok {
				var b bytes.Buffer
				if err := f.SVG(&b); err != nil {
					t.Fatal(err)
				}
				pictures[f.Title] = b.Bytes()
			}
		}
	}
	for _, path := range []string{"testdata/outage.svg", "../results/outage-unknown.svg", "../results/backfill-unknown.svg"} {
		if pictures[path], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	for name, svg := range pictures {
		fits(t, name, textsOf(t, svg), width)
	}
}

// fits checks that texts stay on the page and apart.
func fits(t *testing.T, name string, texts []placed, width float64) {
	t.Helper()
	for i, a := range texts {
		if a.left < margin-8 || a.right > width-margin+8 {
			t.Errorf("%s: %q goes from %.0f to %.0f of %.0f", name, a.text, a.left, a.right, width)
		}
		for _, b := range texts[:i] {
			if math.Abs(a.y-b.y) < 5 && a.left < b.right && b.left < a.right {
				t.Errorf("%s: %q, to %.0f, runs into %q, from %.0f", name, b.text, b.right, a.text, a.left)
			}
		}
	}
}

// A placed text is where a text goes in a font that is a fifth wider.
type placed struct {
	text                 string
	left, right, y, size float64
}

func textsOf(t *testing.T, svg []byte) (all []placed) {
	var doc struct {
		Texts []struct {
			X      float64 `xml:"x,attr"`
			Y      float64 `xml:"y,attr"`
			Style  string  `xml:"style,attr"`
			Anchor string  `xml:"text-anchor,attr"`
			Text   string  `xml:",chardata"`
		} `xml:"g>text"`
	}
	if err := xml.Unmarshal(svg, &doc); err != nil {
		t.Fatal(err)
	}
	for _, e := range doc.Texts {
		_, size, _ := strings.Cut(e.Style, "font-size:")
		size, _, _ = strings.Cut(size, "px")
		px, err := strconv.ParseFloat(size, 64)
		if err != nil {
			t.Fatalf("%+v: %v", e, err)
		}
		var options []option
		if strings.Contains(e.Style, "font-weight:bold") {
			options = append(options, bold)
		}
		p := placed{e.Text, e.X, e.X + 1.2*float64(style(vg.Length(px), ink, options...).Width(e.Text)), e.Y, px}
		if e.Anchor == "end" {
			p.left, p.right = 2*e.X-p.right, e.X
		}
		all = append(all, p)
	}
	if len(all) < 10 {
		t.Errorf("%d texts are found", len(all))
	}
	return all
}

// TestExplains: who sees a chart alone learns what its axes count, where a peak is cut off and how high it is,
// and who the clients are whose names do not say it. Where nothing is cut or named there is nothing of that.
func TestExplains(t *testing.T) {
	high := outage("throttle: zero value", 30, 60)
	high.Traffic.Failed[60], high.Traffic.Failed[61], high.Traffic.Failed[140] = 900, 700, 800
	draw := func(runs ...report.Run) string {
		f, _ := New(&report.Scenario{Title: "Sample", About: sample().About, Runs: runs}, report.Real)
		var b bytes.Buffer
		if err := f.SVG(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	const sign = "style=\"fill:#1F2328\" />" // a filled shape in the colour of ink
	plain := draw(outage("bare", 0, 10))
	for _, text := range []string{"Zero value:", "Oracle:", "cut off", "peak"} {
		if strings.Contains(plain, text) {
			t.Errorf("a chart that does not need it says %q", text)
		}
	}
	if n := strings.Count(plain, sign); n > 0 {
		t.Errorf("%d marks where nothing is cut", n)
	}
	svg := draw(high, outage("oracle", 0, 10))
	check(t, svg, "Zero value: a &amp;throttle.Transport{}", "Oracle:", "cut off: the peak", "peak 900", ">requests</text>", ">per 100 ms</text>")
	if n := strings.Count(svg, ">per 100 ms</text>"); n != 2 {
		t.Errorf("%d titles of the upright axis, want one a panel", n)
	}
	if n := strings.Count(svg, sign); n < 3 { // in the legend, at 6 s and at 14 s
		t.Errorf("%d marks, want 3 or more", n)
	}
	for _, line := range breakLines(sample().About, 11, 500) {
		if w := style(11, grey).Width(line); w > 400 {
			t.Errorf("%q is %.0f wide, want at most 80 %% of 500", line, float64(w))
		}
	}
}

func TestOddTraffic(t *testing.T) {
	for name, traffic := range map[string]*report.Traffic{
		"nothing came":   {Bin: time.Second, Accepted: []int{0}},
		"rows of unlike": {Bin: time.Second, Accepted: []int{1}, Throttled: []int{0, 3}, Limit: []float64{1, 1, 1}},
		"no limit":       {Bin: time.Millisecond, Failed: []int{1000000}},
	} {
		s := &report.Scenario{Title: name, Runs: []report.Run{{Client: "c", Mode: report.Virtual, Traffic: traffic}}}
		f, ok := New(s, report.Virtual)
		if !ok {
			t.Fatalf("%s: no figure", name)
		}
		var b bytes.Buffer
		if err := f.SVG(&b); err != nil {
			t.Fatal(err)
		}
		check(t, b.String(), name)
		if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
			t.Errorf("%s: NaN or Inf in the picture", name)
		}
	}
	if _, ok := New(sample(), report.Virtual); ok {
		t.Error("a figure of a mode that did not run")
	}
	if err := (Figure{}).SVG(io.Discard); err == nil {
		t.Error("no panels, no error")
	}
}

// TestLong: where a bin would be less than a pixel, several are joined.
func TestLong(t *testing.T) {
	traffic := &report.Traffic{Bin: 100 * time.Millisecond, Accepted: slices.Repeat([]int{1, 0}, 900), Limit: slices.Repeat([]float64{0.5}, 1800)}
	s := &report.Scenario{Title: "Long", Runs: []report.Run{{Client: "c", Mode: report.Virtual, Traffic: traffic}}}
	f, _ := New(s, report.Virtual)
	var b bytes.Buffer
	if err := f.SVG(&b); err != nil {
		t.Fatal(err)
	}
	if check(t, b.String(), "per 500 ms", "900 accepted"); traffic.Bins() != 1800 || b.Len() > 20<<10 {
		t.Errorf("%d bins, %d bytes", traffic.Bins(), b.Len())
	}
	if c := traffic.Coarse(5); !slices.Equal(c.Accepted[:3], []int{3, 2, 3}) || c.Limit[0] != 2.5 {
		t.Errorf("joined: %v, %v", c.Accepted[:3], c.Limit[0])
	}
}

func TestTicks(t *testing.T) {
	for _, test := range []struct {
		high float64
		n    ticks
		want []string
	}{
		{10.4, 3, []string{"0", "5", "10"}},
		{62, 8, []string{"0", "10", "20", "30", "40", "50", "60"}},
		{1, 3, []string{"0", "0.5", "1"}},
		{4160, 3, []string{"0", "2000", "4000"}},
	} {
		var got []string
		for _, tick := range test.n.Ticks(0, test.high) {
			got = append(got, tick.Label)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("up to %v: %v, want %v", test.high, got, test.want)
		}
	}
}
