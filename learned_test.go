package throttle_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// These tests are about upstreams that tell their limits: a client that knows none has to reach
// what the quota gives. Their upstreams are simulated; see sim_test.go for how to run them.

const simWorkers = 32

// A toldCell is one upstream that tells. Those beyond the promise are logged and never fail.
type toldCell struct {
	dialect string
	limit   limit
	clock   clock
	beyond  bool
}

func (c toldCell) name() string {
	name := fmt.Sprintf("%s/%s/%v", c.dialect, c.limit.kind, c.limit.per)
	for _, extra := range []struct {
		is   bool
		name string
	}{
		{c.limit.phase != 0, "phase"}, {c.clock.floor, "floor"}, {c.clock.noDate, "no-date"}, {c.clock.skew != 0, "skew"}, {c.limit.counts, "counts"},
	} {
		if extra.is {
			name += "/" + extra.name
		}
	}
	return name
}

// run measures from the start, when the quota is whole and a window begins, over whole windows; with
// a phase from where the first window begins; with a bucket from a window later, so that the burst it
// begins with hides no waste.
func (c toldCell) run(t *testing.T, seed uint64) result {
	d := 2 * time.Minute
	switch {
	case simFull(), strings.HasPrefix(c.dialect, "x-") && c.limit.per == 10*time.Second: // its window has to be found first
		d = 5 * time.Minute
	case c.limit.per > 10*time.Second:
		d = 3 * time.Minute
	}
	s := &sim{limits: []limit{c.limit}, trip: toldTrip, seed: seed, tells: dialectOf(c.dialect), clock: c.clock}
	from := c.limit.phase
	if c.limit.kind == bucket || c.limit.kind == bucketNext {
		from = c.limit.per
	}
	s.run(t, from+d, simWorkers, s.client(0))
	return s.result(from, from+d)
}

// toldWindows are the quotas of TestTold. All give 100 a second.
var toldWindows = []limit{{n: 100, per: time.Second}, {n: 1000, per: 10 * time.Second}, {n: 6000, per: time.Minute}}

func toldCells() (cells []toldCell) {
	for i, d := range dialects {
		for j, k := range []kind{fixed, sliding, bucket} {
			for l, w := range toldWindows {
				w.kind = k
				if simFull() || (i+j+l)%3 == 0 { // each pair is in both
					cells = append(cells, toldCell{dialect: d.name, limit: w})
				}
			}
		}
	}
	if !simFull() {
		return cells
	}
	for _, d := range []string{"draft-08", "x-epoch", "x-delta"} { // what else upstreams do
		for _, w := range toldWindows {
			for _, k := range []kind{fixedFirst, slidingFull, bucketNext} {
				w.kind = k
				cells = append(cells, toldCell{dialect: d, limit: w, beyond: true})
			}
			w.kind = fixed
			cells = append(cells,
				toldCell{dialect: d, limit: w, clock: clock{floor: true}, beyond: true},
				toldCell{dialect: d, limit: w, clock: clock{noDate: true}, beyond: true},
				toldCell{dialect: d, limit: w, clock: clock{skew: 1234567 * time.Millisecond}, beyond: true})
			w.phase = 370 * time.Millisecond
			cells = append(cells, toldCell{dialect: d, limit: w, beyond: true})
			w.phase, w.counts = 0, true
			cells = append(cells, toldCell{dialect: d, limit: w, beyond: true})
		}
	}
	return cells
}

func TestTold(t *testing.T) {
	for _, c := range toldCells() {
		t.Run(c.name(), func(t *testing.T) {
			r := overSeeds(t, 1, c.run)
			switch {
			case c.beyond:
				t.Log(r)
			case c.limit.per >= 10*time.Second:
				r.want(t, 0.98, 0.005)
			default:
				r.want(t, 0.95, 0.01)
			}
		})
	}
}

// A fleet is eight processes that share a quota and know nothing of each other.
type fleet struct {
	*sim
	clients []http.RoundTripper
}

func newFleet(dialect string, l limit, seed uint64) fleet {
	f := fleet{sim: &sim{limits: []limit{l}, trip: toldTrip, seed: seed, tells: dialectOf(dialect)}}
	for i := range 8 {
		f.clients = append(f.clients, f.client(i))
	}
	return f
}

func TestFleet(t *testing.T) {
	all := []string{"draft-08"}
	if simFull() {
		all = []string{"draft-03", "draft-06", "draft-07", "draft-08", "x-epoch", "x-delta"}
	}
	for _, d := range all {
		for _, c := range []struct {
			limit limit
			alone float64
		}{
			{limit{kind: fixed, n: 1000, per: 10 * time.Second}, 0.98},
			{limit{kind: bucket, n: 100, per: time.Second}, 0.94},
		} {
			name := fmt.Sprintf("%s/%s", d, c.limit.kind)
			t.Run(name+"/together", func(t *testing.T) {
				jain := 1.0
				r := overSeeds(t, 1, func(t *testing.T, seed uint64) result {
					f := newFleet(d, c.limit, seed)
					f.run(t, 2*time.Minute, simWorkers, f.clients...)
					jain = min(jain, f.jain(time.Minute, 2*time.Minute))
					return f.result(0, 2*time.Minute)
				})
				if t.Logf("Jain's index over a minute is %.3f", jain); !(jain >= 0.98) {
					t.Error("want Jain's index to be at least 0.98")
				}
				r.want(t, 0.98, 0.003)
			})
			t.Run(name+"/seven-fall-idle", func(t *testing.T) {
				r := overSeeds(t, 1, func(t *testing.T, seed uint64) result {
					f := newFleet(d, c.limit, seed)
					seven, stop := context.WithCancel(t.Context())
					eighth, end := context.WithCancel(t.Context())
					var waits []func()
					for i, client := range f.clients {
						ctx := seven
						if i == 7 {
							ctx = eighth
						}
						waits = append(waits, f.load(ctx, t, client, simWorkers, "http://upstream.test/"))
					}
					time.Sleep(time.Minute)
					stop()
					time.Sleep(2 * time.Minute)
					end()
					for _, wait := range waits {
						wait()
					}
					return f.result(time.Minute, 3*time.Minute)
				})
				r.want(t, c.alone, 0.003)
			})
		}
	}
}

