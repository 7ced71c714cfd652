package limit

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/race"
	"golang.org/x/time/rate"
)

// holding is a Var that holds these accounts.
func holding(as ...Account) *Var {
	v := new(Var)
	v.Set(set(as...))
	return v
}

// take takes n units of v as of now, which must be there, and notes them in used.
func take(t *testing.T, v *Var, n int) {
	t.Helper()
	if wait, err := v.Take(n); wait != 0 || err != nil {
		t.Fatalf("%d units of %v: wait %v, %v", n, v, wait, err)
	}
}

// The examples of carry.go: how many units are left, and when one more is there.
func TestCarryExamples(t *testing.T) {
	for name, c := range map[string]struct {
		old, new Account
		use      func(t *testing.T, v *Var)
		left     float64
		next     time.Duration // until left + 1 units are there at once
	}{
		"to 80 per minute":        {sliding(100, time.Minute), sliding(80, time.Minute), fiftyUnits, 30, 10 * time.Second},
		"to 5 per 10 s":           {sliding(100, time.Minute), sliding(5, 10*time.Second), fiftyUnits, 0, 10 * time.Second},
		"a sliding window's debt": {sliding(10, time.Minute), sliding(20, time.Second), func(t *testing.T, v *Var) { v.Adjust(35) }, -15, time.Second},
		"to a fixed window":       {sliding(100, time.Minute), fixed(80, time.Minute), fiftyUnits, 0, time.Minute},
		"to a bucket":             {sliding(100, time.Minute), bucket(1, 40), fiftyUnits, 0, time.Second},
		"an open window goes on":  {fixed(100, time.Minute), fixed(80, time.Minute), fiftyUnits, 30, 10 * time.Second},
		"to one that is over":     {fixed(100, time.Minute), fixed(80, 10*time.Second), fiftyUnits, 80, 10 * time.Second},
		"to one that is full":     {fixed(100, time.Minute), fixed(20, time.Minute), fiftyUnits, -30, 70 * time.Second},
		"fixed to sliding":        {fixed(100, time.Minute), sliding(80, time.Minute), fiftyUnits, 0, time.Minute},
		"a bucket to one":         {bucket(1, 100), bucket(10, 90), fiftyUnits, 80, 100 * time.Millisecond},
		"a bucket to a smaller":   {bucket(1, 100), bucket(10, 40), fiftyUnits, 40, 100 * time.Millisecond},
		"a bucket to a larger":    {bucket(1, 100), bucket(10, 400), fiftyUnits, 80, 100 * time.Millisecond},
		"a bucket to a window":    {bucket(1, 100), sliding(40, time.Minute), fiftyUnits, 0, time.Minute},
		"a bucket's debt":         {bucket(1, 10), bucket(100, 10), func(t *testing.T, v *Var) { v.Adjust(60) }, -50, 510 * time.Millisecond},
		"without a limit nothing": {bucket(rate.Inf, 0), bucket(1, 7), fiftyUnits, 7, time.Second},
		"to no limit":             {bucket(1, 100), bucket(rate.Inf, 0), fiftyUnits, float64(rate.Inf), 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			v := holding(c.old)
			c.use(t, v)
			v.Set(set(c.new))
			now := time.Now()
			if got := v.alone().Available(now); got != c.left {
				t.Errorf("%s: %v units are left, want %v", name, got, c.left)
			}
			if c.left == float64(rate.Inf) {
				return
			}
			if c.left > 0 {
				take(t, v, int(c.left))
			}
			if m, err := v.alone().Ready(now, 1); m.Sub(now) != c.next || err != nil {
				t.Errorf("%s: the next unit is there in %v, %v, want %v", name, m.Sub(now), err, c.next)
			}
		})
	}
}

// fiftyUnits uses 30 units now and 20 more 50 s later.
func fiftyUnits(t *testing.T, v *Var) {
	take(t, v, 30)
	time.Sleep(50 * time.Second)
	take(t, v, 20)
}

