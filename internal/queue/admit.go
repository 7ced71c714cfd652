package queue

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/gate"
	"github.com/go-throttle/throttle/internal/moment"
)

// This file is the Queue as the rule of its line: who may start, when, and who
// is put into it. refuse.go tells who is not, foreign.go what limiters that are
// not ours add. Everything here is called with Room.Mu held.

// Pace is the rate at which the gate lets calls through after a closing. It is
// looked up only where there has been one.
func (q *Queue) Pace() rate.Limit {
	if q.Gate.Trouble == nil {
		return 0
	}
	now := time.Now()
	pace := q.Limits.Pace(now)
	if q.Learned != nil && q.Learned.Finder != nil {
		pace = min(pace, rate.Limit(q.Learned.Finder.Rate(now)))
	}
	return pace
}

// unhindered reports whether nothing but the library's own limiters can stop a call
// that needs no slot: nobody waits, the gate was never closed, and nothing is learned.
func (q *Queue) unhindered() bool {
	return q.Line == nil && q.Gate.Trouble == nil && q.Learned == nil && q.Unshared()
}

// Unshared reports whether a call at the head of this line needs to ask or wait
// for nobody else: no foreign limiter, and no other key at the shared one.
func (q *Queue) Unshared() bool {
	return q.Foreign == nil && (q.Room.Shared == nil || q.Room.Shared.Count == 0)
}

// pay takes n units as of now, if they are there.
func (q *Queue) pay(n int, now time.Time) bool {
	if !q.Limits.Pay(now, n) {
		return false
	}
	q.Counters.Sent++
	return true
}

// Admit lets the caller go, refuses it, or puts it into the line. In the last
// case it returns the waiter, which may have been settled already, and the line
// that it was put into. left, if not nil, replaces the waiter's channel.
func (q *Queue) Admit(ctx context.Context, o *Order, now time.Time, left func(*Waiter, error)) (*Line, *Waiter, error) {
	if o.Seq == 0 {
		q.Room.Arrivals++
		o.Seq = q.Room.Arrivals
	}
	o.Now, o.Epoch, o.Waited = now, q.Gate.Epoch, false
	o.Wants &^= PaidLane
	if !o.Slot() && q.unhindered() {
		if q.pay(o.Cost, now) {
			return nil, nil, nil
		}
	} else if q.Line == nil {
		q.Gate.LineEmpty(now)
		if q.Unshared() {
			switch _, d := q.try(&o.Waiter, now, now); d.Verdict {
			case Grant:
				return nil, nil, nil
			case Deny:
				return nil, nil, q.ErrorOf(o.Attempts, 0, d.err)
			}
		}
	}
	now = time.Now()                                       // there are deadlines to be held against it
	if _, err := q.Limits.Ready(now, o.Cost); err != nil { // never: it need not wait to be told
		return nil, nil, q.ErrorOf(o.Attempts, 0, err)
	}
	if err := q.TurnAway(ctx, o, now); err != nil {
		q.Counters.refused++
		return nil, nil, err
	}
	w := new(Waiter)
	*w = o.Waiter
	w.State, w.moment, w.tries = Waiting, 0, uint8(min(o.Attempts, 255))
	w.pause = q.Gate.ClosedTime(now) - o.pause
	if d, ok := ctx.Deadline(); ok {
		w.moment = max(1, d.Sub(q.Room.Base))
	}
	if w.left = left; left == nil {
		w.wake = make(chan struct{}, 1)
	}
	return q.join(w, o.Retry, now), w, nil
}

// join puts w into the line. urgent: the plan may have to change even if w is not
// the next.
func (q *Queue) join(w *Waiter, urgent bool, now time.Time) *Line {
	if q.Line == nil {
		q.Line = newLine(&q.Room.Mu, q)
		q.crowded.Store(q.Gate.Trouble == nil)
	}
	l := q.Line
	l.push(w)
	if s := q.Room.Shared; s != nil {
		s.Waiting.add(w.Prio, int64(w.Cost))
	}
	if q.Gate.Trouble != nil && q.Gate.Cause != gate.Open {
		q.planExpulsion(w, now)
	}
	if urgent || q.Head(now) == w {
		q.Advance(now)
	}
	return l
}

// Ready asks slot, gate and what was learned whether a call may go at now, and as
// of when.
func (q *Queue) Ready(w *Waiter, at, now time.Time) (time.Time, Decision) {
	if most := q.Room.Opts.MaxInFlight; w.Slot() && most > 0 && q.Slots >= most {
		return at, Decision{Verdict: Block}
	}
	if q.Gate.Trouble != nil {
		var d Decision
		if at, d = q.pastGate(at, now); d.Verdict != Grant {
			return at, d
		}
	}
	if q.Learned != nil {
		if at = q.Learned.Ready(w.Lane, w.Cost, at, now); at.After(now) {
			return at, Decision{Verdict: Later, until: at, told: true}
		}
	}
	return at, Decision{Verdict: Grant}
}

// pastGate asks the gate.
func (q *Queue) pastGate(at, now time.Time) (time.Time, Decision) {
	open, ok := q.Gate.Moment(now, q.Pace())
	switch {
	case !ok:
		return at, Decision{Verdict: Block}
	case open.After(now):
		return at, Decision{Verdict: Later, until: open, told: q.Gate.Mode == gate.Paced}
	}
	return moment.Latest(at, open), Decision{Verdict: Grant}
}

