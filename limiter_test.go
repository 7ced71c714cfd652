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
)

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

// A nil pointer of one of our kinds is a limiter that somebody forgot to make: a mistake, not "no limit".
func TestNilPointersOfOurKindsAreNamed(t *testing.T) {
	kinds := map[string]Limiter{
		"*throttle.Bucket": (*Bucket)(nil), "*throttle.Leaky": (*Leaky)(nil),
		"*throttle.FixedWindow": (*FixedWindow)(nil), "*throttle.SlidingWindow": (*SlidingWindow)(nil),
	}
	base := newUpstream(0, always(200))
	for kind, l := range kinds {
		for want, f := range map[string]func(){
			"throttle: All: limiters[0] is a nil " + kind:           func() { All(l) },
			"throttle: All: limiters[2] is a nil " + kind:           func() { All(nil, NewLeaky(1), l) },
			"throttle: NewQueue: the limiter is a nil " + kind + "": func() { NewQueue(l, QueueOptions{}) },
		} {
			func() {
				defer func() {
					if got := fmt.Sprint(recover()); got != want {
						t.Errorf("panic %q, want %q", got, want)
					}
				}()
				f()
			}()
		}
		tr := &Transport{Base: base, Limiter: l}
		for range 2 {
			if _, err := status(tr, t.Context(), "http://x/"); fmt.Sprint(err) != "throttle: Transport.Limiter is a nil "+kind {
				t.Errorf("Limiter: %v", err)
			}
		}
		tr.Resume("x")
		for range tr.Stats() {
			t.Error("a Transport that sends nothing has a key")
		}
		tr = &Transport{Base: base, Limiter: NewLeaky(1e9), LimiterFor: func(key string) Limiter {
			if key == "fine" {
				return nil
			}
			return l
		}}
		for range 2 {
			if _, err := status(tr, t.Context(), "http://x/"); fmt.Sprint(err) != `throttle: Transport.LimiterFor("x") returned a nil `+kind {
				t.Errorf("LimiterFor: %v", err)
			}
		}
		if code, err := status(tr, t.Context(), "http://fine/"); code != 200 {
			t.Errorf("a key without a limiter of its own: %d, %v", code, err)
		}
	}
	if n := len(base.times()); n != len(kinds) {
		t.Errorf("the upstream saw %d calls, want %d", n, len(kinds))
	}
	NewQueue(nil, QueueOptions{}).Wait(t.Context()) // no limit
}

func TestLimitersAreSmall(t *testing.T) {
	if size := unsafe.Sizeof(Bucket{}); size > 136 {
		t.Errorf("a Bucket has %d bytes, want at most 136", size)
	}
	if size := unsafe.Sizeof(SlidingWindow{}); size > 136 {
		t.Errorf("a SlidingWindow has %d bytes, want at most 136", size)
	}
}

// everyKind makes one of each, n units per second or so.
func everyKind(n int) []Limiter {
	return []Limiter{NewBucket(rate.Limit(n), 1+n/3), NewLeaky(rate.Limit(n)), NewFixedWindow(n, time.Second), NewSlidingWindow(n, time.Second)}
}

