package throttle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-throttle/throttle/internal/gate"
	"github.com/go-throttle/throttle/internal/moment"
	"github.com/go-throttle/throttle/internal/queue"
)

// checkOrder: those who went in a moment in which nobody came, left or was refused went in order.
func (s *soak) checkOrder(st *station, q *queue.Queue) {
	seen := &st.seen
	l := seen.line
	if l == nil || q != seen.queue || seen.probing || seen.asking || seen.lanes || q.Gate.Trouble != nil && q.Gate.Probing {
		return
	}
	var there, gone []*queue.Waiter
	known := map[*queue.Waiter]bool{}
	for _, w := range seen.waiters {
		known[w] = true
		switch {
		case w.State == queue.Granted:
			gone = append(gone, w)
		case w.Index == -1: // cancelled or refused
			return
		}
	}
	if q.Line == l {
		came := false
		q.Line.Each(func(w *queue.Waiter) { came = came || !known[w] })
		if came {
			return
		}
	}
	if int(l.Served-seen.served) != len(gone) || len(gone) == 0 {
		return
	}
	there = append(there, seen.waiters...)
	for i := range gone {
		turn := seen.served + uint32(i)
		next := slices.MinFunc(there, func(a, b *queue.Waiter) int {
			if turn%queue.FairEvery == queue.FairEvery-1 {
				return cmp.Compare(a.Seq, b.Seq)
			}
			return cmp.Or(cmp.Compare(b.Prio, a.Prio), cmp.Compare(a.Seq, b.Seq))
		})
		if next.State != queue.Granted {
			s.fail("%s: turn %d was that of call %d, priority %d, which still waits: %s", st.name, turn, next.Seq, next.Prio, listed(seen.waiters))
			return
		}
		there = slices.DeleteFunc(there, func(w *queue.Waiter) bool { return w == next })
	}
}

// listed tells priority, place, cost, lane and state of waiters.
func listed(ws []*queue.Waiter) string {
	var all []string
	for _, w := range ws {
		all = append(all, fmt.Sprintf("%d/%d/%d/%d/%d", w.Prio, w.Seq, w.Cost, w.Lane, w.State))
	}
	return strings.Join(all, " ")
}

// checkIdle: nobody waits while the head could go. A timer that is due at this very moment may not
// have been run: so the head is a suspect first.
func (s *soak) checkIdle(st *station, q *queue.Queue, now time.Time) {
	l := q.Line
	if l.Asking != nil {
		return
	}
	w := q.Head(now)
	if sh := q.Room.Shared; sh != nil && sh.Head() != nil && sh.Head() != q {
		return
	}
	if q.Learned != nil && slices.ContainsFunc(l.Scopes, func(s queue.Scope) bool { return len(q.Learned.Lanes[s.Lane].Quotas) > 0 }) {
		return // what was told means less, or more, as time goes by, and nobody looks for that alone
	}
	at, d := q.Ready(w, now, now)
	if d.Verdict != queue.Grant {
		return
	}
	if q.Foreign != nil && q.Foreign.Next.After(now) {
		return
	}
	if m, err := q.Limits.Ready(at, w.Cost); err != nil || m.After(now) {
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
	t.Mu.Lock()
	defer t.Mu.Unlock()
	busy, units := 0, int64(0)
	for _, k := range t.keys {
		if k.Busy() {
			busy++
		}
		if k.place >= len(t.order) || t.order[k.place] != k {
			s.fail("%s: key %s is not in its place", x.name, k.Key)
		}
		if b := t.budget; k.spent < 0 || b.PerCall >= 0 && k.spent > b.Max+1e-6 {
			s.fail("%s: key %s has spent %v of a budget of %v", x.name, k.Key, k.spent, b.Max)
		}
		if k.Line != nil {
			k.Line.Each(func(w *queue.Waiter) { units += int64(w.Cost) })
		}
	}
	if x.busiest = max(x.busiest, busy); len(t.keys) > t.most+x.busiest || len(t.keys) != len(t.order) {
		s.fail("%s keeps %d keys; at most %d should be idle, and %d have been busy at once", x.name, len(t.keys), t.most, x.busiest)
	}
	sh := t.Shared
	if sh == nil {
		return
	}
	for prio, n := range sh.Waiting {
		if units -= n; n <= 0 {
			s.fail("%s: the tally of those who wait for the shared limiter has %d units of priority %d", x.name, n, prio)
		}
	}
	if units != 0 || sh.Count != len(sh.Entries) || len(sh.Entries) != len(sh.Queues) || sh.Settling || sh.Dirty {
		s.fail("%s: the tally of those who wait for the shared limiter is wrong by %d units; %d entries, %d, %d; settling %v, dirty %v",
			x.name, units, sh.Count, len(sh.Entries), len(sh.Queues), sh.Settling, sh.Dirty)
	}
	for q := range sh.Entries {
		if q.Line == nil {
			s.fail("%s: a key waits for the shared limiter, and nobody in it", x.name)
		}
	}
	if sh.Asking != nil && (sh.Asking.Line == nil || sh.Asking.Line.Asking == nil) {
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
	now := time.Now().Add(foreignIdle + 2*moment.MaxBelief)
	for _, x := range s.trs {
		if x.tr.table == nil {
			continue
		}
		x.tr.table.Mu.Lock()
		defer x.tr.table.Mu.Unlock()
		for _, k := range x.tr.table.keys {
			probing := k.Gate.Trouble != nil && k.Gate.Cause != gate.Open && k.Gate.Probing
			if !probing && !k.idle(now) && k.Own.Fresh(now) {
				s.fail("%s would be kept for ever: %+v", k.Key, k.Gate.Trouble)
			}
		}
	}
}
