package limit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/race"
	"golang.org/x/time/rate"
)

func TestBucketScripts(t *testing.T) {
	tenPerSecond := func() Account { return bucket(10, 3) }
	runScript(t, "burst, then the rate", tenPerSecond, []step{
		{at: 0, do: "take", n: 1},
		{at: 0, do: "take", n: 2},
		{at: 0, do: "take", n: 1, want: 100 * ms},
		{at: 0, do: "take", n: 3, want: 300 * ms}, // a refusal took nothing
		{at: 50 * ms, do: "take", n: 1, want: 50 * ms},
		{at: 100 * ms, do: "take", n: 1},
		{at: 100 * ms, do: "take", n: 0},
		{at: 250 * ms, do: "take", n: 1},
		{at: 250 * ms, do: "take", n: 1, want: 50 * ms},
		{at: 10 * time.Second, do: "avail", n: 3}, // never more than the burst
	})
	runScript(t, "a cost above the burst goes when full and leaves a debt", tenPerSecond, []step{
		{at: 0, do: "take", n: 1},
		{at: 0, do: "take", n: 13, want: 100 * ms},
		{at: 100 * ms, do: "take", n: 13},
		{at: 100 * ms, do: "avail", n: -10},
		{at: 100 * ms, do: "take", n: 0},
		{at: 100 * ms, do: "take", n: 1, want: 1100 * ms},
		{at: 100 * ms, do: "take", n: 5, want: 1300 * ms},
		{at: 1200 * ms, do: "take", n: 1},
		{at: 9 * time.Second, do: "avail", n: 3}, // and the burst is what it was
	})
	runScript(t, "undo gives all back, also of a debt", tenPerSecond, []step{
		{at: 0, do: "take", n: 13},
		{at: 100 * ms, do: "undo"},
		{at: 100 * ms, do: "avail", n: 3},
		{at: 100 * ms, do: "take", n: 3},
		{at: 100 * ms, do: "take", n: 1, want: 100 * ms},
		{at: 100 * ms, do: "undo"},
		{at: 100 * ms, do: "avail", n: 3},
	})
	runScript(t, "adjust", tenPerSecond, []step{
		{at: 0, do: "adjust", n: 5},
		{at: 0, do: "avail", n: -2},
		{at: 0, do: "take", n: 1, want: 300 * ms},
		{at: 0, do: "adjust", n: -4},
		{at: 0, do: "take", n: 2},
		{at: 0, do: "adjust", n: -1000},
		{at: 0, do: "avail", n: 3},
		{at: 0, do: "adjust", n: math.MinInt},
		{at: 0, do: "take", n: 3},
		{at: 0, do: "take", n: 1, want: 100 * ms},
	})
	runScript(t, "a new rate counts from now on", tenPerSecond, []step{
		{at: 0, do: "take", n: 3},
		{at: 50 * ms, do: "limit", n: 1},
		{at: 50 * ms, do: "take", n: 1, want: 500 * ms}, // half of it earned at the old rate
		{at: 250 * ms, do: "limit", n: 100},
		{at: 250 * ms, do: "take", n: 1, want: 3 * ms},
		{at: 253 * ms, do: "take", n: 1},
	})
	runScript(t, "limit 0 refuses, and what was saved comes back with the limit", tenPerSecond, []step{
		{at: 0, do: "take", n: 1},
		{at: 0, do: "limit", n: 0},
		{at: 0, do: "take", n: 1, err: "limit is 0"},
		{at: 0, do: "take", n: 0},
		{at: 0, do: "avail", n: 0},
		{at: 0, do: "adjust", n: 5},
		{at: 0, do: "avail", n: -3}, // a debt is seen
		{at: 0, do: "adjust", n: -5},
		{at: time.Hour, do: "limit", n: 10},
		{at: time.Hour, do: "take", n: 2},
		{at: time.Hour, do: "take", n: 1, want: 100 * ms},
	})
	runScript(t, "a new burst", tenPerSecond, []step{
		{at: 0, do: "burst", n: 5},
		{at: 0, do: "take", n: 5, want: 200 * ms}, // filled at the rate
		{at: 200 * ms, do: "take", n: 1},
		{at: 200 * ms, do: "burst", n: 2},
		{at: 200 * ms, do: "take", n: 2},
		{at: 200 * ms, do: "take", n: 2, want: 200 * ms},
		{at: time.Second, do: "avail", n: 2},
		{at: time.Second, do: "take", n: 2},
		{at: 1100 * ms, do: "burst", n: 5},
		{at: 1100 * ms, do: "avail", n: 1}, // what was earned before stays
	})
}

// bucketBound: burst + ∫rate + what one cost may exceed the burst by, and 1 ns of AllowN's tolerance.
func bucketBound(limit rate.Limit, burst, largest int) func(from, to time.Time) float64 {
	return func(from, to time.Time) float64 {
		return float64(max(burst, largest)) + float64(limit)*(to.Sub(from)+1).Seconds() + 1e-6
	}
}

