package limit

import (
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/race"
)

func TestFixedWindowScripts(t *testing.T) {
	fivePerSecond := func() Account { return fixed(5, time.Second) }
	runScript(t, "a window starts with its first unit", fivePerSecond, []step{
		{at: 300 * ms, do: "take", n: 4},
		{at: 500 * ms, do: "take", n: 1},
		{at: 500 * ms, do: "take", n: 0},
		{at: 500 * ms, do: "take", n: 1, want: 800 * ms},
		{at: 1299 * ms, do: "take", n: 1, want: 1 * ms},
		{at: 1300 * ms, do: "take", n: 2},
		{at: 5 * time.Second, do: "avail", n: 5},
		{at: 5700 * ms, do: "take", n: 5},
		{at: 6699 * ms, do: "take", n: 1, want: 1 * ms},
	})
	runScript(t, "a cost that does not fit waits for the next window", fivePerSecond, []step{
		{at: 0, do: "take", n: 3},
		{at: 100 * ms, do: "take", n: 3, want: 900 * ms},
		{at: 100 * ms, do: "take", n: 2},
	})
	runScript(t, "a cost above n starts with no window open and fills those after it", fivePerSecond, []step{
		{at: 0, do: "take", n: 1},
		{at: 0, do: "take", n: 12, want: 1000 * ms},
		{at: 1000 * ms, do: "take", n: 12}, // 5 + 5 + 2
		{at: 1000 * ms, do: "avail", n: -7},
		{at: 1500 * ms, do: "take", n: 1, want: 1500 * ms},
		{at: 1500 * ms, do: "take", n: 4, want: 2500 * ms},
		{at: 3000 * ms, do: "take", n: 3},
		{at: 3000 * ms, do: "take", n: 1, want: 1000 * ms},
	})
	runScript(t, "undo of a unit whose window ended gives nothing", fivePerSecond, []step{
		{at: 0, do: "take", n: 5},
		{at: 999 * ms, do: "undo"},
		{at: 999 * ms, do: "take", n: 5}, // nothing was used: its window starts here
		{at: 1500 * ms, do: "take", n: 1, want: 499 * ms},
		{at: 1999 * ms, do: "undo"},
		{at: 1999 * ms, do: "take", n: 5},
		{at: 2100 * ms, do: "undo"},
		{at: 2100 * ms, do: "take", n: 2},
		{at: 3099 * ms, do: "take", n: 3},
		{at: 3099 * ms, do: "undo"},
		{at: 3099 * ms, do: "avail", n: 3},
	})
	runScript(t, "undo of units of the window before leaves the open one alone", fivePerSecond, []step{
		{at: 0, do: "take", n: 2},
		{at: 1000 * ms, do: "undo"},
		{at: 1000 * ms, do: "avail", n: 5},
		{at: 1000 * ms, do: "adjust", n: 4}, // a new window, not undone below
		{at: 1000 * ms, do: "undo"},
		{at: 1000 * ms, do: "avail", n: 1},
		{at: 2500 * ms, do: "adjust", n: 1},
		{at: 3000 * ms, do: "take", n: 2},
		{at: 3600 * ms, do: "adjust", n: 4}, // a new window from here on, less than one after 3 s
		{at: 3600 * ms, do: "undo"},
		{at: 3600 * ms, do: "avail", n: 1},
	})
	runScript(t, "undo of units of the last moment of the window before", fivePerSecond, []step{
		{at: 0, do: "take", n: 1},
		{at: 1000*ms - 1, do: "take", n: 2},
		{at: 1000 * ms, do: "adjust", n: 4},
		{at: 1000 * ms, do: "undo"},
		{at: 1000 * ms, do: "avail", n: 1},
	})
	runScript(t, "undo of a cost above n", fivePerSecond, []step{
		{at: 0, do: "take", n: 12},
		{at: 1500 * ms, do: "undo"}, // one window is gone
		{at: 1500 * ms, do: "avail", n: 5},
		{at: 1500 * ms, do: "take", n: 12},
		{at: 3600 * ms, do: "undo"}, // two are, 2 units were in the third
		{at: 3600 * ms, do: "avail", n: 5},
		{at: 3600 * ms, do: "take", n: 12},
		{at: 6600 * ms, do: "undo"},
		{at: 6600 * ms, do: "avail", n: 5},
		{at: 7000 * ms, do: "take", n: 12},
		{at: 9100 * ms, do: "adjust", n: 1}, // beside 2 in the third window
		{at: 9100 * ms, do: "undo"},
		{at: 9100 * ms, do: "avail", n: 4},
		{at: 9200 * ms, do: "adjust", n: -3},
		{at: 9300 * ms, do: "take", n: 1}, // a window of its own
		{at: 10200 * ms, do: "avail", n: 4},
		{at: 10300 * ms, do: "avail", n: 5},
	})
	runScript(t, "adjust", fivePerSecond, []step{
		{at: 0, do: "adjust", n: 7}, // counts from now on, and 2 of the next window
		{at: 500 * ms, do: "take", n: 1, want: 500 * ms},
		{at: 500 * ms, do: "adjust", n: -1},
		{at: 500 * ms, do: "take", n: 5, want: 1500 * ms},
		{at: 1000 * ms, do: "take", n: 4},
		{at: 1000 * ms, do: "adjust", n: -100},
		{at: 1000 * ms, do: "avail", n: 5},
		{at: 1500 * ms, do: "take", n: 5},
		{at: 1500 * ms, do: "take", n: 1, want: 1000 * ms},
		{at: 2500 * ms, do: "adjust", n: 12},
		{at: 4000 * ms, do: "adjust", n: -1}, // in the second of three windows
		{at: 4000 * ms, do: "avail", n: -1},
		{at: 4500 * ms, do: "take", n: 4},
	})
}

