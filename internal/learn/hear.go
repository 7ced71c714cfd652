package learn

import (
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/moment"
)

// This file is what a ToldQuota makes of an answer.

// hear takes in what an answer, to a request of sent, has told. before is how many
// attempts have been sent so far: it counts where the quota is told for the first time.
func (q *ToldQuota) hear(t hint.Quota, p Place, now time.Time, before float64, spread time.Duration) {
	sent, refused := p.Sent, p.Refused
	first := q.leftAt.IsZero()
	q.turn(now)
	q.measure(&t, now, first)
	left := float64(t.Remaining)
	switch {
	case t.Remaining >= 0:
	case first: // not told: own starts are all that is known
		left = q.size
	case q.roll || q.until.IsZero(): // nothing would give it back
		left = q.left
	default: // counted here
		left = q.left - q.weight(1)
	}
	left = max(0, min(left, q.size))
	var until time.Time
	if t.Reset >= 0 {
		until = now.Add(max(minWindow, min(t.Reset, moment.MaxBelief)))
	}
	q.Quota = t
	q.look(left, sent, now, first)
	if first {
		q.left, q.leftAt, q.until = left, now, until
		if left < 1 && before < q.size*3/4 { // others have spent it
			q.shared = moment.Latest(q.shared, until)
		}
		q.count(before, now)
		if q.next = now; !q.sure() && t.Reset > 0 {
			q.next = now.Add(-until.Sub(now) / 16) // a first few need not be spaced
		}
	} else {
		q.answered(refused, sent)
		q.tell(left, until, sent, now)
	}
	q.guess(t.Reset)
}

// measure takes in the size and the window.
func (q *ToldQuota) measure(t *hint.Quota, now time.Time, first bool) {
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
		q.window = max(minWindow, time.Duration(min(float64(t.Limit)/t.Rate*1e9, float64(moment.MaxBelief))))
		q.roll = true
	case first && t.Reset <= 0:
		q.window = 0
	}
	if first {
		q.began = now
	}
}

// look finds out whether others draw on the quota: if less remains than our own
// starts explain. At first they are taken to be there, because they take a moment
// to be seen.
func (q *ToldQuota) look(left float64, sent, now time.Time, first bool) {
	w := max(q.window, time.Second)
	switch {
	case first:
		q.shared = now.Add(min(w/8, shortWindow))
	case left < q.size-q.sent.sum(sent, q.span()+now.Sub(sent))-q.weight(1):
		q.shared, q.seen = now.Add(2*w), true
	}
}

// tell takes in what remains, and until when.
func (q *ToldQuota) tell(left float64, until, sent, now time.Time) {
	switch {
	case q.roll:
		if !sent.Before(q.leftAt.Add(-moment.MaxLate)) || left < q.left {
			q.left, q.leftAt = left, now
		}
		return
	case sent.Before(q.began): // of the window before
		return
	case q.fresh && left < q.size/4 && now.Sub(q.began) < q.window/8 && (q.window > shortWindow || now.Before(q.shared)):
		q.roll = true // it did not return to the limit at the reset
		q.left, q.leftAt = left, now
		return
	case q.fresh:
		q.until, q.fresh = until, false
	case left > q.left+1 && sent.After(q.leftAt):
		if now.Before(q.until.Add(-resetGrain)) && left < q.size*3/4 {
			q.roll = true // more remains before the reset
		} else {
			q.began, q.until, q.answers = sent, until, 0 // it has ended before we thought
		}
		q.left, q.leftAt = left, now
		return
	case !until.IsZero() && (q.until.IsZero() || until.Before(q.until)):
		q.until = until
	}
	if left > q.left {
		return
	}
	q.smooth(left, now)
	q.left, q.leftAt, q.answers = left, now, 0
}

// smooth follows the rate of others, and what own calls take where only the
// upstream can count.
func (q *ToldQuota) smooth(left float64, now time.Time) {
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
