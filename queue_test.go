package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
)

const (
	sec = time.Second
	ms  = time.Millisecond
)

// Each so many turns of a line, one goes to the call that has waited longest.
const fairEvery = 8

// conserved fails if somebody still waits in q or holds a slot.
func conserved(t *testing.T, q *throttle.Queue) {
	t.Helper()
	synctest.Wait()
	if s := q.Stats(); s.Waiting != 0 || s.InFlight != 0 {
		t.Errorf("left behind: %+v", s)
	}
}

// A journal notes who went when. Goroutines woken in the same instant note it in
// any order, so entries of one instant are sorted by id where that matters.
type journal struct {
	mu      sync.Mutex
	wg      sync.WaitGroup
	start   time.Time // of the first wait
	entries []entry
	errs    map[int]error
}

func (j *journal) add(id int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entry{id, time.Now()})
}

func (j *journal) fail(id int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.errs == nil {
		j.errs = map[int]error{}
	}
	j.errs[id] = err
}

func (j *journal) err(id int) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.errs[id]
}

func (j *journal) failures() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.errs)
}

// wait sends a caller into the line and returns when it stands there or has gone.
func (j *journal) wait(q interface{ Wait(context.Context) error }, ctx context.Context, id int) {
	if j.start.IsZero() {
		j.start = time.Now()
	}
	j.wg.Go(func() {
		if err := q.Wait(ctx); err != nil {
			j.fail(id, err)
			return
		}
		j.add(id)
	})
	synctest.Wait()
}

func (j *journal) sorted() []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := slices.Clone(j.entries)
	slices.SortStableFunc(s, func(a, b entry) int { return a.at.Compare(b.at) })
	return s
}

func (j *journal) ids() (ids []int) {
	for _, e := range j.sorted() {
		ids = append(ids, e.id)
	}
	return ids
}

type entry struct {
	id int
	at time.Time
}

// TestHalfCancel: of 10,000 waiters at 100/s half leave before their turn. Those left use every
// slot, in the order of arrival, and nothing is lost.
func TestHalfCancel(t *testing.T) {
	n := race.Pick(2000, 10_000)
	for name, c := range map[string]struct {
		lim throttle.Limiter
		due func(k int) time.Duration // of the k-th to go, from 0
	}{
		"bucket":  {throttle.NewBucket(100, 1), func(k int) time.Duration { return time.Duration(k) * 10 * ms }},
		"leaky":   {throttle.NewLeaky(100), func(k int) time.Duration { return time.Duration(k) * 10 * ms }},
		"fixed":   {throttle.NewFixedWindow(100, sec), func(k int) time.Duration { return time.Duration(k/100) * sec }},
		"sliding": {throttle.NewSlidingWindow(100, sec), func(k int) time.Duration { return time.Duration(k/100) * sec }},
		"all": {throttle.All(throttle.NewBucket(100, 1), throttle.NewSlidingWindow(1000, 10*sec)),
			func(k int) time.Duration { return time.Duration(k) * 10 * ms }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, 2))
				q := throttle.NewQueue(c.lim, throttle.QueueOptions{})
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
				if len(went) < n/2 || len(went) > n/2+100 {
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
				conserved(t, q)
			})
		})
	}
}

// TestRateChange re-plans at once while 1,000 wait.
func TestRateChange(t *testing.T) {
	for name, c := range map[string]struct {
		lim  interface{ SetLimit(rate.Limit) }
		from rate.Limit
	}{
		"bucket": {throttle.NewBucket(1, 1), 1},
		"leaky":  {throttle.NewLeaky(1), 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := throttle.NewQueue(c.lim.(throttle.Limiter), throttle.QueueOptions{})
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
			conserved(t, q)
		})
	}
}

// TestLimitZero: a limit of 0 sends all away who wait, with the limiter's own reason.
func TestLimitZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := throttle.NewBucket(1, 1)
		q := throttle.NewQueue(b, throttle.QueueOptions{})
		var log journal
		for i := range 100 {
			log.wait(q, t.Context(), i)
		}
		free := throttle.WithCost(t.Context(), 0)
		log.wait(q, free, 100)
		time.Sleep(1500 * ms)
		b.SetLimit(0)
		log.wg.Wait()
		if d := time.Since(log.start); d != 1500*ms || log.failures() != 98 || len(log.entries) != 3 {
			t.Errorf("after %v %d errors and %d grants", d, log.failures(), len(log.entries))
		}
		var e *throttle.Error
		if err := log.err(50); !errors.As(err, &e) || !strings.Contains(err.Error(), "limit is 0") {
			t.Error(err)
		}
		conserved(t, q)
	})
}

// TestBurstAndDebt: what SetBurst, Adjust and Reserve change is felt by those who wait.
func TestBurstAndDebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := throttle.NewBucket(1, 2)
		q := throttle.NewQueue(b, throttle.QueueOptions{})
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
		conserved(t, q)
	})
}

// These tests are about the line itself: order, fairness, the one timer, late timers.

