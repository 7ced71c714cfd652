package upstream

import (
	"math"
	"sort"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// This file says when calls may start under a quota, and counts those that do. What remains, less what is in
// flight, must cover the call (remaining, refill), and starts are 1/pace apart (next). Alone on a short window, at
// most size of them lie within any window instead (log).

// ready returns the moment, not before at, from which on a call of n units may go. If it is not spaced, only what
// remains holds it back.
func (q *quota) ready(n int, at, now time.Time, spread time.Duration, spaced bool) time.Time {
	end, ends := q.lapses()
	if ends && !now.Before(end) {
		return at
	}
	held := q.heldUntil(n, at, now, spread, spaced)
	if ends {
		held = limit.Earliest(held, end)
	}
	return limit.Latest(at, held)
}

// heldUntil is ready of a quota that does not lapse. Example: alone on 100 per second, with round trips that vary by
// 30 ms, 100 starts between 0 and 0.1 s. The next call may go when the oldest start is older than the window and the
// spread, at 1.03 s: the upstream may have received that start at 0.03 s.
func (q *quota) heldUntil(n int, at, now time.Time, spread time.Duration, spaced bool) time.Time {
	q.turn(now)
	at = limit.Latest(at, q.closedUntil)
	need := min(q.weight(n), q.size)
	switch {
	case spaced && q.aloneShort(now):
		return q.logReady(need, at, now, spread)
	case q.remaining(now) < need:
		return limit.Latest(at, q.refill(need, now))
	case spaced:
		return limit.Latest(at, q.next)
	}
	return at
}

// logReady is when own starts leave place for need units in a short window.
func (q *quota) logReady(need float64, at, now time.Time, spread time.Duration) time.Time {
	i, units := q.startsAfter(now.Add(-q.window - spread))
	if units == 0 && q.left <= 0 && q.calls == 0 && now.Before(q.until) {
		return limit.Latest(at, q.until) // all was spent before we came
	}
	if over := units + need - q.size; over > 0 && i < len(q.log) {
		last := q.log[i].total - q.log[i].units + over // when those up to that have left the window, it may go
		j := sort.Search(len(q.log)-1, func(j int) bool { return q.log[j].total >= last })
		at = limit.Latest(at, q.log[j].at.Add(q.window+spread))
	}
	return at
}

// startsAfter returns the first own start after a moment, and the units of all that are.
func (q *quota) startsAfter(t time.Time) (first int, units float64) {
	first = sort.Search(len(q.log), func(i int) bool { return q.log[i].at.After(t) })
	if first < len(q.log) {
		units = q.log[len(q.log)-1].total - q.log[first].total + q.log[first].units
	}
	return first, units
}

// unitTime is the time in which a rolling quota gives one unit back; 0: its window is not known.
func (q *quota) unitTime() time.Duration { return time.Duration(float64(q.window) / q.size) }

// refill is when need units may be there again: of a rolling quota when the rate has made them, but soon if no
// call is out whose answer could say; otherwise at the reset.
func (q *quota) refill(need float64, now time.Time) time.Time {
	switch {
	case q.rolling && q.calls == 0:
		return q.leftAt.Add(max(q.pause, q.unitTime()))
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
	left, h := q.remaining(now), q.until.Sub(now).Seconds()
	switch {
	case q.aloneShort(now):
		return math.Inf(1)
	case q.long():
		return q.use(left, max(1e-3, h))
	case q.rolling && q.alone(now) && q.sure(now):
		return q.even(spread)
	case q.rolling && q.alone(now): // what has not been spent shows that the window is shorter
		return q.even(spread) * (1 + max(left, 0)/q.size)
	case q.rolling && q.window > 0:
		h = q.window.Seconds() * (1 - left/q.size)
	case q.until.IsZero() || q.Remaining < 0:
		return q.even(spread)
	case !q.sure(now): // the reset is rounded up, by half a grain on average
		h = max(h/2, h-resetGrain.Seconds()/2)
	}
	h = max(1e-3, h)
	r := left / h
	if q.Window > shortWindow { // advertised: no faster than that, whatever remaining and reset say
		r = min(r, q.size/q.window.Seconds())
	}
	return max(r, 2/h) // at the latest after half of the time
}

// even is the rate at which a window is used up evenly; +Inf while none is known.
func (q *quota) even(spread time.Duration) float64 {
	return q.size / (q.window + spread + q.late()).Seconds()
}

// use is the rate at which a long window is used that has so much left, h seconds before its reset; +Inf: at once.
func (q *quota) use(left, h float64) float64 {
	floor := reserve * q.size * min(1, h/q.window.Seconds())
	switch {
	case q.factor > 1 && left >= atOnce*q.size:
		return math.Inf(1)
	case left > floor:
		return (floor + q.factor*(left-floor)) / h
	}
	return max(left, 2) / h
}

// take counts a start of n units at at, and moves the next one by their time at the pace. Of a late timer no more
// may be caught up with than late says.
func (q *quota) take(n int, at time.Time, spread time.Duration, spaced bool) {
	u := q.weight(n)
	q.step = 0
	if r := q.pace(at, spread); spaced && !math.IsInf(r, 1) {
		q.step = time.Duration(min(u/r*1e9, float64(limit.MaxBelief)))
		q.next = limit.Latest(q.next, at.Add(-q.late())).Add(q.step)
	}
	q.calls++
	q.units += u
	q.note(u, at)
}

// note remembers a start, and forgets those that are two windows old.
func (q *quota) note(units float64, at time.Time) {
	last := len(q.log) - 1
	if last >= 0 && at.Sub(q.log[last].at) < q.window/logGrain {
		q.log[last] = start{limit.Latest(at, q.log[last].at), q.log[last].units + units, q.log[last].total + units}
		return
	}
	total := units
	if last >= 0 {
		total += q.log[last].total
	}
	old, _ := q.startsAfter(at.Add(-2 * q.window))
	q.log = append(q.log[old:], start{at, units, total})
}

// undo takes back a start that was not used, at the moment that it was taken as of.
func (q *quota) undo(n int, at time.Time) {
	q.ended(n)
	q.answered-- // it has no answer
	q.next = q.next.Add(-q.step)
	q.step = 0
	for i := len(q.log) - 1; i >= 0; i-- {
		q.log[i].total -= q.weight(n)
		if i == 0 || q.log[i-1].at.Before(at) {
			q.log[i].units -= q.weight(n)
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
	q.answered++
}

// after predicts when a call of n units starts that has ahead units before it: spaced at the pace, and not before
// the window in which they fit. Example: 20 remain of 100 per minute, and the reset is in 10 s. With 150 ahead a
// call of 1 lacks 131 units, which is two windows: it starts in the second one, in 70 s.
func (q *quota) after(from time.Time, ahead int64, n int, spread time.Duration) time.Time {
	if q.lapsed(from) {
		return from
	}
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
