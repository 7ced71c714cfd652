package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/examples/internal/console"
	"github.com/go-throttle/throttle/examples/internal/leak"
	"github.com/go-throttle/throttle/throttletest"
)

// small is a run of about half a second.
func small(tell string) config {
	return config{calls: 150, workers: 4, limit: throttletest.Limit{N: 100}, tell: tell}
}

func TestRun(t *testing.T) {
	for tell, want := range map[string][]string{
		draft8:     {"learned from ratelimit", "limit 100", "name default", "window 1.0 s", "pace ", "source"},
		xRateLimit: {"learned from x-ratelimit", "limit 100", "source"},
		silent:     {},
	} {
		t.Run(tell, func(t *testing.T) {
			leak.Check(t)
			var out bytes.Buffer
			if err := run(t.Context(), small(tell), &out); err != nil {
				t.Fatal(err)
			}
			t.Logf("\n%s", &out)
			text := words(strings.ToLower(out.String())) // the case of header fields means nothing
			for _, want := range append(want, "150 of 150 calls after", ": 150 x 200", "gate") {
				if !strings.Contains(text, want) {
					t.Errorf("the output does not say %q", want)
				}
			}
		})
	}
}

// TestPoint: in full and in brief, an advertised limit is kept without a 429, and one that is not advertised is found by few of them.
// The client that knows nothing takes little longer than the limit does.
func TestPoint(t *testing.T) {
	for _, brief := range []bool{false, true} {
		for tell, most := range map[string]int{draft8: 0, xRateLimit: 0, silent: 10} {
			synctest.Test(t, func(t *testing.T) {
				cfg := config{calls: 60, workers: 4, limit: throttletest.Limit{N: 10, Burst: 20}, tell: tell, bubble: true}.short(brief)
				var out bytes.Buffer
				start := time.Now()
				if err := run(t.Context(), cfg, &out); err != nil {
					t.Fatal(err)
				}
				took, ideal := time.Since(start), time.Duration(cfg.calls-20)*time.Second/10
				t.Logf("%s, %d calls, %v\n%s", tell, cfg.calls, took, &out)
				if n := strings.Count(out.String(), "throttled attempt"); n > most || (n == 0) != (most == 0) {
					t.Errorf("%s: %d attempts were throttled, want at most %d", tell, n, most)
				}
				if !strings.Contains(words(out.String()), fmt.Sprintf(": %d x 200", cfg.calls)) || took > ideal+3*time.Second {
					t.Errorf("%s: not all of %d calls were answered, or not within about %v: %v", tell, cfg.calls, ideal, took)
				}
			})
		}
	}
}

// words is a text without its line breaks.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }

// TestScreen reads back what is drawn on a terminal: as many lines are erased as were drawn, no line is wider
// than the terminal, and the last table is complete.
func TestScreen(t *testing.T) {
	leak.Check(t)
	cfg := small(draft8)
	cfg.width = func() int { return 40 }
	var out bytes.Buffer
	if err := run(t.Context(), cfg, &out); err != nil {
		t.Fatal(err)
	}
	end := strings.LastIndex(out.String(), "\x1b[J")
	if end < 0 {
		t.Fatalf("nothing is drawn:\n%q", &out)
	}
	drawn, last := out.String()[:end], out.String()[end:]
	lines := 0
	for line := range strings.Lines(drawn) {
		line = strings.TrimSuffix(line, "\n")
		if up, rest, erased := strings.Cut(line, "A\x1b[J"); erased {
			if up != fmt.Sprintf("\r\x1b[%d", lines) {
				t.Errorf("%d lines are drawn, and %q erases them", lines, up)
			}
			line, lines = rest, 0
		}
		if len(line) > 39 && !strings.Contains(line, "\x1b[") {
			t.Errorf("a line of %d columns: %q", len(line), line)
		}
		lines++
	}
	for _, want := range []string{"150 x 200", "default", "gate"} {
		if !strings.Contains(last, want) {
			t.Errorf("the last table does not say %q:\n%s", want, last)
		}
	}
}

// TestControlC: if Ctrl-C is pressed, during the run or at its end, the terminal shows "^C" at the cursor.
// Neither that nor the drawing remains.
func TestControlC(t *testing.T) {
	cfg := small(draft8)
	cfg.width = func() int { return 80 }
	var out bytes.Buffer
	v := &screen{session: newSession(cfg), screen: console.Screen{Out: &out, Width: cfg.width}, stop: make(chan struct{})}
	out.WriteString("$ polite\n")
	for range 2 {
		v.draw()
		if lines := shown(t, out.String()); len(lines) < 5 {
			t.Fatalf("the table is not drawn: %q", lines)
		}
		out.WriteString("^C")
	}
	v.finish()
	out.WriteString("the table\n")
	if got := strings.Join(shown(t, out.String()), "\n"); got != "$ polite\nthe table\n" {
		t.Errorf("the terminal shows\n%s\nafter %q", got, &out)
	}
}

