package limit

import (
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// What after predicts is what happens when the units ahead are really taken one by one.
func TestAfterAgreesWithReallyTakingTheUnitsAhead(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := 1 + r.IntN(12)
		asked, taken := everyKind(n), everyKind(n)
		for name, a := range asked {
			b := taken[name]
			now := time.Unix(1000, 0)
			for range r.IntN(30) { // the same past for both
				now = now.Add(time.Duration(r.Int64N(int64(time.Second))))
				cost := 1 + r.IntN(2*n)
				debt := r.IntN(8) == 0
				for _, l := range []Account{a, b} {
					if m, _ := readyAt(l, now, cost); debt || !m.After(now) {
						stateOf(l).Consume(now, cost)
					}
				}
			}
			from := now.Add(time.Duration(r.Int64N(int64(time.Second))))
			ahead, cost := r.IntN(5*n), r.IntN(3*n)
			got := stateOf(a).After(from, int64(ahead), cost)
			want := from
			for range ahead {
				want, _ = readyAt(b, want, 1)
				stateOf(b).Consume(want, 1)
			}
			want, _ = readyAt(b, want, cost)
			slack := time.Duration(0)
			if _, ok := a.(*Bucket); ok {
				slack = time.Duration(ahead + 1) // rounded up unit by unit
			}
			if diff := want.Sub(got); diff < -slack || diff > slack {
				t.Fatalf("seed %d, %s, n %d: %d ahead, cost %d: predicted %v, came %v", seed, name, n, ahead, cost, got.Sub(from), want.Sub(from))
			}
		}
	}
}

// At the moment that after names a take succeeds, at any later one too, and 1 ns before it does not.
func TestReadyIsTheFirstMomentAndMonotone(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		n := 1 + r.IntN(900)
		for name, l := range everyKind(n) {
			now := time.Unix(1000, 0)
			for range 40 {
				cost := 1 + r.IntN(1+n/2)
				m, err := readyAt(l, now, cost)
				if err != nil {
					t.Fatal(err)
				}
				if m.After(now) {
					before := m.Add(-2) // AllowN's grain is 1 ns
					if got, _ := stateOf(l).TakeBy(Latest(now, before), Latest(now, before), cost); m.After(now.Add(2)) && !got.After(before) {
						t.Fatalf("seed %d %s: cost %d ready at %v, yet taken 2 ns before", seed, name, cost, m)
					}
				}
				y := m.Add(time.Duration(r.IntN(2) * r.IntN(1e6)))
				if again, _ := readyAt(l, y, cost); !again.Equal(y) {
					t.Fatalf("seed %d %s: ready at %v but at %v not before %v", seed, name, m, y, again)
				}
				if got, _ := stateOf(l).TakeBy(y, y, cost); got.After(y) {
					t.Fatalf("seed %d %s: ready at %v, refused at %v until %v", seed, name, m, y, got)
				}
				now = y
			}
		}
	}
}