func TestBucketWindowsHoldTheLimit(t *testing.T) {
	for seed := range race.Pick(uint64(10), 30) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 5))
			limit, burst, largest := rate.Limit(1+r.Float64()*300), 1+r.IntN(20), 1+r.IntN(30)
			b := bucket(limit, burst)
			unit := time.Duration(float64(time.Second) / float64(limit))
			d := drive{seed: seed, lim: set(b), mean: unit * time.Duration(1+r.IntN(2*largest)), maxCost: largest, undo: 0.15}
			d.late = time.Duration(r.IntN(2)) * 5 * ms
			d.external = func(r *rand.Rand, g admission, _ time.Time) bool { b.Adjust(-g.n); return true }
			checkWindows(t, d.run(1000), bucketBound(limit, burst, largest))
		})
	}
}

func TestBucketWindowsHoldTheIntegralOfAChangingRate(t *testing.T) {
	for seed := range uint64(15) {
		synctest.Test(t, func(t *testing.T) {
			b := bucket(50, 4)
			type change struct {
				at    time.Time
				limit rate.Limit
			}
			changes := []change{{time.Now(), 50}}
			d := drive{seed: seed, lim: set(b), mean: 10 * ms, maxCost: 6, undo: 0.1}
			d.change = func(r *rand.Rand, now time.Time) {
				limit := rate.Limit(1 + r.IntN(200))
				b.SetLimit(limit)
				changes = append(changes, change{now, limit})
			}
			used := d.run(1000)
			if len(changes) < 10 {
				t.Fatal("the rate hardly changed")
			}
			integral := func(to time.Time) (units float64) {
				for i, c := range changes {
					end := to
					if i+1 < len(changes) {
						end = Earliest(to, changes[i+1].at)
					}
					units += float64(c.limit) * max(0, end.Sub(c.at).Seconds())
				}
				return units
			}
			sums := make(map[time.Time]float64)
			for _, g := range used {
				sums[g.at] = integral(g.at)
			}
			checkWindows(t, used, func(from, to time.Time) float64 { return 6 + sums[to] - sums[from] + 1e-5 })
		})
	}
}

// Backlog reaches the rate, whatever it is, and over days too.
func TestBucketBacklogReachesTheRate(t *testing.T) {
	for _, c := range []struct {
		limit rate.Limit
		burst int
		d     time.Duration
	}{
		{1, 1, 10 * time.Hour}, {3, 1, 3 * time.Hour}, {7, 7, time.Hour}, {0.001, 2, 365 * 24 * time.Hour},
		{200, 10, time.Minute}, {5000, 1, 8 * time.Second}, {5000, 10, 8 * time.Second},
		{1e6, 1, 50 * ms}, {7e5, 10, 50 * ms}, {130_000, 1, 300 * ms},
	} {
		t.Run(fmt.Sprintf("%v burst %d", c.limit, c.burst), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ideal := float64(c.limit) * c.d.Seconds()
				got := float64(backlog(alone(bucket(c.limit, c.burst)), c.d, one))
				if got < 0.9999*ideal-1 || got > ideal+float64(c.burst)+1e-6 {
					t.Errorf("%v units in %v, ideal %v", got, c.d, ideal)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // costs of every size lose nothing either
		r := rand.New(rand.NewPCG(1, 1))
		got := backlog(alone(bucket(100, 5)), 20*time.Minute, func() int { return 1 + r.IntN(15) })
		if got < 120_000-30 || got > 120_000+30 {
			t.Errorf("%d units in 20 min at 100/s", got)
		}
	})
}

// A timer that is late again and again costs nothing if the take is dated to the moment that was named.
func TestLateTimersCostNoQuota(t *testing.T) {
	for _, limit := range []rate.Limit{200, 5000} {
		b := set(bucket(limit, 1))
		start := time.Unix(1000, 0)
		named, now, units := start, start, 0
		for now.Sub(start) < 10*time.Second {
			m, err := b.TakeBy(named, now, 1)
			if err != nil {
				t.Fatal(err)
			}
			if !m.After(now) {
				units, named = units+1, m
				continue
			}
			named, now = m, m.Add(1100*time.Microsecond) // as timers do here
		}
		if ideal := float64(limit) * 10; float64(units) < 0.995*ideal || float64(units) > ideal+float64(limit)*0.005+1 {
			t.Errorf("%d units in 10 s at %v/s", units, limit)
		}
	}
}

func TestLeakyScripts(t *testing.T) {
	fivePerSecond := func() Account { return leaky(5) }
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
	for seed := range race.Pick(uint64(6), 20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 6))
			limit, largest := rate.Limit(1+r.Float64()*300), 1+r.IntN(3)*r.IntN(4)
			l := leaky(limit)
			d := drive{seed: seed, lim: set(l), mean: time.Duration(1e9 / float64(limit)), maxCost: largest, undo: 0.1}
			d.external = func(r *rand.Rand, g admission, _ time.Time) bool { l.Adjust(-g.n); return true }
			checkWindows(t, d.run(1500), bucketBound(limit, 1, largest))
		})
	}
}

func TestLeakyBacklogIsEvenAndReachesTheRate(t *testing.T) {
	for _, limit := range []rate.Limit{0.5, 3, 200, 5000, 33_333, 1e6} {
		synctest.Test(t, func(t *testing.T) {
			l := leaky(limit)
			gap := time.Duration(float64(time.Second) / float64(limit))
			TakeNow(l, 1)
			start := time.Now()
			const units = 5_000
			for i := range units {
				last := time.Now()
				for {
					wait, _ := TakeNow(l, 1)
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
