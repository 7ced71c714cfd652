package queue

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
func (l *Line) woken(ctx context.Context, w *Waiter) (err error) {
	var stop func()
	defer func() {
		if stop == nil {
			return
		}
		l.unlisten(ctx, w, stop, err)
		if err != nil {
			l.rule.AskAnew()
		}
	}()
	for listen := &stop; ; listen = nil {
		switch {
		case w.State == Refused:
			return l.reason(w)
		case w.State == Asking:
			l.AskFor(ctx, w, listen)
		case ctx.Err() != nil:
			return l.Abandon(ctx, w)
		default:
			return nil
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return l.Abandon(ctx, w)
		}
	}
}

// unlisten calls stop. If that panics, a grant is given back; err tells of none.
func (l *Line) unlisten(ctx context.Context, w *Waiter, stop func(), err error) {
	stopped := false
	defer func() {
		if !stopped && err == nil {
			l.Abandon(ctx, w)
		}
	}()
	stop()
	stopped = true
}

// AskFor asks the foreign limiters on behalf of w, the head, and settles w by
// the answer; before that it begins to listen to them, if listen is not nil, and
// puts there what ends it. The lock is not held while they are asked; meanwhile
// nobody else of this line asks. A panic of theirs passes through, with w out of
// the line.
func (l *Line) AskFor(ctx context.Context, w *Waiter, listen *func()) {
	err := errAskPanicked
	wait := time.Duration(0)
	defer func() {
		switch ok := l.takeAnswer(w, wait, err); {
		case ok:
		case err == nil && wait == 0:
			l.rule.refund(w.Cost) // the gate has closed meanwhile
		default:
			l.rule.refund(0) // the own limiters' units are back: others may wait for them
		}
		if err == errAskPanicked {
			l.reason(w) // nobody will ask for it
		}
	}()
	if listen != nil {
		*listen = l.rule.WatchForeign()
	}
	wait, err = l.rule.inquire(ctx, w.Cost)
}

// takeAnswer takes in what the foreign limiters answered and reports whether w goes.
func (l *Line) takeAnswer(w *Waiter, wait time.Duration, err error) (ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.Asking = nil
	switch {
	case err != nil:
		l.rule.answered(w, -1, now)
		l.Leave(w, Refused, l.rule.fail(w, err))
	case l.rule.answered(w, wait, now):
		ok = true
		l.Served++
		l.Leave(w, Granted, nil)
	default:
		w.State = Waiting
	}
	l.GoOn(now)
	return ok
}