// lawful are the kinds of a random size, and what each may admit in an interval.
func lawful(rng *rand.Rand) (a Account, bound func(length time.Duration) float64) {
	n, per, r := 1+rng.IntN(20), time.Duration(1+rng.IntN(3000))*time.Millisecond, rate.Limit(1+rng.Float64()*50)
	switch rng.IntN(4) {
	case 0:
		return bucket(r, n), func(l time.Duration) float64 { return float64(n) + float64(r)*l.Seconds() }
	case 1:
		return leaky(r), func(l time.Duration) float64 { return 1 + float64(r)*l.Seconds() }
	case 2:
		return fixed(n, per), func(l time.Duration) float64 { return float64(n) * (2 + float64(l/per)) }
	}
	return sliding(n, per), func(l time.Duration) float64 { return float64(n) * (1 + float64(l/per)) }
}

// Limiters of all kinds are replaced at random while somebody takes what there is. No interval with a replacement in it
// sees more than both say, each for its own part.
func TestReplacedLimitersHoldBothLaws(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 9))
			v := new(Var)
			type phase struct {
				from, to time.Time
				bound    func(time.Duration) float64
				used     []time.Time
				what     string
			}
			var phases []phase
			for range 6 {
				a, bound := lawful(rng)
				v.Set(set(a))
				p := phase{from: time.Now(), bound: bound, what: fmt.Sprint(a)}
				end := p.from.Add(time.Duration(rng.IntN(4000)) * time.Millisecond)
				for now := time.Now(); now.Before(end); now = time.Now() {
					wait, err := v.Take(1)
					switch {
					case err != nil:
						t.Fatal(err)
					case wait == 0:
						p.used = append(p.used, now)
					default:
						time.Sleep(min(wait, end.Sub(now)))
					}
					if rng.IntN(4) == 0 {
						time.Sleep(min(end.Sub(now), time.Duration(rng.IntN(300))*time.Millisecond))
					}
				}
				p.to = time.Now()
				phases = append(phases, p)
			}
			for i := range phases[1:] {
				old, new := phases[i], phases[i+1]
				for j, from := range old.used {
					for k, to := range new.used {
						got := len(old.used) - j + k + 1
						if most := old.bound(old.to.Sub(from)) + new.bound(to.Sub(new.from)); float64(got) > most+1e-6 {
							t.Fatalf("seed %d: %d units from %v in %v, with %s before %s, want at most %v", seed, got, to.Sub(from), to.Sub(from), old.what, new.what, most)
						}
					}
				}
			}
		})
	}
}

// A sliding window that takes the place of another admits nothing that its own law forbids, whatever was used under the
// old one and is remembered there. So does a bucket in the place of a bucket.
func TestReplacementsKeepTheNewLaw(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 10))
			size := func() (int, time.Duration) {
				return 1 + rng.IntN(20), time.Duration(1+rng.IntN(30)) * 100 * time.Millisecond
			}
			n1, per1 := size()
			n2, per2 := size()
			v := holding(sliding(n1, per1))
			var used []time.Time
			takeAll := func(until time.Time) {
				for now := time.Now(); now.Before(until); now = time.Now() {
					wait, _ := v.Take(1)
					if wait == 0 {
						used = append(used, now)
						wait = time.Duration(rng.IntN(2)*rng.IntN(300)) * time.Millisecond
					}
					time.Sleep(min(wait, until.Sub(now)))
				}
			}
			takeAll(time.Now().Add(time.Duration(rng.IntN(5000)) * time.Millisecond))
			at := time.Now()
			v.Set(set(sliding(n2, per2)))
			before := len(used)
			takeAll(at.Add(5 * time.Second))
			for i := before; i < len(used); i++ {
				n, allowed := 0, 0
				for j := i; j >= 0 && used[i].Sub(used[j]) < per2; j-- {
					if j >= before || at.Sub(used[j]) < per1 {
						n++
					}
					if j < before {
						allowed++
					}
				}
				if n > n2 && n > allowed {
					t.Fatalf("seed %d: %d per %v in the place of %d per %v: %d units in the window that ends with %v", seed, n2, per2, n1, per1, n, used[i].Sub(at))
				}
			}
			// nobody waits for longer than behind a window that is used up
			if before < len(used) && used[before].Sub(at) > per2 {
				t.Errorf("seed %d: the first unit came after %v", seed, used[before].Sub(at))
			}
		})
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 11))
			r1, r2, b1, b2 := 1+rng.Float64()*20, 1+rng.Float64()*20, 1+rng.IntN(20), 1+rng.IntN(20)
			v := holding(bucket(rate.Limit(r1), b1))
			used := rng.IntN(b1 + 1)
			if used > 0 {
				take(t, v, used)
			}
			wait := time.Duration(rng.IntN(1000)) * time.Millisecond
			time.Sleep(wait)
			v.Set(set(bucket(rate.Limit(r2), b2)))
			left := min(float64(b1), float64(b1-used)+wait.Seconds()*r1)
			if got, want := v.alone().Available(time.Now()), min(left, float64(b2)); got < want-1e-6 || got > want+1e-6 {
				t.Errorf("seed %d: %d of %v/s burst %d used %v ago: %v/s burst %d has %v, want %v", seed, used, r1, b1, wait, r2, b2, got, want)
			}
		})
	}
}

