package lab_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/throttletest"
)

// These tests are of a search that is put aside: rightly, and in vain.

// meanOfRuns runs upstreams that differ in their seeds alone, and returns the mean share of what the oracle is served, and of
// the requests throttled for a limit.
func meanOfRuns(t *testing.T, runs int, u randomUpstream) (share, throttled float64) {
	for seed := range runs {
		u.seed = uint64(seed + 1)
		v := u.run(t, u.ours)
		share, throttled = share+v.share/float64(runs), throttled+v.refused/float64(runs)
	}
	t.Logf("%.1f %% of what the oracle is served, %.1f %% throttled for a limit", 100*share, 100*throttled)
	return share, throttled
}

// Served answers take longer than throttled ones, so a second 429 comes before a success after most closings. Where calls
// are throttled at random that is no outage, and nobody has to wait for one call that tries it, and for a slow start.
func TestRandomThrottlingOfSlowAnswers(t *testing.T) {
	u := randomUpstream{kind: atRandom, share: 0.1, retryAfter: time.Second, workers: 50, calls: 5000, until: 5 * time.Minute,
		way: throttletest.Span{Min: 200 * time.Millisecond}, work: throttletest.Span{Min: 1600 * time.Millisecond}}
	if share, _ := meanOfRuns(t, race.Pick(2, 8), u); share < 0.75 {
		t.Error("want at least 75 %")
	}
}

// A dozen answers say little of how many are throttled at random: of one in three they may be six in ten.
func TestRandomThrottlingOfOneInThree(t *testing.T) {
	race.Long(t)
	u := randomUpstream{kind: atRandom, share: 0.35, workers: 8, calls: 1e6, until: 3 * time.Minute,
		way: throttletest.Span{Min: 25 * time.Millisecond}}
	if share, _ := meanOfRuns(t, 24, u); share < 0.63 { // 0.5 to 0.61 if more than two in five were never taken for random
		t.Error("want at least 63 %")
	}
}

// Few calls to a low limit look as if they were throttled at random. Nothing more is served at full speed, and every other
// call is throttled, so the search goes on.
func TestSearchPutAsideInVain(t *testing.T) {
	u := randomUpstream{kind: string(throttletest.Bucket), retryAfter: throttletest.Exact, workers: 1, calls: 5000, until: 10 * time.Minute,
		limit: throttletest.Limit{Kind: throttletest.Bucket, N: 45, Per: time.Minute, Burst: 3},
		way:   throttletest.Span{Min: 50 * time.Millisecond, Max: 200 * time.Millisecond}}
	if share, throttled := meanOfRuns(t, 8, u); share < 0.9 || throttled > 0.15 {
		t.Error("want at least 90 % and at most 15 %")
	}
}

// exceededByASixth is a limit that throttles few of the calls in flight beside the first one, as if they were throttled at
// random. But it throttles none before.
var exceededByASixth = finderCell{
	limit: throttletest.Limit{Kind: throttletest.Bucket, N: 1000, Per: time.Second, Burst: 10}, trip: wildTrip, retryAfter: 1,
}

// A search that is put aside at once comes back if 429s come in bunches.
func TestSearchPutAsideAtOnce(t *testing.T) {
	race.Long(t)
	overSeeds(t, 4, func(t *testing.T, seed uint64) result {
		s := exceededByASixth.sim(seed)
		s.run(t, 40*time.Second, simWorkers, s.client(0))
		return s.result(10*time.Second, 40*time.Second)
	}).want(t, 0.45, 0.01)
}

// The same after a quiet time, which says nothing of the rate.
func TestSearchPutAsideAtOnceBeforeAQuietTime(t *testing.T) {
	race.Long(t)
	const load, quiet, d = 1500 * time.Millisecond, 9 * time.Minute, 10 * time.Minute
	overSeeds(t, 4, func(t *testing.T, seed uint64) result {
		s := exceededByASixth.sim(seed)
		c := s.client(0)
		s.run(t, load, simWorkers, c)
		time.Sleep(quiet)
		s.run(t, d-quiet-load, simWorkers, c)
		return s.result(d-30*time.Second, d)
	}).want(t, 0.65, 0.01)
}

// A search that is put aside says nothing of an outage: one call at a time tries whether the upstream is back.
func TestOutageWhileASearchIsAside(t *testing.T) {
	from, d := race.Pick(30*time.Second, 2*time.Minute), time.Minute
	synctest.Test(t, func(t *testing.T) {
		s := newSim(caseTrip, 1)
		s.Faults = []throttletest.Fault{{From: from, To: from + d, Status: 503, RetryAfter: time.Second}, random(0.1, 0)}
		s.run(t, from+d, simWorkers, s.client(0))
		if sent := s.Ledger().Between(from, from+d).Tally().Total(); sent > 200 {
			t.Errorf("%d attempts in an outage of a minute, want at most 200", sent)
		}
	})
}

// After a Retry-After all calls that have come meanwhile go at once, and those that are throttled at random are answered first.
// They are not taken for a limit.
func TestRandomThrottlingIsAnsweredFirst(t *testing.T) {
	race.Long(t)
	u := randomUpstream{kind: atRandom, share: 0.085, retryAfter: time.Second, demand: 47, calls: 1e6, until: 150 * time.Second,
		way: throttletest.Span{Min: 2 * time.Millisecond}, work: throttletest.Span{Min: 6 * time.Millisecond}}
	if share, _ := meanOfRuns(t, 8, u); share < 0.85 { // 0.5 if they were
		t.Error("want at least 85 %")
	}
}