// A clock that lags behind the limiter's counts no interval twice, and its owner need not wait for it.
func TestClockNeverRunsBackwards(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, l := range everyKind(1) {
		first := start.Add(10 * time.Second)
		if m, _ := stateOf(l).TakeBy(first, first, 1); m.After(first) {
			t.Fatalf("%s: the first take is refused", name)
		}
		for _, back := range []time.Duration{0, 3 * time.Second, 9 * time.Second} {
			at := start.Add(back)
			if m, _ := stateOf(l).TakeBy(at, at, 1); !m.Equal(start.Add(11 * time.Second)) {
				t.Errorf("%s: a take at %v is to wait until %v, want 11s", name, back, m.Sub(start))
			}
		}
		stateOf(l).Consume(start.Add(11*time.Second), 1)
		stateOf(l).GiveBack(start.Add(11*time.Second), start.Add(10*time.Second), 1)
		behind := start.Add(11*time.Second - 1)
		if m, _ := stateOf(l).TakeBy(behind, behind, 1); m.After(behind) {
			t.Errorf("%s: refused until %v though free, because the caller's clock was 1 ns behind", name, m)
		}
	}
	for name, l := range everyKind(1) { // a take that was late counts from the account's own clock on
		stateOf(l).Consume(start.Add(2*time.Second), 0)
		if m, err := stateOf(l).TakeBy(start, start.Add(3*time.Second), 1); !m.Equal(start.Add(2*time.Second)) || err != nil {
			t.Errorf("%s: taken as of %v, %v, want 2s", name, m.Sub(start), err)
		}
	}
	for name, l := range everyKind(1) {
		clock := start.Add(2 * time.Second)
		stateOf(l).Consume(clock, 0)
		if m := stateOf(l).After(start, 0, 1); !m.Equal(clock) || stateOf(l).Available(start) != stateOf(l).Available(clock) || !stateOf(l).Fresh(start) {
			t.Errorf("%s: ready at %v with %v units of %v, fresh %v, though it was at 2s", name, m.Sub(start), stateOf(l).Available(start), stateOf(l).Available(clock), stateOf(l).Fresh(start))
		}
		stateOf(l).Consume(start, 1) // counts from the account's own clock on
		if m := stateOf(l).After(start.Add(2500*ms), 0, 1); !m.Equal(start.Add(3 * time.Second)) {
			t.Errorf("%s: the second one goes at %v, want 3s", name, m.Sub(start))
		}
		if stateOf(l).Available(start) != 0 || stateOf(l).Fresh(start) {
			t.Errorf("%s: %v units available, fresh %v, though one of 1 was taken at 2s", name, stateOf(l).Available(start), stateOf(l).Fresh(start))
		}
		if stateOf(l).Consume(start.Add(3*time.Second), 0); !stateOf(l).Fresh(start) {
			t.Errorf("%s: not fresh though it was at 3s", name)
		}
	}
}

// A zero account answers whatever it is asked: a call of units never starts, a call of none at once.
func TestZeroAccounts(t *testing.T) {
	for _, o := range []Account{new(Bucket), new(FixedWindow), new(SlidingWindow)} {
		now := time.Now()
		for _, adjust := range []int{0, 3, -5, math.MaxInt, math.MinInt, math.MaxInt} {
			o.(adjuster).Adjust(adjust)
			for _, ahead := range []int64{0, 1, math.MaxInt64} {
				if d := stateOf(o).After(now, ahead, 0).Sub(now); d > time.Second {
					t.Errorf("%T: no units behind %d start after %v", o, ahead, d)
				}
				for _, n := range []int{1, math.MaxInt} {
					if d := stateOf(o).After(now, ahead, n).Sub(now); d < Forever {
						t.Errorf("%T: %d units behind %d start after %v", o, n, ahead, d)
					}
				}
			}
			if at, err := stateOf(o).TakeBy(now, now, 0); at.After(now) || err != nil {
				t.Errorf("%T: no units: %v, %v", o, at.Sub(now), err)
			}
			if _, err := stateOf(o).TakeBy(now, now, 1); err == nil {
				t.Errorf("%T let a unit go", o)
			}
			if stateOf(o).Rate() != 0 || stateOf(o).Available(now) > 0 {
				t.Errorf("%T: rate %v, available %v", o, stateOf(o).Rate(), stateOf(o).Available(now))
			}
			stateOf(o).Consume(now, 0)
			stateOf(o).Fresh(now)
		}
	}
}