// TestOrder: strict priority, then arrival, every eighth to the one that has waited longest.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.NewLeaky(1), throttle.QueueOptions{})
		var log journal
		q.Wait(t.Context())
		for i, prio := range []int{0, 0, 0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 9, 9, -1} {
			log.wait(q, throttle.WithPriority(t.Context(), prio), i)
		}
		log.wg.Wait()
		//           9s first, then 5s; the 8th and the 16th turn are the oldest's
		want := []int{13, 14, 3, 4, 5, 6, 7, 0, 8, 9, 10, 11, 12, 1, 2, 15}
		if got := log.ids(); !slices.Equal(got, want) {
			t.Errorf("order %v, want %v", got, want)
		}
		for i, e := range log.sorted() {
			if want := time.Duration(i+1) * time.Second; e.at.Sub(log.start) != want {
				t.Errorf("%d. went after %v, want %v", i, e.at.Sub(log.start), want)
			}
		}
	})
}

// TestNobodyStarves: under an endless stream of higher priority, the k-th oldest goes by the 8k-th grant.
func TestNobodyStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.NewLeaky(100), throttle.QueueOptions{})
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 3 { // each is back in line at once
			wg.Go(func() {
				for ctx.Err() == nil {
					q.Wait(throttle.WithPriority(ctx, 9))
				}
			})
		}
		synctest.Wait()
		var low journal
		for i := range 20 {
			low.wait(q, t.Context(), i)
		}
		low.wg.Wait()
		stop()
		wg.Wait()
		if got := low.ids(); !slices.IsSorted(got) {
			t.Errorf("order of the low ones %v", got)
		}
		for i, e := range low.sorted() {
			// the three in the stream were older than the first of the low ones
			if limit := time.Duration(3+i+1) * fairEvery * 10 * time.Millisecond; e.at.Sub(low.start) > limit {
				t.Errorf("low call %d went after %v, want at most %v", i, e.at.Sub(low.start), limit)
			}
		}
	})
}

// TestNobodyStarvesRandom: with random priorities a call that finds k others in the line when it
// arrives goes by the 8·(k+1)-th grant after, whatever comes behind it.
func TestNobodyStarvesRandom(t *testing.T) {
	for seed := range race.Pick(uint64(2), 5) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 2))
			q := throttle.NewQueue(throttle.NewLeaky(1000), throttle.QueueOptions{})
			q.Wait(t.Context())
			const n = 1500
			var log journal
			found := make([]int, n)   // how many were in the line on arrival
			granted := make([]int, n) // how many grants there had been
			for i := range n {
				time.Sleep(time.Duration(rng.IntN(1_800_000))) // faster than they go
				synctest.Wait()
				found[i], granted[i] = q.Stats().Waiting, len(log.sorted())
				log.wait(q, throttle.WithPriority(t.Context(), rng.IntN(100)), i)
			}
			log.wg.Wait()
			for nth, e := range log.sorted() {
				if turns := nth + 1 - granted[e.id]; turns > fairEvery*(found[e.id]+1) {
					t.Errorf("seed %d: call %d found %d before it and went at the %d. grant", seed, e.id, found[e.id], turns)
				}
			}
		})
	}
}

// TestSharesOfPriorities: what the docs of WithPriority promise while callers of every level always wait.
func TestSharesOfPriorities(t *testing.T) {
	for _, c := range []struct {
		each int       // callers of a level
		want []float64 // the share of each level, the lowest first, in %
	}{
		{1, []float64{12.5, 87.5}},
		{50, []float64{6.25, 6.25, 87.5}},
		{8, []float64{12.5 / 3, 12.5 / 3, 12.5 / 3, 87.5}},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := throttle.NewQueue(throttle.NewLeaky(100), throttle.QueueOptions{})
			ctx, cancel := context.WithCancel(t.Context())
			got := make([]atomic.Int64, len(c.want))
			var wg sync.WaitGroup
			for level := range c.want {
				for range c.each {
					wg.Go(func() {
						for q.Wait(throttle.WithPriority(ctx, level)) == nil {
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

// TestPauseResume: a pause ended by Resume is felt at once, and the reopening is paced though the
// bucket is full.
func TestPauseResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.NewBucket(100, 10), throttle.QueueOptions{})
		q.Pause(time.Hour)
		if s := q.Stats(); s.Reason != "gate:paused" || s.ClosedFor != time.Hour {
			t.Errorf("stats %+v", s)
		}
		var log journal
		for i := range 50 {
			log.wait(q, t.Context(), i)
		}
		time.Sleep(3 * time.Second)
		q.Resume()
		if s := q.Stats(); s.ClosedFor != 0 {
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
		conserved(t, q)
	})
}

// TestPauseEnds: never early, and in virtual time to the nanosecond.
func TestPauseEnds(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			q := throttle.NewQueue(throttle.NewBucket(1e6, 100), throttle.QueueOptions{})
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
			conserved(t, q)
		})
	}
}

// TestPauseLonger: the longest pause there is does not overflow.
func TestPauseLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.NewBucket(100, 10), throttle.QueueOptions{})
		q.Pause(math.MaxInt64)
		q.Pause(time.Second)
		if s := q.Stats(); s.ClosedFor < 100*365*24*time.Hour {
			t.Errorf("closed for %v", s.ClosedFor)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := q.Wait(ctx); !errors.Is(err, throttle.ErrWaitTooLong) {
			t.Error(err)
		}
		q.Resume()
		if err := q.Wait(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestPauseTurnsAway: those whose deadline lies within the closing leave when it begins.
func TestPauseTurnsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.NewBucket(100, 1), throttle.QueueOptions{})
		q.Wait(t.Context())
		var log journal
		for i, d := range []time.Duration{time.Minute, 5100 * ms, 3 * sec, 10 * sec} {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			log.wait(q, ctx, i)
		}
		q.Pause(5*sec - 1)
		synctest.Wait()
		if log.failures() != 1 || !errors.Is(log.err(2), throttle.ErrWaitTooLong) || !errors.Is(log.err(2), context.DeadlineExceeded) {
			t.Errorf("left at once: %v", log.errs)
		}
		var e *throttle.Error
		if errors.As(log.err(2), &e); e.Wait != 5*sec-1+20*ms { // two go before it
			t.Errorf("predicted %v", e.Wait)
		}
		q.Pause(9 * sec)
		synctest.Wait()
		if log.failures() != 2 || !errors.Is(log.err(1), throttle.ErrWaitTooLong) {
			t.Errorf("left at once: %v", log.errs)
		}
		log.wg.Wait()
		if ids := log.ids(); !slices.Equal(ids, []int{0, 3}) {
			t.Errorf("went: %v", ids)
		}
		conserved(t, q)
	})
}

