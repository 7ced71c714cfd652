package lab_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/throttletest"
)

// Calls are throttled at random, and all answers take as long as each other, so that workers go in step. Then a few 429s in a row
// look like a limit. Each seed has to reach the bound: who runs a program once has no mean of fifty.
func TestRandomThrottlingInTheFirstMinute(t *testing.T) {
	race.Long(t)
	const way, share, from, to = 25 * time.Millisecond, 0.01, 5 * time.Second, time.Minute
	const possible = simWorkers * float64(to-from) / float64(2*way)
	var all []float64
	for _, seed := range simSeeds(20) {
		synctest.Test(t, func(t *testing.T) {
			s := newSim(trip{}, seed)
			s.Latency = throttletest.Span{Min: way}
			s.Faults = []throttletest.Fault{random(share, 0)}
			s.run(t, to, simWorkers, s.client(0))
			used := float64(s.Ledger().Between(from, to).Tally().Admitted) / possible
			if all = append(all, used); used < 0.95 {
				t.Errorf("seed %d: %.1f %% of what is possible, want at least 95 %%", seed, 100*used)
			}
		})
	}
	slices.Sort(all)
	t.Logf("%d seeds: %.1f %% of what is possible in the worst, %.1f %% in the median", len(all), 100*all[0], 100*all[len(all)/2])
}
