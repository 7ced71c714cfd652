//go:build throttle_invariants

package queue

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/line"
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
	could   []*waiter             // who could go
	stuck   map[*waiter]time.Time // those of them who could at the last look, since when
	lines   map[*lineup]bool      // that were there
	pools   map[*pool]bool
	busiest int // keys with calls at once
	pause   int // critical sections until the next look
}

// One look may visit so many keys and waiters (lookAtOnce). Where there are more, so many critical sections
// pass without a look that each has paid for lookShare of those visits, and a look is not compared with the
// one before. Example: 100,000 calls wait. One look visits all of them, and the next follows 25,000
// critical sections later; so filling and draining the line costs a few looks and not 200,000.
const (
	lookAtOnce = 256
	lookShare  = 4
)

func guardTable(t *Table) {
	t.common.mu.table, t.common.mu.lines, t.common.mu.pools = t, map[*lineup]bool{}, map[*pool]bool{}
}

func guardQueue(q *Queue) { q.common.mu.queue, q.common.mu.lines = q, map[*lineup]bool{} }

// tableSize is maxKeys, or what the environment says: the soak fills tables that are small.
func tableSize() int {
	if n, err := strconv.Atoi(os.Getenv("THROTTLE_TABLE_SIZE")); err == nil {
		return n
	}
	return maxKeys
}

// ending returns stop, which ends the watch of l on its limiters, and notes that it was called.
func (l *lineup) ending(stop func()) func() { return func() { stop(); l.stop = nil } }

// Unlock looks and unlocks, in a panic too: otherwise whoever recovers it would meet a dead lock.
func (m *mutex) Unlock() {
	defer m.Mutex.Unlock()
	if m.pause--; m.pause < 0 {
		m.look(time.Now())
	}
}

