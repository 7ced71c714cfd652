package queue

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/go-throttle/throttle/internal/gate"
	"github.com/go-throttle/throttle/internal/learn"
	"github.com/go-throttle/throttle/internal/moment"
)

// TurnAway decides whether a caller who would have to wait is refused at once.
// The reasons are tried in a fixed order: full, paused, too long.
func (q *Queue) TurnAway(ctx context.Context, o *Order, now time.Time) error {
	opts := &q.Room.Opts
	if opts.MaxWaiting > 0 && !o.Retry && q.Line != nil && q.Line.Count >= opts.MaxWaiting {
		return q.ErrorOf(o.Attempts, q.Predict(o, now), ErrFull)
	}
	if wait, yes := q.hopeless(o.pause, o.Lane, true, now); yes {
		return q.ErrorOf(o.Attempts, wait, q.paused(now))
	}
	deadline, ok := ctx.Deadline()
	if ok {
		o.keep(deadline.Sub(now))
	}
	if !ok && opts.MaxWait == 0 {
		return nil
	}
	switch wait := q.Predict(o, now); {
	case ok && now.Add(wait+q.AnswerTime(&o.Waiter)).After(deadline):
		return q.ErrorOf(o.Attempts, wait, errDeadline)
	case opts.MaxWait > 0 && wait > opts.MaxWait:
		return q.ErrorOf(o.Attempts, wait, ErrTooLong)
	}
	return nil
}

// hopeless reports whether one who has spent that long behind the closed gate
// may not sit this closing through, and how long it is told to last.
func (q *Queue) hopeless(spent time.Duration, lane uint8, arriving bool, now time.Time) (time.Duration, bool) {
	g, most := &q.Gate, q.Room.MaxPause
	if q.Learned != nil && most >= 0 {
		if wait := q.Learned.Spent(lane, now).Sub(now); wait > most-spent {
			return wait, true
		}
	}
	if g.Trouble == nil || g.Cause == gate.Open || most < 0 {
		return 0, false
	}
	wait := max(0, g.Until.Sub(now))
	if !g.Probing || g.Floor.After(now) {
		return wait, wait-g.Slack > most-spent // jitter is ours, not told
	}
	if arriving && wait == 0 && (q.Line == nil || q.Line.Count == 0) {
		return 0, false // it is the probe
	}
	return wait, spent >= most || arriving && now.Sub(g.Since) > most
}

// keepUnit is what keep counts in: 65.5 µs, so that three days fit.
const keepUnit = 1 << 16

// keep notes that w arrives with so much time, of which it keeps at most 7/8 for its answer.
func (w *Waiter) keep(time time.Duration) {
	w.Epoch = uint32(min(max(0, time)/8*7/keepUnit, math.MaxUint32))
}

// AnswerTime is how long after its start w, which has come to the line, is expected to have its answer,
// where that counts. It is never all of the time that w has: who gives a call so little knows that it
// is quicker than others, and if all were turned away, nobody could show that the upstream is quicker
// again. With foreign limiters, and behind other keys, even those stand in line who need not wait.
func (q *Queue) AnswerTime(w *Waiter) time.Duration {
	if w.Wants&TakesTime == 0 {
		return 0
	}
	return min(q.Gate.AnswerTime(), time.Duration(w.Epoch)*keepUnit)
}

// late reports whether w, whose turn it is, cannot have its answer before its deadline any more. Its
// units are of use to the next.
func (q *Queue) late(w *Waiter, now time.Time) bool {
	answer := q.AnswerTime(w)
	return w.moment != 0 && answer > 0 && now.Sub(q.Room.Base)+answer > w.moment
}

// Predict is how long a newcomer would wait, supposing that nobody leaves.
func (q *Queue) Predict(o *Order, now time.Time) time.Duration {
	var before learn.Before
	if q.Line != nil {
		before.All, before.Lane = q.Line.ahead(o.Prio, o.Seq, o.Lane)
	}
	if s := q.Room.Shared; s != nil {
		before.Shared = s.Waiting.ahead(o.Prio)
	}
	return q.startAt(before, o.Cost, o.Lane, now).Sub(now)
}

