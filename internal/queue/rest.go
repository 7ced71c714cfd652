package queue

import (
	"context"
	"time"
)

// This file is where a call rests between two attempts: out of the line, without a slot, for its own backoff. It rests in
// its own goroutine, on a timer of its own, until that fires, its ctx ends, or Shutdown is over for those that wait.

// BackOff gives back what the retry that is planned does not need, calls meanwhile, which does the same, and sleeps for the
// call's own delay.
func (c *Call) BackOff(ctx context.Context, meanwhile func()) error {
	q := &c.entry.queue
	resting := &q.trouble().resting
	resting.Add(1)
	defer resting.Add(-1)
	c.freeSlot()
	meanwhile()
	if c.delay <= 0 {
		return nil
	}
	stop, end := q.rest()
	defer end()
	timer := time.NewTimer(c.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-stop:
		return q.errorOf(c.order.attempts, 0, q.common.Errors.Closed)
	case <-ctx.Done():
		return q.errorOf(c.order.attempts, 0, endOf(ctx))
	}
}

// rest returns what is closed when a call that rests before its retry may rest no longer, and what ends the watch
// on that. The channel lives as long as the rest does.
func (q *Queue) rest() (stop chan struct{}, end func()) {
	r := q.common
	r.mu.Lock()
	defer r.mu.Unlock()
	stop = make(chan struct{})
	if r.overLocked() {
		q.trouble().refused++
		close(stop)
		return stop, func() {}
	}
	if r.resters == nil {
		r.resters = map[chan struct{}]*Queue{}
	}
	r.resters[stop] = q
	return stop, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.resters, stop)
	}
}
