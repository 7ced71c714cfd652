package upstream

import (
	"math"
	"net/http"
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

// Each kind of limit, as moments in ms at which a request arrives: those that are admitted.
func TestKinds(t *testing.T) {
	for name, c := range map[string]struct {
		limit     Limit
		at, admit []int
	}{
		"gcra":        {Limit{Kind: GCRA, N: 10, Burst: 2}, []int{0, 0, 0, 99, 100, 150, 200, 1000, 1000, 1000}, []int{0, 0, 100, 200, 1000, 1000}},
		"whole burst": {Limit{Kind: GCRA, N: 2}, []int{0, 0, 0, 499, 500, 1500, 1500}, []int{0, 0, 500, 1500, 1500}},
		"fixed":       {Limit{Kind: Fixed, N: 2}, []int{900, 950, 990, 1000, 1500, 1999, 2000}, []int{900, 950, 1000, 1500, 2000}},
		"phase":       {Limit{Kind: Fixed, N: 1, Phase: 300 * ms}, []int{0, 299, 300, 1299, 1300}, []int{0, 300, 1300}},
		"fixed-first": {Limit{Kind: FixedFirst, N: 1}, []int{900, 1899, 1900, 2950, 3900, 3950}, []int{900, 1900, 2950, 3950}},
		"sliding":     {Limit{Kind: Sliding, N: 2}, []int{0, 600, 999, 1000, 1001, 1600}, []int{0, 600, 1000, 1600}},
		"counts":      {Limit{Kind: Sliding, N: 2, Counts: true}, []int{0, 600, 999, 1000, 1600, 2000}, []int{0, 600, 2000}},
		"queue":       {Limit{Kind: Queue, N: 10, Burst: 1}, []int{0, 0, 0, 99, 100, 350, 350, 350}, []int{0, 0, 100, 350, 350}},
	} {
		c.limit.Per = time.Second
		m := c.limit.model()
		var got []int
		for _, at := range c.at {
			at := time.Duration(at) * ms
			if m.ready(at) == at {
				m.take(at)
				got = append(got, int(at/ms))
			} else {
				m.refuse(at)
			}
		}
		if !slices.Equal(got, c.admit) {
			t.Errorf("%s admits %v, want %v", name, got, c.admit)
		}
	}
}

// A model that refuses tells when it will not, exactly.
func TestReady(t *testing.T) {
	for _, l := range []Limit{
		{Kind: GCRA, N: 7, Burst: 3}, {Kind: Fixed, N: 3, Phase: 123 * ms}, {Kind: FixedFirst, N: 3}, {Kind: Sliding, N: 3}, {Kind: Queue, N: 7, Burst: 2},
	} {
		l.Per = time.Second
		m := l.model()
		at, waits := time.Duration(0), 0
		for i := range 100 {
			for ready := m.ready(at); ready != at; ready = m.ready(at) {
				if m.ready(ready-1) == ready-1 {
					t.Fatalf("%s: ready at %v, told %v", l.Kind, ready-1, ready)
				}
				if waits++; m.ready(ready) != ready {
					t.Fatalf("%s: told %v, not ready then but at %v", l.Kind, ready, m.ready(ready))
				}
				at = ready
			}
			m.take(at)
			at += time.Duration(i%5) * ms
		}
		if waits < 10 {
			t.Errorf("%s: %d waits for 100 at once", l.Kind, waits)
		}
		if l.Kind != Fixed && (at < 9*time.Second || at > 50*time.Second) {
			t.Errorf("%s: 100 took %v", l.Kind, at)
		}
	}
}

func TestQueueDelays(t *testing.T) {
	m := Limit{Kind: Queue, N: 10, Per: time.Second, Burst: 5}.model()
	for _, want := range []time.Duration{0, 100, 200} {
		if got := m.take(0); got != want*ms {
			t.Errorf("delayed %v, want %v", got, want*ms)
		}
	}
}

func TestFlight(t *testing.T) {
	m := Limit{Kind: InFlight, N: 2}.model()
	m.take(0)
	m.take(0)
	if m.ready(0) != Never {
		t.Error("a third at once")
	}
	if m.done(); m.ready(5) != 5 {
		t.Error("not free again")
	}
}

func TestSetRate(t *testing.T) {
	m := Limit{Kind: GCRA, N: 10, Per: time.Second, Burst: 1}.model()
	m.take(0)
	m.set(50*ms, 5) // half a unit is owed: 100 ms at 5/s
	if got := m.ready(50 * ms); got != 150*ms {
		t.Errorf("ready at %v, want 150ms", got)
	}
}

func TestDialects(t *testing.T) {
	q := []Told{{"", 100, 7, 2800 * ms, 10 * time.Second}, {"slow", 1000, 900, 50 * time.Second, time.Minute}}
	at := time.Date(2026, 1, 10, 12, 0, 0, 300e6, time.UTC) // the reset is at 12:00:03.1
	for d, want := range map[Dialect]map[string]string{
		Silent:  {},
		Draft03: {"RateLimit-Limit": "100, 100;w=10", "RateLimit-Remaining": "7", "RateLimit-Reset": "3"},
		Draft06: {"RateLimit-Limit": "100", "RateLimit-Policy": "100;w=10", "RateLimit-Remaining": "7", "RateLimit-Reset": "3"},
		Draft07: {"RateLimit": "limit=100, remaining=7, reset=3", "RateLimit-Policy": "100;w=10"},
		Draft08: {"RateLimit": `"default";r=7;t=3, "slow";r=900;t=50`, "RateLimit-Policy": `"default";q=100;w=10, "slow";q=1000;w=60`},
		XEpoch:  {"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "7", "X-RateLimit-Reset": "1768046404"},
		XDelta:  {"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "7", "X-RateLimit-Reset": "3"},
	} {
		h := make(http.Header)
		d.write(h, q, at)
		for field, value := range want {
			if got := h.Get(field); got != value {
				t.Errorf("%s: %s: %s, want %s", d, field, got, value)
			}
		}
		if len(h) != len(want) {
			t.Errorf("%s: %d fields, want %d", d, len(h), len(want))
		}
	}
	for want, r := range map[string]RetryAfter{
		"": {}, "3": {Told: true}, "1": {Told: true, Fixed: time.Second}, "Sat, 10 Jan 2026 12:00:03 GMT": {Told: true, AsDate: true},
	} {
		h := make(http.Header)
		if r.write(h, 2100*ms, at); h.Get("Retry-After") != want {
			t.Errorf("%+v: %s, want %s", r, h.Get("Retry-After"), want)
		}
	}
}

func TestPlan(t *testing.T) {
	second := time.Second
	gcra := Limit{Kind: GCRA, N: 100, Per: second, Burst: 10}
	for name, c := range map[string]struct {
		config Config
		calls  int
		last   time.Duration
		could  int // in the first 4 s
	}{
		"gcra":      {Config{Limits: []Limit{gcra}}, 400, 3900 * ms, 410},
		"fixed":     {Config{Limits: []Limit{{Kind: Fixed, N: 100, Per: second, Phase: 300 * ms}}}, 400, 2300 * ms, 500},
		"sliding":   {Config{Limits: []Limit{{Kind: Sliding, N: 100, Per: second}}}, 400, 3 * second, 400},
		"outage":    {Config{Limits: []Limit{gcra}, Outages: []Outage{{From: second, To: 2 * second}}}, 400, 4810 * ms, 319},
		"weaker":    {Config{Limits: []Limit{gcra}, Changes: []Change{{2 * second, 0, 50}}}, 400, 5800 * ms, 310},
		"in flight": {Config{Limits: []Limit{{Kind: InFlight, N: 5}}, Work: Span{Min: 100 * ms}}, 400, 7900 * ms, 200},
		"several": {Config{Limits: []Limit{{Kind: Sliding, N: 10, Per: second}, {Kind: Sliding, N: 30, Per: 60 * second}}},
			35, 60 * second, 30},
	} {
		due := make([]time.Duration, c.calls)
		at := c.config.Ideal(due)
		if got := at[len(at)-1]; max(got-c.last, c.last-got) > ms {
			t.Errorf("%s: the last of %d at %v, want %v", name, c.calls, got, c.last)
		}
		if got := c.config.Could(0, 4*second); max(got-c.could, c.could-got) > 1 {
			t.Errorf("%s: could %d, want %d", name, got, c.could)
		}
	}
	if at := (Config{}).Ideal([]time.Duration{0, 5 * ms}); at[0] != 0 || at[1] != 5*ms {
		t.Error("without a limit at", at)
	}
}

func TestFigures(t *testing.T) {
	var l Ledger
	for i := range 100 { // every 10 ms, by turns of two callers, each call refused once before it is admitted
		o := Refused
		if i%2 == 1 {
			o = Admitted
		}
		l = append(l, Arrival{At: time.Duration(i) * 10 * ms, Call: i / 2, Caller: i / 2 % 2, Attempt: 1 + i%2, Outcome: o})
	}
	if l.Count(Admitted) != 50 || l.Count(Refused, Failed) != 50 || l.Delivered() != 50 || l.Twice() != 0 {
		t.Error("counts", l.Count(Admitted), l.Count(Refused, Failed), l.Delivered(), l.Twice())
	}
	if got := l.Amplification(50); got != 2 {
		t.Error("amplification", got)
	}
	if got := l.Spacing(); got > 1e-9 {
		t.Error("spacing of even arrivals", got)
	}
	if got := l.Jain(2); got != 1 {
		t.Error("jain", got)
	}
	if got := l.Jain(4); got != 0.5 {
		t.Error("jain of two among four", got)
	}
	if got := l.Peak(100 * ms); got != 10 {
		t.Error("peak", got)
	}
	if got := len(l.Between(100*ms, 200*ms)); got != 10 {
		t.Error("between", got)
	}
	if got := l.Of(func(call int) bool { return call < 10 }).Amplification(10); got != 2 {
		t.Error("of ten calls", got)
	}
	if a, r, f := l.Bins(100*ms, time.Second); len(a) != 10 || a[3] != 5 || r[9] != 5 || f[0] != 0 {
		t.Error("bins", a, r, f)
	}
	if got := l.FirstAdmitted()[3]; got != 70*ms {
		t.Error("first admitted", got)
	}
	uneven := Ledger{{At: 0}, {At: 10}, {At: 40}} // gaps of 10 and 30: mean 20, deviation 10
	if got := uneven.Spacing(); math.Abs(got-0.5) > 1e-9 {
		t.Error("uneven", got)
	}
}
