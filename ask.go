package throttle

import (
	"context"
	"errors"
	"time"
)

// errAskPanicked stands in while a foreign limiter is asked, in case it panics.
var errAskPanicked = errors.New("throttle: the limiter panicked")

// woken goes on from sleep where w was not simply granted. Whoever asks listens
// to the limiters too, until it leaves. If it leaves without a grant, the next head
// has to ask and listen for itself.
func (l *line) woken(ctx context.Context, w *waiter) (err error) {
	var stop func()
	defer func() {
		if stop == nil {
			return
		}
		l.unlisten(ctx, w, stop, err)
		if err != nil {
			l.rule.askAnew()
		}
	}()
	for listen := &stop; ; listen = nil {
		switch {
		case w.state == refused:
			return l.reason(w)
		case w.state == asking:
			l.askFor(ctx, w, listen)
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

// unlisten calls stop. If that panics, a grant is given back; err tells of none.
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

// askFor asks the foreign limiters on behalf of w, the head, and settles w by
// the answer; before that it begins to listen to them, if listen is not nil, and
// puts there what ends it. The lock is not held while they are asked; meanwhile
// nobody else of this line asks. A panic of theirs passes through, with w out of
// the line.
func (l *line) askFor(ctx context.Context, w *waiter, listen *func()) {
	err := errAskPanicked
	wait := time.Duration(0)
	defer func() {
		switch ok := l.hear(w, wait, err); {
		case ok:
		case err == nil && wait == 0:
			l.rule.refund(w.cost) // the gate has closed meanwhile
		default:
			l.rule.refund(0) // the own limiters' units are back: others may wait for them
		}
		if err == errAskPanicked {
			l.reason(w) // nobody will ask for it
		}
	}()
	if listen != nil {
		*listen = l.rule.watchForeign()
	}
	wait, err = l.rule.inquire(ctx, w.cost)
}

// hear takes in what the foreign limiters answered and reports whether w goes.
func (l *line) hear(w *waiter, wait time.Duration, err error) (ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.asking = nil
	switch {
	case err != nil:
		l.rule.answered(w, -1, now)
		l.leave(w, refused, l.rule.fail(w, err))
	case l.rule.answered(w, wait, now):
		ok = true
		l.served++
		l.leave(w, granted, nil)
	default:
		w.state = waiting
	}
	l.goOn(now)
	return ok
}
