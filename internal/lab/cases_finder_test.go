package lab_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/throttletest"
)

// These tests show what a caller gets of upstreams that throttle for other reasons than a rate, and of limits that are
// configured wrong. Round trips are 50 ms and 32 workers are busy, so 640 calls a second are possible.

var caseTrip = trip{49 * time.Millisecond, 51 * time.Millisecond}

// possible is the rate that simWorkers reach with round trips of caseTrip.
const possible = simWorkers / 0.05

// random is a fault that answers a share of the calls 429.
func random(share float64, retryAfter time.Duration) throttletest.Fault {
	return throttletest.Fault{Share: share, Status: http.StatusTooManyRequests, RetryAfter: retryAfter}
}

// limitedClient is a client of s with a limit of its own.
func (s *sim) limitedClient(l throttle.Limiter) http.RoundTripper {
	return &throttle.Transport{Base: s.port(0), Limiter: l, Retry: throttle.Retry{MaxAttempts: 1 << 30, MaxPause: -1}}
}

// Calls that are throttled at random do not become fewer by going slower, so the client goes on at full speed.
func TestRandomThrottlingHoldsNobodyBack(t *testing.T) {
	race.Long(t)
	for _, c := range []struct {
		share      float64
		retryAfter time.Duration
		limit      float64 // configured, a second; 0: none
		least      float64 // of what is possible
	}{
		{0.001, 0, 0, 0.95},
		{0.01, 0, 0, 0.90},
		{0.1, 0, 0, 0.60},
		{0.001, time.Second, 0, 0.50},
		{0.01, time.Second, 0, 0.10},
		{0.01, 0, 300, 0.95},
	} {
		t.Run(fmt.Sprintf("%v/%v/%v", c.share, c.retryAfter, c.limit), func(t *testing.T) {
			d := 20 * time.Minute
			if !simFull() && c.retryAfter == 0 { // with a Retry-After it takes longer to be sure
				d = 5 * time.Minute
			}
			for _, seed := range simSeeds(1) {
				synctest.Test(t, func(t *testing.T) {
					s := newSim(caseTrip, seed)
					s.Faults = []throttletest.Fault{random(c.share, c.retryAfter)}
					client, capacity := s.client(0), float64(possible)
					if c.limit > 0 {
						client, capacity = s.limitedClient(throttle.NewBucket(rate.Limit(c.limit), 10)), c.limit
					}
					s.run(t, d, simWorkers, client)
					used := float64(s.Ledger().Between(d*3/4, d).Tally().Admitted) / (d.Seconds() / 4 * capacity)
					if t.Logf("seed %d: %.1f %% of what is possible", seed, 100*used); used < c.least {
						t.Errorf("want at least %.0f %%", 100*c.least)
					}
				})
			}
		})
	}
}

// Callers that come by themselves are served, too, where calls are throttled at random.
func TestRandomThrottlingUnderOpenLoad(t *testing.T) {
	race.Long(t)
	for _, perSecond := range []int{300, 50} {
		for _, share := range []float64{0.01, 0.05} {
			t.Run(fmt.Sprintf("%d/%v", perSecond, share), func(t *testing.T) {
				d, seeds := 30*time.Minute, 5
				if !simFull() {
					d, seeds = 5*time.Minute, 1
				}
				sum := 0.0
				for seed := range seeds {
					synctest.Test(t, func(t *testing.T) {
						s := newSim(caseTrip, uint64(seed+1))
						s.Faults = []throttletest.Fault{random(share, 0)}
						s.arrive(t, s.client(0), perSecond, d)
						served := float64(s.Ledger().Between(0, d).Tally().Admitted) / (d.Seconds() * float64(perSecond))
						t.Logf("seed %d: %.1f %% served", seed+1, 100*served)
						sum += served
					})
				}
				if mean := sum / float64(seeds); mean < 0.95 {
					t.Errorf("%.1f %% served, want at least 95", 100*mean)
				}
			})
		}
	}
}