func TestSlidingWindowScripts(t *testing.T) {
	fivePerSecond := func() Account { return sliding(5, time.Second) }
	runScript(t, "every unit blocks its place for a window", fivePerSecond, []step{
		{at: 300 * ms, do: "take", n: 3},
		{at: 500 * ms, do: "take", n: 2},
		{at: 500 * ms, do: "take", n: 0},
		{at: 500 * ms, do: "take", n: 3, want: 800 * ms},
		{at: 500 * ms, do: "take", n: 4, want: 1000 * ms},
		{at: 1299 * ms, do: "take", n: 1, want: 1 * ms},
		{at: 1300 * ms, do: "take", n: 3},
		{at: 1300 * ms, do: "take", n: 1, want: 200 * ms},
		{at: 1500 * ms, do: "take", n: 2},
		{at: 9 * time.Second, do: "avail", n: 5},
	})
	runScript(t, "a cost above n starts when empty and fills the window again and again", fivePerSecond, []step{
		{at: 0, do: "take", n: 1},
		{at: 100 * ms, do: "take", n: 12, want: 900 * ms},
		{at: 1000 * ms, do: "take", n: 12},
		{at: 1000 * ms, do: "avail", n: -7},
		{at: 1500 * ms, do: "take", n: 1, want: 1500 * ms},
		{at: 2999 * ms, do: "take", n: 3, want: 1 * ms},
		{at: 2999 * ms, do: "take", n: 4, want: 1001 * ms},
		{at: 3000 * ms, do: "take", n: 3},
		{at: 3000 * ms, do: "take", n: 1, want: 1000 * ms},
	})
	runScript(t, "to the nanosecond", func() Account { return sliding(2, time.Second) }, []step{
		{at: 0, do: "take", n: 1},
		{at: 1, do: "take", n: 1},
		{at: 1, do: "take", n: 1, want: time.Second - 1},
		{at: time.Second, do: "take", n: 1},
		{at: time.Second, do: "take", n: 1, want: 1},
		{at: time.Second + 1, do: "take", n: 1},
		{at: time.Second + 1, do: "take", n: 1, want: time.Second - 1},
	})
	runScript(t, "a cost of whole windows", fivePerSecond, []step{
		{at: 0, do: "take", n: 15},
		{at: 0, do: "take", n: 1, want: 3000 * ms},
		{at: 3000 * ms, do: "take", n: 5},
	})
	runScript(t, "undo removes the very units", fivePerSecond, []step{
		{at: 0, do: "take", n: 2},
		{at: 100 * ms, do: "take", n: 3},
		{at: 200 * ms, do: "undo"},
		{at: 200 * ms, do: "avail", n: 3},
		{at: 1000 * ms, do: "avail", n: 5}, // those of 0 remained, not those of 100 ms
		{at: 1000 * ms, do: "take", n: 3},
		{at: 1500 * ms, do: "adjust", n: 2}, // later units, not undone below
		{at: 1600 * ms, do: "undo"},
		{at: 1600 * ms, do: "take", n: 4, want: 900 * ms},
	})
	runScript(t, "undo of units whose window ended gives nothing", fivePerSecond, []step{
		{at: 0, do: "take", n: 3},
		{at: 500 * ms, do: "adjust", n: 2},
		{at: 1000 * ms, do: "undo"},
		{at: 1000 * ms, do: "avail", n: 3},
	})
	runScript(t, "undo of a cost above n", fivePerSecond, []step{
		{at: 0, do: "take", n: 12},
		{at: 1500 * ms, do: "undo"},
		{at: 1500 * ms, do: "avail", n: 5},
		{at: 1500 * ms, do: "take", n: 12},
		{at: 3600 * ms, do: "adjust", n: 2},
		{at: 3600 * ms, do: "avail", n: 1},
		{at: 3600 * ms, do: "undo"},
		{at: 3600 * ms, do: "avail", n: 3},
		{at: 4600 * ms, do: "avail", n: 5},
		{at: 5000 * ms, do: "take", n: 12},
		{at: 7500 * ms, do: "undo"}, // units of the second window are still on the log
		{at: 7500 * ms, do: "avail", n: 5},
	})
	runScript(t, "undo and adjust under a debt lessen the debt", fivePerSecond, []step{
		{at: 0, do: "take", n: 3},
		{at: 100 * ms, do: "take", n: 2},
		{at: 500 * ms, do: "adjust", n: 2},
		{at: 500 * ms, do: "avail", n: -2},
		{at: 500 * ms, do: "undo"}, // the 2 owed have those places from now on
		{at: 500 * ms, do: "avail", n: 0},
		{at: 500 * ms, do: "take", n: 4, want: 1000 * ms},
		{at: 500 * ms, do: "take", n: 3, want: 500 * ms},
		{at: 500 * ms, do: "adjust", n: 12},
		{at: 500 * ms, do: "avail", n: -12},
		{at: 500 * ms, do: "adjust", n: -11},
		{at: 500 * ms, do: "avail", n: -1},
		{at: 500 * ms, do: "take", n: 2, want: 500 * ms},
		{at: 500 * ms, do: "take", n: 3, want: 1000 * ms},
		{at: 500 * ms, do: "adjust", n: -3}, // the one owed, and two of 0
		{at: 500 * ms, do: "avail", n: 2},
		{at: 500 * ms, do: "take", n: 2},
		{at: 500 * ms, do: "take", n: 2, want: 1000 * ms},
	})
	runScript(t, "undo of a cost above n with more owed behind it", fivePerSecond, []step{
		{at: 0, do: "take", n: 12},
		{at: 500 * ms, do: "adjust", n: 3},
		{at: 500 * ms, do: "avail", n: -10},
		{at: 500 * ms, do: "undo"},
		{at: 500 * ms, do: "avail", n: 2},
		{at: 500 * ms, do: "take", n: 3, want: 1000 * ms},
	})
	runScript(t, "adjust down drops the oldest, so that the limit holds", fivePerSecond, []step{
		{at: 0, do: "take", n: 2},
		{at: 500 * ms, do: "take", n: 3},
		{at: 600 * ms, do: "adjust", n: -2},
		{at: 600 * ms, do: "take", n: 2},
		{at: 600 * ms, do: "take", n: 1, want: 900 * ms},
		{at: 1550 * ms, do: "avail", n: 3}, // the 3 of 500 ms are over
		{at: 1550 * ms, do: "adjust", n: -1},
		{at: 1550 * ms, do: "avail", n: 4},
		{at: 1550 * ms, do: "take", n: 4},
		{at: 1550 * ms, do: "take", n: 1, want: 50 * ms},
		{at: 600 * ms, do: "adjust", n: -100},
		{at: 600 * ms, do: "avail", n: 5},
	})
	runScript(t, "adjust up leaves a debt that takes the places as they fall free", fivePerSecond, []step{
		{at: 0, do: "take", n: 2},
		{at: 500 * ms, do: "take", n: 2},
		{at: 600 * ms, do: "adjust", n: 3},               // one now, two from 1 s on
		{at: 600 * ms, do: "take", n: 1, want: 900 * ms}, // the first of 500 ms
		{at: 600 * ms, do: "take", n: 3, want: 1000 * ms},
		{at: 600 * ms, do: "avail", n: -2},
		{at: 1500 * ms, do: "take", n: 2},
		{at: 1500 * ms, do: "take", n: 1, want: 100 * ms},
		{at: 1500 * ms, do: "adjust", n: math.MaxInt / 2},
		{at: 1500 * ms, do: "adjust", n: math.MaxInt / 2},
	})
}

