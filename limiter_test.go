package throttle

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/account"
	"github.com/go-throttle/throttle/internal/moment"
)

// A step is one line of a time script: at that time since the script's start, do it.
type step struct {
	at   time.Duration
	do   string // take, adjust, avail (n is what must be available), undo (the last granted take), limit, burst
	n    int
	want time.Duration // of take: the wait told
	err  string        // of take: part of the error
}

// runScript drives a limiter through time in a bubble.
func runScript(t *testing.T, name string, lim func() Limiter, steps []step) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, start := lim(), time.Now()
			var taken time.Time
			var units int
			for i, s := range steps {
				time.Sleep(s.at - time.Since(start))
				switch s.do {
				case "take":
					wait, err := l.Take(context.Background(), s.n)
					if (err == nil) != (s.err == "") || err != nil && !strings.Contains(err.Error(), s.err) {
						t.Fatalf("step %d, %v: Take(%d): error %v, want %q", i, s.at, s.n, err, s.err)
					}
					if wait != s.want {
						t.Fatalf("step %d, %v: Take(%d) = %v, want %v", i, s.at, s.n, wait, s.want)
					}
					if wait == 0 && err == nil {
						taken, units = time.Now(), s.n
					}
				case "adjust":
					l.(Adjuster).Adjust(s.n)
				case "undo":
					set := flatten(l)
					set.GiveBack(taken, time.Now(), units)
				case "avail":
					set := flatten(l)
					if got := set.Available(time.Now()); math.Abs(got-float64(s.n)) > 1e-6 {
						t.Fatalf("step %d, %v: %v units available, want %d", i, s.at, got, s.n)
					}
				case "limit":
					l.(interface{ SetLimit(rate.Limit) }).SetLimit(rate.Limit(s.n))
				case "burst":
					l.(*Bucket).SetBurst(s.n)
				default:
					t.Fatalf("step %d: what is %q?", i, s.do)
				}
			}
		})
	})
}

// An admission is one call that was let go.
type admission struct {
	at time.Time
	n  int
}

// A drive is a random life of a limiter, the same for the same seed.
type drive struct {
	seed     uint64
	lim      Limiter
	mean     time.Duration // between arrivals
	maxCost  int
	undo     float64                                                    // share of grants that are given back unused
	late     time.Duration                                              // a take may be reckoned up to so much before the present
	external func(r *rand.Rand, g admission, start time.Time) (ok bool) // gives the last admission back through Adjust
	change   func(r *rand.Rand, now time.Time)                          // changes the rate, now and then
}

// run returns the grants that were used, in order of time.
func (d drive) run(calls int) (used []admission) {
	r := rand.New(rand.NewPCG(d.seed, 7))
	set := flatten(d.lim)
	start := time.Now()
	told := start
	for range calls {
		time.Sleep(time.Duration(r.ExpFloat64() * float64(d.mean)))
		if d.change != nil && r.IntN(50) == 0 {
			d.change(r, time.Now())
		}
		g := admission{n: 1 + r.IntN(d.maxCost)}
		for ok := false; !ok; {
			now := time.Now()
			at := now
			if d.late > 0 && told.After(now.Add(-d.late)) && told.Before(now) {
				at = told // a timer that came late
			}
			m, err := set.TakeBy(at, now, g.n)
			if err != nil {
				panic(err)
			}
			if g.at, ok = m, !m.After(now); !ok {
				if told = m; r.IntN(3) == 0 {
					g.n = 0 // the caller leaves
					break
				}
				early := time.Duration(0)
				if r.IntN(4) == 0 {
					early = time.Duration(r.Int64N(int64(m.Sub(now)))) // asks too early
				}
				time.Sleep(m.Sub(now) - early + time.Duration(r.Int64N(int64(d.late)+1)))
			}
		}
		switch {
		case g.n == 0:
		case r.Float64() < d.undo:
			if r.IntN(2) == 0 {
				time.Sleep(time.Duration(r.ExpFloat64() * float64(d.mean)))
			}
			set.GiveBack(g.at, time.Now(), g.n)
		case d.external != nil && r.Float64() < d.undo && d.external(r, g, start):
		default:
			used = append(used, g)
		}
	}
	return used
}

