package throttle

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// This file is the Queue as the rule of its line: who may start, when, and who
// is put into it. refuse.go tells who is not, foreign.go what limiters that are
// not ours add. Everything here is called with room.mu held.

// pace is the rate at which the gate lets calls through after a closing. It is
// looked up only where there has been one.
func (q *Queue) pace() rate.Limit {
	if q.gate.trouble == nil {
		return 0
	}
	now := time.Now()
	pace := q.limits.pace(now)
	if q.learned != nil && q.learned.find != nil {
		pace = min(pace, rate.Limit(q.learned.find.rate(now)))
	}
	return pace
}

// clear reports whether nothing but the library's own limiters can stop a call
// that needs no slot: nobody waits, the gate was never closed, and nothing is learned.
func (q *Queue) clear() bool {
	return q.line == nil && q.gate.trouble == nil && q.learned == nil && q.unshared()
}

// unshared reports whether a call at the head of this line needs to ask or wait
// for nobody else: no foreign limiter, and no other key at the shared one.
func (q *Queue) unshared() bool {
	return q.foreign == nil && (q.room.shared == nil || q.room.shared.count == 0)
}

// pay takes n units as of now, if they are there.
func (q *Queue) pay(n int, now time.Time) bool {
	if q.sole == nil || !q.sole.payAlone(now, n) {
		if at, err := q.limits.takeBy(now, now, n); err != nil || at.After(now) {
			return false
		}
	}
	q.counters.sent++
	return true
}

// admit lets the caller go, refuses it, or puts it into the line. In the last
// case it returns the waiter, which may have been settled already, and the line
// that it was put into. left, if not nil, replaces the waiter's channel.
func (q *Queue) admit(ctx context.Context, o *order, now time.Time, left func(*waiter, *Error)) (*line, *waiter, error) {
	if o.seq == 0 {
		q.room.arrivals++
		o.seq = q.room.arrivals
	}
	o.now, o.epoch, o.waited = now, q.gate.epoch, false
	o.wants &^= paidLane
	if !o.slot() && q.clear() {
		if q.pay(o.cost, now) {
			return nil, nil, nil
		}
	} else if q.line == nil {
		q.gate.lineEmpty(now)
		if q.unshared() {
			switch _, d := q.try(&o.waiter, now, now); d.verdict {
			case grant:
				return nil, nil, nil
			case deny:
				return nil, nil, q.errorOf(o.attempts, 0, d.err)
			}
		}
	}
	now = time.Now()                                       // there are deadlines to be held against it
	if _, err := q.limits.ready(now, o.cost); err != nil { // never: it need not wait to be told
		return nil, nil, q.errorOf(o.attempts, 0, err)
	}
	if err := q.turnAway(ctx, o, now); err != nil {
		q.counters.refused++
		return nil, nil, err
	}
	w := new(waiter)
	*w = o.waiter
	w.state, w.moment, w.tries = waiting, 0, uint8(min(o.attempts, 255))
	w.pause = q.gate.closedTime(now) - o.pause
	if d, ok := ctx.Deadline(); ok {
		w.moment = max(1, d.Sub(q.room.base))
	}
	if w.left = left; left == nil {
		w.wake = make(chan struct{}, 1)
	}
	return q.join(w, o.retry, now), w, nil
}

// join puts w into the line. urgent: the plan may have to change even if w is not
// the next.
func (q *Queue) join(w *waiter, urgent bool, now time.Time) *line {
	if q.line == nil {
		q.line = newLine(&q.room.mu, q)
	}
	l := q.line
	l.push(w)
	if s := q.room.shared; s != nil {
		s.waiting.add(w.prio, int64(w.cost))
	}
	if q.gate.trouble != nil && q.gate.cause != open {
		q.planExpulsion(w, now)
	}
	if urgent || q.head(now) == w {
		q.advance(now)
	}
	return l
}

// ready asks slot, gate and what was learned whether a call may go at now, and as
// of when.
func (q *Queue) ready(w *waiter, at, now time.Time) (time.Time, decision) {
	if most := q.room.opts.MaxInFlight; w.slot() && most > 0 && q.slots >= most {
		return at, decision{verdict: block}
	}
	if q.gate.trouble != nil {
		var d decision
		if at, d = q.pastGate(at, now); d.verdict != grant {
			return at, d
		}
	}
	if q.learned != nil {
		if at = q.learned.ready(w.lane, w.cost, at, now); at.After(now) {
			return at, decision{verdict: later, until: at, told: true}
		}
	}
	return at, decision{verdict: grant}
}

// pastGate asks the gate.
func (q *Queue) pastGate(at, now time.Time) (time.Time, decision) {
	open, ok := q.gate.moment(now, q.pace())
	switch {
	case !ok:
		return at, decision{verdict: block}
	case open.After(now):
		return at, decision{verdict: later, until: open, told: q.gate.mode == paced}
	}
	return latest(at, open), decision{verdict: grant}
}

