package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet"
	"github.com/go-throttle/throttle/hint"
)

func TestConstructorsAndSettersPanicWithReason(t *testing.T) {
	for want, f := range map[string]func(){
		"throttle: NewBucket: burst 0 must be at least 1":            func() { throttle.NewBucket(1, 0) },
		"throttle: NewBucket: burst -1 must":                         func() { throttle.NewBucket(rate.Inf, -1) },
		"throttle: NewBucket: limit -1 must":                         func() { throttle.NewBucket(-1, 1) },
		"throttle: NewBucket: limit NaN must":                        func() { throttle.NewBucket(rate.Limit(math.NaN()), 1) },
		"throttle: NewLeaky: limit -0.5 must":                        func() { throttle.NewLeaky(-0.5) },
		"throttle: NewFixedWindow: n 0 must be at least 1":           func() { throttle.NewFixedWindow(0, time.Second) },
		"throttle: NewFixedWindow: per 0s must be at least 100µs":    func() { throttle.NewFixedWindow(1, 0) },
		"throttle: NewSlidingWindow: n -2 must":                      func() { throttle.NewSlidingWindow(-2, time.Second) },
		"write 60*time.Second":                                       func() { throttle.NewSlidingWindow(10, 60) },
		"throttle: NewFixedWindow: per 86.4µs must":                  func() { throttle.NewFixedWindow(10_000, 24*60*60) },
		"throttle: SetLimit: per 5ns must":                           func() { throttle.NewFixedWindow(1, time.Second).SetLimit(1, 5) },
		"throttle: NewSlidingWindow: per -1s must":                   func() { throttle.NewSlidingWindow(1, -time.Second) },
		"throttle: SetLimit: limit -3 must":                          func() { throttle.NewBucket(1, 1).SetLimit(-3) },
		"throttle: SetLimit: limit NaN must":                         func() { throttle.NewLeaky(1).SetLimit(rate.Limit(math.NaN())) },
		"throttle: SetLimit: n 0 must":                               func() { throttle.NewFixedWindow(1, time.Second).SetLimit(0, time.Second) },
		"throttle: SetLimit: n -1 must":                              func() { throttle.NewSlidingWindow(1, time.Second).SetLimit(-1, time.Second) },
		"throttle: SetLimit: per 0s must":                            func() { throttle.NewSlidingWindow(1, time.Second).SetLimit(1, 0) },
		"throttle: SetLimit: burst 0 must":                           func() { throttle.NewBucket(rate.Inf, 0).SetLimit(3) },
		"throttle: SetBurst: burst 0 must":                           func() { throttle.NewBucket(1, 1).SetBurst(0) },
		"throttle_test.bare and throttle_test.bare both lack Adjust": func() { throttle.All(bare{}, throttle.NewLeaky(1), bare{}) },
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
	b := throttle.NewBucket(1, 1) // a panicking setter leaves no lock behind and nothing changed
	func() {
		defer func() { recover() }()
		b.SetLimit(-1)
	}()
	if b.Limit() != 1 || !b.Allow() {
		t.Error("a SetLimit that panicked changed the bucket")
	}
}

// A nil pointer of one of our kinds is a limiter that somebody forgot to make: a mistake, not "no limit".
func TestNilPointersOfOurKindsAreNamed(t *testing.T) {
	kinds := map[string]throttle.Limiter{
		"*throttle.Bucket": (*throttle.Bucket)(nil), "*throttle.Leaky": (*throttle.Leaky)(nil),
		"*throttle.FixedWindow": (*throttle.FixedWindow)(nil), "*throttle.SlidingWindow": (*throttle.SlidingWindow)(nil),
	}
	base := newUpstream(0, always(200))
	for kind, l := range kinds {
		for want, f := range map[string]func(){
			"throttle: All: limiters[0] is a nil " + kind:           func() { throttle.All(l) },
			"throttle: All: limiters[2] is a nil " + kind:           func() { throttle.All(nil, throttle.NewLeaky(1), l) },
			"throttle: NewQueue: the limiter is a nil " + kind + "": func() { throttle.NewQueue(l, throttle.QueueOptions{}) },
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
		tr := &throttle.Transport{Base: base, Limiter: l}
		for range 2 {
			if _, err := status(tr, t.Context(), "http://x/"); fmt.Sprint(err) != "throttle: Transport.Limiter is a nil "+kind {
				t.Errorf("Limiter: %v", err)
			}
		}
		tr.Resume("x")
		for range tr.Stats() {
			t.Error("a Transport that sends nothing has a key")
		}
		tr = &throttle.Transport{Base: base, Limiter: throttle.NewLeaky(1e9), LimiterFor: func(key string) throttle.Limiter {
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
	throttle.NewQueue(nil, throttle.QueueOptions{}).Wait(t.Context()) // no limit
}

func TestLimitersAreSmall(t *testing.T) {
	if size := unsafe.Sizeof(throttle.Bucket{}); size > 136 {
		t.Errorf("a Bucket has %d bytes, want at most 136", size)
	}
	if size := unsafe.Sizeof(throttle.SlidingWindow{}); size > 136 {
		t.Errorf("a SlidingWindow has %d bytes, want at most 136", size)
	}
}

// everyKind makes one of each, n units per second or so.
func everyKind(n int) []throttle.Limiter {
	return []throttle.Limiter{throttle.NewBucket(rate.Limit(n), 1+n/3), throttle.NewLeaky(rate.Limit(n)), throttle.NewFixedWindow(n, time.Second), throttle.NewSlidingWindow(n, time.Second)}
}

func TestTakeAndAllowDoNotAllocate(t *testing.T) {
	ctx := context.Background()
	for _, l := range everyKind(1000) {
		if n := testing.AllocsPerRun(3000, func() { l.Take(ctx, 1) }); n != 0 {
			t.Errorf("%T: Take allocates %v times", l, n)
		}
	}
	fast := map[string]throttle.Limiter{
		"bucket":  throttle.NewBucket(1e8, 1e6),
		"big":     throttle.NewBucket(1e9, 1),
		"leaky":   throttle.NewLeaky(1e9),
		"fixed":   throttle.NewFixedWindow(1e6, 100*time.Microsecond),
		"sliding": throttle.NewSlidingWindow(1000, 100*time.Microsecond),
		"all":     throttle.All(throttle.NewBucket(1e8, 1e6), throttle.NewLeaky(1e9), throttle.NewFixedWindow(1e6, 100*time.Microsecond)),
	}
	var held throttle.LimiterVar
	held.Set(throttle.All(throttle.NewBucket(1e8, 1e6), throttle.NewSlidingWindow(1000, 100*time.Microsecond)))
	fast["held"] = &held
	for name, l := range fast {
		for range 5000 {
			l.Take(ctx, 2) // let a log reach its size
		}
		if n := testing.AllocsPerRun(1000, func() { l.Take(ctx, 2) }); n != 0 {
			t.Errorf("%s: granted Take allocates %v times", name, n)
		}
	}
	b := throttle.NewBucket(1e6, 10)
	if n := testing.AllocsPerRun(1000, func() { b.Allow(); b.AllowN(12) }); n != 0 {
		t.Errorf("Allow allocates %v times", n)
	}
	for _, l := range []throttle.Limiter{fast["all"], &held} {
		q := throttle.NewQueue(l, throttle.QueueOptions{MaxWait: time.Second})
		if n := testing.AllocsPerRun(1000, func() { q.Wait(ctx); q.Stats() }); n != 0 {
			t.Errorf("%v: Wait and Stats allocate %v times", l, n)
		}
	}
}

// A window that is changed keeps what was used, and callers who sleep are timed anew.
func TestWindowsSetLimit(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		make  func() throttle.Limiter
		takes []time.Duration // one unit each, since the start
		at    time.Duration   // of SetLimit
		n     int
		per   time.Duration
		calls []time.Duration // when calls start that wait from then on
	}{
		"fixed, shorter":        {fixed(5, 60*s), []time.Duration{0, 0, 0, 0, 0}, 20 * s, 3, 30 * s, []time.Duration{30 * s, 60 * s, 60 * s, 60 * s}},
		"fixed, over":           {fixed(2, 60*s), []time.Duration{0, 0}, 20 * s, 2, 10 * s, []time.Duration{20 * s, 20 * s, 30 * s}},
		"fixed, more":           {fixed(2, 60*s), []time.Duration{0, 0}, 20 * s, 4, 60 * s, []time.Duration{20 * s, 20 * s, 60 * s}},
		"fixed, longer":         {fixed(2, 10*s), []time.Duration{0, 0}, 5 * s, 2, 60 * s, []time.Duration{60 * s, 60 * s, 120 * s}},
		"sliding, fewer":        {sliding(5, 10*s), []time.Duration{1 * s, 2 * s, 3 * s, 4 * s, 5 * s}, 6 * s, 2, 10 * s, []time.Duration{14 * s, 15 * s, 24 * s}},
		"sliding, more":         {sliding(1, 10*s), []time.Duration{0}, 6 * s, 3, 10 * s, []time.Duration{6 * s, 6 * s, 10 * s, 16 * s}},
		"sliding, shorter":      {sliding(2, 60*s), []time.Duration{0, 5 * s}, 6 * s, 2, 3 * s, []time.Duration{6 * s, 8 * s, 9 * s}},
		"sliding, longer":       {sliding(2, 10*s), []time.Duration{0, 5 * s}, 6 * s, 2, 60 * s, []time.Duration{60 * s, 65 * s, 120 * s}},
		"of no constructor":     {func() throttle.Limiter { return new(throttle.SlidingWindow) }, nil, 0, 1, s, []time.Duration{0, s}},
		"fixed, no constructor": {func() throttle.Limiter { return new(throttle.FixedWindow) }, nil, 0, 1, s, []time.Duration{0, s}},
	} {
		synctest.Test(t, func(t *testing.T) {
			start, l := time.Now(), c.make()
			for _, at := range c.takes {
				time.Sleep(at - time.Since(start))
				if wait, err := l.Take(t.Context(), 1); wait != 0 || err != nil {
					t.Fatalf("%s: at %v: %v, %v", name, at, wait, err)
				}
			}
			time.Sleep(c.at - time.Since(start))
			if c.takes != nil { // somebody sleeps already
				q := throttle.NewQueue(l, throttle.QueueOptions{})
				defer waitAll(t, name, start, q, c.calls)()
				synctest.Wait()
				l.(interface{ SetLimit(int, time.Duration) }).SetLimit(c.n, c.per)
				return
			}
			l.(interface{ SetLimit(int, time.Duration) }).SetLimit(c.n, c.per)
			waitAll(t, name, start, throttle.NewQueue(l, throttle.QueueOptions{}), c.calls)()
		})
	}
}

// A sliding window that is made smaller owes nothing for the units that it no longer has.
func TestSmallerSlidingWindowOwesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := throttle.NewSlidingWindow(5, 10*time.Second)
		w.Adjust(5)
		w.SetLimit(2, 10*time.Second)
		if n := left(w); n != 0 {
			t.Errorf("%v units are left, want 0", n)
		}
		w.Adjust(1)
		if wait, _ := w.Take(t.Context(), 1); wait != 10*time.Second || left(w) != -1 {
			t.Errorf("with a debt of 1 a call waits for %v and %v units are left; want 10 s and -1", wait, left(w))
		}
	})
}

// waitAll has so many calls wait at q. The func that it returns fails unless they start at those moments
// after start.
func waitAll(t *testing.T, name string, start time.Time, q *throttle.Queue, want []time.Duration) func() {
	started := make(chan time.Duration, len(want))
	for range want {
		go func() {
			if err := q.Wait(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			started <- time.Since(start)
		}()
	}
	return func() {
		for i, w := range want {
			if got := <-started; got != w {
				t.Errorf("%s: call %d starts at %v, want %v", name, i, got, w)
			}
		}
	}
}

func fixed(n int, per time.Duration) func() throttle.Limiter {
	return func() throttle.Limiter { return throttle.NewFixedWindow(n, per) }
}

func sliding(n int, per time.Duration) func() throttle.Limiter {
	return func() throttle.Limiter { return throttle.NewSlidingWindow(n, per) }
}

func TestNotifyOfEachChangeUntilItStops(t *testing.T) {
	for _, l := range everyKind(10) {
		noted := 0
		stop := l.(throttle.Notifier).Notify(func() { noted++ })
		l.(throttle.Adjuster).Adjust(1)
		l.(throttle.Adjuster).Adjust(-1)
		stop()
		l.(throttle.Adjuster).Adjust(1)
		if noted != 2 {
			t.Errorf("%T: %d calls after two adjustments", l, noted)
		}
	}
	b, noted := throttle.NewBucket(1, 1), 0
	defer throttle.All(b, throttle.NewLeaky(1)).(throttle.Notifier).Notify(func() { noted++ })()
	b.SetLimit(2)
	b.SetBurst(3)
	b.Reserve(1).Cancel()
	b.Allow()
	if noted != 3 {
		t.Errorf("SetLimit, SetBurst and Cancel called %d times, want 3", noted)
	}
}

func TestNotifyWithoutStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, l := range []throttle.Limiter{deaf{}, throttle.All(deaf{}, throttle.NewBucket(1, 1))} {
			if err := throttle.NewQueue(l, throttle.QueueOptions{}).Wait(t.Context()); err != nil {
				t.Error(err)
			}
			l.(throttle.Notifier).Notify(func() {})
		}
		all := throttle.All(deaf{}, throttle.NewBucket(1, 1)).(throttle.Notifier)
		all.Notify(func() {})()
	})
}

