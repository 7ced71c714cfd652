package throttle

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// These tests are about the line itself: order, fairness, the one timer, late timers.

// TestWaiterSize: the number of waiters is what memory goes to.
func TestWaiterSize(t *testing.T) {
	if n := unsafe.Sizeof(waiter{}); n > 64 {
		t.Errorf("a waiter has %d bytes, want at most 64", n)
	}
}

// TestRanks compares the heaps with a plain sorted slice.
func TestRanks(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var r ranks
		var model []*waiter // by priority, then arrival
		order := func(a, b *waiter) int {
			return cmp.Or(cmp.Compare(b.prio, a.prio), cmp.Compare(a.seq, b.seq))
		}
		free := rng.Perm(2000) // places in the order of arrival, some of which come late, as a retry's
		for step := range 2000 {
			if rng.IntN(5) < 3 || len(model) == 0 {
				w := &waiter{seq: uint64(free[step] + 1), prio: int32(rng.IntN(5) - 2), cost: rng.IntN(4)}
				if rng.IntN(4) > 0 {
					w.seq = uint64(3000 + step) // most come in order
				}
				r.push(w)
				model = append(model, w)
				slices.SortFunc(model, order)
			} else {
				i := rng.IntN(len(model))
				r.remove(model[i])
				if model[i].index != -1 {
					t.Fatalf("seed %d, step %d: index %d after the removal", seed, step, model[i].index)
				}
				model = slices.Delete(model, i, i+1)
			}
			r.served = rng.Uint32()
			var want *waiter
			if len(model) > 0 {
				want = model[0]
				if r.served%fairEvery == fairEvery-1 {
					want = slices.MinFunc(model, func(a, b *waiter) int { return cmp.Compare(a.seq, b.seq) })
				}
			}
			if got := r.next(); got != want || r.count != len(model) {
				t.Fatalf("seed %d, step %d: next %+v of %d, want %+v of %d", seed, step, got, r.count, want, len(model))
			}
			prio, seq := int32(rng.IntN(5)-2), uint64(rng.IntN(6000))
			var units int64
			seen := map[*waiter]bool{}
			for _, w := range model {
				if w.prio > prio || w.prio == prio && w.seq < seq {
					units += int64(w.cost)
				}
			}
			if got, _ := r.ahead(prio, seq, 0); got != units {
				t.Fatalf("seed %d, step %d: %d units ahead, want %d", seed, step, got, units)
			}
			r.each(func(w *waiter) { seen[w] = true })
			if len(seen) != len(model) {
				t.Fatalf("seed %d, step %d: each saw %d of %d", seed, step, len(seen), len(model))
			}
		}
	}
}

// TestAsOf: a late timer is made up for, by 5 ms at most.
// Where quotas are told, lines have lanes. A costly head whose lane may not send that much yet blocks
// those behind it in its lane, whatever they cost, and nobody else.
func TestCostlyHeadOfALane(t *testing.T) {
	var r ranks
	costly, cheap, old, other := &waiter{seq: 2, cost: 5, prio: 1, lane: 1}, &waiter{seq: 3, cost: 1, lane: 1}, &waiter{seq: 1, cost: 1, lane: 1}, &waiter{seq: 4, cost: 1, lane: 2}
	now := time.Now()
	ready := func(lane uint8, n int) time.Time {
		if lane == 1 {
			return now.Add(time.Duration(n-1) * time.Second)
		}
		return now
	}
	r.push(costly)
	r.push(cheap)
	if w := r.nextIn(ready, now); w != costly {
		t.Errorf("the turn is that of call %d, want the costly one", w.seq)
	}
	r.push(other)
	if w := r.nextIn(ready, now); w != other {
		t.Errorf("the turn is that of call %d, want the one of the other lane", w.seq)
	}
	r.push(old)
	r.served = fairEvery - 1
	if w := r.nextIn(ready, now); w != old {
		t.Errorf("the eighth turn is that of call %d, want the oldest", w.seq)
	}
}

func TestAsOf(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct{ told, want time.Time }{
		{time.Time{}, now},
		{now.Add(time.Second), now}, // woken early, by an event
		{now, now},
		{now.Add(-time.Millisecond), now.Add(-time.Millisecond)},
		{now.Add(-maxLate), now.Add(-maxLate)},
		{now.Add(-time.Second), now.Add(-maxLate)},
	} {
		if got := asOf(c.told, now); !got.Equal(c.want) {
			t.Errorf("told %v: as of %v, want %v", c.told.Sub(now), got.Sub(now), c.want.Sub(now))
		}
	}
}

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
			if limit := time.Duration(3+i+1) * fairEvery * 10 * time.Millisecond; e.at.Sub(low.start) > limit {
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
				if turns := nth + 1 - granted[e.id]; turns > fairEvery*(found[e.id]+1) {
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
		"granted":   func(t *testing.T, q *Queue, cancel context.CancelFunc) { q.sole.SetLimit(1e9) },
		"refused":   func(t *testing.T, q *Queue, cancel context.CancelFunc) { q.sole.SetLimit(0) },
	} {
		synctest.Test(t, func(t *testing.T) {
			b := NewBucket(0.1, 1)
			q := NewQueue(b, QueueOptions{})
			q.Wait(t.Context())
			if q.line != nil {
				t.Errorf("%s: there is a line, but nobody waits", name)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() { q.Wait(ctx) })
			}
			synctest.Wait()
			timer := q.line.timer
			time.Sleep(10 * time.Second)
			synctest.Wait()
			inside(q, func() {
				if q.line.timer != timer || q.line.count != 9 {
					t.Errorf("%s: %d wait, same timer %t", name, q.line.count, q.line.timer == timer)
				}
			})
			leave(t, q, cancel)
			wg.Wait()
			synctest.Wait() // for the timer's own callback
			if q.line != nil {
				t.Errorf("%s: the line is still there", name)
			}
			if timer.Stop() {
				t.Errorf("%s: the timer was still running", name)
			}
			if b.tank.c.watchers != nil {
				t.Errorf("%s: still watching the limiter", name)
			}
		})
	}
}

// TestLateTimer: with a timer that is late, the take is reckoned as of the told moment, so nothing
// of the rate is lost. A late timer is played by calling the line back at that time.
func TestLateTimer(t *testing.T) {
	for _, late := range []time.Duration{0, time.Millisecond, maxLate, 8 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			q := NewQueue(NewLeaky(100), QueueOptions{})
			q.Wait(t.Context())
			start := time.Now()
			var log journal
			for i := range 3 {
				log.wait(q, t.Context(), i)
			}
			inside(q, func() { q.line.timer.Stop() })
			time.Sleep(time.Until(start.Add(10*time.Millisecond + late)))
			l := q.line
			l.wakeUp()
			log.wg.Wait()
			lost := max(0, late-maxLate)
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
	q.room.mu.Lock()
	defer q.room.mu.Unlock()
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
