package upstream

import (
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/limit"
)

// This file is what a quota makes of an answer.

// observe takes in what an answer has advertised. before is how many attempts have been sent so far: it counts
// if the quota is advertised for the first time, because they may have been under it too.
func (q *quota) observe(t hint.Quota, a *Answer, now time.Time, before float64) {
	first := q.heard.IsZero()
	q.lapses = q.lapsesBy(&t, now)
	if q.lapsed(now) { // it begins anew
		*q = quota{lapses: q.lapses, unsaid: q.unsaid, since: q.since, Quota: q.Quota, named: q.named, factor: q.factor, units: q.units, perUnit: q.perUnit, spread: q.spread}
		first = true
	}
	q.meet(&t, a)
	q.refusals = a.Outcome == Throttled && (first || q.refusals)
	q.turn(now)
	q.wrong = q.wrong && (t.Reset < 0 || t.Reset > farReset)
	q.measure(&t, first, now)
	if served := before - float64(a.InFlight); first && q.since.IsZero() {
		q.single = served >= outvoted && !q.refusals
		q.unsaid = served - q.allows(a.Known)
	}
	q.single = q.single && first || q.unsaid > 2*q.size // much more was served than it allows
	q.unsaid, q.since, q.dear = 0, now, a.Hint.RetryAfter
	left := q.leftBy(&t, first)
	var until time.Time
	switch {
	case !q.believes(t.Reset) && t.Window <= 0 && t.Rate <= 0:
		q.rolling = true // a month, or the upstream's clock is wrong: units are back when an answer says so
	case t.Reset >= 0:
		until = now.Add(max(minWindow, min(t.Reset, limit.MaxBelief)))
	}
	q.Quota = t
	switch {
	case first:
		q.first(left, until, now, before)
	case q.exact():
		q.updateExact(left, until, a.Sent, now)
	default:
		q.detectOthers(left, a.Sent, now)
		q.update(left, until, a.Sent, now)
	}
	if q.heard, q.ends = now, (time.Time{}); q.refusals {
		q.ends = now.Add(q.keep())
	}
	switch {
	case left >= 1 || q.pause == 0:
		q.pause = askAgain
	case q.units <= 1 && q.window == 0: // one call may take long
		q.pause = min(2*q.pause, limit.MaxBelief)
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
// or, well before the reset, that the quota is rolling.
func (q *quota) update(left float64, until, sent, now time.Time) {
	more := left > q.left+1 && sent.After(q.leftAt)
	early := now.Before(q.until.Add(-resetGrain))
	switch {
	case q.rolling:
		if sent.Before(q.leftAt.Add(-limit.MaxLate)) && left >= q.left {
			return
		}
	case sent.Before(q.began):
		return
	// The window has turned at its reset, and little remains: it did not return to the limit.
	case q.fresh && left < q.size/4 && now.Sub(q.began) < q.window/8 && (q.window > shortWindow || now.Before(q.shared)), !q.fresh && more && early:
		q.rolling = true
		// More came back than so long a window gives in that time, and its end has moved: it was a shorter one.
		if q.far(now) && until.After(q.until.Add(resetGrain)) && left-q.left > 1+2*q.allows(now.Sub(q.leftAt)) {
			q.wrong, q.window, q.longest, q.until = true, 0, 0, time.Time{}
		}
	case more && !q.fresh: // the window has ended before we thought
		q.begin(sent, until, left, now)
		return
	default:
		q.moves = !q.fresh && (q.moves || !q.until.IsZero() && until.After(q.until.Add(resetGrain)))
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
