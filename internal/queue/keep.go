package queue

import (
	"time"

	"github.com/go-throttle/throttle/internal/gate"
)

// This file tells who keeps many queues whether one may be dropped.

// Busy reports whether calls wait, are under way or rest.
func (q *Queue) Busy() bool {
	return q.Line != nil || q.Slots > 0 || q.Begun != q.Ended.Load()
}

// AsNew reports whether a queue made anew would behave the same.
func (q *Queue) AsNew(now time.Time) bool {
	g := &q.Gate
	if q.Busy() || g.Closed(now, q.Pace()) {
		return false
	}
	g.LineEmpty(now)
	return (g.Trouble == nil || g.Mode != gate.Paced && g.Flying == 0) && q.Own.Fresh(now)
}

// CauseAt is why the gate is closed at now; Open if it is not, or may open at once.
func (q *Queue) CauseAt(now time.Time) gate.Cause {
	g := &q.Gate
	if g.Trouble == nil || !g.Probing && !now.Before(g.Until) {
		return gate.Open
	}
	return g.Cause
}

// OpenPaced makes the gate of a new queue let one call go at once and those after it at the pace of the
// limit, as after a closing: a table that is full is not to let a burst go to each of many newcomers.
func (q *Queue) OpenPaced(now time.Time) { q.Gate.Begin(now, q.Limits.Pace(now)) }