// To set the same limit again and again changes nothing: units start when they would without, one with another, and
// debts too.
func TestReplacedByTheSame(t *testing.T) {
	for name, one := range map[string]func() []Account{
		"bucket":        func() []Account { return []Account{bucket(10, 5)} },
		"leaky":         func() []Account { return []Account{leaky(10)} },
		"fixed window":  func() []Account { return []Account{fixed(7, time.Second)} },
		"sliding":       func() []Account { return []Account{sliding(7, time.Second)} },
		"two":           func() []Account { return []Account{sliding(60, 10*time.Second), leaky(10)} },
		"no limit":      func() []Account { return nil },
		"two of a kind": func() []Account { return []Account{bucket(10, 3), bucket(5, 60), sliding(500, time.Minute)} },
	} {
		for seed := range race.Pick(uint64(6), 20) {
			starts := func(again bool) (at []time.Duration) {
				synctest.Test(t, func(t *testing.T) {
					rng, sets := rand.New(rand.NewPCG(seed, 12)), rand.New(rand.NewPCG(seed, 13))
					v := holding(one()...)
					begin := time.Now()
					var wg sync.WaitGroup
					if again {
						wg.Go(func() {
							for time.Since(begin) < time.Minute {
								time.Sleep(time.Duration(sets.IntN(400)) * time.Millisecond)
								v.Set(set(one()...))
							}
						})
					}
					for range 200 {
						for n := 1 + rng.IntN(2)*rng.IntN(10); ; {
							wait, err := v.Take(n)
							if err != nil {
								t.Fatal(err)
							}
							if wait == 0 {
								break
							}
							time.Sleep(wait)
						}
						at = append(at, time.Since(begin).Round(time.Microsecond))
						time.Sleep(time.Duration(rng.IntN(2)*rng.IntN(500)) * time.Millisecond)
					}
					wg.Wait()
				})
				return at
			}
			want, got := starts(false), starts(true)
			for i := range want {
				if d := got[i] - want[i]; d < -time.Millisecond || d > time.Millisecond {
					t.Fatalf("%s, seed %d: unit %d starts at %v, and at %v if the same limit is set again and again", name, seed, i, want[i], got[i])
				}
			}
		}
	}
}

