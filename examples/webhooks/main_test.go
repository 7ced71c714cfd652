package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/examples/internal/leak"
	"github.com/go-throttle/throttle/throttletest"
)

// small is a run of about a second and a half; a slow machine is given a minute.
func small() config {
	return config{
		senders: 20, rate: 60, capacity: 200,
		down: 200 * time.Millisecond, outage: 400 * time.Millisecond, due: time.Second, end: time.Minute,
	}
}

func TestRun(t *testing.T) {
	leak.Check(t)
	cfg := small()
	plain, throttled := startSide(t, "plain", cfg, plainClient), startSide(t, "throttled", cfg, throttledClient)
	sides := []*side{plain, throttled}
	var out bytes.Buffer
	if err := deliverAll(t.Context(), cfg, sides, &out); err != nil {
		t.Fatal(err)
	}
	if err := printTable(&out, cfg, sides); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &out)
	for _, s := range sides {
		ledger := s.server.Ledger()
		if taken := ledger.Tally().Admitted; s.backlog.delivered != cfg.deliveries() || taken != cfg.deliveries() {
			t.Errorf("%s: %d delivered, %d taken by the endpoint, want %d; first failure: %v", s.name,
				s.backlog.delivered, taken, cfg.deliveries(), s.backlog.failure)
		}
		checkTaken(t, s.name, ledger)
		if s.backlog.drained.IsZero() {
			t.Errorf("%s: all is delivered, but the backlog is said not to be drained", s.name)
		}
	}
	// Half a second of outage cannot cost the throttled client more than the eight failures
	// that close its gate, those that were on their way then, and a few probes.
	if got, limit := throttled.server.Ledger().Tally().Failed, 8+cfg.senders+10; got > limit {
		t.Errorf("throttled: %d attempts in the outage, want at most %d", got, limit)
	}
}

// TestPoint: in full and in brief, throttle leaves an endpoint alone that is down, is not throttled when that is back, and is
// then through with its backlog almost as soon as can be. The retry loops do neither, and take longer.
func TestPoint(t *testing.T) {
	for _, brief := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := config{senders: 200, rate: 60, capacity: 100, bubble: true}.withDefaults(brief)
			plain, throttled := startSide(t, "plain", cfg, plainClient), startSide(t, "throttled", cfg, throttledClient)
			var out bytes.Buffer
			if err := deliverAll(t.Context(), cfg, []*side{plain, throttled}, &out); err != nil {
				t.Fatal(err)
			}
			if err := printTable(&out, cfg, []*side{plain, throttled}); err != nil {
				t.Fatal(err)
			}
			t.Logf("\n%s", &out)
			for _, s := range []*side{plain, throttled} {
				if s.backlog.delivered != cfg.deliveries() || s.backlog.drained.IsZero() {
					t.Errorf("%s: %d delivered, drained at %v", s.name, s.backlog.delivered, s.backlog.drained)
				}
			}
			of, with := plain.server.Ledger().Tally(), throttled.server.Ledger().Tally()
			if of.Failed < 5*with.Failed || of.Throttled < 30 || with.Throttled > 2 {
				t.Errorf("plain %+v, throttled %+v", of, with)
			}
			after, ideal := throttled.backlog.drained.Sub(throttled.backlog.returned), throttled.backlog.ideal()
			if longer := plain.backlog.drained.Sub(plain.backlog.returned); after > ideal*5/4 || longer < after {
				t.Errorf("drained after %v, ideal %v; without throttle after %v", after, ideal, longer)
			}
		})
	}
}

