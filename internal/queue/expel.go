package queue

import (
	"time"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/upstream"
)

// This file sends waiters away when the upstream has served nobody for MaxPause, or is advertised to. A closing whose end is
// known is judged when it begins; while nobody knows the end, all leave when MaxPause is over. All of it is called with the
// lock held.

// expelLocked sends away those who would wait for too long, now that the gate has closed, or a quota is spent, and
// plans when to look again.
func (q *Queue) expelLocked(now time.Time) {
	l := q.line
	if l == nil || q.up.Closing(now).Cause == upstream.Open && q.up.Scopes() == 0 {
		return
	}
	first := l.expelAt.IsZero() || now.Before(l.expelAt) // when MaxPause is over nobody stays
	q.planExpulsionLocked(l, now)
	// Those who leave count no more for those behind them: when a call of 50 units leaves at 10/s, the
	// calls behind it start 5 s sooner, and may meet their deadlines.
	var ahead int64
	var scopes [upstream.MaxScopes]int64 // of ahead, those of each scope
	look := lookAhead{q: q, now: now}
	for _, w := range l.ordered() {
		if err := q.doomedLocked(w, upstream.Before{All: ahead, Scope: scopes[w.scope], Shared: ahead}, first, &look); err != nil {
			q.refused++
			l.leave(w, refused, err)
			continue
		}
		first, ahead = false, ahead+int64(w.cost)
		scopes[w.scope] += int64(w.cost)
		look.passLocked(l.holdsOf(w))
	}
	if l.count == 0 {
		l.close()
	}
}

// doomedLocked returns the error of w, with so many units before it, none at all if it is the first, if w must leave now; nil
// if it may stay. A waiter that asks a foreign limiter is looked at when it has its answer.
//
// An example with MaxPause 60 s and a Retry-After of 90 s: all leave at once, and learn that it is 90
// s. With 40 s all stay if somebody was served in the last 20 s. With failures and no known end everybody stays, until
// nobody has been served for 60 s.
func (q *Queue) doomedLocked(w *waiter, before upstream.Before, first bool, look *lookAhead) error {
	now := look.now
	if w.state == asking {
		return nil
	}
	if wait, yes := q.up.Patience(q.common.MaxPause, w.scope, first, now); yes {
		return q.sentAwayLocked(w, before, wait, q.pausedLocked(now), now)
	}
	if c := q.up.Closing(now); w.deadline == 0 || c.Cause == upstream.Open || c.Probing {
		return nil
	}
	if at := look.startLocked(before, int(w.cost), q.line.holdsOf(w), w.scope); at.Add(q.answerTimeLocked(w)).After(q.common.base.Add(w.deadline)) {
		return q.sentAwayLocked(w, before, at.Sub(now), q.common.Errors.Deadline, now)
	}
	return nil
}

// planExpulsionLocked has the line looked at again when the upstream has served nobody for MaxPause. Who comes after that and
// may stay is the next probe.
func (q *Queue) planExpulsionLocked(l *line, now time.Time) {
	if l.expelAt = q.up.PatienceEnds(q.common.MaxPause, now); !l.expelAt.After(now) {
		l.expelAt = time.Time{}
	}
}

// orExpelLocked returns d, with the line looked at no later than when MaxPause is over.
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
