package throttle_test

import (
	"net/http"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// This file checks the simulation itself, with clients that have nothing to find out.

// Each kind of limit, as moments in ms at which a request arrives: those that are let in.
func TestSimLimits(t *testing.T) {
	for name, c := range map[string]struct {
		limit     limit
		at, admit []int
	}{
		"gcra":        {limit{kind: gcra, n: 10, burst: 2}, []int{0, 0, 0, 99, 100, 150, 200, 1000, 1000, 1000}, []int{0, 0, 100, 200, 1000, 1000}},
		"bucket":      {limit{kind: bucket, n: 2}, []int{0, 0, 0, 499, 500, 1500, 1500}, []int{0, 0, 500, 1500, 1500}},
		"fixed":       {limit{kind: fixed, n: 2}, []int{900, 950, 990, 1000, 1500, 1999, 2000}, []int{900, 950, 1000, 1500, 2000}},
		"phase":       {limit{kind: fixed, n: 1, phase: 300e6}, []int{0, 299, 300, 1299, 1300}, []int{0, 300, 1300}},
		"fixed-first": {limit{kind: fixedFirst, n: 1}, []int{900, 1899, 1900, 2950, 3900, 3950}, []int{900, 1900, 2950, 3950}},
		"sliding":     {limit{kind: sliding, n: 2}, []int{0, 600, 999, 1000, 1001, 1600}, []int{0, 600, 1000, 1600}},
		"counts":      {limit{kind: sliding, n: 2, counts: true}, []int{0, 600, 999, 1000, 1600, 2000}, []int{0, 600, 2000}},
	} {
		c.limit.per = time.Second
		m := c.limit.model()
		var got []int
		for _, at := range c.at {
			if m.take(time.Duration(at) * time.Millisecond) {
				got = append(got, at)
			}
		}
		if !slices.Equal(got, c.admit) {
			t.Errorf("%s lets in %v, want %v", name, got, c.admit)
		}
	}
}

// What each kind tells after 3 of 10 in a window of 10 s that are taken at 4.2, 4.3 and 4.4 s.
func TestSimTells(t *testing.T) {
	for k, want := range map[kind]told{
		fixed:       {10, 7, 5600 * time.Millisecond, 10 * time.Second},
		fixedFirst:  {10, 7, 9800 * time.Millisecond, 10 * time.Second},
		sliding:     {10, 7, 9800 * time.Millisecond, 10 * time.Second},
		slidingFull: {10, 7, 10 * time.Second, 10 * time.Second},
		bucket:      {10, 7, 2800 * time.Millisecond, 10 * time.Second},
		bucketNext:  {10, 7, 800 * time.Millisecond, 10 * time.Second},
	} {
		m := limit{kind: k, n: 10, per: 10 * time.Second}.model()
		for _, ms := range []time.Duration{4200, 4300, 4400} {
			m.take(ms * time.Millisecond)
		}
		if got := m.tell(4400 * time.Millisecond); got != want {
			t.Errorf("%s tells %v, want %v", k, got, want)
		}
	}
}

func TestSimDialects(t *testing.T) {
	q := told{100, 7, 2800 * time.Millisecond, 10 * time.Second}
	at := time.Date(2026, 1, 10, 12, 0, 0, 300e6, time.UTC) // the reset is at 12:00:03.1
	for name, want := range map[string]map[string]string{
		"draft-03": {"RateLimit-Limit": "100, 100;w=10", "RateLimit-Remaining": "7", "RateLimit-Reset": "3"},
		"draft-06": {"RateLimit-Limit": "100", "RateLimit-Policy": "100;w=10", "RateLimit-Remaining": "7", "RateLimit-Reset": "3"},
		"draft-07": {"RateLimit": "limit=100, remaining=7, reset=3", "RateLimit-Policy": "100;w=10"},
		"draft-08": {"RateLimit": `"default";r=7;t=3`, "RateLimit-Policy": `"default";q=100;w=10`},
		"x-epoch":  {"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "7", "X-RateLimit-Reset": "1768046404"},
		"x-delta":  {"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "7", "X-RateLimit-Reset": "3"},
	} {
		h := new(clock).header(dialectOf(name), q, "", at)
		want["Date"] = "Sat, 10 Jan 2026 12:00:00 GMT"
		for field, value := range want {
			if got := h.Get(field); got != value {
				t.Errorf("%s: %s: %s, want %s", name, field, got, value)
			}
		}
		if len(h) != len(want) {
			t.Errorf("%s: %d fields, want %d", name, len(h), len(want))
		}
	}
	late := clock{floor: true, noDate: true, skew: -time.Minute}
	if h := late.header(dialectOf("x-epoch"), q, "core", at); h.Get("X-RateLimit-Reset") != "1768046343" || h.Get("Date") != "" || h.Get("X-RateLimit-Resource") != "core" {
		t.Error("rounded down, a minute late and without Date:", h)
	}
}

// A sim judges in the order of arrival and counts right: two plain clients that do not hold back get
// just what the limit gives, and the ledger's sums agree.
func TestSimLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sim{limits: []limit{{kind: gcra, n: 100, per: time.Second, burst: 10}}, trip: wildTrip, seed: 1, retryAfter: 1,
			changes: []change{{4 * time.Second, 50}, {8 * time.Second, 200}}}
		var refused int
		hurry := func(p *port) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				resp, err := p.RoundTrip(req)
				if resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "1" {
					refused++ // by one worker
				}
				return resp, err
			})
		}
		s.run(t, 12*time.Second, 1, hurry(s.port(0)))
		all := s.all(0, time.Hour)
		if all.refused() != refused || s.calls != all.admitted || s.lost != refused {
			t.Errorf("ledger %+v, %d calls, %d lost, want %d refused", all, s.calls, s.lost, refused)
		}
		if got := s.capacity(0, 12*time.Second); got != 4*100+4*50+4*200 {
			t.Errorf("capacity %v", got)
		}
		if got := s.capacity(3*time.Second, 9*time.Second); got != 100+4*50+200 {
			t.Errorf("capacity in the middle %v", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := &sim{limits: []limit{{kind: gcra, n: 100, per: time.Second, burst: 10}}, trip: wildTrip, seed: 1, retryAfter: 1}
		s.run(t, 10*time.Second, 16, s.port(0), s.port(1))
		r := s.result(0, 10*time.Second)
		if r.used < 1.009 || r.used > 1.011 || r.refused() < 8000 || r.disobeyed < 8000 || r.events < 100 {
			t.Errorf("in a hurry: %v, %d while told not to; want the limit and its burst, used 101 %%", r, r.disobeyed)
		}
		if a, b := s.row(0, 0, time.Hour), s.row(1, 0, time.Hour); s.jain(0, time.Hour) < 0.9 || a.arrived+b.arrived != s.all(0, time.Hour).arrived {
			t.Errorf("%+v and %+v, Jain %v", a, b, s.jain(0, time.Hour))
		}
	})
}