// checkWindows fails if the units from any admission to any later one exceed what bound allows.
func checkWindows(t *testing.T, used []admission, bound func(from, to time.Time) float64) {
	t.Helper()
	if len(used) < 100 {
		t.Fatalf("only %d grants: this shows nothing", len(used))
	}
	for i := range used {
		units := 0
		for _, g := range used[i:] {
			units += g.n
			if most := bound(used[i].at, g.at); float64(units) > most {
				t.Fatalf("%d units in %v from %v on, bound %v", units, g.at.Sub(used[i].at), used[i].at, most)
			}
		}
	}
}

// backlog asks without pause until the time is over and returns the units let go.
func backlog(lim Limiter, d time.Duration, cost func() int) (units int) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		n := cost()
		for {
			wait, err := lim.Take(context.Background(), n)
			if err != nil {
				panic(err)
			}
			if wait == 0 {
				break
			}
			time.Sleep(wait)
		}
		if time.Now().Before(end) {
			units += n
		}
	}
	return units
}

func one() int { return 1 }

// everyKind makes one of each, n units per second or so.
func everyKind(n int) map[string]own {
	return map[string]own{
		"bucket burst 1": ownOf(NewBucket(rate.Limit(n), 1)),
		"bucket":         ownOf(NewBucket(rate.Limit(n), 1+n/3)),
		"leaky":          ownOf(NewLeaky(rate.Limit(n))),
		"fixed":          ownOf(NewFixedWindow(n, time.Second)),
		"sliding":        ownOf(NewSlidingWindow(n, time.Second)),
	}
}

// readyAt is the earliest moment, not before at, at which n units may start.
func readyAt(o account.Account, at time.Time, n int) (time.Time, error) {
	if err := o.Check(n); err != nil {
		return at, err
	}
	return o.After(at, 0, n), nil
}

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
				for _, l := range []own{a, b} {
					if m, _ := readyAt(l, now, cost); debt || !m.After(now) {
						l.Consume(now, cost)
					}
				}
			}
			from := now.Add(time.Duration(r.Int64N(int64(time.Second))))
			ahead, cost := r.IntN(5*n), r.IntN(3*n)
			got := a.After(from, int64(ahead), cost)
			want := from
			for range ahead {
				want, _ = readyAt(b, want, 1)
				b.Consume(want, 1)
			}
			want, _ = readyAt(b, want, cost)
			slack := time.Duration(0)
			if _, ok := a.Account.(*account.Tank); ok {
				slack = time.Duration(ahead + 1) // rounded up unit by unit
			}
			if diff := want.Sub(got); diff < -slack || diff > slack {
				t.Fatalf("seed %d, %s, n %d: %d ahead, cost %d: predicted %v, came %v", seed, name, n, ahead, cost, got.Sub(from), want.Sub(from))
			}
		}
	}
}

// ready never lies: at the moment told a take succeeds, at any later one too, and 1 ns before it not.
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
					if got, _ := l.TakeBy(moment.Latest(now, before), moment.Latest(now, before), cost); m.After(now.Add(2)) && !got.After(before) {
						t.Fatalf("seed %d %s: cost %d told %v, yet taken 2 ns before", seed, name, cost, m)
					}
				}
				y := m.Add(time.Duration(r.IntN(2) * r.IntN(1e6)))
				if again, _ := readyAt(l, y, cost); !again.Equal(y) {
					t.Fatalf("seed %d %s: ready at %v but at %v not before %v", seed, name, m, y, again)
				}
				if got, _ := l.TakeBy(y, y, cost); got.After(y) {
					t.Fatalf("seed %d %s: told %v, refused at %v until %v", seed, name, m, y, got)
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
		if m, _ := l.TakeBy(first, first, 1); m.After(first) {
			t.Fatalf("%s: the first take is refused", name)
		}
		for _, back := range []time.Duration{0, 3 * time.Second, 9 * time.Second} {
			at := start.Add(back)
			if m, _ := l.TakeBy(at, at, 1); !m.Equal(start.Add(11 * time.Second)) {
				t.Errorf("%s: a take at %v is told %v, want 11s", name, back, m.Sub(start))
			}
		}
		l.Consume(start.Add(11*time.Second), 1)
		l.GiveBack(start.Add(11*time.Second), start.Add(10*time.Second), 1)
		behind := start.Add(11*time.Second - 1)
		if m, _ := l.TakeBy(behind, behind, 1); m.After(behind) {
			t.Errorf("%s: refused until %v though free, because the caller's clock was 1 ns behind", name, m)
		}
	}
}

