package upstream

import (
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/limit"
)

// The constants of advertised quotas, chosen by simulation.
const (
	// shortWindow: one who is alone on a window up to this length spends it at once. 400 calls at 100 per second
	// take 3.2 s by that and 4.1 s when spaced.
	shortWindow = 2 * time.Second
	// maxLog is how many own starts are remembered one by one; if more fit a window, starts are spaced.
	maxLog = 4096
	// othersFade is the time over which the rate of others is smoothed.
	othersFade = 300 * time.Millisecond
	// resetGrain is by how much a reset in whole seconds may be off.
	resetGrain = 1100 * time.Millisecond
	// minWindow is the shortest window: a shorter one is not worth a timer.
	minWindow = 10 * time.Millisecond
	// askAgain: a rolling quota that seems empty is asked again by one call after this long.
	askAgain = 200 * time.Millisecond
	// noWindowGiven is how far back own starts are counted if neither a window nor a reset is advertised.
	noWindowGiven = time.Minute
)

// A quota is one limit that an upstream advertises. It holds calls back and never lets one go.
//
// # Shared with others
//
// While others draw on it too, what is left is spread over the time to the reset:
//
//	rate = (remaining − in flight − ½·others·age) / time to the reset
//
// Example: 60 remain, 4 calls are in flight, the reset is in 7 s. The others were seen to take 10 a second, and
// the answer is 0.4 s old, so about 2 of the 60 may be gone: (60 − 4 − 2)/7 s is 7.7 a second. All who share
// the quota see the same headers, so they all get the same rate, however many they are, and all stop when
// nothing remains. (Raghavan et al., SIGCOMM 2007, have the problem; the law is our own.)
//
// # Alone
//
// One who is alone needs no reset: at most the limit starts in any window of its own, made longer by the
// spread of the round trips. In a window of up to 2 s (shortWindow) calls go at once until it is full, and each
// start is remembered until it leaves the window. In a longer one starts are spaced at limit/window.
//
// A quota is taken to be shared while less remains than own starts explain, and for two windows after that, see
// detectOthers. It is rolling (a bucket, a sliding window) if more remains before the reset, see
// takeRemaining.
type quota struct {
	hint.Quota               // as advertised last
	named      time.Duration // the window that it was first advertised with: a part of its name

	size        float64       // units in a window
	window      time.Duration // its length: advertised, or guessed from the resets, see quota_window.go; 0: not known
	left        float64       // the least remaining that was advertised for this window
	leftAt      time.Time     // when it was
	began       time.Time     // this window, as far as is known
	until       time.Time     // its earliest advertised end; zero: none was
	closedUntil time.Time     // no call before then, because a throttled answer has closed this quota alone
	fresh       bool          // nothing has been advertised for this window yet
	rolling     bool          // units come back one by one, not all at the reset

	calls   int     // in flight
	units   float64 // of those calls
	perCall float64 // smoothed units of a call, where only the upstream can count them

	shared  time.Time // others are taken to be there until then
	seen    bool      // they have been
	others  float64   // their units per second, smoothed
	answers float64   // own units answered since leftAt

	// Of a window whose length is not advertised:
	longest time.Duration // the longest reset
	asked   time.Time     // when a call went to see whether the window is over; zero: none is out
	found   bool          // the guessed length was right
	longer  time.Duration // by how much the window may be longer than longest

	sent tallyRing     // own units started, by time
	log  []start       // alone on a short window: own starts within it
	sum  float64       // units in log
	next time.Time     // spaced: when the next call may start
	step time.Duration // by which next was moved last
}

// A start is one entry of a quota's log.
type start struct {
	at    time.Time
	units float64
}

// same reports whether an advertised quota is q: it has q's name, unit and window.
func (q *quota) same(t *hint.Quota) bool {
	return q.Name == t.Name && q.Unit == t.Unit && q.named == t.Window
}

// weight is how many of the quota's units a call of n of ours takes: 1 of a quota of requests, n of one whose
// unit is not advertised, and of any other unit what calls took on average.
func (q *quota) weight(n int) float64 {
	switch q.Unit {
	case "requests", "request":
		return 1
	case "":
		return float64(n)
	}
	return q.perCall
}

// counted reports whether calls are measured in units that only the upstream can count.
func (q *quota) counted() bool {
	return q.Unit != "" && q.Unit != "requests" && q.Unit != "request"
}

// remaining is what may be sent at now without an answer to those in flight.
func (q *quota) remaining(now time.Time) float64 {
	flying := q.units
	if q.counted() {
		flying = float64(q.calls) * q.perCall
	}
	left := q.left - flying
	switch age := now.Sub(q.leftAt).Seconds(); {
	case q.rolling && q.window > 0:
		left = min(left+q.size*age/q.window.Seconds(), q.size-flying)
	case now.Before(q.shared):
		left -= q.others * age / 2
	}
	return left
}

// turn begins a new window when the advertised end has passed.
func (q *quota) turn(now time.Time) {
	if q.rolling || q.until.IsZero() || now.Before(q.until) {
		return
	}
	q.began = q.until
	if q.window <= 0 {
		q.until = time.Time{}
	} else if q.until = q.until.Add(q.window); !now.Before(q.until) { // nobody was there for a whole window
		q.began, q.until = now, now.Add(q.window)
	}
	q.left, q.leftAt, q.fresh, q.answers = q.size, now, true, 0
}

// alone reports whether nobody else draws on the quota, as far as is seen.
func (q *quota) alone(now time.Time) bool {
	return q.window > 0 && q.Limit > 0 && !now.Before(q.shared) && !q.counted()
}

// own reports whether it is enough to look at one's own starts: nobody else is there, and how fast a
// rolling quota gives back is known.
func (q *quota) own(now time.Time) bool { return q.alone(now) && (q.sure() || !q.rolling) }

// logs reports whether starts are remembered one by one instead of spaced.
func (q *quota) logs() bool { return q.window <= shortWindow && q.size <= maxLog }

// span is what the window cannot be longer than.
func (q *quota) span() time.Duration { return max(q.window, q.longest) }

// sentInWindow is own units started within one window.
func (q *quota) sentInWindow(now time.Time) float64 { return q.sent.sum(now, q.window) }

// late is how much of the time that a late timer lost may be caught up with.
func (q *quota) late() time.Duration { return min(q.window/100, 2*limit.MaxLate) }

// spent returns until when nothing is left of the quota; zero if something is.
func (q *quota) spent(now time.Time) time.Time {
	q.turn(now)
	if q.closedUntil.After(now) {
		return q.closedUntil
	}
	if q.rolling || q.alone(now) && q.logs() || q.left >= 1 {
		return time.Time{}
	}
	return q.until
}
