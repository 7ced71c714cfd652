package throttle

import (
	"cmp"
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
	l.heap = append(l.heap, w)
	w.index = int32(len(l.heap) - 1)
	l.up(int(w.index))
	r.count++
}

func (r *ranks) remove(w *waiter) {
	i, _ := r.find(w)
	l := r.levels[i]
	l.units -= int64(w.cost)
	l.cut(int(w.index))
	w.index = -1
	r.count--
	if len(l.heap) == 0 {
		r.levels = slices.Delete(r.levels, i, i+1)
	}
}

// next is the waiter whose turn it is; nil if there is none.
func (r *ranks) next() *waiter {
	if r.count == 0 {
		return nil
	}
	w := r.levels[0].heap[0]
	for _, l := range r.levels[1:] {
		if l.prio == w.prio && l.heap[0].seq < w.seq {
			w = l.heap[0]
		}
	}
	if r.served%fairEvery == fairEvery-1 {
		for _, l := range r.levels[1:] {
			if l.heap[0].seq < w.seq {
				w = l.heap[0]
			}
		}
	}
	return w
}

// nextIn is next where not every lane may go now: the first of those that may, or
// the one that may go soonest. ready tells when a lane may send so many units.
func (r *ranks) nextIn(ready func(lane uint8, n int) time.Time, now time.Time) *waiter {
	var best, soonest *waiter
	var at time.Time
	oldest := r.served%fairEvery == fairEvery-1
	for _, l := range r.levels {
		w := l.heap[0]
		if m := ready(l.lane, w.cost); m.After(now) {
			if soonest == nil || m.Before(at) {
				soonest, at = w, m
			}
			continue
		}
		if best == nil || w.seq < best.seq && (oldest || w.prio == best.prio) {
			best = w
		}
	}
	if best == nil {
		return soonest
	}
	return best
}

// move puts all into one lane; they are in lane 0.
func (r *ranks) move(lane uint8) {
	for _, l := range r.levels {
		l.lane = lane
	}
	r.each(func(w *waiter) { w.lane = lane })
}

// ahead counts the units that go before one of that priority and place.
func (r *ranks) ahead(prio int32, seq uint64) (units int64) {
	for _, l := range r.levels {
		switch {
		case l.prio > prio, l.prio == prio && seq > l.last:
			units += l.units
		case l.prio == prio: // it comes back to its old place
			for _, w := range l.heap {
				if w.seq < seq {
					units += int64(w.cost)
				}
			}
		}
	}
	return units
}

// ordered returns all waiters in the order of priority and arrival.
func (r *ranks) ordered() []*waiter {
	all := make([]*waiter, 0, r.count)
	for _, l := range r.levels {
		n := len(all)
		all = append(all, l.heap...)
		slices.SortFunc(all[n:], func(a, b *waiter) int { return cmp.Compare(a.seq, b.seq) })
	}
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

func (l *level) swap(i, j int) {
	l.heap[i], l.heap[j] = l.heap[j], l.heap[i]
	l.heap[i].index, l.heap[j].index = int32(i), int32(j)
}

func (l *level) up(i int) {
	for i > 0 {
		p := (i - 1) / 2
		if l.heap[p].seq <= l.heap[i].seq {
			return
		}
		l.swap(i, p)
		i = p
	}
}

func (l *level) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(l.heap) {
			return
		}
		if c+1 < len(l.heap) && l.heap[c+1].seq < l.heap[c].seq {
			c++
		}
		if l.heap[i].seq <= l.heap[c].seq {
			return
		}
		l.swap(i, c)
		i = c
	}
}

func (l *level) cut(i int) {
	last := len(l.heap) - 1
	l.swap(i, last)
	l.heap[last] = nil
	l.heap = l.heap[:last]
	if i < last {
		l.down(i)
		l.up(i)
	}
}
