package throttle

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/gate"
	"github.com/go-throttle/throttle/internal/moment"
	"github.com/go-throttle/throttle/internal/queue"
)

const sec = time.Second

// TestHalfCancel: of 10,000 waiters at 100/s half leave before their turn. Those left use every
// slot, in the order of arrival, and nothing is lost.
func TestHalfCancel(t *testing.T) {
	const n = 10_000
	for name, c := range map[string]struct {
		lim Limiter
		due func(k int) time.Duration // of the k-th to go, from 0
	}{
		"bucket":  {NewBucket(100, 1), func(k int) time.Duration { return time.Duration(k) * 10 * ms }},
		"leaky":   {NewLeaky(100), func(k int) time.Duration { return time.Duration(k) * 10 * ms }},
		"fixed":   {NewFixedWindow(100, sec), func(k int) time.Duration { return time.Duration(k/100) * sec }},
		"sliding": {NewSlidingWindow(100, sec), func(k int) time.Duration { return time.Duration(k/100) * sec }},
		"all": {All(NewBucket(100, 1), NewSlidingWindow(1000, 10*sec)),
			func(k int) time.Duration { return time.Duration(k) * 10 * ms }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, 2))
				q := NewQueue(c.lim, QueueOptions{})
				start := time.Now()
				gone := make([]bool, n)
				at := make([]time.Duration, n)
				cancels := make([]context.CancelFunc, n)
				var wg sync.WaitGroup
				for i := range n {
					ctx, cancel := context.WithCancel(t.Context())
					cancels[i] = cancel
					wg.Go(func() {
						err := q.Wait(ctx)
						at[i], gone[i] = time.Since(start), err != nil
						if err != nil && !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
					})
					if i%100 == 99 { // the order of arrival is known in hundreds
						synctest.Wait()
					}
				}
				left := rng.Perm(n)[:n/2]
				slices.SortFunc(left, func(a, b int) int { return a/100 - b/100 })
				for _, i := range left { // each at a random time before its turn
					time.Sleep(time.Duration(rng.IntN(int(8 * ms))))
					cancels[i]()
				}
				wg.Wait()
				for _, cancel := range cancels {
					cancel()
				}
				var went []int
				for i := range n {
					if !gone[i] {
						went = append(went, i)
					}
				}
				if len(went) < n/2 || len(went) > n/2+n/100 {
					t.Fatalf("%d went", len(went))
				}
				slices.SortStableFunc(went, func(a, b int) int { return int(at[a] - at[b]) })
				for k, i := range went {
					if want := c.due(k); at[i] != want {
						t.Fatalf("the %d. to go went after %v, want %v", k, at[i], want)
					}
					if k > 0 && i/100 < went[k-1]/100 {
						t.Fatalf("%d went before %d", went[k-1], i)
					}
				}
				conserved(t, q, 0)
			})
		})
	}
}

// conserved fails if q is not as if nothing had ever waited in it.
func conserved(t *testing.T, q *Queue, inFlight int) {
	t.Helper()
	synctest.Wait()
	inside(q, func() {
		if q.q.Line != nil || q.q.Slots != inFlight {
			t.Errorf("line %v, slots %d, want none and %d", q.q.Line, q.q.Slots, inFlight)
		}
		if n := q.q.Limits.Watchers(); n != 0 {
			t.Errorf("the limiters are still watched by %d", n)
		}
		if g := &q.q.Gate; g.Trouble != nil && g.Flying < 0 {
			t.Errorf("flying %d", g.Flying)
		}
	})
	if s := q.Stats(); s.Waiting != 0 || s.InFlight != inFlight {
		t.Errorf("stats %+v", s)
	}
}

// TestRateChange re-plans at once while 1,000 wait.
func TestRateChange(t *testing.T) {
	for name, c := range map[string]struct {
		lim  interface{ SetLimit(rate.Limit) }
		from rate.Limit
	}{
		"bucket": {NewBucket(1, 1), 1},
		"leaky":  {NewLeaky(1), 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := NewQueue(c.lim.(Limiter), QueueOptions{})
			var log journal
			for i := range 1000 {
				log.wait(q, t.Context(), i)
			}
			time.Sleep(5500 * ms) // 6 have gone, half a unit is there
			c.lim.SetLimit(1000)
			time.Sleep(100 * ms) // 100 more, from 5.5005 s on
			c.lim.SetLimit(10)   // half a unit is there again
			log.wg.Wait()
			for i, e := range log.sorted() {
				var want time.Duration
				switch {
				case i < 6:
					want = time.Duration(i) * sec
				case i < 106:
					want = 5500*ms + 500*time.Microsecond + time.Duration(i-6)*ms
				default:
					want = 5600*ms + 50*ms + time.Duration(i-106)*100*ms
				}
				if d := e.at.Sub(log.start) - want; d < -2 || d > 2 || e.id != i { // the clock's grain
					t.Fatalf("%s: call %d was the %d. and went %v off", name, e.id, i, d)
				}
			}
			conserved(t, q, 0)
		})
	}
}

// TestLimitZero: a limit of 0 sends all away who wait, with the limiter's own reason.
func TestLimitZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBucket(1, 1)
		q := NewQueue(b, QueueOptions{})
		var log journal
		for i := range 100 {
			log.wait(q, t.Context(), i)
		}
		free := WithCost(t.Context(), 0)
		log.wait(q, free, 100)
		time.Sleep(1500 * ms)
		b.SetLimit(0)
		log.wg.Wait()
		if d := time.Since(log.start); d != 1500*ms || log.failures() != 98 || len(log.entries) != 3 {
			t.Errorf("after %v %d errors and %d grants", d, log.failures(), len(log.entries))
		}
		var e *Error
		if err := log.err(50); !errors.As(err, &e) || !strings.Contains(err.Error(), "limit is 0") {
			t.Error(err)
		}
		conserved(t, q, 0)
	})
}

// TestBurstAndDebt: what SetBurst, Adjust and Reserve change is felt by those who wait.
func TestBurstAndDebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBucket(1, 2)
		q := NewQueue(b, QueueOptions{})
		var log journal
		for i := range 8 {
			log.wait(q, t.Context(), i)
		}
		time.Sleep(1500 * ms) // 0 and 1 went at 0 s, 2 at 1 s; half a unit is there
		b.Adjust(-2)          // full: 3 and 4 go now
		time.Sleep(500 * ms)
		b.Adjust(3) // half a unit was there, so 5 goes when 3.5 more have come
		r := b.Reserve(1)
		r.Cancel()
		log.wg.Wait()
		want := []time.Duration{0, 0, 1 * sec, 1500 * ms, 1500 * ms, 5500 * ms, 6500 * ms, 7500 * ms}
		for i, e := range log.sorted() {
			if got := e.at.Sub(log.start); got != want[i] {
				t.Errorf("%d. after %v, want %v", i, got, want[i])
			}
		}
		conserved(t, q, 0)
	})
}

// TestPauseResume: a pause ended by Resume is felt at once, and the reopening is paced though the
// bucket is full.
func TestPauseResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(NewBucket(100, 10), QueueOptions{})
		q.Pause(time.Hour)
		if s := q.Stats(); s.Cause != "paused" || s.ClosedFor != time.Hour {
			t.Errorf("stats %+v", s)
		}
		var log journal
		for i := range 50 {
			log.wait(q, t.Context(), i)
		}
		time.Sleep(3 * time.Second)
		q.Resume()
		if s := q.Stats(); s.Cause != "" || s.ClosedFor != 0 {
			t.Errorf("stats %+v", s)
		}
		log.wg.Wait()
		for i, e := range log.sorted() {
			if want := 3*sec + time.Duration(i)*10*ms; e.at.Sub(log.start) != want || e.id != i {
				t.Errorf("call %d was the %d. and went after %v, want %v", e.id, i, e.at.Sub(log.start), want)
			}
		}
		// The reopening is over when the line is empty and the last start paid: bursts as before.
		time.Sleep(10 * ms * 10)
		log = journal{}
		for i := range 10 {
			log.wait(q, t.Context(), i)
		}
		log.wg.Wait()
		if d := time.Since(log.start); d != 0 {
			t.Errorf("a burst after the reopening took %v", d)
		}
		q.Resume() // of an open gate: nothing
		conserved(t, q, 0)
	})
}