// What was in flight beside the first throttled call shows whether it was throttled at random, so a run of some seconds is
// not slowed for most of its time.
func TestRandomThrottlingIsSeenAtOnce(t *testing.T) {
	for share, least := range map[float64]float64{0.01: 0.6, 0.05: 0.25} {
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			const d = 10 * time.Second
			runs, used := race.Pick(3, 8), 0.0
			for _, seed := range simSeeds(runs) {
				synctest.Test(t, func(t *testing.T) {
					s := newSim(caseTrip, seed)
					s.Faults = []throttletest.Fault{random(share, 0)}
					s.run(t, d, simWorkers, s.client(0))
					used += float64(s.Ledger().Between(0, d).Tally().Admitted) / (d.Seconds() * possible) / float64(len(simSeeds(runs)))
				})
			}
			if t.Logf("%.1f %% of what is possible", 100*used); used < least {
				t.Errorf("want at least %.0f %%", 100*least)
			}
		})
	}
}

// A burst that is met at once, by calls that overtake each other, is a limit all the same.
func TestBurstIsNotTakenForRandom(t *testing.T) {
	for _, c := range []struct {
		workers, burst int
		most           float64 // throttled
	}{{100, 55, 0.045}, {200, 120, 0.06}} {
		t.Run(fmt.Sprint(c.workers), func(t *testing.T) {
			r := overSeeds(t, race.Pick(1, 4), func(t *testing.T, seed uint64) result {
				s := newSim(caseTrip, seed, throttletest.Limit{Kind: throttletest.Bucket, N: 20, Per: time.Second, Burst: c.burst})
				s.Latency = throttletest.Span{Max: 20 * time.Millisecond}
				s.Work = throttletest.Span{Min: 100 * time.Millisecond}
				s.run(t, 2*time.Minute, c.workers, s.client(0))
				return s.result(0, 2*time.Minute)
			})
			r.want(t, 0.9, c.most)
		})
	}
}

// A limit of less than a call a second is searched for as slowly: a probe does not spend what comes back in a minute.
// What is used of the buckets, 93.5 and 94.3 % on average, has a deviation of 1 % over eight seeds.
func TestSlowLimitIsSearchedForSlowly(t *testing.T) {
	for _, c := range []struct {
		limit throttletest.Limit
		least float64 // used
		most  float64 // throttled
	}{
		{throttletest.Limit{Kind: throttletest.Bucket, N: 47, Per: time.Minute, Burst: 4}, 0.87, 0.08},
		{throttletest.Limit{Kind: throttletest.Bucket, N: 120, Per: time.Minute, Burst: 7}, 0.88, 0.03},
		{throttletest.Limit{Kind: throttletest.Sliding, N: 10, Per: 5 * time.Second}, 0.9, 0.03},
	} {
		l := c.limit
		t.Run(fmt.Sprintf("%s/%d/%v", l.Kind, l.N, l.Per), func(t *testing.T) {
			r := overSeeds(t, race.Pick(3, 8), func(t *testing.T, seed uint64) result {
				s := newSim(caseTrip, seed, l)
				s.run(t, 15*time.Minute, 8, s.client(0))
				return s.result(0, 15*time.Minute)
			})
			r.want(t, c.least, c.most)
		})
	}
}

// A ramp doubles once a round trip. Else it has grown thirtyfold when its first 429 comes back after 0.8 s, and nearly all
// of 64 calls are in flight once more.
func TestRampOfLongTrips(t *testing.T) {
	for _, retryAfter := range []time.Duration{0, time.Second} {
		overSeeds(t, 8, func(t *testing.T, seed uint64) result {
			s := newSim(trip{700 * time.Millisecond, 900 * time.Millisecond}, seed, throttletest.Limit{Kind: throttletest.Bucket, N: 58, Per: time.Minute, Burst: 4})
			s.RetryAfter = retryAfter
			s.run(t, 10*time.Second, 64, s.client(0))
			r := s.result(0, 10*time.Second)
			if r.Throttled > 115 {
				t.Errorf("Retry-After %v, seed %d: %d throttled in 10 s, want at most 115, 60 of them at first contact", retryAfter, seed, r.Throttled)
			}
			return r
		})
	}
}

// What has come together behind a low rate does not go at once: neither at the end of a probe that has met no limit, nor when
// a search is put aside that is needed. With a third more calls than a sliding window admits, 46 % were throttled.
func TestBacklogGoesInNoRush(t *testing.T) {
	const d = 20 * time.Minute
	r := overSeeds(t, race.Pick(2, 8), func(t *testing.T, seed uint64) result {
		s := newSim(caseTrip, seed, throttletest.Limit{Kind: throttletest.Sliding, N: 450, Per: 5 * time.Minute})
		s.RetryAfter = throttletest.Exact
		s.arrive(t, s.client(0), 2, d)
		return s.result(0, d)
	})
	r.want(t, 0.7, 0.25)
}

