package quota

import (
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// This file is about advertised quotas that mirror a meter of the key which holds what the upstream holds. Then it is known when the
// upstream takes units, and when it gives them back, also between two answers:
//
//	level = remaining − held since the attempt was sent + come back since then + earned since then, at most the limit
//
// The limit cuts the level whenever it is reached, so the time from the attempt to its answer is gone through start by start. An
// answer that was quick counts what came back until it was there. Of a slow one, which comes when the work is done, it is taken to count
// what had come back when it was sent.
//
// Example: a bucket of 8,380 a minute, and calls that hold 2,000 and cost 419. An answer says that 500 remain. In the next 3 s
// the bucket earns 419, and a call ends that gives 1,581 back: the next one can go. Without what came back it would wait for 8 s more.
//
// # Others
//
// If a bucket loses more than the meter explains, others draw on it, and calls are spaced as those of any rolling quota. Nobody else
// is seen: calls go at once while a second one of the same size would find its units too, so that others can be seen.
//
// # Fixed windows
//
// What was held in an earlier window never comes back. The meter is asked to leave it out (Turn).

// An answer that takes less than quickTrip counts what came back until it was there. Otherwise what comes back meanwhile would be
// counted twice, and one call in 1,000 be throttled (TestSmallAdvertisedLimitIsUsed).
const quickTrip = time.Second

// countNow is the count of the quota's meter.
func (q *quota) countNow() (c count) {
	c.held, c.back = q.meter.Units()
	return c
}

// hold is what the next call needs.
func (q *quota) hold() float64 { return min(q.meter.Hold(), q.size) }

// earned is what has come back by itself since the level was known.
func (q *quota) earned(now time.Time) float64 {
	if age := now.Sub(q.at); q.rolling && age > 0 {
		return q.allows(age)
	}
	return 0
}

// levelAt is what remains at now. Those who have just started may arrive before what has come back since, so it is never
// above what they would leave of the whole.
func (q *quota) levelAt(now time.Time) float64 {
	c := q.countNow()
	level := q.level - (c.held - q.by.held) + (c.back - q.by.back) + q.earned(now)
	under := c.held - q.starts.countAt(limit.Latest(q.sentAt, now.Add(-quickTrip))).held
	return min(level, q.size-under)
}

// fold brings the level up to now.
func (q *quota) fold(now time.Time) { q.level, q.at, q.by = q.levelAt(now), now, q.countNow() }

// anchor takes the level from what remained at a moment, when the count was then.
func (q *quota) anchor(left float64, then count, sent, now time.Time) {
	q.level, q.at, q.by, q.then = left, sent, then, then
	for _, e := range q.starts[q.starts.upTo(sent):] {
		back := max(q.by.back, e.back)
		q.level = min(q.size, q.level+q.earned(e.at)+back-q.by.back) - (e.held - q.by.held)
		q.at, q.by = e.at, count{e.held, back}
	}
	q.fold(now)
}

// beginExact is begin where the meter is exact: so much was left when the window began.
func (q *quota) beginExact(left float64, began, now time.Time) {
	q.base = left
	q.meter.Turn(began)
	q.mirrored.base = q.starts.countAt(began)
	q.anchor(left, q.mirrored.base, began, now)
}
