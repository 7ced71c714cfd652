package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// holdKey is the key of what a call of a test holds.
type holdKey struct{}

func holding(ctx context.Context, n ...int) context.Context {
	return context.WithValue(ctx, holdKey{}, n)
}

func heldBy(ctx context.Context) []int { return ctx.Value(holdKey{}).([]int) }

// newMetered is a client whose only key pays calls, which may be nil, and tokens.
func newMetered(c Config, calls, tokens limit.Account) *client {
	cl := newClient(c, nil)
	if calls != nil {
		cl.own = func(string) *limit.Set { return setOf(calls) }
	}
	cl.meters = func(string) []Meter { return []Meter{{Name: "tokens", Limits: setOf(tokens)}} }
	cl.hold = heldBy
	return cl
}

// A foreignBucket is a limiter of another kind.
type foreignBucket struct{ b *limit.Bucket }

func (f foreignBucket) Take(_ context.Context, n int) (time.Duration, error) {
	return limit.TakeNow(f.b, n)
}
func (f foreignBucket) Adjust(n int) { f.b.Adjust(n) }

// A call waits for the slowest of its limits, those behind it wait with it, and Stats says what for.
func TestMetersHoldTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := newMetered(testConfig(Options{}), bucket(10, 100), bucket(100, 1000))
		begin := time.Now()
		order := make(chan string, 4)
		call := func(name string, hold int, want time.Duration) {
			go func() {
				if _, err := cl.get(holding(t.Context(), hold), "x"); err != nil || time.Since(begin) != want {
					t.Errorf("%s: %v after %v, want %v", name, err, time.Since(begin), want)
				}
				order <- name
			}()
			synctest.Wait()
		}
		call("within the burst", 900, 0)
		call("dear", 400, 3*time.Second)
		call("cheap, behind it", 10, 3100*time.Millisecond)
		call("free", 0, 3100*time.Millisecond)
		s := cl.table.Get("x").Stats()
		if s.Waiting != 3 || s.Reason != "meter:tokens" || !s.Until.Equal(begin.Add(3*time.Second)) {
			t.Errorf("%d wait for %q until %v", s.Waiting, s.Reason, s.Until.Sub(begin))
		}
		m := cl.table.Get("x").Meters()[0]
		if m.Name != "tokens" || m.Available != 100 || m.Limit != 100 {
			t.Errorf("the meter is %+v", m)
		}
		time.Sleep(4 * time.Second)
		// The last two go at one moment, and are counted in any order.
		if first, second := <-order, <-order; len(order) != 2 || first != "within the burst" || second != "dear" {
			t.Errorf("they went in the order %q, %q, and %d more", first, second, len(order))
		}
	})
}

// A call of 100 times what the others hold waits for what is ahead and its own, is not overtaken, and all go on after it.
func TestMetersServeTheDearest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each, calls, per = 10, 50, 100 // units, calls, units a second
		cl := newMetered(testConfig(Options{}), nil, bucket(per, 20))
		begin := time.Now()
		starts := make(chan time.Duration, calls)
		for i := range calls {
			hold := each
			if i == calls/2 {
				hold = 100 * each // above the burst
			}
			go func() {
				if _, err := cl.get(holding(t.Context(), hold), "x"); err != nil {
					t.Error(err)
				}
				starts <- time.Since(begin)
			}()
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		started := make([]time.Duration, len(starts))
		for i := range started {
			started[i] = <-starts
		}
		if len(started) != calls {
			t.Fatalf("%d calls went: %v", len(started), started)
		}
		// 25 calls go before it: 250 units, and 20 are there. It goes when the bucket is full, and those behind pay.
		if got, want := started[calls/2], 2500*time.Millisecond; got != want {
			t.Errorf("the dear call went after %v, want %v", got, want)
		}
		if got, want := started[calls-1], 14700*time.Millisecond; got != want {
			t.Errorf("the last call went after %v, want %v", got, want)
		}
	})
}