func TestCostsThatAreErrors(t *testing.T) {
	for name, c := range map[string]struct {
		lim  Limiter
		n    int
		want []string
	}{
		"negative, bucket":     {NewBucket(1, 1), -3, []string{"throttle:", "-3", "negative"}},
		"negative, leaky":      {NewLeaky(1), -3, []string{"-3", "negative"}},
		"negative, fixed":      {NewFixedWindow(1, time.Second), -3, []string{"-3", "negative"}},
		"negative, sliding":    {NewSlidingWindow(1, time.Second), -3, []string{"-3", "negative"}},
		"negative, all":        {All(NewBucket(1, 1), NewLeaky(1)), -3, []string{"-3", "negative"}},
		"negative, empty all":  {All(), -3, []string{"-3", "negative"}},
		"negative, Inf":        {NewBucket(rate.Inf, 0), -3, []string{"-3", "negative"}},
		"limit 0":              {NewBucket(0, 5), 1, []string{"throttle:", "cost 1", "limit is 0"}},
		"limit 0, leaky":       {NewLeaky(0), 1, []string{"limit is 0"}},
		"zero Bucket":          {new(Bucket), 1, []string{"limit is 0"}},
		"zero window":          {new(FixedWindow), 1, []string{"constructor"}},
		"zero sliding window":  {new(SlidingWindow), 1, []string{"constructor"}},
		"surplus over an hour": {NewBucket(1, 10), 3611, []string{"cost 3611", "burst 10", "1h"}},
		"leaky over an hour":   {NewLeaky(1), 3602, []string{"cost 3602", "1h"}},
		"fixed over an hour":   {NewFixedWindow(10, time.Minute), 611, []string{"cost 611", "10 per 1m"}},
		"sliding over an hour": {NewSlidingWindow(10, time.Minute), 611, []string{"cost 611", "10 per 1m"}},
		"enormous":             {NewSlidingWindow(1, time.Hour), math.MaxInt, []string{"cost"}},
	} {
		wait, err := c.lim.Take(context.Background(), c.n)
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
	for _, l := range []Limiter{new(Bucket), new(Leaky), new(FixedWindow), new(SlidingWindow)} {
		if got := ownOf(l).Available(time.Now()); got != 0 {
			t.Errorf("%v units available in a zero %T", got, l)
		}
	}
	for name, c := range map[string]struct {
		lim Limiter
		n   int
	}{
		"surplus of an hour": {NewBucket(1, 10), 3610},
		"leaky":              {NewLeaky(1), 3601},
		"fixed":              {NewFixedWindow(10, time.Minute), 610},
		"sliding":            {NewSlidingWindow(10, time.Minute), 610},
		"long window":        {NewSlidingWindow(10, 100*time.Hour), 10},
		"0 at limit 0":       {NewBucket(0, 5), 0},
		"Inf":                {NewBucket(rate.Inf, 0), math.MaxInt},
		"real infinity":      {NewBucket(rate.Limit(math.Inf(1)), 1), math.MaxInt},
	} {
		if wait, err := c.lim.Take(context.Background(), c.n); err != nil || wait != 0 {
			t.Errorf("%s: Take(%d) = %v, %v, want it to go", name, c.n, wait, err)
		}
	}
}

func TestConstructorsAndSettersPanicWithReason(t *testing.T) {
	for want, f := range map[string]func(){
		"throttle: NewBucket: burst 0 must be at least 1":  func() { NewBucket(1, 0) },
		"throttle: NewBucket: burst -1 must":               func() { NewBucket(rate.Inf, -1) },
		"throttle: NewBucket: limit -1 must":               func() { NewBucket(-1, 1) },
		"throttle: NewBucket: limit NaN must":              func() { NewBucket(rate.Limit(math.NaN()), 1) },
		"throttle: NewLeaky: limit -0.5 must":              func() { NewLeaky(-0.5) },
		"throttle: NewFixedWindow: n 0 must be at least 1": func() { NewFixedWindow(0, time.Second) },
		"throttle: NewFixedWindow: per 0s must be above 0": func() { NewFixedWindow(1, 0) },
		"throttle: NewSlidingWindow: n -2 must":            func() { NewSlidingWindow(-2, time.Second) },
		"throttle: NewSlidingWindow: per -1s must":         func() { NewSlidingWindow(1, -time.Second) },
		"throttle: SetLimit: limit -3 must":                func() { NewBucket(1, 1).SetLimit(-3) },
		"throttle: SetLimit: limit NaN must":               func() { NewLeaky(1).SetLimit(rate.Limit(math.NaN())) },
		"throttle: SetLimit: burst 0 must":                 func() { NewBucket(rate.Inf, 0).SetLimit(3) },
		"throttle: SetBurst: burst 0 must":                 func() { NewBucket(1, 1).SetBurst(0) },
		"throttle.bare and throttle.bare both lack Adjust": func() { All(bare{}, NewLeaky(1), bare{}) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("panic %q, want %q", got, want)
				}
			}()
			f()
		}()
	}
	b := NewBucket(1, 1) // a panicking setter leaves no lock behind and nothing changed
	func() {
		defer func() { recover() }()
		b.SetLimit(-1)
	}()
	if b.Limit() != 1 || !b.Allow() {
		t.Error("a refused SetLimit changed the bucket")
	}
}

