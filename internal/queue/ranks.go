package queue

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// ranks orders waiters: by priority, then by arrival, with every FairEvery-th
// turn for the oldest. One heap by arrival for each priority in use; priorities
// are expected to be few.
type ranks struct {
	Levels []*Level // highest priority first, then by lane; none empty
	Count  int
	Served uint32 // turns given
}

// A Level is the waiters of one priority and lane.
type Level struct {
	prio  int32
	Lane  uint8
	units int64
	heap  []*Waiter // by Seq
	last  uint64    // the latest Seq that ever came
}

func (r *ranks) find(w *Waiter) (int, bool) {
	return slices.BinarySearchFunc(r.Levels, w, func(l *Level, w *Waiter) int {
		return cmp.Or(cmp.Compare(w.Prio, l.prio), cmp.Compare(l.Lane, w.Lane))
	})
}

func (r *ranks) push(w *Waiter) {
	i, ok := r.find(w)
	if !ok {
		r.Levels = slices.Insert(r.Levels, i, &Level{prio: w.Prio, Lane: w.Lane})
	}
	l := r.Levels[i]
	l.units += int64(w.Cost)
	l.last = max(l.last, w.Seq)
	heap.Push(l, w)
	r.Count++
}

func (r *ranks) remove(w *Waiter) {
	i, _ := r.find(w)
	l := r.Levels[i]
	l.units -= int64(w.Cost)
	heap.Remove(l, int(w.Index))
	r.Count--
	if len(l.heap) == 0 {
		r.Levels = slices.Delete(r.Levels, i, i+1)
	}
}

// next is the waiter whose turn it is; nil if there is none.
func (r *ranks) next() *Waiter { return r.nextIn(nil, time.Time{}) }

// nextIn is next where not every lane may go now: the first of those that may, or
// the one that may go soonest. ready tells when a lane may send so many units; nil:
// all may.
func (r *ranks) nextIn(ready func(lane uint8, n int) time.Time, now time.Time) *Waiter {
	var best, soonest *Waiter
	var at time.Time
	oldest := r.Served%FairEvery == FairEvery-1
	for _, l := range r.Levels {
		w := l.heap[0]
		if best != nil && !oldest && w.Prio < best.Prio {
			break // levels go by priority
		}
		if ready != nil {
			if w != r.first(l.Lane, oldest) {
				continue // a costly one blocks those behind it in its lane
			}
			if m := ready(l.Lane, w.Cost); m.After(now) {
				if soonest == nil || m.Before(at) {
					soonest, at = w, m
				}
				continue
			}
		}
		if best == nil || w.Seq < best.Seq {
			best = w
		}
	}
	return cmp.Or(best, soonest)
}

// first is the waiter of a lane whose turn it is.
func (r *ranks) first(lane uint8, oldest bool) (w *Waiter) {
	for _, l := range r.Levels {
		if l.Lane == lane && (w == nil || oldest && l.heap[0].Seq < w.Seq) {
			w = l.heap[0]
		}
	}
	return w
}

// move puts all into one lane; they are in lane 0.
func (r *ranks) move(lane uint8) {
	for _, l := range r.Levels {
		l.Lane = lane
	}
	r.Each(func(w *Waiter) { w.Lane = lane })
}

// ahead counts the units that go before one of that priority and place, and those of
// them in its lane.
func (r *ranks) ahead(prio int32, seq uint64, lane uint8) (all, mine int64) {
	for _, l := range r.Levels {
		units := int64(0)
		switch {
		case l.prio > prio, l.prio == prio && seq > l.last:
			units = l.units
		case l.prio == prio: // it comes back to its old place
			for _, w := range l.heap {
				if w.Seq < seq {
					units += int64(w.Cost)
				}
			}
		}
		if all += units; l.Lane == lane {
			mine += units
		}
	}
	return all, mine
}

// Ordered returns all waiters in the order of priority and arrival.
func (r *ranks) Ordered() []*Waiter {
	all := make([]*Waiter, 0, r.Count)
	r.Each(func(w *Waiter) { all = append(all, w) })
	slices.SortFunc(all, func(a, b *Waiter) int {
		return cmp.Or(cmp.Compare(b.Prio, a.Prio), cmp.Compare(a.Seq, b.Seq))
	})
	return all
}

// Each visits all waiters; f may not change the line.
func (r *ranks) Each(f func(*Waiter)) {
	for _, l := range r.Levels {
		for _, w := range l.heap {
			f(w)
		}
	}
}

// What container/heap needs.

func (l *Level) Len() int           { return len(l.heap) }
func (l *Level) Less(i, j int) bool { return l.heap[i].Seq < l.heap[j].Seq }

func (l *Level) Swap(i, j int) {
	l.heap[i], l.heap[j] = l.heap[j], l.heap[i]
	l.heap[i].Index, l.heap[j].Index = int32(i), int32(j)
}

func (l *Level) Push(w any) {
	w.(*Waiter).Index = int32(len(l.heap))
	l.heap = append(l.heap, w.(*Waiter))
}

func (l *Level) Pop() any {
	last := len(l.heap) - 1
	w := l.heap[last]
	w.Index, l.heap[last], l.heap = -1, nil, l.heap[:last]
	return w
}