// TestPauseTurnsAwayByPlace: one that cannot meet its deadline because of those before it leaves at once, too, and
// those behind move up.
func TestPauseTurnsAwayByPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.NewLeaky(1), throttle.QueueOptions{})
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
		q.Pause(5 * sec) // due at 10, 10 and 11 s now: the first of them leaves, the last leaves too
		synctest.Wait()
		if !errors.Is(log.err(5), throttle.ErrWaitTooLong) || log.err(6) != nil || !errors.Is(log.err(7), throttle.ErrWaitTooLong) {
			t.Errorf("left at once: %v", log.errs)
		}
		log.wg.Wait()
		conserved(t, q)
	})
}

// TestReopeningCounted: with no limit known one goes first, and each success lets one more be in
// flight, whether the others stood in line or come after; calls sent before the pause do not count.
func TestReopeningCounted(t *testing.T) {
	for _, stood := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			q := throttle.NewQueue(nil, throttle.QueueOptions{})
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
			conserved(t, q)
		})
	}
}

// TestReopeningStarts: a start of Wait, which gets no answer, stands for a success, so that a
// counted reopening goes on; those who stood in line when all was well yet are no exception.
func TestReopeningStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &remote{take: after(sec)}
		q := throttle.NewQueue(r, throttle.QueueOptions{})
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
		conserved(t, q)
	})
}

// TestReopeningRandom: with no limit known, however pauses, ends, panics and cancels fall, all who stay go.
func TestReopeningRandom(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 8))
			var lim throttle.Limiter
			if seed%3 == 1 {
				lim = notifying{adjusting{&remote{take: throttle.NewBucket(500, 3).Take, trip: ms}}}
			}
			q := throttle.NewQueue(lim, throttle.QueueOptions{MaxInFlight: rng.IntN(4)})
			g, ctx := throttle.NewGroup(t.Context(), q)
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
					ctx := throttle.WithPriority(t.Context(), sent%3)
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
			conserved(t, q)
		})
	}
}

