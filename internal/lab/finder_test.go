package lab_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/throttletest"
)

// These tests are about upstreams that only refuse: their limit has to be found.

// A finderCell is one upstream of TestFinder.
type finderCell struct {
	limit      throttletest.Limit
	trip       trip
	retryAfter int
	workers    int // 0: 32
	// targets
	used, refused float64
	reported      bool // refused is logged only
}

func (c finderCell) name() string {
	burst := ""
	if c.limit.Kind == throttletest.Bucket {
		burst = fmt.Sprintf("-burst-%d", c.limit.Burst)
	}
	return fmt.Sprintf("%s%s/%d/%v/retry-after-%d", c.limit.Kind, burst, c.limit.N, c.trip, c.retryAfter)
}

// fits tells whether one who knows the limit can use all of it without being throttled: its burst must hold what the spread of the delays brings together.
func (c finderCell) fits() bool {
	return c.limit.Kind != throttletest.Bucket || float64(c.limit.Burst) >= 1+float64(c.limit.N)*c.trip.spread().Seconds()
}

// run measures 5 minutes less the first 10 s.
func (c finderCell) run(t *testing.T, seed uint64) result {
	d := 5 * time.Minute
	if !simFull() && c.limit.N >= 1000 {
		d = time.Minute
	}
	s := c.sim(seed)
	s.run(t, d, max(c.workers, simWorkers), s.client(0))
	return s.result(10*time.Second, d)
}

func (c finderCell) sim(seed uint64) *sim {
	s := newSim(c.trip, seed, c.limit)
	s.RetryAfter, s.NoDate = time.Duration(c.retryAfter)*time.Second, true
	return s
}

// finderCells is the table of what is to be reached. Without THROTTLE_FULL cells that take long are left out: of those with
// 100 a second half, of those with 1,000 one, and it for a minute only.
func finderCells() (cells []finderCell) {
	for _, n := range []int{10, 100, 1000} {
		for i, k := range []throttletest.Kind{throttletest.Bucket, throttletest.Fixed, throttletest.Sliding} {
			for j, w := range []trip{shortTrip, wildTrip} {
				for _, retryAfter := range []int{0, 1} {
					c := finderCell{limit: throttletest.Limit{Kind: k, N: n, Per: time.Second, Burst: 10}, trip: w, retryAfter: retryAfter, used: 0.92, refused: 0.011}
					if retryAfter > 0 {
						c.used, c.refused = 0.89, 0.007
					}
					if k == throttletest.Sliding && n == 10 && retryAfter > 0 {
						c.used = 0.82
					}
					if k == throttletest.Fixed && w == wildTrip && retryAfter == 0 { // a rate is found low in one of four runs
						c.used = 0.85
					}
					if !c.fits() {
						c.used, c.reported = 0.80, true
					}
					if simFull() || n == 10 || n == 100 && (i+j)%2 == 0 || n == 1000 && i+j+retryAfter == 0 {
						cells = append(cells, c)
					}
				}
			}
		}
	}
	for _, n := range []int{10, 100, 1000} {
		for _, w := range []trip{shortTrip, wildTrip} {
			t, j := 1/float64(n), w.spread().Seconds()
			c := finderCell{limit: throttletest.Limit{Kind: throttletest.Bucket, N: n, Per: time.Second, Burst: 1}, trip: w, used: 0.85 * t / (t + 0.83*j), refused: 0.015}
			if simFull() || n == 10 || n == 100 && w == shortTrip {
				cells = append(cells, c)
			}
		}
	}
	return cells
}

func TestFinder(t *testing.T) {
	race.Long(t)
	for _, c := range finderCells() {
		t.Run(c.name(), func(t *testing.T) {
			seeds := 1
			if c.limit.N <= 100 { // few calls, so that one run tells little
				seeds = 4 + 80/c.limit.N
			}
			r := overSeeds(t, seeds, c.run)
			if c.reported {
				c.refused = 1
			}
			t.Logf("J %v, want at least %.1f %% and at most %.1f %%", c.trip.spread(), 100*c.used, 100*c.refused)
			r.want(t, c.used, c.refused)
		})
	}
}

// changeAt is when the limit changes: late enough that the old one has been found.
const changeAt = 2 * time.Minute

// never is a moment that does not come.
const never = 24 * time.Hour