// Who waits is predicted by what is held before it, and refused if that is too long.
func TestMetersArePredicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(Options{MaxWait: 10 * time.Second})
		var wait time.Duration
		c.Error = func(_ string, predicted time.Duration, _ int, reason error) error {
			wait = predicted
			return reason.(*Held).Unwrap()
		}
		cl := newMetered(c, bucket(1000, 1000), bucket(100, 1000))
		for _, hold := range []int{1000, 300, 200, 400} { // 900 units wait, which takes 9 s
			go cl.get(holding(t.Context(), hold), "x")
			synctest.Wait()
		}
		if _, err := cl.get(holding(t.Context(), 110), "x"); err != errTooLong || wait != 10100*time.Millisecond {
			t.Errorf("predicted %v: %v; want 10.1 s", wait, err)
		}
		begin := time.Now()
		if _, err := cl.get(holding(t.Context(), 90), "x"); err != nil || time.Since(begin) > 10*time.Second {
			t.Errorf("predicted 9.9 s: %v after %v", err, time.Since(begin))
		}
		time.Sleep(time.Minute)
		if wait, known := cl.table.Get("x").Predict(1); !known || wait > time.Second {
			t.Errorf("with nobody in line: %v, %v", wait, known)
		}
	})
}

// A key whose meter is empty does not hold up the others at the limiter that all keys share.
func TestMetersBesideASharedLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(Options{})
		c.Shared = setOf(bucket(10, 1))
		cl := newClient(c, nil)
		cl.meters = func(string) []Meter { return []Meter{{Name: "tokens", Limits: setOf(bucket(1, 10))}} }
		cl.hold = heldBy
		begin := time.Now()
		cl.get(holding(t.Context(), 10), "x")
		for _, call := range []struct {
			key  string
			hold int
			want time.Duration
		}{{"x", 5, 5 * sec}, {"y", 5, 100 * ms}, {"y", 5, 200 * ms}} {
			go func() {
				if _, err := cl.get(holding(t.Context(), call.hold), call.key); err != nil || time.Since(begin) != call.want {
					t.Errorf("%v: %v after %v", call, err, time.Since(begin))
				}
			}()
			synctest.Wait()
		}
		time.Sleep(10 * sec)
	})
}

// A settlement lets those go at once for whom it makes the units.
func TestSettlementsAreSeenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := bucket(1, 1000) // of two keys
		cl := newMetered(testConfig(Options{}), nil, pool)
		var first *Holds
		cl.settle = func(_ context.Context, h *Holds) { first = h }
		cl.get(holding(t.Context(), 1000), "x")
		cl.settle = nil
		begin, done := time.Now(), new(atomic.Int32)
		for _, key := range []string{"x", "y"} {
			go func() {
				if _, err := cl.get(holding(t.Context(), 300), key); err != nil || time.Since(begin) != 5*time.Second {
					t.Errorf("%s: %v after %v", key, err, time.Since(begin))
				}
				done.Add(1)
			}()
		}
		time.Sleep(5 * time.Second)
		if m := cl.table.Get("x").Meters()[0]; m.Held != 1000 {
			t.Errorf("held: %+v", m)
		}
		first.Settle(0, 100)
		first.Settle(0, 5000) // the first word counts
		first.Fail()
		synctest.Wait()
		if m := cl.table.Get("y").Meters()[0]; done.Load() != 2 || m.Held != 0 || m.Available != 5+900-600 {
			t.Errorf("%d have gone; %+v", done.Load(), m)
		}
	})
}