// TestPauseEnds: never early, and in virtual time to the nanosecond.
func TestPauseEnds(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			q := NewQueue(NewBucket(1e6, 100), QueueOptions{})
			start := time.Now()
			var end time.Duration
			var log journal
			for i := range 5 {
				at, d := time.Since(start), time.Duration(rng.Int64N(int64(time.Second)))
				q.Pause(d) // one that ends sooner changes nothing
				end = max(end, at+d)
				log.wait(q, t.Context(), i)
				time.Sleep(time.Duration(rng.Int64N(int64(end - at))))
			}
			q.Pause(0)
			q.Pause(-time.Second)
			log.wg.Wait()
			if got := log.sorted()[0].at.Sub(start); got != end || len(log.entries) != 5 {
				t.Errorf("seed %d: the first went after %v, want %v", seed, got, end)
			}
			conserved(t, q, 0)
		})
	}
}

// TestPauseLonger: the longest pause there is does not overflow.
func TestPauseLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(NewBucket(100, 10), QueueOptions{})
		q.Pause(math.MaxInt64)
		q.Pause(time.Second)
		if s := q.Stats(); s.ClosedFor < 100*365*24*time.Hour {
			t.Errorf("closed for %v", s.ClosedFor)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := q.Wait(ctx); !errors.Is(err, ErrWaitTooLong) {
			t.Error(err)
		}
		q.Resume()
		if err := q.Wait(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestFailFast: a call that cannot start by its deadline, or within MaxWait, is refused on arrival
// and told how long it would have taken.
func TestFailFast(t *testing.T) {
	for name, c := range map[string]struct {
		lim   Limiter
		opts  QueueOptions
		ahead int           // callers who came before; those go at once who can
		pause time.Duration // closed for
		cost  int
		want  time.Duration // predicted
	}{
		"bucket":        {lim: NewBucket(1, 1), ahead: 6, cost: 1, want: 6 * sec},
		"bucket cost":   {lim: NewBucket(1, 10), ahead: 12, cost: 7, want: 9 * sec},
		"above burst":   {lim: NewBucket(1, 3), ahead: 4, cost: 5, want: 4 * sec},
		"leaky":         {lim: NewLeaky(10), ahead: 10, cost: 1, want: 1 * sec},
		"fixed":         {lim: NewFixedWindow(3, sec), ahead: 9, cost: 1, want: 3 * sec},
		"sliding":       {lim: NewSlidingWindow(3, sec), ahead: 8, cost: 2, want: 3 * sec},
		"all":           {lim: All(NewBucket(10, 1), NewFixedWindow(3, sec)), ahead: 9, cost: 1, want: 3 * sec},
		"paused":        {lim: NewBucket(1, 10), cost: 1, pause: 7 * sec, want: 7 * sec},
		"paused, paced": {lim: NewBucket(1, 10), ahead: 2, cost: 1, pause: 7 * sec, want: 9 * sec},
		"paused, debt":  {lim: NewBucket(0.1, 1), ahead: 2, cost: 1, pause: 7 * sec, want: 27 * sec},
		"no limit":      {lim: nil, cost: 1, pause: 7 * sec, want: 7 * sec},
		"slots unknown": {lim: NewBucket(10, 1), opts: QueueOptions{MaxInFlight: 1}, ahead: 6, cost: 1, want: 600 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := NewQueue(c.lim, c.opts)
				q.Pause(c.pause)
				var line journal
				for i := range c.ahead {
					line.wait(q, t.Context(), i)
				}
				start := time.Now()
				refused := func(limit time.Duration, maxWait bool) {
					ctx, cancel := context.WithTimeout(WithCost(t.Context(), c.cost), limit)
					defer cancel()
					if maxWait {
						ctx = WithCost(t.Context(), c.cost)
						inside(q, func() { q.q.Room.Opts.MaxWait = limit })
						defer inside(q, func() { q.q.Room.Opts.MaxWait = 0 })
					}
					before := q.Stats().Refused
					err := q.Wait(ctx)
					var e *Error
					if !errors.As(err, &e) || !errors.Is(err, ErrWaitTooLong) || time.Since(start) != 0 {
						t.Fatalf("got %v after %v", err, time.Since(start))
					}
					if e.Wait != c.want || e.Attempts != 0 || e.Key != "" || q.Stats().Refused != before+1 {
						t.Errorf("%+v, want a wait of %v", *e, c.want)
					}
					if got := errors.Is(err, context.DeadlineExceeded); got == maxWait || e.Timeout() == maxWait {
						t.Errorf("%v matches DeadlineExceeded: %t, Timeout %t", err, got, e.Timeout())
					}
				}
				refused(c.want-1, false)
				refused(c.want-1, true)
				ok, stop := context.WithTimeout(WithCost(t.Context(), c.cost), c.want)
				defer stop()
				inside(q, func() { q.q.Room.Opts.MaxWait = c.want })
				// The deadline's timer and the grant fall into one instant: either may win.
				if err := q.Wait(ok); err != nil && !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != c.want {
					t.Errorf("%v after %v, want %v", err, time.Since(start), c.want)
				}
				line.wg.Wait()
				conserved(t, q, 0)
			})
		})
	}
}

// TestPrediction: if nobody leaves and all have one priority, the prediction is when the call starts.
func TestPrediction(t *testing.T) {
	for seed := range uint64(8) {
		for _, kind := range []string{"bucket", "leaky", "fixed", "sliding", "all"} {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 4))
				most := 1
				var lim Limiter
				switch kind {
				case "bucket":
					lim, most = NewBucket(rate.Limit(1+rng.IntN(100)), 1+rng.IntN(9)), 12
				case "leaky":
					lim, most = NewLeaky(rate.Limit(1+rng.IntN(100))), 4
				case "fixed":
					lim = NewFixedWindow(1+rng.IntN(50), sec)
				case "sliding":
					lim = NewSlidingWindow(1+rng.IntN(50), sec)
				case "all":
					lim = All(NewBucket(20, 5), NewLeaky(rate.Limit(10+rng.IntN(20))))
				}
				q := NewQueue(lim, QueueOptions{})
				if seed%2 == 1 {
					q.Pause(time.Duration(rng.IntN(int(3 * sec))))
				}
				start := time.Now()
				var due []time.Duration
				var log journal
				for i := range 200 {
					cost := 1 + rng.IntN(most)
					inside(q, func() {
						now := time.Now()
						w := q.q.Predict(&queue.Order{Waiter: queue.Waiter{Cost: cost, Seq: q.q.Room.Arrivals + 1}}, now)
						due = append(due, now.Add(w).Sub(start))
					})
					log.wait(q, WithCost(t.Context(), cost), i)
					time.Sleep(time.Duration(rng.IntN(int(30 * ms))))
				}
				log.wg.Wait()
				for _, e := range log.entries {
					d := e.at.Sub(start) - due[e.id]
					if d < -200 || d > 200 { // each grant is rounded up to the clock's grain
						t.Fatalf("%s, seed %d: call %d went %v off the prediction of %v", kind, seed, e.id, d, due[e.id])
					}
				}
			})
		}
	}
}