// A deaf limiter is a Notifier that never calls.
type deaf struct{ stop func() }

func (deaf) Take(context.Context, int) (time.Duration, error) { return 0, nil }

func (u deaf) Notify(func()) (stop func()) { return u.stop }

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
func left(l throttle.Limiter) float64 {
	return throttle.NewQueue(l, throttle.QueueOptions{}).Stats().Tokens
}

// Random sets of own and foreign limiters: either all give, or nobody has given anything.
func TestAllTakesFromAllOrFromNone(t *testing.T) {
	boom := errors.New("boom")
	for seed := range uint64(600) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			var log []string
			var ls []throttle.Limiter
			var owns, twins []throttle.Limiter // the twins are asked how long the owns will have to wait
			var foreign []*countedLimiter
			longest, failing := time.Duration(0), false
			if r.IntN(2) == 0 {
				kinds := func() []throttle.Limiter {
					return []throttle.Limiter{throttle.NewBucket(2, 4), throttle.NewFixedWindow(5, time.Second), throttle.NewSlidingWindow(3, 2*time.Second), throttle.NewLeaky(7)}
				}
				ones, others := kinds(), kinds()
				for i, l := range ones {
					if r.IntN(3) == 0 {
						n := r.IntN(9)
						l.(throttle.Adjuster).Adjust(n)
						others[i].(throttle.Adjuster).Adjust(n)
					}
					if l.(throttle.Adjuster).Adjust(0); r.IntN(2) == 0 {
						owns, twins, ls = append(owns, l), append(twins, others[i]), append(ls, l)
					}
				}
			}
			ownWait := time.Duration(0)
			for _, l := range twins {
				wait, _ := l.Take(context.Background(), 3)
				ownWait = max(ownWait, wait)
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
				ls = append(ls[:i:i], append([]throttle.Limiter{c}, ls[i:]...)...)
				foreign = append(foreign, c)
			}
			if r.IntN(3) == 0 && len(ls) > 1 { // nested, and named twice
				ls = []throttle.Limiter{nil, throttle.All(ls[:1]...), throttle.All(ls[1:]...)}
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
			wait, err := throttle.All(ls...).Take(context.Background(), 3)
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
	b := throttle.NewBucket(1, 1)
	if throttle.All(nil, b, b) != throttle.Limiter(b) {
		t.Error("All of one is not that one")
	}
	f := &giving{}
	if throttle.All(f) != throttle.Limiter(f) {
		t.Error("All of one foreign limiter is not that one")
	}
	if wait, err := throttle.All().Take(context.Background(), 5); wait != 0 || err != nil {
		t.Errorf("All().Take = %v, %v", wait, err)
	}
	all := throttle.All(b, f)
	all.(throttle.Adjuster).Adjust(2)
	if f.taken != 2 || math.Abs(b.Tokens()+1) > 0.1 {
		t.Errorf("Adjust(2) reached the parts as %d and %v", f.taken, b.Tokens())
	}
	stop := all.(throttle.Notifier).Notify(func() {})
	if f.changed == nil {
		t.Error("Notify did not reach the foreign part")
	}
	if stop(); f.changed != nil {
		t.Error("stop did not reach the foreign part")
	}
}

// Joined in whatever order, zero values too: callers who take from them at once do not block each other.
func TestAllInBothOrdersDoesNotDeadlock(t *testing.T) {
	pairs := map[string][2]throttle.Limiter{
		"zero Buckets": {new(throttle.Bucket), new(throttle.Bucket)}, "zero Leakys": {new(throttle.Leaky), new(throttle.Leaky)},
		"zero FixedWindows": {new(throttle.FixedWindow), new(throttle.FixedWindow)}, "zero SlidingWindows": {new(throttle.SlidingWindow), new(throttle.SlidingWindow)},
		"a zero Bucket and a full one": {new(throttle.Bucket), throttle.NewBucket(1, 1)}, "Buckets": {throttle.NewBucket(1, 1), throttle.NewBucket(1, 1)},
	}
	for name, p := range pairs {
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() { // each joins them anew, while others take already
				l := throttle.All(p[i%2], p[1-i%2])
				if i%4 > 1 {
					l = throttle.All(p[i%2], throttle.All(p[1-i%2], new(throttle.Leaky)))
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

// wrapped is a limiter of the user's with Bucket's Adjust and Notify.
type wrapped struct {
	*throttle.Bucket
	asked atomic.Int64
}

func (w *wrapped) Take(ctx context.Context, n int) (time.Duration, error) {
	if w.asked.Add(1) > 1000 {
		return 0, errors.New("asked too often")
	}
	return w.Bucket.Take(ctx, n)
}

// An observed is a limiter of another kind that notes what it hears.
type observed struct {
	bare
	mu   sync.Mutex
	seen []hint.Hint
	sent []time.Time
}

func (o *observed) Observe(h hint.Hint, sent time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen, o.sent = append(o.seen, h), append(o.sent, sent)
}

// TestObserver: a limiter that asks for it hears what answers say of limits, and of nothing else.
func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := new(observed)
		answers := []*http.Response{
			{StatusCode: 200},
			{StatusCode: 200, Header: http.Header{"X-Ratelimit-Remaining": {"7"}, "X-Ratelimit-Limit": {"10"}}},
			{StatusCode: 500},
			{StatusCode: 429, Header: http.Header{"Retry-After": {"3"}}},
			{StatusCode: 200},
		}
		tr := &throttle.Transport{
			Limiter: throttle.All(throttle.NewBucket(100, 10), o),
			Retry:   throttle.Retry{MaxAttempts: 1},
			Base: baseFunc(func(*http.Request) (*http.Response, error) {
				time.Sleep(time.Second)
				resp := answers[0]
				resp.Body = http.NoBody
				answers = answers[1:]
				return resp, nil
			}),
		}
		start := time.Now()
		for range 5 {
			req, _ := http.NewRequest("GET", "http://example.com/", nil)
			if _, err := tr.RoundTrip(req); err != nil {
				t.Fatal(err)
			}
		}
		if len(o.seen) != 2 || o.seen[0].Quotas[0].Remaining != 7 || o.seen[1].RetryAfter != 3*time.Second {
			t.Fatalf("heard %+v", o.seen)
		}
		if at := o.sent[1].Sub(start); at < 3*time.Second || at >= 4*time.Second {
			t.Errorf("the throttled call was sent after %v", at)
		}
	})
}

// TestFleetPause: a 429 to one process stops another one that shares the limit, whatever their keys, and they come
// back at the limit's rate.
func TestFleetPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, start := new(fleet.Memory), time.Now()
		var mu sync.Mutex
		var starts []time.Duration
		throttled := true
		send := baseFunc(func(*http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			starts = append(starts, time.Since(start))
			if throttled {
				throttled = false
				return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"5"}}, Body: http.NoBody}, nil
			}
			return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
		})
		var processes []*throttle.Transport
		for range 2 {
			lim := fleet.New(store, "api", 10, 5, fleet.Options{})
			processes = append(processes, &throttle.Transport{LimiterFor: func(string) throttle.Limiter { return lim }, Base: send})
		}
		var wg sync.WaitGroup
		call := func(i int) {
			wg.Go(func() {
				req, _ := http.NewRequest("GET", "http://example.com/", nil)
				if resp, err := processes[i].RoundTrip(req); err != nil || resp.StatusCode != 200 {
					t.Errorf("%v, %v", resp, err)
				}
			})
		}
		call(0)
		time.Sleep(300 * time.Millisecond)
		for range 10 {
			call(1)
		}
		wg.Wait()
		if len(starts) != 12 || starts[0] > 0 || starts[1] < 5*time.Second {
			t.Fatalf("starts at %v", starts)
		}
		for i := 2; i < len(starts); i++ {
			// The unit of process 0 may be used late, after its own gate's jitter.
			if gap := starts[i] - starts[i-1]; gap > 101*time.Millisecond {
				t.Errorf("a gap of %v: %v", gap, starts)
			}
		}
		if last := starts[11] - starts[1]; last < 900*time.Millisecond || last > 1300*time.Millisecond {
			t.Errorf("11 calls in %v after the pause, want about a second: %v", last, starts)
		}
	})
}

