package limit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// spentKinds are accounts with small limits, so that a random life meets every state.
func spentKinds() map[string]func() Account {
	return map[string]func() Account{
		"bucket":  func() Account { return bucket(2, 7) },
		"leaky":   func() Account { return leaky(0.7) },
		"fixed":   func() Account { return fixed(5, 3*time.Second) },
		"sliding": func() Account { return sliding(5, 3*time.Second) },
	}
}

// A new limiter that is given what a dropped one had spent never lets a call start earlier
// than the old one would, debts included, and is as new at the same moment.
func TestSpentMakesANewLimiterNoEarlier(t *testing.T) {
	for name, make := range spentKinds() {
		for seed := range uint64(200) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 4))
				old := make()
				for range 1 + rng.IntN(12) {
					if n := 1 + rng.IntN(9); rng.IntN(3) > 0 {
						TakeNow(old, n)
					} else if old.Adjust(n); rng.IntN(2) == 0 {
						old.Adjust(-1)
					}
					time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second)))
				}
				spent := set(old).Spent(time.Now())
				time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second)))
				now := time.Now()
				fresh := make()
				set(fresh).Spend(now, func(i int) Spent { return spent[i] })
				if err := noEarlier(fresh, old, now, rng, name == "sliding"); err != nil {
					t.Errorf("%s, seed %d: %v", name, seed, err)
				}
				if until := spent[0].Until; until.After(now) && (stateOf(fresh).fresh(until.Add(-2)) || !stateOf(fresh).fresh(until.Add(2))) {
					t.Errorf("%s, seed %d: not as new just at %v", name, seed, until.Sub(now))
				}
			})
		}
	}
}

// noEarlier compares when calls would start. Both may be a nanosecond off.
func noEarlier(fresh, old Account, now time.Time, rng *rand.Rand, later bool) error {
	if a, b := stateOf(fresh).available(now), stateOf(old).available(now); a > b+1e-6 || !later && a < b-1e-6 {
		return fmt.Errorf("%v units there, the old one has %v", a, b)
	}
	for range 20 {
		from, ahead, n := now.Add(time.Duration(rng.Int64N(int64(6*time.Second)))), rng.Int64N(12), 1+rng.IntN(9)
		d := stateOf(fresh).after(from, ahead, n).Sub(stateOf(old).after(from, ahead, n))
		if d < -2 || d > 2 && !later {
			return fmt.Errorf("a call of %d units behind %d would start %v later than it was to", n, ahead, d)
		}
	}
	return nil
}

// A limiter that has its own memory of what it gave is not charged again.
func TestSpendLeavesTheVerySameLimiterAlone(t *testing.T) {
	for name, make := range spentKinds() {
		synctest.Test(t, func(t *testing.T) {
			o := make()
			for range 6 {
				TakeNow(o, 1)
				time.Sleep(400 * ms)
			}
			spent := set(o).Spent(time.Now())
			TakeNow(o, 1)
			time.Sleep(300 * ms)
			before := stateOf(o).available(time.Now())
			set(o).Spend(time.Now(), func(i int) Spent { return spent[i] })
			if after := stateOf(o).available(time.Now()); math.Abs(after-before) > 1e-6 {
				t.Errorf("%s: %v units there, %v before", name, after, before)
			}
		})
	}
}

// Several limiters are numbered by their rates; those of one rate share the larger debt. Those
// without a limit, with none left, and the zero ones have nothing to earn back.
func TestSpentOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parts := func() *Set {
			return set(bucket(10, 5), sliding(100, 100*time.Second), fixed(60, time.Minute), bucket(0.01, 50), bucket(rate.Inf, 0),
				new(FixedWindow), new(SlidingWindow), new(Bucket))
		}
		old := parts()
		now := time.Now()
		for _, o := range old.accounts {
			if stateOf(o).check(2) == nil {
				stateOf(o).consume(now, 2)
			}
		}
		spent := old.Spent(now)
		want := []Spent{{}, {2, now.Add(200 * time.Second)}, {2, now.Add(100 * time.Second)}, {2, now.Add(200 * ms)}, {}}
		if fmt.Sprint(spent) != fmt.Sprint(want) {
			t.Fatalf("spent %v, want %v", spent, want)
		}
		fresh := parts()
		fresh.Spend(now, func(i int) Spent { return spent[i] })
		for i, s := range fresh.Spent(now) {
			if fmt.Sprint(s) != fmt.Sprint(want[i]) {
				t.Errorf("number %d: %v, want %v", i, s, want[i])
			}
		}
		for _, o := range fresh.accounts { // of a limiter that was another kind before
			stateOf(o).spend(now, Spent{3, now.Add(time.Hour)})
			if stateOf(o).check(1) == nil && stateOf(o).rate() != rate.Inf && stateOf(o).fresh(now) {
				t.Errorf("%T of %v/s has nothing to earn back", o, stateOf(o).rate())
			}
		}
	})
}

// A limiter that other keys use too, or that was used before, is not charged for what is remembered of
// somebody else.
func TestSpendLeavesALimiterInUseAlone(t *testing.T) {
	for name, make := range spentKinds() {
		synctest.Test(t, func(t *testing.T) {
			o := make()
			TakeNow(o, 1)
			time.Sleep(time.Hour)
			set(o).Spend(time.Now(), func(int) Spent { return Spent{4, time.Now().Add(time.Hour)} })
			if !set(o).Fresh(time.Now()) {
				t.Errorf("%s: a limiter in use pays what another one has spent", name)
			}
		})
	}
}
