package lab_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/throttletest"
)

// These tests are about upstreams that tell their limits: a client that knows none has to reach
// what the quota gives. Their upstreams are simulated; see sim_test.go for how to run them.

const simWorkers = 32

// A advertisedCell is one upstream that tells. Those beyond the promise are logged and never fail.
type advertisedCell struct {
	dialect string
	limit   throttletest.Limit
	noDate  bool
	skew    time.Duration // how far the upstream's clock is ahead
	reset   reset         // what it means by a reset
	beyond  bool
}

// A reset is another meaning of what an upstream advertises as such.
type reset struct {
	name string
	edit func(throttletest.State) throttletest.State
}

var (
	roundedDown = reset{"floor", func(q throttletest.State) throttletest.State {
		q.Reset -= time.Second - 1 // a dialect rounds up
		return q
	}}
	nextToken = reset{"next-token", func(q throttletest.State) throttletest.State {
		q.Reset = min(q.Reset, q.Window/time.Duration(q.Limit))
		return q
	}}
	wholeQuota = reset{"whole-quota", func(q throttletest.State) throttletest.State {
		q.Reset = q.Window // since the last unit was taken just now
		return q
	}}
)

// advertised are the dialects, the oldest first.
var noted = []struct {
	name    string
	dialect throttletest.Dialect
}{
	{"draft-03", throttletest.Draft03}, {"draft-06", throttletest.Draft06}, {"draft-07", throttletest.Draft07},
	{"draft-08", throttletest.Draft08}, {"x-epoch", throttletest.XEpoch}, {"x-delta", throttletest.XDelta},
}

func dialectOf(name string) throttletest.Dialect {
	for _, d := range noted {
		if d.name == name {
			return d.dialect
		}
	}
	panic(name)
}