func TestLimitersAreSmall(t *testing.T) {
	if size := unsafe.Sizeof(Bucket{}); size > 136 {
		t.Errorf("a Bucket has %d bytes, want at most 136", size)
	}
	if size := unsafe.Sizeof(SlidingWindow{}); size > 136 {
		t.Errorf("a SlidingWindow has %d bytes, want at most 136", size)
	}
}

func TestTakeAndAllowDoNotAllocate(t *testing.T) {
	ctx := context.Background()
	for name, l := range everyKind(1000) {
		if n := testing.AllocsPerRun(3000, func() { l.Take(ctx, 1) }); n != 0 {
			t.Errorf("%s: Take allocates %v times", name, n)
		}
	}
	fast := map[string]Limiter{
		"bucket":  NewBucket(1e8, 1e6),
		"big":     NewBucket(1e9, 1),
		"leaky":   NewLeaky(1e9),
		"fixed":   NewFixedWindow(1e6, time.Nanosecond),
		"sliding": NewSlidingWindow(1000, time.Microsecond),
		"all":     All(NewBucket(1e8, 1e6), NewLeaky(1e9), NewFixedWindow(1e6, time.Microsecond)),
	}
	for name, l := range fast {
		for range 5000 {
			l.Take(ctx, 2) // let a log reach its size
		}
		if n := testing.AllocsPerRun(1000, func() { l.Take(ctx, 2) }); n != 0 {
			t.Errorf("%s: granted Take allocates %v times", name, n)
		}
	}
	b := NewBucket(1e6, 10)
	if n := testing.AllocsPerRun(1000, func() { b.Allow(); b.AllowN(12) }); n != 0 {
		t.Errorf("Allow allocates %v times", n)
	}
	set := flatten(b)
	if n := testing.AllocsPerRun(1000, func() {
		now := time.Now()
		at, _ := set.TakeBy(now, now, 1)
		set.GiveBack(at, now, 1)
		set.After(now, 3, 1)
		set.Rate()
		set.Available(now)
		set.Fresh(now)
	}); n != 0 {
		t.Errorf("the line's calls allocate %v times", n)
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
								if wait, _ = l.Take(context.Background(), 1); wait > 0 {
									time.Sleep(wait)
								}
							}
							mu.Lock()
							used = append(used, admission{time.Now(), 1})
							mu.Unlock()
							set := flatten(l.Limiter)
							set.After(time.Now(), 3, 1)
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
	b := NewBucket(1e-9, 1000) // nothing comes in the time of this test
	var wg sync.WaitGroup
	var mu sync.Mutex
	granted := 0
	for range 8 {
		wg.Go(func() {
			mine := 0
			for range 1000 {
				if b.Allow() {
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

func TestNotifyTellsEveryWatcherOutsideTheLockUntilItStops(t *testing.T) {
	for name, l := range everyKind(10) {
		var told [4]int
		var stops [4]func()
		for i := range told {
			stops[i] = l.Notify(func() {
				l.Take(context.Background(), 0) // deadlocks if the lock is held
				told[i]++
			})
		}
		l.Adjust(1)
		stops[1]()
		stops[1]()
		l.Adjust(-1)
		stops[3]()
		stops[0]()
		stops[1]()
		l.Adjust(1)
		stops[2]()
		l.Adjust(-1)
		if told != [4]int{2, 1, 3, 2} {
			t.Errorf("%s: told %v times, want [2 1 3 2]", name, told)
		}
		if l.Core().Watchers != nil {
			t.Errorf("%s: a watcher is left", name)
		}
	}
	b, told := NewBucket(1, 1), 0
	defer All(b, NewLeaky(1)).(Notifier).Notify(func() { told++ })()
	b.SetLimit(2)
	b.SetBurst(3)
	b.Reserve(1).Cancel()
	b.Allow()
	if told != 3 {
		t.Errorf("SetLimit, SetBurst and Cancel told %d times, want 3", told)
	}
}

func TestFreshUntilUsedOrSet(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, l := range everyKind(3) {
		if !l.Fresh(now) {
			t.Errorf("%s: not fresh when new", name)
		}
		l.Consume(now, 1)
		if l.Fresh(now) || l.Fresh(now.Add(100*time.Millisecond)) {
			t.Errorf("%s: fresh though used", name)
		}
		if !l.Fresh(now.Add(time.Second)) {
			t.Errorf("%s: not fresh a second after one unit", name)
		}
		l.Consume(now.Add(time.Second), 9)
		if l.Fresh(now.Add(3 * time.Second)) {
			t.Errorf("%s: fresh under a debt", name)
		}
		if !l.Fresh(now.Add(5 * time.Second)) {
			t.Errorf("%s: not fresh after the debt", name)
		}
	}
	b := NewBucket(1, 1)
	b.SetLimit(1)
	c := NewBucket(1, 1)
	c.SetBurst(2)
	if far := time.Now().Add(time.Hour); b.tank.Fresh(far) || c.tank.Fresh(far) {
		t.Error("fresh though a setter was called")
	}
}

// bare is a foreign limiter with Take alone; its value is what it answers.
type bare struct {
	wait time.Duration
	err  error
}

func (b bare) Take(context.Context, int) (time.Duration, error) { return b.wait, b.err }

// countedLimiter is a foreign limiter that keeps an account and writes down when it was asked.
type countedLimiter struct {
	bare
	name  string
	taken int
	log   *[]string
}

func (c *countedLimiter) Take(_ context.Context, n int) (time.Duration, error) {
	*c.log = append(*c.log, c.name)
	if c.wait == 0 && c.err == nil {
		c.taken += n
	}
	return c.wait, c.err
}

// giving is one that can be corrected and tells of it.
type giving struct {
	countedLimiter
	changed func()
}

func (g *giving) Adjust(n int) { g.taken += n }

func (g *giving) Notify(changed func()) func() {
	g.changed = changed
	return func() { g.changed = nil }
}

// Random sets of own and foreign limiters: either all give, or nobody has given anything.
func TestAllTakesFromAllOrFromNone(t *testing.T) {
	boom := errors.New("boom")
	for seed := range uint64(600) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			var log []string
			var ls []Limiter
			var owns []own
			var foreign []*countedLimiter
			longest, failing := time.Duration(0), false
			if r.IntN(2) == 0 {
				for _, lim := range []Limiter{NewBucket(2, 4), NewFixedWindow(5, time.Second), NewSlidingWindow(3, 2*time.Second), NewLeaky(7)} {
					l := ownOf(lim)
					if r.IntN(3) == 0 {
						l.Adjust(r.IntN(9))
					}
					if l.Adjust(0); r.IntN(2) == 0 {
						owns, ls = append(owns, l), append(ls, lim)
					}
				}
			}
			ownWait := time.Duration(0)
			for _, l := range owns {
				m, _ := readyAt(l, time.Now(), 3)
				ownWait = max(ownWait, time.Until(m))
			}
			for i := range r.IntN(4) {
				g := &giving{countedLimiter: countedLimiter{name: fmt.Sprint(i), log: &log}}
				if r.IntN(4) == 0 {
					g.wait = time.Duration(1 + r.IntN(1e9))
				} else if r.IntN(8) == 0 {
					g.err = boom
				}
				foreign, ls = append(foreign, &g.countedLimiter), append(ls, g)
			}
			if r.IntN(2) == 0 { // the one that cannot give back, anywhere among the arguments
				c := &countedLimiter{name: "last", log: &log, bare: bare{wait: time.Duration(r.IntN(2) * r.IntN(1e9))}}
				i := r.IntN(len(ls) + 1)
				ls = append(ls[:i:i], append([]Limiter{c}, ls[i:]...)...)
				foreign = append(foreign, c)
			}
			if r.IntN(3) == 0 && len(ls) > 1 { // nested, and named twice
				ls = []Limiter{nil, All(ls[:1]...), All(ls[1:]...)}
				if len(owns) > 0 {
					ls = append(ls, owns[0].Limiter)
				}
			}
			longest = ownWait
			asked := 0
			if ownWait == 0 {
				for _, c := range foreign {
					asked++
					if longest, failing = c.wait, c.err != nil; longest > 0 || failing {
						break
					}
				}
			}
			before := make([]float64, len(owns))
			for i, l := range owns {
				before[i] = l.Available(time.Now())
			}
			wait, err := All(ls...).Take(context.Background(), 3)
			if (err != nil) != failing || !failing && wait != longest {
				t.Fatalf("seed %d: Take = %v, %v, want %v, error %v", seed, wait, err, longest, failing)
			}
			if len(log) != asked || len(log) > 1 && log[len(log)-1] != foreign[asked-1].name {
				t.Fatalf("seed %d: asked %v, want %d of them in order", seed, log, asked)
			}
			paid := 0
			if wait == 0 && err == nil {
				paid = 3
			}
			for i, l := range owns {
				if got := before[i] - l.Available(time.Now()); math.Abs(got-float64(paid)) > 1e-6 {
					t.Fatalf("seed %d: %T paid %v, want %d", seed, l.Limiter, got, paid)
				}
			}
			for _, c := range foreign {
				if c.taken != paid {
					t.Fatalf("seed %d: foreign %s paid %d, want %d", seed, c.name, c.taken, paid)
				}
			}
		})
	}
}

func TestAllWindowsHoldEveryLimit(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			lim := All(NewBucket(40, 5), NewSlidingWindow(20, time.Second), NewLeaky(100))
			used := drive{seed: seed, lim: lim, mean: 20 * time.Millisecond, maxCost: 4, undo: 0.1}.run(1500)
			checkWindows(t, used, func(from, to time.Time) float64 {
				l := to.Sub(from)
				most := min(5+40*l.Seconds(), 4+100*l.Seconds()) + 1e-6
				if l < time.Second {
					most = min(most, 20)
				}
				return most
			})
			all := lim.(*all)
			if n := backlog(all, time.Minute, one); n < 1194 {
				t.Errorf("%d units in a minute, want 99.5 %% of 1200", n)
			}
		})
	}
}