// try lets one call go if slot, gate and limiters allow it, and returns as of
// when. Where there are foreign limiters, it takes from the others and says Ask.
func (q *Queue) try(w *Waiter, at, now time.Time) (time.Time, Decision) {
	at, d := q.Ready(w, at, now)
	if d.Verdict != Grant {
		return at, d
	}
	if q.Foreign != nil && q.Foreign.Next.After(now) {
		return at, Decision{Verdict: Later, until: q.Foreign.Next}
	}
	at, err := q.Limits.TakeBy(at, now, w.Cost)
	switch {
	case err != nil:
		return at, Decision{Verdict: Deny, err: err}
	case at.After(now):
		return at, Decision{Verdict: Later, until: at, told: true}
	case q.Foreign != nil:
		return at, Decision{Verdict: Ask}
	}
	q.start(w, at, now)
	return at, Decision{Verdict: Grant}
}

// start counts a call that goes.
func (q *Queue) start(w *Waiter, at, now time.Time) {
	if w.Slot() {
		q.Slots++
	}
	q.Counters.Sent++
	q.Gate.Start(w.Cost, at, now, q.Pace())
	if q.Learned != nil {
		q.Learned.Take(w.Lane, w.Cost, at)
		w.Wants |= PaidLane
	}
}

// Head implements rule: the next in line, or the one to be the probe.
func (q *Queue) Head(now time.Time) *Waiter {
	if q.Gate.Trouble == nil || !q.Gate.Probing || q.Line.Count == 0 || q.Gate.Until.After(now) {
		if q.Learned != nil && len(q.Learned.Lanes) > 1 {
			return q.Line.nextIn(func(lane uint8, n int) time.Time { return q.Learned.Ready(lane, n, now, now) }, now)
		}
		return q.Line.next()
	}
	// A probe is likely to fail: rather one that can be sent again, then the one
	// with the fewest attempts, so that no call spends its attempts on probes alone.
	var best *Waiter
	q.Line.Each(func(w *Waiter) {
		switch {
		case best == nil, w.resend() && !best.resend():
			best = w
		case w.resend() != best.resend():
		case w.tries < best.tries, w.tries == best.tries && w.Seq < best.Seq:
			best = w
		}
	})
	return best
}

// pass implements rule.
func (q *Queue) pass(w *Waiter, at, now time.Time) (d Decision) {
	if q.late(w, now) {
		q.Counters.refused++
		return Decision{Verdict: Deny, err: errDeadline}
	}
	s := q.Room.Shared
	if s != nil {
		at = asOf(moment.Soonest(s.Told, q.Line.Told), now)
		if d = q.queueUp(w, at, now); d.Verdict != Grant {
			return q.orExpel(d)
		}
	}
	at, d = q.try(w, at, now)
	switch d.Verdict {
	case Grant:
		q.granted(w, at, now)
	case Ask:
		q.Foreign.taken, q.Foreign.stale = at, false
	}
	if s != nil {
		s.follow(q, d)
	}
	return q.orExpel(d)
}

// orExpel makes the line look again when a waiter's patience with the closed
// gate ends, if that comes first.
func (q *Queue) orExpel(d Decision) Decision {
	if q.Gate.Trouble == nil || q.Gate.Cause == gate.Open || q.Gate.ExpelAt.IsZero() {
		return d
	}
	switch d.Verdict {
	case Later:
		d.until = moment.Soonest(d.until, q.Gate.ExpelAt)
	case Block:
		return Decision{Verdict: Later, until: q.Gate.ExpelAt}
	}
	return d
}

// queueUp enters the line for the shared limiter once w's own slot, gate and
// limiter would let it go, steps out of it if they no longer do, and says Grant
// when w is at its head.
func (q *Queue) queueUp(w *Waiter, at, now time.Time) Decision {
	s := q.Room.Shared
	if _, d := q.Ready(w, at, now); d.Verdict != Grant {
		s.stepOut(q)
		return d
	}
	switch m, err := q.Own.Ready(at, w.Cost); {
	case err != nil:
		s.stepOut(q)
		return Decision{Verdict: Deny, err: err}
	case m.After(now):
		s.stepOut(q)
		return Decision{Verdict: Later, until: m, told: true}
	case len(q.Own.Foreign) > 0 && q.Foreign.Next.After(now): // perhaps the key's own has refused: the others' turn
		s.stepOut(q)
		return Decision{Verdict: Later, until: q.Foreign.Next}
	}
	s.enter(q, w)
	if s.Head() != q {
		return Decision{Verdict: Block}
	}
	return Decision{Verdict: Grant}
}

// granted fills in what w's caller will need.
func (q *Queue) granted(w *Waiter, at, now time.Time) {
	w.moment = at.Sub(q.Room.Base)
	w.Epoch = q.Gate.Epoch
	w.pause = q.Gate.ClosedTime(now) - w.pause
	if f := q.Foreign; f != nil {
		gap := now.Sub(f.lastGrant).Seconds() / float64(max(1, w.Cost))
		switch {
		case f.lastGrant.IsZero():
		case f.gap == 0:
			f.gap = gap
		default:
			f.gap += (gap - f.gap) / 8
		}
		f.lastGrant = now
	}
	if q.Line.Count == 1 { // w is the last
		q.Gate.LineEmpty(now)
	}
}

// Advance lets go who may go, in this line and, where a limiter is shared, in
// those whose turn comes by it.
func (q *Queue) Advance(now time.Time) {
	if q.Line != nil {
		if g := &q.Gate; g.Trouble != nil && g.Cause != gate.Open && !g.ExpelAt.IsZero() && !now.Before(g.ExpelAt) {
			q.Expel(now)
		}
	}
	if q.Line != nil {
		q.Line.advance(now)
	}
	if s := q.Room.Shared; s != nil {
		s.settle(now)
	}
}