// TestFleetLimiterIsOwn: a fleet's limiter counts as one of the library's, and a struct that embeds one does not.
func TestFleetLimiterIsOwn(t *testing.T) {
	var none *fleet.Limiter
	synctest.Test(t, func(t *testing.T) {
		lim := fleet.New(new(fleet.Memory), "x", 10, 1, fleet.Options{})
		// Two foreign limiters without Adjust cannot be joined; one paid twice is paid once.
		all := throttle.All(lim, bare{}, lim)
		for range 2 {
			all.Take(context.Background(), 1)
			synctest.Wait()
		}
		if used := lim.Stats().Used; used != 1 {
			t.Errorf("%d units used by one call", used)
		}
		mine := &counting{Limiter: lim}
		throttle.All(mine, throttle.NewLeaky(1)).Take(context.Background(), 1)
		if mine.takes != 1 {
			t.Error("the Take of a struct that embeds a fleet's limiter is not asked")
		}
		synctest.Wait()
	})
	func() {
		defer func() {
			if got := fmt.Sprint(recover()); !strings.Contains(got, "nil *fleet.Limiter") {
				t.Errorf("All of a nil pointer: %v", got)
			}
		}()
		throttle.All(none)
	}()
}

// counting embeds a limiter and has a Take of its own.
type counting struct {
	*fleet.Limiter
	takes int
}