// Alls over the same limiters in opposite orders do not block each other.
func TestAllLocksInOneOrder(t *testing.T) {
	a, b, c := NewBucket(1e9, 1e9), NewFixedWindow(1e9, time.Second), NewSlidingWindow(1e6, time.Second)
	var wg sync.WaitGroup
	for _, l := range []Limiter{All(a, b, c), All(c, b, a), All(b, All(c, a))} {
		wg.Go(func() {
			for range 5000 {
				l.Take(context.Background(), 1)
			}
		})
	}
	wg.Wait()
}

func TestAllOfOneIsThatOneAndOfNoneIsNoLimit(t *testing.T) {
	b := NewBucket(1, 1)
	if All(nil, b, b) != Limiter(b) {
		t.Error("All of one is not that one")
	}
	f := &giving{}
	if All(f) != Limiter(f) {
		t.Error("All of one foreign limiter is not that one")
	}
	if wait, err := All().Take(context.Background(), 5); wait != 0 || err != nil {
		t.Errorf("All().Take = %v, %v", wait, err)
	}
	all := All(b, f)
	all.(Adjuster).Adjust(2)
	if f.taken != 2 || math.Abs(b.Tokens()+1) > 0.1 {
		t.Errorf("Adjust(2) reached the parts as %d and %v", f.taken, b.Tokens())
	}
	stop := all.(Notifier).Notify(func() {})
	if f.changed == nil {
		t.Error("Notify did not reach the foreign part")
	}
	if stop(); f.changed != nil {
		t.Error("stop did not reach the foreign part")
	}
}

