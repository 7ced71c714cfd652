package lab_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/throttletest"
)

// Where a window is spent and each 429 says "1 s" until it turns, tries are further and further apart.
func TestRetryAfterAgainAndAgain(t *testing.T) {
	race.Long(t)
	for _, c := range []struct {
		n    int
		per  time.Duration
		most float64 // throttled; 39 and 48 % if each second is tried
	}{
		{60, time.Minute, 0.32},
		{300, 5 * time.Minute, 0.2},
	} {
		for _, kind := range []throttletest.Kind{throttletest.Fixed, throttletest.FixedFirst, throttletest.Sliding} {
			t.Run(fmt.Sprintf("%d/%v/%s", c.n, c.per, kind), func(t *testing.T) {
				overSeeds(t, 4, func(t *testing.T, seed uint64) result {
					s := newSim(caseTrip, seed, throttletest.Limit{Kind: kind, N: c.n, Per: c.per, Phase: time.Duration(seed) * c.per / 7})
					s.RetryAfter = time.Second
					s.run(t, 30*time.Minute, []int{2, 8, 32}[seed%3], s.client(0))
					return s.result(10*time.Minute, 30*time.Minute)
				}).want(t, 0.9, c.most)
			})
		}
	}
}

// Soon after a time in which everything was throttled, all goes as fast as before, however often such times come.
func TestOutagesOf429(t *testing.T) {
	race.Long(t)
	for _, outage := range []time.Duration{10 * time.Second, 10 * time.Minute} {
		for _, retryAfter := range []time.Duration{0, time.Second} {
			t.Run(fmt.Sprintf("%v/retry-after-%v", outage, retryAfter), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSim(caseTrip, 1)
					var ends []time.Duration
					end := time.Duration(0)
					for _, quiet := range []time.Duration{4, 7, 5, 9} {
						from := end + quiet*time.Minute
						end = from + outage
						ends = append(ends, end)
						s.Faults = append(s.Faults, throttletest.Fault{From: from, To: end, Status: 429, RetryAfter: retryAfter})
					}
					s.run(t, end+3*time.Minute, 2, s.client(0))
					before := s.Ledger().Between(0, time.Minute).Tally().Admitted
					for _, end := range ends {
						from := end + 45*time.Second // at most 30 s until a probe, and then slow start
						if n := s.Ledger().Between(from, from+time.Minute).Tally().Admitted; n < before*9/10 {
							t.Errorf("%d served in a minute after the outage that ended at %v, want nine tenths of %d", n, end, before)
						}
					}
				})
			})
		}
	}
}

// A row of 429s in which nobody asked for a day has no age: the second of them holds calls for a second, as it says.
func TestRowOf429sThatIsADayOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(caseTrip, 1)
		const day = 24 * time.Hour
		s.Faults = []throttletest.Fault{
			{To: time.Second, Status: 429, RetryAfter: time.Second},
			{From: day, To: day + time.Second, Status: 429, RetryAfter: time.Second},
		}
		client := &throttle.Transport{Base: s.port(0), Retry: throttle.Retry{MaxAttempts: 1}}
		for _, at := range []time.Duration{0, day} {
			time.Sleep(at - s.Elapsed())
			if code, err := get(t.Context(), client, s.URL()); code != 429 || err != nil {
				t.Fatal(code, err)
			}
		}
		start := time.Now()
		if code, err := get(t.Context(), client, s.URL()); code != 200 || err != nil || time.Since(start) > 2*time.Second {
			t.Errorf("%d, %v after %v, want 200 after little more than a second", code, err, time.Since(start))
		}
	})
}