// Clients that know the limit reach what theory says they can, in a cell of each kind.
func TestSimOracle(t *testing.T) {
	t.Setenv("THROTTLE_SIM", "oracle")
	for _, k := range []kind{fixed, fixedFirst, sliding, bucket} {
		t.Run(string(k), func(t *testing.T) {
			c := toldCell{dialect: "draft-08", limit: limit{kind: k, n: 100, per: time.Second}}
			overSeeds(t, 1, c.run).want(t, 0.98, 0)
		})
	}
	for _, c := range []finderCell{
		{limit: limit{kind: gcra, n: 100, per: time.Second, burst: 10}, trip: wildTrip, retryAfter: 1, used: 0.995},
		{limit: limit{kind: sliding, n: 100, per: time.Second}, trip: wildTrip, retryAfter: 1, used: 0.975},
		{limit: limit{kind: gcra, n: 100, per: time.Second, burst: 1}, trip: shortTrip, used: 0.95 * 10 / (10 + 0.83*2), refused: 0.017}, // algorithms.md, 18
	} {
		t.Run(c.name(), func(t *testing.T) { overSeeds(t, 1, c.run).want(t, c.used, c.refused) })
	}
	t.Run("scopes", TestScopes)
}

// Plain clients that keep the laws of algorithms.md, 19 and 20, reach what it says they do.
func TestSimLaw(t *testing.T) {
	t.Setenv("THROTTLE_SIM", "law")
	t.Run("fleet", TestFleet)
	told := toldCell{dialect: "draft-08", limit: limit{kind: sliding, n: 100, per: time.Second}}
	t.Run(told.name(), func(t *testing.T) { overSeeds(t, 1, told.run).want(t, 0.95, 0.01) })
	found := finderCell{limit: limit{kind: gcra, n: 100, per: time.Second, burst: 10}, trip: wildTrip, retryAfter: 1}
	t.Run(found.name(), func(t *testing.T) { overSeeds(t, 1, found.run).want(t, 0.89, 0.007) })
}

// TestSimCost logs what a simulated request costs in real time: by itself, and with a Transport.
func TestSimCost(t *testing.T) {
	for _, tells := range []string{"", "draft-08", "x-epoch"} {
		for _, client := range []string{"plain", "oracle"} {
			t.Run(client+tells, func(t *testing.T) {
				t.Setenv("THROTTLE_SIM", client)
				began := time.Now()
				var n int
				synctest.Test(t, func(t *testing.T) {
					s := &sim{limits: []limit{{kind: gcra, n: 1000, per: time.Second, burst: 1000}}, trip: shortTrip, seed: 1}
					if tells != "" {
						s.tells = dialectOf(tells)
					}
					rt := http.RoundTripper(s.port(0))
					if os.Getenv("THROTTLE_SIM") == "oracle" {
						rt = s.client(0)
					}
					s.run(t, 10*time.Second, 16, rt)
					n = s.result(0, 10*time.Second).arrived
				})
				t.Logf("%v for each of %d requests", time.Since(began)/time.Duration(n), n)
			})
		}
	}
}
