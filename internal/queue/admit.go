package queue

import (
	"context"
	"time"
)

// This file is what happens when a call arrives: it goes, is refused, or joins the line. All of it is called
// with the lock held.

// unhinderedLocked reports whether nothing but own limiters can hold a call back that needs no slot: nobody
// waits, the gate was never closed, nothing was learned. Then the cheapest way is taken, see payLocked.
func (q *Queue) unhinderedLocked() bool {
	return q.line == nil && q.common.hosts == nil && q.up.Calm() && q.unsharedLocked()
}

// soleLocked is unhinderedLocked where nobody waits who shares anything with other keys. The compiler inlines it.
func (q *Queue) soleLocked() bool {
	r := q.common
	return q.line == nil && q.asker == nil && r.hosts == nil && len(r.payers) == 0 &&
		(r.all == nil || r.all.lines == 0 && r.all.asker == nil) && q.up.Calm()
}

// unsharedLocked reports whether a call depends on nobody else: no limiter of another kind has to be asked, and nobody waits
// for what its key shares with others.
func (q *Queue) unsharedLocked() bool {
	r := q.common
	if q.asker != nil {
		return false
	}
	for _, s := range q.stakesLocked() {
		if s.asker != nil || !s.idle() {
			return false
		}
	}
	if len(r.payers) == 0 {
		return true
	}
	for a := range q.accounts() {
		if _, waited := r.payers[a]; waited {
			return false
		}
	}
	return true
}

// payLocked takes n units as of now if they are there. For a call that need not wait this is all.
func (q *Queue) payLocked(n int, now time.Time) bool {
	if !q.limits().Pay(now, n) {
		return false
	}
	q.up.Start(0, n, now, now)
	q.tookLocked(n)
	return true
}

// arriveLocked is admitLocked of a call that comes now, unless Shutdown was called.
func (q *Queue) arriveLocked(ctx context.Context, o *order) (*waiter, error) {
	if !q.common.staysLocked(o) {
		q.trouble().refused++
		return nil, q.errorOf(0, 0, q.common.Errors.Closed)
	}
	now := q.common.now()
	o.moment = now.Sub(q.common.base)
	return q.admitLocked(ctx, o, now)
}

// admitLocked lets a call go, refuses it, or puts it into the line. If the call has to wait, it returns its
// waiter, which may have been settled already.
//
// The ways of a call, from the cheapest: nothing hinders it and its units are there; nobody waits, and slot,
// gate and limiters say yes; it would wait, and turnAwayLocked refuses it; it waits.
//
// A retry comes here again with its first seq, so it stands before all that came after its first
// attempt. An example: calls 1 to 9 arrive, 1 goes and is throttled, and comes back as 1: it is the
// head.
func (q *Queue) admitLocked(ctx context.Context, o *order, now time.Time) (*waiter, error) {
	if o.Seq == 0 { // it is new: its place in the order of arrival
		q.common.arrivals++
		o.Seq = q.common.arrivals
	}
	// The epoch is that of the moment when it goes. Who has to wait gets it anew with the grant.
	o.now, o.epoch = now, q.up.Epoch()
	o.wants &^= counted
	if o.wants&wantsSlot == 0 && (q.soleLocked() || q.unhinderedLocked()) {
		o.level = 0
		if q.meters == nil && q.payLocked(int(o.Cost), now) || q.meters != nil && q.payHoldsLocked(o, now) {
			return nil, nil
		}
		o.known(q.meters)
	} else if o.known(q.meters); q.emptyLocked(o, now) {
		// Slots, gate and quotas may have a say, so the whole list is asked. A call that must wait for something joins the
		// line, even if it is then the head at once; limiters of other kinds are asked from there.
		q.up.LineEmpty(now)
		if q.unsharedLocked() {
			switch d := q.tryLocked(o, now); d.verdict {
			case grant:
				return nil, nil
			case deny:
				return nil, q.errorOf(o.attempts, 0, d.err)
			}
		}
	}
	now = time.Now()                                                // with the wall clock, because deadlines are compared with it
	if _, err := q.dues().ready(o.holds, now, o.Cost); err != nil { // its cost can never be paid: say so at once
		return nil, q.errorOf(o.attempts, 0, err)
	}
	q.noteDeadline(ctx, o, now)
	if err := q.turnAwayLocked(o, now); err != nil {
		q.trouble().refused++
		q.common.settle(now) // a prediction may have made pools
		return nil, err
	}
	q.noteWaitLocked(o, now)
	// Only here is anything allocated: order, which holds a waiter of its own, is on the caller's stack.
	w := o.newWaiter()
	q.joinLocked(w, o, now)
	return w, nil
}

