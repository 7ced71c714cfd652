package upstream

import (
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// This file finds the length of a window that is not advertised. Only resets are, mostly in whole seconds, so
// that the longest may be up to 2 s too long. One who is alone guesses a second less than the longest. When
// that time is over, one call asks whether units have come back. If it is throttled, the guess is made a
// second longer, and the advertised reset holds.
//
// Example: the longest reset is 10 s, so the guess is 9 s. All units are used up after 3 s. At 9 s one call
// goes. It is served: the window is 9 s long, found. It is throttled: the guess is 10 s, the longest
// reset, and nothing has to be asked any more.

// sure reports whether the length of the window is advertised, or found.
func (q *quota) sure() bool { return q.Window > 0 || q.Rate > 0 || q.found }

// guess takes in a reset: a longer one than ever makes the guess longer.
func (q *quota) guess(reset time.Duration) {
	if q.Window > 0 || q.Rate > 0 || reset >= limit.MaxBelief {
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
	case !q.rolling:
		q.found = q.window >= max(q.longest+q.longer, time.Second)
	default:
		q.window = max(minWindow, q.longest.Truncate(time.Second), min(q.longest, time.Second))
	}
}

// due is when the window is over, if the guess is right.
func (q *quota) due(spread time.Duration) time.Time { return q.began.Add(q.window + spread) }

// asks reports whether a call may go at at to see whether the window is over.
func (q *quota) asks(at time.Time, spread time.Duration) bool {
	return q.calls == 0 && !q.sure() && q.alone(at) && q.due(spread).Before(q.until)
}

// answered takes in whether the call that asked was throttled.
func (q *quota) answered(throttled bool, sent time.Time) {
	switch {
	case sent.Before(q.asked):
		return
	case q.began.After(q.asked): // nobody asked, or the advertised reset came first
	case !throttled:
		q.found = true
	default:
		q.window = max(q.window, min(q.window+time.Second, (q.longest+q.longer+time.Second-1).Truncate(time.Second)))
	}
	q.asked = time.Time{}
}