// TestFailFast: a call that cannot start by its deadline, or within MaxWait, is refused on arrival
// and learns how long it would have taken.
func TestFailFast(t *testing.T) {
	for name, c := range map[string]struct {
		lim   func() throttle.Limiter
		opts  throttle.QueueOptions
		ahead int           // callers who came before; those go at once who can
		pause time.Duration // closed for
		cost  int
		want  time.Duration // predicted
	}{
		"bucket":      {lim: func() throttle.Limiter { return throttle.NewBucket(1, 1) }, ahead: 6, cost: 1, want: 6 * sec},
		"bucket cost": {lim: func() throttle.Limiter { return throttle.NewBucket(1, 10) }, ahead: 12, cost: 7, want: 9 * sec},
		"above burst": {lim: func() throttle.Limiter { return throttle.NewBucket(1, 3) }, ahead: 4, cost: 5, want: 4 * sec},
		"leaky":       {lim: func() throttle.Limiter { return throttle.NewLeaky(10) }, ahead: 10, cost: 1, want: 1 * sec},
		"fixed":       {lim: func() throttle.Limiter { return throttle.NewFixedWindow(3, sec) }, ahead: 9, cost: 1, want: 3 * sec},
		"sliding":     {lim: func() throttle.Limiter { return throttle.NewSlidingWindow(3, sec) }, ahead: 8, cost: 2, want: 3 * sec},
		"all": {lim: func() throttle.Limiter {
			return throttle.All(throttle.NewBucket(10, 1), throttle.NewFixedWindow(3, sec))
		}, ahead: 9, cost: 1, want: 3 * sec},
		"paused":        {lim: func() throttle.Limiter { return throttle.NewBucket(1, 10) }, cost: 1, pause: 7 * sec, want: 7 * sec},
		"paused, paced": {lim: func() throttle.Limiter { return throttle.NewBucket(1, 10) }, ahead: 2, cost: 1, pause: 7 * sec, want: 9 * sec},
		"paused, debt":  {lim: func() throttle.Limiter { return throttle.NewBucket(0.1, 1) }, ahead: 2, cost: 1, pause: 7 * sec, want: 27 * sec},
		"no limit":      {lim: func() throttle.Limiter { return nil }, cost: 1, pause: 7 * sec, want: 7 * sec},
		"slots unknown": {lim: func() throttle.Limiter { return throttle.NewBucket(10, 1) }, opts: throttle.QueueOptions{MaxInFlight: 1}, ahead: 6, cost: 1, want: 600 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			// run has one more call stand behind those ahead, and returns how long it took and how it ended.
			run := func(maxWait, timeout time.Duration) (took time.Duration, refused uint64, err error) {
				synctest.Test(t, func(t *testing.T) {
					c := c
					c.opts.MaxWait = maxWait
					q := throttle.NewQueue(c.lim(), c.opts)
					q.Pause(c.pause)
					var line journal
					for i := range c.ahead {
						line.wait(q, t.Context(), i)
					}
					ctx := throttle.WithCost(t.Context(), c.cost)
					if timeout > 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, timeout)
						defer cancel()
					}
					start := time.Now()
					err = q.Wait(ctx)
					took, refused = time.Since(start), q.Stats().Refused
					line.wg.Wait()
					if line.failures() > 0 {
						t.Errorf("those ahead: %v", line.errs)
					}
					conserved(t, q)
				})
				return took, refused, err
			}
			for _, byDeadline := range []bool{true, false} {
				maxWait, timeout := c.want-1, time.Duration(0)
				if byDeadline {
					maxWait, timeout = 0, c.want-1
				}
				took, refused, err := run(maxWait, timeout)
				var e *throttle.Error
				if !errors.As(err, &e) || !errors.Is(err, throttle.ErrWaitTooLong) || took != 0 {
					t.Fatalf("got %v after %v", err, took)
				}
				if e.Wait != c.want || e.Attempts != 0 || e.Key != "" || refused != 1 {
					t.Errorf("%+v, %d refused, want a wait of %v", *e, refused, c.want)
				}
				if errors.Is(err, context.DeadlineExceeded) != byDeadline || e.Timeout() != byDeadline {
					t.Errorf("%v matches DeadlineExceeded, Timeout %t; want %t", err, e.Timeout(), byDeadline)
				}
			}
			// The deadline's timer and the grant fall into one instant: either may win.
			if took, _, err := run(c.want, c.want); err != nil && (!errors.Is(err, context.DeadlineExceeded) || errors.Is(err, throttle.ErrWaitTooLong)) || took != c.want {
				t.Errorf("%v after %v, want %v", err, took, c.want)
			}
			if took, _, err := run(c.want, 0); err != nil || took != c.want {
				t.Errorf("%v after %v, want %v", err, took, c.want)
			}
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
				var lim throttle.Limiter
				switch kind {
				case "bucket":
					lim, most = throttle.NewBucket(rate.Limit(1+rng.IntN(100)), 1+rng.IntN(9)), 12
				case "leaky":
					lim, most = throttle.NewLeaky(rate.Limit(1+rng.IntN(100))), 4
				case "fixed":
					lim = throttle.NewFixedWindow(1+rng.IntN(50), sec)
				case "sliding":
					lim = throttle.NewSlidingWindow(1+rng.IntN(50), sec)
				case "all":
					lim = throttle.All(throttle.NewBucket(20, 5), throttle.NewLeaky(rate.Limit(10+rng.IntN(20))))
				}
				q := throttle.NewQueue(lim, throttle.QueueOptions{})
				if seed%2 == 1 {
					q.Pause(time.Duration(rng.Int64N(int64(3 * sec))))
				}
				start := time.Now()
				var due []time.Duration
				var log journal
				for i := range 200 {
					cost := 1 + rng.IntN(most)
					// One who has no time to wait is refused, and learns how long it would have been.
					soon, cancel := context.WithTimeout(throttle.WithCost(t.Context(), cost), 1)
					err := q.Wait(soon)
					cancel()
					var e *throttle.Error
					if err == nil {
						due = append(due, time.Since(start))
						log.add(i)
					} else if errors.As(err, &e) {
						due = append(due, time.Since(start)+e.Wait)
						log.wait(q, throttle.WithCost(t.Context(), cost), i)
					}
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

// TestReasons: if several hold, a full line is named before a wait that is too long, and a ctx that has
// ended before both.
func TestReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done, cancel := context.WithCancel(t.Context())
		cancel()
		late, stop := context.WithTimeout(t.Context(), sec/2)
		defer stop()
		expired, stop2 := context.WithDeadline(t.Context(), time.Now().Add(-1))
		defer stop2()
		for _, c := range []struct {
			name string
			opts throttle.QueueOptions
			ctx  context.Context
			want error
			not  error
		}{
			{"full, too long, ended", throttle.QueueOptions{MaxWaiting: 1, MaxWait: sec}, done, context.Canceled, throttle.ErrQueueFull},
			{"full, too long", throttle.QueueOptions{MaxWaiting: 1, MaxWait: sec}, late, throttle.ErrQueueFull, throttle.ErrWaitTooLong},
			{"too long for both", throttle.QueueOptions{MaxWait: sec}, late, context.DeadlineExceeded, throttle.ErrQueueFull},
			{"too long for the deadline", throttle.QueueOptions{}, late, throttle.ErrWaitTooLong, throttle.ErrQueueFull},
			{"too long for MaxWait", throttle.QueueOptions{MaxWait: sec}, t.Context(), throttle.ErrWaitTooLong, context.DeadlineExceeded},
			{"expired", throttle.QueueOptions{MaxWait: sec}, expired, context.DeadlineExceeded, throttle.ErrWaitTooLong},
		} {
			q := throttle.NewQueue(throttle.NewBucket(1, 1), c.opts)
			var log journal
			log.wait(q, t.Context(), 0)
			log.wait(q, t.Context(), 1) // waits for a second
			err := q.Wait(c.ctx)
			var e *throttle.Error
			if !errors.Is(err, c.want) || errors.Is(err, c.not) || !errors.As(err, &e) {
				t.Errorf("%s: %v, want %v and not %v", c.name, err, c.want, c.not)
			}
			defer conserved(t, q)
			defer log.wg.Wait()
		}
	})
}