func TestCostsThatAreErrors(t *testing.T) {
	for name, c := range map[string]struct {
		take takeFunc
		n    int
		want []string
	}{
		"negative, bucket":     {alone(bucket(1, 1)), -3, []string{"throttle:", "-3", "negative"}},
		"negative, leaky":      {alone(leaky(1)), -3, []string{"-3", "negative"}},
		"negative, fixed":      {alone(fixed(1, time.Second)), -3, []string{"-3", "negative"}},
		"negative, sliding":    {alone(sliding(1, time.Second)), -3, []string{"-3", "negative"}},
		"negative, set":        {together(set(bucket(1, 1), leaky(1))), -3, []string{"-3", "negative"}},
		"negative, empty set":  {together(set()), -3, []string{"-3", "negative"}},
		"limit 0 in a set":     {together(set(leaky(1), bucket(0, 5))), 1, []string{"limit is 0"}},
		"negative, Inf":        {alone(bucket(rate.Inf, 0)), -3, []string{"-3", "negative"}},
		"limit 0":              {alone(bucket(0, 5)), 1, []string{"throttle:", "cost 1", "limit is 0"}},
		"limit 0, leaky":       {alone(leaky(0)), 1, []string{"limit is 0"}},
		"zero bucket":          {alone(new(Bucket)), 1, []string{"limit is 0"}},
		"zero window":          {alone(new(FixedWindow)), 1, []string{"constructor"}},
		"zero sliding window":  {alone(new(SlidingWindow)), 1, []string{"constructor"}},
		"surplus over an hour": {alone(bucket(1, 10)), 3611, []string{"cost 3611", "burst 10", "1h"}},
		"leaky over an hour":   {alone(leaky(1)), 3602, []string{"cost 3602", "1h"}},
		"fixed over an hour":   {alone(fixed(10, time.Minute)), 611, []string{"cost 611", "10 per 1m"}},
		"sliding over an hour": {alone(sliding(10, time.Minute)), 611, []string{"cost 611", "10 per 1m"}},
		"enormous":             {alone(sliding(1, time.Hour)), math.MaxInt, []string{"cost"}},
	} {
		wait, err := c.take(c.n)
		if err == nil || wait != 0 {
			t.Errorf("%s: Take(%d) = %v, %v, want an error", name, c.n, wait, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", name, err, want)
			}
		}
	}
	for _, o := range []Account{new(Bucket), new(FixedWindow), new(SlidingWindow)} {
		if got := stateOf(o).Available(time.Now()); got != 0 {
			t.Errorf("%v units available in a zero %T", got, o)
		}
	}
	for _, o := range []Account{new(FixedWindow), new(SlidingWindow)} {
		o.(adjuster).Adjust(5)
		o.(adjuster).Adjust(-5)
		if got := stateOf(o).Available(time.Now()); got != 0 {
			t.Errorf("%v units available in a zero %T that was adjusted", got, o)
		}
	}
	for name, c := range map[string]struct {
		take takeFunc
		n    int
	}{
		"surplus of an hour": {alone(bucket(1, 10)), 3610},
		"leaky":              {alone(leaky(1)), 3601},
		"fixed":              {alone(fixed(10, time.Minute)), 610},
		"sliding":            {alone(sliding(10, time.Minute)), 610},
		"long window":        {alone(sliding(10, 100*time.Hour)), 10},
		"0 from a set":       {together(set(bucket(1, 1), leaky(1))), 0},
		"0, zero window":     {alone(new(FixedWindow)), 0},
		"0, zero sliding":    {alone(new(SlidingWindow)), 0},
		"0 at limit 0":       {alone(bucket(0, 5)), 0},
		"Inf":                {alone(bucket(rate.Inf, 0)), math.MaxInt},
		"real infinity":      {alone(bucket(rate.Limit(math.Inf(1)), 1)), math.MaxInt},
	} {
		if wait, err := c.take(c.n); err != nil || wait != 0 {
			t.Errorf("%s: Take(%d) = %v, %v, want it to go", name, c.n, wait, err)
		}
	}
}

