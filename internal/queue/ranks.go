package queue

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/go-throttle/throttle/internal/upstream"
)

// ranks orders waiters: by priority, then by arrival, with every fairEvery-th turn for the oldest.
//
// Waiters fall into scopes, and a scope into levels, one for each priority in use. One call of each scope
// stands first: that of its highest level, or its oldest. ranks compares only those, so what a turn
// costs grows with the number of scopes, which are few. Within a scope the levels are a tree,
// so it grows with the logarithm of their number. A line of one priority has a tree of one level.
type ranks struct {
	scopes []scope // by number; none empty
	count  int
	served uint32 // turns given
}

// A scope is the calls that pay the same advertised quotas.
type scope struct {
	number uint8 // as upstream.State numbers it
	root   *level
}

// place returns the index of a scope in r.scopes, and whether it is there.
// A plain search: there are upstream.MaxScopes of them at most, and one in most lines.
func (r *ranks) place(number uint8) (int, bool) {
	for i := range r.scopes {
		if n := r.scopes[i].number; n >= number {
			return i, n == number
		}
	}
	return len(r.scopes), false
}

// push puts w in its place.
func (r *ranks) push(w *waiter) {
	i, ok := r.place(w.scope)
	if !ok {
		r.scopes = slices.Insert(r.scopes, i, scope{number: w.scope})
	}
	s := &r.scopes[i]
	s.root = s.root.with(w)
	r.count++
}

// remove takes w out, which is in.
func (r *ranks) remove(w *waiter) {
	i, _ := r.place(w.scope)
	s := &r.scopes[i]
	if s.root = s.root.without(w); s.root == nil {
		r.scopes = slices.Delete(r.scopes, i, i+1)
	}
	r.count--
}

// next is the waiter whose turn it is; nil if there is none.
func (r *ranks) next() *waiter { return r.nextIn(nil, time.Time{}) }

// nextIn is next if not every scope may send now: the first of those that may, or the one that may
// go soonest. ready says when a scope may send so many units; nil: all may. Only the first call of
// a scope counts: a costly one blocks those behind it in its scope.
//
// An example of turns with calls of priority 5 that never end, and one of priority 0: turns 1 to 7 go
// to priority 5, turn 8 to whoever came first of all, which is the call of priority 0 once all older
// ones have gone. After a flood of n calls that came before it, it waits for no more than 8(n + 1)
// turns, however many come later.
//
// An example of scopes: /search may send in 3 s, /core now. The head of /search has priority 9, that of
// /core 0. /core goes, because the other one could use no turn before 3 s are over. If neither may
// send, it is the one with the nearer moment, for which the timer is set.
func (r *ranks) nextIn(ready func(number uint8, n int) time.Time, now time.Time) *waiter {
	var best, soonest *waiter
	var at time.Time
	// served counts grants, not looks: a head that has to wait stays the head until it goes.
	oldest := r.served%fairEvery == fairEvery-1
	for i := range r.scopes {
		s := &r.scopes[i]
		w := s.root.oldest
		if !oldest {
			w = s.root.highest().first()
		}
		if best != nil && !goesBefore(w, best, oldest) {
			continue
		}
		if ready != nil {
			if m := ready(s.number, int(w.cost)); m.After(now) {
				if soonest == nil || m.Before(at) || m.Equal(at) && w.prio > soonest.prio {
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
func goesBefore(a, b *waiter, byArrival bool) bool {
	if byArrival || a.prio == b.prio {
		return a.seq < b.seq
	}
	return a.prio > b.prio
}

// top is the highest priority of those who wait. Somebody does.
func (r *ranks) top() int32 {
	prio := int32(math.MinInt32)
	for i := range r.scopes {
		prio = max(prio, r.scopes[i].root.highest().prio)
	}
	return prio
}

// move puts each call into the scope that its route falls under now.
func (r *ranks) move(scopeOf func(upstream.Route) uint8) {
	var moved []*waiter
	r.each(func(w *waiter) {
		if scopeOf(w.route) != w.scope {
			moved = append(moved, w)
		}
	})
	for _, w := range moved {
		r.remove(w)
		w.scope = scopeOf(w.route)
		r.push(w)
	}
}

// ahead counts the units that go before one of that priority and place, and those of
// them in its scope.
//
// An example: 4 units of scope 1 and 3 of scope 2 go first. A newcomer of scope 2 waits for all 7 at
// the limiter of the key, but only for 3 at the quota of its scope.
func (r *ranks) ahead(prio int32, seq uint64, number uint8) (all, mine int64) {
	for i := range r.scopes {
		s := &r.scopes[i]
		units := s.root.ahead(prio, seq)
		if all += units; s.number == number {
			mine = units
		}
	}
	return all, mine
}

// ordered returns all waiters in the order of priority and arrival.
func (r *ranks) ordered() (all []*waiter) {
	for i := range r.scopes {
		of := make([]*waiter, 0, r.count-len(all))
		r.scopes[i].root.each(func(w *waiter) { of = append(of, w) })
		slices.SortFunc(of, func(a, b *waiter) int { // in order already, but for those who came back
			return cmp.Or(cmp.Compare(b.prio, a.prio), cmp.Compare(a.seq, b.seq))
		})
		all = merge(all, of)
	}
	return all
}

// merge joins two lists that are ordered by priority and arrival.
// Each is ordered already, so this takes the earlier of the two first ones until one list is empty.
func merge(a, b []*waiter) []*waiter {
	if len(a) == 0 {
		return b
	}
	all := make([]*waiter, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if goesBefore(b[0], a[0], false) {
			a, b = b, a
		}
		all, a = append(all, a[0]), a[1:]
	}
	return append(append(all, a...), b...)
}

// each visits all waiters; f may not change the line.
func (r *ranks) each(f func(*waiter)) {
	for i := range r.scopes {
		r.scopes[i].root.each(f)
	}
}