// try lets one call go if slot, gate and limiters allow it, and returns as of
// when. Where there are foreign limiters, it takes from the others and says ask.
func (q *Queue) try(w *waiter, at, now time.Time) (time.Time, decision) {
	at, d := q.ready(w, at, now)
	if d.verdict != grant {
		return at, d
	}
	if q.foreign != nil && q.foreign.next.After(now) {
		return at, decision{verdict: later, until: q.foreign.next}
	}
	at, err := q.limits.takeBy(at, now, w.cost)
	switch {
	case err != nil:
		return at, decision{verdict: deny, err: err}
	case at.After(now):
		return at, decision{verdict: later, until: at, told: true}
	case q.foreign != nil:
		return at, decision{verdict: ask}
	}
	q.start(w, at, now)
	return at, decision{verdict: grant}
}

// start counts a call that goes.
func (q *Queue) start(w *waiter, at, now time.Time) {
	if w.slot() {
		q.slots++
	}
	q.counters.sent++
	q.gate.start(w.cost, at, now, q.pace())
	if q.learned != nil {
		q.learned.take(w.lane, w.cost, at)
		w.wants |= paidLane
	}
}

// head implements rule: the next in line, or the one to be the probe.
func (q *Queue) head(now time.Time) *waiter {
	if q.gate.trouble == nil || !q.gate.probing || q.line.count == 0 || q.gate.until.After(now) {
		if q.learned != nil && len(q.learned.lanes) > 1 {
			return q.line.nextIn(func(lane uint8, n int) time.Time { return q.learned.ready(lane, n, now, now) }, now)
		}
		return q.line.next()
	}
	// A probe is likely to fail: rather one that can be sent again, then the one
	// with the fewest attempts, so that no call spends its attempts on probes alone.
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

// pass implements rule.
func (q *Queue) pass(w *waiter, at, now time.Time) (d decision) {
	s := q.room.shared
	if s != nil {
		at = asOf(soonest(s.told, q.line.told), now)
		if d = q.queueUp(w, at, now); d.verdict != grant {
			return q.orExpel(d)
		}
	}
	at, d = q.try(w, at, now)
	switch d.verdict {
	case grant:
		q.granted(w, at, now)
	case ask:
		q.foreign.taken, q.foreign.stale = at, false
	}
	if s != nil {
		s.follow(q, d)
	}
	return q.orExpel(d)
}

// orExpel makes the line look again when a waiter's patience with the closed
// gate ends, if that comes first.
func (q *Queue) orExpel(d decision) decision {
	if q.gate.trouble == nil || q.gate.cause == open || q.gate.expelAt.IsZero() {
		return d
	}
	switch d.verdict {
	case later:
		d.until = soonest(d.until, q.gate.expelAt)
	case block:
		return decision{verdict: later, until: q.gate.expelAt}
	}
	return d
}

// queueUp enters the line for the shared limiter once w's own slot, gate and
// limiter would let it go, steps out of it if they no longer do, and says grant
// when w is at its head.
func (q *Queue) queueUp(w *waiter, at, now time.Time) decision {
	s := q.room.shared
	if _, d := q.ready(w, at, now); d.verdict != grant {
		s.stepOut(q)
		return d
	}
	switch m, err := q.own.ready(at, w.cost); {
	case err != nil:
		s.stepOut(q)
		return decision{verdict: deny, err: err}
	case m.After(now):
		s.stepOut(q)
		return decision{verdict: later, until: m, told: true}
	case len(q.own.foreign) > 0 && q.foreign.next.After(now): // perhaps the key's own has refused: the others' turn
		s.stepOut(q)
		return decision{verdict: later, until: q.foreign.next}
	}
	s.enter(q, w)
	if s.head() != q {
		return decision{verdict: block}
	}
	return decision{verdict: grant}
}

// granted fills in what w's caller will need.
func (q *Queue) granted(w *waiter, at, now time.Time) {
	w.moment = at.Sub(q.room.base)
	w.epoch = q.gate.epoch
	w.pause = q.gate.closedTime(now) - w.pause
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
		q.gate.lineEmpty(now)
	}
}

// advance lets go who may go, in this line and, where a limiter is shared, in
// those whose turn comes by it.
func (q *Queue) advance(now time.Time) {
	if q.line != nil {
		if g := &q.gate; g.trouble != nil && g.cause != open && !g.expelAt.IsZero() && !now.Before(g.expelAt) {
			q.expel(now)
		}
	}
	if q.line != nil {
		q.line.advance(now)
	}
	if s := q.room.shared; s != nil {
		s.settle(now)
	}
}
