package throttle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-throttle/throttle/internal/body"
	"github.com/go-throttle/throttle/internal/queue"
)

// The reasons for which this side ends a call. They come wrapped in an [*Error]; match them with errors.Is.
var (
	// ErrQueueFull means that QueueOptions.MaxWaiting calls are waiting already.
	ErrQueueFull = errors.New("throttle: queue full")

	// ErrWaitTooLong means that the predicted wait exceeds QueueOptions.MaxWait, or leaves too little time
	// before the caller's deadline, such as that of http.Client.Timeout: the answer is expected too
	// late, by the round trips seen so far (in Queue.Do and Group, by how long tasks took). If it is the
	// deadline, the error also matches context.DeadlineExceeded.
	ErrWaitTooLong = errors.New("throttle: wait too long")

	// ErrPaused means that the upstream has served nobody for Retry.MaxPause, or that an exhausted quota or an advertised
	// time says so. New calls get it at once then, except the one that probes the upstream. Call
	// again after Error.Wait, a tenth of the outage's age: only a call can find out that the upstream has recovered. The
	// text ends with the last answer, as in "(429, 6 probes in 41s)". For a 429 that no wait cures see hint.Hint.Final.
	ErrPaused = errors.New("throttle: upstream paused")

	// ErrRetryBudget means that the last attempt got no response and Retry.Budget allows no retry. The
	// error also matches the attempt's own error.
	ErrRetryBudget = errors.New("throttle: retry budget spent")

	// ErrMaxAttempts means that the call has made all attempts that Retry.MaxAttempts, its time for them, or
	// WithMaxAttempts allows, or that its Backoff has ended them. Only [Reason] returns it, and the next two.
	ErrMaxAttempts = errors.New("throttle: all attempts made")

	// ErrNoGetBody means that the request has a body and no GetBody to send it anew: set it, as http.NewRequest does for
	// a bytes.Buffer, bytes.Reader and strings.Reader.
	ErrNoGetBody = errors.New("throttle: body without GetBody")

	// ErrNotIdempotent means that the upstream may have acted on the request, and that its method, such as POST, is not
	// safe to repeat: set an Idempotency-Key header if the upstream knows it, or let Retry.Check say Again.
	ErrNotIdempotent = errors.New("throttle: method not safe to repeat")

	// ErrBodyCut comes from the Body of a response that was kept while a retry waited, after the bytes that were kept: 16 KiB
	// at most, or what came within 100 ms. The rest was dropped, so that the retry found a free connection.
	ErrBodyCut = body.ErrCut
)

// An Error says that this side, not the upstream, ended a call, and why. If Attempts is 0, the upstream has never seen
// the call. Each refused call gets a Wait of its own, so that callers come back one after the other; it reserves
// nothing. The text and Hooks.Refused show the predicted wait.
//
//	var e *throttle.Error
//	switch {
//	case err == nil:                            // check the status: the last response may be a 429
//	case errors.Is(err, throttle.ErrQueueFull): // shed load
//	case errors.As(err, &e) && e.Wait > 0:      // call again after e.Wait
//	case errors.As(err, &e):                    // e.Err is the reason, and no wait is known
//	default:                                    // the network, or the upstream
//	}
type Error struct {
	Key      string        // the call's key, as observers see it; "" for a Queue of one's own
	Wait     time.Duration // until it is worth calling again; 0: unknown
	Reason   string        // what held the call, see Event; "": it did not wait, or its turn had come
	Attempts int           // attempts sent before
	Err      error         // the reason: a sentinel of this package, ctx.Err(), or a limiter's error
	later    time.Duration // what Wait is longer by than the predicted wait
}

// Error returns a text such as
//
//	throttle: "api.example.com": queue full (predicted wait 3s, 2 attempts sent)
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("throttle: ")
	if e.Key != "" {
		fmt.Fprintf(&b, "%q: ", e.Key)
	}
	reason := "call ended" // of an Error that somebody made without one
	if e.Err != nil {
		reason = strings.TrimPrefix(e.Err.Error(), "throttle: ")
	}
	b.WriteString(reason)
	var known []string
	if wait := e.Wait - e.later; wait > 0 {
		known = append(known, fmt.Sprintf("predicted wait %v", rounded(wait)))
	}
	if n := e.Attempts; n > 0 {
		known = append(known, fmt.Sprintf("%d attempt%s sent", n, "s"[:min(1, n-1)]))
	}
	if known != nil {
		fmt.Fprintf(&b, " (%s)", strings.Join(known, ", "))
	}
	return b.String()
}

// rounded leaves a prediction the digits that mean something: 12.3456s is 12s, 1.23456s is 1.2s, and 12.3456ms is 12ms.
func rounded(d time.Duration) time.Duration {
	const s, ms, us = time.Second, time.Millisecond, time.Microsecond
	for _, unit := range []time.Duration{s, s / 10, ms, ms / 10, us, us / 10} {
		if d >= 10*unit {
			return d.Round(unit)
		}
	}
	return d
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Timeout reports whether the reason was a deadline, in the sense of net.Error.
func (e *Error) Timeout() bool { return errors.Is(e.Err, context.DeadlineExceeded) }

// newError makes the errors of a queue, which does not know the type Error.
func newError(key string, wait time.Duration, attempts int, reason error) error {
	e := &Error{Key: key, Wait: wait, Attempts: attempts, Err: reason}
	if held, ok := reason.(*queue.Held); ok {
		e.Reason, e.Err, e.later = held.By(), held.Unwrap(), wait-held.Predicted()
	}
	return e
}

// errDeadline is ErrWaitTooLong for a wait that exceeds the caller's deadline.
var errDeadline error = deadlineError{}

type deadlineError struct{}

func (deadlineError) Error() string { return "throttle: too little time before the caller's deadline" }

func (deadlineError) Is(target error) bool {
	return target == ErrWaitTooLong || target == context.DeadlineExceeded
}