// A user's type around a Bucket has Bucket's hidden methods too; its own Take must still be asked.
type wrapped struct {
	*Bucket
	asked int
}

func (w *wrapped) Take(ctx context.Context, n int) (time.Duration, error) {
	w.asked++
	return w.Bucket.Take(ctx, n)
}

func TestEmbeddedLimiterIsForeign(t *testing.T) {
	w := &wrapped{Bucket: NewBucket(1, 1)}
	All(w, NewLeaky(1)).Take(context.Background(), 1)
	if w.asked != 1 {
		t.Errorf("a limiter that embeds a *Bucket was asked %d times, want 1", w.asked)
	}
}

func TestParseLimit(t *testing.T) {
	const day = 24 * time.Hour
	for s, want := range map[string]Limiter{
		"10/s":              NewBucket(10, 1),
		"  10/s ":           NewBucket(10, 1),
		"0.5/s":             NewBucket(0.5, 1),
		"100/1m burst 20":   NewBucket(rate.Limit(100)/60, 20),
		"100/m  burst  20":  NewBucket(rate.Limit(100)/60, 20),
		"1/100ms":           NewBucket(10, 1),
		"1/1m30s":           NewBucket(rate.Limit(1)/90, 1),
		"86400/d":           NewBucket(1, 1),
		"259200/1d48h":      NewBucket(1, 1),
		"5/s even":          NewLeaky(5),
		"2.5/s even":        NewLeaky(2.5),
		"5000/h sliding":    NewSlidingWindow(5000, time.Hour),
		"7/2d sliding":      NewSlidingWindow(7, 2*day),
		"7/.5h sliding":     NewSlidingWindow(7, 30*time.Minute),
		"100/s window":      NewFixedWindow(100, time.Second),
		"100/250us window":  NewFixedWindow(100, 250*time.Microsecond),
		"100/250µs window":  NewFixedWindow(100, 250*time.Microsecond),
		"3/ns window":       NewFixedWindow(3, 1),
		"3/1d2h3m4s window": NewFixedWindow(3, day+2*time.Hour+3*time.Minute+4*time.Second),
	} {
		got, err := ParseLimit(s)
		if err != nil {
			t.Errorf("%q: %v", s, err)
			continue
		}
		if g, w := describe(got), describe(want); g != w {
			t.Errorf("%q is %s, want %s", s, g, w)
		}
	}
	for s, want := range map[string]string{
		"":                                    "units/time",
		"10":                                  `"10"`,
		"s/10":                                `time "10"`,
		"/s":                                  `units ""`,
		"10/":                                 `time ""`,
		"10/q":                                `time "q"`,
		"10/0s":                               `time "0s"`,
		"10/-1s":                              `time "-1s"`,
		"10/+1s":                              `time "+1s"`,
		"10/1":                                `time "1"`,
		"10/d1":                               `time "d1"`,
		"10/1d-1h":                            `time "1d-1h"`,
		"10/1dd":                              `time "1dd"`,
		"10/1.5d":                             `time "1.5d"`,
		"10/999999999999h":                    `time "999999999999h"`,
		"10/99999999d":                        `time "99999999d"`,
		"10/53375d2000000h":                   `time "53375d2000000h"`,
		"10/NaN":                              `time "NaN"`,
		"0/s":                                 `units "0"`,
		"-1/s":                                `units "-1"`,
		"+1/s":                                `units "+1"`,
		"NaN/s":                               `units "NaN"`,
		"Inf/s":                               `units "Inf"`,
		"1e3/s":                               `units "1e3"`,
		"0x10/s":                              `units "0x10"`,
		"1_000/s":                             `units "1_000"`,
		"1.2.3/s":                             `units "1.2.3"`,
		"./s":                                 `units "."`,
		strings.Repeat("9", 400) + "/s":       `units "999`,
		strings.Repeat("9", 308) + "/ns even": `units "999`,
		"0." + strings.Repeat("0", 320) + "1/100d":      `units "0.000`,
		"0." + strings.Repeat("0", 321) + "9/100d even": `units "0.000`,
		"10/s burst":                      `kind "burst"`,
		"10/s burst 0":                    `burst "0"`,
		"10/s burst -5":                   `burst "-5"`,
		"10/s burst +5":                   `burst "+5"`,
		"10/s burst 1.5":                  `burst "1.5"`,
		"10/s burst 99999999999999999999": `burst "99999999999999999999"`,
		"10/s burst 5 even":               `kind "burst 5 even"`,
		"10/s smooth":                     `kind "smooth"`,
		"10/s even sliding":               `kind "even sliding"`,
		"1.5/s window":                    `units "1.5"`,
		"0/s sliding":                     `units "0"`,
		"99999999999999999999/s window":   `units "99999999999999999999"`,
		"10 / s":                          `"10"`,
	} {
		l, err := ParseLimit(s)
		if err == nil {
			t.Errorf("%q gives %s, want an error", s, describe(l))
		} else if !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "throttle: ParseLimit(") {
			t.Errorf("%q: %q does not name %s", s, err, want)
		}
	}
}

