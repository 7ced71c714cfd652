package fault

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// A Last keeps the error that the newest call under a ctx has ended with, if it is an E, until the next call begins. It is for
// callers to whom that error does not come, because a library between them and the call returns ctx.Err() in its place. A nil
// Last keeps nothing. It is safe for concurrent use; of calls at the same time it keeps what the last of them has noted.
type Last[E error] struct{ err atomic.Pointer[E] }

// Note keeps the E in err, or nothing if there is none, and returns err. A call notes nil when it begins: what it ends with has
// nothing to do with those before.
func (l *Last[E]) Note(err error) error {
	if l != nil {
		l.note(err)
	}
	return err
}

// note is Note of a Last that is there. Nearly every call has none, so Note is small enough to be compiled into its caller.
func (l *Last[E]) note(err error) {
	var found E
	if !errors.As(err, &found) {
		l.err.Store(nil)
		return
	}
	l.err.Store(&found)
}

// Explain returns err with what is kept behind it, and both match. An err that is nil, or has an E already, it returns as it is.
// An example: "context canceled" becomes "context canceled: throttle: "api.example.com": context canceled".
func (l *Last[E]) Explain(err error) error {
	last := l.err.Load()
	if err == nil || last == nil || errors.As(err, new(E)) {
		return err
	}
	return fmt.Errorf("%w: %w", err, *last)
}
