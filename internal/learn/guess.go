package learn

import (
	"time"

	"github.com/go-throttle/throttle/internal/moment"
)

// This file finds the length of a window that only resets tell of, and those mostly
// in whole seconds: the longest is up to 2 s too long. One who is alone guesses a
// second less, and when that is over, one call asks whether units have come back. If
// it is refused, the guess is made a second longer, and the told reset holds.

// sure reports whether the length of the window is told, or found.
func (q *ToldQuota) sure() bool { return q.Window > 0 || q.Rate > 0 || q.found }

// guess takes in a reset.
func (q *ToldQuota) guess(reset time.Duration) {
	if q.Window > 0 || q.Rate > 0 || reset >= moment.MaxBelief {
		return
	}
	if reset > q.longest {
		q.longest = reset
		if w := max(min(reset, time.Second), reset.Truncate(time.Second)-time.Second, minWindow); w > q.window {
			q.window, q.found = w, false
		}
	}
	switch {
	case q.found:
	case !q.roll:
		q.found = q.window >= max(q.longest+q.doubt, time.Second)
	default:
		q.window = max(minWindow, q.longest.Truncate(time.Second), min(q.longest, time.Second))
	}
}

// due is when the window is over, if the guess is right.
func (q *ToldQuota) due(spread time.Duration) time.Time { return q.began.Add(q.window + spread) }

// asks reports whether a call may go at at to see whether the window is over.
func (q *ToldQuota) asks(at time.Time, spread time.Duration) bool {
	return q.Calls == 0 && !q.sure() && q.alone(at) && q.due(spread).Before(q.until)
}

// answered takes in whether the call that asked was refused.
func (q *ToldQuota) answered(refused bool, sent time.Time) {
	switch {
	case sent.Before(q.asked):
		return
	case q.began.After(q.asked): // nobody asked, or the told reset came first
	case !refused:
		q.found = true
	default:
		q.window = max(q.window, min(q.window+time.Second, (q.longest+q.doubt+time.Second-1).Truncate(time.Second)))
	}
	q.asked = time.Time{}
}