func (c *counting) Take(ctx context.Context, n int) (time.Duration, error) {
	c.takes++
	return c.Limiter.Take(ctx, n)
}

// The zero limiters refuse every cost, whatever is done to them.
func TestZeroLimiters(t *testing.T) {
	for _, l := range []throttle.Limiter{new(throttle.FixedWindow), new(throttle.SlidingWindow), new(throttle.Bucket), new(throttle.Leaky)} {
		for _, n := range []int{0, 1, -1, math.MaxInt, math.MinInt} {
			l.(throttle.Adjuster).Adjust(n)
			q := throttle.NewQueue(l, throttle.QueueOptions{})
			if err := q.Wait(t.Context()); err == nil {
				t.Errorf("%T has let one go after Adjust(%d)", l, n)
			}
			if s := q.Stats(); s.Limit != 0 {
				t.Errorf("%T: %+v", l, s)
			}
		}
	}
}

// zeroLimiters are the zero values of all kinds, alone and joined.
func zeroLimiters() map[string]func() throttle.Limiter {
	return map[string]func() throttle.Limiter{
		"Bucket":        func() throttle.Limiter { return new(throttle.Bucket) },
		"Leaky":         func() throttle.Limiter { return new(throttle.Leaky) },
		"FixedWindow":   func() throttle.Limiter { return new(throttle.FixedWindow) },
		"SlidingWindow": func() throttle.Limiter { return new(throttle.SlidingWindow) },
		"all of them": func() throttle.Limiter {
			return throttle.All(new(throttle.Bucket), new(throttle.Leaky), new(throttle.FixedWindow), new(throttle.SlidingWindow))
		},
		"beside another": func() throttle.Limiter { return throttle.All(throttle.NewBucket(10, 5), new(throttle.SlidingWindow)) },
	}
}

