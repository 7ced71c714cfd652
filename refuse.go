package throttle

import (
	"context"
	"time"
)

// turnAway decides whether a caller who would have to wait is refused at once.
// The reasons are tried in a fixed order: full, paused, too long.
func (q *Queue) turnAway(ctx context.Context, o *order, now time.Time) *Error {
	opts := &q.room.opts
	if opts.MaxWaiting > 0 && !o.retry && q.line != nil && q.line.count >= opts.MaxWaiting {
		return q.errorOf(o.attempts, q.predict(o, now), ErrQueueFull)
	}
	if wait, yes := q.hopeless(o.pause, o.lane, true, now); yes {
		return q.errorOf(o.attempts, wait, ErrPaused)
	}
	deadline, ok := ctx.Deadline()
	if !ok && opts.MaxWait == 0 {
		return nil
	}
	switch wait := q.predict(o, now); {
	case ok && now.Add(wait).After(deadline):
		return q.errorOf(o.attempts, wait, errDeadline)
	case opts.MaxWait > 0 && wait > opts.MaxWait:
		return q.errorOf(o.attempts, wait, ErrWaitTooLong)
	}
	return nil
}

// hopeless reports whether one who has spent that long behind the closed gate
// may not sit this closing through, and how long it is told to last.
func (q *Queue) hopeless(spent time.Duration, lane uint8, arriving bool, now time.Time) (time.Duration, bool) {
	g, most := &q.gate, q.room.maxPause
	if q.learned != nil && most >= 0 {
		if wait := q.learned.spent(lane, now).Sub(now); wait > most-spent {
			return wait, true
		}
	}
	if g.trouble == nil || g.cause == open || most < 0 {
		return 0, false
	}
	wait := max(0, g.until.Sub(now))
	if !g.probing || g.floor.After(now) {
		return wait, wait-g.slack > most-spent // jitter is ours, not told
	}
	if arriving && wait == 0 && (q.line == nil || q.line.count == 0) {
		return 0, false // it is the probe
	}
	return wait, spent >= most || arriving && now.Sub(g.since) > most
}

// predict is how long a newcomer would wait, supposing that nobody leaves.
func (q *Queue) predict(o *order, now time.Time) time.Duration {
	var before before
	if q.line != nil {
		before.all, before.lane = q.line.ahead(o.prio, o.seq, o.lane)
	}
	if s := q.room.shared; s != nil {
		before.shared = s.waiting.ahead(o.prio)
	}
	return q.startAt(before, o.cost, o.lane, now).Sub(now)
}

// before is the units that go before a call: in its own line, those of them that
// fall under the same told quotas, and in all lines at the shared limiter.
type before struct{ all, lane, shared int64 }

// startAt is when a call of n units would start that has so many before it.
func (q *Queue) startAt(before before, n int, lane uint8, now time.Time) time.Time {
	g := &q.gate
	from := now
	if g.trouble != nil && g.cause != open {
		from = latest(now, g.until)
	}
	at := q.own.after(from, before.all, n)
	if s := q.room.shared; s != nil {
		at = latest(at, s.limits.after(from, before.shared, n))
	}
	if g.trouble != nil && (g.cause != open || g.mode == paced) {
		if g.cause == open {
			from = latest(from, g.next)
		}
		at = latest(at, from.Add(unitTime(int(min(before.all, 1<<31)), q.pace())))
	}
	if q.learned != nil {
		at = latest(at, q.learned.after(lane, from, before, n))
	}
	if f := q.foreign; f != nil {
		at = latest(at, latest(from, f.next).Add(time.Duration(float64(before.all)*f.gap*1e9)))
	}
	return at
}

// expel sends away those whom the closed gate, or a spent quota, dooms, and plans when to look again.
func (q *Queue) expel(now time.Time) {
	l, g := q.line, &q.gate
	closed := g.trouble != nil && g.cause != open
	if l == nil || !closed && q.learned == nil {
		return
	}
	if closed {
		g.expelAt = time.Time{}
	}
	var ahead int64
	var lanes [maxLanes]int64 // of ahead
	for _, w := range l.ordered() {
		if err := q.doomed(w, before{ahead, lanes[w.lane], ahead}, now); err != nil {
			q.counters.refused++
			l.leave(w, refused, err)
			continue
		}
		ahead += int64(w.cost)
		lanes[w.lane] += int64(w.cost)
		if closed {
			q.planExpulsion(w, now)
		}
	}
	if l.count == 0 {
		l.close()
	}
}

// doomed returns why w, with so many before it, must leave now that the
// gate is closed; nil if it need not. One who asks is looked at when that ends.
func (q *Queue) doomed(w *waiter, before before, now time.Time) *Error {
	if w.state == asking {
		return nil
	}
	g := &q.gate
	if wait, yes := q.hopeless(g.closedTime(now)-w.pause, w.lane, false, now); yes {
		return q.errorOf(int(w.tries), wait, ErrPaused)
	}
	if w.moment == 0 || g.trouble == nil || g.cause == open || g.probing {
		return nil
	}
	if at := q.startAt(before, w.cost, w.lane, now); at.After(q.room.base.Add(w.moment)) {
		return q.errorOf(int(w.tries), at.Sub(now), errDeadline)
	}
	return nil
}

// planExpulsion makes the line look again when w has spent what it may.
func (q *Queue) planExpulsion(w *waiter, now time.Time) {
	g := &q.gate
	if q.room.maxPause < 0 || !g.probing { // a told closing has been weighed as a whole
		return
	}
	left := q.room.maxPause - (g.closedTime(now) - w.pause)
	// what is told within it has been weighed too
	g.expelAt = soonest(g.expelAt, latest(now.Add(max(0, left)), g.floor))
}

func (q *Queue) errorOf(attempts int, wait time.Duration, reason error) *Error {
	return &Error{Key: q.key, Wait: wait, Attempts: attempts, Err: reason}
}

// fail implements rule.
func (q *Queue) fail(w *waiter, err error) *Error {
	return q.errorOf(int(w.tries), 0, err)
}
