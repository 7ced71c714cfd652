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
	"unicode/utf8"

	"github.com/go-throttle/throttle/examples/internal/console"
	"github.com/go-throttle/throttle/examples/internal/leak"
	"github.com/go-throttle/throttle/throttletest"
)

// small is a run of about a second. The slack lets a slow machine deliver calls up to a second late and in a
// bunch; a client without a limit would still get 429s.
var small = config{limit: "50/s burst 10", calls: 80, workers: 8, slack: 50}

func TestRun(t *testing.T) {
	leak.Check(t)
	var out bytes.Buffer
	if err := run(t.Context(), small, &out); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &out)
	checkWidth(t, out.String(), 80)
	rows := table(out.String())
	if got := rows["throttled"]; got.calls != 80 || got.delivered != 80 || got.refused != 0 {
		t.Errorf("throttled %+v, want all 80 delivered and none refused", got)
	}
	if got := rows["bare"]; got.calls != 80 || got.delivered+got.refused != 80 {
		t.Errorf("bare %+v, want each of the 80 delivered or refused", got)
	}
	for _, want := range []string{"throttled: 80 of 80 calls", "throttled: 100 % delivered, 0 x 429", "by the upstream's burst"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output does not say %q", want)
		}
	}
}

// TestPoint: in full and in brief, most calls of the bare client are throttled, and those with throttle are all delivered, none is
// throttled, and they take the shortest time in which the limit admits them.
func TestPoint(t *testing.T) {
	for _, brief := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := config{limit: "100/s burst 10", calls: 400, workers: 32, bubble: true}.short(brief)
			var out bytes.Buffer
			if err := run(t.Context(), cfg, &out); err != nil {
				t.Fatal(err)
			}
			t.Logf("\n%s", &out)
			rows := table(out.String())
			if got := rows["bare"]; got.refused < cfg.calls*3/4 || got.delivered+got.refused != cfg.calls {
				t.Errorf("bare %+v, want most of %d refused", got, cfg.calls)
			}
			if got := rows["throttled"]; got.delivered != cfg.calls || got.refused != 0 || !strings.Contains(out.String(), "0 x 429, 1.000 x ideal time") {
				t.Errorf("throttled %+v, want %d delivered in the ideal time", got, cfg.calls)
			}
		})
	}
}

type row struct{ calls, delivered, refused int }

// table reads the rows back from the output.
func table(out string) map[string]row {
	rows := make(map[string]row)
	for line := range strings.Lines(out) {
		var name string
		var r row
		if n, _ := fmt.Sscan(line, &name, &r.calls, &r.delivered, &r.refused); n == 4 {
			rows[name] = r
		}
	}
	return rows
}

// TestRunURL aims the program at a server that is not its own, and is so slow that the number of 429s is
// certain.
func TestRunURL(t *testing.T) {
	leak.Check(t)
	server := throttletest.NewServer(throttletest.Limit{N: 1, Per: time.Hour, Burst: 30})
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	cfg := config{url: server.URL(), limit: "1000/s burst 5", calls: 20, workers: 4, bare: true}
	var out bytes.Buffer
	if err := run(t.Context(), cfg, &out); err != nil {
		t.Fatal(err)
	}
	rows := table(out.String())
	if got, want := rows["throttled"], (row{20, 20, 0}); got != want {
		t.Errorf("throttled %+v, want %+v", got, want)
	}
	if got, want := rows["bare"], (row{20, 10, 10}); got != want {
		t.Errorf("bare %+v, want %+v: the burst of 30 without the 20 that went before", got, want)
	}
	if got := server.Ledger().Tally().Throttled; got != 10 {
		t.Errorf("the upstream refused %d, want 10", got)
	}
	if !strings.Contains(out.String(), "unknown") || strings.Contains(out.String(), "by the upstream's burst") {
		t.Error("an ideal time is printed for the bare client, though the upstream's burst is unknown")
	}
}

// TestBareIsPolite checks that an upstream that is not ours is not called at full speed unless asked for.
func TestBareIsPolite(t *testing.T) {
	server := throttletest.NewServer(throttletest.Limit{N: 1000})
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	var out bytes.Buffer
	if err := run(t.Context(), config{url: server.URL(), limit: "1000/s", calls: 5, workers: 1}, &out); err != nil {
		t.Fatal(err)
	}
	if _, sent := table(out.String())["bare"]; sent || len(server.Ledger()) != 5 {
		t.Errorf("the upstream saw %d calls, want the 5 throttled ones:\n%s", len(server.Ledger()), &out)
	}
}