// Many callers at once, under -race: never more than the limit, nothing lost.
func TestManyCallersAtOnceGetTheLimitAndNoMore(t *testing.T) {
	for name := range everyKind(50) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := everyKind(50)[name]
				var mu sync.Mutex
				var used []admission
				var wg sync.WaitGroup
				start := time.Now()
				for range 20 {
					wg.Go(func() {
						for range 25 {
							for wait := time.Duration(-1); wait != 0; {
								if wait, _ = TakeNow(l, 1); wait > 0 {
									time.Sleep(wait)
								}
							}
							mu.Lock()
							used = append(used, admission{time.Now(), 1})
							mu.Unlock()
							s := set(l)
							s.After(time.Now(), 3, 1)
							s.Ready(time.Now(), 1)
						}
					})
				}
				wg.Wait()
				if took := time.Since(start); took > 10*time.Second || took < 8900*time.Millisecond {
					t.Errorf("500 units at 50/s took %v", took)
				}
			})
		})
	}
	b := bucket(1e-9, 1000) // nothing comes in the time of this test
	alone := set(b)
	var wg sync.WaitGroup
	var mu sync.Mutex
	granted := 0
	for range 8 {
		wg.Go(func() {
			mine := 0
			for range 1000 {
				now := time.Now()
				if m, err := alone.TakeBy(now, now, 1); !m.After(now) && err == nil {
					mine++
				}
				b.Tokens()
			}
			mu.Lock()
			granted += mine
			mu.Unlock()
		})
	}
	wg.Wait()
	if granted != 1000 {
		t.Errorf("8 callers got %d of 1000 units", granted)
	}
}

func TestNotifyCallsEveryWatcherOutsideTheLockUntilItStops(t *testing.T) {
	for name, l := range everyKind(10) {
		var calls [4]int
		var stops [4]func()
		for i := range calls {
			stops[i] = l.Notify(func() {
				TakeNow(l, 0) // deadlocks if the lock is held
				calls[i]++
			})
		}
		l.(adjuster).Adjust(1)
		stops[1]()
		stops[1]()
		l.(adjuster).Adjust(-1)
		stops[3]()
		stops[0]()
		stops[1]()
		l.(adjuster).Adjust(1)
		stops[2]()
		l.(adjuster).Adjust(-1)
		if calls != [4]int{2, 1, 3, 2} {
			t.Errorf("%s: called %v times, want [2 1 3 2]", name, calls)
		}
		if guardOf(l).watchers != nil {
			t.Errorf("%s: a watcher is left", name)
		}
	}
}

func TestFreshUntilUsedOrSet(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, l := range everyKind(3) {
		if !stateOf(l).Fresh(now) {
			t.Errorf("%s: not fresh when new", name)
		}
		stateOf(l).Consume(now, 1)
		if stateOf(l).Fresh(now) || stateOf(l).Fresh(now.Add(100*time.Millisecond)) {
			t.Errorf("%s: fresh though used", name)
		}
		if !stateOf(l).Fresh(now.Add(time.Second)) {
			t.Errorf("%s: not fresh a second after one unit", name)
		}
		stateOf(l).Consume(now.Add(time.Second), 9)
		if stateOf(l).Fresh(now.Add(3 * time.Second)) {
			t.Errorf("%s: fresh under a debt", name)
		}
		if !stateOf(l).Fresh(now.Add(5 * time.Second)) {
			t.Errorf("%s: not fresh after the debt", name)
		}
	}
	b := bucket(1, 1)
	b.SetLimit(1)
	c := bucket(1, 1)
	c.SetBurst(2)
	if far := time.Now().Add(time.Hour); stateOf(b).Fresh(far) || stateOf(c).Fresh(far) {
		t.Error("fresh though a setter was called")
	}
}

func TestEndlessDebtsDoNotOverflow(t *testing.T) {
	for name, o := range everyKind(3) {
		for range 3 {
			o.(adjuster).Adjust(math.MaxInt)
			now := time.Now()
			if units := stateOf(o).Available(now); units > -1e9 {
				t.Errorf("%s: %v units available", name, units)
			}
			for _, ahead := range []int64{0, 5, math.MaxInt64} {
				if wait := stateOf(o).After(now, ahead, 1).Sub(now); wait < 10*365*24*time.Hour {
					t.Errorf("%s: with %d ahead one starts in %v", name, ahead, wait)
				}
			}
		}
	}
}