// describe writes a limiter down so that two can be compared.
func describe(l Limiter) string {
	switch l := l.(type) {
	case *Bucket:
		return fmt.Sprintf("Bucket %.9g burst %d", float64(l.Limit()), l.Burst())
	case *Leaky:
		return fmt.Sprintf("Leaky %.9g", float64(l.Limit()))
	case *FixedWindow:
		return fmt.Sprintf("FixedWindow %d per %v", l.window.N, l.window.Per)
	case *SlidingWindow:
		return fmt.Sprintf("SlidingWindow %d per %v", l.window.N, l.window.Per)
	}
	return fmt.Sprintf("%T", l)
}

// Whatever the text, ParseLimit does not panic, and what it returns is a limit that works.
func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{"10/s", "100/1m burst 20", "5000/h sliding", "100/s window", "5/s even", "0.5/1d12h", "1/ns even", "NaN/s", "1/9999999d", "0x1p-2/s", " /", "1/µs burst 1", "1/1h1h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := ParseLimit(s)
		if err != nil {
			if l != nil || !strings.HasPrefix(err.Error(), "throttle: ParseLimit(") {
				t.Fatalf("%q: %v, %v", s, l, err)
			}
			return
		}
		set := flatten(l)
		if r := set.Rate(); !(r > 0 && r < rate.Inf) || !set.Fresh(time.Now()) {
			t.Fatalf("%q: rate %v, fresh %v", s, r, set.Fresh(time.Now()))
		}
		for range 3 {
			if wait, err := l.Take(context.Background(), 1); wait < 0 || err != nil {
				t.Fatalf("%q: Take(1) = %v, %v", s, wait, err)
			}
		}
	})
}
