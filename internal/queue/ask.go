package queue

import (
	"context"
	"errors"
	"time"
)

// Limiters that are not the library's own may block, on a server's answer for instance, so they are never
// asked under the lock. The goroutine of the head asks them, with the head's ctx:
//
//	passLocked finds the head ready as far as the own limiters go, takes their units, and says ask
//	askFor     calls Take of the foreign limiters without the lock; nobody else of the line asks meanwhile
//	takeAnswer looks at everything again under the lock, because the gate may have closed and ctx may
//	           have ended: the head goes, or what was taken is given back
//
// An example with an own Bucket and a foreign limiter over a network. The Bucket's unit is taken at t,
// which foreign.taken notes. The network answers at t + 30 ms. At t + 20 ms a 429 has
// closed the gate: takeAnswer finds the head not ready, the Bucket gets its unit of t back, and the
// foreign limiter its own in refund, without the lock.
//
// Other calls arrive meanwhile. They join the line behind the head, and advance leaves at once while
// asking is set. So the foreign limiter is asked by one goroutine for each line at a time.

// errAskPanicked stands in while a foreign limiter is asked, in case it panics.
var errAskPanicked = errors.New("throttle: the limiter panicked")

// woken goes on from sleep if w was not simply granted. The goroutine that asks the foreign limiters
// listens to their changes too, because a line that is closed under the lock could not call what ends
// the listening. When it leaves without a grant, the next head has to ask and listen for itself.
func (l *line) woken(ctx context.Context, w *waiter) (err error) {
	var stop func()
	defer func() {
		if stop == nil {
			return
		}
		l.unlisten(ctx, w, stop, err)
		if err != nil {
			l.q.askAnew()
		}
	}()
	// Each round is one waking: a turn to ask, a refusal, or a grant that came as ctx ended. listen is
	// nil from the second round on, because the changes are listened to already.
	for listen := &stop; ; listen = nil {
		switch {
		case w.state == refused:
			return l.reason(w)
		case w.state == asking:
			l.askFor(ctx, w, listen)
		// Either it was granted and cannot use it, or its ctx has ended after an answer "not yet".
		case ctx.Err() != nil:
			return l.abandon(ctx, w)
		default:
			return nil
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return l.abandon(ctx, w)
		}
	}
}

// unlisten calls stop, a foreign limiter's function. If it panics, the grant that w has got, unless err is
// set, is given back.
func (l *line) unlisten(ctx context.Context, w *waiter, stop func(), err error) {
	stopped := false
	defer func() {
		if !stopped && err == nil {
			l.abandon(ctx, w)
		}
	}()
	stop()
	stopped = true
}

// askFor asks the foreign limiters on behalf of w, the head, and settles w by the answer. If listen is not
// nil, it first begins to listen to their changes and puts there what ends that. A panic of theirs passes
// through, with w out of the line.
func (l *line) askFor(ctx context.Context, w *waiter, listen *func()) {
	err := errAskPanicked
	wait := time.Duration(0)
	defer func() {
		switch ok := l.takeAnswer(w, wait, err); {
		case ok:
		case err == nil && wait == 0:
			l.q.refund(int(w.cost)) // the gate has closed meanwhile
		default:
			l.q.refund(0) // the own limiters' units are back: others may wait for them
		}
		if err == errAskPanicked {
			l.reason(w) // nobody will ask for it
		}
	}()
	if listen != nil {
		*listen = l.q.watchForeign()
	}
	wait, err = l.q.inquire(ctx, int(w.cost))
}

// takeAnswer takes in what the foreign limiters answered and reports whether w goes.
func (l *line) takeAnswer(w *waiter, wait time.Duration, err error) (ok bool) {
	// From the answer to the decision is one critical section: no event can come between them.
	l.q.common.mu.Lock()
	defer l.q.common.mu.Unlock()
	now := time.Now()
	// Somebody else may be asked from now on. goOn, at the end, looks who.
	l.asking = nil
	switch {
	case err != nil:
		l.q.answeredLocked(w, -1, now)
		l.leave(w, refused, l.q.fail(w, err))
	case l.q.common.overLocked():
		l.q.answeredLocked(w, -1, now)
		l.q.refused++
		l.leave(w, refused, l.q.fail(w, l.q.common.Errors.Closed))
	case l.q.answeredLocked(w, wait, now):
		ok = true
		l.served++
		l.leave(w, granted, nil)
	default:
		w.state = waiting
	}
	l.goOn(now)
	return ok
}