// arrive has calls come one by one for d, and gives up those that still wait then.
func (s *sim) arrive(t *testing.T, rt http.RoundTripper, perSecond int, d time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for began := time.Now(); time.Since(began) < d; time.Sleep(time.Second / time.Duration(perSecond)) {
		wg.Go(func() {
			req, _ := http.NewRequestWithContext(ctx, "GET", s.URL(), nil)
			if resp, err := rt.RoundTrip(req); err == nil {
				resp.Body.Close()
			}
		})
	}
	cancel()
	wg.Wait()
}

// A neverWaits is a limiter of the user's that lets everything go.
type neverWaits struct{}

func (neverWaits) Take(context.Context, int) (time.Duration, error) { return 0, nil }

// Whatever limit is configured, a lower one of the upstream is found.
func TestLowerLimitIsFoundBesideAnyConfiguredOne(t *testing.T) {
	for name, c := range map[string]struct {
		limiter func() throttle.Limiter
		most    float64 // throttled
	}{
		"none":     {func() throttle.Limiter { return nil }, 0.011},
		"bucket":   {func() throttle.Limiter { return throttle.NewBucket(1000, 10) }, 0.02},
		"infinite": {func() throttle.Limiter { return throttle.NewBucket(rate.Inf, 0) }, 0.011},
		"foreign":  {func() throttle.Limiter { return neverWaits{} }, 0.011},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "bucket" {
				race.Long(t)
			}
			for _, seed := range simSeeds(1) {
				synctest.Test(t, func(t *testing.T) {
					s := newSim(caseTrip, seed, throttletest.Limit{N: 100, Burst: 10})
					s.run(t, 5*time.Minute, simWorkers, s.limitedClient(c.limiter()))
					s.result(0, 5*time.Minute).want(t, 0.92, c.most)
				})
			}
		})
	}
}

// A limit that rises to ten times as much is found soon.
func TestTenfoldLimitIsFound(t *testing.T) {
	race.Long(t)
	for _, retryAfter := range []time.Duration{0, time.Second} {
		for _, falls := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/fell-%v", retryAfter, falls), func(t *testing.T) {
				least := 0.60
				switch {
				case falls && retryAfter > 0: // a hold is 22 s then, and longer if the fall has taught to keep less of a throttled rate
					least = 0.33
				case falls:
					least = 0.5
				case retryAfter > 0: // a hold is 22 s then, and the limit rises anywhere in it: 35 to 46 %
					least = 0.3
				}
				sum, seeds := 0.0, simSeeds(10)
				for _, seed := range seeds {
					synctest.Test(t, func(t *testing.T) {
						at := changeAt + time.Duration(seed)*3*time.Second // so that it comes anywhere in a hold
						l := throttletest.Limit{N: 30, Burst: 10, Changes: []throttletest.Change{{At: at, N: 300}}}
						if falls {
							l.N, l.Changes = 300, []throttletest.Change{{At: changeAt / 2, N: 30}, {At: at, N: 300}}
						}
						s := newSim(caseTrip, seed, l)
						s.RetryAfter = retryAfter
						s.run(t, at+30*time.Second, simWorkers, s.client(0))
						r := s.result(at, at+30*time.Second)
						t.Logf("seed %d: %v", seed, r)
						sum += r.used / float64(len(seeds))
					})
				}
				if sum < least {
					t.Errorf("%.1f %% used in the first 30 s, want at least %.0f", 100*sum, 100*least)
				}
			})
		}
	}
}

