package throttle

import (
	"context"
	"errors"
)

// ErrClosed means that Shutdown was called before the call came, or that its time was over while the call waited. It
// comes wrapped in an [*Error].
var ErrClosed = errors.New("throttle: shut down")

// Shutdown ends t gracefully. New calls fail with ErrClosed at once. Those in line go in order, with their retries,
// until ctx ends; then the ones that still wait fail with ErrClosed at that moment, attempts under way go on but are
// not sent again, and Shutdown returns ctx.Err(). It returns nil when nobody waits, no attempt is under way, and the
// bodies of responses are closed or read to their ends.
//
// Bodies that were handed out before Shutdown was called are known only with Queue.MaxInFlight. At the end idle
// connections are closed. A pause delays the calls in line as ever: Resume lets them go. Shutdown may be called again
// and from several goroutines; the first ctx that ends counts for all. It cannot be undone.
func (t *Transport) Shutdown(ctx context.Context) error {
	t.once.Do(t.setup)
	defer t.CloseIdleConnections()
	return t.table.Shutdown(ctx)
}

// Shutdown ends q as [Transport.Shutdown] ends a Transport: it waits until nobody is in line, and no function of Do and
// no task of a [Group] runs. When ctx ends first, calls and tasks that still wait fail with ErrClosed, and functions
// that run go on. A Group gets that error as any other, so its ctx ends, and Group.Go fails the group at once.
func (q *Queue) Shutdown(ctx context.Context) error { return q.q.Shutdown(ctx) }
