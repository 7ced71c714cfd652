package queue

import (
	"time"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/upstream"
)

// This file decides whose turn it is, and whether that call may go. All of it is called with the lock held.

// advanceLocked lets go who may go: in this line, and in those of other keys whose turn at the shared limiter has
// come by it. It is called after every event: a timer, a freed slot, an answer, a changed limit.
func (q *Queue) advanceLocked(now time.Time) {
	if l := q.line; l != nil && !l.expelAt.IsZero() && !now.Before(l.expelAt) && q.up.Closing(now).Cause != upstream.Open {
		q.expelLocked(now)
	}
	if q.line != nil {
		q.line.advance(now)
	}
	if s := q.common.shared; s != nil {
		s.settle(now)
	}
}

// headLocked returns the waiter whose turn it is. While the gate is probing that is the best probe: one that can be
// sent again, because a probe is likely to fail; then the one with the fewest attempts, so that no call
// spends its attempts on probes alone; then the oldest.
//
// An example: the gate was closed by failures, and a probe is due. A POST of attempt 1 is the oldest,
// then come a GET with 2 attempts and a GET with none. The probe is the last one. If the gate were
// open, the POST would go.
func (q *Queue) headLocked(now time.Time) *waiter {
	if q.line.count == 0 || !q.up.ProbeDue(now) {
		return q.inOrderLocked(now)
	}
	var best *waiter
	q.line.each(func(w *waiter) {
		switch {
		case best == nil, w.resend() && !best.resend():
			best = w
		case w.resend() != best.resend():
		case w.tries < best.tries, w.tries == best.tries && w.seq < best.seq:
			best = w
		}
	})
	return best
}

// inOrderLocked is headLocked but for probes. With a shared line it is that line's turns that count: when the eighth comes
// to this queue, that is its oldest call's, which stays the head until it goes.
//
// An example: key a has calls of priority 5 without end, and one old call of priority 0. The shared line's eighth turn
// comes to a: the old call is owed a turn. It costs 3 units, and a's own limiter has one. Meanwhile a steps out of the
// shared line, where others go. When the three are there a steps in again, in the place of its calls of priority 5,
// and the old call goes.
func (q *Queue) inOrderLocked(now time.Time) *waiter {
	l, s := q.line, q.common.shared
	if s != nil {
		if w := l.owed; w != nil && w.index != -1 && (q.up.Scopes() <= 1 || !q.up.ScopeReady(w.scope, int(w.cost), now).After(now)) {
			return w
		}
		l.served, l.owed = 0, nil
		if s.oldestTurn() && s.head() == q {
			l.served = s.served
		}
	}
	w := (*waiter)(nil)
	if q.up.Scopes() > 1 {
		w = l.nextIn(func(scope uint8, n int) time.Time { return q.up.ScopeReady(scope, n, now) }, now)
	} else {
		w = l.next()
	}
	if s != nil && l.oldestTurn() {
		l.owed, l.served = w, 0
	}
	return w
}

// passLocked decides about w, the head: may it go, and if so, as of when? at is the moment for which units are
// taken (see asOf). With a shared limiter, w first has to be the head of the shared line too.
//
// The order of the questions is from the cheapest to undo to the dearest: the deadline, slot and gate, the turn
// at the shared limiter, what a foreign limiter has said before; then the own units, which are taken;
// then, without the lock, the foreign ones.
func (q *Queue) passLocked(w *waiter, at, now time.Time) (d decision) {
	if q.lateLocked(w, now) {
		q.refused++
		return decision{verdict: deny, err: q.common.Errors.Deadline}
	}
	s := q.common.shared
	q.line.inTurn = q.line.flows != nil && !q.line.oldestTurn() && w != q.line.owed && !q.up.ProbeDue(now)
	if s != nil {
		q.line.inTurn = q.line.inTurn && !s.oldestTurn()
		// Two limiters may have named a moment, the key's and the shared one. The earlier is the one
		// that has been waited for here, so a late timer is made up for from it on.
		at = asOf(limit.Soonest(s.due, q.line.due), now)
		if d = q.queueUpLocked(w, at, now); d.verdict != grant {
			return q.orExpelLocked(d, now)
		}
	}
	at, d = q.tryLocked(w, q.line.holdsOf(w), at, now)
	switch d.verdict {
	case grant:
		q.grantedLocked(w, at, now)
	case ask:
		q.foreign.taken, q.foreign.stale = at, false
	}
	if s != nil {
		s.follow(q, d)
	}
	return q.orExpelLocked(d, now)
}

// queueUpLocked enters the shared line for w, the head, once w's own slot, gate and limiter would let it go, and
// leaves the shared line if they no longer do. It says grant when this queue is at the head there.
//
// block here means: another key is first. When its call goes or it steps out, settle advances this
// queue, so no timer is needed.
func (q *Queue) queueUpLocked(w *waiter, at, now time.Time) decision {
	s := q.common.shared
	if _, d := q.readyLocked(w, at, now); d.verdict != grant {
		s.stepOut(q)
		return d
	}
	switch m, err := q.ownPayableLocked(q.line.holdsOf(w), at, w.cost); {
	case err != nil:
		s.stepOut(q)
		return decision{verdict: deny, err: err}
	case m.After(now):
		s.stepOut(q)
		return decision{verdict: later, until: m, exact: true}
	case q.own.Foreign() > 0 && q.foreign.next.After(now): // perhaps the key's own has refused: the others' turn
		s.stepOut(q)
		return decision{verdict: later, until: q.foreign.next}
	}
	if at := q.hostTurnLocked(q.line.holdsOf(w), w.cost, now); at.After(now) {
		s.stepOut(q)
		return decision{verdict: later, until: at, exact: true}
	}
	if w == q.line.owed { // it goes in the place of the one that is next
		w = q.line.next()
	}
	s.enter(q, w)
	if s.head() != q {
		return decision{verdict: block}
	}
	return decision{verdict: grant}
}

