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
	first := q.leftAt.IsZero()
	q.turn(now)
	q.measure(&t, now, first)
	left := q.leftBy(&t, first)
	var until time.Time
	if t.Reset >= 0 {
		until = now.Add(max(minWindow, min(t.Reset, limit.MaxBelief)))
	}
	q.Quota = t
	q.detectOthers(left, a.Sent, now, first)
	if first {
		q.begin(left, until, now, before)
	} else {
		q.answered(a.Outcome == Throttled, a.Sent)
		q.takeRemaining(left, until, a.Sent, now)
	}
	q.guess(t.Reset)
}

// leftBy is how much of the window is left by an answer. If it does not advertise what remains, own starts are all
// that is known, so one call's units are counted here; but not if nothing would give them back, as of a rolling
// quota or one without an end.
func (q *quota) leftBy(t *hint.Quota, first bool) float64 {
	left := float64(t.Remaining)
	switch {
	case t.Remaining >= 0:
	case first:
		left = q.size
	case q.rolling || q.until.IsZero():
		left = q.left
	default:
		left = q.left - q.weight(1)
	}
	return max(0, min(left, q.size))
}

// begin takes in the first answer that advertises the quota. If nothing is left although we have sent less than
// three quarters of it, others have spent it. While the length of the window is not known, a sixteenth of the time
// to the reset is granted as credit: a first few calls need not be spaced.
func (q *quota) begin(left float64, until, now time.Time, before float64) {
	q.left, q.leftAt, q.until = left, now, until
	if left < 1 && before < q.size*3/4 {
		q.shared = limit.Latest(q.shared, until)
	}
	q.count(before, now)
	if q.next = now; !q.sure() && q.Reset > 0 {
		q.next = now.Add(-until.Sub(now) / 16)
	}
}

// measure takes in the size and the window. Without a limit the size is the most that ever remained. A rate
// with a limit means a bucket: 100 units at 10 a second take 10 s to come back, one by one.
func (q *quota) measure(t *hint.Quota, now time.Time, first bool) {
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
	case first && t.Reset <= 0:
		q.window = 0
	}
	if first {
		q.began = now
	}
}

// detectOthers finds out whether others draw on the quota: they do if less remains than our own starts explain.
// Example: 100 a window, we have sent 30 and 60 remain: somebody else has sent about 10. At first
// others are taken to be there, because they take a moment to be seen.
func (q *quota) detectOthers(left float64, sent, now time.Time, first bool) {
	w := max(q.window, time.Second)
	switch {
	case first:
		q.shared = now.Add(min(w/8, shortWindow))
	case left < q.size-q.sent.sum(sent, q.span()+now.Sub(sent))-q.weight(1):
		q.shared, q.seen = now.Add(2*w), true
	}
}

// takeRemaining takes in what remains, and until when. Within a window the least counts, because answers
// arrive in any order; one sent in the window before says nothing of this one. More than before means that a
// new window has begun, or, well before the reset, that the quota is rolling.
func (q *quota) takeRemaining(left float64, until, sent, now time.Time) {
	switch {
	case q.rolling:
		if !sent.Before(q.leftAt.Add(-limit.MaxLate)) || left < q.left {
			q.left, q.leftAt = left, now
		}
		return
	case sent.Before(q.began): // of the window before
		return
	// The window has turned at its reset, and little remains: it did not return to the limit, so it is rolling.
	case q.fresh && left < q.size/4 && now.Sub(q.began) < q.window/8 && (q.window > shortWindow || now.Before(q.shared)):
		q.rolling = true
		q.left, q.leftAt = left, now
		return
	// The first answer of a window, as expected.
	case q.fresh:
		q.until, q.fresh = until, false
	// More than before: units have come back, before the reset or at one that we did not expect.
	case left > q.left+1 && sent.After(q.leftAt):
		if now.Before(q.until.Add(-resetGrain)) && left < q.size*3/4 {
			q.rolling = true // more remains before the reset
		} else {
			q.began, q.until, q.answers = sent, until, 0 // it has ended before we thought
		}
		q.left, q.leftAt = left, now
		return
	// An earlier end than was known: resets in whole seconds are rounded up, so the earliest is the best.
	case !until.IsZero() && (q.until.IsZero() || until.Before(q.until)):
		q.until = until
	}
	if left > q.left {
		return
	}
	q.smooth(left, now)
	q.left, q.leftAt, q.answers = left, now, 0
}

// smooth follows the rate of others, and what own calls take where only the upstream can count. Example: 80 remained,
// 0.5 s later 65 do, and 5 own units were answered meanwhile: others took 10 in 0.5 s, 20 a second.
func (q *quota) smooth(left float64, now time.Time) {
	drop, dt := q.left-left, now.Sub(q.leftAt).Seconds()
	if q.counted() && q.answers > 0 {
		q.perCall = max(1e-3, q.perCall+(drop/q.answers*q.perCall-q.perCall)/8)
		return
	}
	if dt <= 0 {
		return
	}
	a := min(1, dt/othersFade.Seconds())
	if q.others += a * (max(0, drop-q.answers)/dt - q.others); q.others < 0.5 {
		q.others = 0
	}
}