// An upstream as GitHub has it: two quotas of one host, told by name, and a 403 for both. A stranger
// with the same key spends the small one in each minute. The rows of the ledger: ours core and
// search, the stranger's core and search.
func TestScopes(t *testing.T) {
	const (
		minutes = 10
		url     = "http://api.upstream.test/"
	)
	synctest.Test(t, func(t *testing.T) {
		s := &sim{
			limits: []limit{
				{kind: fixed, n: 5000, per: time.Hour, name: "core"},
				{kind: fixed, n: 30, per: time.Minute, name: "search"},
			},
			trip: toldTrip, seed: 1, tells: dialectOf("x-epoch"), refusal: http.StatusForbidden,
			route: func(req *http.Request) int {
				if strings.HasPrefix(req.URL.Path, "/search/") {
					return 1
				}
				return 0
			},
		}
		client, stranger := s.client(0), s.port(2)
		ctx, cancel := context.WithCancel(t.Context())
		get := func(rt http.RoundTripper, path string) int {
			req, err := http.NewRequestWithContext(ctx, "GET", url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode
		}
		get(client, "repos/a")
		get(client, "search/a")
		wait := s.load(ctx, t, client, 8, url+"search/code")
		var slowest time.Duration
		for second := time.Second; second < minutes*time.Minute; second += time.Second {
			time.Sleep(second - s.now())
			if second%time.Minute == 20*time.Second {
				for get(stranger, "search/b") == http.StatusOK {
				}
			}
			sent := time.Now()
			if code := get(client, "repos/b"); code != http.StatusOK {
				t.Fatalf("core answers %d", code)
			}
			slowest = max(slowest, time.Since(sent))
		}
		cancel()
		wait()
		if slowest > s.trip.max {
			t.Errorf("a core call took %v, a round trip takes at most %v: search has held it up", slowest, s.trip.max)
		}
		ours := s.row(1, 0, minutes*time.Minute)
		t.Logf("search: %d sent, %d refused; slowest core call %v", ours.arrived, ours.refused(), slowest)
		if ours.admitted < 8*minutes {
			t.Errorf("%d searches let in, the stranger leaves at least %d", ours.admitted, 8*minutes)
		}
		for m := 1; m < minutes; m++ {
			reset := time.Duration(m) * time.Minute
			if s.row(1, reset, reset+2500*time.Millisecond).admitted == 0 {
				t.Errorf("minute %d: no search within 2.5 s of the reset", m)
			}
			if n := s.row(1, reset-35*time.Second, reset).arrived; n > 0 {
				t.Errorf("minute %d: %d searches sent 5 s and more after the quota was spent", m, n)
			}
		}
	})
}

func TestFirstContact(t *testing.T) {
	contact := func(t *testing.T, spent int, limits ...limit) *sim {
		s := &sim{limits: limits, trip: toldTrip, seed: 1}
		if len(limits) > 0 {
			s.tells = dialectOf("draft-08")
		}
		client := s.client(0)
		if spent > 0 { // by a stranger
			stranger, req := s.port(1), (&http.Request{}).WithContext(t.Context())
			for range spent {
				stranger.RoundTrip(req)
			}
		}
		s.run(t, 5*time.Second, simWorkers, client)
		if row := s.rows[0]; row.early > 4 {
			t.Errorf("%d in flight before the first answer, want at most 4", row.early)
		}
		return s
	}
	t.Run("no-limit", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := contact(t, 0)
			if row := s.rows[0]; row.most != simWorkers || row.peak > row.first+time.Millisecond {
				t.Errorf("%d in flight %v after the first answer, want %d at once", row.most, row.peak-row.first, simWorkers)
			}
			// 32 workers, mean round trip 35 ms, and at most one round trip lost.
			if got, ideal := s.row(0, 0, 5*time.Second).arrived, 32*(5-0.05)/0.035; float64(got) < 0.98*ideal {
				t.Errorf("%d calls in 5 s, want %.0f", got, ideal)
			}
		})
	})
	for _, n := range []int{100, 10} {
		for _, left := range []int{n, 2} {
			t.Run(fmt.Sprintf("%d-of-%d-left", left, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := contact(t, n-left, limit{kind: fixed, n: n, per: 10 * time.Second})
					c, want := s.row(0, 0, 10*time.Second), 0
					if left < 4 {
						want = 3
					}
					t.Logf("%d sent, %d refused", c.arrived, c.refused())
					if c.refused() > want {
						t.Errorf("%d refused, want at most %d", c.refused(), want)
					}
				})
			})
		}
	}
}
