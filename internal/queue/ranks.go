package queue

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/go-throttle/throttle/internal/upstream"
)

// ranks orders waiters: by priority, then by arrival, with every fairEvery-th turn for the
// oldest.
//
// Waiters fall into scopes, and a scope into levels, one for each priority in use. One call
// of each scope stands first: that of its highest level, or its oldest. ranks compares only
// those, so what a turn costs grows with the number of scopes, which are few. Within a scope
// the levels are a tree, so it grows with the logarithm of their number. A line of one
// priority has a tree of one level.
type ranks struct {
	scopes []scope // by number; none empty
	count  int
	served uint32 // turns given
	flows  flows  // nil: nobody has named one
}

// A scope is the calls that pay the same advertised quotas.
type scope struct {
	number uint8 // as upstream.State numbers it
	root   *level
}

// place returns the index of a scope in r.scopes, and whether it is there. A plain search:
// there are upstream.MaxScopes of them at most, and one in most lines.
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

// nextIn is next if not every scope may send now: the first of those that may, or the one
// that may go soonest. ready says when a scope may send so many units; nil: all may. Only the
// first call of a scope counts: a costly one blocks those behind it in its scope.
//
// An example of turns with calls of priority 5 that never end, and one of priority 0: turns 1
// to 7 go to priority 5, turn 8 to whoever came first of all, which is the call of priority 0
// once all older ones have gone. After a flood of n calls that came before it, it waits for
// no more than 8(n + 1) turns, however many come later.
//
// An example of scopes: /search may send in 3 s, /core now. The head of /search has priority
// 9, that of /core 0. /core goes, because the other one could use no turn before 3 s are
// over. If neither may send, it is the one with the nearer moment, for which the timer is
// set.
func (r *ranks) nextIn(ready func(number uint8, n int) time.Time, now time.Time) *waiter {
	if ready == nil && len(r.scopes) == 1 && r.flows == nil { // the same for the plainest line
		if root := r.scopes[0].root; !r.oldestTurn() {
			return root.highest().first()
		}
		return r.scopes[0].root.oldest
	}
	if !r.oldestTurn() {
		return r.pick(foremost, 0, ready, now)
	}
	w := r.pick(longest, 0, ready, now)
	if w == nil || r.flows == nil {
		return w
	}
	// If its flow has had its turn, the one that is next in its priority goes in its place. So a
	// flow that floods, whose calls wait longest, gets no more by that than its share. An example:
	// 20 tenants wait, one of them with 1,000 calls. All eighth turns would be its, 12.5 % where
	// 5 % are its share.
	if f := r.flows.of(w); f == nil || !f.isAhead(w.cost) {
		return w
	}
	return r.pick(inPriority, w.prio, ready, now)
}

// A choice is who stands for a scope.
type choice uint8

const (
	foremost   choice = iota // the next of its highest priority
	longest                  // who has waited longest
	inPriority               // the next of a given priority; maybe nobody
)

