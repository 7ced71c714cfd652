package queue

import (
	"cmp"
	"context"
	"net/url"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/line"
)

// A lineup is the calls of one queue that wait. It exists only while somebody does, and has one timer, for what holds its
// calls alone; what several keys share has its own, see pool.
//
// Units are bound to a call at the last moment. So nothing has to be given back or booked anew when a call leaves, the
// gate closes, or a limit changes: advance is called, and looks at whose turn it is.
//
// An example: 10/s, three waiters, and the timer is set for the head at t+100 ms. The second one's ctx ends: it is taken
// out, and nothing else happens. The limit becomes 20/s: the limiter calls wakeUp, and the timer moves to t+50 ms.
//
// The methods are called with the lock held, but for those that a waiter's goroutine or a callback runs and that take the
// lock themselves: Queue.sleep, Queue.abandon, wakeUp.
//
// The lock decides every race. Whoever holds it finds the waiter in one state, and takes it to the next:
//
//	turn, then ctx    the waiter is granted; its goroutine sees the end of ctx, and undoes the grant
//	ctx, then turn    the waiter is out of the line before advance looks; nothing was taken
//	refusal, then ctx the waiter is out already; it returns the reason for the refusal
type lineup struct {
	line.Line[waiter]
	q        *Queue        // whose it is
	stakes   []stake       // what its calls share with those of other keys
	alone    dues          // what they pay beside that
	timer    *time.Timer   // wakes the head; nil until one was needed
	due      time.Time     // the moment that a limiter named for the head; zero: none
	stop     func()        // ends the watch on the limiters
	expelAt  time.Time     // when those who wait are looked at for MaxPause; zero: they need not be
	deadline time.Duration // no deadline of those who wait is earlier; 0: nobody has one
	looked   time.Time     // until when the upstream was closed when deadlines were last looked at
}

// newLineup makes that of q, and has it woken when a limiter changes that no other key waits for.
func newLineup(q *Queue) *lineup {
	l := &lineup{q: q}
	l.Init(q)
	l.share()
	l.stop = l.ending(l.alone.Watch(l.wakeUp))
	return l
}

// wakeUp is what the timer calls, and a limiter that has changed. A call that comes late, when the line has emptied,
// finds nobody to serve.
func (l *lineup) wakeUp() {
	l.q.common.mu.Lock()
	defer l.q.common.mu.Unlock()
	l.q.advanceLocked(time.Now())
}

// asOf returns the moment for which units are taken now, if a limiter had named due. Timers come late, by a millisecond
// or so, and at 5,000/s that would lose most of the limit. So up to limit.MaxLate of a delay is made up for: the units
// count as taken when they were due.
func asOf(due, now time.Time) time.Time {
	// An example at 5,000/s, a unit each 0.2 ms. The timer is set for t and comes at t + 1 ms. Taken as of now, the next
	// unit would be there at t + 1.2 ms: one call each 1.2 ms, 833/s. Taken as of t, the units of t, t + 0.2 ... t + 1 ms
	// are all there: six calls go at once.
	if due.IsZero() || !due.Before(now) {
		return now
	}
	return limit.Latest(due, now.Add(-limit.MaxLate))
}

// advance lets go all who may go now, and plans when to look again. It is right to call at any time. The loop ends at the
// first call that may not go: a cheaper one behind it does not overtake it, otherwise a call of 10 units would never see
// 10 units at once. at is the same for all turns of the loop, so a late timer lets as many go as a punctual one.
func (l *lineup) advance(now time.Time) {
	if l.Len() > 0 && l.q.common.hosts != nil {
		l.q.lookLocked(now)
	}
	at := asOf(l.due, now)
	for l.Len() > 0 {
		w := l.q.headLocked(now)
		d := l.q.passLocked(w, at, now)
		switch d.verdict {
		case grant:
		case deny:
			l.leave(w, refused, l.q.deniedLocked(w, d.err, now))
		default:
			plan(&l.timer, &l.due, l.q.untilLookLocked(d, now), now, now.Sub(at), l.timeUp)
			return
		}
	}
	l.close()
}

