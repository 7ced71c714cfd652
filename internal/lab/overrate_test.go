package lab_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/throttletest"
)

// weaker is an upstream for which the client is configured for 100/s. From 5 s to 65 s it keeps less.
type weaker struct {
	less   int     // a second; 0: nothing else than advertised
	random float64 // share that is refused without a reason, at all times
	burst  int

	hooks throttle.Hooks
	*throttletest.Server
}

// between counts what arrived and what of it was refused.
func (u *weaker) between(from, to time.Duration) (arrived, refused int) {
	c := u.Ledger().Between(from, to).Tally()
	return c.Total(), c.Throttled
}

// run keeps 32 workers busy for 100 s and returns whether a rate was found beside the configured one, at a
// minute and at the end.
func (u *weaker) run(t *testing.T) (found [2]bool) {
	limit := throttletest.Limit{N: 100, Burst: u.burst}
	if u.less > 0 {
		limit.Changes = []throttletest.Change{{At: 5 * time.Second, N: u.less}, {At: 65 * time.Second, N: 100}}
	}
	u.Server = throttletest.NewServer(limit)
	u.Latency = throttletest.Span{Min: 8 * time.Millisecond, Max: 12 * time.Millisecond}
	if u.random > 0 {
		u.Faults = []throttletest.Fault{{Share: u.random, Status: http.StatusTooManyRequests}}
	}
	u.Seed = rand.Uint64()
	tr := &throttle.Transport{Base: u, Limiter: throttle.NewBucket(100, 10), Retry: throttle.Retry{MaxAttempts: 20}, Hooks: u.hooks}
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for u.Elapsed() < 100*time.Second {
				if _, err := get(t.Context(), tr, "http://a.test/"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i, at := range []time.Duration{time.Minute, 99 * time.Second} {
		time.Sleep(at - u.Elapsed())
		for s := range tr.Stats() {
			found[i] = len(s.Learned) > 0
		}
	}
	wg.Wait()
	return found
}

// A configured limit that is refused again and again is tightened to what is found, and holds again
// alone when the upstream keeps it.
func TestConfiguredLimitIsTooHigh(t *testing.T) {
	for _, less := range []int{70, 40} {
		synctest.Test(t, func(t *testing.T) {
			u := &weaker{less: less, burst: 20}
			found := u.run(t)
			n, refused := u.between(10*time.Second, 60*time.Second)
			all, _ := u.between(85*time.Second, 100*time.Second)
			t.Logf("%d/s: %d of %d refused; %d in the last 15 s; %v", less, refused, n, all, found)
			if found != [2]bool{true, false} || refused > n/50 || n-refused < 48*less || all < 1480 {
				t.Error("want it found and at most 2 % refused, and 100/s as soon as they are there again")
			}
		})
	}
}

// Where the limit is right nothing is looked for: not for refusals of bursts that meet, and not for
// those at random, which no slower rate would avoid.
func TestConfiguredLimitIsRight(t *testing.T) {
	for _, c := range []struct {
		u    *weaker
		most float64 // share refused
		used int     // arrivals
	}{
		{&weaker{burst: 20}, 0, 9950},
		{&weaker{burst: 10}, 0.02, 9900},
		{&weaker{burst: 20, random: 0.01}, 0.02, 9700},
		{&weaker{burst: 20, random: 0.05}, 0.07, 9400},
		{&weaker{burst: 20, random: 0.1}, 0.13, 9200},
		{&weaker{burst: 20, random: 0.3}, 0.33, 8300},
	} {
		if c.u.random > 0 || c.u.burst < 20 {
			race.Long(t)
		}
		type run struct{ n, throttled int }
		runs, found := make([]run, race.Pick(1, 9)), 0 // the median counts: one in ten has a pause, or a search, by chance
		middle := len(runs) / 2
		if c.u.random >= 0.3 { // and two in five then: those without one are judged
			runs = make([]run, 25)
			middle = 2 * len(runs) / 3
		}
		for i := range runs {
			synctest.Test(t, func(t *testing.T) {
				u := &weaker{burst: c.u.burst, random: c.u.random}
				if u.run(t) != [2]bool{} {
					found++
				}
				runs[i].n, runs[i].throttled = u.between(0, 100*time.Second)
			})
		}
		slices.SortFunc(runs, func(a, b run) int { return cmp.Compare(a.n, b.n) })
		r := runs[middle]
		t.Logf("burst %d, %.0f %% at random: %d of %d throttled, a rate is found in %d of %d runs", c.u.burst, 100*c.u.random, r.throttled, r.n, found, len(runs))
		if found > len(runs)/2 || float64(r.throttled) > c.most*float64(r.n) || r.n < c.used {
			t.Error("want it to be left alone")
		}
	}
}

// A job that sends a batch each minute is not slowed to what it sends in the mean, because a few calls of a batch are throttled. 30 calls
// take 2 s at 10/s with a burst of 10, which is one too many in a second for the upstream.
func TestBatchesBesideARightLimit(t *testing.T) {
	for _, retryAfter := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := throttletest.NewServer(throttletest.Limit{Kind: throttletest.Sliding, N: 10, Per: time.Second})
			s.RetryAfter = retryAfter
			s.Latency = throttletest.Span{Min: 5 * time.Millisecond, Max: 15 * time.Millisecond}
			tr := &throttle.Transport{Base: s, Limiter: throttle.NewBucket(10, 10)}
			for range 10 {
				began := time.Now()
				var wg sync.WaitGroup
				for range 30 {
					wg.Go(func() {
						if code, err := get(t.Context(), tr, "http://a.test/"); err != nil || code != http.StatusOK {
							t.Error(code, err)
						}
					})
				}
				wg.Wait()
				if took := time.Since(began); took > 6*time.Second {
					t.Errorf("Retry-After %v: 30 calls took %v", retryAfter, took)
				}
				time.Sleep(time.Minute)
			}
		})
	}
}

