//go:build throttle_invariants

package queue

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// This file checks at the end of each critical section that what the lock guards is sound. It is part
// of builds with the tag throttle_invariants alone, which are for tests; in all others
// invariants_off.go stands in its place.

func broken(format string, args ...any) {
	panic("throttle: invariant broken: " + fmt.Sprintf(format, args...))
}

// A mutex is a sync.Mutex that looks at all that it guards before it is unlocked. It guards a table
// or a bare queue.
type mutex struct {
	sync.Mutex
	table   *Table
	queue   *Queue
	looks   map[*Queue]*look // of those queues that have had a line
	busiest int              // keys with calls at once
	pause   int              // critical sections until the next look
}

// One look may visit so many keys and waiters (lookAtOnce). Where there are more, so many critical sections
// pass without a look that each has paid for lookShare of those visits, and a look is not compared with the
// one before. Example: 100,000 calls wait. One look visits all of them, and the next follows 25,000
// critical sections later; so filling and draining the line costs a few looks and not 200,000.
const (
	lookAtOnce = 256
	lookShare  = 4
)

func guardTable(t *Table) { t.common.mu.table, t.common.mu.looks = t, map[*Queue]*look{} }
func guardQueue(q *Queue) { q.common.mu.queue, q.common.mu.looks = q, map[*Queue]*look{} }

// tableSize is maxKeys, or what the environment says: the soak fills tables that are small.
func tableSize() int {
	if n, err := strconv.Atoi(os.Getenv("THROTTLE_TABLE_SIZE")); err == nil {
		return n
	}
	return maxKeys
}

// ending returns stop, which ends the watch of l on its limiters, and notes when it is called.
func (l *line) ending(stop func()) func() { return func() { stop(); l.stop = nil } }

// Unlock looks and unlocks, in a panic too: otherwise whoever recovers it would meet a dead lock.
func (m *mutex) Unlock() {
	defer m.Mutex.Unlock()
	if m.pause--; m.pause < 0 {
		m.look(time.Now())
	}
}

func (m *mutex) look(now time.Time) {
	n := 0
	if m.queue != nil {
		n = m.lookAt(m.queue, now)
	}
	if m.table != nil {
		n = m.lookAtTable(now)
	}
	if m.pause = 0; n > lookAtOnce {
		m.pause = n / lookShare
		clear(m.looks)
		m.busiest = math.MaxInt / 2 // not known
	}
}

// lookAt checks one queue and returns how many wait in it.
func (m *mutex) lookAt(q *Queue, now time.Time) int {
	seen := m.looks[q]
	q.checkCounts(m.table != nil)
	if seen != nil {
		seen.checkChange(q, now)
	}
	l := q.line
	if l == nil {
		return 0
	}
	l.check()
	if q.common.shared == nil {
		l.flows.checkFlows([]*line{l})
	}
	if seen == nil {
		seen = new(look)
		m.looks[q] = seen
	}
	seen.take(q)
	return l.count
}

// checkCounts: slots are within their bounds, and each call is counted where it is.
func (q *Queue) checkCounts(keyed bool) {
	if most := q.common.Options.MaxInFlight; q.slots < 0 || most > 0 && int(q.slots) > most || keyed && !q.common.slotted() && q.slots > 0 {
		broken("%q holds %d slots of %d", q.key, q.slots, most)
	}
	under := -1 // a bare queue does not count them
	if keyed {
		if under = q.underLocked(); under < 0 {
			waiting := 0
			if q.line != nil {
				waiting = q.line.count
			}
			broken("%q: of %d calls begun %d have ended, %d rest and %d wait", q.key, q.begun, q.ended.Load(), q.resting.Load(), waiting)
		}
	}
	q.up.Check(under)
}

// check: a line exists while somebody waits, and each of those who stand in it waits; one may ask.
func (l *line) check() {
	n := 0
	l.each(func(w *waiter) {
		n++
		if w.state > asking || (w.state == asking) != (w == l.asking) {
			broken("%q: a waiter in line should neither have left nor ask out of turn: %s", l.q.key, l.listed())
		}
	})
	if n == 0 || n != l.count {
		broken("%q: a line of %d counts %d", l.q.key, n, l.count)
	}
	l.checkHolds()
}

