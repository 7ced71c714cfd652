package throttle

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// ranks orders waiters: by priority, then by arrival, with every fairEvery-th
// turn for the oldest. One heap by arrival for each priority in use; priorities
// are expected to be few.
type ranks struct {
	levels []*level // highest priority first, then by lane; none empty
	count  int
	served uint32 // turns given
}

type level struct {
	prio  int32
	lane  uint8
	units int64
	heap  []*waiter // by seq
	last  uint64    // the latest seq that ever came
}

func (r *ranks) find(w *waiter) (int, bool) {
	return slices.BinarySearchFunc(r.levels, w, func(l *level, w *waiter) int {
		return cmp.Or(cmp.Compare(w.prio, l.prio), cmp.Compare(l.lane, w.lane))
	})
}

func (r *ranks) push(w *waiter) {
	i, ok := r.find(w)
	if !ok {
		r.levels = slices.Insert(r.levels, i, &level{prio: w.prio, lane: w.lane})
	}
	l := r.levels[i]
	l.units += int64(w.cost)
	l.last = max(l.last, w.seq)
	heap.Push(l, w)
	r.count++
}

func (r *ranks) remove(w *waiter) {
	i, _ := r.find(w)
	l := r.levels[i]
	l.units -= int64(w.cost)
	heap.Remove(l, int(w.index))
	r.count--
	if len(l.heap) == 0 {
		r.levels = slices.Delete(r.levels, i, i+1)
	}
}

// next is the waiter whose turn it is; nil if there is none.
func (r *ranks) next() *waiter { return r.nextIn(nil, time.Time{}) }

// nextIn is next where not every lane may go now: the first of those that may, or
// the one that may go soonest. ready tells when a lane may send so many units; nil:
// all may.
func (r *ranks) nextIn(ready func(lane uint8, n int) time.Time, now time.Time) *waiter {
	var best, soonest *waiter
	var at time.Time
	oldest := r.served%fairEvery == fairEvery-1
	for _, l := range r.levels {
		w := l.heap[0]
		if ready != nil {
			if w != r.first(l.lane, oldest) {
				continue // a costly one blocks those behind it in its lane
			}
			if m := ready(l.lane, w.cost); m.After(now) {
				if soonest == nil || m.Before(at) {
					soonest, at = w, m
				}
				continue
			}
		}
		if best == nil || w.seq < best.seq && (oldest || w.prio == best.prio) {
			best = w
		}
	}
	return cmp.Or(best, soonest)
}

// first is the waiter of a lane whose turn it is.
func (r *ranks) first(lane uint8, oldest bool) (w *waiter) {
	for _, l := range r.levels {
		if l.lane == lane && (w == nil || oldest && l.heap[0].seq < w.seq) {
			w = l.heap[0]
		}
	}
	return w
}

// move puts all into one lane; they are in lane 0.
func (r *ranks) move(lane uint8) {
	for _, l := range r.levels {
		l.lane = lane
	}
	r.each(func(w *waiter) { w.lane = lane })
}

// ahead counts the units that go before one of that priority and place, and those of
// them in its lane.
func (r *ranks) ahead(prio int32, seq uint64, lane uint8) (all, mine int64) {
	for _, l := range r.levels {
		units := int64(0)
		switch {
		case l.prio > prio, l.prio == prio && seq > l.last:
			units = l.units
		case l.prio == prio: // it comes back to its old place
			for _, w := range l.heap {
				if w.seq < seq {
					units += int64(w.cost)
				}
			}
		}
		if all += units; l.lane == lane {
			mine += units
		}
	}
	return all, mine
}

// ordered returns all waiters in the order of priority and arrival.
func (r *ranks) ordered() []*waiter {
	all := make([]*waiter, 0, r.count)
	r.each(func(w *waiter) { all = append(all, w) })
	slices.SortFunc(all, func(a, b *waiter) int {
		return cmp.Or(cmp.Compare(b.prio, a.prio), cmp.Compare(a.seq, b.seq))
	})
	return all
}

// each visits all waiters; f may not change the line.
func (r *ranks) each(f func(*waiter)) {
	for _, l := range r.levels {
		for _, w := range l.heap {
			f(w)
		}
	}
}

// What container/heap needs.

func (l *level) Len() int           { return len(l.heap) }
func (l *level) Less(i, j int) bool { return l.heap[i].seq < l.heap[j].seq }

func (l *level) Swap(i, j int) {
	l.heap[i], l.heap[j] = l.heap[j], l.heap[i]
	l.heap[i].index, l.heap[j].index = int32(i), int32(j)
}

func (l *level) Push(w any) {
	w.(*waiter).index = int32(len(l.heap))
	l.heap = append(l.heap, w.(*waiter))
}

func (l *level) Pop() any {
	last := len(l.heap) - 1
	w := l.heap[last]
	w.index, l.heap[last], l.heap = -1, nil, l.heap[:last]
	return w
}
