package throttle

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/account"
	"github.com/go-throttle/throttle/internal/moment"
	"github.com/go-throttle/throttle/internal/queue"
)

// These tests are about the line itself: order, fairness, the one timer, late timers.

// TestOrder: strict priority, then arrival, every eighth to the one that has waited longest.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(NewLeaky(1), QueueOptions{})
		var log journal
		q.Wait(t.Context())
		for i, prio := range []int{0, 0, 0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 9, 9, -1} {
			log.wait(q, WithPriority(t.Context(), prio), i)
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
		q := NewQueue(NewLeaky(100), QueueOptions{})
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 3 { // each is back in line at once
			wg.Go(func() {
				for ctx.Err() == nil {
					q.Wait(WithPriority(ctx, 9))
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
			if limit := time.Duration(3+i+1) * queue.FairEvery * 10 * time.Millisecond; e.at.Sub(low.start) > limit {
				t.Errorf("low call %d went after %v, want at most %v", i, e.at.Sub(low.start), limit)
			}
		}
	})
}

// TestNobodyStarvesRandom: with random priorities a call that finds k others in the line when it
// arrives goes by the 8·(k+1)-th grant after, whatever comes behind it.
func TestNobodyStarvesRandom(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 2))
			q := NewQueue(NewLeaky(1000), QueueOptions{})
			q.Wait(t.Context())
			const n = 1500
			var log journal
			found := make([]int, n)   // how many were in the line on arrival
			granted := make([]int, n) // how many grants there had been
			for i := range n {
				time.Sleep(time.Duration(rng.IntN(1_800_000))) // faster than they go
				synctest.Wait()
				found[i], granted[i] = q.Stats().Waiting, len(log.sorted())
				log.wait(q, WithPriority(t.Context(), rng.IntN(100)), i)
			}
			log.wg.Wait()
			for nth, e := range log.sorted() {
				if turns := nth + 1 - granted[e.id]; turns > queue.FairEvery*(found[e.id]+1) {
					t.Errorf("seed %d: call %d found %d before it and went at the %d. grant", seed, e.id, found[e.id], turns)
				}
			}
		})
	}
}

// TestLineTimer: one timer, only while somebody waits, stopped when the last one leaves.
func TestLineTimer(t *testing.T) {
	for name, leave := range map[string]func(*testing.T, *Queue, context.CancelFunc){
		"cancelled": func(t *testing.T, q *Queue, cancel context.CancelFunc) { cancel() },
		"doomed":    func(t *testing.T, q *Queue, cancel context.CancelFunc) { q.Pause(24 * time.Hour) },
		"granted": func(t *testing.T, q *Queue, cancel context.CancelFunc) {
			q.q.Own.Accounts[0].(*account.Tank).SetLimit(1e9)
		},
		"refused": func(t *testing.T, q *Queue, cancel context.CancelFunc) {
			q.q.Own.Accounts[0].(*account.Tank).SetLimit(0)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := NewBucket(0.1, 1)
			q := NewQueue(b, QueueOptions{})
			q.Wait(t.Context())
			if q.q.Line != nil {
				t.Errorf("%s: there is a line, but nobody waits", name)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() { q.Wait(ctx) })
			}
			synctest.Wait()
			timer := q.q.Line.Timer
			time.Sleep(10 * time.Second)
			synctest.Wait()
			inside(q, func() {
				if q.q.Line.Timer != timer || q.q.Line.Count != 9 {
					t.Errorf("%s: %d wait, same timer %t", name, q.q.Line.Count, q.q.Line.Timer == timer)
				}
			})
			leave(t, q, cancel)
			wg.Wait()
			synctest.Wait() // for the timer's own callback
			if q.q.Line != nil {
				t.Errorf("%s: the line is still there", name)
			}
			if timer.Stop() {
				t.Errorf("%s: the timer was still running", name)
			}
			if q.q.Limits.Watchers() != 0 {
				t.Errorf("%s: still watching the limiter", name)
			}
		})
	}
}

// TestLateTimer: with a timer that is late, the take is reckoned as of the told moment, so nothing
// of the rate is lost. A late timer is played by calling the line back at that time.
func TestLateTimer(t *testing.T) {
	for _, late := range []time.Duration{0, time.Millisecond, moment.MaxLate, 8 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			q := NewQueue(NewLeaky(100), QueueOptions{})
			q.Wait(t.Context())
			start := time.Now()
			var log journal
			for i := range 3 {
				log.wait(q, t.Context(), i)
			}
			inside(q, func() { q.q.Line.Timer.Stop() })
			time.Sleep(time.Until(start.Add(10*time.Millisecond + late)))
			l := q.q.Line
			l.WakeUp()
			log.wg.Wait()
			lost := max(0, late-moment.MaxLate)
			want := []time.Duration{10*time.Millisecond + late, 20*time.Millisecond + lost, 30*time.Millisecond + lost}
			for i, e := range log.sorted() {
				if got := e.at.Sub(start); got != want[i] {
					t.Errorf("late by %v: call %d after %v, want %v", late, i, got, want[i])
				}
			}
		})
	}
}

// inside looks at a queue under its lock.
func inside(q *Queue, look func()) {
	q.q.Room.Mu.Lock()
	defer q.q.Room.Mu.Unlock()
	look()
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

type entry struct {
	id   int
	cost int
	at   time.Time
}

func (j *journal) add(id, cost int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entry{id, cost, time.Now()})
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
		j.add(id, ctxValue(ctx).cost)
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

// A timer that came late is asked for less often, and nothing is lost by that. One that is exact, as
// those in a bubble are, is not.
func TestLateTimerRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := NewQueue(NewBucket(100_000, 1), QueueOptions{})
		for range 301 {
			go q.Wait(ctx)
		}
		waiting := func(after time.Duration, want int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if n := q.Stats().Waiting; n != want {
				t.Fatalf("%d wait, want %d", n, want)
			}
		}
		waiting(0, 300)
		waiting(10*time.Microsecond, 299)
		waiting(10*time.Microsecond, 298)
		q.q.Line.Timer.Stop() // it was due in 10 us
		time.Sleep(time.Millisecond)
		q.q.Line.WakeUp()
		waiting(0, 198)
		waiting(99*time.Microsecond, 198)
		waiting(time.Microsecond, 188)
		cancel()
		synctest.Wait()
	})
}
