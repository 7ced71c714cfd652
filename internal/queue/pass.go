package queue

import (
	"time"

	"github.com/go-throttle/throttle/internal/upstream"
)

// This file decides whose turn it is in a line, and whether that call may go. All of it is called with the lock held.

// advanceLocked lets go who may go: in this line, and in those of other keys whose turn at what is shared has come by it.
// It is called after every event: a timer, a freed slot, an answer, a changed limit.
func (q *Queue) advanceLocked(now time.Time) {
	if l := q.line; l != nil && !l.expelAt.IsZero() && !now.Before(l.expelAt) && q.up.Closing(now).Cause != upstream.Open {
		q.expelLocked(now)
	}
	if q.line != nil {
		q.line.advance(now)
	}
	q.common.settle(now)
}

// headLocked returns the waiter whose turn it is as far as its key alone is concerned. While the gate is probing that is
// the best probe: one that can be sent again, because a probe is likely to fail; then the one with the fewest attempts, so
// that no call spends its attempts on probes alone; then the oldest.
//
// An example: the gate was closed by failures, and a probe is due. A POST of attempt 1 is the oldest, then come a GET with
// 2 attempts and a GET with none. The probe is the last one. If the gate were open, the POST would go.
func (q *Queue) headLocked(now time.Time) *waiter {
	l := q.line
	if !q.up.ProbeDue(now) {
		var ready func(scope uint8, cost int32) time.Time
		if q.up.Scopes() > 1 {
			ready = func(scope uint8, cost int32) time.Time { return q.up.ScopeReady(scope, int(cost), now) }
		}
		return l.Next(ready, now).Of
	}
	var best *waiter
	for c := range l.All() {
		switch w := c.Of; {
		case best == nil, w.resend() && !best.resend():
			best = w
		case w.resend() != best.resend():
		case w.tries < best.tries, w.tries == best.tries && w.Seq < best.Seq:
			best = w
		}
	}
	l.Hold(&best.Call)
	return best
}

// passLocked lets w, the head, go if nothing holds it. If it is held by what several keys share, it waits for its turn
// there: block. at is the moment for which units are taken, see asOf.
func (q *Queue) passLocked(w *waiter, at, now time.Time) decision {
	l := q.line
	q.slotLocked(w)
	if q.lateLocked(w, now) {
		q.trouble().refused++
		return decision{verdict: deny, err: q.common.Errors.Deadline}
	}
	if len(l.stakes) > 0 || !q.easyLocked(w) {
		var d decision
		if at, d = q.readyLocked(w, at, now); d.verdict != grant {
			l.stepOut()
			return q.orExpelLocked(d, now)
		}
		if p := l.heldBy(w, at, now); p != nil {
			return q.orExpelLocked(l.stand(p, w, now), now)
		}
	}
	d := q.goLocked(w, at, now)
	if d.verdict == grant {
		l.granted(w, nil, false)
	}
	return q.orExpelLocked(d, now)
}

// easyLocked reports whether nothing but own limiters and what is shared can hold w back. Those are asked when they are paid,
// in one step, and all else need not be asked or told: half of what a grant costs in a line of 100,000.
func (q *Queue) easyLocked(w *waiter) bool {
	return q.up.Calm() && q.common.hosts == nil && q.asker == nil && w.wants&wantsSlot == 0 && w.holds() == nil
}

// readyLocked asks what holds the calls of the key alone whether w may go, and as of when. Nothing is taken.
func (q *Queue) readyLocked(w *waiter, at, now time.Time) (time.Time, decision) {
	if h := w.holds(); h != nil && h.claims != nil {
		q.line.Amend(&w.Call, func() { h.renewLocked(now) })
	}
	return q.constraints().ready(w.need(w.holds()), at, now)
}

// goLocked pays for w and counts it as going: everything in one step, or nothing.
func (q *Queue) goLocked(w *waiter, at, now time.Time) decision {
	h := w.holds()
	at, err := q.dues().take(h, at, now, w.Cost)
	switch {
	case err != nil:
		return decision{verdict: deny, err: err}
	case at.After(now):
		return decision{verdict: later, until: at, exact: true}
	}
	q.startLocked(w, h, q.line.stakes, 1, at, now)
	w.moment = at.Sub(q.common.base)
	w.epoch = q.up.Epoch()
	return decision{verdict: grant}
}

// startLocked counts a call that goes as of at, with h.
func (q *Queue) startLocked(w *waiter, h *Holds, stakes []stake, lined int, at, now time.Time) {
	if h != nil {
		h.startLocked(at)
	}
	w.level = upstream.LevelOf(q.flyingLocked(lined))
	q.up.StartAt(w.level, now)
	n := w.need(h)
	if q.easyLocked(w) {
		q.up.Start(n.scope, int(n.cost), at, now)
	} else {
		for _, c := range q.constraints() {
			w.wants |= c.start(n, at, now)
		}
	}
	for i := range stakes {
		stakes[i].start(n, at, now)
	}
	q.tookLocked(int(w.Cost))
}

// granted takes w, which goes, out of the line. p is where its turn has come; nil: it had not to wait for one.
func (l *lineup) granted(w *waiter, p *pool, inTurn bool) {
	if l.Len() == 1 {
		l.q.up.LineEmpty(time.Now())
	}
	for i := range l.stakes {
		switch s := &l.stakes[i]; {
		case s.pool == p:
			p.Granted(&w.Call, inTurn)
		default:
			s.Charge(&w.Call, s.Live() == 0) // where nobody stands it was its turn
			s.common.stirPool(s.pool)        // and its order may be another one
		}
	}
	l.Granted(&w.Call)
	l.leave(w, granted, nil)
}

// undoLocked takes back the grant of w, which cannot go because its ctx has ended: slots, units and what gate and quotas
// have counted. The next in line is looked at.
//
// Units go back as of the moment when they were taken, not as of now: a window that has ended since does not get units
// that belong to the one before. What it holds of meters goes back without the lock, see Call.Sleep.
func (q *Queue) undoLocked(w *waiter, now time.Time) {
	at, n := q.common.base.Add(w.moment), w.need(nil)
	for _, c := range q.constraints() {
		c.undo(n, at, now)
	}
	q.beyond -= int64(w.Cost) - 1
	q.limits().GiveBack(at, now, int(w.Cost))
	q.common.stir(q)
	q.advanceLocked(now)
}
