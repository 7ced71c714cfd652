package queue

import (
	"context"
	"errors"
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
	return "throttle: the wait would outlast the caller's deadline"
}

func (deadlineError) Is(target error) bool {
	return target == ErrTooLong || target == context.DeadlineExceeded
}
