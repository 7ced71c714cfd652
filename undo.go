package throttle

import "time"

// This file is what a Queue does for its line when a call leaves it.

// gone implements rule.
func (q *Queue) gone(w *waiter) {
	if s := q.room.shared; s != nil {
		s.waiting.add(w.prio, -int64(w.cost))
	}
}

// emptied implements rule.
func (q *Queue) emptied() {
	q.line = nil
	if s := q.room.shared; s != nil {
		s.stepOut(q)
	}
	if q.foreign != nil {
		q.foreign.lastGrant = time.Time{}
	}
}

// undo implements rule: w was granted and cannot go.
func (q *Queue) undo(w *waiter, now time.Time) {
	at := q.room.base.Add(w.moment)
	if w.slot() {
		q.slots--
	}
	q.counters.sent--
	q.gate.undo(w.epoch, w.cost, now, q.pace())
	if w.wants&paidLane != 0 {
		q.learned.undo(w.lane, w.cost, at)
	}
	q.limits.giveBack(at, now, w.cost)
	if s := q.room.shared; s != nil {
		s.dirty = true // the units may be for another key
	}
	q.advance(now)
}

// watch implements rule.
func (q *Queue) watch(changed func()) (stop func()) { return watch(q.limits.own, changed) }
