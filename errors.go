package throttle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-throttle/throttle/internal/queue"
)

// Reasons why a call was ended on this side. They come wrapped in an [*Error];
// match them with errors.Is.
var (
	// ErrQueueFull: QueueOptions.MaxWaiting calls wait already.
	ErrQueueFull = queue.ErrFull
	// ErrWaitTooLong: the predicted wait is longer than QueueOptions.MaxWait, or ends too late
	// for the caller's deadline, that of http.Client.Timeout for one: a call must start so
	// early that its answer is expected before, by the round trips seen so far (in
	// Queue.Do and Group, by how long tasks took). It is looked at again when its turn
	// comes. Then the error matches context.DeadlineExceeded too.
	ErrWaitTooLong = queue.ErrTooLong
	// ErrPaused: the upstream has told everyone to wait, or has failed, for longer
	// than Retry.MaxPause, or the call has spent that at closed gates. While a probe
	// tries whether it is back, the others get this error too. Call again after
	// Error.Wait; that an upstream is back is only seen by calling it. The text says what
	// it answered last: "(429, 6 probes in 41s)". A 429 of a spent account, which no wait
	// cures, need not end like this: see hint.Hint.Final and hint.Parser.
	ErrPaused = queue.ErrPaused
	// ErrRetryBudget: the last attempt got no answer, and Retry.Budget has no retry
	// left. The error matches what the attempt failed with too.
	ErrRetryBudget = errors.New("throttle: the retry budget is spent")
)

// An Error says that this side, not the upstream, ended a call, and why. With
// Attempts at 0 the upstream has never seen the call.
//
//	var e *throttle.Error
//	switch {
//	case err == nil:                            // may still be a 429: it was the last
//	case errors.Is(err, throttle.ErrQueueFull): // shed load
//	case errors.As(err, &e) && e.Wait > 0:      // ask again after e.Wait
//	case errors.As(err, &e):                    // e.Err says why, and no wait is known: the ctx has ended, say
//	default:                                    // the network, or the upstream
//	}
type Error struct {
	Key      string        // the key of the call's line, as observers see it; "" for a bare Queue
	Wait     time.Duration // the predicted wait, where there was one; 0: none
	Attempts int           // attempts sent before
	Err      error         // the reason, for errors.Is: one of the sentinels, ctx.Err(), or a limiter's own error
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("throttle: call ")
	if e.Key != "" {
		fmt.Fprintf(&b, "to %q ", e.Key)
	}
	b.WriteString("ended on this side")
	if e.Wait > 0 {
		fmt.Fprintf(&b, ", predicted wait %v", e.Wait)
	}
	if e.Attempts > 0 {
		fmt.Fprintf(&b, ", attempts sent %d", e.Attempts)
	}
	if e.Err != nil { // one that somebody made by hand may have none
		b.WriteString(": ")
		b.WriteString(strings.TrimPrefix(e.Err.Error(), "throttle: "))
	}
	return b.String()
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Timeout reports whether a deadline was the reason, as net.Error has it.
func (e *Error) Timeout() bool { return errors.Is(e.Err, context.DeadlineExceeded) }

// newError is how a queue makes its errors.
func newError(key string, wait time.Duration, attempts int, reason error) error {
	return &Error{Key: key, Wait: wait, Attempts: attempts, Err: reason}
}
