package queue

import "time"

// This file is the end of an attempt that says nothing new: nearly all attempts at an upstream without
// trouble are such. Without slots they take the lock once, in Arrive, and each 16th once more, because its round trip
// is measured.

// Quiet reports whether the attempt need not be reported if it is a success without a hint.
func (c *Call) Quiet() bool { return !c.order.sample && !c.entry.queue.up.Alert() }

// End ends a Quiet attempt.
func (c *Call) End() { c.stage = noAttempt }

// EndWell ends an attempt that is a success without a hint, if Report would change nothing but the round trip.
// Otherwise it does nothing, and the attempt is to be reported.
func (c *Call) EndWell() bool {
	if !c.Quiet() && !c.measure() {
		return false
	}
	c.stage = noAttempt
	return true
}

// measure notes the round trip of a success, if that is all there is to note.
func (c *Call) measure() bool {
	q := &c.entry.queue
	q.common.mu.Lock()
	defer q.common.mu.Unlock()
	if q.changesLocked(Success) {
		return false
	}
	now := time.Now()
	if !q.up.Measure(now.Sub(c.order.now)) {
		return false
	}
	q.timedLocked(c.order.now, now, true)
	return true
}