// fixedShape recomputes the windows from the grants alone and fails if one holds more than n, where
// a cost above n must start its window and fills the next ones.
func fixedShape(t *testing.T, used []admission, n int, per time.Duration) {
	t.Helper()
	var start time.Time
	units := 0
	for i, g := range used {
		for units > n && !g.at.Before(start.Add(per)) {
			start, units = start.Add(per), units-n
		}
		if units == 0 || !g.at.Before(start.Add(per)) {
			start, units = g.at, 0
		}
		if units > 0 && units+g.n > n {
			t.Fatalf("admission %d: %d units join %d of %d in the window from %v on", i, g.n, units, n, start)
		}
		units += g.n
	}
}

func TestFixedWindowHoldsItsWindows(t *testing.T) {
	for seed := range race.Pick(uint64(10), 30) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 8))
			n := 1 + r.IntN(20)
			largest := 1 + r.IntN(2*n)
			per := time.Duration(1 + r.IntN(1e9))
			w := fixed(n, per)
			d := drive{seed: seed, lim: set(w), mean: per / time.Duration(n) * time.Duration(1+r.IntN(largest)), maxCost: largest}
			used := d.run(1500)
			fixedShape(t, used, n, per)
			checkWindows(t, used, func(from, to time.Time) float64 {
				// k windows and the two cut ones, or the largest cost in place of the first
				return float64(n*int(to.Sub(from)/per) + n + max(n, largest))
			})
		})
	}
}