// tryLocked lets a call go for which nobody waits, if nothing holds it: slots and units are taken in one step, or none.
// Limiters of other kinds there are none, and those of this package are asked once, by what takes their units.
//
// An example: a Bucket of 10/s has 2 of the 5 units that o costs. Nothing is taken, and the moment is now + 300 ms.
func (q *Queue) tryLocked(o *order, now time.Time) decision {
	n := o.need(o.holds)
	if h := o.holds; h != nil && h.claims != nil {
		h.renewLocked(now)
	}
	at, d := q.constraints().unpaid().ready(n, now, now)
	if d.verdict != grant {
		return d
	}
	stakes := q.stakesLocked()
	for i := range stakes {
		if d := stakes[i].open(n, now); d.verdict != grant {
			return d
		}
	}
	switch m, err := q.dues().take(o.holds, at, now, o.Cost); {
	case err != nil:
		return decision{verdict: deny, err: err}
	case m.After(now):
		return decision{verdict: later, until: m, exact: true}
	default:
		q.startLocked(&o.waiter, o.holds, stakes, 0, m, now)
	}
	return decision{}
}

// joinLocked puts w, which o wants, into the line. A retry may belong in front of those who
// wait, so the line is looked at even if w is not the head.
func (q *Queue) joinLocked(w *waiter, o *order, now time.Time) {
	if q.line == nil {
		q.line = newLineup(q)
		q.marks.set(crowded, q.up.Calm())
	}
	l := q.line
	l.join(w, o)
	q.joinedLocked(w)
	q.planExpulsionLocked(l, now)
	for i := range l.stakes { // the turn of its flow, or of its priority, may be the next one there
		l.stakes[i].joined()
	}
	// Behind the head nothing changes for the others of its line: their timer is set for the head already.
	if o.retry() || len(l.stakes) > 0 && q.up.Scopes() > 1 || q.headLocked(now) == w {
		q.advanceLocked(now)
	} else {
		q.common.settle(now)
	}
}

// turnAwayLocked decides whether a call that would have to wait is refused at once. The reasons are tried in a
// fixed order: the line is full, the upstream is paused for longer than the call may wait, the wait is
// too long. A call's deadline must leave time for its answer too; MaxWait bounds the wait alone.
//
// An example: MaxWait is 2 s, the limit 10/s and empty, and 25 units wait. The wait is (25 + 1)/10 =
// 2.6 s: refused now, in place of an error after 2 s. With a deadline in 3 s and answers that take 0.5
// s, MaxWait unset: 2.6 + 0.5 > 3, refused too.
func (q *Queue) turnAwayLocked(o *order, now time.Time) error {
	opts := &q.common.Options
	// A retry is let in beyond MaxWaiting: its call has been admitted once, and has cost the upstream
	// an attempt that would be lost.
	if opts.MaxWaiting > 0 && !o.retry() && q.line != nil && q.line.Len() >= opts.MaxWaiting {
		return q.turnedAwayLocked(o, q.predictLocked(o, now), q.common.Errors.Full, now)
	}
	if wait, yes := q.up.Patience(q.common.MaxPause, o.Scope, q.line == nil || q.line.Len() == 0, now); yes {
		return q.turnedAwayLocked(o, wait, q.pausedLocked(now), now)
	}
	most, bounded := opts.MaxWait, opts.MaxWait > 0 || o.want.MaxWait != 0
	if o.want.MaxWait != 0 {
		most = max(0, o.want.MaxWait)
	}
	if o.deadline == 0 && !bounded {
		return nil
	}
	may := o.deadline - now.Sub(q.common.base) - q.answerTimeLocked(o.wants, o.reserve)
	if o.deadline == 0 || bounded && most < may {
		may = most
	}
	if q.soonLocked(o, may, now) {
		return nil
	}
	switch wait := q.predictLocked(o, now); {
	case o.deadline != 0 && now.Sub(q.common.base)+wait+q.answerTimeLocked(o.wants, o.reserve) > o.deadline:
		return q.turnedAwayLocked(o, wait, q.common.Errors.Deadline, now)
	case bounded && wait > most:
		return q.turnedAwayLocked(o, wait, q.common.Errors.TooLong, now)
	}
	return nil
}
