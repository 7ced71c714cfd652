package quota

import (
	"cmp"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/limit"
)

// This file is what a quota makes of an answer.

// An Answer is what an attempt has shown.
type Answer struct {
	Quotas                        []hint.Quota  // that it advertises
	RetryAfter                    time.Duration // 0: it names no time
	Served, Throttled, Overloaded bool          // by its outcome
	Dated                         bool          // it has a Date: the upstream's clock is known

	// Its start.
	Counted bool  // by Take
	Scope   uint8 // that it started in
	Cost    int   // units
	Sent    time.Time

	Trip         time.Duration // 0: not measured
	Host, Path   string        // its route
	InFlight     int           // attempts under way, this one included
	Known        time.Duration // how long ago the first call of the key came
	All, Well    float64       // attempts that the key has sent, and those that were served: they may all have been under a quota that is new
	WindowFactor float64       // how much faster than evenly long windows are used

	// Counter returns the meter of the key that an advertised quota mirrors; nil: it mirrors none. Nil: there are no meters.
	Counter func(*hint.Quota) Counter
}

// observe takes in what an answer has advertised.
func (q *quota) observe(t hint.Quota, a *Answer, now time.Time) {
	first := q.heard.IsZero()
	q.lapses = q.lapsesBy(&t, now)
	if q.lapsed(now) { // it begins anew
		told := q.told
		if now.After(q.heard.Add(q.keep())) {
			told = 0
		}
		*q = quota{lapses: q.lapses, told: told, servedUnsaid: q.servedUnsaid, since: q.since, Quota: q.Quota, named: q.named, factor: q.factor, units: q.units, perUnit: q.perUnit, spread: q.spread}
		first = true
	}
	q.meet(&t, a.Counter)
	if q.refusals = a.Throttled && (first || q.refusals); q.refusals {
		q.refused(&t, a.RetryAfter, now)
	}
	q.turn(now)
	q.doubt(&t, now)
	q.measure(&t, first, now)
	if served := a.All - float64(a.InFlight); first && q.since.IsZero() {
		q.outvotable = served >= outvoted && !q.refusals
		q.servedUnsaid = served - q.allows(a.Known)
	}
	q.outvotable = q.outvotable && first || q.servedUnsaid > 2*q.size // much more was served than it allows
	q.servedUnsaid, q.since, q.refusalWait = 0, now, a.RetryAfter
	left := q.leftBy(&t, first)
	until := q.end(&t, now)
	truth := !q.back.IsZero() && !a.Sent.Before(q.back)
	q.Quota = t
	switch {
	case first:
		q.first(left, until, now, a.All)
	case q.exact():
		q.updateExact(left, until, a.Sent, now)
	default:
		q.detectOthers(left, a.Sent, now)
		q.update(left, until, truth, a.Sent, now)
	}
	q.heardBack(truth, a, now)
	if q.heard, q.ends = now, (time.Time{}); q.refusals {
		q.ends = now.Add(q.keep())
	}
	switch {
	case left >= 1 || q.pause == 0:
		q.pause = max(askAgain, q.pause/2)
	case q.units <= 1 && q.window == 0: // one call may take long
		q.pause = min(2*q.pause, limit.MaxBelief)
	}
}

// missing takes in an answer of its routes that does not advertise it. What it has counted, a call of n units, is gone
// nevertheless. A single answer that contradicts those around it is outvoted by the next. Other answers cannot repeat
// what only throttled ones advertise, so that lapses by time alone.
func (q *quota) missing(counted bool, n int, sent, now time.Time) {
	q.turn(now)
	if counted && !sent.Before(q.sentAt) && !sent.Before(q.began) {
		q.silent += q.charge(n)
	}
	q.servedUnsaid = max(0, q.servedUnsaid-q.allows(now.Sub(q.since))) + q.charge(n)
	if q.since = now; q.ends.IsZero() {
		q.ends = q.heard.Add(q.keep())
	}
	if q.outvotable && sent.After(q.heard) {
		q.ends = now
	}
	if q.told == 1 && q.refusals && !sent.Before(q.again) {
		if q.row++; q.row >= outvoted {
			q.outvotable, q.ends, q.closedUntil = true, now, time.Time{}
		}
	}
}

// refused counts throttled answers that advertise the quota. wait is their Retry-After.
func (q *quota) refused(t *hint.Quota, wait time.Duration, now time.Time) {
	q.told, q.row = min(q.told+1, 2), 0
	if q.again.IsZero() {
		q.again = now.Add(min(cmp.Or(wait, max(t.Reset, 0), t.Window), limit.MaxBelief))
	}
}

