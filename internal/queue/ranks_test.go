package queue

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/race"
)

// In whatever scopes they are, waiters of one priority are ordered by arrival.
func TestOrderedAcrossLanes(t *testing.T) {
	var r ranks
	for i, number := range []uint8{2, 0, 1, 0} {
		r.push(&waiter{seq: uint64(i + 1), scope: number, cost: 1})
	}
	r.push(&waiter{seq: 5, prio: 1, cost: 1})
	var got []uint64
	for _, w := range r.ordered() {
		got = append(got, w.seq)
	}
	if want := []uint64{5, 1, 2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("ordered %v, want %v", got, want)
	}
}

// TestWaiterSize: the number of waiters is what memory goes to.
func TestWaiterSize(t *testing.T) {
	if n := unsafe.Sizeof(waiter{}); n > 80 { // a size class: one byte more takes 96
		t.Errorf("a waiter has %d bytes, want at most 80", n)
	}
}

// TestRanks compares the heaps with a plain sorted slice.
func TestRanks(t *testing.T) {
	for seed := range race.Pick(uint64(8), 30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var r ranks
		var model []*waiter // by priority, then arrival
		order := func(a, b *waiter) int {
			return cmp.Or(cmp.Compare(b.prio, a.prio), cmp.Compare(a.seq, b.seq))
		}
		free := rng.Perm(2000) // places in the order of arrival; some come late, as a retry's
		for step := range 2000 {
			if rng.IntN(5) < 3 || len(model) == 0 {
				w := &waiter{seq: uint64(free[step] + 1), prio: int32(rng.IntN(5) - 2), cost: rng.Int32N(4)}
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
// Where quotas are advertised, lines have scopes. A costly head whose number may not send that much yet blocks
// those behind it in its number, whatever they cost, and nobody else.
func TestCostlyHeadOfALane(t *testing.T) {
	var r ranks
	costly, cheap, old, other := &waiter{seq: 2, cost: 5, prio: 1, scope: 1}, &waiter{seq: 3, cost: 1, scope: 1}, &waiter{seq: 1, cost: 1, scope: 1}, &waiter{seq: 4, cost: 1, scope: 2}
	now := time.Now()
	ready := func(number uint8, n int) time.Time {
		if number == 1 {
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
		t.Errorf("the turn is that of call %d, want the one of the other number", w.seq)
	}
	r.push(old)
	r.served = fairEvery - 1
	if w := r.nextIn(ready, now); w != old {
		t.Errorf("the eighth turn is that of call %d, want the oldest", w.seq)
	}
}

func TestAsOf(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct{ noted, want time.Time }{
		{time.Time{}, now},
		{now.Add(time.Second), now}, // woken early, by an event
		{now, now},
		{now.Add(-time.Millisecond), now.Add(-time.Millisecond)},
		{now.Add(-limit.MaxLate), now.Add(-limit.MaxLate)},
		{now.Add(-time.Second), now.Add(-limit.MaxLate)},
	} {
		if got := asOf(c.noted, now); !got.Equal(c.want) {
			t.Errorf("advertised %v: as of %v, want %v", c.noted.Sub(now), got.Sub(now), c.want.Sub(now))
		}
	}
}

// A Level whose line never empties counts past 2^31 waiters.
func TestLevelWrapsAround(t *testing.T) {
	var r ranks
	var all []*waiter
	for seq := range uint64(9) {
		w := &waiter{seq: seq + 1, cost: 1}
		r.push(w)
		if seq == 0 {
			w.index, r.scopes[0].root.begin = math.MaxInt32-2, math.MaxInt32-2
		}
		all = append(all, w)
	}
	for _, i := range []int{4, 1, 3, 0, 7, 6} {
		r.remove(all[i])
	}
	for _, seq := range []uint64{3, 6, 9} {
		if w := r.next(); w.seq != seq {
			t.Fatalf("the turn is that of call %d, want %d", w.seq, seq)
		}
		r.remove(r.next())
	}
	if r.count != 0 || len(r.scopes) != 0 {
		t.Errorf("%d waiters and %d scopes are left", r.count, len(r.scopes))
	}
}