// A debt beyond all measure stays one.
func TestBoundlessDebt(t *testing.T) {
	for _, per := range []time.Duration{100 * time.Microsecond, time.Hour, math.MaxInt64} {
		for _, l := range []throttle.Limiter{throttle.NewSlidingWindow(3, per), throttle.NewFixedWindow(3, per), throttle.NewBucket(1e-9, 3)} {
			for range 100 {
				for _, n := range []int{math.MaxInt, 1 << 30, 1, 2} {
					l.(throttle.Adjuster).Adjust(n)
				}
			}
			if wait, err := l.Take(t.Context(), 1); err != nil || wait < time.Hour {
				t.Errorf("%T, per %v: %v, %v", l, per, wait, err)
			}
			if s := throttle.NewQueue(l, throttle.QueueOptions{}).Stats(); s.Tokens >= 0 {
				t.Errorf("%T, per %v: %+v", l, per, s)
			}
		}
	}
}

func TestLongestWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, l := range []throttle.Limiter{throttle.NewSlidingWindow(2, math.MaxInt64), throttle.NewFixedWindow(2, math.MaxInt64)} {
			for range 2 {
				if wait, err := l.Take(t.Context(), 1); wait != 0 || err != nil {
					t.Errorf("%T: %v, %v", l, wait, err)
				}
				time.Sleep(time.Second)
			}
			for _, n := range []int{1, 2} {
				if wait, err := l.Take(t.Context(), n); wait < 30*365*24*time.Hour || err != nil {
					t.Errorf("%T, %d units: %v, %v", l, n, wait, err)
				}
			}
		}
	})
}