// readyLocked asks the slots, the gate and the learned limits whether w may go at now, and as of when. Nothing is
// taken.
func (q *Queue) readyLocked(w *waiter, at, now time.Time) (time.Time, decision) {
	if most := q.common.Options.MaxInFlight; w.slot() && most > 0 && int(q.slots) >= most {
		return at, decision{verdict: block}
	}
	at, exact, ok := q.up.Ready(w.scope, int(w.cost), at, now)
	switch {
	case !ok:
		return at, decision{verdict: block}
	case at.After(now):
		return at, decision{verdict: later, until: at, exact: exact}
	}
	return at, decision{verdict: grant}
}

// tryLocked lets w, which holds h of the meters, go if slot, gate and limiters allow it: the slot and the units are taken in one step, or
// neither. If there are foreign limiters, it takes the units of the own ones and says ask.
//
// An example: a Bucket of 10/s has 2 of the 5 units that w costs. TakeBy takes none and names now + 300
// ms. The decision is later, until then, exact: the timer that is set for it may come late, and the
// units count as taken when they were due. Until then q.slots has not changed.
func (q *Queue) tryLocked(w *waiter, h *Holds, at, now time.Time) (time.Time, decision) {
	at, d := q.readyLocked(w, at, now)
	if d.verdict != grant {
		return at, d
	}
	if s := q.common.shared; s != nil && w.slot() && s.full(q) {
		return at, decision{verdict: block}
	}
	if q.foreign != nil && q.foreign.next.After(now) {
		return at, decision{verdict: later, until: q.foreign.next}
	}
	if turn := q.hostTurnLocked(h, w.cost, now); turn.After(now) {
		return at, decision{verdict: later, until: turn, exact: true}
	}
	at, err := q.takeLocked(h, at, now, w.cost)
	switch {
	case err != nil:
		return at, decision{verdict: deny, err: err}
	case at.After(now):
		return at, decision{verdict: later, until: at, exact: true}
	case q.foreign != nil:
		return at, decision{verdict: ask}
	}
	q.startLocked(w, h, at, now)
	return at, decision{verdict: grant}
}

// startLocked counts a call that goes as of at, with h.
func (q *Queue) startLocked(w *waiter, h *Holds, at, now time.Time) {
	if h != nil {
		h.startLocked(at)
	}
	if w.slot() {
		q.slotsLocked(1)
	}
	if q.common.hosts != nil {
		q.countLocked()
	}
	if q.up.Start(w.scope, int(w.cost), at, now) {
		w.wants |= counted
	}
	q.tookLocked(int(w.cost))
}

// grantedLocked fills in what w's caller needs to know, and what predictions with foreign limiters need: their
// smoothed seconds per unit, with 1/8 of each new sample.
func (q *Queue) grantedLocked(w *waiter, at, now time.Time) {
	w.taken = at.Sub(q.common.base)
	w.epoch = q.up.Epoch()
	if f := q.line.flows.of(w); f != nil {
		f.charge(w.cost, q.line.inTurn)
	}
	// An example: 0.2 s per unit were known, and a call of 2 units comes 0.56 s after the last one:
	// 0.28 s per unit. The new figure is 0.2 + (0.28 − 0.2)/8 = 0.21.
	if f := q.foreign; f != nil {
		gap := now.Sub(f.lastGrant).Seconds() / float64(max(1, w.cost))
		switch {
		case f.lastGrant.IsZero():
		case f.gap == 0:
			f.gap = gap
		default:
			f.gap += (gap - f.gap) / 8
		}
		f.lastGrant = now
	}
	if q.line.count == 1 { // w is the last
		q.up.LineEmpty(now)
	}
}

// goneLocked notes that w has left the line, for whatever reason.
//
// The shared line predicts from the units of all who wait, behind their heads too, so each one is taken
// off when it leaves.
func (q *Queue) goneLocked(w *waiter) {
	q.line.unholdLocked(w)
	if f := q.line.flows.of(w); f != nil {
		f.gone(w, q.line.flows)
	}
	if s := q.common.shared; s != nil {
		s.waiting.add(w.prio, -int64(w.cost))
	}
}

// emptiedLocked ends the line: nobody waits any more.
// The time until the next call is not the foreign limiter's doing, so it must not become a sample.
func (q *Queue) emptiedLocked() {
	q.lineLocked(nil)
	q.marks.set(crowded, false)
	if s := q.common.shared; s != nil {
		s.stepOut(q)
	}
	if q.foreign != nil {
		q.foreign.lastGrant = time.Time{}
	}
	q.leftLocked()
}

// undoLocked takes back the grant of w, which cannot go because its ctx has ended: slot, units and what gate and
// quotas have counted. The next in line is looked at.
//
// Units go back as of the moment when they were taken, not as of now: a window that has ended since
// does not get units that belong to the one before. What it holds of meters goes back without the lock, see Call.Sleep.
func (q *Queue) undoLocked(w *waiter, now time.Time) {
	at := q.common.base.Add(w.taken)
	if w.slot() {
		q.releaseLocked()
	}
	q.up.Undo(w.epoch, w.scope, w.wants&counted != 0, int(w.cost), at, now)
	q.beyond -= int64(w.cost) - 1
	q.limits().GiveBack(at, now, int(w.cost))
	if f := w.flow; f != nil {
		f.credit += f.share(w.cost)
	}
	if s := q.common.shared; s != nil {
		s.dirty = true // the units may be for another key
	}
	q.advanceLocked(now)
}