// checkHolds: of a key with meters all who wait have holds, nobody else has, and their sums are known. An example: a call is
// granted and stays in the map. Its tokens would count as waiting for ever, and each prediction be too long by them.
func (l *line) checkHolds() {
	m := l.q.meters
	if m == nil {
		if len(l.holds) > 0 {
			broken("%q has no meters, and %d calls with holds", l.q.key, len(l.holds))
		}
		return
	}
	sums := make([]int64, len(m.each))
	l.each(func(w *waiter) {
		h := l.holds[w]
		if h == nil || h.meters != m || h.open != 0 {
			broken("%q: call %d should wait with holds of its own that are not taken", l.q.key, w.seq)
		}
		for i := range sums {
			sums[i] += int64(h.Held(i))
		}
	})
	if len(l.holds) != l.count || !slices.Equal(sums, m.waiting) {
		broken("%q: %d calls wait for %v of the meters, and %d for %v are counted", l.q.key, l.count, sums, len(l.holds), m.waiting)
	}
}

// listed shows the priority, number, cost, scope and state of each waiter.
func (l *line) listed() string { return listed(l.ordered()) }

func listed(ws []*waiter) string {
	var all []string
	for _, w := range ws {
		all = append(all, fmt.Sprintf("%d/%d/%d/%d/%d", w.prio, w.seq, w.cost, w.scope, w.state))
	}
	return strings.Join(all, " ")
}

// A look is what was seen of a queue at the end of a critical section, to compare the next one with.
//
// Two looks in a row are a before and an after, which show what no single look can. An example: calls 1
// and 2 of priority 0 and call 3 of priority 5 stood in line, and served was 4. Now it is 5 and call 1
// has been granted: broken, because turn 4 was that of call 3.
type look struct {
	line    *line // nil: nobody waited
	served  uint32
	waiters []*waiter
	plain   bool      // who goes next depends on priority and arrival alone
	scope   uint8     // plain: that of all
	head    *waiter   // who could go, and has not gone; nil: nobody
	since   time.Time // when head was first seen
}

// take notes how things stand. q has a line.
func (s *look) take(q *Queue) {
	l := q.line
	probing := q.up.Closing(q.common.now()).Probing
	s.line, s.served, s.waiters = l, l.served, s.waiters[:0]
	s.plain, s.scope = !probing && l.asking == nil && len(l.scopes) == 1 && l.flows == nil, l.scopes[0].number
	l.each(func(w *waiter) { s.waiters = append(s.waiters, w) })
}

// checkChange compares q with what was seen before.
//
// The head that could go must be gone by the next look, but for the time that timers take. An example
// in virtual time: call 7 has had its units since t and still stands at the head at t + 6 ms, where
// limit.MaxLate is 5 ms. So some event has not called advance.
func (s *look) checkChange(q *Queue, now time.Time) {
	if l := s.line; l != nil {
		s.checkOrder(q)
		if s.line = q.line; l != q.line && (l.stop != nil || l.timer != nil && l.timer.Stop()) {
			broken("%q: a line that is gone watches its limiters: %v, or has a timer that runs", q.key, l.stop != nil)
		}
	}
	switch w := q.couldGo(now); {
	case w == nil || w != s.head:
		s.head, s.since = w, now
	case now.Sub(s.since) > lateness(now):
		broken("%q: the head could have gone since %v: %s", q.key, s.since, q.line.listed())
	}
}

// lateness is how long it may take until timers and goroutines have run that are due. A bubble of
// testing/synctest begins in the year 2000. There, time stands still until all have run: what remains
// is the time that a late take is made up for.
func lateness(now time.Time) time.Duration {
	if now.Year() < 2020 {
		return limit.MaxLate
	}
	return 10 * time.Second
}