// A LimiterVar works wherever a limiter does, and whoever waits is re-timed by what is set, also if that is joined or
// changes itself. Its calls are asked as those of any limiter of this package: predictions, Stats and deadlines hold.
func TestLimiterVarIsALimiter(t *testing.T) {
	for name, line := range map[string]func(v *throttle.LimiterVar) (wait func(context.Context) error, stats func() throttle.QueueStats){
		"Queue": func(v *throttle.LimiterVar) (func(context.Context) error, func() throttle.QueueStats) {
			q := throttle.NewQueue(v, throttle.QueueOptions{})
			return q.Wait, q.Stats
		},
		"All": func(v *throttle.LimiterVar) (func(context.Context) error, func() throttle.QueueStats) {
			q := throttle.NewQueue(throttle.All(throttle.NewBucket(1e6, 1e6), v), throttle.QueueOptions{})
			return q.Wait, q.Stats
		},
		"Transport.Limiter": func(v *throttle.LimiterVar) (func(context.Context) error, func() throttle.QueueStats) {
			return limitedBy(&throttle.Transport{Base: answers(200), Limiter: v})
		},
		"LimiterFor": func(v *throttle.LimiterVar) (func(context.Context) error, func() throttle.QueueStats) {
			return limitedBy(&throttle.Transport{Base: answers(200), LimiterFor: func(string) throttle.Limiter { return v }})
		},
		"both": func(v *throttle.LimiterVar) (func(context.Context) error, func() throttle.QueueStats) {
			return limitedBy(&throttle.Transport{Base: answers(200), Limiter: v, LimiterFor: func(string) throttle.Limiter { return throttle.All(v, throttle.NewLeaky(1e6)) }})
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var v throttle.LimiterVar
			v.Set(throttle.NewLeaky(0.001))
			wait, stats := line(&v)
			wait(t.Context())
			start := time.Now()
			var wg sync.WaitGroup
			at := make([]time.Duration, 8)
			for i := range at {
				wg.Go(func() {
					if err := wait(t.Context()); err != nil {
						t.Error(name, err)
					}
					at[i] = time.Since(start)
				})
				synctest.Wait()
			}
			if s := stats(); s.Waiting != 8 || s.Limit != 0.001 {
				t.Errorf("%s: Stats %+v", name, s)
			}
			soon, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := wait(soon); !errors.Is(err, throttle.ErrWaitTooLong) || time.Since(start) != 0 {
				t.Errorf("%s: a call with a deadline: %v after %v", name, err, time.Since(start))
			}
			time.Sleep(sec)
			v.Set(throttle.All(throttle.NewBucket(1000, 1), throttle.NewLeaky(10)))
			time.Sleep(250 * ms) // 999 of 1,000 parts of a unit were missing, so two have gone: at 1.0999 and 1.1999 s
			slow := throttle.NewBucket(1, 1)
			v.Set(slow) // 0.499 units are missing
			time.Sleep(time.Second)
			slow.SetLimit(100) // again 0.499
			time.Sleep(25 * ms)
			v.Set(nil)
			wg.Wait()
			for i, want := range []time.Duration{1099_900, 1199_900, 1749_000, 2254_990, 2264_990, 2274_990, 2275_000, 2275_000} {
				if d := at[i] - want*time.Microsecond; d < 0 || d > 2*time.Microsecond {
					t.Errorf("%s: call %d went at %v, want %v", name, i, at[i], want*time.Microsecond)
				}
			}
			if got, want := v.String(), "unlimited"; got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// limitedBy is a line of a Transport's as its callers see it.
func limitedBy(tr *throttle.Transport) (func(context.Context) error, func() throttle.QueueStats) {
	return func(ctx context.Context) error { _, err := status(tr, ctx, "http://x/"); return err },
		func() throttle.QueueStats { s, _ := keyStats(tr, "x"); return s }
}

// Thousands wait while somebody sets limits of all kinds, and nonsense, which panics and changes nothing. All who wait go,
// and when the limit is high at last, nobody sleeps any longer.
func TestLimitsSetWhileThousandsWait(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 15))
			var v throttle.LimiterVar
			bucket, window := throttle.NewBucket(50, 5), throttle.NewSlidingWindow(20, sec)
			v.Set(throttle.All(bucket, window))
			q := throttle.NewQueue(&v, throttle.QueueOptions{})
			const n = 3000
			var j journal
			for i := range n {
				j.wg.Go(func() {
					if err := q.Wait(t.Context()); err != nil {
						j.fail(i, err)
						return
					}
					j.add(i)
				})
			}
			synctest.Wait()
			for range 200 {
				time.Sleep(time.Duration(rng.IntN(100)) * ms)
				switch rng.IntN(6) {
				case 0:
					v.Set(throttle.NewBucket(rate.Limit(1+rng.IntN(50)), 1+rng.IntN(9)))
				case 1:
					v.Set(throttle.All(bucket, window))
				case 2:
					v.Set(throttle.NewFixedWindow(1+rng.IntN(20), sec))
				case 3:
					bucket.SetLimit(rate.Limit(1 + rng.IntN(50)))
					window.SetLimit(1+rng.IntN(20), sec)
				default:
					before := v.String()
					for want, nonsense := range map[string]func(){
						"throttle: LimiterVar.Set: throttle_test.bare is not a limiter of this package": func() { v.Set(bare{}) },
						"throttle: LimiterVar.Set: *throttle_test.giving is not a limiter":              func() { v.Set(throttle.All(bucket, &giving{})) },
						"throttle: LimiterVar.Set: a LimiterVar cannot hold a LimiterVar":               func() { v.Set(&v) },
						"cannot hold a LimiterVar; put both":                                            func() { v.Set(throttle.All(bucket, new(throttle.LimiterVar))) },
						"throttle: LimiterVar.Set: limiters[0] is a nil *throttle.Bucket":               func() { v.Set((*throttle.Bucket)(nil)) },
						"throttle: SetLimit: limit NaN":                                                 func() { bucket.SetLimit(rate.Limit(math.NaN())) },
						"throttle: SetLimit: n 0":                                                       func() { window.SetLimit(0, sec) },
					} {
						func() {
							defer func() {
								if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
									t.Errorf("panic %q, want %q", got, want)
								}
							}()
							nonsense()
						}()
					}
					if after := v.String(); after != before {
						t.Errorf("nonsense has changed %q to %q", before, after)
					}
				}
			}
			waiting := q.Stats().Waiting
			v.Set(throttle.NewBucket(1000, 1))
			start := time.Now()
			j.wg.Wait()
			if took, most := time.Since(start), time.Duration(waiting+1)*ms; took > most || waiting < n/2 || j.failures() > 0 || len(j.sorted()) != n {
				t.Errorf("seed %d: %d waited, and took %v, want %v; %d failed", seed, waiting, took, most, j.failures())
			}
			conserved(t, q)
		})
	}
}

