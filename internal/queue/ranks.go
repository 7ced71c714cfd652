package queue

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// ranks orders waiters: by priority, then by arrival, with every FairEvery-th turn for the oldest.
//
// Waiters fall into scopes, a scope into levels, one for each priority in use. Of each scope one call
// stands first: that of its highest level, or its oldest. ranks compares only those, so what a turn
// costs grows with the number of scopes, of which there are few. Within a scope the levels are a tree,
// so it grows with the logarithm of their number. A line of one priority has a tree of one level.
type ranks struct {
	Scopes []Scope // by number; none empty
	Count  int
	Served uint32 // turns given
}

// A Scope is the calls that pay the same advertised quotas.
type Scope struct {
	Lane uint8 // its number, see learn.Learner
	root *Level
}

// scope returns the place of a scope in r.Scopes, and whether it is there.
func (r *ranks) scope(lane uint8) (int, bool) {
	for i := range r.Scopes {
		if n := r.Scopes[i].Lane; n >= lane {
			return i, n == lane
		}
	}
	return len(r.Scopes), false
}

func (r *ranks) push(w *Waiter) {
	i, ok := r.scope(w.Lane)
	if !ok {
		r.Scopes = slices.Insert(r.Scopes, i, Scope{Lane: w.Lane})
	}
	s := &r.Scopes[i]
	s.root = s.root.with(w)
	r.Count++
}

func (r *ranks) remove(w *Waiter) {
	i, _ := r.scope(w.Lane)
	s := &r.Scopes[i]
	if s.root = s.root.without(w); s.root == nil {
		r.Scopes = slices.Delete(r.Scopes, i, i+1)
	}
	r.Count--
}

// next is the waiter whose turn it is; nil if there is none.
func (r *ranks) next() *Waiter { return r.nextIn(nil, time.Time{}) }

// nextIn is next if not every scope may send now: the first of those that may, or the one that may
// go soonest. ready tells when a scope may send so many units; nil: all may. Only the first call of
// a scope counts: a costly one blocks those behind it in its scope.
func (r *ranks) nextIn(ready func(lane uint8, n int) time.Time, now time.Time) *Waiter {
	var best, soonest *Waiter
	var at time.Time
	oldest := r.Served%FairEvery == FairEvery-1
	for i := range r.Scopes {
		s := &r.Scopes[i]
		w := s.root.oldest
		if !oldest {
			w = s.root.highest().first()
		}
		if best != nil && !goesBefore(w, best, oldest) {
			continue
		}
		if ready != nil {
			if m := ready(s.Lane, w.Cost); m.After(now) {
				if soonest == nil || m.Before(at) || m.Equal(at) && w.Prio > soonest.Prio {
					soonest, at = w, m
				}
				continue
			}
		}
		best = w
	}
	return cmp.Or(best, soonest)
}

// goesBefore reports whether a goes before b: by arrival alone, or by priority first.
func goesBefore(a, b *Waiter, byArrival bool) bool {
	if byArrival || a.Prio == b.Prio {
		return a.Seq < b.Seq
	}
	return a.Prio > b.Prio
}

// top is the highest priority of those who wait. Somebody does.
func (r *ranks) top() int32 {
	prio := int32(math.MinInt32)
	for i := range r.Scopes {
		prio = max(prio, r.Scopes[i].root.highest().prio)
	}
	return prio
}

// move puts all into one scope; they are in number 0.
func (r *ranks) move(lane uint8) {
	for i := range r.Scopes {
		r.Scopes[i].Lane = lane
	}
	r.Each(func(w *Waiter) { w.Lane = lane })
}

// ahead counts the units that go before one of that priority and place, and those of
// them in its scope.
func (r *ranks) ahead(prio int32, seq uint64, lane uint8) (all, mine int64) {
	for i := range r.Scopes {
		s := &r.Scopes[i]
		units := s.root.ahead(prio, seq)
		if all += units; s.Lane == lane {
			mine = units
		}
	}
	return all, mine
}

// Ordered returns all waiters in the order of priority and arrival.
func (r *ranks) Ordered() (all []*Waiter) {
	for i := range r.Scopes {
		of := make([]*Waiter, 0, r.Count-len(all))
		r.Scopes[i].root.each(func(w *Waiter) { of = append(of, w) })
		slices.SortFunc(of, func(a, b *Waiter) int { // in order already, but for those who came back
			return cmp.Or(cmp.Compare(b.Prio, a.Prio), cmp.Compare(a.Seq, b.Seq))
		})
		all = merge(all, of)
	}
	return all
}

// merge joins two lists that are ordered by priority and arrival.
func merge(a, b []*Waiter) []*Waiter {
	if len(a) == 0 {
		return b
	}
	all := make([]*Waiter, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if goesBefore(b[0], a[0], false) {
			a, b = b, a
		}
		all, a = append(all, a[0]), a[1:]
	}
	return append(append(all, a...), b...)
}

// Each visits all waiters; f may not change the line.
func (r *ranks) Each(f func(*Waiter)) {
	for i := range r.Scopes {
		r.Scopes[i].root.each(f)
	}
}