// TestFinderHalved: the client has settled when the 5 s from then on use 70 % of the new limit, 60 %
// if each refusal costs a second, and see at most one event of refusals or 3 % refused.
func TestFinderHalved(t *testing.T) {
	for _, c := range changeCells(false) {
		t.Run(c.name(), func(t *testing.T) {
			used, limit := 0.7, 4*time.Second
			if c.retryAfter > 0 {
				used, limit = 0.6, 5*time.Second
			}
			c.change(t, c.limit.N/2, 20*time.Second, "settled", limit, func(result func(from, to time.Duration) result) time.Duration {
				for d := time.Duration(0); d <= 15*time.Second; d += 100 * time.Millisecond {
					if r := result(changeAt+d, changeAt+d+5*time.Second); r.used >= used && (r.events <= 1 || r.share() <= 0.03) {
						return d
					}
				}
				return never
			})
		})
	}
}

// TestFinderDoubled: the new limit is found when 90 % of it have been used for a second, or for two
// where a second is only a few calls.
func TestFinderDoubled(t *testing.T) {
	for _, c := range changeCells(true) {
		t.Run(c.name(), func(t *testing.T) {
			limit, span := 15*time.Second, time.Second
			switch {
			case c.limit.N == 10:
				limit, span = 45*time.Second, 2*time.Second
			case c.retryAfter > 0:
				limit = 30 * time.Second
			}
			c.change(t, 2*c.limit.N, limit+5*time.Second, "found", limit, func(result func(from, to time.Duration) result) time.Duration {
				for d := span; d <= limit+5*time.Second; d += 100 * time.Millisecond {
					if result(changeAt+d-span, changeAt+d).used >= 0.9 {
						return d
					}
				}
				return never
			})
		})
	}
}

// change runs a client through a change of the limit to n, until after, and asks when it has done
// what is wanted of it, counted from the change.
func (c finderCell) change(t *testing.T, n int, after time.Duration, what string, limit time.Duration, when func(func(from, to time.Duration) result) time.Duration) {
	for _, seed := range simSeeds(1) {
		var d time.Duration
		var r result
		synctest.Test(t, func(t *testing.T) {
			c.limit.Changes = []throttletest.Change{{At: changeAt, N: n}}
			s := c.sim(seed)
			s.run(t, changeAt+after, max(c.workers, simWorkers), s.client(0))
			result := s.results()
			d = when(result)
			r = result(changeAt, changeAt+min(d, after)+time.Second)
		})
		switch {
		case d <= limit:
			t.Logf("seed %d: %s after %v; until a second later %v", seed, what, d, r)
		case c.reported:
			t.Logf("seed %d: %s after %v, at most %v would be nice; %v", seed, what, d, limit, r)
		default:
			t.Errorf("seed %d: %s after %v, want at most %v; %v", seed, what, d, limit, r)
		}
	}
}

// changeCells are the limits before the change. What windows make of it is logged only: a client
// that has half a window's units left sees the change late.
func changeCells(doubled bool) (cells []finderCell) {
	for _, n := range []int{10, 100, 1000} {
		for i, k := range []throttletest.Kind{throttletest.Bucket, throttletest.Fixed, throttletest.Sliding} {
			for _, retryAfter := range []int{0, 1} {
				c := finderCell{limit: throttletest.Limit{Kind: k, N: n, Per: time.Second, Burst: 10}, trip: shortTrip, retryAfter: retryAfter, reported: k != throttletest.Bucket}
				if doubled && n == 1000 {
					c.workers = 128 // 32 cannot reach 2,000 a second
				}
				if simFull() || i == 0 && n <= race.Pick(10, 100) {
					cells = append(cells, c)
				}
			}
		}
	}
	return cells
}

// A shortRun is 400 calls to an upstream that only refuses; what counts is how soon they are all served.
type shortRun struct {
	limit      throttletest.Limit
	retryAfter time.Duration
	ideal      time.Duration
	most       float64           // x the ideal
	latency    throttletest.Span // each way; zero: 0.5 to 1.5 ms
}