// What limits nothing is no limit: first contact is as careful as without a limiter. One that may set a bound is left alone.
func TestFirstContactWithoutALimit(t *testing.T) {
	for name, c := range map[string]struct {
		limiter throttle.Limiter
		want    int
	}{
		"none":            {nil, 4},
		"zero LimiterVar": {new(throttle.LimiterVar), 4},
		"infinite":        {throttle.NewBucket(rate.Inf, 0), 4},
		"two infinite":    {throttle.All(throttle.NewBucket(rate.Inf, 0), throttle.NewLeaky(rate.Inf)), 4},
		"one of two":      {throttle.All(throttle.NewBucket(rate.Inf, 0), throttle.NewBucket(1, 7)), 7},
		"foreign":         {willing{}, 10},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(sec, always(200))
			tr := &throttle.Transport{Base: up, Limiter: c.limiter}
			for range 10 {
				go status(tr, t.Context(), "http://x/")
			}
			synctest.Wait()
			if n := len(up.times()); n != c.want {
				t.Errorf("%s: %d calls in flight before the first answer, want %d", name, n, c.want)
			}
			time.Sleep(time.Hour)
		})
	}
}

// Set once, a LimiterVar is what its key was made with, so an idle key is dropped; set again, it is somebody's wish, and its
// key stays.
func TestLimiterVarAndKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vars := map[string]*throttle.LimiterVar{}
		tr := &throttle.Transport{Base: answers(200), LimiterFor: func(key string) throttle.Limiter {
			vars[key] = new(throttle.LimiterVar)
			vars[key].Set(throttle.NewBucket(100, 1))
			return vars[key]
		}}
		status(tr, t.Context(), "http://made/")
		status(tr, t.Context(), "http://set/")
		vars["set"].Set(throttle.NewBucket(5, 1))
		time.Sleep(10 * time.Minute)
		for range 200 {
			status(tr, t.Context(), "http://other/")
			time.Sleep(sec)
		}
		_, made := keyStats(tr, "made")
		if s, set := keyStats(tr, "set"); made || !set || s.Limit != 5 {
			t.Errorf("made: %t, set: %t, limit %v", made, set, s.Limit)
		}
	})
}

