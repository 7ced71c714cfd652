package fleet

import (
	"context"
	"time"
)

// Ask is Take for a server that would rather hold a request for a moment than refuse it because the store has not been
// asked yet. It consumes n units and returns 0, or consumes nothing and returns how long to wait, as Take does. If a
// request to the store is under way, Ask waits for its answer first, for the soft timeout of the store at most (four
// round trips, 20 to 100 ms); without an answer [Options].Mode decides. It returns ctx's error if ctx ends
// meanwhile, and otherwise the errors of Take.
func (l *Limiter) Ask(ctx context.Context, n int) (wait time.Duration, err error) {
	if wait, err = l.Take(ctx, n); wait > 0 && err == nil {
		wait, err = l.await(ctx, n) // also if no request is out: its answer may have come just after Take
	}
	if 0 < wait && wait <= rounding && err == nil {
		time.Sleep(wait)
		return l.Take(ctx, n)
	}
	return wait, err
}

// rounding is what Ask waits for too. The store's dates are whole microseconds, rounded up by each request, so the third of
// 3 units that are there may be dated 2 µs from now: a second, if a server says so with Retry-After.
const rounding = 100 * time.Microsecond

// await is Ask while a request is out, or was at the first Take.
//
// The answer may belong to another call, and go to it. Then Take has sent for more, and the next answer is waited for
// as well, within the same soft timeout. Example: a round trip of 5 ms, and requests of clients at 0 and 1 ms. Both are
// held. At 5 ms the first one's unit comes and goes to whichever wakes first; the other sends again, and has its
// unit at 10 ms. With a limit that is used up, the answer at 5 ms says when the next unit is there, and both are
// refused with that.
func (l *Limiter) await(ctx context.Context, n int) (wait time.Duration, err error) {
	news, stop := l.account.changes()
	defer stop()
	_, soft := l.account.common.Times()
	late := time.NewTimer(soft)
	defer late.Stop()
	for over := false; ; {
		// Whatever has come since the last look is seen by this Take: news comes after the change.
		before, was := l.asking()
		if wait, err = l.Take(ctx, n); wait == 0 || err != nil || over {
			return wait, err
		}
		sent, out := l.asking()
		switch {
		case out:
		case was || sent != before: // its answer has come since
			continue
		default:
			return wait, err
		}
		select {
		case <-news:
		case <-late.C:
			over = true
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// changes returns a channel that something is in after a change, until stop.
func (s *account) changes() (news <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	return c, s.Notify(func() {
		select {
		case c <- struct{}{}:
		default: // one is there, and nobody has looked yet
		}
	})
}

// asking reports whether a request is out that the store is expected to answer, and how many have been sent.
func (l *Limiter) asking() (sent uint64, out bool) {
	l.account.locked(func() {
		up, _, _ := l.account.breaker.Look()
		sent, out = l.account.seq, up && l.account.out != nil
	})
	return sent, out
}