// A limiter that comes back has what it had counted, and what others have meanwhile; a part of both stays as it is.
func TestLimiterThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		day, night, hourly := sliding(10, time.Minute), sliding(10, 2*time.Minute), sliding(100, time.Hour)
		v := holding(day, hourly)
		take(t, v, 6)
		for range 3 { // nothing is counted twice
			v.Set(set(night, hourly))
			v.Set(set(day, hourly))
		}
		check := func(what string, a Account, want float64) {
			t.Helper()
			if got := stateOf(a).Available(time.Now()); got != want {
				t.Errorf("%s: %v left, want %v", what, got, want)
			}
		}
		check("day", day, 4)
		check("hourly", hourly, 94)
		v.Set(set(night, hourly))
		check("night", night, 4)
		take(t, v, 3)
		v.Set(set(day, hourly))
		check("day", day, 1)
		check("hourly", hourly, 91)
	})
	synctest.Test(t, func(t *testing.T) { // others have used the new one of late: their units count as long as they would
		v, busy := holding(sliding(10, time.Minute)), sliding(10, time.Minute)
		take(t, v, 5)
		time.Sleep(30 * time.Second)
		TakeNow(busy, 3)
		v.Set(set(busy))
		for _, want := range []float64{5, 7, 10} { // 5 at once, 2 when those of 0 s are a minute old, 3 when those of 30 s are
			if got := stateOf(busy).Available(time.Now()); got != want {
				t.Errorf("%v left, want %v", got, want)
			}
			time.Sleep(30 * time.Second)
		}
	})
}

// Many take, watch and replace at once, over sets that share accounts: nothing blocks, no watcher is left behind, and
// each unit that was taken is counted in the end.
func TestVarInUseByMany(t *testing.T) {
	const n = 100_000
	shared, other := sliding(n, time.Hour), bucket(1e6, 1e6)
	var v, w Var
	v.Set(set(sliding(n, time.Hour)))
	sets := []*Set{set(&v), set(&v, &w), set(other, &v, shared)}
	var wg sync.WaitGroup
	var taken, ofShared atomic.Int64
	for i := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 14))
			for range 2000 {
				k := rng.IntN(len(sets))
				switch now := time.Now(); rng.IntN(12) {
				case 0:
					v.Set(set(sliding(n, time.Hour)))
				case 1:
					w.Set(set(other))
				case 2:
					w.Set(set())
				case 3:
					stop := sets[k].Watch(func() {})
					v.Adjust(0)
					stop()
				case 4:
					sets[k].Pace(now)
				default:
					if m, err := sets[k].TakeBy(now, now, 1); err == nil && !m.After(now) {
						taken.Add(1)
						ofShared.Add(int64(k / 2))
					}
				}
			}
		})
	}
	wg.Wait()
	for _, a := range []Account{shared, other, &v, &w} {
		if n := len(guardOf(a).watchers); n != 0 {
			t.Errorf("%d watchers are left", n)
		}
	}
	now := time.Now()
	if got, of := n-int64(v.alone().Available(now)), n-int64(stateOf(shared).Available(now)); got != taken.Load() || of != ofShared.Load() {
		t.Errorf("%d of %d units are counted, and %d of %d of the shared limiter", got, taken.Load(), of, ofShared.Load())
	}
}

// Watchers of a Var hear of what it holds now, and of nothing else.
func TestVarWatchers(t *testing.T) {
	var v Var
	var calls atomic.Int32
	heard := func(what string, want int32) {
		t.Helper()
		if n := calls.Swap(0); n != want {
			t.Errorf("%s: %d calls, want %d", what, n, want)
		}
	}
	a, b := bucket(1, 1), bucket(2, 2)
	stop := set(&v, leaky(1)).Watch(func() { calls.Add(1) })
	v.Set(set(a))
	heard("the first", 1)
	a.SetLimit(5)
	heard("its change", 1)
	v.Set(set(b))
	heard("another", 1)
	a.SetLimit(6)
	heard("a change of the old one", 0)
	b.SetLimit(6)
	heard("a change of the new one", 1)
	v.Adjust(1)
	heard("an adjustment of both guards", 1)
	stop()
	stop()
	b.SetLimit(7)
	v.Set(set(a))
	heard("after stop", 0)
	if a.g.watchers != nil || b.g.watchers != nil || v.g.watchers != nil {
		t.Error("watchers are left")
	}
}