// A limiter of another package goes beside it. Take, Adjust, Notify and String are those of what is set.
func TestLimiterVarAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v throttle.LimiterVar
		calls := 0
		stop := v.Notify(func() { calls++ })
		if wait, err := v.Take(t.Context(), 1000); wait != 0 || err != nil || v.String() != "unlimited" {
			t.Error(wait, err, v.String())
		}
		if _, err := v.Take(t.Context(), -1); err == nil {
			t.Error("a negative cost is an error")
		}
		v.Set(throttle.All(throttle.NewBucket(10, 5), throttle.NewSlidingWindow(100, time.Hour)))
		if s := v.String(); s != "10/s burst 5, 100/h sliding" && s != "100/h sliding, 10/s burst 5" {
			t.Error(s)
		}
		v.Take(t.Context(), 5)
		v.Adjust(-2)
		v.Adjust(3)
		if wait, err := v.Take(t.Context(), 1); wait != 200*ms || err != nil || calls != 3 {
			t.Errorf("wait %v, %v; %d calls", wait, err, calls)
		}
		if _, err := v.Take(t.Context(), 1e9); err == nil {
			t.Error("a cost that can never be paid is an error")
		}
		stop()
		all := throttle.All(&v, &foreignBucket{Bucket: throttle.NewBucket(10, 1)})
		v.Set(throttle.NewLeaky(1000))
		time.Sleep(sec)
		if wait, err := all.Take(t.Context(), 1); wait != 0 || err != nil || calls != 3 {
			t.Errorf("wait %v, %v; %d calls", wait, err, calls)
		}
	})
	for what, use := range map[string]func(){
		"NewQueue": func() { throttle.NewQueue((*throttle.LimiterVar)(nil), throttle.QueueOptions{}) },
		"All":      func() { throttle.All((*throttle.LimiterVar)(nil)) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, "nil *throttle.LimiterVar") {
					t.Errorf("%s: panic %q", what, got)
				}
			}()
			use()
		}()
	}
}