// TestReasons: ctx done, ErrQueueFull, ErrPaused, ErrWaitTooLong, in this order.
func TestReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(NewBucket(1, 1), QueueOptions{MaxWaiting: 1, MaxWait: 1})
		done, cancel := context.WithCancel(t.Context())
		cancel()
		late, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		ctx, leave := context.WithCancel(t.Context())
		var log journal
		q.Pause(time.Minute)
		inside(q, func() { q.q.Room.Opts.MaxWait = 0 })
		log.wait(q, ctx, 0)
		inside(q, func() { q.q.Room.Opts.MaxWait, q.q.Room.MaxPause = 1, time.Second })
		check := func(c context.Context, want error, is ...error) {
			t.Helper()
			err := q.Wait(c)
			for _, x := range append(is, want) {
				if !errors.Is(err, x) {
					t.Errorf("got %v, want %v", err, x)
				}
			}
			var e *Error
			if !errors.As(err, &e) {
				t.Errorf("%T is not an *Error", err)
			}
		}
		check(done, context.Canceled)
		check(late, ErrQueueFull)
		inside(q, func() { q.q.Room.Opts.MaxWaiting = 2 })
		check(late, ErrPaused)
		inside(q, func() { q.q.Room.MaxPause = -1 })
		check(late, ErrWaitTooLong, context.DeadlineExceeded)
		check(t.Context(), ErrWaitTooLong)
		if err := q.Wait(t.Context()); errors.Is(err, context.DeadlineExceeded) {
			t.Error("no deadline, but", err)
		}
		expired, stop2 := context.WithDeadline(t.Context(), time.Now().Add(-1))
		defer stop2()
		check(expired, context.DeadlineExceeded)
		if err := q.Wait(expired); errors.Is(err, ErrWaitTooLong) {
			t.Error(err)
		}
		leave()
		log.wg.Wait()
		if err := log.err(0); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		conserved(t, q, 0)
	})
}

// TestMaxWaiting counts who waits, not who goes.
func TestMaxWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(NewBucket(10, 5), QueueOptions{MaxWaiting: 3})
		var log journal
		for i := range 10 {
			log.wait(q, t.Context(), i)
		}
		if s := q.Stats(); s.Waiting != 3 || s.Sent != 5 || s.Refused != 2 || log.failures() != 2 {
			t.Errorf("%+v, errors %v", s, log.errs)
		}
		time.Sleep(100 * ms)
		synctest.Wait()
		log.wait(q, t.Context(), 10) // there is room for one again
		log.wait(q, t.Context(), 11)
		log.wg.Wait()
		for _, i := range []int{8, 9, 11} {
			if err := log.err(i); !errors.Is(err, ErrQueueFull) {
				t.Error(i, err)
			}
		}
		if log.err(10) != nil {
			t.Error(log.err(10))
		}
		conserved(t, q, 0)
	})
}

// TestPauseSendsDoomedAway: those whose deadline lies within the closing leave when it begins.
func TestPauseSendsDoomedAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(NewBucket(100, 1), QueueOptions{})
		q.Wait(t.Context())
		var log journal
		for i, d := range []time.Duration{time.Minute, 5100 * ms, 3 * sec, 10 * sec} {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			log.wait(q, ctx, i)
		}
		q.Pause(5*sec - 1)
		synctest.Wait()
		if log.failures() != 1 || !errors.Is(log.err(2), ErrWaitTooLong) || !errors.Is(log.err(2), context.DeadlineExceeded) {
			t.Errorf("left at once: %v", log.errs)
		}
		var e *Error
		if errors.As(log.err(2), &e); e.Wait != 5*sec-1+20*ms { // two go before it
			t.Errorf("predicted %v", e.Wait)
		}
		q.Pause(9 * sec)
		synctest.Wait()
		if log.failures() != 2 || !errors.Is(log.err(1), ErrWaitTooLong) {
			t.Errorf("left at once: %v", log.errs)
		}
		log.wg.Wait()
		if ids := log.ids(); !slices.Equal(ids, []int{0, 3}) {
			t.Errorf("went: %v", ids)
		}
		conserved(t, q, 0)
	})
}

// TestCosts: nothing, less than nothing, and more than can be paid.
func TestCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBucket(1, 2)
		q := NewQueue(b, QueueOptions{})
		for _, n := range []int{-1, math.MinInt, 3603, math.MaxInt} {
			var e *Error
			if err := q.Wait(WithCost(t.Context(), n)); !errors.As(err, &e) || !strings.Contains(err.Error(), fmt.Sprint(n)) {
				t.Errorf("cost %d: %v", n, err)
			}
			if err := q.Do(WithCost(t.Context(), n), nil); !errors.As(err, &e) {
				t.Errorf("cost %d: %v", n, err)
			}
			conserved(t, q, 0)
		}
		if b.Tokens() != 2 {
			t.Errorf("%v tokens", b.Tokens())
		}
		var log journal
		log.wait(q, WithCost(t.Context(), 5), 0) // a debt of 3
		log.wait(q, WithCost(t.Context(), 0), 1) // nobody is before it
		log.wait(q, t.Context(), 2)
		log.wait(q, WithCost(t.Context(), 0), 3) // but now there is
		log.wg.Wait()
		want := []time.Duration{0, 0, 4 * sec, 4 * sec}
		for i, e := range log.sorted() {
			if got := e.at.Sub(log.start); got != want[i] {
				t.Errorf("%d. after %v, want %v", i, got, want[i])
			}
		}
		conserved(t, q, 0)
	})
}

// TestSlots: never more in flight than MaxInFlight; a slot comes back after an error, a panic and
// an exit; Wait takes none.
func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBucket(rate.Inf, 0)
		q := NewQueue(b, QueueOptions{MaxInFlight: 2})
		boom := errors.New("boom")
		ends := []func() error{
			func() error { return nil },
			func() error { return boom },
			func() error { panic(boom) },
			func() error { runtime.Goexit(); return nil },
		}
		start := time.Now()
		var flying, most atomic.Int64
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				defer func() {
					if r := recover(); (r == nil) != (i%4 != 2) {
						t.Errorf("recovered %v", r)
					}
				}()
				err := q.Do(t.Context(), func(context.Context) error {
					most.Store(max(most.Load(), flying.Add(1)))
					defer flying.Add(-1)
					time.Sleep(time.Second)
					return ends[i%4]()
				})
				if want := []error{nil, boom}[i%4]; err != want {
					t.Errorf("got %v, want %v", err, want)
				}
			})
		}
		synctest.Wait()
		if s := q.Stats(); s.InFlight != 2 || s.Waiting != 38 {
			t.Errorf("%+v", s)
		}
		wg.Wait()
		if d := time.Since(start); d != 20*sec || most.Load() != 2 {
			t.Errorf("%v, at most %d in flight", d, most.Load())
		}
		conserved(t, q, 0)
	})
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(nil, QueueOptions{MaxInFlight: 1})
		q.Do(t.Context(), func(ctx context.Context) error {
			if err := q.Wait(ctx); err != nil {
				t.Error(err)
			}
			return nil
		})
		conserved(t, q, 0)
	})
}

// TestNoUnitsWithoutSlot: a head that waits for its slot has taken no units, and one that leaves then
// loses none.
func TestNoUnitsWithoutSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBucket(1, 5)
		q := NewQueue(b, QueueOptions{MaxInFlight: 1})
		var wg sync.WaitGroup
		wg.Go(func() { q.Do(t.Context(), func(context.Context) error { time.Sleep(10 * sec); return nil }) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*sec)
		defer cancel()
		if err := q.Do(ctx, nil); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrWaitTooLong) {
			t.Error(err)
		}
		if b.Tokens() != 5 {
			t.Error(b.Tokens(), "tokens")
		}
		wg.Wait()
		conserved(t, q, 0)
	})
}

