package queue

import (
	"time"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/upstream"
)

// This file sends waiters away whom the upstream makes wait for too long. A call may spend MaxPause behind
// closed gates, over all its attempts. While a closing has a known end, whom it lasts too long leaves when
// it begins; while nobody knows its end, each waiter leaves when it has spent what it may. All of it
// is called with the lock held.

// expelLocked sends away those who would wait for too long, now that the gate has closed, or a quota is spent, and
// plans when to look again.
func (q *Queue) expelLocked(now time.Time) {
	l := q.line
	if l == nil || q.up.Closing(now).Cause == upstream.Open && q.up.Scopes() == 0 {
		return
	}
	l.expelAt = time.Time{}
	// Those who leave count no more for those behind them: when a call of 50 units leaves at 10/s, the
	// calls behind it start 5 s sooner, and may meet their deadlines.
	var ahead int64
	var scopes [upstream.MaxScopes]int64 // of ahead, those of each scope
	look := lookAhead{q: q, now: now}
	for _, w := range l.ordered() {
		if err := q.doomedLocked(w, upstream.Before{All: ahead, Scope: scopes[w.scope], Shared: ahead}, &look); err != nil {
			q.refused++
			l.leave(w, refused, err)
			continue
		}
		ahead += int64(w.cost)
		scopes[w.scope] += int64(w.cost)
		look.passLocked(l.holdsOf(w))
		q.planExpulsionLocked(w, now)
	}
	if l.count == 0 {
		l.close()
	}
}

// doomedLocked returns the error of w, with so many units before it, if w must leave now; nil if it may stay. A
// waiter that asks a foreign limiter is looked at when it has its answer.
//
// An example with MaxPause 60 s and a Retry-After of 90 s: all leave at once, and learn that it is 90
// s. With 40 s those stay who have waited for less than 20 s at earlier closings. With failures and no
// known end everybody stays, until its own 60 s are spent.
func (q *Queue) doomedLocked(w *waiter, before upstream.Before, look *lookAhead) error {
	now := look.now
	if w.state == asking {
		return nil
	}
	if wait, yes := q.outOfPatienceLocked(q.pausedByLocked(w, now), w.scope, false, now); yes {
		return q.heldErrorLocked(w, q.line.holdsOf(w), int(w.tries), wait, q.pausedLocked(now), now)
	}
	if c := q.up.Closing(now); w.deadline == 0 || c.Cause == upstream.Open || c.Probing {
		return nil
	}
	if at := look.startLocked(before, int(w.cost), q.line.holdsOf(w), w.scope); at.Add(q.answerTimeLocked(w)).After(q.common.base.Add(w.deadline)) {
		return q.heldErrorLocked(w, q.line.holdsOf(w), int(w.tries), at.Sub(now), q.common.Errors.Deadline, now)
	}
	return nil
}

// outOfPatienceLocked reports whether a call that has waited for that much closed time may not wait for the end of
// this closing, and how long the closing lasts as far as is known.
func (q *Queue) outOfPatienceLocked(spent time.Duration, scope uint8, arriving bool, now time.Time) (time.Duration, bool) {
	return q.up.Patience(q.common.MaxPause, spent, scope, arriving, q.line == nil || q.line.count == 0, now)
}

// pausedByLocked is the closed time that w, which waits, has waited for in all.
//
// An example: the clock of closed time showed 100 s when w joined and shows 130 s now, and w had waited
// for 20 s before that. So it has joined with 20 − 100 = −80 s, and −80 + 130 = 50 s. Of a MaxPause of 60 s,
// 10 s are left. Only subtractions are needed however often the gate opens and closes meanwhile.
func (q *Queue) pausedByLocked(w *waiter, now time.Time) time.Duration {
	return w.paused + q.up.ClosedTime(now)
}

// planExpulsionLocked has the line looked at again when w has spent what it may.
// One moment is kept for the whole line, the earliest. When it comes, the whole line is looked at, and
// the next one is found.
func (q *Queue) planExpulsionLocked(w *waiter, now time.Time) {
	ends := q.up.PatienceEnds(q.common.MaxPause, q.pausedByLocked(w, now), now)
	q.line.expelAt = limit.Soonest(q.line.expelAt, ends)
}

// orExpelLocked returns d, with the line looked at no later than when the first waiter has spent its MaxPause.
func (q *Queue) orExpelLocked(d decision, now time.Time) decision {
	if q.line.expelAt.IsZero() || q.up.Closing(now).Cause == upstream.Open {
		return d
	}
	switch d.verdict {
	case later:
		d.until = limit.Soonest(d.until, q.line.expelAt)
	// The head waits for an event, so there is no timer: one is set for this alone.
	case block:
		return decision{verdict: later, until: q.line.expelAt}
	}
	return d
}
