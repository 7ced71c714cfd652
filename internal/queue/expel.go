package queue

import (
	"time"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/upstream"
)

// This file sends waiters away when the upstream has served nobody for MaxPause, or is advertised to. A closing whose end is
// known is judged when it begins; while nobody knows the end, all leave when MaxPause is over. All of it is called with the
// lock held.

// expelLocked sends away those who would wait for too long, now that the gate has closed, or a quota is spent, and plans
// when to look again. Nothing is sorted for that: a call is taken to go before all others but those of its own flow.
func (q *Queue) expelLocked(now time.Time) {
	l := q.line
	if l == nil || q.up.Closing(now).Cause == upstream.Open && q.up.Scopes() == 0 {
		return
	}
	first := l.expelAt.IsZero() || now.Before(l.expelAt) // when MaxPause is over nobody stays
	q.planExpulsionLocked(l, now)
	q.expelUnservedLocked(first, now)
	q.expelLateLocked(now)
	if l.Len() == 0 {
		l.close()
	}
}

// expelUnservedLocked sends away those of scopes that the upstream serves too late. The head may stay, if first, where it
// is the probe.
//
// An example with MaxPause 60 s and a Retry-After of 90 s: all leave at once, and learn that it is 90 s. With 40 s all stay
// if somebody was served in the last 20 s. With failures and no known end everybody stays, until nobody has been served
// for 60 s.
func (q *Queue) expelUnservedLocked(first bool, now time.Time) {
	l := q.line
	var leave []*waiter
	for scope := range l.Scopes() {
		if _, yes := q.up.Patience(q.common.MaxPause, scope, false, now); !yes {
			continue
		}
		for c := range l.All() {
			if c.Scope == scope {
				leave = append(leave, c.Of)
			}
		}
	}
	if leave == nil {
		return
	}
	stays := (*waiter)(nil)
	if head := q.headLocked(now); first {
		if _, yes := q.up.Patience(q.common.MaxPause, head.Scope, true, now); !yes {
			stays = head
		}
	}
	for _, w := range leave {
		if w == stays {
			continue
		}
		wait, _ := q.up.Patience(q.common.MaxPause, w.Scope, false, now)
		q.trouble().refused++
		l.leave(w, refused, q.sentAwayLocked(w, 0, wait, q.pausedLocked(now), now))
	}
}

// expelLateLocked sends away those whose deadlines are over before the upstream is open again and those of their own flow
// before them have gone. All are looked at again when the closing has grown by a 64th.
func (q *Queue) expelLateLocked(now time.Time) {
	l, c := q.line, q.up.Closing(now)
	opens := now.Add(c.Left)
	if l.Len() == 0 || l.deadline == 0 || c.Cause == upstream.Open || c.Probing || !opens.After(l.looked.Add(l.looked.Sub(now)/64)) {
		return
	}
	l.deadline = 0
	type late struct {
		w     *waiter
		ahead int64
		at    time.Time
	}
	var leave []late
	var ahead int64
	of := ""
	for c := range l.All() { // part by part
		w := c.Of
		if flow, _ := l.Flow(c); flow != of {
			of, ahead = flow, 0
		}
		if w.deadline != 0 {
			if at := limit.Latest(opens, q.own.After(opens, ahead, int(w.Cost))); at.Add(q.answerTimeLocked(w.wants, w.also().reserve)).After(q.common.base.Add(w.deadline)) {
				leave = append(leave, late{w, ahead, at})
				continue
			}
			l.noteDeadline(w)
		}
		ahead += int64(w.Cost)
	}
	l.looked = opens
	for _, its := range leave {
		q.trouble().refused++
		l.leave(its.w, refused, q.sentAwayLocked(its.w, its.ahead, its.at.Sub(now), q.common.Errors.Deadline, now))
	}
}

// planExpulsionLocked has the line looked at again when the upstream has served nobody for MaxPause. Who comes after that and
// may stay is the next probe.
func (q *Queue) planExpulsionLocked(l *lineup, now time.Time) {
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
		if d.until.IsZero() || q.line.expelAt.Before(d.until) {
			return decision{verdict: later, until: q.line.expelAt}
		}
	}
	return d
}