// startAt is when a call of n units would start that has so many before it.
func (q *Queue) startAt(before learn.Before, n int, lane uint8, now time.Time) time.Time {
	g := &q.Gate
	from := now
	if g.Trouble != nil && g.Cause != gate.Open {
		from = moment.Latest(now, g.Until)
	}
	at := q.Own.After(from, before.All, n)
	if s := q.Room.Shared; s != nil {
		at = moment.Latest(at, s.limits.After(from, before.Shared, n))
	}
	if g.Trouble != nil && (g.Cause != gate.Open || g.Mode == gate.Paced) {
		if g.Cause == gate.Open {
			from = moment.Latest(from, g.Next)
		}
		at = moment.Latest(at, from.Add(moment.UnitTime(int(min(before.All, 1<<31)), q.Pace())))
	}
	if q.Learned != nil {
		at = moment.Latest(at, q.Learned.After(lane, from, before, n))
	}
	if f := q.Foreign; f != nil {
		at = moment.Latest(at, moment.Latest(from, f.Next).Add(time.Duration(float64(before.All)*f.gap*1e9)))
	}
	return at
}

// Expel sends away those whom the closed gate, or a spent quota, dooms, and plans when to look again.
func (q *Queue) Expel(now time.Time) {
	l, g := q.Line, &q.Gate
	closed := g.Trouble != nil && g.Cause != gate.Open
	if l == nil || !closed && q.Learned == nil {
		return
	}
	if closed {
		g.ExpelAt = time.Time{}
	}
	var ahead int64
	var lanes [learn.MaxLanes]int64 // of ahead
	for _, w := range l.Ordered() {
		if err := q.doomed(w, learn.Before{All: ahead, Lane: lanes[w.Lane], Shared: ahead}, now); err != nil {
			q.Counters.refused++
			l.Leave(w, Refused, err)
			continue
		}
		ahead += int64(w.Cost)
		lanes[w.Lane] += int64(w.Cost)
		if closed {
			q.planExpulsion(w, now)
		}
	}
	if l.Count == 0 {
		l.close()
	}
}

// doomed returns why w, with so many before it, must leave now that the
// gate is closed; nil if it need not. One who asks is looked at when that ends.
func (q *Queue) doomed(w *Waiter, before learn.Before, now time.Time) error {
	if w.State == Asking {
		return nil
	}
	g := &q.Gate
	if wait, yes := q.hopeless(g.ClosedTime(now)-w.pause, w.Lane, false, now); yes {
		return q.ErrorOf(int(w.tries), wait, q.paused(now))
	}
	if w.moment == 0 || g.Trouble == nil || g.Cause == gate.Open || g.Probing {
		return nil
	}
	if at := q.startAt(before, w.Cost, w.Lane, now); at.Add(q.AnswerTime(w)).After(q.Room.Base.Add(w.moment)) {
		return q.ErrorOf(int(w.tries), at.Sub(now), errDeadline)
	}
	return nil
}

// planExpulsion makes the line look again when w has spent what it may.
func (q *Queue) planExpulsion(w *Waiter, now time.Time) {
	g := &q.Gate
	if q.Room.MaxPause < 0 || !g.Probing { // a told closing has been weighed as a whole
		return
	}
	left := q.Room.MaxPause - (g.ClosedTime(now) - w.pause)
	// what is told within it has been weighed too
	g.ExpelAt = moment.Soonest(g.ExpelAt, moment.Latest(now.Add(max(0, left)), g.Floor))
}

// ErrorOf makes the error of a call of this queue that is ended because of reason.
func (q *Queue) ErrorOf(attempts int, wait time.Duration, reason error) error {
	return q.Room.NewError(q.Key, wait, attempts, reason)
}

// fail implements rule.
func (q *Queue) fail(w *Waiter, err error) error {
	return q.ErrorOf(int(w.tries), 0, err)
}

// GaveUp implements rule: the error of w, whose ctx has ended because of err. If w waits, and nothing but
// in-flight slots holds the line up, it names them: a slot does not come back by itself, as units do.
func (q *Queue) GaveUp(w *Waiter, err error, now time.Time) error {
	if w.State == Waiting && q.lacksSlot(now) {
		open := ""
		if q.Key != "" { // a Transport's
			open = " (bodies not closed?)"
		}
		err = fmt.Errorf("%w, waiting for an in-flight slot: %d of %d calls in flight%s", err, q.Slots, q.Room.Opts.MaxInFlight, open)
	}
	return q.fail(w, err)
}

// lacksSlot reports whether the head of the line could go if it had a slot.
func (q *Queue) lacksSlot(now time.Time) bool {
	most := q.Room.Opts.MaxInFlight
	if most == 0 || q.Slots < most || q.Line.Asking != nil || q.Gate.Closed(now, q.Pace()) {
		return false
	}
	w := q.Head(now)
	if w == nil || !w.Slot() {
		return false
	}
	at, d := q.Ready(&Waiter{Cost: w.Cost, Lane: w.Lane}, now, now)
	if d.Verdict != Grant || q.Foreign != nil && q.Foreign.Next.After(now) {
		return false
	}
	m, err := q.Own.Ready(at, w.Cost)
	return err == nil && !m.After(now)
}
