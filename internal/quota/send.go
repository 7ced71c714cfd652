package quota

import (
	"cmp"
	"math"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// This file says when calls may start under a quota, and counts those that do. What remains, less what is in
// flight, must cover the call (remaining, refill), and starts are 1/pace apart (next). Alone on a short window, at
// most size of them lie within a window instead (own).

// ready returns the moment, not before at, from which on a call of n units may go. If it is not spaced, only what
// remains holds it back.
func (q *quota) ready(n int, at, now time.Time, spaced bool) time.Time {
	if q.lapsed(now) {
		return at
	}
	q.turn(now)
	held, need := q.closedUntil, q.needs(n)
	if q.exact() {
		q.fold(now)
	}
	switch {
	case spaced && q.aloneShort(now):
		if q.left < 1 && q.units == 0 && q.starts.since(now.Add(-q.window-q.spread)) == 0 { // all was spent before we came
			held = limit.Latest(held, q.until)
		}
		held = limit.Latest(held, q.room(need, now))
	case q.remaining(now) < need:
		held = limit.Latest(held, q.refill(need, now))
	case spaced:
		held = limit.Latest(held, q.next)
	}
	if !q.ends.IsZero() && !q.refusals {
		held = limit.Earliest(held, limit.Latest(q.ends, q.closedUntil))
	}
	return limit.Latest(at, held)
}

// needs is what must remain for a call of n units.
func (q *quota) needs(n int) float64 {
	if q.exact() {
		return q.hold()
	}
	return min(q.charge(n), q.size)
}

// room is when own starts of one window leave need units of it; zero: now.
func (q *quota) room(need float64, now time.Time) (at time.Time) {
	since := now.Add(-q.window - q.spread)
	if over := q.starts.since(since) + need - q.size - q.extra(now); over > 0 {
		at = q.starts.leave(over, since).Add(q.window + q.spread)
	}
	return at
}

// refill is when need units may be there again: of a rolling quota when the rate has made them, but soon if no
// call is out whose answer could say; otherwise at the reset. One who is alone waits for a unit more, because what remains
// is rounded down, and for what calls have taken whose answers said nothing of it. Example: 0 of 10 a second remain, which may be
// 0.1 more or 0.9. The next call goes after 0.2 s.
func (q *quota) refill(need float64, now time.Time) time.Time {
	switch {
	case q.mayAsk(now):
		return q.back
	case q.ownOnly():
		return q.room(need, now)
	case q.rolling && q.units == 0 && q.alone(now):
		return q.sentAt.Add(q.spread + time.Duration((need-q.left+q.silent+1)/q.size*float64(q.window)))
	case q.rolling && q.units == 0 && !q.exact(): // the reset may be that of one unit
		return q.leftAt.Add(max(q.pause, min(time.Duration(float64(q.window)/q.size), cmp.Or(max(0, q.Reset), q.window))))
	case q.rolling && q.window > 0:
		lack := need - q.remaining(now)
		return now.Add(max(time.Millisecond, time.Duration(lack/q.size*float64(q.window))))
	case q.rolling: // a call may be out whose answer will say
		return q.starts[len(q.starts)-1].at.Add(max(q.pause, time.Second))
	case !q.until.IsZero():
		return q.until
	}
	return q.leftAt.Add(max(q.window, time.Second))
}

// pace is the rate at which starts are spaced at now; +Inf: they are not. See quota for the law.
func (q *quota) pace(now time.Time) float64 {
	if q.aloneShort(now) {
		return math.Inf(1)
	}
	return q.rate(q.remaining(now), q.until.Sub(now).Seconds(), now)
}

// rate is the pace if so much is left, h seconds before the reset.
func (q *quota) rate(left, h float64, now time.Time) float64 {
	even := (q.size + q.extra(now)) / (q.window + q.spread + q.late()).Seconds()
	switch {
	case q.exact() && q.rolling && !now.Before(q.shared) && left >= q.hold()+max(q.hold(), spare*q.size): // the meter holds calls back
		return math.Inf(1)
	case q.long():
		return q.use(left, max(1e-3, h))
	case q.window > shortWindow && q.factor > 1 && left >= atOnce*q.size && (q.rolling && q.guessed || q.ownOnly()):
		return math.Inf(1)
	case q.ownOnly() && q.window > shortWindow && q.factor > 1: // what is left lasts until the first unit is back
		since := now.Add(-q.window - q.spread)
		return min(even, max(left, 2*q.charge(1))/max(1e-3, q.starts.leave(1e-9, since).Sub(since).Seconds()))
	case q.rolling && q.alone(now) && !q.sure(now): // what has not been spent shows that the window is shorter
		return even * (1 + max(left, 0)/q.size)
	case q.rolling && q.alone(now), !q.rolling && (q.until.IsZero() || q.Remaining < 0), q.window == 0:
		return even
	case q.rolling:
		h = q.window.Seconds() * (1 - left/q.size)
	case !q.sure(now): // the reset is rounded up, by half a grain on average
		h = max(h/2, h-resetGrain.Seconds()/2)
	}
	h = max(1e-3, h)
	return max(left, 2*q.charge(1)) / h // at the latest after half of the time
}

// late is how much of the time that a late timer lost may be caught up with. Example: starts are 1 ms apart in a window of
// 1 s, and the timer comes 3 ms late: the next three go at once, and nothing of the window is lost.
func (q *quota) late() time.Duration { return min(q.window/100, 2*limit.MaxLate) }

// use is the rate at which a long window is used that has so much left, h seconds before its reset; +Inf: at once.
func (q *quota) use(left, h float64) float64 {
	floor := reserve * q.size * min(1, h/q.window.Seconds())
	switch {
	case q.factor > 1 && left >= atOnce*q.size:
		return math.Inf(1)
	case left > floor:
		return (floor + q.factor*(left-floor)) / h
	}
	return max(left, 2*q.charge(1)) / h
}

// mayAsk reports whether a call may ask, now or from back on, although not enough is left.
func (q *quota) mayAsk(now time.Time) bool { return !q.back.IsZero() && q.asked.IsZero() }

// take counts a start of n units at at, and moves the next one by their time at the pace. The pace is that of the moment:
// as a window runs out or others take from it, each step is a little longer or shorter than the one before.
func (q *quota) take(n int, at time.Time, spaced bool) {
	u := q.charge(n)
	if q.step = 0; q.mayAsk(at) && !at.Before(q.back) && q.remaining(at) < min(u, q.size) {
		q.asked, spaced = at, false
	}
	r := q.pace(at)
	if q.exact() { // which has counted this call
		r = q.rate(q.remaining(at)+q.meter.Hold(), q.until.Sub(at).Seconds(), at)
	}
	if spaced && !math.IsInf(r, 1) {
		q.step = seconds(u / r)
		if q.far(at) { // perhaps it has ended; what was left for late calls is not used to see that
			least := farAsk
			if q.base > q.size/2 {
				least = askAgain
			}
			q.step = min(q.step, max(least, at.Sub(q.began)))
		}
		q.next = limit.Latest(q.next, at.Add(-q.late())).Add(q.step)
	}
	q.units += q.ours(n)
	q.note(u, at)
}

// undo takes back a start that was not used: its units, its place in the log, and the step by which it moved the next
// one. If another call has started since, that one's place is as late as it was.
func (q *quota) undo(n int, sent time.Time) {
	q.ended(n, sent)
	q.answered -= q.ours(n) // it has no answer
	q.starts[len(q.starts)-1].total -= q.charge(n)
	q.next, q.step = q.next.Add(-q.step), 0
}

// ended notes that a call of n units has its answer. From then on what is advertised counts it, or does not, but it is
// in flight no more. If the call asked and its answer does not say what is left, the next one asks.
func (q *quota) ended(n int, sent time.Time) {
	if !sent.Before(q.asked) {
		q.asked = time.Time{}
	}
	q.units = max(0, q.units-q.ours(n))
	q.answered += q.ours(n)
}

// after predicts when a call of n units starts that has ahead units before it, if nobody else comes. Example: 20 remain
// of 100 per minute, and the reset is in 10 s. With 150 ahead a call of 1 lacks 131 units: 31 more than one window. It
// starts in the second one, 70 s from now and as long after that as 30 of 100 take.
func (q *quota) after(from time.Time, ahead int64, n int) time.Time {
	if q.lapsed(from) {
		return from
	}
	start, period, base := limit.Latest(from, q.closedUntil), q.window, q.until
	own, before := min(q.charge(n), q.size), float64(ahead)*q.charge(1)
	left, alone := max(0, q.remaining(from)), q.aloneShort(from)
	switch {
	case alone: // windows of own starts, each used at once
		period += q.spread
		since := from.Add(-period)
		left, base = q.size-q.starts.since(since), start
		if over := math.Mod(max(0, before+own-left-1), q.size) + 1; over <= q.size-left {
			base = q.starts.leave(over, since)
		}
		base = base.Add(period)
	case q.rolling || q.until.IsZero():
		// What little remains of a rolling quota now makes a pace that does not last: units come back.
		even := q.size / q.window.Seconds()
		if math.IsInf(q.pace(from), 1) {
			before = max(0, before+own-max(own, left-atOnce*q.size))
		}
		return limit.Latest(start, q.next).Add(duration(before / min(max(q.pace(from), even/2), 2*even)))
	}
	over := before + own - left
	if over > 0 && (!q.back.IsZero() || !q.asked.IsZero()) {
		return limit.Latest(start, q.back) // an answer will say
	}
	if over > 0 {
		full := math.Ceil(over/q.size) - 1
		start, before, left = base.Add(duration(full*period.Seconds())), over-full*q.size-own, q.size
	} else {
		period = q.until.Sub(start)
	}
	start = limit.Latest(from, limit.Latest(q.next, start))
	if !alone {
		start = start.Add(q.within(before, left, from, period))
	}
	return start
}

// duration is a time of so many seconds, at most limit.Forever.
func duration(s float64) time.Duration { return time.Duration(min(s*1e9, float64(limit.Forever))) }

// seconds is a time that is given in seconds, as far as it is believed.
func seconds(s float64) time.Duration { return time.Duration(min(s*1e9, float64(limit.MaxBelief))) }

// within predicts how long after the first of k units the one behind them starts, of what is left in a fixed window that
// ends in h: it makes their steps, at most 256 of them, each at the pace in its middle.
func (q *quota) within(k, left float64, from time.Time, h time.Duration) time.Duration {
	t, unit := 0.0, q.charge(1)
	for step := max(unit, k/256); k > 0; k, left = k-step, left-step {
		t += min(step, k) / q.rate(left-(step-unit)/2, h.Seconds()-t, from)
	}
	return seconds(t)
}

// note remembers a start, and forgets those that are two windows old. It is joined with the last entry, as of the latest,
// if the entry before that is less than logGrain of a window old: were the last one's own age compared, a dense row of
// starts would never end it. 2,000 calls a second take 1 ms longer than they might, and no log is longer than 4,096 entries.
func (q *quota) note(units float64, at time.Time) {
	s := q.starts
	last := &s[len(s)-1]
	next := start{at: at, total: last.total + units}
	if q.exact() {
		next.count = q.countNow()
	}
	if k := len(s) - 2; k >= 0 && at.Sub(s[k].at) < q.window/logGrain {
		next.at = limit.Latest(at, last.at)
		*last = next
		return
	}
	q.starts = append(s[s.upTo(at.Add(-2*q.window))-1:], next)
}
