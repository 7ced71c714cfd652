package throttle

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

func TestLeakyScripts(t *testing.T) {
	fivePerSecond := func() Limiter { return NewLeaky(5) }
	runScript(t, "even, and nothing is saved up", fivePerSecond, []step{
		{at: 0, do: "take", n: 1},
		{at: 0, do: "take", n: 1, want: 200 * ms},
		{at: 150 * ms, do: "take", n: 1, want: 50 * ms},
		{at: 200 * ms, do: "take", n: 1},
		{at: time.Minute, do: "take", n: 1},
		{at: time.Minute, do: "take", n: 1, want: 200 * ms},
	})
	runScript(t, "a cost delays the one behind it", fivePerSecond, []step{
		{at: 0, do: "take", n: 4},
		{at: 0, do: "take", n: 1, want: 800 * ms},
		{at: 0, do: "undo"},
		{at: 0, do: "take", n: 2},
		{at: 100 * ms, do: "adjust", n: 1},
		{at: 100 * ms, do: "take", n: 1, want: 500 * ms},
		{at: 100 * ms, do: "limit", n: 10},
		{at: 100 * ms, do: "take", n: 1, want: 250 * ms},
	})
}

func TestLeakyWindowsHoldTheLimit(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 6))
			limit, largest := rate.Limit(1+r.Float64()*300), 1+r.IntN(3)*r.IntN(4)
			l := NewLeaky(limit)
			d := drive{seed: seed, lim: l, mean: time.Duration(1e9 / float64(limit)), maxCost: largest, undo: 0.1}
			d.external = func(r *rand.Rand, g admission, _ time.Time) bool { l.Adjust(-g.n); return true }
			checkWindows(t, d.run(1500), bucketBound(limit, 1, largest))
		})
	}
}

func TestLeakyBacklogIsEvenAndReachesTheRate(t *testing.T) {
	for _, limit := range []rate.Limit{0.5, 3, 200, 5000, 33_333, 1e6} {
		synctest.Test(t, func(t *testing.T) {
			l := NewLeaky(limit)
			gap := time.Duration(float64(time.Second) / float64(limit))
			l.Take(context.Background(), 1)
			start := time.Now()
			const units = 5_000
			for i := range units {
				last := time.Now()
				for {
					wait, _ := l.Take(context.Background(), 1)
					if wait == 0 {
						break
					}
					time.Sleep(wait)
				}
				if got := time.Since(last); got < gap || got > gap+1 {
					t.Fatalf("unit %d at %v/s: %v after the last one, want %v", i, limit, got, gap)
				}
			}
			if ideal := units / float64(limit); time.Since(start).Seconds() > 1.0001*ideal {
				t.Errorf("%d units at %v/s took %v, ideal %v s", units, limit, time.Since(start), ideal)
			}
		})
	}
}
