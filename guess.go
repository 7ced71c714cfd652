package throttle

import "time"

// This file finds the length of a quota's window where no answer tells it.

// sure reports whether the length of the window is told.
func (q *toldQuota) sure() bool { return q.Window > 0 || q.Rate > 0 }

// guess finds the length of a window that only resets tell of. They are told in
// whole seconds, so the longest is up to 2 s too long. One who is alone, sends all
// that it allows and still sees a rest, shortens it by that rest; one who sees the
// rest shrink, as that of a bucket does, takes the rate that both add up to.
func (q *toldQuota) guess(now time.Time, left float64, reset, spread time.Duration) {
	if reset > q.longest && reset < maxBelief {
		q.longest, q.window = reset, max(q.window, reset, minWindow)
	}
	if q.window <= 0 {
		return
	}
	if q.round.IsZero() || now.Before(q.shared) || q.mine(now) < 0.92*q.size {
		q.round, q.low, q.base, q.rounds = now, left, -1, 0
		return
	}
	q.low = min(q.low, left)
	if now.Sub(q.round) < q.window {
		return
	}
	q.rounds++
	rest := max(2, q.size/100) + q.size*spread.Seconds()/q.window.Seconds() // is no rest
	switch {
	case q.low < q.base-max(5, q.size/4):
		if units := q.mine(now) + (q.low-q.base)/q.rounds; units > 0 {
			q.window = max(q.window, min(q.longest, time.Duration(q.size/units*float64(q.window))))
			q.least = q.window * 97 / 100
		}
		q.base, q.rounds = q.low, 0
	case q.low > rest && q.window > q.least:
		shorter := q.window - time.Duration(min(0.5, 0.95*q.low/q.size)*float64(q.window))
		q.window = max(shorter, q.least, q.longest/8)
		q.base, q.rounds = q.low, 0
	case q.low > q.base:
		q.base, q.rounds = q.low, 0
	}
	q.round, q.low = now, left
}

// tooShort notes a refusal, for which a window that was guessed must be too short.
func (q *toldQuota) tooShort(now time.Time) {
	if !q.sure() && q.alone(now) {
		q.window = min(q.longest, q.window*103/100)
		q.least = q.window
	}
}