// startSide opens a side that the end of the test closes.
func startSide(t *testing.T, name string, cfg config, client func(config, http.RoundTripper) deliverer) *side {
	t.Helper()
	s, err := newSide(name, cfg, client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

// checkTaken checks that the endpoint took every delivery once, with its key and its whole body.
func checkTaken(t *testing.T, name string, ledger throttletest.Ledger) {
	t.Helper()
	taken := make(map[string]bool)
	for _, arrival := range ledger {
		if arrival.Call == "" || arrival.Size < len(`{"event":0,"sender":0}`) {
			t.Errorf("%s: an attempt arrived with key %q and %d bytes", name, arrival.Call, arrival.Size)
		}
		if arrival.Verdict != throttletest.Admitted {
			continue
		}
		if taken[arrival.Call] {
			t.Errorf("%s: %s was taken twice", name, arrival.Call)
		}
		taken[arrival.Call] = true
	}
}

// TestEnd checks that a run whose endpoint does not return in time ends, and says what is missing.
func TestEnd(t *testing.T) {
	leak.Check(t)
	cfg := small()
	cfg.down, cfg.outage, cfg.end = 0, time.Hour, 300*time.Millisecond
	plain, throttled := startSide(t, "plain", cfg, plainClient), startSide(t, "throttled", cfg, throttledClient)
	if err := deliverAll(t.Context(), cfg, []*side{plain, throttled}, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*side{plain, throttled} {
		if b := &s.backlog; b.delivered+b.failed > cfg.deliveries() || !b.returned.IsZero() || !b.drained.IsZero() {
			t.Errorf("%s: %d delivered and %d failed of %d, returned %v, drained %v; want no return and no more outcomes than deliveries",
				s.name, b.delivered, b.failed, cfg.deliveries(), b.returned, b.drained)
		}
	}
	if err := printTable(&bytes.Buffer{}, cfg, []*side{plain, throttled}); err != nil {
		t.Error(err)
	}
}

// TestInterrupted: after Ctrl-C the table says how far it came, within the columns.
func TestInterrupted(t *testing.T) {
	leak.Check(t)
	for _, columns := range []int{80, 40, 30} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		cfg := small()
		cfg.down, cfg.outage, cfg.due, cfg.end, cfg.columns = time.Hour, time.Hour, 3*time.Hour, 3*time.Hour, columns
		var out bytes.Buffer
		if err := run(ctx, cfg, &out); !errors.Is(err, context.Canceled) {
			t.Errorf("run after an interrupt: %v, want %v", err, context.Canceled)
		}
		for _, want := range []string{"plain", "throttled", "648000", "drained after", "Backlog:"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%d columns: the output does not say %q:\n%s", columns, want, &out)
			}
		}
		for line := range strings.Lines(out.String()) {
			if len(line) > columns+1 {
				t.Errorf("wider than %d columns: %s", columns, line)
			}
		}
	}
}

func TestBacklog(t *testing.T) {
	cfg := config{rate: 10, capacity: 20, due: 10 * time.Second}
	b := backlog{cfg: cfg, start: time.Now()}
	b.delivered = 11
	b.back(b.start.Add(3 * time.Second))
	if b.atReturn != 20 || b.ideal() != 2*time.Second {
		t.Errorf("backlog %d, ideal %v; want 20 (31 due, 11 delivered), 2s", b.atReturn, b.ideal())
	}
	b.back(b.start.Add(9 * time.Second)) // 80 overdue, and soon no new ones: 89 at 20 a second
	if b.atReturn != 80 || b.ideal() != 4450*time.Millisecond {
		t.Errorf("backlog %d, ideal %v; want 80, 4.45s", b.atReturn, b.ideal())
	}
	if got := b.dueBy(b.start.Add(time.Hour)); got != cfg.deliveries() {
		t.Errorf("%d due in the end, want %d", got, cfg.deliveries())
	}
}

func TestDefaults(t *testing.T) {
	for _, brief := range []bool{false, true} {
		cfg := config{senders: 1, rate: 60, capacity: 100}.withDefaults(brief)
		if err := cfg.check(); err != nil {
			t.Errorf("the defaults with brief %v: %v", brief, err)
		}
		if limit := map[bool]time.Duration{true: 10 * time.Second, false: time.Minute}[brief]; cfg.end > limit {
			t.Errorf("with brief %v the run may take %v, want at most %v", brief, cfg.end, limit)
		}
	}
}

func TestNonsense(t *testing.T) {
	for _, spoil := range []func(*config){
		func(c *config) { c.senders = 0 },
		func(c *config) { c.rate = 0 },
		func(c *config) { c.capacity = c.rate },
		func(c *config) { c.down = -1 },
		func(c *config) { c.outage = 0 },
		func(c *config) { c.due = c.down },
		func(c *config) { c.end = c.due - 1 },
	} {
		cfg := small()
		spoil(&cfg)
		if err := run(t.Context(), cfg, &bytes.Buffer{}); err == nil {
			t.Errorf("run with %s did not complain", fmt.Sprintf("%+v", cfg))
		}
	}
}