// A limit is found, then an outage asks for a day, and its end is seen by somebody who resumes. The rate that was found is not
// held for weeks, as it would be if the upstream asked for a day each time that a rate is too high.
func TestResumeAfterADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const outage, resumed, seen = time.Minute, 2 * time.Minute, 5 * time.Minute
		s := newSim(caseTrip, 1, throttletest.Limit{N: 10, Burst: 10, Changes: []throttletest.Change{{At: outage, N: 100}}})
		s.Faults = []throttletest.Fault{{From: outage, To: resumed, Status: http.StatusTooManyRequests, RetryAfter: 24 * time.Hour}}
		c := s.client(0)
		time.AfterFunc(resumed, func() { c.(*throttle.Transport).Resume("") })
		s.run(t, seen+time.Minute, simWorkers, c)
		if r := s.result(seen, seen+time.Minute); r.used < 0.85 {
			t.Errorf("%v; want at least 85 %% used", r)
		}
	})
}

// A rate that was found is not raised by calls that do not use it: what comes after a quiet time meets the rate of before.
func TestUnusedRateIsNotRaised(t *testing.T) {
	overSeeds(t, race.Pick(1, 4), func(t *testing.T, seed uint64) result {
		const found, quiet, back = time.Minute, 4 * time.Minute, 10 * time.Second
		s := newSim(caseTrip, seed, throttletest.Limit{N: 100, Burst: 10})
		c := s.client(0)
		s.run(t, found, simWorkers, c)
		s.arrive(t, c, 40, quiet)
		s.run(t, back, simWorkers, c)
		return s.result(found+quiet, found+quiet+back)
	}).want(t, 0.8, 0.05) // 0.15 if starts that are less than 5 ms late count for used
}

// A limit by concurrency is held as a rate.
func TestLimitByConcurrency(t *testing.T) {
	race.Long(t)
	for k, least := range map[int]float64{5: 0.57, 20: 0.63} {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			sum, seeds := 0.0, simSeeds(1)
			for _, seed := range seeds {
				synctest.Test(t, func(t *testing.T) {
					s := newSim(trip{23 * time.Millisecond, 27 * time.Millisecond}, seed, throttletest.Limit{Kind: throttletest.InFlight, N: k})
					s.Work = throttletest.Span{Min: 20 * time.Millisecond, Max: 30 * time.Millisecond}
					s.run(t, 5*time.Minute, simWorkers, s.client(0))
					c := s.Ledger().Between(10*time.Second, 5*time.Minute).Tally()
					used := float64(c.Admitted) / 290 / (float64(k) / 0.025)
					t.Logf("seed %d: %.1f %% used, %.2f %% throttled", seed, 100*used, 100*float64(c.Throttled)/float64(c.Total()))
					sum += used / float64(len(seeds))
				})
			}
			if sum < least {
				t.Errorf("%.1f %% used, want at least %.0f", 100*sum, 100*least)
			}
		})
	}
}

// An answer that says that the upstream is in trouble says nothing of our rate, so no search begins.
func TestTroubleStartsNoSearch(t *testing.T) {
	for _, status := range []int{503, 529, 418} {
		synctest.Test(t, func(t *testing.T) {
			s := newSim(caseTrip, 1)
			s.Faults = []throttletest.Fault{{Share: 0.05, Status: status, RetryAfter: time.Second}}
			tr := &throttle.Transport{Base: s.port(0), Retry: throttle.Retry{MaxAttempts: 1 << 30, MaxPause: -1}}
			s.run(t, time.Minute, 8, tr)
			if l := statsOf(tr).Learned; len(l) > 0 {
				t.Errorf("status %d: %+v", status, l)
			}
		})
	}
}

// Where a quota is advertised, calls that are throttled at random hold nobody back either: the quota does not explain
// them, and being slower does not help.
func TestRandomThrottlingBesideAnAdvertisedQuota(t *testing.T) {
	race.Long(t)
	for share, least := range map[float64]float64{0.01: 0.85, 0.05: 0.9} { // 1 % begins no search, and closes as ever
		synctest.Test(t, func(t *testing.T) {
			s := newSim(caseTrip, 1, throttletest.Limit{Kind: throttletest.Fixed, N: 1000, Per: 10 * time.Second})
			s.Advertise = throttletest.Advert{Dialect: throttletest.Draft08}
			s.Faults = []throttletest.Fault{random(share, 0)}
			s.run(t, 5*time.Minute, simWorkers, s.client(0))
			if r := s.result(10*time.Second, 5*time.Minute); r.used < least || r.share() > share+0.01 {
				t.Errorf("%v at random: %v", share, r)
			} else {
				t.Logf("%v at random: %v", share, r)
			}
		})
	}
}