// TestMaxWaiting counts who waits, not who goes.
func TestMaxWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.NewBucket(10, 5), throttle.QueueOptions{MaxWaiting: 3})
		var log journal
		for i := range 10 {
			log.wait(q, t.Context(), i)
		}
		if s := q.Stats(); s.Waiting != 3 || s.Sent != 5 || s.Refused != 2 || log.failures() != 2 {
			t.Errorf("%+v, errors %v", s, log.errs)
		}
		time.Sleep(100 * ms)
		synctest.Wait()
		log.wait(q, t.Context(), 10) // one more may wait again
		log.wait(q, t.Context(), 11)
		log.wg.Wait()
		for _, i := range []int{8, 9, 11} {
			if err := log.err(i); !errors.Is(err, throttle.ErrQueueFull) {
				t.Error(i, err)
			}
		}
		if log.err(10) != nil {
			t.Error(log.err(10))
		}
		conserved(t, q)
	})
}

// TestCosts: nothing, less than nothing, and more than can be paid.
func TestCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := throttle.NewBucket(1, 2)
		q := throttle.NewQueue(b, throttle.QueueOptions{})
		for _, n := range []int{-1, math.MinInt, 3603, math.MaxInt} {
			var e *throttle.Error
			if err := q.Wait(throttle.WithCost(t.Context(), n)); !errors.As(err, &e) || !strings.Contains(err.Error(), fmt.Sprint(min(max(n, math.MinInt32), math.MaxInt32))) {
				t.Errorf("cost %d: %v", n, err)
			}
			if err := q.Do(throttle.WithCost(t.Context(), n), nil); !errors.As(err, &e) {
				t.Errorf("cost %d: %v", n, err)
			}
			conserved(t, q)
		}
		if b.Tokens() != 2 {
			t.Errorf("%v tokens", b.Tokens())
		}
		var log journal
		log.wait(q, throttle.WithCost(t.Context(), 5), 0) // a debt of 3
		log.wait(q, throttle.WithCost(t.Context(), 0), 1) // nobody is before it
		log.wait(q, t.Context(), 2)
		log.wait(q, throttle.WithCost(t.Context(), 0), 3) // but now there is
		log.wg.Wait()
		want := []time.Duration{0, 0, 4 * sec, 4 * sec}
		for i, e := range log.sorted() {
			if got := e.at.Sub(log.start); got != want[i] {
				t.Errorf("%d. after %v, want %v", i, got, want[i])
			}
		}
		conserved(t, q)
	})
}

// TestImpossibleCost is refused at once, whoever waits and whatever the deadline.
func TestImpossibleCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := throttle.NewBucket(1, 1)
		q := throttle.NewQueue(b, throttle.QueueOptions{MaxWaiting: 5})
		var log journal
		for i := range 6 {
			log.wait(q, t.Context(), i)
		}
		ctx, cancel := context.WithTimeout(t.Context(), sec)
		defer cancel()
		for _, n := range []int{-3, 10_000} {
			if err := q.Wait(throttle.WithCost(ctx, n)); err == nil || errors.Is(err, throttle.ErrWaitTooLong) || errors.Is(err, throttle.ErrQueueFull) {
				t.Errorf("cost %d: %v", n, err)
			}
		}
		if d := time.Since(log.start); d != 0 {
			t.Errorf("refused after %v", d)
		}
		log.wg.Wait()
		b.SetLimit(0)
		if err := q.Wait(ctx); errors.Is(err, throttle.ErrWaitTooLong) || err == nil {
			t.Error(err)
		}
		conserved(t, q)
	})
}

