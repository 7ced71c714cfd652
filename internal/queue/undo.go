package queue

import (
	"time"

	"github.com/go-throttle/throttle/internal/account"
)

// This file is what a Queue does for its line when a call leaves it.

// gone implements rule.
func (q *Queue) gone(w *Waiter) {
	if s := q.Room.Shared; s != nil {
		s.Waiting.add(w.Prio, -int64(w.Cost))
	}
}

// emptied implements rule.
func (q *Queue) emptied() {
	q.Line = nil
	q.crowded.Store(false)
	if s := q.Room.Shared; s != nil {
		s.stepOut(q)
	}
	if q.Foreign != nil {
		q.Foreign.lastGrant = time.Time{}
	}
}

// undo implements rule: w was granted and cannot go.
func (q *Queue) undo(w *Waiter, now time.Time) {
	at := q.Room.Base.Add(w.moment)
	if w.Slot() {
		q.Slots--
	}
	q.Counters.Sent--
	q.Gate.Undo(w.Epoch, w.Cost, now, q.Pace())
	if w.Wants&PaidLane != 0 {
		q.Learned.Undo(w.Lane, w.Cost, at)
	}
	q.Limits.GiveBack(at, now, w.Cost)
	if s := q.Room.Shared; s != nil {
		s.Dirty = true // the units may be for another key
	}
	q.Advance(now)
}

// watch implements rule.
func (q *Queue) watch(changed func()) (stop func()) { return account.Watch(q.Limits.Accounts, changed) }
