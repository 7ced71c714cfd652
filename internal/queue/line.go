package queue

import (
	"context"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// fairEvery: each fairEvery-th grant goes to the call that has waited longest, whatever its priority, so
// that nobody starves. With 8, a flood of a high priority gets 7 of 8 turns.
const fairEvery = 8

// A line is the waiting callers of one queue. It exists only while somebody waits, and has one timer.
//
// Only the head of the line is ever looked at, and units are bound to a caller at the last moment. So
// nothing has to be given back or booked anew when a caller leaves, the gate closes, or a limit changes:
// advance is called, and looks at the head again.
//
// An example: 10/s, three waiters, and the timer is set for the head at t+100 ms. The second one's ctx
// ends: it is taken out, and nothing else happens. The limit becomes 20/s: the limiter calls wakeUp, and
// the timer moves to t+50 ms.
//
// The methods are called with the lock held, but for those that a waiter's goroutine or a callback runs
// and that take the lock themselves: sleep, woken, abandon, askFor, takeAnswer, reason, unlisten, wakeUp.
//
// The lock decides every race. Whoever holds it finds the waiter in one state, and takes it to the
// next:
//
//	turn, then ctx    the waiter is granted; its goroutine sees the end of ctx, and undoes the grant
//	ctx, then turn    the waiter is out of the line before advance looks; nothing was taken
//	refusal, then ctx the waiter is out already; it returns the reason for the refusal
type line struct {
	ranks
	waitedFor
	q       *Queue      // whose line it is
	timer   *time.Timer // wakes the head; nil until one was needed
	due     time.Time   // the moment that a limiter named for the head; zero: none
	asking  *waiter     // whose goroutine asks a foreign limiter now
	stop    func()      // ends the watch on the own limiters
	inTurn  bool        // the head is who is next by its flow's virtual start, not the eighth or a probe
	owed    *waiter     // the oldest, whose turn has come in the line of several keys; nil or gone: nobody
	expelAt time.Time   // when those who wait are looked at for MaxPause; zero: they need not be

	reasons map[*waiter]error // of refused waiters that have not seen theirs yet

	holds map[*waiter]*Holds // of those that wait and hold units of meters; nil until there is one

	// tasks holds what is called, under the lock, when a waiter without a channel is settled; nil until a
	// task waits. A waiter has no field for it: few are tasks, and 100,000 waiters would have it.
	tasks map[*waiter]func(*waiter, error)
}

// newLine makes the line of q, and has it woken when one of q's own limiters changes.
func newLine(q *Queue) *line {
	l := &line{q: q}
	if s := q.common.shared; s != nil {
		l.flows = s.flows
	}
	l.stop = l.ending(q.watch(l.wakeUp))
	return l
}

// wakeUp is what the timer calls, and a limiter that has changed. A call that comes late, when the line
// has emptied, finds nobody to serve.
func (l *line) wakeUp() {
	l.q.common.mu.Lock()
	defer l.q.common.mu.Unlock()
	l.q.advanceLocked(time.Now())
}

// asOf returns the moment for which units are taken now, if a limiter had named due. Timers come late,
// by a millisecond or so, and at 5,000/s that would lose most of the limit. So up to limit.MaxLate of a
// delay is made up for: the units count as taken when they were due.
func asOf(due, now time.Time) time.Time {
	// An example at 5,000/s, a unit each 0.2 ms. The timer is set for t and comes at t + 1 ms. Taken as
	// of now, the next unit would be there at t + 1.2 ms: one call each 1.2 ms, 833/s. Taken as of t,
	// the units of t, t + 0.2 ... t + 1 ms are all there: six calls go at once.
	if due.IsZero() || !due.Before(now) {
		return now
	}
	return limit.Latest(due, now.Add(-limit.MaxLate))
}

// advance lets go all who may go now, and plans when to look again. It is called after every event that
// may change the answer, and is right to call at any time.
func (l *line) advance(now time.Time) {
	if l.count > 0 && l.q.common.hosts != nil {
		l.q.lookLocked(now)
	}
	if l.count == 0 {
		return
	}
	// The loop ends at the first waiter that may not go. A cheaper call behind it does not overtake it:
	// otherwise a call of 10 units would never see 10 units at once. at is the same for all turns of
	// the loop, so a late timer lets as many go as a punctual one.
	at := asOf(l.due, now)
	for l.asking == nil {
		w := l.q.headLocked(now)
		if w == nil {
			l.close()
			return
		}
		d := l.q.passLocked(w, at, now)
		switch d.verdict {
		case grant:
			l.served++
			l.leave(w, granted, nil)
		case deny:
			l.leave(w, refused, l.q.deniedLocked(w, d.err, now))
		// The goroutine of w is woken while w still stands in the line, at its head. Nobody else goes
		// until its answer is in, see takeAnswer.
		case ask:
			l.asking = w
			l.settle(w, asking, nil)
		default:
			l.plan(d, now, now.Sub(at))
			return
		}
	}
}

// join finds the flow of w, which o wants and which begins to wait.
//
// Whether a call must wait is known only under the lock, and its weight was asked for without it. The latest weight of
// a flow holds for all its calls that wait, and from its next charge on.
func (l *line) join(w *waiter, o *order) {
	w.flow = nil // that of an earlier attempt, which may have been forgotten
	if l.flows == nil {
		if o.want.Flow == "" {
			return
		}
		l.flows = flows{}
	}
	id, shared, c := l.q.flowID(o), l.q.common.shared != nil, l.flows[w.prio]
	if c == nil {
		if o.want.Flow == "" && !shared {
			return
		}
		if c = l.flows.add(w.prio); !shared { // those that wait already
			c.unnamed = c.flow(flowID{})
			c.unnamed.count, c.unnamed.units = l.unnamed(w.prio)
			c.waiting = c.unnamed.count
		}
	}
	f := c.flow(id)
	if f != c.unnamed {
		w.flow = f
	}
	if o.want.Flow != "" {
		f.weight = o.weight
		w.wants |= apart
	}
	f.join(w)
}

// leave takes w out of the line and settles it: granted, or refused because of err.
func (l *line) leave(w *waiter, s waitState, err error) {
	l.remove(w)
	l.q.goneLocked(w)
	// A waiter has no field for an error: few are refused, and 100,000 waiters would have it.
	if s == refused && w.wake != nil {
		if l.reasons == nil {
			l.reasons = map[*waiter]error{}
		}
		l.reasons[w] = err
	}
	l.settle(w, s, err)
}

// settle ends w's wait, or gives it the turn to ask a foreign limiter.
// A waiter may be settled twice: asking, then granted, refused or, after a wait, asking again.
func (l *line) settle(w *waiter, s waitState, err error) {
	w.state = s
	if w.wake != nil {
		w.wake <- struct{}{} // never blocks: a waiter is settled again only after it has received
		return
	}
	left := l.tasks[w]
	if s != asking {
		delete(l.tasks, w)
	}
	left(w, err) // must not block
}

// reason returns why w was refused, and forgets it.
func (l *line) reason(w *waiter) error {
	l.q.common.mu.Lock()
	defer l.q.common.mu.Unlock()
	return l.reasonLocked(w)
}

// reasonLocked is reason with the lock.
func (l *line) reasonLocked(w *waiter) error {
	err := l.reasons[w]
	delete(l.reasons, w)
	return err
}

// plan sets the timer for the head. late is how late the timer has just been: a machine whose timers come
// late is asked for fewer of them, because a firing costs as much as several grants, and the head's
// delay is made up for (see asOf).
//
// An example at 50,000/s: the head's unit is due in 0.02 ms, and the timer has just been 1 ms late. It is
// set to 0.1 ms, a fiftieth of limit.MaxLate. The five calls that are due by then go at one firing.
func (l *line) plan(d decision, now time.Time, late time.Duration) {
	l.due = time.Time{}
	wait := d.until.Sub(now)
	if d.exact {
		// A rate named this moment, so it may be made up for. The end of a closing may not: a call
		// before it would break what the upstream asked for, and one after it has lost nothing that was
		// its own.
		l.due = d.until
		wait = max(wait, min(late/4, limit.MaxLate/50))
	}
	switch {
	case d.verdict == block:
		if l.timer != nil {
			l.timer.Stop()
		}
	case l.timer == nil:
		l.timer = time.AfterFunc(wait, l.wakeUp)
	default:
		l.timer.Reset(wait)
	}
}

// close ends the line, in which nobody waits any more.
// The queue forgets it, and the next one that must wait makes another. So a key in which nobody waits
// costs no timer and no watch on its limiters.
func (l *line) close() {
	if l.timer != nil {
		l.timer.Stop()
	}
	l.stop()
	l.q.emptiedLocked()
}

// drop takes out a waiter that will not go, and serves the others.
func (l *line) drop(w *waiter, now time.Time) {
	l.remove(w)
	l.q.goneLocked(w)
	l.goOn(now)
}

// goOn serves those who are left.
func (l *line) goOn(now time.Time) {
	if l.count == 0 {
		l.close()
	}
	l.q.advanceLocked(now)
}

// sleep blocks w's goroutine until w may start (nil), is refused, or ctx ends. A grant and the end of ctx
// may race. Whichever the select sees, a grant that cannot be used is undone: in abandon if select saw
// ctx, and in woken if it saw the grant of a call whose ctx has ended.
func (l *line) sleep(ctx context.Context, w *waiter) error {
	select {
	// wake is buffered, so whoever grants w under the lock never waits for this goroutine to run.
	case <-w.wake:
	case <-ctx.Done():
		return l.abandon(ctx, w)
	}
	// No lock is needed to read the state. A waiter that was granted or refused has left the line, and
	// one that asks is changed by its own goroutine alone.
	if w.state == granted && ctx.Err() == nil {
		return nil
	}
	return l.woken(ctx, w)
}

// abandon takes w, whose ctx has ended, out of the line, or undoes its grant. Foreign limiters get their
// units back after the lock is released.
func (l *line) abandon(ctx context.Context, w *waiter) error {
	units, back, err := l.abandonLocked(ctx, w)
	if back {
		l.q.refund(units)
	}
	return err
}

// abandonLocked also returns whether units of w's have come back, and how many of them the foreign
// limiters must get.
func (l *line) abandonLocked(ctx context.Context, w *waiter) (units int, back bool, err error) {
	l.q.common.mu.Lock()
	defer l.q.common.mu.Unlock()
	now := time.Now()
	err = l.q.gaveUpLocked(w, endOf(ctx), now)
	switch w.state {
	case refused:
		return 0, false, l.reasonLocked(w)
	// The grant won the race for the lock, but came too late for w.
	case granted:
		l.q.undoLocked(w, now) // l itself may be gone by now
		units, back = int(w.cost), true
	case asking: // the turn had come but was not taken up: only own limiters have given units
		l.asking = nil
		l.q.answeredLocked(w, -1, now)
		l.drop(w, now)
		back = true
	default:
		l.drop(w, now)
	}
	return units, back, err
}