// TestGrantMeetsCancel: where a grant and the end of the ctx fall into one instant, either may win,
// and nothing is lost.
func TestGrantMeetsCancel(t *testing.T) {
	won := 0
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			b := NewBucket(1, 1)
			q := NewQueue(b, QueueOptions{MaxInFlight: 5})
			q.Wait(t.Context())
			var log journal
			ctx, cancel := context.WithCancel(t.Context())
			log.wg.Go(func() {
				if q.Do(ctx, func(context.Context) error { return nil }) == nil {
					log.add(0, 1)
				}
			})
			synctest.Wait()
			log.wait(q, t.Context(), 1)
			inside(q, func() { // granted, and before it knows, cancelled
				time.Sleep(time.Second)
				q.q.Advance(time.Now())
				cancel()
			})
			log.wg.Wait()
			won += 2 - len(log.entries)
			last := log.sorted()[len(log.entries)-1]
			if want := time.Duration(len(log.entries)) * sec; last.id != 1 || last.at.Sub(log.start) != want {
				t.Errorf("%+v, want after %v", last, want)
			}
			if n := b.Tokens(); n != 0 || q.Stats().Sent != uint64(1+len(log.entries)) {
				t.Error(n, "tokens,", q.Stats().Sent, "sent")
			}
			conserved(t, q, 0)
		})
	}
	t.Logf("the cancel won %d of 50 times", won)
}

// TestGrantMeetsCancelReopening: the same while the gate reopens. A start that was not used counts
// neither for the spacing nor as a call in flight.
func TestGrantMeetsCancelReopening(t *testing.T) {
	for name, c := range map[string]struct {
		lim  func() Limiter
		next time.Duration // when the second goes if the first did
	}{
		"paced":   {func() Limiter { return NewBucket(10, 5) }, 100 * ms},
		"counted": {func() Limiter { return nil }, sec},
	} {
		won := 0
		for range 50 {
			synctest.Test(t, func(t *testing.T) {
				q := NewQueue(c.lim(), QueueOptions{})
				q.Pause(sec)
				var log journal
				ctx, cancel := context.WithCancel(t.Context())
				log.wg.Go(func() {
					if q.Do(ctx, func(context.Context) error { time.Sleep(sec); log.add(0, 1); return nil }) != nil {
						won++
					}
				})
				synctest.Wait()
				log.wait(q, t.Context(), 1)
				inside(q, func() {
					time.Sleep(sec)
					q.q.Advance(time.Now())
					cancel()
				})
				log.wg.Wait()
				want := sec
				if len(log.entries) == 2 {
					want += c.next
				}
				for _, e := range log.entries {
					if got := e.at.Sub(log.start); e.id == 1 && got != want {
						t.Errorf("%s: the second went after %v, want %v; the first went: %t", name, got, want, len(log.entries) == 2)
					}
				}
				conserved(t, q, 0)
			})
		}
		if won == 0 {
			t.Errorf("%s: the cancel never won", name)
		}
	}
}

// TestNewQueuePanics: nonsense is named.
func TestNewQueuePanics(t *testing.T) {
	for want, o := range map[string]QueueOptions{
		"MaxWaiting is -1":  {MaxWaiting: -1},
		"MaxWait is -1ns":   {MaxWait: -1},
		"MaxInFlight is -1": {MaxInFlight: -1},
	} {
		func() {
			defer func() {
				if r := fmt.Sprint(recover()); !strings.Contains(r, want) {
					t.Errorf("%+v: panic %v, want %q", o, r, want)
				}
			}()
			NewQueue(nil, o)
		}()
	}
}

// TestSharesOfPriorities: what the docs of WithPriority promise while callers of every level always wait.
func TestSharesOfPriorities(t *testing.T) {
	for _, c := range []struct {
		each int       // callers of a level
		want []float64 // the share of each level, the lowest first, in %
	}{
		{1, []float64{12.5, 87.5}},
		{8, []float64{12.5, 87.5}},
		{1, []float64{6.25, 6.25, 87.5}},
		{8, []float64{6.25, 6.25, 87.5}},
		{50, []float64{6.25, 6.25, 87.5}},
		{8, []float64{12.5 / 3, 12.5 / 3, 12.5 / 3, 87.5}},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := NewQueue(NewLeaky(100), QueueOptions{})
			ctx, cancel := context.WithCancel(t.Context())
			got := make([]atomic.Int64, len(c.want))
			var wg sync.WaitGroup
			for level := range c.want {
				for range c.each {
					wg.Go(func() {
						for q.Wait(WithPriority(ctx, level)) == nil {
							got[level].Add(1)
						}
					})
				}
			}
			time.Sleep(160 * sec)
			cancel()
			wg.Wait()
			for level, want := range c.want {
				if share := float64(got[level].Load()) / 160; math.Abs(share-want) > 0.25 {
					t.Errorf("%d callers in each of %d levels: level %d gets %.2f %%, want %.2f", c.each, len(c.want), level, share, want)
				}
			}
		})
	}
}

// TestContextValues: cost and priority in one ctx do not disturb each other.
func TestContextValues(t *testing.T) {
	ctx := WithCost(WithPriority(WithCost(context.Background(), 7), -3), 5)
	if v := ctxValue(ctx); v != (ctxOrder{cost: 5, hasCost: true, prio: -3}) {
		t.Errorf("%+v", v)
	}
	if v := ctxValue(WithPriority(ctx, math.MaxInt)); v.prio != math.MaxInt32 || v.cost != 5 {
		t.Errorf("%+v", v)
	}
	if v := ctxValue(WithPriority(ctx, math.MinInt)); v.prio != math.MinInt32 {
		t.Errorf("%+v", v)
	}
}

// A remote is a limiter that is not the library's own. Each question takes trip.
type remote struct {
	take func(ctx context.Context, n int) (time.Duration, error)
	trip time.Duration

	mu       sync.Mutex
	asks     []time.Time
	asking   int
	atOnce   int // most questions at a time
	taken    int
	adjusted int
	watchers map[*int]func()
}

func (r *remote) Take(ctx context.Context, n int) (wait time.Duration, err error) {
	r.note(func() {
		r.asks = append(r.asks, time.Now())
		r.asking++
		r.atOnce = max(r.atOnce, r.asking)
	})
	defer r.note(func() { r.asking-- })
	time.Sleep(r.trip)
	if wait, err = r.take(ctx, n); wait == 0 && err == nil {
		r.note(func() { r.taken += n })
	}
	return wait, err
}

func (r *remote) note(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// change tells those who watch.
func (r *remote) change() {
	var tell []func()
	r.note(func() {
		for _, f := range r.watchers {
			tell = append(tell, f)
		}
	})
	for _, f := range tell {
		f()
	}
}

// adjusting is a remote that takes units back, notifying one that tells of changes.
type (
	adjusting struct{ *remote }
	notifying struct{ adjusting }
)

func (r adjusting) Adjust(n int) { r.note(func() { r.adjusted += n }) }

func (r notifying) Notify(changed func()) (stop func()) {
	id := new(int)
	r.note(func() {
		if r.watchers == nil {
			r.watchers = map[*int]func(){}
		}
		r.watchers[id] = changed
	})
	return func() { r.note(func() { delete(r.watchers, id) }) }
}

// after says wait until the moment has come, from the first question on.
func after(d time.Duration) func(context.Context, int) (time.Duration, error) {
	start := time.Now()
	return func(context.Context, int) (time.Duration, error) {
		return max(0, d-time.Since(start)), nil
	}
}

func offsets(start time.Time, at []time.Time) (d []time.Duration) {
	for _, x := range at {
		d = append(d, x.Sub(start))
	}
	return d
}

// TestForeignAskedAgain: after at most 1 s where the limiter cannot tell of a change, when it said
// where it can.
func TestForeignAskedAgain(t *testing.T) {
	for name, want := range map[string][]time.Duration{
		"plain":     {0, sec, 2 * sec, 2500 * ms},
		"notifying": {0, 2500 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &remote{take: after(2500 * ms)}
			lim := map[string]Limiter{"plain": r, "notifying": notifying{adjusting{r}}}[name]
			q := NewQueue(lim, QueueOptions{})
			start := time.Now()
			if err := q.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			if got := offsets(start, r.asks); !slices.Equal(got, want) {
				t.Errorf("%s: asked at %v, want %v", name, got, want)
			}
			if r.adjusted != 0 || len(r.watchers) != 0 {
				t.Errorf("%s: adjusted %d, watched by %d", name, r.adjusted, len(r.watchers))
			}
			conserved(t, q, 0)
		})
	}
}

