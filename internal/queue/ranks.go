package queue

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"time"
)

// ranks orders waiters: by priority, then by arrival, with every FairEvery-th
// turn for the oldest. One level for each priority in use; priorities are expected
// to be few.
type ranks struct {
	Levels []*Level // highest priority first, then by lane; none empty
	Count  int
	Served uint32 // turns given
}

// A Level is the waiters of one priority and lane. Those who came in order stand in a queue: to put
// one in or take the first out touches no other waiter, where a heap of 100,000 reads thirty. Only
// those who came back to an older place, as retries do, are in a heap.
type Level struct {
	prio  int32
	Lane  uint8
	begin int32 // the Index of the waiter in queue[0]; it wraps around at 2^31
	gaps  int   // in queue
	units int64
	queue []*Waiter // by Seq, nil where one has left; never in queue[0]
	late  []*Waiter // a heap by Seq; their Index is -2 and below
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
	if w.Seq > l.last {
		l.last = w.Seq
		w.Index = (l.begin + int32(len(l.queue))) & math.MaxInt32
		l.queue = append(l.queue, w)
	} else {
		heap.Push(l, w)
	}
	r.Count++
}

func (r *ranks) remove(w *Waiter) {
	i, _ := r.find(w)
	l := r.Levels[i]
	l.units -= int64(w.Cost)
	if w.Index < 0 {
		heap.Remove(l, -2-int(w.Index))
	} else {
		l.take(w)
	}
	r.Count--
	if len(l.queue)+len(l.late) == 0 {
		r.Levels = slices.Delete(r.Levels, i, i+1)
	}
}

// take takes w out of the queue, and the gaps that are then the first; all of them
// when they are the most.
func (l *Level) take(w *Waiter) {
	l.queue[(w.Index-l.begin)&math.MaxInt32] = nil
	w.Index = -1
	l.gaps++
	for len(l.queue) > 0 && l.queue[0] == nil {
		l.queue = l.queue[1:]
		l.begin = (l.begin + 1) & math.MaxInt32
		l.gaps--
	}
	if l.gaps > len(l.queue)/2 {
		l.queue, l.gaps = slices.DeleteFunc(l.queue, func(w *Waiter) bool { return w == nil }), 0
		for i, w := range l.queue {
			w.Index = (l.begin + int32(i)) & math.MaxInt32
		}
	}
}

// first is the one who came first.
func (l *Level) first() *Waiter {
	if len(l.queue) == 0 || len(l.late) > 0 && l.late[0].Seq < l.queue[0].Seq {
		return l.late[0]
	}
	return l.queue[0]
}

// each visits all waiters.
func (l *Level) each(f func(*Waiter)) {
	for _, w := range l.queue {
		if w != nil {
			f(w)
		}
	}
	for _, w := range l.late {
		f(w)
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
		w := l.first()
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
		if l.Lane == lane && (w == nil || oldest && l.first().Seq < w.Seq) {
			w = l.first()
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
			l.each(func(w *Waiter) {
				if w.Seq < seq {
					units += int64(w.Cost)
				}
			})
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
		l.each(f)
	}
}

// What container/heap needs.

func (l *Level) Len() int           { return len(l.late) }
func (l *Level) Less(i, j int) bool { return l.late[i].Seq < l.late[j].Seq }

func (l *Level) Swap(i, j int) {
	l.late[i], l.late[j] = l.late[j], l.late[i]
	l.late[i].Index, l.late[j].Index = int32(-2-i), int32(-2-j)
}

func (l *Level) Push(w any) {
	w.(*Waiter).Index = int32(-2 - len(l.late))
	l.late = append(l.late, w.(*Waiter))
}

func (l *Level) Pop() any {
	last := len(l.late) - 1
	w := l.late[last]
	w.Index, l.late[last], l.late = -1, nil, l.late[:last]
	return w
}
