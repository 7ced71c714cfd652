package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-throttle/throttle/internal/upstream"
)

// This file makes the errors of calls that are ended on this side.

// errorOf makes the error of a call of this queue that is ended because of reason.
func (q *Queue) errorOf(attempts int, wait time.Duration, reason error) error {
	return q.common.Error(q.key, wait, attempts, reason)
}

// endOf is why ctx has ended: its error, with its cause if that is another one. The cause of a wait that order.bound
// has ended stands alone: the caller's own ctx goes on.
func endOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	var late tooLate
	switch {
	case cause == err:
		return err
	case errors.As(cause, &late):
		return late.error
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// tooLate is the cause of a ctx that order.bound has ended.
type tooLate struct{ error }

// fail is the error of w, which ends because of err.
func (q *Queue) fail(w *waiter, err error) error {
	return q.errorOf(int(w.tries), 0, err)
}

// gaveUpLocked is the error of w, whose ctx has ended because of err. If w waits, and nothing but in-flight slots
// holds the line up, it names them: a slot does not come back by itself, as units do.
//
// An example: MaxInFlight is 2, and a program forgets to close two bodies. The third call's ctx ends
// after 30 s, and the error says "waiting for an in-flight slot: 2 of 2 calls in flight (bodies not
// closed?)".
func (q *Queue) gaveUpLocked(w *waiter, err error, now time.Time) error {
	if w.state == waiting {
		if slots := q.lackedLocked(now); slots != "" {
			err = fmt.Errorf("%w, waiting for an in-flight slot: %s", err, slots)
		}
	}
	if w.state == waiting {
		by, _ := q.heldLocked(w.need(w.holds()), now)
		if errors.Is(err, q.common.Errors.TooLong) {
			return q.lateErrorLocked(w, err, by, now)
		}
		err = &Held{err, by, 0}
	}
	return q.fail(w, err)
}

// A pausedError is Errors.Paused with what the upstream has answered: to the probes, or, where none went
// yet, to the call that closed the gate.
type pausedError struct {
	reason error
	status uint16 // 0: no answer
	probes uint32
	since  time.Duration // the gate was closed
}

// pausedLocked returns Errors.Paused as things stand at now.
func (q *Queue) pausedLocked(now time.Time) error {
	c := q.up.Closing(now)
	if c.Cause == upstream.Open || c.Cause == upstream.ForPause {
		return q.common.Errors.Paused
	}
	return &pausedError{reason: q.common.Errors.Paused, status: c.Status, probes: c.Probes, since: c.Age}
}

// Error adds to the reason, in parentheses, what is known: "(429, 6 probes in 41s)".
// Without it a program that waits for a broken upstream would say only that it waits. With probes, the
// time is since the gate was closed; without, the one answer is as old as that.
func (e *pausedError) Error() string {
	answer, since := "no answer", e.since.Round(time.Second)
	if e.status != 0 {
		answer = strconv.Itoa(int(e.status))
	}
	switch e.probes {
	case 0:
		return fmt.Sprintf("%v (%s %v ago)", e.reason, answer, since)
	case 1:
		return fmt.Sprintf("%v (%s, 1 probe in %v)", e.reason, answer, since)
	}
	return fmt.Sprintf("%v (%s, %d probes in %v)", e.reason, answer, e.probes, since)
}

// Unwrap returns Errors.Paused.
func (e *pausedError) Unwrap() error { return e.reason }