// TestForeignChange: a change told is felt at once.
func TestForeignChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Bool
		r := &remote{}
		r.take = func(context.Context, int) (time.Duration, error) {
			if open.Load() {
				return 0, nil
			}
			return time.Hour, nil
		}
		q := NewQueue(notifying{adjusting{r}}, QueueOptions{})
		var log journal
		for i := range 5 {
			log.wait(q, t.Context(), i)
		}
		time.Sleep(1234 * ms)
		r.change() // still nothing: asked once more
		time.Sleep(sec)
		open.Store(true)
		r.change()
		log.wg.Wait()
		for i, e := range log.sorted() {
			if got := e.at.Sub(log.start); got != 2234*ms {
				t.Errorf("%d. after %v", i, got)
			}
		}
		if want := []time.Duration{0, 1234 * ms, 2234 * ms, 2234 * ms, 2234 * ms, 2234 * ms, 2234 * ms}; !slices.Equal(offsets(log.start, r.asks), want) {
			t.Errorf("asked at %v", offsets(log.start, r.asks))
		}
		if len(r.watchers) != 0 {
			t.Error("still watched")
		}
		conserved(t, q, 0)
	})
}

// TestForeignQuestions: outside all locks, one at a time, by the head, with the head's ctx and cost.
func TestForeignQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type id struct{}
		var asked []int
		var q *Queue
		r := &remote{trip: 100 * ms}
		r.take = func(ctx context.Context, n int) (time.Duration, error) {
			q.Stats() // would block under a lock
			q.Pause(0)
			i := ctx.Value(id{}).(int)
			if n != 10+i {
				t.Errorf("cost %d for caller %d", n, i)
			}
			asked = append(asked, i)
			if len(asked)%2 == 1 {
				return 50 * ms, nil
			}
			return 0, nil
		}
		q = NewQueue(adjusting{r}, QueueOptions{})
		var log journal
		for i, prio := range []int{0, 0, 7, 0} {
			log.wait(q, WithPriority(WithCost(context.WithValue(t.Context(), id{}, i), 10+i), prio), i)
		}
		log.wg.Wait()
		// 0 is being asked for when 2 arrives; at 100 ms the answer is no, so 2 is the head from then on.
		if want := []int{0, 2, 0, 0, 1, 1, 3, 3}; !slices.Equal(asked, want) {
			t.Errorf("asked for %v, want %v", asked, want)
		}
		if r.atOnce != 1 || r.adjusted != 0 || r.taken != 46 {
			t.Errorf("%d questions at once, adjusted %d, taken %d", r.atOnce, r.adjusted, r.taken)
		}
		conserved(t, q, 0)
	})
}

// TestForeignError: an error, and a wait below 0, go to that caller alone; a panic passes through.
// The own limiters get their units back, and the line moves on.
func TestForeignError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		r := &remote{trip: 10 * ms}
		r.take = func(_ context.Context, n int) (time.Duration, error) {
			switch n {
			case 2:
				return 0, boom
			case 3:
				return -time.Second, nil
			case 4:
				panic(boom)
			}
			return 0, nil
		}
		b := NewBucket(0.001, 100)
		q := NewQueue(All(b, adjusting{r}), QueueOptions{MaxInFlight: 1})
		var log journal
		for i, cost := range []int{1, 2, 1, 3, 1, 4, 1} {
			log.wg.Go(func() {
				defer func() {
					if x := recover(); x != nil {
						log.fail(i, x.(error))
						if cost != 4 {
							t.Error(x)
						}
					}
				}()
				err := q.Do(WithCost(t.Context(), cost), func(context.Context) error { log.add(i, cost); return nil })
				if err != nil {
					log.fail(i, err)
				}
			})
			synctest.Wait()
		}
		log.wg.Wait()
		if ids := log.ids(); !slices.Equal(ids, []int{0, 2, 4, 6}) {
			t.Errorf("went: %v", ids)
		}
		var e *Error
		if !errors.Is(log.err(1), boom) || !errors.As(log.err(1), &e) {
			t.Error(log.err(1))
		}
		if err := log.err(3); !errors.As(err, &e) || !strings.Contains(err.Error(), "negative wait -1s") {
			t.Error(err)
		}
		if log.err(5) != boom || log.failures() != 3 {
			t.Error(log.errs)
		}
		if n := math.Round(b.Tokens()); n != 96 || r.adjusted != 0 {
			t.Errorf("%v tokens, adjusted %d", n, r.adjusted)
		}
		conserved(t, q, 0)
	})
}

// TestForeignGrantGivenBack: to a caller who has gone, and behind a gate that has closed, while the
// limiter was being asked.
func TestForeignGrantGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &remote{trip: sec, take: after(0)}
		b := NewBucket(0.001, 10)
		q := NewQueue(All(adjusting{r}, b), QueueOptions{MaxInFlight: 1})
		ctx, cancel := context.WithCancel(WithCost(t.Context(), 3))
		var log journal
		log.wait(q, ctx, 0)
		log.wait(q, t.Context(), 1)
		time.Sleep(500 * ms)
		cancel()
		time.Sleep(sec) // at 1 s the first has its answer and leaves; the second asks
		synctest.Wait()
		if !errors.Is(log.err(0), context.Canceled) || r.adjusted != -3 {
			t.Errorf("%v, adjusted %d", log.err(0), r.adjusted)
		}
		q.Pause(5 * time.Second) // at 1.5 s
		log.wg.Wait()
		if got := log.sorted()[0].at.Sub(log.start); got != 7500*ms { // asks again at 6.5 s
			t.Errorf("went after %v", got)
		}
		if n := math.Round(b.Tokens()); r.taken != 5 || r.adjusted != -4 || n != 9 {
			t.Errorf("taken %d, adjusted %d, %v tokens", r.taken, r.adjusted, n)
		}
		if s := q.Stats(); s.Sent != 1 {
			t.Errorf("%+v", s)
		}
		conserved(t, q, 0)
	})
}

// TestForeignAndOwn: both are paid or none, and the line asks no more than it must.
func TestForeignAndOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &remote{}
		next := time.Now()
		r.take = func(context.Context, int) (time.Duration, error) { // one every 300 ms
			if w := time.Until(next); w > 0 {
				return w, nil
			}
			next = time.Now().Add(300 * ms)
			return 0, nil
		}
		b := NewBucket(2, 3)
		q := NewQueue(All(b, r), QueueOptions{})
		var log journal
		for i := range 8 {
			log.wait(q, t.Context(), i)
		}
		log.wg.Wait()
		want := []time.Duration{0, 300 * ms, 600 * ms, 900 * ms, 1200 * ms, 1500 * ms, 2000 * ms, 2500 * ms}
		// the bucket has 3, and 0.6 more for each 300 ms: it says when from the 6th on
		for i, e := range log.sorted() {
			if got := e.at.Sub(log.start); got != want[i] || e.id != i {
				t.Errorf("call %d was the %d. and went after %v, want %v", e.id, i, got, want[i])
			}
		}
		// one question for the first, two for each of the next four, one where the bucket said when
		if math.Abs(b.Tokens()) > 1e-9 || len(r.asks) != 1+4*2+3 {
			t.Errorf("%v tokens, asked %d times", b.Tokens(), len(r.asks))
		}
		conserved(t, q, 0)
	})
}