func (c advertisedCell) name() string {
	name := fmt.Sprintf("%s/%s/%v", c.dialect, c.limit.Kind, c.limit.Per)
	for _, extra := range []struct {
		is   bool
		name string
	}{
		{c.limit.Phase != 0, "phase"}, {c.reset.name != "", c.reset.name}, {c.noDate, "no-date"}, {c.skew != 0, "skew"}, {c.limit.CountThrottled, "counts"},
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
func (c advertisedCell) run(t *testing.T, seed uint64) result {
	d := 2 * time.Minute
	switch {
	case simFull(), strings.HasPrefix(c.dialect, "x-") && c.limit.Per == 10*time.Second: // its window has to be found first
		d = 5 * time.Minute
	case c.limit.Per > 10*time.Second:
		d = 3 * time.Minute
	}
	s := newSim(advertisedTrip, seed, c.limit)
	s.Advertise, s.NoDate, s.Skew = throttletest.Advert{Dialect: dialectOf(c.dialect), Edit: c.reset.edit}, c.noDate, c.skew
	from := c.limit.Phase
	if c.limit.Kind == throttletest.Bucket {
		from = c.limit.Per
	}
	s.run(t, from+d, simWorkers, s.client(0))
	return s.result(from, from+d)
}

// advertisedWindows are the quotas of TestAdvertised. All give 100 a second.
var advertisedWindows = []throttletest.Limit{{N: 100, Per: time.Second}, {N: 1000, Per: 10 * time.Second}, {N: 6000, Per: time.Minute}}

func advertisedCells() (cells []advertisedCell) {
	for i, d := range noted {
		for j, k := range []throttletest.Kind{throttletest.Fixed, throttletest.Sliding, throttletest.Bucket} {
			for l, w := range advertisedWindows {
				w.Kind = k
				if simFull() || (i+j+l)%3 == 0 { // each pair is in both
					cells = append(cells, advertisedCell{dialect: d.name, limit: w})
				}
			}
		}
	}
	if !simFull() {
		return cells
	}
	for _, d := range []string{"draft-08", "x-epoch", "x-delta"} { // what else upstreams do
		for _, w := range advertisedWindows {
			for k, r := range map[throttletest.Kind]reset{throttletest.FixedFirst: {}, throttletest.Sliding: wholeQuota, throttletest.Bucket: nextToken} {
				w.Kind = k
				cells = append(cells, advertisedCell{dialect: d, limit: w, reset: r, beyond: true})
			}
			w.Kind = throttletest.Fixed
			cells = append(cells,
				advertisedCell{dialect: d, limit: w, reset: roundedDown, beyond: true},
				advertisedCell{dialect: d, limit: w, noDate: true, beyond: true},
				advertisedCell{dialect: d, limit: w, skew: 1234567 * time.Millisecond, beyond: true})
			w.Phase = 370 * time.Millisecond
			cells = append(cells, advertisedCell{dialect: d, limit: w, beyond: true})
			w.Phase, w.CountThrottled = 0, true
			cells = append(cells, advertisedCell{dialect: d, limit: w, beyond: true})
		}
	}
	return cells
}

func TestAdvertised(t *testing.T) {
	for _, c := range advertisedCells() {
		t.Run(c.name(), func(t *testing.T) {
			if c.dialect != "draft-08" || c.limit.Per > time.Second {
				race.Long(t)
			}
			r := overSeeds(t, 1, c.run)
			switch {
			case c.beyond:
				t.Log(r)
			case strings.HasPrefix(c.dialect, "x-") && c.limit.Per == 10*time.Second: // resets in whole seconds, of no known window
				r.want(t, 0.95, 0.01)
			case c.limit.Per >= 10*time.Second:
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

func newFleet(dialect string, l throttletest.Limit, seed uint64) fleet {
	f := fleet{sim: newSim(advertisedTrip, seed, l)}
	f.Advertise.Dialect = dialectOf(dialect)
	for i := range 8 {
		f.clients = append(f.clients, f.client(i))
	}
	return f
}

func TestFleet(t *testing.T) {
	race.Long(t)
	all := []string{"draft-08"}
	if simFull() {
		all = []string{"draft-03", "draft-06", "draft-07", "draft-08", "x-epoch", "x-delta"}
	}
	for _, d := range all {
		for _, c := range []struct {
			limit throttletest.Limit
			alone float64
		}{
			{throttletest.Limit{Kind: throttletest.Fixed, N: 1000, Per: 10 * time.Second}, 0.98},
			{throttletest.Limit{Kind: throttletest.Bucket, N: 100, Per: time.Second}, 0.94},
		} {
			name := fmt.Sprintf("%s/%s", d, c.limit.Kind)
			t.Run(name+"/together", func(t *testing.T) {
				jain := 1.0
				r := overSeeds(t, 1, func(t *testing.T, seed uint64) result {
					f := newFleet(d, c.limit, seed)
					f.run(t, 2*time.Minute, simWorkers, f.clients...)
					jain = min(jain, f.jain(8, time.Minute, 2*time.Minute))
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
						waits = append(waits, f.load(ctx, t, client, simWorkers, f.URL()))
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

// An upstream as GitHub has it: two quotas of one host, advertised by name, and a 403 for both. A stranger
// with the same key spends the small one in each minute.
func TestScopes(t *testing.T) {
	const (
		minutes = 10
		url     = "http://api.upstream.test/"
	)
	synctest.Test(t, func(t *testing.T) {
		search := func(req *http.Request) bool { return strings.HasPrefix(req.URL.Path, "/search/") }
		s := newSim(advertisedTrip, 1,
			throttletest.Limit{Kind: throttletest.Fixed, N: 5000, Per: time.Hour, Name: "core", Match: func(req *http.Request) bool { return !search(req) }},
			throttletest.Limit{Kind: throttletest.Fixed, N: 30, Per: time.Minute, Name: "search", Match: search},
		)
		s.Advertise.Dialect, s.Status = throttletest.GitHub, http.StatusForbidden
		client, stranger := s.client(0), s.port(1)
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
			time.Sleep(second - s.Elapsed())
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
		ours := s.Ledger().Where(func(a throttletest.Arrival) bool { return a.Client == "0" && strings.HasPrefix(a.Path, "/search/") })
		all := ours.Between(0, minutes*time.Minute).Tally()
		t.Logf("search: %d sent, %d refused; slowest core call %v", all.Total(), all.Throttled, slowest)
		if all.Admitted < 8*minutes {
			t.Errorf("%d searches let in, the stranger leaves at least %d", all.Admitted, 8*minutes)
		}
		late := 0
		if os.Getenv("THROTTLE_SIM") == "oracle" {
			late = 1 // it is shown no quota, so it hears by a 403 alone that the stranger has spent it
		}
		for m := 1; m < minutes; m++ {
			reset := time.Duration(m) * time.Minute
			if ours.Between(reset, reset+2500*time.Millisecond).Tally().Admitted == 0 {
				t.Errorf("minute %d: no search within 2.5 s of the reset", m)
			}
			if n := len(ours.Between(reset-35*time.Second, reset)); n > late {
				t.Errorf("minute %d: %d searches sent 5 s and more after the quota was spent", m, n)
			}
		}
	})
}

func TestFirstContact(t *testing.T) {
	contact := func(t *testing.T, spent int, limits ...throttletest.Limit) (throttletest.Ledger, flight) {
		s := newSim(advertisedTrip, 1, limits...)
		s.Advertise.Dialect = throttletest.Draft08
		client := s.client(0)
		if spent > 0 { // by a stranger
			for range spent {
				get(t.Context(), s.port(1), s.URL())
			}
		}
		s.run(t, 5*time.Second, simWorkers, client)
		l := s.Ledger()
		f := flightsOf(l, "0")
		if f.early > 4 {
			t.Errorf("%d in flight before the first answer, want at most 4", f.early)
		}
		return l.Where(func(a throttletest.Arrival) bool { return a.Client == "0" }), f
	}
	t.Run("no-limit", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, f := contact(t, 0)
			if f.most != simWorkers || f.peak > f.first+time.Millisecond {
				t.Errorf("%d in flight %v after the first answer, want %d at once", f.most, f.peak-f.first, simWorkers)
			}
			// 32 workers, mean round trip 35 ms, and at most one round trip lost.
			if got, ideal := len(l.Between(0, 5*time.Second)), 32*(5-0.05)/0.035; float64(got) < 0.98*ideal {
				t.Errorf("%d calls in 5 s, want %.0f", got, ideal)
			}
		})
	})
	for _, n := range []int{100, 10} {
		for _, left := range []int{n, 2} {
			t.Run(fmt.Sprintf("%d-of-%d-left", left, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l, _ := contact(t, n-left, throttletest.Limit{Kind: throttletest.Fixed, N: n, Per: 10 * time.Second})
					c, want := l.Between(0, 10*time.Second).Tally(), 0
					if left < 4 {
						want = 3
					}
					t.Logf("%d sent, %d refused", c.Total(), c.Throttled)
					if c.Throttled > want {
						t.Errorf("%d refused, want at most %d", c.Throttled, want)
					}
				})
			})
		}
	}
}