// checkOrder: those who went since then went in order, unless somebody came or left otherwise. It uses
// up the waiters that were noted.
//
// It plays the turns again, by a plain search for the least of all who were there in place of the tree:
// two ways to the same order, and the plain one is easy to trust.
func (s *look) checkOrder(q *Queue) {
	l, there := s.line, s.waiters
	if !s.plain || q.up.Closing(q.common.now()).Probing {
		return
	}
	gone := 0
	for _, w := range there {
		switch {
		case w.scope != s.scope: // an answer has moved it to the scope of its route, and others may go first now
			return
		case w.state == granted:
			gone++
		case w.index == -1: // cancelled or refused
			return
		}
	}
	if q.line == l && l.count != len(there)-gone || int(l.served-s.served) != gone {
		return
	}
	for turn := s.served; turn != l.served; turn++ {
		next := slices.MinFunc(there, func(a, b *waiter) int {
			if turn%fairEvery == fairEvery-1 {
				return cmp.Compare(a.seq, b.seq)
			}
			return cmp.Or(cmp.Compare(b.prio, a.prio), cmp.Compare(a.seq, b.seq))
		})
		if next.state != granted {
			broken("%q: turn %d was that of call %d, priority %d, which still waits: %s", q.key, turn, next.seq, next.prio, listed(there))
		}
		there = slices.DeleteFunc(there, func(w *waiter) bool { return w == next })
	}
}

// lookAtTable checks all keys, and returns how many there are, with all who wait.
//
// The table may have more than t.most keys while busy ones cannot be dropped, and shrinks by one for
// each new key. An example: 4 keys at most, and 6 were busy at once: up to 10 are sound. Who looks at evictTries keys
// may miss the idle ones, so a few more are.
func (m *mutex) lookAtTable(now time.Time) (n int) {
	t, busy, units, lines := m.table, 0, int64(0), []*line(nil)
	for i, e := range t.order {
		q := &e.queue
		n += 1 + m.lookAt(q, now)
		if q.busyLocked() {
			busy++
		}
		if t.keys[q.key] != e {
			broken("key %q is not in its place, which is %d", q.key, i)
		}
		if b := t.common.Budget; e.balance.spent < 0 || b.PerCall >= 0 && e.balance.spent > b.most(true)+1e-3 {
			broken("key %q has spent %v of a retry budget of %v", q.key, e.balance.spent, b.Max)
		}
		if q.line != nil {
			q.line.each(func(w *waiter) { units += int64(w.cost) })
			lines = append(lines, q.line)
		}
	}
	if len(t.keys) != len(t.order) {
		broken("the table has %d keys, and %d in order", len(t.keys), len(t.order))
	}
	if m.busiest = max(m.busiest, busy); len(t.keys) > t.most+m.busiest+evictTries {
		broken("the table has %d keys; at most %d should be idle, and %d have been busy at once", len(t.keys), t.most, m.busiest)
	}
	if t.common.shared != nil {
		t.common.shared.check(units)
		t.common.shared.flows.checkFlows(lines)
		t.common.shared.checkSlots(t.order)
	}
	if h := t.common.hosts; h != nil && (len(h) == 0 || len(h) > maxHosts) {
		broken("%d closings of hosts are kept", len(h))
	}
	m.forget()
	return n
}

// forget drops the looks at queues that are not in the table any more. Those have no calls.
func (m *mutex) forget() {
	if len(m.looks) <= len(m.table.keys) {
		return
	}
	maps.DeleteFunc(m.looks, func(q *Queue, _ *look) bool {
		e := m.table.keys[q.key]
		gone := e == nil || &e.queue != q
		if gone && q.busyLocked() {
			broken("key %q was dropped with calls", q.key)
		}
		return gone
	})
}

// check: the line before the shared limiter has an entry for each key whose head waits there, and
// tallies the units of all who wait. So many units do.
func (s *sharedLine) check(units int64) {
	for prio, n := range s.waiting {
		if units -= n; n <= 0 {
			broken("the shared line tallies %d units of priority %d", n, prio)
		}
	}
	if units != 0 {
		broken("the shared line tallies %d units less than wait", units)
	}
	if s.count != len(s.entries) || s.count != len(s.queues) || s.settling || s.dirty {
		broken("the shared line counts %d entries, has %d and %d; it should have settled: %v, %v", s.count, len(s.entries), len(s.queues), s.settling, s.dirty)
	}
	for q := range s.entries {
		if q.line == nil {
			broken("key %q is in the shared line, and nobody waits in it", q.key)
		}
	}
	if a := s.asking; a != nil && (a.line == nil || a.line.asking == nil) {
		broken("the shared line waits for key %q, which does not ask", a.key)
	}
}
