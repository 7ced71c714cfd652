package throttle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// checkOrder: those who went in a moment in which nobody came, left or was refused went in order.
func (s *soak) checkOrder(st *station, q *Queue) {
	seen := &st.seen
	l := seen.line
	if l == nil || q != seen.queue || seen.probing || seen.asking || seen.lanes || q.gate.trouble != nil && q.gate.probing {
		return
	}
	var there, gone []*waiter
	known := map[*waiter]bool{}
	for _, w := range seen.waiters {
		known[w] = true
		switch {
		case w.state == granted:
			gone = append(gone, w)
		case w.index < 0: // cancelled or refused
			return
		}
	}
	if q.line == l {
		came := false
		q.line.each(func(w *waiter) { came = came || !known[w] })
		if came {
			return
		}
	}
	if int(l.served-seen.served) != len(gone) || len(gone) == 0 {
		return
	}
	there = append(there, seen.waiters...)
	for i := range gone {
		turn := seen.served + uint32(i)
		next := slices.MinFunc(there, func(a, b *waiter) int {
			if turn%fairEvery == fairEvery-1 {
				return cmp.Compare(a.seq, b.seq)
			}
			return cmp.Or(cmp.Compare(b.prio, a.prio), cmp.Compare(a.seq, b.seq))
		})
		if next.state != granted {
			s.fail("%s: turn %d was that of call %d, priority %d, which still waits: %s", st.name, turn, next.seq, next.prio, listed(seen.waiters))
			return
		}
		there = slices.DeleteFunc(there, func(w *waiter) bool { return w == next })
	}
}

// listed tells priority, place, cost, lane and state of waiters.
func listed(ws []*waiter) string {
	var all []string
	for _, w := range ws {
		all = append(all, fmt.Sprintf("%d/%d/%d/%d/%d", w.prio, w.seq, w.cost, w.lane, w.state))
	}
	return strings.Join(all, " ")
}

// checkIdle: nobody waits while the head could go. A timer that is due at this very moment may not
// have been run: so the head is a suspect first.
func (s *soak) checkIdle(st *station, q *Queue, now time.Time) {
	l := q.line
	if l.asking != nil {
		return
	}
	w := q.head(now)
	if sh := q.room.shared; sh != nil && sh.head() != nil && sh.head() != q {
		return
	}
	if q.learned != nil && slices.ContainsFunc(l.levels, func(l *level) bool { return len(q.learned.lanes[l.lane].quotas) > 0 }) {
		return // what was told means less, or more, as time goes by, and nobody looks for that alone
	}
	at, d := q.ready(w, now, now)
	if d.verdict != grant {
		return
	}
	if q.foreign != nil && q.foreign.next.After(now) {
		return
	}
	if m, err := q.limits.ready(at, w.cost); err != nil || m.After(now) {
		return
	}
	if s.suspected[q] == w {
		s.fail("the head could go at %v: %s", now, st.state())
	}
	s.suspects[q] = w
}

// checkTable: the shared line holds just those who wait, and there are not too many keys.
func (s *soak) checkTable(x *soakTransport, now time.Time) {
	t := x.tr.table
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	busy, units := 0, int64(0)
	for _, k := range t.keys {
		if k.busy() {
			busy++
		}
		if k.place >= len(t.order) || t.order[k.place] != k {
			s.fail("%s: key %s is not in its place", x.name, k.key)
		}
		if k.line != nil {
			k.line.each(func(w *waiter) { units += int64(w.cost) })
		}
	}
	if x.busiest = max(x.busiest, busy); len(t.keys) > t.most+x.busiest || len(t.keys) != len(t.order) {
		s.fail("%s keeps %d keys; at most %d should be idle, and %d have been busy at once", x.name, len(t.keys), t.most, x.busiest)
	}
	sh := t.shared
	if sh == nil {
		return
	}
	for prio, n := range sh.waiting {
		if units -= n; n <= 0 {
			s.fail("%s: the tally of those who wait for the shared limiter has %d units of priority %d", x.name, n, prio)
		}
	}
	if units != 0 || sh.count != len(sh.entries) || len(sh.entries) != len(sh.queues) || sh.settling || sh.dirty {
		s.fail("%s: the tally of those who wait for the shared limiter is wrong by %d units; %d entries, %d, %d; settling %v, dirty %v",
			x.name, units, sh.count, len(sh.entries), len(sh.queues), sh.settling, sh.dirty)
	}
	for q := range sh.entries {
		if q.line == nil {
			s.fail("%s: a key waits for the shared limiter, and nobody in it", x.name)
		}
	}
	if sh.asking != nil && (sh.asking.line == nil || sh.asking.line.asking == nil) {
		s.fail("%s: the shared line waits for one who does not ask", x.name)
	}
}

// checkEnd: nothing is left when all callers have gone.
func (s *soak) checkEnd() {
	time.Sleep(time.Hour) // bodies that are closed late
	s.check()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bodies != 0 || s.answers != 0 {
		s.fail("%d request bodies and %d answers are not closed", s.bodies, s.answers)
	}
	for _, f := range s.foreign {
		if len(f.watches) > 0 {
			s.fail("%s is watched by %d, and nobody waits", f.name, len(f.watches))
		}
	}
	now := time.Now().Add(foreignIdle + 2*maxBelief)
	for _, x := range s.trs {
		if x.tr.table == nil {
			continue
		}
		x.tr.table.mu.Lock()
		defer x.tr.table.mu.Unlock()
		for _, k := range x.tr.table.keys {
			probing := k.gate.trouble != nil && k.gate.cause != open && k.gate.probing
			if !probing && !k.idle(now) && k.own.fresh(now) {
				s.fail("%s would be kept for ever: %+v", k.key, k.gate.trouble)
			}
		}
	}
}