func TestTakeAndAllowDoNotAllocate(t *testing.T) {
	ctx := context.Background()
	for _, l := range everyKind(1000) {
		if n := testing.AllocsPerRun(3000, func() { l.Take(ctx, 1) }); n != 0 {
			t.Errorf("%T: Take allocates %v times", l, n)
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

func TestNotifyTellsOfEachChangeUntilItStops(t *testing.T) {
	for _, l := range everyKind(10) {
		told := 0
		stop := l.(Notifier).Notify(func() { told++ })
		l.(Adjuster).Adjust(1)
		l.(Adjuster).Adjust(-1)
		stop()
		l.(Adjuster).Adjust(1)
		if told != 2 {
			t.Errorf("%T: two adjustments told %d times", l, told)
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

// left is how many units l, of one of the library's kinds, would let go now.
func left(l Limiter) float64 {
	set := flatten(l)
	return set.Available(time.Now())
}

// Random sets of own and foreign limiters: either all give, or nobody has given anything.
func TestAllTakesFromAllOrFromNone(t *testing.T) {
	boom := errors.New("boom")
	for seed := range uint64(600) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			var log []string
			var ls []Limiter
			var owns []Limiter
			var foreign []*countedLimiter
			longest, failing := time.Duration(0), false
			if r.IntN(2) == 0 {
				for _, l := range []Limiter{NewBucket(2, 4), NewFixedWindow(5, time.Second), NewSlidingWindow(3, 2*time.Second), NewLeaky(7)} {
					if r.IntN(3) == 0 {
						l.(Adjuster).Adjust(r.IntN(9))
					}
					if l.(Adjuster).Adjust(0); r.IntN(2) == 0 {
						owns, ls = append(owns, l), append(ls, l)
					}
				}
			}
			set := flatten(owns...)
			m, _ := set.Ready(time.Now(), 3)
			ownWait := time.Until(m)
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
					ls = append(ls, owns[0])
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
				before[i] = left(l)
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
				if got := before[i] - left(l); math.Abs(got-float64(paid)) > 1e-6 {
					t.Fatalf("seed %d: %T paid %v, want %d", seed, l, got, paid)
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

// Joined in whatever order, zero values too: callers who take from them at once do not block each other.
func TestAllInBothOrdersDoesNotDeadlock(t *testing.T) {
	pairs := map[string][2]Limiter{
		"zero Buckets": {new(Bucket), new(Bucket)}, "zero Leakys": {new(Leaky), new(Leaky)},
		"zero FixedWindows": {new(FixedWindow), new(FixedWindow)}, "zero SlidingWindows": {new(SlidingWindow), new(SlidingWindow)},
		"a zero Bucket and a full one": {new(Bucket), NewBucket(1, 1)}, "Buckets": {NewBucket(1, 1), NewBucket(1, 1)},
	}
	for name, p := range pairs {
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() { // each joins them anew, while others take already
				l := All(p[i%2], p[1-i%2])
				if i%4 > 1 {
					l = All(p[i%2], All(p[1-i%2], new(Leaky)))
				}
				for range 2000 {
					l.Take(context.Background(), 1)
				}
			})
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("%s: deadlock", name)
		}
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
		"10/second":         NewBucket(10, 1),
		"10/sec even":       NewLeaky(10),
		"60/30seconds":      NewBucket(2, 1),
		"5/2secs":           NewBucket(2.5, 1),
		"100/min":           NewBucket(rate.Limit(100)/60, 1),
		"9/3mins sliding":   NewSlidingWindow(9, 3*time.Minute),
		"9/.5minute window": NewFixedWindow(9, 30*time.Second),
		"5000/hour sliding": NewSlidingWindow(5000, time.Hour),
		"5000/2hours":       NewBucket(rate.Limit(5000)/7200, 1),
		"7/day window":      NewFixedWindow(7, day),
		"7/2days window":    NewFixedWindow(7, 2*day),

		"100/minute burst 20": NewBucket(rate.Limit(100)/60, 20),

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
		"10/fortnight":                        `time "fortnight" is not a unit (`,
		"10/hundred":                          `time "hundred" is not a unit (`,
		"10/seconds2":                         `time "seconds2" is not a unit (`,
		"10/1day12h":                          `time "1day12h" is not a unit (`,
		"10/1 day":                            `time "1" is not a unit (`,
		"10/Second":                           `time "Second" is not a unit (`,
		"10/ss":                               `time "ss"`,
		"10/2000000h":                         `time "2000000h"`,
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
		"10 / s":                          `"10" is not units/time in one word, as in 10/s`,
		"10 per second":                   `"10" is not units/time in one word, as in 10/s`,
		"10/s per key":                    `kind "per key" is none of: burst N, even, sliding, window`,
		"10/s burst=5":                    `kind "burst=5" is none of: burst N, even, sliding, window`,
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
		n, per := windowOf(l)
		return fmt.Sprintf("FixedWindow %d per %v", n, per)
	case *SlidingWindow:
		n, per := windowOf(l)
		return fmt.Sprintf("SlidingWindow %d per %v", n, per)
	}
	return fmt.Sprintf("%T", l)
}

// Whatever the text, ParseLimit does not panic, and what it returns is a limit that works.
func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{"10/s", "100/1m burst 20", "5000/h sliding", "100/s window", "5/s even", "0.5/1d12h", "1/ns even", "NaN/s", "1/9999999d", "0x1p-2/s", " /", "1/µs burst 1", "1/1h1h", "10/second", "100/minute burst 20", "7/2days window", "1/hundred"} {
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