// pick is nextIn among those that stand for the scopes: of the longest waiting the one that came
// first, otherwise the one that is first by priority and flow.
//
// An example: scopes 1 and 2, and the turn is that of the oldest call. In scope 1 that is call 3,
// in scope 2 call 5. Scope 1 may not send before 2 s are over, so the turn is call 5's.
func (r *ranks) pick(how choice, prio int32, ready func(number uint8, n int) time.Time, now time.Time) *waiter {
	var best, soonest *waiter
	var at time.Time
	for i := range r.scopes {
		s := &r.scopes[i]
		var w *waiter
		switch how {
		case foremost:
			if l := s.root.highest(); l.parts == nil {
				w = l.first()
			} else {
				w = l.next(r.flows)
			}
		case longest:
			w = s.root.oldest
		default:
			w = s.root.find(prio).next(r.flows)
		}
		if w == nil || best != nil && !r.goesBefore(w, best, how == longest) {
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

// oldestTurn reports whether the next turn is that of the longest waiting call. served counts
// grants, not looks: a head that has to wait stays the head until it goes.
func (r *ranks) oldestTurn() bool { return r.served%fairEvery == fairEvery-1 }

// goesBefore reports whether a goes before b: by arrival alone, or by priority and flow
// first.
func (r *ranks) goesBefore(a, b *waiter, byArrival bool) bool {
	switch {
	case byArrival, a.prio == b.prio && r.flows == nil:
		return a.seq < b.seq
	case a.prio == b.prio:
		return r.flows.before(a, b)
	}
	return a.prio > b.prio
}

// eldest is the one who came first. Somebody waits.
func (r *ranks) eldest() *waiter {
	w := r.scopes[0].root.oldest
	for i := range r.scopes[1:] {
		if o := r.scopes[1+i].root.oldest; o.seq < w.seq {
			w = o
		}
	}
	return w
}

// unnamed counts the waiters of a priority that name no flow, and their units.
func (r *ranks) unnamed(prio int32) (count int, units int64) {
	for i := range r.scopes {
		if l := r.scopes[i].root.find(prio); l != nil {
			count += l.waiters()
			units += l.units
		}
	}
	return count, units
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

// ahead counts the units that go before one of that priority and place, and those of them in
// its scope.
//
// An example: 4 units of scope 1 and 3 of scope 2 go first. A newcomer of scope 2 waits for
// all 7 at the limiter of the key, but only for 3 at the quota of its scope.
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

// aheadIn is ahead of a call that o wants, of the flow f in the class c, and of so many more of that flow. f is nil if
// none of its calls wait.
//
// The call starts, in virtual time, where its flow will be when all of its own before it have
// gone. Of each other flow those go before it that start earlier. That is exact if the calls
// of a flow cost the same. Of a flow that waits in several scopes more may be counted than
// can go, so a prediction there is rather late.
//
// An example: 10,000 calls of flow a wait, and two of b. Before a third of b go its own two
// and three of a.
func (r *ranks) aheadIn(c *class, f *flow, o *order, more int64) (all, mine int64) {
	until := c.now + float64(more)/cmp.Or(o.weight, 1)
	var own [upstream.MaxScopes]int64
	if f != nil {
		until = max(until, f.start)
	}
	for i := range r.scopes {
		l := r.scopes[i].root.find(o.prio)
		switch {
		case l == nil:
		case o.want.Flow == "":
			own[i] = l.fifo.before(o.seq)
		case l.parts != nil && l.parts.of[f] != nil:
			own[i] = l.parts.of[f].before(o.seq)
		}
		until += float64(own[i]) / cmp.Or(o.weight, 1)
	}
	for i := range r.scopes {
		s := &r.scopes[i]
		units := own[i] + s.root.above(o.prio)
		if l := s.root.find(o.prio); l != nil {
			if o.want.Flow != "" && l.waiters() > 0 {
				units += unitsBefore(until, max(c.now, r.flows.start(l.first())), 1, l.units, l.waiters())
			}
			if l.parts != nil {
				units += l.parts.before(until, f)
			}
		}
		if all += units; s.number == o.scope {
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
	if r.flows != nil && r.named() {
		r.byFlow(all)
	}
	return all
}

// byFlow sorts waiters that are in the order of arrival by when their turn will come: each by
// its virtual start.
//
// An example with now = 500: flow a waits with calls 1, 2 and 3, b with 4 and 5. The starts
// are 500, 501 and 502 for a, and 500 and 501 for b. So the order is 1, 4, 2, 5, 3.
func (r *ranks) byFlow(all []*waiter) {
	type tenant struct {
		flow *flow
		prio int32
	}
	next, starts := map[tenant]float64{}, make(map[*waiter]float64, len(all))
	for _, w := range all {
		f := r.flows.of(w)
		if f == nil {
			continue
		}
		who := tenant{f, w.prio}
		starts[w] = max(next[who], f.start, f.class.now)
		next[who] = starts[w] + f.share(w.cost)
	}
	slices.SortStableFunc(all, func(a, b *waiter) int {
		return cmp.Or(cmp.Compare(b.prio, a.prio), cmp.Compare(starts[a], starts[b]))
	})
}

// merge joins two lists that are ordered by priority and arrival. Each is ordered already, so
// this takes the earlier of the two first ones until one list is empty.
func merge(a, b []*waiter) []*waiter {
	if len(a) == 0 {
		return b
	}
	all := make([]*waiter, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if b[0].prio > a[0].prio || b[0].prio == a[0].prio && b[0].seq < a[0].seq {
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
