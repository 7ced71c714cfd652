package throttle

import (
	"context"
	"sync"
	"time"
)

// A bucketLine is the line of those who Wait for a Bucket, and its rule: only
// the bucket decides.
type bucketLine struct {
	mu       sync.Mutex // guards all below; taken before the bucket's own lock
	bucket   *Bucket
	line     *line // nil while nobody waits
	base     time.Time
	arrivals uint64
}

// Wait blocks until the units that ctx asks for may be used, 1 if it asks for
// none ([WithCost]), and takes them. Callers go in the order of their priority
// ([WithPriority]), then of arrival, every eighth time the one that has waited
// longest. A caller that leaves takes nothing and lets those behind move up.
//
// If the wait would outlast ctx's deadline, Wait fails at once. Errors are of
// type [*Error]: ctx.Err(), ErrWaitTooLong, or the reasons for which Take fails.
func (b *Bucket) Wait(ctx context.Context) error {
	l := b.waiters()
	v := ctxValue(ctx)
	if err := ctx.Err(); err != nil {
		return &Error{Err: err}
	}
	ln, w, err := l.arrive(ctx, v)
	if err != nil || w == nil {
		return err
	}
	return ln.sleep(ctx, w)
}

func (b *Bucket) waiters() *bucketLine {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	if b.line == nil {
		b.line = &bucketLine{bucket: b, base: time.Now()}
	}
	return b.line
}

func (l *bucketLine) arrive(ctx context.Context, v ctxOrder) (*line, *waiter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.arrivals++
	w := &waiter{seq: l.arrivals, cost: v.cost, prio: v.prio}
	if l.line == nil {
		switch d := l.pass(w, now, now); d.verdict {
		case grant:
			return nil, nil, nil
		case deny:
			return nil, nil, l.fail(w, d.err)
		}
	}
	if err := l.never(w.cost, now); err != nil {
		return nil, nil, &Error{Err: err}
	}
	if d, ok := ctx.Deadline(); ok {
		var ahead int64
		if l.line != nil {
			ahead = l.line.ahead(w.prio, w.seq)
		}
		if at := l.after(now, ahead, w.cost); at.After(d) {
			return nil, nil, &Error{Wait: at.Sub(now), Err: errDeadline}
		}
	}
	if l.line == nil {
		l.line = newLine(&l.mu, l)
	}
	ln := l.line
	w.wake = make(chan struct{}, 1)
	ln.push(w)
	if ln.next() == w {
		ln.advance(now)
	}
	return ln, w, nil
}

// never returns why that cost can never be paid, if so.
func (l *bucketLine) never(n int, now time.Time) error {
	l.bucket.c.mu.Lock()
	defer l.bucket.c.mu.Unlock()
	_, err := l.bucket.ready(now, n)
	return err
}

func (l *bucketLine) after(now time.Time, ahead int64, n int) time.Time {
	l.bucket.c.mu.Lock()
	defer l.bucket.c.mu.Unlock()
	return l.bucket.after(now, ahead, n)
}

func (l *bucketLine) head(time.Time) *waiter { return l.line.next() }

func (l *bucketLine) pass(w *waiter, at, now time.Time) decision {
	l.bucket.c.mu.Lock()
	defer l.bucket.c.mu.Unlock()
	at, err := l.bucket.takeBy(at, now, w.cost)
	switch {
	case err != nil:
		return decision{verdict: deny, err: err}
	case at.After(now):
		return decision{verdict: later, until: at, told: true}
	}
	w.moment = at.Sub(l.base)
	return decision{verdict: grant}
}

func (l *bucketLine) fail(w *waiter, err error) *Error { return &Error{Err: err} }

func (l *bucketLine) undo(w *waiter, now time.Time) {
	func() {
		l.bucket.c.mu.Lock()
		defer l.bucket.c.mu.Unlock()
		l.bucket.giveBack(l.base.Add(w.moment), now, w.cost)
	}()
	l.advance(now)
}

func (l *bucketLine) watch(changed func()) (stop func()) { return l.bucket.Notify(changed) }

func (l *bucketLine) gone(*waiter) {}

func (l *bucketLine) emptied() { l.line = nil }

func (l *bucketLine) advance(now time.Time) {
	if l.line != nil {
		l.line.advance(now)
	}
}