// doubt finds out whether resets are of a clock that is wrong. Of a long window of known length they are if one is past, or
// further away than the window is long, until one agrees with what has been seen; otherwise until one is within farReset.
func (q *quota) doubt(t *hint.Quota, now time.Time) {
	if t.Window <= shortWindow {
		q.clockWrong = q.clockWrong && (t.Reset < 0 || t.Reset > farReset)
		return
	}
	slack := resetGrain + t.Window/64
	if t.Reset >= 0 && !q.until.IsZero() && q.until.Sub(now.Add(t.Reset)).Abs() <= slack {
		q.clockWrong = false
	} else if t.Reset == 0 || t.Reset > t.Window+slack {
		q.clockWrong = true
	}
}

// end is until when an answer says that the window lasts. If it does not, or its clock is wrong, a long window lasts for
// one window from the first answer of it.
func (q *quota) end(t *hint.Quota, now time.Time) time.Time {
	switch {
	case !q.believes(t.Reset) && t.Window <= 0 && t.Rate <= 0:
		q.rolling = true // a month, or the upstream's clock is wrong: units are back when an answer says so
	case !q.rolling && t.Window > shortWindow && (t.Reset < 0 || q.clockWrong):
		if t.Remaining >= 0 && (q.until.IsZero() || q.fresh || q.clockWrong && !q.guessed) {
			q.guessed, q.until = true, time.Time{}
			return now.Add(q.window)
		}
	case t.Reset >= 0:
		if q.guessed {
			q.guessed, q.until = false, time.Time{}
		}
		return now.Add(max(minWindow, min(t.Reset, limit.MaxBelief)))
	}
	return time.Time{}
}

// comeBack takes in a Retry-After of an answer that leaves nothing until a later reset: one call asks then, unless one has
// in this window and there was nothing.
func (q *quota) comeBack(wait time.Duration, now time.Time) {
	if at := now.Add(min(wait, limit.MaxBelief)); wait > 0 && q.left < 1 && !q.rolling && !q.held && q.asked.IsZero() && q.until.After(at) {
		q.back, q.closedUntil = at, limit.Earliest(q.closedUntil, at)
	}
}

// heardBack ends the asking by an answer to a call that was sent when one might ask: truth. If nothing is left until an end
// that may be of a wrong clock, another call asks later.
func (q *quota) heardBack(truth bool, a *Answer, now time.Time) {
	switch {
	case q.rolling, q.left-q.silent >= 1:
		q.back, q.held = time.Time{}, false
		return
	case truth:
		q.back, q.held = time.Time{}, true
	}
	if q.back.IsZero() && q.far(now) && !a.Dated {
		if q.pause = max(q.pause, farAsk); truth && a.Throttled {
			q.pause = min(2*q.pause, limit.MaxBelief)
		}
		q.back = now.Add(q.pause)
	}
}

// measure takes in the size and the window. Without a limit the size is the most that ever remained. A rate
// with a limit means a bucket: 100 units at 10 a second take 10 s to come back, one by one.
func (q *quota) measure(t *hint.Quota, first bool, now time.Time) {
	switch {
	case t.Limit > 0:
		q.size = float64(t.Limit)
	case first || float64(t.Remaining) > q.size:
		q.size = max(1, float64(t.Remaining))
	}
	switch {
	case t.Window > 0:
		q.window = max(t.Window, minWindow)
	case t.Rate > 0 && t.Limit > 0:
		q.window = max(minWindow, time.Duration(min(float64(t.Limit)/t.Rate*1e9, float64(limit.MaxBelief))))
		q.rolling = true
	case q.believes(t.Reset):
		q.longest = max(q.longest, t.Reset)
		if q.window = max(q.longest, minWindow); q.sure(now) {
			q.window = min(q.window, time.Second)
		}
		q.measureWhole(t)
	}
}

// leftBy is how much of the window is left by an answer. If it does not advertise what remains, own starts are all
// that is known, so one call's units are counted here; but not if nothing would give them back.
func (q *quota) leftBy(t *hint.Quota, first bool) float64 {
	left := float64(t.Remaining)
	switch {
	case t.Remaining >= 0:
	case first:
		left = q.size
	case q.rolling || q.until.IsZero():
		left = q.left
	default:
		left = q.left - q.charge(1)
	}
	return max(0, min(left, q.size))
}