func (m *mutex) look(now time.Time) {
	var n int
	m.could = m.could[:0]
	if m.queue != nil {
		n = m.lookAt(m.queue, now)
	}
	if m.table != nil {
		n = m.lookAtTable(now)
	}
	m.lookAtGone()
	var stuck map[*waiter]time.Time
	if len(m.could) > 0 {
		stuck = map[*waiter]time.Time{}
	}
	for _, w := range m.could {
		since, seen := m.stuck[w]
		if !seen {
			since = now
		}
		if stuck[w] = since; now.Sub(since) > lateness(now) {
			broken("%q: call %d could have gone since %v, or have taken its place in a pool", w.queue().key, w.Seq, since)
		}
	}
	if m.stuck, m.pause = stuck, 0; n > lookAtOnce {
		m.stuck, m.pause = nil, n/lookShare
		m.busiest = math.MaxInt / 2 // not known
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

// lookAt checks one queue, notes who could go, and returns how many wait.
func (m *mutex) lookAt(q *Queue, now time.Time) int {
	most, l := q.common.Options.MaxInFlight, q.line
	if q.slots < 0 || most > 0 && int(q.slots) > most || m.table != nil && !q.common.slotted() && !q.up.Slotted() && q.slots > 0 {
		broken("%q holds %d slots of %d", q.key, q.slots, most)
	}
	under := -1 // a bare queue does not count them
	if m.table != nil {
		if under = q.underLocked(); under < 0 {
			broken("%q: of %d calls begun %d have ended, and %d rest", q.key, q.begun, q.ended.Load(), q.troubled().resting.Load())
		}
	}
	if q.up.Check(under); l == nil {
		return 0
	}
	if l.q != q || l.Len() == 0 {
		broken("%q: a line of %d is there", q.key, l.Len())
	}
	m.lines[l] = true
	l.Check()
	l.checkWaiters()
	full, _ := q.fullLocked(now)
	closed := q.up.Closing(now).Left > 0 || m.table != nil && full
	for s := range l.Stations() {
		if closed && s.In() != nil {
			broken("%q stands in a pool, and its gate is closed or its slots are taken", q.key)
		}
	}
	if q.up.MayStart(now) {
		if w := q.headLocked(now); l.StationOf(&w.Call).In() == nil && q.passes(w, now) {
			m.could = append(m.could, w)
		}
	}
	return l.Len()
}

// checkWaiters: each of those who stand in line waits, and of a key with meters all have holds of their own, whose sums are known.
func (l *lineup) checkWaiters() {
	m := l.q.meters
	sums := make([]int64, 0, MaxMeters)
	if m != nil {
		sums = sums[:len(m.each)]
	}
	for c := range l.All() {
		w, h := c.Of, c.Of.holds()
		if w.state != waiting || w.queue() != l.q || &w.Call != c {
			broken("%q: call %d is in line, and does not wait there: %d", l.q.key, c.Seq, w.state)
		}
		if (h == nil) != (m == nil) || h != nil && (h.meters != m || h.open != 0) {
			broken("%q: call %d should wait with holds of its own that are not taken", l.q.key, w.Seq)
		}
		for i := range sums {
			sums[i] += int64(h.Held(i))
		}
		if w.extra != nil && w.extra.owed != nil && w.extra.owed.owed != w {
			broken("%q: call %d goes first in a pool that does not know it", l.q.key, w.Seq)
		}
	}
	if m != nil && !slices.Equal(sums, m.waiting) {
		broken("%q: calls wait for %v of the meters, and %v are counted", l.q.key, sums, m.waiting)
	}
}

// passes reports whether nothing that its key has alone holds w back. A wrong false hides a bug, a wrong true invents one: what is not
// certain is false.
func (q *Queue) passes(w *waiter, now time.Time) bool {
	_, d := (*slotsOf)(q).ready(w.need(nil), now, now)
	m, err := q.aloneLocked().ready(w.holds(), now, w.Cost)
	return q.up.MayStart(now) && d.verdict == grant && err == nil && !m.After(now) && q.asker.moves(now)
}

// moves reports whether the limiters have said yes, or are to be asked.
func (a *asker) moves(now time.Time) bool {
	return a == nil || !a.asking && (a.hand >= 0 || !a.next.After(now))
}

// couldGo is who could go in the pool; nil: nobody, or that is not certain. One that lacks the units of another pool should have gone there.
func (p *pool) couldGo(now time.Time) *waiter {
	c, _ := p.Next()
	if c == nil {
		c = p.NextDead()
	}
	if w := p.owed; w != nil && p.stakeOf(w).lets(w) {
		c = &w.Call
	}
	if c == nil || !c.Of.queue().passes(c.Of, now) {
		return nil
	}
	w, s := c.Of, p.stakeOf(c.Of)
	n := w.need(w.holds())
	if _, d := s.free(n, now, now); d.verdict != grant || !p.asker.moves(now) || !s.spares(w, n, now) {
		return nil
	}
	return w
}

// lookAtGone: a line or pool that is gone watches no limiter, and has no timer that runs.
func (m *mutex) lookAtGone() {
	gone := func(stops bool, timer *time.Timer) {
		if stops || timer != nil && timer.Stop() {
			broken("what nobody waits in watches its limiters: %v, or has a timer that runs", stops)
		}
	}
	for l := range m.lines {
		if l.q.line != l {
			gone(l.stop != nil, l.timer)
			delete(m.lines, l)
		} else if t := m.table; t != nil && (t.keys[l.q.key] == nil || &t.keys[l.q.key].queue != l.q) {
			broken("key %q was dropped with calls", l.q.key)
		}
	}
	for p := range m.pools {
		if p.lines == 0 {
			gone(p.stop != nil, p.timer)
			delete(m.pools, p)
		}
	}
}

// lookAtTable checks all keys and pools, and returns how many keys there are, with all who wait.
//
// The table may have more than t.most keys while busy ones cannot be dropped, and shrinks by one for
// each new key. An example: 4 keys at most, and 6 were busy at once: up to 10 are sound. Who looks at evictTries keys
// may miss the idle ones, so a few more are.
func (m *mutex) lookAtTable(now time.Time) (n int) {
	t, busy, held, dead := m.table, 0, 0, 0
	var lines []*lineup
	for i, e := range t.order {
		q := &e.queue
		if n += 1 + m.lookAt(q, now); q.line != nil {
			lines = append(lines, q.line)
		}
		if held += int(q.slots); q.dead() {
			dead += int(q.slots)
		}
		if q.busyLocked() {
			busy++
		}
		if t.keys[q.key] != e {
			broken("key %q is not in its place, which is %d", q.key, i)
		}
		if b := t.common.Budget; e.balance.spent < 0 || b.PerCall >= 0 && e.balance.spent > b.most(true)+1e-3 {
			broken("key %q has spent %v of a retry budget of %v", q.key, e.balance.spent, b.Max)
		}
	}
	if len(t.keys) != len(t.order) {
		broken("the table has %d keys, and %d in order", len(t.keys), len(t.order))
	}
	if m.busiest = max(m.busiest, busy); len(t.keys) > t.most+m.busiest+evictTries {
		broken("the table has %d keys; at most %d should be idle, and %d have been busy at once", len(t.keys), t.most, m.busiest)
	}
	if all := t.common.all; all != nil && (held != all.inFlight || dead != all.dead || all.most > 0 && held > all.most) {
		broken("of %d slots %d are held, %d by dead keys; counted are %d and %d", all.most, held, dead, all.inFlight, all.dead)
	}
	if h := t.common.hosts; h != nil && (len(h) == 0 || len(h) > maxHosts) {
		broken("%d closings of hosts are kept", len(h))
	}
	m.lookAtPools(lines, now)
	return n
}

// lookAtPools: each line has a stake in what it shares with others, and is the only one that pays the rest.
func (m *mutex) lookAtPools(lines []*lineup, now time.Time) {
	r := &m.table.common
	if r.settling || len(r.dirty)+len(r.stirred) > 0 {
		broken("%d pools and %d lines should have been looked at: %v", len(r.dirty), len(r.stirred), r.settling)
	}
	if r.all != nil && len(lines) == 0 {
		m.lookAtPool(r.all, nil, now)
	}
	if len(lines) == 0 && len(r.payers) == 0 {
		return
	}
	in, paid := map[*pool][]*line.Line[waiter]{}, map[limit.Account]int{}
	for _, l := range lines {
		for i := range l.stakes {
			in[l.stakes[i].pool] = append(in[l.stakes[i].pool], &l.Line)
		}
		for a := range l.q.accounts() {
			paid[a]++
			of := r.payers[a]
			if stands := slices.ContainsFunc(l.stakes, func(s stake) bool { return s.pool == of.pool }); (of.sole != l || paid[a] > 1) && !stands {
				broken("%q pays what others pay or did, and has no stake in it: %+v", l.q.key, of)
			}
		}
	}
	if len(paid) != len(r.payers) {
		broken("calls wait for %d limiters, and %d are known", len(paid), len(r.payers))
	}
	for p, lines := range in {
		m.lookAtPool(p, lines, now)
	}
}

// lookAtPool: it counts the lines that have a stake in it, and who goes first in it, or is saved for, waits.
func (m *mutex) lookAtPool(p *pool, lines []*line.Line[waiter], now time.Time) {
	m.pools[p] = true
	p.Check(lines)
	if p.lines != len(lines) || p.dirty || p.share < 0 {
		broken("a pool counts %d lines, and has %d; dirty: %v, share %v", p.lines, len(lines), p.dirty, p.share)
	}
	if w := p.saved; w != nil && (w.state != waiting || w.extra == nil || w.extra.owed == nil || w.extra.owed == p) {
		broken("units are saved for call %d, which does not wait for another pool; its state is %d", w.Seq, w.state) // it may be in no line
	}
	if w := p.owed; w != nil && (w.state != waiting || w.extra == nil || w.extra.owed != p) {
		broken("call %d goes first in a pool for which it does not wait; its state is %d", w.Seq, w.state)
	}
	if w := p.couldGo(now); w != nil {
		m.could = append(m.could, w)
	}
}