// plan sets a timer for the one whose turn it is. late is how late the timer has just been: a machine whose timers come
// late is asked for fewer of them, because a firing costs as much as several grants, and the delay is made up for, see asOf.
//
// An example at 50,000/s: the head's unit is due in 0.02 ms, and the timer has just been 1 ms late. It is set to 0.1 ms,
// a fiftieth of limit.MaxLate. The five calls that are due by then go at one firing.
func plan(timer **time.Timer, due *time.Time, d decision, now time.Time, late time.Duration, wake func()) {
	*due = time.Time{}
	wait := d.until.Sub(now)
	if d.exact {
		// A rate named this moment, so it may be made up for. The end of a closing may not: a call before it would break
		// what the upstream asked for, and one after it has lost nothing that was its own.
		*due = d.until
		wait = max(wait, min(late/4, limit.MaxLate/50))
	}
	switch {
	case d.verdict == block && d.until.IsZero():
		if *timer != nil {
			(*timer).Stop()
		}
	case *timer == nil:
		*timer = time.AfterFunc(wait, wake)
	default:
		(*timer).Reset(wait)
	}
}

// join puts w, which o wants, into the line.
func (l *lineup) join(w *waiter, o *order) {
	if h := o.holds; h != nil {
		h.meters.waitLocked(h, 1)
	}
	l.noteDeadline(w)
	l.Push(&w.Call, o.want.Flow, cmp.Or(o.weight, 1))
}

// noteDeadline keeps the earliest deadline.
func (l *lineup) noteDeadline(w *waiter) {
	if w.deadline != 0 && (l.deadline == 0 || w.deadline < l.deadline) {
		l.deadline, l.looked = w.deadline, time.Time{}
	}
}

// remove takes w out of the line, for whatever reason.
func (l *lineup) remove(w *waiter) {
	if h := w.holds(); h != nil {
		h.meters.waitLocked(h, -1)
	}
	l.unowe(w)
	l.Remove(&w.Call)
}

// leave takes w out of the line and settles it: granted, or refused because of err.
func (l *lineup) leave(w *waiter, s waitState, err error) {
	l.remove(w)
	if w.state = s; s == refused {
		w.more().err = err
		l.q.common.stir(l.q) // it may have been its turn
	}
	if w.wake != nil {
		w.wake <- struct{}{} // never blocks: a waiter is settled once
		return
	}
	w.extra.task.settled(w, err) // must not block
}

// moveTo puts each call into the scope that its URL falls under now.
func (l *lineup) moveTo(scopeOf func(*url.URL) uint8) {
	for _, w := range l.waiters() {
		if scope := scopeOf(w.also().url); scope != w.Scope {
			l.Move(&w.Call, scope)
		}
	}
}

// waiters are all who wait, in no particular order.
func (l *lineup) waiters() []*waiter {
	all := make([]*waiter, 0, l.Len())
	for c := range l.All() {
		all = append(all, c.Of)
	}
	return all
}

// close ends the line, in which nobody waits any more, unless it has ended: it may empty while it is looked at. A key in
// which nobody waits costs no timer and no watch on its limiters.
func (l *lineup) close() {
	if l.q.line != l {
		return
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	l.stop()
	l.unshare()
	q := l.q
	q.line = nil
	q.marks.set(crowded, false)
	if q.asker != nil {
		q.asker.close()
	}
	q.leftLocked()
}

// goOn serves those who are left.
func (l *lineup) goOn(now time.Time) {
	if l.Len() == 0 {
		l.close()
	}
	l.q.advanceLocked(now)
}

// sleep blocks w's goroutine until w may start (nil), is refused, or ctx ends. A grant and the end of ctx may race.
// Whichever the select sees, a grant that cannot be used is undone.
func (q *Queue) sleep(ctx context.Context, w *waiter) error {
	select {
	// wake is buffered, so whoever grants w under the lock never waits for this goroutine to run. A waiter that was
	// settled has left the line: no lock is needed to read its state.
	case <-w.wake:
		if w.state == granted && ctx.Err() == nil {
			return nil
		}
	case <-ctx.Done():
	}
	return q.abandon(ctx, w)
}

// abandon takes w, whose ctx has ended, out of the line, undoes its grant, or returns why it was refused. Foreign
// limiters get their units back after the lock is released.
func (q *Queue) abandon(ctx context.Context, w *waiter) error {
	back, err := q.abandonLocked(ctx, w)
	if back {
		q.refund(int(w.Cost))
	}
	return err
}

// abandonLocked also returns whether units have come back.
func (q *Queue) abandonLocked(ctx context.Context, w *waiter) (back bool, err error) {
	q.common.mu.Lock()
	defer q.common.mu.Unlock()
	if w.state == refused {
		return false, w.extra.err
	}
	now := time.Now()
	err = q.gaveUpLocked(w, endOf(ctx), now)
	if w.state == granted { // it won the race for the lock, but came too late for w
		q.undoLocked(w, now) // its line may be gone by now
		return true, err
	}
	q.line.leave(w, refused, err)
	q.line.goOn(now)
	return false, err
}