// What is held is right: a negative settlement counts as held, Failures decides about failures, and a call of nothing
// goes behind a debt too, in its turn.
func TestWhatFailuresCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free, dear := bucket(1e-9, 1000), bucket(1e-9, 1000)
		cl := newClient(testConfig(Options{}), func(_ context.Context, _, path string, n int) Outcome {
			switch {
			case path == "/panic":
				panic("test")
			case path == "/fails" && n == 1:
				return Failure
			}
			return Success
		})
		cl.attempts = 2
		cl.meters = func(string) []Meter {
			return []Meter{{Name: "free", Limits: setOf(free)}, {Name: "dear", Limits: setOf(dear), Failures: true}}
		}
		cl.hold = heldBy
		check := func(what string, wantFree, wantDear int) {
			t.Helper()
			q := cl.table.Get("x")
			if a, b := int(1000-free.Tokens()+0.5), int(1000-dear.Tokens()+0.5); a != wantFree || b != wantDear {
				t.Errorf("%s: used %d and %d, want %d and %d", what, a, b, wantFree, wantDear)
			}
			if m := q.Meters(); m[0].Held+m[1].Held != 0 {
				t.Errorf("%s: %+v", what, m)
			}
		}
		ctx := holding(t.Context(), 10, 20)
		cl.get(ctx, "x")
		check("a success", 10, 20)
		cl.call(ctx, "x", "/fails", &Want{Cost: 1}, true)
		check("a failure and a success", 20, 60)
		func() {
			defer func() { recover() }()
			cl.call(ctx, "x", "/panic", &Want{Cost: 1}, true)
		}()
		check("a panic", 20, 80)
		cl.settle = func(_ context.Context, h *Holds) { h.Settle(0, -7); h.Settle(1, 5) }
		cl.get(ctx, "x")
		check("nonsense, and less", 30, 85)
		cl.settle = nil
		cl.get(holding(t.Context(), -5, 0), "x")
		check("holds of nothing", 30, 85)
		if _, err := cl.get(holding(t.Context(), 1<<30, 0), "x"); err == nil {
			t.Error("a hold that can never be paid was let go")
		}
		check("an impossible hold", 30, 85)
	})
}

// A call that has got its units and is not sent, because its ctx has ended or an observer panics, costs nothing, with
// Failures too.
func TestUnsentAttemptsCostNothing(t *testing.T) {
	for _, panics := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			tokens := bucket(1e-9, 1000)
			cl := newClient(testConfig(Options{}), nil)
			cl.own = func(string) *limit.Set { return setOf(bucket(1, 1)) }
			cl.meters = func(string) []Meter { return []Meter{{Name: "tokens", Limits: setOf(tokens), Failures: true}} }
			cl.hold = heldBy
			cl.get(holding(t.Context(), 100), "x")
			ctx, cancel := context.WithCancel(holding(t.Context(), 50))
			var turn Call
			turn.Init(cl.table, "x", &url.URL{Host: "x"}, &Want{Cost: 1}, 3, true)
			taken := func() []int64 {
				q := cl.table.Get("x")
				return []int64{q.meters.takenLocked(0), q.countsLocked().units}
			}
			if waits, err := turn.Arrive(ctx, cl.holds(ctx, &turn)); !waits || err != nil {
				t.Fatal(waits, err)
			}
			time.Sleep(2 * time.Second) // its turn comes, while its observer is at work
			if got := int(1000 - tokens.Tokens() + 0.5); got != 150 {
				t.Errorf("used %d with the units of the call, want 150", got)
			}
			if got := taken(); !slices.Equal(got, []int64{150, 4}) {
				t.Errorf("with the units of the call %v are counted, want [150 4]", got)
			}
			if cancel(); !panics {
				if _, err := turn.Sleep(ctx); err == nil {
					t.Error("it was let go")
				}
			}
			turn.Done()
			if got := int(1000 - tokens.Tokens() + 0.5); got != 100 {
				t.Errorf("used %d without it, want 100", got)
			}
			if got := taken(); !slices.Equal(got, []int64{100, 1}) {
				t.Errorf("without it %v are counted, want [100 1]", got)
			}
			if m := cl.table.Get("x").Meters()[0]; m.Held != 0 || m.Estimate != 100 || m.Settled != 100 {
				t.Errorf("without it: %+v", m)
			}
			conserved(t, cl.table.Get("x"))
		})
	}
}

// A key is kept while a hold is open, although its limiters are full again.
func TestOpenHoldsKeepTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := newMetered(testConfig(Options{}), nil, bucket(100, 1000))
		var open *Holds
		cl.settle = func(_ context.Context, h *Holds) { open = h }
		cl.get(holding(t.Context(), 100), "x")
		cl.meters = nil
		idle := func() bool {
			time.Sleep(2 * idleAfter)
			for range 4 * sweepEvery {
				cl.get(t.Context(), "y")
			}
			return cl.table.Get("x") == nil
		}
		if idle() {
			t.Error("x was dropped with a hold open")
		}
		open.Keep()
		if !idle() {
			t.Error("x is kept")
		}
	})
}