// With units given back the windows are not known from the grants, the rolling bound is.
func TestFixedWindowWithUnitsGivenBackHoldsTwiceNRolling(t *testing.T) {
	for seed := range race.Pick(uint64(10), 30) {
		synctest.Test(t, func(t *testing.T) {
			n, per := 8, time.Second
			w := fixed(n, per)
			d := drive{seed: seed, lim: set(w), mean: 60 * ms, maxCost: 4, undo: 0.2}
			d.external = func(_ *rand.Rand, g admission, _ time.Time) bool { w.Adjust(-g.n); return true } // at once, in its window
			used := d.run(1500)
			checkWindows(t, used, func(from, to time.Time) float64 { return float64(n * (2 + int(to.Sub(from)/per))) })
		})
	}
}

func TestSlidingWindowHoldsEveryWindow(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 10))
			n := 1 + r.IntN(30)
			largest := 1 + r.IntN(2*n)
			per := time.Duration(1 + r.IntN(1e9))
			w := sliding(n, per)
			d := drive{seed: seed, lim: set(w), mean: per / time.Duration(n) * time.Duration(1+r.IntN(largest)), maxCost: largest, undo: 0.15}
			d.late = time.Duration(r.IntN(2)) * 5 * ms
			d.external = func(_ *rand.Rand, g admission, _ time.Time) bool { w.Adjust(-g.n); return true }
			used := d.run(1500)
			spread := slidingUnits(used, n, per)
			for i := n; i < len(spread); i++ { // the unit n places before must be a window away
				if spread[i].Sub(spread[i-n]) < per {
					t.Fatalf("seed %d: more than %d units in the %v up to %v", seed, n, per, spread[i])
				}
			}
			if len(spread) < 500 {
				t.Fatalf("only %d units", len(spread))
			}
		})
	}
}

// slidingUnits lists the moments of single units; those of a cost above n count per apart, n at a time.
func slidingUnits(used []admission, n int, per time.Duration) (units []time.Time) {
	for _, g := range used {
		for i := range g.n {
			units = append(units, g.at.Add(time.Duration(i/n)*per))
		}
	}
	return units
}

func TestWindowsUnderBacklogUseTheirQuota(t *testing.T) {
	for name, mk := range map[string]func() Account{
		"fixed":   func() Account { return fixed(40, time.Second) },
		"sliding": func() Account { return sliding(40, time.Second) },
	} {
		for _, largest := range []int{1, 3, 10, 40} {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(largest), 4))
				got := backlog(alone(mk()), 1000*time.Second, func() int { return 1 + r.IntN(largest) })
				want := 0.995
				if largest > 1 {
					want = 1 - float64(largest)/40
				}
				if share := float64(got) / 40_000; share < want || share > 1 {
					t.Errorf("%s, costs up to %d: %.4f of the quota used, want %.4f to 1", name, largest, share, want)
				}
			})
		}
	}
}

