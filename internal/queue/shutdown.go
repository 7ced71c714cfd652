package queue

import (
	"context"
	"iter"
	"time"
)

// This file ends a table, or a bare queue: new calls are refused, those that wait go in order, and when the time for
// that is over the rest fail at once. While all is open that costs a call a comparison on arrival and one at its end.
//
// # States
//
//	open      common.drain is nil
//	draining  no new call is let in; those that are in line, rest before a retry or are under way go on, retries too
//	over      drain.over: nobody may wait any more; what is under way ends as it will, without a retry
//
// The state changes under the lock, and never back. Each Shutdown is one caller who waits until nobody is left or its
// own ctx ends; the first ctx that ends makes the state over for all of them.
//
// Example: 200 calls wait at 10/s when somebody shuts down with 10 s. 100 of them go, one each 100 ms. At 10 s the
// other 100 leave their lines, and Shutdown returns ctx.Err(). The last one that went has its answer 20 ms later;
// if that is a 503, its caller gets it, because there are no retries any more.
//
// # Who is left
//
// drain.busy has the queues where a call waits, rests or is under way, or where a body is open that was handed out. No
// call can begin, so a queue that has left busy never comes back, and to look at one queue after an event of that
// queue is enough. The last one to leave wakes the callers of Shutdown, each by a channel of its own:
// nothing polls, and nothing is left behind. These events may leave a queue with nobody, and each calls leftLocked:
//
//	the line has emptied                               lineup.close
//	a slot is free, a task has ended, a body is closed  change
//	a call has ended                                   Call.Done
//
// Calls of a Transport mostly end without the lock: Done adds to ended, and then loads drains. Shutdown stores drains, and
// then reads ended. One of the two comes later and sees the other: either Shutdown finds that the call has ended, or
// Done finds the drain, takes the lock and looks.
//
// # Races
//
// The lock decides all others.
//
//	a call arrives, and Shutdown       one comes first: the call is in, and drains, or is refused
//	a turn, and the end of the ctx     the waiter is granted and goes, or is refused and leaves
//	the last one leaves, and the end   Shutdown looks at busy again: if it is empty, all is well and it returns nil
//	a retry is decided, then over      rest and arrive look again: it is refused, and its caller gets the last answer
//	an answer comes, and Shutdown      its body is counted if KeepSlot sees the drain; otherwise it was handed out before
//	Pause or Resume while draining     they hold the line up and let it go, as ever

// A drain is the end of a table or of a bare queue. The lock guards it.
type drain struct {
	over  bool
	busy  map[*Queue]int             // where somebody is left, with the bodies that were handed out while calls drain
	wakes map[chan struct{}]struct{} // closed when nobody is; one for each Shutdown that waits
}

// Shutdown refuses new calls, and waits until those that are in have left or ctx ends. Then those that still wait
// are refused, and it returns ctx.Err().
func (q *Queue) Shutdown(ctx context.Context) error {
	return q.common.shutdown(ctx, func(yield func(*Queue) bool) { yield(q) })
}

// Shutdown is Queue.Shutdown of all keys.
func (t *Table) Shutdown(ctx context.Context) error {
	return t.common.shutdown(ctx, func(yield func(*Queue) bool) {
		for _, e := range t.order {
			if !yield(&e.queue) {
				return
			}
		}
	})
}

// shutdown ends the queues of all, which is called under the lock.
func (r *common) shutdown(ctx context.Context, all iter.Seq[*Queue]) error {
	left := r.beginDrain(all)
	if left == nil {
		return nil
	}
	select {
	case <-left:
		return nil
	case <-ctx.Done():
		return r.endDrain(left, ctx.Err())
	}
}

// beginDrain lets no call in from now on, and returns what is closed when nobody is left; nil: nobody is.
func (r *common) beginDrain(all iter.Seq[*Queue]) (left chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.drain
	if d == nil {
		d = &drain{busy: map[*Queue]int{}, wakes: map[chan struct{}]struct{}{}}
		r.drain = d
		r.drains.Store(true) // before the queues are looked at, see Call.Done
		for q := range all {
			d.busy[q] = 0
		}
	}
	for q := range d.busy {
		q.leftLocked()
	}
	if len(d.busy) == 0 {
		return nil
	}
	left = make(chan struct{})
	d.wakes[left] = struct{}{}
	return left
}

// endDrain refuses all who wait because of err, unless nobody is left.
func (r *common) endDrain(left chan struct{}, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.drain
	if len(d.busy) == 0 {
		return nil
	}
	delete(d.wakes, left)
	if d.over {
		return err
	}
	d.over = true
	now := time.Now()
	for q := range d.busy {
		q.dismissLocked(now)
	}
	r.settle(now)
	for stop, q := range r.resters {
		q.trouble().refused++
		close(stop)
	}
	r.resters = nil
	return err
}

// dismissLocked refuses all who wait. Nobody goes with the units of those who leave.
func (q *Queue) dismissLocked(now time.Time) {
	l := q.line
	if l == nil {
		return
	}
	for _, w := range l.waiters() {
		q.trouble().refused++
		l.leave(w, refused, q.fail(w, q.common.Errors.Closed))
	}
	l.close()
}

// leftLocked looks whether somebody is left in q. To call it once too often does no harm.
func (q *Queue) leftLocked() {
	d := q.common.drain
	if d == nil || q.busyLocked() {
		return
	}
	delete(d.busy, q)
	if len(d.busy) == 0 {
		for left := range d.wakes {
			close(left)
		}
		clear(d.wakes)
	}
}

// look is leftLocked with the lock.
func (q *Queue) look() {
	q.common.mu.Lock()
	defer q.common.mu.Unlock()
	q.leftLocked()
}

// staysLocked reports whether a call may go on: a new one while nobody has called Shutdown, a retry until the time is over.
func (r *common) staysLocked(o *order) bool { return r.drain == nil || o.retry() && !r.drain.over }

// overLocked reports whether nobody may wait any more.
func (r *common) overLocked() bool { return r.drain != nil && r.drain.over }

// keepOpen counts a body that is handed out while calls drain, until the function that it returns is called.
func (q *Queue) keepOpen() (closed func()) {
	q.change(func(time.Time) { q.common.drain.busy[q]++ })
	return func() { q.change(func(time.Time) { q.common.drain.busy[q]-- }) }
}
