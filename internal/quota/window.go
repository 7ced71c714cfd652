package quota

import (
	"time"
)

// This file says what remains of the window of a quota, and turns it.

// remaining is what may be sent at now without an answer to those in flight.
func (q *quota) remaining(now time.Time) float64 {
	if q.exact() {
		return q.levelAt(now) + q.extra(now)
	}
	left := q.left - q.silent
	switch {
	case q.ownOnly():
		return q.size + q.extra(now) - q.starts.since(now.Add(-q.window-q.spread))
	case !q.rolling:
		left -= min(q.others*now.Sub(q.leftAt).Seconds(), q.taken) / 2
	case q.window > 0:
		at := q.leftAt
		if q.meter != nil {
			at = q.sentAt // starts since then are counted too
		}
		left = min(left+q.allows(now.Sub(at)), q.size)
	}
	if q.meter != nil { // what is held by calls that started before has been subtracted by the upstream
		return left + q.extra(now) - q.starts.since(q.sentAt)
	}
	return left + q.extra(now) - q.units*q.perUnit
}

// turn begins a new window when this one has ended.
func (q *quota) turn(now time.Time) {
	if q.rolling || q.until.IsZero() || now.Before(q.until) {
		return
	}
	if q.guessed { // what is back nobody knows: one call asks
		q.until, q.back = now.Add(q.window), now
		return
	}
	began, until := q.until, q.until.Add(q.window)
	if !now.Before(until) { // nobody was there for a whole window
		began, until = now, now.Add(q.window)
	}
	q.begin(began, until, q.size, now)
	q.fresh = true
}

// begin begins a window that has so much left at now. Those in flight may count for either window.
func (q *quota) begin(began, until time.Time, left float64, now time.Time) {
	q.began, q.until, q.left, q.leftAt, q.sentAt = began, until, left, now, began
	q.base, q.silent, q.taken, q.answered = left-q.units*q.perUnit, 0, 0, 0
	q.back, q.held = time.Time{}, false
	if q.exact() {
		q.beginExact(left, began, now)
	}
}

// spent returns until when nothing is left of the quota; zero if something is.
func (q *quota) spent(now time.Time) time.Time {
	if q.lapsed(now) {
		return time.Time{}
	}
	q.turn(now)
	if q.closedUntil.After(now) {
		return q.closedUntil
	}
	switch {
	case q.rolling || q.aloneShort(now) || q.ownOnly() || q.left+q.extra(now)-q.silent >= 1, !q.asked.IsZero():
		return time.Time{}
	case q.back.After(now):
		return q.back
	case !q.back.IsZero():
		return time.Time{}
	}
	return q.until
}

// early reports whether it is too early for a new window, so that units that are back show a rolling quota. If no end is
// advertised, a new window shows by most of it being back.
func (q *quota) early(left float64, now time.Time) bool {
	if q.guessed {
		return left < atOnce*q.size && now.Sub(q.leftAt) < q.window/8
	}
	return now.Before(q.until.Add(-resetGrain))
}