// A queue before a zero limiter refuses costs, lets calls without one go, and can say how long they wait.
func TestQueueBeforeAZeroLimiter(t *testing.T) {
	for name, zero := range zeroLimiters() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := throttle.NewQueue(zero(), throttle.QueueOptions{MaxInFlight: 1})
				free := throttle.WithCost(t.Context(), 0)
				soon, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				second := func(context.Context) error { time.Sleep(time.Second); return nil }
				var wg sync.WaitGroup
				for range 3 { // one holds the slot, two wait for it
					wg.Go(func() {
						if err := q.Do(free, second); err != nil {
							t.Errorf("cost 0: %v", err)
						}
					})
				}
				synctest.Wait()
				for _, ctx := range []context.Context{soon, t.Context()} {
					wg.Go(func() {
						if err := q.Wait(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("cost 1 in line: %v", err)
						}
					})
					synctest.Wait()
					wg.Go(func() {
						if err := q.Do(throttle.WithCost(ctx, 0), second); err != nil {
							t.Errorf("cost 0 behind cost 1: %v", err)
						}
					})
					synctest.Wait()
				}
				q.Pause(time.Second)
				q.Stats()
				q.Resume()
				if wg.Wait(); q.Stats().Waiting != 0 || q.Stats().Tokens > 0 || q.Stats().Limit != 0 {
					t.Errorf("%+v", q.Stats())
				}
				q = throttle.NewQueue(zero(), throttle.QueueOptions{MaxWait: time.Second, MaxWaiting: 1})
				q.Pause(time.Second / 2)
				for _, ctx := range []context.Context{soon, t.Context()} {
					if err := q.Wait(ctx); err == nil || errors.Is(err, throttle.ErrWaitTooLong) {
						t.Errorf("cost 1: %v", err)
					}
					if err := q.Wait(throttle.WithCost(ctx, 0)); err != nil {
						t.Errorf("cost 0: %v", err)
					}
				}
			})
		})
	}
}

// TestSlots: never more in flight than MaxInFlight; a slot comes back after an error, a panic and
// an exit; Wait takes none.
func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := throttle.NewBucket(rate.Inf, 0)
		q := throttle.NewQueue(b, throttle.QueueOptions{MaxInFlight: 2})
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
		conserved(t, q)
	})
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(nil, throttle.QueueOptions{MaxInFlight: 1})
		q.Do(t.Context(), func(ctx context.Context) error {
			if err := q.Wait(ctx); err != nil {
				t.Error(err)
			}
			return nil
		})
		conserved(t, q)
	})
}

// TestNoUnitsWithoutSlot: a head that waits for its slot has taken no units, and one that leaves then
// loses none.
func TestNoUnitsWithoutSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := throttle.NewBucket(1, 5)
		q := throttle.NewQueue(b, throttle.QueueOptions{MaxInFlight: 1})
		var wg sync.WaitGroup
		wg.Go(func() { q.Do(t.Context(), func(context.Context) error { time.Sleep(10 * sec); return nil }) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*sec)
		defer cancel()
		if err := q.Do(ctx, nil); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, throttle.ErrWaitTooLong) {
			t.Error(err)
		}
		if b.Tokens() != 5 {
			t.Error(b.Tokens(), "tokens")
		}
		wg.Wait()
		conserved(t, q)
	})
}

// Slots are named only if nothing else held the line up.
func TestOnlySlotsAreNamed(t *testing.T) {
	const inFlight = "1 of 1 calls in flight"
	free := func() throttle.Limiter { return throttle.NewBucket(rate.Inf, 0) }
	slow := func() throttle.Limiter { return throttle.NewBucket(0.01, 1) }
	hold := func(ctx context.Context) error { <-ctx.Done(); return nil }
	for _, c := range []struct {
		name string
		lim  func() throttle.Limiter
		opts throttle.QueueOptions
		do   func(q *throttle.Queue, ctx context.Context)       // before the call
		call func(q *throttle.Queue, ctx context.Context) error // nil: Do
		want bool
	}{
		{name: "a slot", lim: free, opts: throttle.QueueOptions{MaxInFlight: 1}, want: true},
		{name: "no slot wanted, behind one who wants it", lim: free, opts: throttle.QueueOptions{MaxInFlight: 1}, want: true,
			do: func(q *throttle.Queue, ctx context.Context) { go q.Do(throttle.WithPriority(ctx, 1), hold) }, call: (*throttle.Queue).Wait},
		{name: "no bound", lim: slow},
		{name: "units too", lim: slow, opts: throttle.QueueOptions{MaxInFlight: 1}},
		{name: "paused", lim: free, opts: throttle.QueueOptions{MaxInFlight: 1}, do: func(q *throttle.Queue, _ context.Context) { q.Pause(time.Hour) }},
		{name: "head that wants none", lim: slow, opts: throttle.QueueOptions{MaxInFlight: 1},
			do: func(q *throttle.Queue, ctx context.Context) { go q.Wait(throttle.WithPriority(ctx, 1)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, end := context.WithCancel(t.Context())
				defer end()
				q := throttle.NewQueue(c.lim(), c.opts)
				go q.Do(all, hold)
				synctest.Wait()
				if c.do != nil {
					c.do(q, all)
					synctest.Wait()
				}
				ctx, cancel := context.WithCancel(all)
				time.AfterFunc(time.Second, cancel)
				call := c.call
				if call == nil {
					call = func(q *throttle.Queue, ctx context.Context) error { return q.Do(ctx, hold) }
				}
				err := call(q, ctx)
				if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), inFlight) != c.want || strings.Contains(err.Error(), "bodies") {
					t.Errorf("error %q; names slots: want %v, and no bodies", err, c.want)
				}
			})
		})
	}
}

// TestNewQueuePanics: nonsense is named.
func TestNewQueuePanics(t *testing.T) {
	for want, o := range map[string]throttle.QueueOptions{
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
			throttle.NewQueue(nil, o)
		}()
	}
}

