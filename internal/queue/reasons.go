package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-throttle/throttle/internal/gate"
)

// Reasons why a call is ended on this side. The root exports them: ErrQueueFull,
// ErrWaitTooLong, ErrPaused.
var (
	ErrFull    = errors.New("throttle: the queue is full")
	ErrTooLong = errors.New("throttle: the wait would be too long")
	ErrPaused  = errors.New("throttle: calls to this upstream are paused")
)

// errDeadline is ErrTooLong where it was the caller's deadline.
var errDeadline error = deadlineError{}

type deadlineError struct{}

func (deadlineError) Error() string {
	return "throttle: too little time before the caller's deadline"
}

func (deadlineError) Is(target error) bool {
	return target == ErrTooLong || target == context.DeadlineExceeded
}

// A pausedError is ErrPaused with what the upstream has answered: to the probes, or,
// where none went yet, to the call that closed the gate.
type pausedError struct {
	status uint16 // 0: no answer
	probes uint32
	since  time.Duration // the gate was closed
}

// paused returns ErrPaused as things stand at now.
func (q *Queue) paused(now time.Time) error {
	g := &q.Gate
	if g.Trouble == nil || g.Cause == gate.Open || g.Cause == gate.Paused {
		return ErrPaused
	}
	return &pausedError{g.Status, g.Probes, max(0, now.Sub(g.Since))}
}

func (e *pausedError) Error() string {
	answer, since := "no answer", e.since.Round(time.Second)
	if e.status != 0 {
		answer = strconv.Itoa(int(e.status))
	}
	switch e.probes {
	case 0:
		return fmt.Sprintf("%v (%s %v ago)", ErrPaused, answer, since)
	case 1:
		return fmt.Sprintf("%v (%s, 1 probe in %v)", ErrPaused, answer, since)
	}
	return fmt.Sprintf("%v (%s, %d probes in %v)", ErrPaused, answer, e.probes, since)
}

func (e *pausedError) Unwrap() error { return ErrPaused }