func (c shortRun) run(t *testing.T, seed uint64) (took time.Duration, sent int) {
	s := newSim(trip{time.Millisecond, 3 * time.Millisecond}, seed, c.limit)
	s.RetryAfter, s.Latency = c.retryAfter, cmp.Or(c.latency, s.Latency)
	rt := s.client(0)
	began := time.Now()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range simWorkers {
		wg.Go(func() {
			for next.Add(1) <= 400 {
				resp, err := rt.RoundTrip((&http.Request{Method: "GET", URL: &url.URL{Scheme: "http", Host: "upstream.test"}}).WithContext(t.Context()))
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Error(resp, err)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began), len(s.Ledger())
}

func TestFinderShortRuns(t *testing.T) {
	// HAProxy's http_req_rate: a real one answers some in 0.1 ms and others in several, so when the first 429 is here, up to 31
	// answers that went before it may be missing. Those that it refuses count into its next second.
	haproxy := throttletest.Limit{Kind: throttletest.SlidingCounter, N: 100, CountThrottled: true}
	loopback := throttletest.Span{Min: 50 * time.Microsecond, Mean: time.Millisecond}
	for _, c := range []shortRun{
		{limit: haproxy, retryAfter: time.Second, ideal: 3 * time.Second, most: 1.5},
		{limit: haproxy, retryAfter: time.Second, ideal: 3 * time.Second, most: 1.5, latency: loopback},
		{limit: throttletest.Limit{Kind: throttletest.Sliding, N: 100, CountThrottled: true}, retryAfter: time.Second, ideal: 3 * time.Second, most: 1.5},
		{limit: throttletest.Limit{Kind: throttletest.Fixed, N: 100}, retryAfter: time.Second, ideal: 3 * time.Second, most: 1.5},
		{limit: throttletest.Limit{Kind: throttletest.Bucket, N: 100, Burst: 10}, retryAfter: time.Second, ideal: 3900 * time.Millisecond, most: 1.56},
		{limit: throttletest.Limit{Kind: throttletest.Bucket, N: 100, Burst: 21}, retryAfter: 0, ideal: 3790 * time.Millisecond, most: 1.3},
		{limit: throttletest.Limit{Kind: throttletest.Bucket, N: 20, Burst: 100}, retryAfter: time.Second, ideal: 15 * time.Second, most: 1.6},
	} {
		for _, seed := range simSeeds(race.Pick(2, 5)) {
			var took time.Duration
			var sent int
			synctest.Test(t, func(t *testing.T) { took, sent = c.run(t, seed) })
			x := took.Seconds() / c.ideal.Seconds()
			if t.Logf("%v %d %v: seed %d: %.2f x, %d attempts", c.limit.Kind, c.limit.Burst, c.latency.Mean, seed, x, sent); x > c.most || sent > 440 {
				t.Errorf("more than %.2f x", c.most)
			}
		}
	}
}

// One cut for an event, however many calls it refuses: each is advertised to the hooks as one new rate. Two events count as
// one here if the success between them was sent before the first. Once in thirty runs the search is put aside for a while
// after the change, as if calls were throttled at random: then there are many events without a cut.
func TestOneCutPerEvent(t *testing.T) {
	for _, retryAfter := range race.Pick([]int{1}, []int{0, 1}) {
		synctest.Test(t, func(t *testing.T) {
			limit := throttletest.Limit{Kind: throttletest.Fixed, N: 100, Changes: []throttletest.Change{{At: time.Minute, N: 50}}}
			s := finderCell{limit: limit, trip: wildTrip, retryAfter: retryAfter}.sim(1)
			client := s.client(0).(*throttle.Transport)
			cuts := 0
			client.Hooks.Learned = func(_ context.Context, e throttle.Event) {
				if e.Learned.Source == "throttled" {
					cuts++
				}
			}
			s.run(t, 2*time.Minute, simWorkers, client)
			r := s.result(0, 2*time.Minute)
			t.Logf("%d cuts in %d events, %d refused", cuts, r.events, r.Throttled)
			if cuts > r.events+1 || cuts < 4 || r.Throttled < 2*cuts {
				t.Error("want at most one for each event, four in all, and several refused in each")
			}
		})
	}
}

// What was served before an outage is remembered: the reopening is quick up to there and careful
// above, the first refusal does not send the search back to its beginning, and the burst that
// has come back is not spent on top of the limit within a second. At most 2 % of the calls after it are throttled.
func TestReturnToAnUnknownLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := throttletest.NewServer(throttletest.Limit{N: 100, Burst: 10})
		s.Latency = throttletest.Span{Min: 10 * time.Millisecond}
		s.Faults = []throttletest.Fault{{From: 5 * time.Second, To: 15 * time.Second}}
		tr := &throttle.Transport{Base: s, Retry: throttle.Retry{MaxAttempts: 20, Budget: throttle.Budget{PerCall: -1}}}
		var wg sync.WaitGroup
		for range 25 * 60 {
			wg.Go(func() {
				req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://a.test/", nil)
				resp, err := tr.RoundTrip(req)
				if err != nil || resp.StatusCode != 200 {
					t.Error(resp, err)
				}
			})
			time.Sleep(time.Second / 60)
		}
		wg.Wait()
		if took, refused := s.Elapsed()-15*time.Second, s.Ledger().Tally().Throttled; refused > 24 || took > 12500*time.Millisecond {
			t.Errorf("%d refused, backlog done after %v", refused, took)
		}
		if peak := s.Ledger().Between(15*time.Second, time.Hour).Peak(time.Second); peak > 115 {
			t.Errorf("%d in a second, want at most 1.15 of the limit", peak)
		}
	})
}