// The wait behind a window that is still full is that of the limit which holds the calls, not of the slowest rate.
func TestPredictOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.All(throttle.NewBucket(10, 1), throttle.NewFixedWindow(1000, time.Hour)), throttle.QueueOptions{})
		if got := q.Predict(1); got != 0 {
			t.Errorf("the first call: %v, want 0s", got)
		}
		if got := q.Predict(31); got != 3*time.Second {
			t.Errorf("31 calls: %v, want 3s", got)
		}
		if got := q.Predict(1001); got != time.Hour {
			t.Errorf("1001 calls: %v, want 1h", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go q.Wait(throttle.WithCost(ctx, 1000)) // takes the whole window
		synctest.Wait()
		var e *throttle.Error
		if err := q.Wait(ctx); !errors.As(err, &e) || e.Wait != time.Hour || e.Reason != "limit" {
			t.Errorf("%+v", err)
		}
	})
}

// Predict says -1 if nobody can know, and 0 for no calls.
func TestPredictUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foreign := throttle.NewQueue(foreignLimiter{}, throttle.QueueOptions{})
		never := throttle.NewQueue(throttle.NewBucket(0, 1), throttle.QueueOptions{})
		never.Wait(throttle.WithCost(t.Context(), 1))
		for name, c := range map[string]struct{ got, want time.Duration }{
			"a foreign limiter": {foreign.Predict(1), -1}, "no calls": {foreign.Predict(0), 0}, "fewer": {foreign.Predict(-3), 0},
			"a limit of 0": {never.Predict(2), -1}, "no limit": {throttle.NewQueue(nil, throttle.QueueOptions{}).Predict(1000), 0},
		} {
			if c.got != c.want {
				t.Errorf("%s: %v, want %v", name, c.got, c.want)
			}
		}
		paused := throttle.NewQueue(nil, throttle.QueueOptions{})
		paused.Pause(time.Minute)
		if got := paused.Predict(1); got != time.Minute {
			t.Errorf("behind a pause: %v, want 1m", got)
		}
	})
}

// A foreignLimiter gives units to nobody.
type foreignLimiter struct{}

func (foreignLimiter) Take(context.Context, int) (time.Duration, error) { return time.Second, nil }

// TestOldest: Stats says when the eldest call in line came, whoever leaves.
func TestOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(7, 7))
		q := throttle.NewQueue(throttle.NewBucket(20, 1), throttle.QueueOptions{})
		if got := q.Stats().Oldest; !got.IsZero() {
			t.Errorf("nobody waits, and the oldest came %v", got)
		}
		waiting := map[int]time.Time{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 4000 {
			ctx := t.Context()
			if rng.IntN(2) == 0 {
				var stop context.CancelFunc
				ctx, stop = context.WithTimeout(ctx, time.Duration(rng.IntN(20_000))*ms)
				defer stop()
			}
			if rng.IntN(50) == 0 {
				ctx = throttle.WithPriority(ctx, 1)
			}
			wg.Go(func() {
				mu.Lock()
				waiting[i] = time.Now()
				mu.Unlock()
				q.Wait(ctx)
				mu.Lock()
				delete(waiting, i)
				mu.Unlock()
			})
			time.Sleep(time.Duration(rng.IntN(50)) * ms)
			synctest.Wait()
			mu.Lock()
			want, nobody := time.Now(), len(waiting) == 0
			for _, at := range waiting {
				if at.Before(want) {
					want = at
				}
			}
			mu.Unlock()
			got := q.Stats().Oldest
			if nobody {
				if !got.IsZero() {
					t.Fatalf("call %d: nobody waits, and the oldest came %v", i, got)
				}
				continue
			}
			if !got.Equal(want) {
				t.Fatalf("call %d: the oldest has waited %v, Stats says %v", i, time.Since(want), time.Since(got))
			}
		}
		wg.Wait()
	})
}