// shown is what a terminal shows of text: its lines, and the empty one where the cursor is.
func shown(t *testing.T, text string) []string {
	lines, row, column := []string{""}, 0, 0
	for text != "" {
		var up int
		switch {
		case strings.HasPrefix(text, "\x1b[J"):
			lines = lines[:row+1]
			lines[row] = lines[row][:min(column, len(lines[row]))]
			text = text[3:]
		case strings.HasPrefix(text, "\x1b["):
			end := strings.IndexByte(text, 'A')
			if n, err := fmt.Sscanf(text[:end+1], "\x1b[%dA", &up); n != 1 {
				t.Fatalf("%.10q: %v", text, err)
			}
			row = max(0, row-up)
			text = text[end+1:]
		case text[0] == '\r':
			column, text = 0, text[1:]
		case text[0] == '\n':
			if row++; row == len(lines) {
				lines = append(lines, "")
			}
			column, text = 0, text[1:]
		default:
			line := lines[row] + strings.Repeat(" ", max(0, column+1-len(lines[row])))
			lines[row] = line[:column] + text[:1] + line[column+1:]
			column, text = column+1, text[1:]
		}
	}
	return lines
}

// TestPaused: the program ends if an upstream asks for a longer wait than a call may make.
func TestPaused(t *testing.T) {
	calls := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls++
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()
	var out bytes.Buffer
	err := run(t.Context(), config{url: server.URL, calls: 10, workers: 1}, &out)
	if !errors.Is(err, throttle.ErrPaused) {
		t.Errorf("run: %v, want %v", err, throttle.ErrPaused)
	}
	for _, want := range []string{"throttled attempt 1: 429, asks for a wait of 1h0m0s", "1 of 10 calls", "1 x 429", "closed for 1h"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output does not say %q:\n%s", want, &out)
		}
	}
	if calls != 1 {
		t.Errorf("the upstream saw %d calls, want 1", calls)
	}
}

func TestRedirect(t *testing.T) {
	calls := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		http.Redirect(w, r, "http://elsewhere.invalid/", http.StatusFound)
	}))
	defer server.Close()
	err := run(t.Context(), config{url: server.URL, calls: 10, workers: 1}, &bytes.Buffer{})
	if want := `-url redirects to "http://elsewhere.invalid/": aim at that`; err == nil || err.Error() != want || calls != 1 {
		t.Errorf("run: %v after %d calls, want %s after 1", err, calls, want)
	}
}

func TestNobodyAnswers(t *testing.T) {
	leak.Check(t)
	server := httptest.NewServer(nil)
	server.Close()
	var out bytes.Buffer
	if err := run(t.Context(), config{url: server.URL, calls: 10, workers: 2}, &out); err == nil || !strings.Contains(err.Error(), server.URL) {
		t.Errorf("run: %v, want an error that names %s", err, server.URL)
	}
	if out.Len() > 0 {
		t.Errorf("there is nothing to show, but it prints\n%s", &out)
	}
}

// TestInterrupted: after Ctrl-C there is the table, within the columns.
func TestInterrupted(t *testing.T) {
	leak.Check(t)
	for _, columns := range []int{0, 50, 30} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		cfg := small(draft8)
		cfg.calls, cfg.columns = 100_000, columns
		var out bytes.Buffer
		if err := run(ctx, cfg, &out); !errors.Is(err, context.Canceled) {
			t.Errorf("run after an interrupt: %v, want %v", err, context.Canceled)
		}
		if text := words(out.String()); !strings.Contains(text, "of 100000 calls") || !strings.Contains(text, "gate") {
			t.Errorf("%d columns: the table is not there:\n%s", columns, &out)
		}
		for line := range strings.Lines(out.String()) {
			if len(line) > cmp.Or(columns, 80)+1 {
				t.Errorf("wider than %d columns: %s", columns, line)
			}
		}
	}
}

func TestNonsense(t *testing.T) {
	for _, cfg := range []config{
		{calls: 0, workers: 1, tell: draft8},
		{calls: 1, workers: 0, tell: draft8},
		{calls: 1, workers: 1, tell: "loudly"},
		{calls: 1, workers: 1, url: "example.com"},
		{calls: 1, workers: 1, url: "ftp://example.com/"},
		{calls: 1, workers: 1, url: "http:///path"},
		{calls: 1, workers: 1, url: "http://:80/"},
		{calls: 1, workers: 1, url: "http://example.com:99999/"},
		{calls: 1, workers: 1, url: "http://%zz/"},
	} {
		var out bytes.Buffer
		if err := run(t.Context(), cfg, &out); err == nil || out.Len() > 0 || cfg.url != "" && !strings.HasPrefix(err.Error(), "-url") {
			t.Errorf("run with %+v did not complain before it began: %v\n%s", cfg, err, &out)
		}
	}
}

func TestWord(t *testing.T) {
	for text, want := range map[string]string{
		"":                       unknown,
		"requests":               "requests",
		"\x1b[2J\n":              `"\x1b[2J\n"`,
		"per\thour":              `"per\thour"`,
		strings.Repeat("x", 100): strings.Repeat("x", 60) + "...",
	} {
		if got := word(text); got != want {
			t.Errorf("word(%q) = %s, want %s", text, got, want)
		}
	}
}