// Calls that end in every way, at once: cancelled in line and at their turn, refused, failed, retried, panicked, settled
// twice by two goroutines, with a foreign limiter, a shared one and slots. No unit is lost or made.
func TestMetersAreConserved(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) { conserve(t, seed) })
	}
}

func conserve(t *testing.T, seed uint64) {
	const burst = 1 << 30
	r := rand.New(rand.NewPCG(seed, 2))
	c := testConfig(Options{MaxInFlight: 3 * r.IntN(2), MaxWaiting: 8})
	shared := setOf(bucket(200, 1))
	if r.IntN(2) == 0 {
		c.Shared = shared
	}
	a, b := bucket(1e-9, burst), bucket(1e-9, burst)
	var mu sync.Mutex // guards r and settled
	var settled [2]int
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return r.IntN(n)
	}
	cl := newClient(c, func(ctx context.Context, _, _ string, _ int) Outcome {
		time.Sleep(time.Duration(draw(30)) * time.Millisecond)
		outcome := draw(12)
		if outcome > 3 {
			return Success
		}
		mu.Lock()
		settled[1] += heldBy(ctx)[1] // meter b charges failures
		mu.Unlock()
		if outcome == 0 {
			panic("test")
		}
		return []Outcome{Failure, Failure, Throttled}[outcome-1]
	})
	cl.attempts, cl.backOff, cl.after = 3, 5*time.Millisecond, 20*time.Millisecond
	foreign := r.IntN(2) == 0
	paid := map[string]*limit.Bucket{} // by cost, of each key
	cl.own = func(key string) *limit.Set {
		mu.Lock()
		defer mu.Unlock()
		if paid[key] == nil {
			paid[key] = bucket(1e-9, burst)
		}
		s := setOf(bucket(100, 5), paid[key])
		if foreign {
			s.JoinForeign(foreignBucket{bucket(150, 2)})
		}
		return s
	}
	cl.meters = func(string) []Meter {
		return []Meter{{Name: "a", Limits: setOf(a)}, {Name: "b", Limits: setOf(b, a), Failures: true}}
	}
	cl.hold = heldBy
	cl.settle = func(_ context.Context, h *Holds) {
		for i := range 2 {
			n := draw(40)
			time.Sleep(time.Duration(draw(10)) * time.Millisecond)
			mu.Lock()
			settled[i] += n
			mu.Unlock()
			done := make(chan struct{})
			go func() { h.Settle(i, n); close(done) }()
			if draw(2) == 0 {
				h.Settle(i, n) // the same word by another goroutine
			}
			<-done
			h.Settle(i, n+1)
		}
		h.Fail()
	}
	var wg sync.WaitGroup
	for range 150 {
		time.Sleep(time.Duration(draw(12)) * time.Millisecond)
		wg.Go(func() {
			defer func() { recover() }()
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+draw(200))*time.Millisecond)
			defer cancel()
			cl.call(holding(ctx, draw(30), draw(30)), fmt.Sprint(draw(2)), "/", &Want{Cost: draw(3)}, true)
		})
	}
	wg.Wait()
	var counted [2]int
	for _, key := range []string{"0", "1"} {
		if q := cl.table.Get(key); q != nil {
			if got, want := q.countsLocked().units, int64(burst-paid[key].Tokens()+0.5); got != want {
				t.Errorf("seed %d, key %s: %d units are counted, want %d", seed, key, got, want)
			}
			for i, m := range q.Meters() {
				counted[i] += int(m.Settled)
				if m.Held != 0 || q.meters.openLocked() != 0 {
					t.Errorf("seed %d, key %s: %+v, %d open", seed, key, m, q.meters.openLocked())
				}
			}
		}
	}
	if counted != settled {
		t.Errorf("seed %d: the meters say that %v was settled, want %v", seed, counted, settled)
	}
	// b's limiters are those of both meters, so a pays for both.
	if got, want := int(burst-a.Tokens()+0.5), settled[0]+settled[1]; got != want {
		t.Errorf("seed %d: meter a is charged %d, want %d", seed, got, want)
	}
	if got := int(burst - b.Tokens() + 0.5); got != settled[1] {
		t.Errorf("seed %d: meter b is charged %d, want %d", seed, got, settled[1])
	}
}