// TestForeignLeaving: those who wait behind the head leave, and so does the head, without a question.
func TestForeignLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &remote{take: after(10 * sec)}
		q := NewQueue(adjusting{r}, QueueOptions{})
		var log journal
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 6 {
			if i%2 == 0 {
				log.wait(q, ctx, i)
			} else {
				log.wait(q, t.Context(), i)
			}
		}
		time.Sleep(500 * ms)
		cancel()
		synctest.Wait()
		if log.failures() != 3 || r.adjusted != 0 {
			t.Error(log.errs, r.adjusted)
		}
		log.wg.Wait()
		if ids := log.ids(); !slices.Equal(ids, []int{1, 3, 5}) || r.taken != 3 || r.adjusted != 0 {
			t.Errorf("%v went, taken %d, adjusted %d", ids, r.taken, r.adjusted)
		}
		for _, e := range log.entries {
			if got := e.at.Sub(log.start); got != 10*sec {
				t.Errorf("%d after %v", e.id, got)
			}
		}
		conserved(t, q, 0)
	})
}

// TestQueueRandom: random arrivals, costs, priorities, cancels, deadlines, changes of the limit,
// pauses and panics. What holds throughout is said where it is checked.
func TestQueueRandom(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) { newRandomRun(t, seed).run() })
	}
}

// A randomRun replays a bucket's account beside the queue's.
type randomRun struct {
	*testing.T
	seed  uint64
	rng   *rand.Rand
	q     *Queue
	b     *Bucket
	slots int

	mu     sync.Mutex
	wg     sync.WaitGroup
	flying int
	tokens float64 // the model's
	as     time.Time
	limit  float64
	burst  float64
	closed time.Time // no start before
	sent   int
	errs   map[string]int
}

func newRandomRun(t *testing.T, seed uint64) *randomRun {
	r := &randomRun{T: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 5)), errs: map[string]int{}, as: time.Now()}
	r.limit, r.burst = float64(20+r.rng.IntN(200)), float64(1+r.rng.IntN(5))
	r.tokens, r.slots = r.burst, 1+r.rng.IntN(20)
	r.b = NewBucket(rate.Limit(r.limit), int(r.burst))
	o := QueueOptions{MaxInFlight: r.slots}
	if seed%3 == 1 {
		o.MaxWaiting = 30
	}
	if seed%3 == 2 {
		o.MaxWait = time.Second
	}
	r.q = NewQueue(r.b, o)
	return r
}

// bring brings the model's account to now.
func (r *randomRun) bring() {
	now := time.Now()
	r.tokens = min(r.burst, r.tokens+now.Sub(r.as).Seconds()*r.limit)
	r.as = now
}

// went checks a start against the model: the bucket has what it costs, and the gate is open.
func (r *randomRun) went(cost int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bring()
	r.sent++
	if cost > 0 && r.tokens < min(float64(cost), r.burst)-1e-5 {
		r.Errorf("seed %d: cost %d went with %v of %v there", r.seed, cost, r.tokens, r.burst)
	}
	r.tokens -= float64(cost)
	if time.Now().Before(r.closed) {
		r.Errorf("seed %d: one went %v before the pause's end", r.seed, time.Until(r.closed))
	}
}

// fly counts those in flight.
func (r *randomRun) fly(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.flying += n; r.flying > r.slots {
		r.Errorf("seed %d: %d in flight, at most %d may be", r.seed, r.flying, r.slots)
	}
}

func (r *randomRun) ended(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e *Error
	if err != nil && !errors.As(err, &e) {
		r.Errorf("seed %d: %v", r.seed, err)
	}
	for _, x := range []error{ErrQueueFull, ErrWaitTooLong, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, x) {
			r.errs[x.Error()]++
			return
		}
	}
	if err != nil {
		r.Errorf("seed %d: %v", r.seed, err)
	}
}

// call is one caller, in a goroutine of its own.
func (r *randomRun) call() {
	cost := min(r.rng.IntN(4), 1+r.rng.IntN(4))
	if r.rng.IntN(50) == 0 {
		cost = 12
	}
	ctx := WithCost(WithPriority(r.Context(), r.rng.IntN(4)), cost)
	cancel := func() {}
	switch d := time.Duration(r.rng.Int64N(int64(2 * sec))); r.rng.IntN(4) {
	case 0:
		ctx, cancel = context.WithTimeout(ctx, d)
	case 1:
		c, stop := context.WithCancel(ctx)
		ctx, cancel = c, stop
		time.AfterFunc(d, stop)
	}
	do, panics, takes := r.rng.IntN(4) > 0, r.rng.IntN(10) == 0, time.Duration(r.rng.Int64N(int64(200*ms)))
	r.wg.Go(func() {
		defer cancel()
		if !do {
			err := r.q.Wait(ctx)
			if err == nil {
				r.went(cost)
			}
			r.ended(err)
			return
		}
		defer func() {
			if x := recover(); x != nil && x != &r.wg {
				panic(x)
			}
		}()
		r.ended(r.q.Do(ctx, func(context.Context) error {
			r.went(cost)
			r.fly(1)
			defer r.fly(-1)
			time.Sleep(takes)
			if panics {
				panic(&r.wg)
			}
			return nil
		}))
	})
}

// disturb changes the limit, pauses or resumes.
func (r *randomRun) disturb() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bring()
	now := time.Now()
	switch d := time.Duration(r.rng.Int64N(int64(300 * ms))); r.rng.IntN(3) {
	case 0:
		r.limit = float64(20 + r.rng.IntN(200))
		r.b.SetLimit(rate.Limit(r.limit))
	case 1:
		r.q.Pause(d)
		r.closed = moment.Latest(r.closed, now.Add(d))
	case 2:
		r.q.Resume()
		r.closed = now
	}
}

// look fails if the head could go and does not: no idle capacity while someone waits.
func (r *randomRun) look() {
	synctest.Wait()
	now := time.Now()
	inside(r.q, func() {
		q := r.q
		if q.q.Slots > r.slots || q.q.Slots < 0 {
			r.Errorf("seed %d: %d slots of %d", r.seed, q.q.Slots, r.slots)
		}
		if q.q.Line == nil {
			return
		}
		w := q.q.Head(now)
		if w == nil {
			r.Fatalf("seed %d: a line with nobody in it", r.seed)
		}
		at, ok := q.q.Gate.Moment(now, q.q.Pace())
		if w.Slot() && q.q.Slots >= r.slots || !ok || at.After(now) {
			return
		}
		if there := q.q.Limits.Available(now); w.Cost == 0 || there >= min(float64(w.Cost), r.burst)+1e-5 {
			r.Errorf("seed %d: cost %d waits with %v units there and the gate open", r.seed, w.Cost, there)
		}
	})
}

func (r *randomRun) run() {
	n := 0
	for range 1500 {
		time.Sleep(time.Duration(r.rng.Int64N(int64(20 * ms))))
		r.look()
		if r.rng.IntN(25) == 0 {
			r.disturb()
		} else {
			n++
			r.call()
		}
		r.look()
	}
	r.wg.Wait()
	conserved(r.T, r.q, 0)
	r.bring()
	if got := r.b.Tokens(); math.Abs(got-r.tokens) > 1e-3 {
		r.Errorf("seed %d: %v tokens, want %v", r.seed, got, r.tokens)
	}
	if s := r.q.Stats(); s.Sent != uint64(r.sent) || r.sent < n/10 {
		r.Errorf("seed %d: %d of %d went, stats %+v", r.seed, r.sent, n, s)
	}
	time.Sleep(sec) // all is as new
	if got := r.b.Tokens(); got != r.burst {
		r.Errorf("seed %d: %v tokens, want %v", r.seed, got, r.burst)
	}
	r.Logf("seed %d: %d calls, %d went, %v", r.seed, n, r.sent, r.errs)
}

