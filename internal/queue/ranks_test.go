package queue

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/go-throttle/throttle/internal/moment"
)

// In whatever lanes they are, waiters of one priority are ordered by arrival.
func TestOrderedAcrossLanes(t *testing.T) {
	var r ranks
	for i, lane := range []uint8{2, 0, 1, 0} {
		r.push(&Waiter{Seq: uint64(i + 1), Lane: lane, Cost: 1})
	}
	r.push(&Waiter{Seq: 5, Prio: 1, Cost: 1})
	var got []uint64
	for _, w := range r.Ordered() {
		got = append(got, w.Seq)
	}
	if want := []uint64{5, 1, 2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("ordered %v, want %v", got, want)
	}
}

// TestWaiterSize: the number of waiters is what memory goes to.
func TestWaiterSize(t *testing.T) {
	if n := unsafe.Sizeof(Waiter{}); n > 64 {
		t.Errorf("a waiter has %d bytes, want at most 64", n)
	}
}

// TestRanks compares the heaps with a plain sorted slice.
func TestRanks(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var r ranks
		var model []*Waiter // by priority, then arrival
		order := func(a, b *Waiter) int {
			return cmp.Or(cmp.Compare(b.Prio, a.Prio), cmp.Compare(a.Seq, b.Seq))
		}
		free := rng.Perm(2000) // places in the order of arrival, some of which come late, as a retry's
		for step := range 2000 {
			if rng.IntN(5) < 3 || len(model) == 0 {
				w := &Waiter{Seq: uint64(free[step] + 1), Prio: int32(rng.IntN(5) - 2), Cost: rng.IntN(4)}
				if rng.IntN(4) > 0 {
					w.Seq = uint64(3000 + step) // most come in order
				}
				r.push(w)
				model = append(model, w)
				slices.SortFunc(model, order)
			} else {
				i := rng.IntN(len(model))
				r.remove(model[i])
				if model[i].Index != -1 {
					t.Fatalf("seed %d, step %d: index %d after the removal", seed, step, model[i].Index)
				}
				model = slices.Delete(model, i, i+1)
			}
			r.Served = rng.Uint32()
			var want *Waiter
			if len(model) > 0 {
				want = model[0]
				if r.Served%FairEvery == FairEvery-1 {
					want = slices.MinFunc(model, func(a, b *Waiter) int { return cmp.Compare(a.Seq, b.Seq) })
				}
			}
			if got := r.next(); got != want || r.Count != len(model) {
				t.Fatalf("seed %d, step %d: next %+v of %d, want %+v of %d", seed, step, got, r.Count, want, len(model))
			}
			prio, seq := int32(rng.IntN(5)-2), uint64(rng.IntN(6000))
			var units int64
			seen := map[*Waiter]bool{}
			for _, w := range model {
				if w.Prio > prio || w.Prio == prio && w.Seq < seq {
					units += int64(w.Cost)
				}
			}
			if got, _ := r.ahead(prio, seq, 0); got != units {
				t.Fatalf("seed %d, step %d: %d units ahead, want %d", seed, step, got, units)
			}
			r.Each(func(w *Waiter) { seen[w] = true })
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
	costly, cheap, old, other := &Waiter{Seq: 2, Cost: 5, Prio: 1, Lane: 1}, &Waiter{Seq: 3, Cost: 1, Lane: 1}, &Waiter{Seq: 1, Cost: 1, Lane: 1}, &Waiter{Seq: 4, Cost: 1, Lane: 2}
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
		t.Errorf("the turn is that of call %d, want the costly one", w.Seq)
	}
	r.push(other)
	if w := r.nextIn(ready, now); w != other {
		t.Errorf("the turn is that of call %d, want the one of the other lane", w.Seq)
	}
	r.push(old)
	r.Served = FairEvery - 1
	if w := r.nextIn(ready, now); w != old {
		t.Errorf("the eighth turn is that of call %d, want the oldest", w.Seq)
	}
}

func TestAsOf(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct{ told, want time.Time }{
		{time.Time{}, now},
		{now.Add(time.Second), now}, // woken early, by an event
		{now, now},
		{now.Add(-time.Millisecond), now.Add(-time.Millisecond)},
		{now.Add(-moment.MaxLate), now.Add(-moment.MaxLate)},
		{now.Add(-time.Second), now.Add(-moment.MaxLate)},
	} {
		if got := asOf(c.told, now); !got.Equal(c.want) {
			t.Errorf("told %v: as of %v, want %v", c.told.Sub(now), got.Sub(now), c.want.Sub(now))
		}
	}
}

// A Level whose line never empties counts past 2^31 waiters.
func TestLevelWrapsAround(t *testing.T) {
	var r ranks
	var all []*Waiter
	for seq := range uint64(9) {
		w := &Waiter{Seq: seq + 1, Cost: 1}
		r.push(w)
		if seq == 0 {
			w.Index, r.Scopes[0].root.begin = math.MaxInt32-2, math.MaxInt32-2
		}
		all = append(all, w)
	}
	for _, i := range []int{4, 1, 3, 0, 7, 6} {
		r.remove(all[i])
	}
	for _, seq := range []uint64{3, 6, 9} {
		if w := r.next(); w.Seq != seq {
			t.Fatalf("the turn is that of call %d, want %d", w.Seq, seq)
		}
		r.remove(r.next())
	}
	if r.Count != 0 || len(r.Scopes) != 0 {
		t.Errorf("%d waiters and %d scopes are left", r.Count, len(r.Scopes))
	}
}