func TestBar(t *testing.T) {
	var out, terminal bytes.Buffer
	cfg := config{limit: "1000/s burst 5", calls: 10, workers: 2, slack: 1000, bar: &terminal}
	if err := run(t.Context(), cfg, &out); err != nil {
		t.Fatal(err)
	}
	if got := terminal.String(); !strings.Contains(got, "throttled") || !strings.Contains(got, "(10/10") {
		t.Errorf("the bar drew %q", got)
	}
	if strings.Contains(out.String(), "10 of 10 calls") {
		t.Errorf("lines are printed beside the bar:\n%s", &out)
	}
}

// TestInterrupted: after Ctrl-C there is the table of what has been measured, within the columns, and the
// failures that the interrupt has caused are not blamed on the upstream. The bar is gone.
func TestInterrupted(t *testing.T) {
	leak.Check(t)
	for _, columns := range []int{0, 60, 30} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		cfg := small
		cfg.calls, cfg.columns = 100_000, columns
		var out, terminal bytes.Buffer
		if columns == 60 {
			cfg.bar = &terminal
		}
		if err := run(ctx, cfg, &out); !errors.Is(err, context.Canceled) {
			t.Errorf("run after an interrupt: %v, want %v", err, context.Canceled)
		}
		for _, want := range []string{"throttled", "100000", "delivered", "Ideal time"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%d columns: the output does not say %q:\n%s", columns, want, &out)
			}
		}
		if strings.Contains(out.String(), "first failure") {
			t.Errorf("an interrupt is no failure:\n%s", &out)
		}
		checkWidth(t, out.String(), cmp.Or(columns, 80))
		if drawn := terminal.String(); cfg.bar != nil {
			if !strings.HasSuffix(drawn, console.Erase) {
				t.Errorf("the bar remains: %q", drawn)
			}
			checkWidth(t, strings.ReplaceAll(drawn, "\r", "\n"), 60)
		}
	}
}

// checkWidth checks that no line is wider.
func checkWidth(t *testing.T, text string, columns int) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(strings.ReplaceAll(line, "\x1b[K", ""), "\n")
		if n := utf8.RuneCountInString(line); n > columns {
			t.Errorf("%d columns of %d: %s", n, columns, line)
		}
	}
}

// TestNobodyListens: that is an error before anything is sent or shown.
func TestNobodyListens(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	var out bytes.Buffer
	err := run(t.Context(), config{url: server.URL, limit: "100/s", calls: 10, workers: 2}, &out)
	if err == nil || !strings.HasPrefix(err.Error(), "-url") || out.Len() > 0 {
		t.Errorf("run: %v\n%s", err, &out)
	}
}

func TestNonsense(t *testing.T) {
	for _, cfg := range []config{
		{limit: "100/s", calls: 1, workers: 1, url: "nonsense"},
		{limit: "100/s", calls: 1, workers: 1, url: "example.com:80/", bare: true},
		{limit: "100/s", calls: 1, workers: 1, url: "ftp://example.com/"},
		{limit: "100/s", calls: 1, workers: 1, url: "http:///path"},
		{limit: "100/s", calls: 1, workers: 1, url: "http://example.com:99999/"},
		{limit: "100/s", calls: 0, workers: 1},
		{limit: "100/s", calls: 1, workers: 0},
		{limit: "lots", calls: 1, workers: 1},
		{limit: "-1/s", calls: 1, workers: 1},
		{limit: "0/s", calls: 1, workers: 1},
	} {
		var out bytes.Buffer
		if err := run(t.Context(), cfg, &out); err == nil || out.Len() > 0 {
			t.Errorf("run with %+v did not complain before it began: %v\n%s", cfg, err, &out)
		}
	}
}

// TestNothingDelivered: a run in which no call succeeds is shown, and is an error.
func TestNothingDelivered(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	var out bytes.Buffer
	err := run(t.Context(), config{limit: "100/s burst 10", calls: 3, workers: 1, url: server.URL}, &out)
	if err == nil || !strings.Contains(err.Error(), "404") || table(out.String())["throttled"].calls != 3 {
		t.Errorf("%v\n%s", err, &out)
	}
}

func TestIdeal(t *testing.T) {
	for _, c := range []struct {
		limit string
		calls int
		want  time.Duration
	}{
		{"100/s burst 10", 400, 3900 * time.Millisecond},
		{"10/s", 11, time.Second},
		{"60/1m burst 2", 1, 0},
		{"5/s even", 6, time.Second},
		{"5/second even", 6, time.Second},
		{"60/minute even", 11, 10 * time.Second},
		{"60 requests per minute burst 1", 11, 10 * time.Second},
		{"100/1d12h window", 101, 36 * time.Hour},
		{"100/s window", 100, 0},
		{"100/s window", 101, time.Second},
		{"100/s sliding", 300, 2 * time.Second},
	} {
		s, err := parseShape(c.limit)
		if err != nil {
			t.Errorf("%q: %v", c.limit, err)
			continue
		}
		if got := s.ideal(c.calls); got != c.want {
			t.Errorf("%q admits %d calls in %v, want %v", c.limit, c.calls, got, c.want)
		}
	}
}