// TestLoopAroundRefusals: a loop that calls again at once is slowed to about one call in a millisecond, so that time goes
// on; a few refusals are not slowed, nor those of other keys.
func TestLoopAroundRefusals(t *testing.T) {
	never := func(ctx context.Context) context.Context { return throttle.WithMaxWait(ctx, -1) }
	empty := func() *throttle.Bucket {
		b := throttle.NewBucket(0.001, 1)
		b.Allow()
		return b
	}
	fn := func(context.Context) error { return nil }
	closed := func(q *throttle.Queue) *throttle.Queue { q.Shutdown(t.Context()); return q }
	transport := func(tr *throttle.Transport, url string) func(context.Context) error {
		tr.Base = newUpstream(0, always(200))
		return func(ctx context.Context) error { _, err := status(tr, ctx, url); return err }
	}
	for name, call := range map[string]func() func(context.Context) error{
		"Queue.Wait": func() func(context.Context) error { return throttle.NewQueue(empty(), throttle.QueueOptions{}).Wait },
		"Queue.Do": func() func(context.Context) error {
			q := throttle.NewQueue(empty(), throttle.QueueOptions{})
			return func(ctx context.Context) error { return q.Do(ctx, fn) }
		},
		"a closed Queue": func() func(context.Context) error {
			return closed(throttle.NewQueue(empty(), throttle.QueueOptions{})).Wait
		},
		"Bucket.Wait": func() func(context.Context) error { return empty().Wait },
		"a cost that can never be paid": func() func(context.Context) error {
			q := throttle.NewQueue(throttle.NewBucket(0, 1), throttle.QueueOptions{})
			return func(ctx context.Context) error { return q.Wait(ctx) }
		},
		"Transport": func() func(context.Context) error {
			return transport(&throttle.Transport{Limiter: empty()}, "http://a/")
		},
		"a closed Transport": func() func(context.Context) error {
			tr := &throttle.Transport{}
			call := transport(tr, "http://a/")
			tr.Shutdown(t.Context())
			return call
		},
		"an impossible Transport": func() func(context.Context) error {
			return transport(&throttle.Transport{MaxInFlight: -1}, "http://a/")
		},
		"a nil limiter for a key": func() func(context.Context) error {
			return transport(&throttle.Transport{LimiterFor: func(string) throttle.Limiter { return (*throttle.Bucket)(nil) }}, "http://a/")
		},
		"no URL": func() func(context.Context) error {
			tr := &throttle.Transport{Base: newUpstream(0, always(200))}
			return func(ctx context.Context) error {
				_, err := tr.RoundTrip((&http.Request{}).WithContext(ctx))
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				call := call()
				ctx, cancel := context.WithTimeout(t.Context(), 3*sec)
				defer cancel()
				start, turns := time.Now(), 0
				for ; ctx.Err() == nil; turns++ {
					if err := call(never(ctx)); err == nil {
						t.Fatal("it was not refused")
					}
					if turns == 98 && time.Since(start) > 0 {
						t.Errorf("99 refusals took %v", time.Since(start))
					}
				}
				if turns < 3000 || turns > 3200 || time.Since(start) > 3*sec {
					t.Errorf("%d turns in %v", turns, time.Since(start))
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{Base: newUpstream(0, always(200)), LimiterFor: func(string) throttle.Limiter { return empty() }}
		start := time.Now()
		for i := range 2000 {
			if _, err := status(tr, never(t.Context()), fmt.Sprintf("http://h%d/", i%40)); err == nil {
				t.Fatal("it was not refused")
			}
			empty().Allow()
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("50 refusals of each of 40 keys took %v", d)
		}
	})
}

// TestPredictOfSlots: while all slots are taken nobody knows when one comes back, and where more calls come than there are
// slots it takes a limit that is slower than they are.
func TestPredictOfSlots(t *testing.T) {
	tenASecond := func() throttle.Limiter { return throttle.NewBucket(10, 1) }
	for name, c := range map[string]struct {
		lim       throttle.Limiter
		trip      time.Duration
		all       bool // Transport.MaxInFlight instead of Queue.MaxInFlight
		ended     int  // calls before
		held      int  // calls at once
		n         int
		want      time.Duration
		otherKeys bool // hold the slots
	}{
		"100 wait for 4 slots":            {trip: 2 * sec, held: 104, n: 1, want: -1},
		"100 wait for 4 slots of all":     {trip: 2 * sec, held: 104, n: 1, want: -1, all: true},
		"all are taken":                   {trip: 2 * sec, held: 4, n: 1, want: -1},
		"all of all keys are taken":       {trip: 2 * sec, held: 4, n: 1, want: -1, all: true},
		"all of all are taken by others":  {trip: 2 * sec, held: 4, n: 1, want: -1, all: true, otherKeys: true},
		"one is free":                     {trip: 2 * sec, ended: 1, held: 3, n: 1},
		"one is free for two":             {trip: 2 * sec, ended: 1, held: 3, n: 2, want: -1},
		"other keys have theirs":          {trip: 2 * sec, ended: 1, held: 4, n: 1, otherKeys: true},
		"nobody calls":                    {trip: 2 * sec, ended: 1, n: 4},
		"a limit is slower":               {trip: 50 * ms, ended: 1, n: 50, lim: tenASecond(), want: 5 * sec},
		"a limit is quicker":              {trip: 2 * sec, ended: 1, n: 50, lim: tenASecond(), want: -1},
		"of all, a limit that is slower":  {trip: 50 * ms, ended: 1, n: 50, lim: tenASecond(), want: 5 * sec, all: true},
		"of all, a limit that is quicker": {trip: 2 * sec, ended: 1, n: 50, lim: tenASecond(), want: -1, all: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := &throttle.Transport{Base: newUpstream(c.trip, always(200)), Limiter: c.lim}
				if c.all {
					tr.MaxInFlight = 4
				} else {
					tr.Queue.MaxInFlight = 4
				}
				ctx, cancel := context.WithCancel(t.Context())
				for range c.ended {
					status(tr, ctx, "http://a/")
				}
				key := "a"
				if c.otherKeys {
					key = "b"
				}
				for range c.held {
					go status(tr, ctx, "http://"+key+"/")
				}
				synctest.Wait()
				if got := tr.Predict("a", c.n); (got-c.want).Abs() > 60*ms || (got < 0) != (c.want < 0) {
					t.Errorf("%v, want %v", got, c.want)
				}
				cancel()
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(nil, throttle.QueueOptions{MaxInFlight: 1})
		go q.Do(t.Context(), func(context.Context) error { time.Sleep(sec); return nil })
		synctest.Wait()
		if got := q.Predict(1); got != -1 {
			t.Errorf("%v while the slot of Do is taken", got)
		}
		time.Sleep(2 * sec)
		if got := q.Predict(1); got != 0 {
			t.Errorf("%v when it is free", got)
		}
	})
}
