package account

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// together takes from all of s or from none.
func together(s *Set) taker {
	return func(n int) (time.Duration, error) { return s.Take(context.Background(), n) }
}

func TestSetHoldsEveryLimit(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			lim := set(bucket(40, 5), sliding(20, time.Second), leaky(100))
			used := drive{seed: seed, lim: lim, mean: 20 * time.Millisecond, maxCost: 4, undo: 0.1}.run(1500)
			checkWindows(t, used, func(from, to time.Time) float64 {
				l := to.Sub(from)
				most := min(5+40*l.Seconds(), 4+100*l.Seconds()) + 1e-6
				if l < time.Second {
					most = min(most, 20)
				}
				return most
			})
			if n := backlog(together(lim), time.Minute, one); n < 1194 {
				t.Errorf("%d units in a minute, want 99.5 %% of 1200", n)
			}
		})
	}
}

// Sets of the same accounts in opposite orders do not block each other.
func TestSetsLockInOneOrder(t *testing.T) {
	a, b, c := bucket(1e9, 1e9), fixed(1e9, time.Second), sliding(1e6, time.Second)
	var wg sync.WaitGroup
	merged := set(b)
	merged.Merge(set(c, a))
	for _, l := range []*Set{set(a, b, c), set(c, b, a), merged} {
		wg.Go(func() {
			for range 5000 {
				l.Take(context.Background(), 1)
			}
		})
	}
	wg.Wait()
}
