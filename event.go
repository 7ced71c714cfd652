package throttle

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// An Event tells an observer of one thing that happened to one call. Fields that
// do not apply are zero.
type Event struct {
	Key     string        // the key of the call's line, of at most 256 bytes
	Method  string        // of the request
	Host    string        // of the request's URL
	Status  int           // of the answer to the last attempt, 0 if it had none
	Attempt int           // attempts sent so far
	Wait    time.Duration // time waited, or to wait
	Err     error         // the attempt's error, or why the call was refused
	Learned Learned       // the limit that was learned
}

// Learned is one limit that a key has learned of its upstream: a quota that its
// answers tell of, or a rate found because it refuses.
type Learned struct {
	Name, Unit string        // as told; "": not told
	Source     string        // the header field that told it, "body", or "refusals" if nothing but those did
	Limit      int64         // units in a window; -1: not told
	Remaining  int64         // of them in this window, as last told; -1: not told
	Reset      time.Duration // until the end of the window; -1: not known
	Window     time.Duration // its length; 0: not told
	Rate       rate.Limit    // at which calls start because of it, in units per second; rate.Inf: not spaced
}

// Hooks are functions that observe a [Transport]; nil ones are skipped. They are
// called in the goroutine of the call, never under a lock, with the request's
// ctx, and must be safe for concurrent use. A slow hook delays its call.
type Hooks struct {
	Waited    func(context.Context, Event) // the call has stood in line for Wait and goes now
	Refused   func(context.Context, Event) // the call was not sent, or not again after Retrying: Err says why
	Throttled func(context.Context, Event) // the upstream refused; Wait is what it told, 0: nothing
	Failed    func(context.Context, Event) // the attempt got no answer, or a 500, 502, 503 or 504 that is no refusal
	Learned   func(context.Context, Event) // a limit was learned, or has changed: a new quota or another size, or a cut of the found rate
	Retrying  func(context.Context, Event) // the call will be sent again, as things stand after Wait
}

// Join returns Hooks that call h's function, then other's.
func (h Hooks) Join(other Hooks) Hooks {
	return Hooks{
		Waited:    both(h.Waited, other.Waited),
		Refused:   both(h.Refused, other.Refused),
		Throttled: both(h.Throttled, other.Throttled),
		Failed:    both(h.Failed, other.Failed),
		Learned:   both(h.Learned, other.Learned),
		Retrying:  both(h.Retrying, other.Retrying),
	}
}

func both(a, b func(context.Context, Event)) func(context.Context, Event) {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return func(ctx context.Context, e Event) { a(ctx, e); b(ctx, e) }
}