// TestForeignRandom: foreign limiters that may adjust or not, notify or not, fail or take their time,
// beside an own one. What they gave and did not get back is what went; one question at a time; the
// line always ends.
func TestForeignRandom(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 6))
			far := NewBucket(100, 5) // behind the remote
			r := &remote{trip: time.Duration(rng.IntN(5)) * ms}
			r.take = func(ctx context.Context, n int) (time.Duration, error) {
				if n == 3 {
					return 0, errors.New("no")
				}
				return far.Take(ctx, n)
			}
			var lim Limiter = adjusting{r}
			if seed%2 == 1 {
				lim = notifying{adjusting{r}}
			}
			own := NewLeaky(150)
			q := NewQueue(All(own, lim), QueueOptions{MaxInFlight: 1 + rng.IntN(9)})
			var wg sync.WaitGroup
			var went, lost atomic.Int64
			for i := range 400 {
				time.Sleep(time.Duration(rng.IntN(15)) * ms)
				switch rng.IntN(40) {
				case 0:
					q.Pause(time.Duration(rng.IntN(200)) * ms)
				case 1:
					q.Resume()
				case 2:
					far.SetLimit(rate.Limit(10 + rng.IntN(200)))
					r.change()
				}
				cost := 1 + rng.IntN(2)
				if i%50 == 49 {
					cost = 3
				}
				ctx, cancel := context.WithTimeout(WithCost(WithPriority(t.Context(), rng.IntN(3)), cost), time.Duration(1+rng.IntN(3000))*ms)
				takes := time.Duration(rng.IntN(50)) * ms
				wg.Go(func() {
					defer cancel()
					err := q.Do(ctx, func(context.Context) error {
						went.Add(int64(cost))
						time.Sleep(takes)
						return nil
					})
					if err != nil {
						lost.Add(1)
					}
				})
			}
			wg.Wait()
			conserved(t, q, 0)
			if got := int64(r.taken + r.adjusted); got != went.Load() || r.atOnce != 1 || len(r.watchers) != 0 {
				t.Errorf("seed %d: %d units taken and kept, %d went, %d questions at once, %d watchers", seed, got, went.Load(), r.atOnce, len(r.watchers))
			}
			if went.Load() < 100 || lost.Load() < 8 {
				t.Errorf("seed %d: %d units went, %d calls did not", seed, went.Load(), lost.Load())
			}
		})
	}
}

// TestDoomedByPlace: whom the closing dooms because of those before it leaves at once, too, and
// those behind move up.
func TestDoomedByPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(NewLeaky(1), QueueOptions{})
		q.Wait(t.Context())
		var log journal
		for i := range 5 {
			log.wait(q, t.Context(), i)
		}
		for i, d := range []time.Duration{8 * sec, 10*sec + 1, 10 * sec} { // due at 6, 7 and 8 s
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			log.wait(q, ctx, 5+i)
		}
		q.Pause(5 * sec) // due at 10, 10 and 11 s now: the first of them leaves, the last stays doomed
		synctest.Wait()
		if !errors.Is(log.err(5), ErrWaitTooLong) || log.err(6) != nil || !errors.Is(log.err(7), ErrWaitTooLong) {
			t.Errorf("left at once: %v", log.errs)
		}
		log.wg.Wait()
		conserved(t, q, 0)
	})
}

// TestMaxPauseClock counts the time behind closed gates only, though the one who waits is held up by
// a slot meanwhile and nobody looks at the gate.
func TestMaxPauseClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(NewBucket(rate.Inf, 0), QueueOptions{MaxInFlight: 1})
		q.q.Room.MaxPause = time.Minute
		var wg sync.WaitGroup
		wg.Go(func() { q.Do(t.Context(), func(context.Context) error { time.Sleep(200 * sec); return nil }) })
		synctest.Wait()
		q.Pause(sec)
		wg.Go(func() {
			if err := q.Do(t.Context(), func(context.Context) error { return nil }); err != nil {
				t.Error("behind closed gates for 2 s:", err)
			}
		})
		time.Sleep(100 * sec)
		q.Pause(sec)
		wg.Wait()
		conserved(t, q, 0)
	})
}

// TestMaxPauseSpent: one that has spent its MaxPause behind a gate that fails leaves then, though its
// slot is taken.
func TestMaxPauseSpent(t *testing.T) {
	for _, slots := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			q := NewQueue(NewBucket(100, 1), QueueOptions{MaxInFlight: slots})
			q.q.Room.MaxPause = 10 * sec
			start := time.Now()
			var wg sync.WaitGroup
			wg.Go(func() { q.Do(t.Context(), func(context.Context) error { time.Sleep(200 * sec); return nil }) })
			synctest.Wait()
			inside(q, func() {
				for i := range uint64(8) {
					q.q.Gate.Learn(gate.Report{Outcome: gate.Failure, Call: i}, time.Now(), q.q.Pace())
				}
				if slots == 0 { // else the slot stops it
					q.q.Gate.Start(1, time.Now(), time.Now(), q.q.Pace())
					q.q.Gate.Until = time.Now().Add(time.Hour)
				}
			})
			err := q.Do(t.Context(), func(context.Context) error { return nil })
			if d := time.Since(start); d != 10*sec || !errors.Is(err, ErrPaused) {
				t.Errorf("%d slots: left after %v, %v", slots, d, err)
			}
			wg.Wait()
			conserved(t, q, 0)
		})
	}
}

// TestReopeningCounted: with no limit known one goes first, and each success lets one more be in
// flight, whether the others stood in line or come after; calls sent before the pause do not count.
func TestReopeningCounted(t *testing.T) {
	for _, stood := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			q := NewQueue(nil, QueueOptions{})
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() { q.Do(t.Context(), func(context.Context) error { time.Sleep(1500 * ms); return nil }) })
			}
			synctest.Wait()
			q.Pause(sec)
			start := time.Now().Add(sec)
			if !stood {
				time.Sleep(1100 * ms)
				start = time.Now()
			}
			var flying atomic.Int64
			for range 63 {
				wg.Go(func() {
					q.Do(t.Context(), func(context.Context) error {
						flying.Add(1)
						defer flying.Add(-1)
						time.Sleep(sec)
						return nil
					})
				})
			}
			for i := range 6 { // 1, 2, 4, … in flight
				time.Sleep(time.Until(start.Add(time.Duration(i)*sec + 700*ms)))
				if n := flying.Load(); n != 1<<i {
					t.Errorf("stood in line %t: %d in flight in second %d, want %d", stood, n, i, 1<<i)
				}
			}
			wg.Wait()
			conserved(t, q, 0)
		})
	}
}

// TestImpossibleCost is told at once, whoever waits and whatever the deadline.
func TestImpossibleCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBucket(1, 1)
		q := NewQueue(b, QueueOptions{MaxWaiting: 5})
		var log journal
		for i := range 6 {
			log.wait(q, t.Context(), i)
		}
		ctx, cancel := context.WithTimeout(t.Context(), sec)
		defer cancel()
		for _, n := range []int{-3, 10_000} {
			if err := q.Wait(WithCost(ctx, n)); err == nil || errors.Is(err, ErrWaitTooLong) || errors.Is(err, ErrQueueFull) {
				t.Errorf("cost %d: %v", n, err)
			}
		}
		if d := time.Since(log.start); d != 0 {
			t.Errorf("told after %v", d)
		}
		log.wg.Wait()
		b.SetLimit(0)
		if err := q.Wait(ctx); errors.Is(err, ErrWaitTooLong) || err == nil {
			t.Error(err)
		}
		conserved(t, q, 0)
	})
}