// first takes in the first answer that advertises the quota. Others are taken to be there at first, because they take
// a moment to be seen.
func (q *quota) first(left float64, until, now time.Time, before float64) {
	q.starts = starts{{}}
	q.note(before, now)
	q.begin(now, until, left, now)
	q.next, q.shared = now, now.Add(min(q.window/8, shortWindow))
}

// detectOthers finds out whether others draw on the quota: they do if less remains than our own starts explain.
// Example: 100 a window, we have sent 30 in the last one and 60 remain: somebody else has sent about 10.
func (q *quota) detectOthers(left float64, sent, now time.Time) {
	if left < q.size-q.explained(sent, now.Sub(sent))-q.charge(1) {
		q.shared = now.Add(max(2*q.window, 2*time.Second))
	}
}

// explained is how many own units the upstream may have counted in an answer, to a call that was sent then and took trip:
// those of the last window. A rolling quota may be an estimate by two counters, which counts the units of this window, and
// of the one before by the share of this one that is left. When its windows begin is not known, so it is the most of
// phases. Example: 100 a second, all sent 1.2 s ago, and none since. Counters whose window began with them count
// 100·0.8 = 80 now, although none has come in the last second.
func (q *quota) explained(sent time.Time, trip time.Duration) float64 {
	most := q.starts.since(sent.Add(-q.window - trip))
	for k := 1.0; q.rolling && k <= phases; k++ {
		began := sent.Add(-time.Duration(k / phases * float64(q.window)))
		newer := q.starts.since(began)
		older := q.starts.since(began.Add(-q.window-trip)) - newer
		most = max(most, newer+older*(1-(k-1)/phases))
	}
	return most
}

// update takes in what remains, and until when. Within a window the least counts, because answers arrive in any
// order; one sent in the window before says nothing of this one. More than before means that a new window has begun,
// or, well before the reset, that the quota is rolling. truth: one call has asked what is left.
func (q *quota) update(left float64, until time.Time, truth bool, sent, now time.Time) {
	more := left > q.left+1 && sent.After(q.leftAt)
	early := q.early(left, now)
	// More came back than so long a window gives in that time, and its end has moved: it was a shorter one.
	shorter := more && q.far(now) && until.After(q.until.Add(resetGrain)) && left-q.left > 1+2*q.allows(now.Sub(q.leftAt))
	switch {
	case q.rolling:
		if sent.Before(q.leftAt.Add(-limit.MaxLate)) && left >= q.left {
			return
		}
	case sent.Before(q.began):
		return
	// The window has turned at its reset, and little remains: it did not return to the limit.
	case q.fresh && left < q.size/4 && now.Sub(q.began) < q.window/8 && (q.window > shortWindow || now.Before(q.shared)), !q.fresh && more && early && (!truth || shorter):
		if q.rolling = true; shorter {
			q.clockWrong, q.window, q.longest, q.until = true, 0, 0, time.Time{}
		}
	case q.guessed && truth && !more && left < atOnce*q.size && now.Sub(q.began) >= q.window && q.alone(now): // no window has ended in so long
		q.rolling, q.next = true, limit.Earliest(q.next, now)
	case (more || truth && left > q.left) && !q.fresh: // the window has ended before we thought
		if q.guessed {
			until = now.Add(q.window)
		}
		q.begin(sent, until, left, now)
		q.next = limit.Earliest(q.next, now)
		return
	default:
		q.resetMoves = !q.fresh && (q.resetMoves || !q.until.IsZero() && until.After(q.until.Add(resetGrain)))
		if q.fresh || q.until.IsZero() || !until.IsZero() && until.Before(q.until) { // rounded up: the earliest is the best
			q.until = until
		}
		if q.fresh = false; left > q.left {
			return
		}
	}
	if q.counted() && q.meter == nil && q.answered > 0 && left <= q.left {
		q.perUnit = max(1e-3, q.perUnit+((q.left-left)/q.answered-q.perUnit)/8)
	}
	taken := q.base - left - q.starts.since(q.began)
	if dt := now.Sub(q.leftAt).Seconds(); dt > 0 {
		q.others += min(1, dt/othersFade.Seconds()) * (max(0, taken-q.taken)/dt - q.others)
	}
	q.left, q.leftAt, q.sentAt, q.taken, q.silent, q.answered = left, now, sent, max(0, taken), 0, 0
}