// An upstream that accepts nothing at all is no slower one: nobody may be held back for the hour that a rate
// of nothing would take.
func TestRefusedAltogetherIsNoSlowerLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		up := roundTrip(func(req *http.Request) (*http.Response, error) {
			time.Sleep(20 * time.Millisecond)
			h := http.Header{}
			if n.Add(1) <= 8 {
				h.Set("Retry-After", "1")
				return &http.Response{StatusCode: 429, Header: h, Body: http.NoBody, Request: req}, nil
			}
			time.Sleep(20 * time.Second) // slow, but it comes
			return &http.Response{StatusCode: 200, Header: h, Body: http.NoBody, Request: req}, nil
		})
		tr := &throttle.Transport{Base: up, Limiter: throttle.NewBucket(10, 1), Retry: throttle.Retry{MaxAttempts: 100, MaxPause: -1}}
		start := time.Now()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://a.test/", nil)
				if _, err := tr.RoundTrip(req); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took > time.Minute {
			t.Errorf("all had been served after %v", took)
		}
	})
}

// Refusals at random that tell a pause close the gate for long. No slower rate avoids them, and one that was
// tried is given up.
func TestRandomPausesAreNoSlowerLimit(t *testing.T) {
	race.Long(t)
	synctest.Test(t, func(t *testing.T) {
		s := &throttletest.Server{Faults: []throttletest.Fault{{Share: 0.003, Status: http.StatusTooManyRequests, RetryAfter: time.Second}}}
		s.Latency = throttletest.Span{Min: 10 * time.Millisecond}
		tr := &throttle.Transport{Base: s, Limiter: throttle.NewBucket(100, 10), Retry: throttle.Retry{MaxAttempts: 20}}
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				for s.Elapsed() < 600*time.Second {
					get(t.Context(), tr, "http://a.test/")
				}
			})
		}
		wg.Wait()
		if per := float64(s.Ledger().Tally().Admitted) / 600; per < 70 { // 78 without a second look, 59 where it is never given up
			t.Errorf("%.1f a second", per)
		}
	})
}

// Observers hear that a limit of theirs is too high, with about the rate that is accepted, once a minute at most; and of a quota that tells
// neither its source nor its size.
func TestLearnedIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &weaker{less: 40, burst: 20}
		var mu sync.Mutex
		var heard []time.Duration
		u.hooks.Learned = func(_ context.Context, e throttle.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Learned.Source != "throttled" {
				return
			}
			heard = append(heard, u.Elapsed())
			switch r := e.Learned.Rate; {
			case e.Learned.Configured != 100:
				t.Errorf("100/s are configured, and they hear of %v/s", e.Learned.Configured)
			case r < 22 || r > 60: // the lowest of a run is 38 on average, with a deviation of 2
				t.Errorf("40/s are accepted until 65 s, and at %v they hear of %v/s", u.Elapsed(), r)
			}
		}
		u.run(t)
		if n := len(heard); n == 0 || n > 2 || heard[0] > 10*time.Second || n == 2 && heard[1]-heard[0] < time.Minute {
			t.Errorf("of a rate beside the configured one they hear at %v", heard)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		noted := 0
		tr := &throttle.Transport{
			Base: roundTrip(func(req *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
			}),
			Hint: func(*http.Response, time.Time) hint.Hint {
				return hint.Hint{Quotas: []hint.Quota{{Limit: -1, Remaining: 50, Reset: -1, Window: 10 * time.Second}}}
			},
			Hooks: throttle.Hooks{Learned: func(context.Context, throttle.Event) { noted++ }},
		}
		for range 3 {
			req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://a.test/", nil)
			tr.RoundTrip(req)
		}
		if noted != 1 {
			t.Errorf("advertised %d times, want once", noted)
		}
	})
}

// What only throttled answers advertise does not say what holds between them, so where they go on being throttled a search
// helps.
func TestAdvertisedOnlyWhenThrottled(t *testing.T) {
	race.Long(t)
	for _, c := range []struct {
		limit   throttletest.Limit
		dialect string
		least   float64 // used
	}{
		{throttletest.Limit{Kind: throttletest.Sliding, N: 7, Per: time.Second}, "x-delta", 0.85},
		{throttletest.Limit{Kind: throttletest.Sliding, N: 247, Per: time.Minute}, "x-epoch", 0.8},
		{throttletest.Limit{Kind: throttletest.Bucket, N: 12, Per: time.Second, Burst: 17}, "draft-03", 0.7},
	} {
		t.Run(fmt.Sprintf("%s/%d", c.limit.Kind, c.limit.N), func(t *testing.T) {
			r := overSeeds(t, 4, func(t *testing.T, seed uint64) result {
				s := newSim(caseTrip, seed, c.limit)
				s.Advertise.Dialect, s.Advertise.Throttled = dialectOf(c.dialect), true
				s.run(t, 15*time.Minute, 8, s.client(0))
				return s.result(0, 15*time.Minute)
			})
			r.want(t, c.least, 0.02)
		})
	}
}