// opening is a Take that says an hour until open is set.
func opening(open *atomic.Bool) func(context.Context, int) (time.Duration, error) {
	return func(context.Context, int) (time.Duration, error) {
		if open.Load() {
			return 0, nil
		}
		return time.Hour, nil
	}
}

// TestForeignChangeHeard by whoever is the head then: also if the one who asked has left, and if the
// answer is on its way when the change comes.
func TestForeignChangeHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Bool
		r := &remote{take: opening(&open)}
		q := NewQueue(notifying{adjusting{r}}, QueueOptions{})
		var log journal
		ctx, cancel := context.WithCancel(t.Context())
		log.wait(q, ctx, 0)
		log.wait(q, t.Context(), 1)
		time.Sleep(sec)
		cancel()
		time.Sleep(sec)
		open.Store(true)
		r.change()
		log.wg.Wait()
		if d := time.Since(log.start); d != 2*sec || len(r.watchers) != 0 {
			t.Errorf("went after %v, %d watchers", d, len(r.watchers))
		}
		conserved(t, q, 0)
	})
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Bool
		r := &remote{}
		r.take = func(ctx context.Context, n int) (time.Duration, error) {
			wait, err := opening(&open)(ctx, n)
			time.Sleep(sec) // the answer's way
			return wait, err
		}
		q := NewQueue(notifying{adjusting{r}}, QueueOptions{})
		var log journal
		log.wait(q, t.Context(), 0)
		time.Sleep(sec / 2)
		open.Store(true)
		r.change()
		log.wg.Wait()
		if d := time.Since(log.start); d != 2*sec {
			t.Errorf("went after %v", d)
		}
		conserved(t, q, 0)
	})
}

// TestForeignPanics: what others gave before goes back, and a panicking Notify does not hold the line up.
func TestForeignPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &remote{take: after(0)}
		r := &remote{take: func(context.Context, int) (time.Duration, error) { panic("boom") }}
		own := NewBucket(1, 10)
		lim := All(r, own, adjusting{a})
		caught := func(f func()) {
			t.Helper()
			defer func() {
				if x := recover(); x != "boom" {
					t.Error("recovered", x)
				}
			}()
			f()
		}
		check := func(what string, q *Queue) {
			t.Helper()
			if a.taken != 3 || a.adjusted != -3 || own.Tokens() != 10 {
				t.Errorf("%s: taken %d, adjusted %d, %v tokens", what, a.taken, a.adjusted, own.Tokens())
			}
			a.taken, a.adjusted = 0, 0
			if q != nil {
				conserved(t, q, 0)
			}
		}
		caught(func() { lim.Take(t.Context(), 3) })
		check("All", nil)
		q := NewQueue(lim, QueueOptions{MaxInFlight: 1})
		caught(func() { q.Wait(WithCost(t.Context(), 3)) })
		check("Wait", q)
		caught(func() { q.Do(WithCost(t.Context(), 3), nil) })
		check("Do", q)
		q = NewQueue(notifying{adjusting{r}}, QueueOptions{})
		caught(func() { q.Wait(t.Context()) })
		if len(r.watchers) != 0 {
			t.Errorf("still watched by %d", len(r.watchers))
		}
		conserved(t, q, 0)
		q = NewQueue(brokenNotify{after(0)}, QueueOptions{})
		caught(func() { q.Wait(t.Context()) })
		conserved(t, q, 0)
	})
}

type brokenNotify struct {
	take func(context.Context, int) (time.Duration, error)
}

func (b brokenNotify) Take(ctx context.Context, n int) (time.Duration, error) { return b.take(ctx, n) }
func (brokenNotify) Notify(func()) func()                                     { panic("boom") }

// TestForeignPrediction is the wait last told and the units ahead at the smoothed rate of grants.
func TestForeignPrediction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := NewBucket(1, 1)
		q := NewQueue(&remote{take: far.Take}, QueueOptions{})
		var log journal
		for i := range 20 {
			log.wait(q, t.Context(), i)
		}
		time.Sleep(2500 * ms) // 3 went, at 0, 1 and 2 s
		const want = 17*sec + 500*ms
		ctx, cancel := context.WithTimeout(t.Context(), want-1)
		defer cancel()
		var e *Error
		if err := q.Wait(ctx); !errors.Is(err, ErrWaitTooLong) || !errors.As(err, &e) || e.Wait != want {
			t.Errorf("%+v, want a wait of %v", err, want)
		}
		ctx, cancel = context.WithTimeout(t.Context(), want)
		time.AfterFunc(100*ms, cancel)
		if err := q.Wait(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, ErrWaitTooLong) {
			t.Error(err)
		}
		log.wg.Wait()
		conserved(t, q, 0)
	})
}

// TestReopeningStarts: a start of Wait, of which no answer will come, stands for a success, so that a
// counted reopening goes on; those who stood in line when all was well yet are no exception.
func TestReopeningStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &remote{take: after(sec)}
		q := NewQueue(r, QueueOptions{})
		var log journal
		for i := range 5 {
			log.wait(q, t.Context(), i)
		}
		q.Pause(3 * sec)
		log.wg.Wait()
		for _, e := range log.sorted() {
			if d := e.at.Sub(log.start); d != 3*sec {
				t.Errorf("call %d went after %v", e.id, d)
			}
		}
		conserved(t, q, 0)
	})
}

// TestReopeningRandom: with no limit known, however pauses, ends, panics and cancels fall, all who stay go.
func TestReopeningRandom(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 8))
			var lim Limiter
			if seed%3 == 1 {
				lim = notifying{adjusting{&remote{take: NewBucket(500, 3).Take, trip: ms}}}
			}
			q := NewQueue(lim, QueueOptions{MaxInFlight: rng.IntN(4)})
			g, ctx := NewGroup(t.Context(), q)
			var wg sync.WaitGroup
			var went atomic.Int64
			sent, start := 0, time.Now()
			fn := func(takes time.Duration, panics bool) func(context.Context) error {
				return func(context.Context) error {
					went.Add(1)
					time.Sleep(takes)
					if panics {
						panic(nil)
					}
					return nil
				}
			}
			for range 300 {
				time.Sleep(time.Duration(rng.IntN(20)) * ms)
				takes := time.Duration(rng.IntN(40)) * ms
				switch rng.IntN(12) {
				case 0:
					q.Pause(time.Duration(rng.IntN(300)) * ms)
				case 1:
					q.Resume()
				case 2, 3, 4:
					sent++
					wg.Go(func() {
						if q.Wait(t.Context()) == nil {
							went.Add(1)
						}
					})
				case 5:
					c, cancel := context.WithTimeout(t.Context(), takes)
					wg.Go(func() { defer cancel(); q.Wait(c) })
				case 6:
					sent++
					g.Go(ctx, fn(takes, false))
				case 7:
					sent++
					wg.Go(func() { defer func() { recover() }(); q.Do(t.Context(), fn(takes, true)) })
				default:
					sent++
					ctx := WithPriority(t.Context(), sent%3)
					wg.Go(func() { q.Do(ctx, fn(takes, false)) })
				}
			}
			wg.Wait()
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
			if went.Load() != int64(sent) || time.Since(start) > 15*sec {
				t.Errorf("seed %d: %d of %d went, in %v", seed, went.Load(), sent, time.Since(start))
			}
			conserved(t, q, 0)
		})
	}
}
