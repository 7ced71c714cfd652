package upstream

import (
	"math"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// This file says when calls may start under a quota, and counts those that do. Two mechanisms do it, and a call
// must pass those that apply:
//
//   - what remains: unless we are alone and know the window, the advertised remaining units, less those in
//     flight, must cover the call (remaining, refill);
//   - spacing: starts are 1/pace apart (next), or, alone on a short window, at most size of them lie within any
//     window (log).

// ready returns the moment, not before at, from which on a call of n units may go. Example: alone on 100 per second,
// with round trips that vary by 30 ms, 100 starts between 0 and 0.1 s. The next call may go when the oldest start
// is older than the window and the spread, at 1.03 s: the upstream may have received that start at 0.03 s.
func (q *quota) ready(n int, at, now time.Time, spread time.Duration) time.Time {
	q.turn(now)
	at = limit.Latest(at, q.closedUntil)
	need := min(q.weight(n), q.size)
	alone := q.alone(now)
	if !alone || !q.sure() {
		switch {
		case q.remaining(now) >= need:
		case q.asks(now, spread):
			at = limit.Latest(at, q.due(spread))
		default:
			return limit.Latest(at, q.refill(need, now))
		}
	}
	if !q.own(now) {
		return limit.Latest(at, q.next)
	}
	if q.left <= 0 && !q.rolling && q.calls == 0 && now.Before(q.until) && q.sentInWindow(now) == 0 {
		return limit.Latest(at, q.until) // all was spent before we came
	}
	if !q.logs() {
		return limit.Latest(at, q.next)
	}
	sum := q.sum
	for i := 0; i < len(q.log) && sum+need > q.size; i++ {
		sum -= q.log[i].units
		at = limit.Latest(at, q.log[i].at.Add(q.window+spread))
	}
	return at
}

// refill is when need units may be there again: of a rolling quota when the rate has made them, but soon if no
// call is out whose answer could say; otherwise at the reset.
func (q *quota) refill(need float64, now time.Time) time.Time {
	switch {
	case q.rolling && q.calls == 0:
		return q.leftAt.Add(askAgain)
	case q.rolling && q.window > 0:
		lack := need - q.remaining(now)
		return now.Add(max(time.Millisecond, time.Duration(lack/q.size*float64(q.window))))
	case !q.until.IsZero():
		return q.until
	case q.calls > 0: // an answer will say sooner
		return now.Add(time.Second)
	}
	return q.leftAt.Add(max(q.window, time.Second))
}

// pace is the rate at which starts are spaced at now; +Inf: they are not. See quota for the law.
func (q *quota) pace(now time.Time, spread time.Duration) float64 {
	even := q.size / (q.window + spread + q.late()).Seconds() // +Inf while no window is known
	if q.own(now) {
		if q.logs() {
			return math.Inf(1)
		}
		return even
	}
	left := q.remaining(now)
	var h float64 // seconds to the reset
	switch {
	case q.alone(now): // what has not been spent shows that the window is shorter
		return even * (1 + max(left, 0)/q.size)
	case q.rolling && q.window > 0:
		h = max(1e-3, q.window.Seconds()*(1-left/q.size))
	case !q.until.IsZero():
		h = max(1e-3, q.until.Sub(now).Seconds())
	default:
		return even
	}
	r := left / h
	if q.Window > shortWindow { // advertised: no faster than that, whatever remaining and reset say
		r = min(r, q.size/q.window.Seconds())
	}
	return max(r, 2/h) // at the latest after half of the time
}

// take counts a start of n units at at, and moves the next one by their time at the pace. What nobody used may be
// caught up with only as far as credit goes.
func (q *quota) take(n int, at time.Time, spread time.Duration) {
	u := q.weight(n)
	if q.asks(at, spread) && q.remaining(at) < min(u, q.size) {
		q.asked = at
	}
	q.step = 0
	if r := q.pace(at, spread); !math.IsInf(r, 1) {
		q.step = time.Duration(min(u/r*1e9, float64(limit.MaxBelief)))
		q.next = limit.Latest(q.next, at.Add(-q.credit(u, at))).Add(q.step)
	}
	q.calls++
	q.units += u
	q.trim(at, spread)
	q.count(u, at)
}

// count notes that units have been sent.
func (q *quota) count(units float64, at time.Time) {
	if q.sent.add(units, at, q.span()); q.logs() {
		q.log = append(q.log, start{at, units})
		q.sum += units
	} else {
		q.log, q.sum = nil, 0
	}
}

// trim forgets the starts that are older than a window.
func (q *quota) trim(now time.Time, spread time.Duration) {
	for len(q.log) > 0 && !q.log[0].at.After(now.Add(-q.window-spread)) {
		q.sum -= q.log[0].units
		q.log = q.log[1:]
	}
	if len(q.log) == 0 {
		q.sum = 0
	}
}

// credit is how much of the time that nobody used may be caught up with: while nobody else is seen and only
// what remains bounds the calls, 1/16 of the window.
func (q *quota) credit(units float64, at time.Time) time.Duration {
	if q.sure() || at.Before(q.shared) && q.seen || q.sentInWindow(at)+units > q.size*3/4 {
		return q.late()
	}
	return q.window / 16
}

// undo takes back a start that was not used, at the moment that it was taken as of. It is not an answer: what others
// take, and what a call costs, is computed from answers.
func (q *quota) undo(n int, at time.Time) {
	u := q.weight(n)
	q.ended(n)
	q.answers -= u // it has none
	q.next = q.next.Add(-q.step)
	q.step = 0
	q.sent.add(-u, at, q.span())
	if q.asked.Equal(at) {
		q.asked = time.Time{}
	}
	for i := len(q.log) - 1; i >= 0; i-- {
		if q.log[i].at.Equal(at) {
			q.sum -= q.log[i].units
			q.log = append(q.log[:i], q.log[i+1:]...)
			return
		}
	}
}

// ended notes that a call of n units has its answer.
func (q *quota) ended(n int) {
	q.calls = max(0, q.calls-1)
	if q.units -= q.weight(n); q.calls == 0 || q.units < 0 {
		q.units = 0
	}
	q.answers += q.weight(n)
}

// after predicts when a call of n units starts that has ahead units before it: spaced at the pace, and not before
// the window in which they fit. Example: 20 remain of 100 per minute, and the reset is in 10 s. With 150 ahead a
// call of 1 lacks 131 units, which is two windows: it starts in the second one, in 70 s.
func (q *quota) after(from time.Time, ahead int64, n int, spread time.Duration) time.Time {
	m := limit.Latest(from, q.closedUntil)
	if r := q.pace(from, spread); !math.IsInf(r, 1) {
		m = limit.Latest(m, q.next).Add(time.Duration(min(float64(ahead)*q.weight(1)/r*1e9, float64(limit.MaxBelief))))
	}
	lack := float64(ahead)*q.weight(1) + q.weight(n) - q.remaining(from)
	if lack <= 0 || q.rolling {
		return m
	}
	windows := math.Ceil(lack/q.size) - 1 // more than the next one
	return limit.Latest(m, q.until.Add(time.Duration(min(windows*float64(q.window), float64(limit.MaxBelief)))))
}