// The log holds 8 bytes a unit in use, twice that at worst, and lets go what it no longer needs.
func TestSlidingWindowMemoryFollowsTheUnitsInUse(t *testing.T) {
	w := sliding(10_000, time.Second)
	now := time.Unix(1000, 0)
	steady := 0
	for i := range 100_000 {
		now = now.Add(150 * time.Microsecond) // 6,667 in use
		stateOf(w).Consume(now, 1)
		if i == 50_000 {
			steady = cap(w.s.log.buf)
		}
	}
	if got := cap(w.s.log.buf); got > 2*6667 || got != steady {
		t.Errorf("%d places for 6,667 stamps, %d before", got, steady)
	}
	stateOf(w).Consume(now.Add(time.Minute), 1)
	if got := cap(w.s.log.buf); got > 64 {
		t.Errorf("%d places for one stamp", got)
	}
	idle := sliding(1<<30, time.Hour)
	stateOf(idle).Consume(now, 3)
	if got := cap(idle.s.log.buf); got > 8 {
		t.Errorf("%d places for three stamps", got)
	}
}

// A window may be as long as a time.Duration; it is cut to 36 years, and nothing overflows.
func TestLongestWindow(t *testing.T) {
	for name, w := range map[string]Account{"fixed": fixed(2, math.MaxInt64), "sliding": sliding(2, math.MaxInt64)} {
		now := time.Unix(1000, 0)
		for range 2 {
			now = now.Add(time.Second)
			if m, err := stateOf(w).TakeBy(now, now, 1); m.After(now) || err != nil {
				t.Fatalf("%s: %v, %v, want taken at once", name, m.Sub(now), err)
			}
		}
		for _, ahead := range []int64{0, 1, 1 << 40} {
			if m := stateOf(w).After(now, ahead, 1); m.Sub(now) < Forever/5 {
				t.Errorf("%s: with %d ahead one starts after %v", name, ahead, m.Sub(now))
			}
		}
		if stateOf(w).GiveBack(now, now.Add(time.Hour), 1); stateOf(w).Available(now) != 1 {
			t.Errorf("%s: %v units after one of two came back", name, stateOf(w).Available(now))
		}
	}
}

func TestUnitsReturnedByALaggingClock(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, w := range map[string]Account{"fixed": fixed(2, time.Second), "sliding": sliding(2, time.Second)} {
		stateOf(w).Consume(start.Add(500*ms), 1)
		stateOf(w).Consume(start.Add(1000*ms), 1)
		stateOf(w).GiveBack(start.Add(1000*ms), start.Add(200*ms), 1)
		if m := stateOf(w).After(start.Add(1000*ms), 0, 2); !m.Equal(start.Add(1500 * ms)) {
			t.Errorf("%s: two start at %v, want 1.5s, when the one that is left has gone", name, m.Sub(start))
		}
	}
}

func TestUnitsReturnedLongAfterTheirWindowTakeNoOthersPlace(t *testing.T) {
	start, n, per := time.Unix(1000, 0), math.MaxInt>>17+1, 100*time.Microsecond
	for name, w := range map[string]Account{"fixed": fixed(n, per), "sliding": sliding(n, per)} {
		stateOf(w).Consume(start, 1)
		now := start.Add(100 * time.Second) // 2⁶⁶ units later
		stateOf(w).Consume(now, 1)
		stateOf(w).GiveBack(start, now, 1)
		if got := stateOf(w).Available(now); got != float64(n-1) {
			t.Errorf("%s: %v of %d units", name, got, n)
		}
	}
}

// A debt that is due in 1 ns is one still.
func TestSlidingWindowOwesUntilTheLastMoment(t *testing.T) {
	start := time.Unix(1000, 0)
	now := start.Add(time.Second - 1)
	w := sliding(1, time.Second)
	stateOf(w).Consume(start, 1)
	stateOf(w).Consume(start, 1)
	if got := stateOf(w).Available(now); got != -1 {
		t.Errorf("%v units, want -1", got)
	}
	stateOf(w).GiveBack(start, now, 1)
	if m := stateOf(w).After(now, 0, 1); !m.Equal(now.Add(time.Second)) {
		t.Errorf("the next one starts in %v, want 1s after the one that was owed", m.Sub(now))
	}
}
