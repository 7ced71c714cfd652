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
	// coarse: a window whose length is not advertised must be longer for its reset to say how fast it may be used:
	// resets come in whole seconds, and a second too much of 10 would be a tenth of the quota.
	coarse = time.Minute
	// atOnce is the share of a long window that is kept from being used at once, and reserve the share of the even
	// rate that is kept for late calls. 1,000 of 5,000 calls an hour take 1.1 s; while others wait for the rest, a
	// late call of the same priority waits for 49 s, without the reserve for 21 minutes.
	atOnce  = 0.75
	reserve = 0.5
	// logGrain: own starts within this part of a window are remembered as one, as of the latest. So 1,000 calls a
	// second take 1 ms longer than they might, and no log is longer than 2,048 entries.
	logGrain = 1024
	// othersFade is the time over which the rate of others is smoothed.
	othersFade = 300 * time.Millisecond
	// resetGrain is by how much a reset in whole seconds may be off.
	resetGrain = 1100 * time.Millisecond
	// notASecond is how long a window is not taken for a second after one who is alone was throttled: if it is longer,
	// a few calls are throttled once in that time.
	notASecond = time.Minute
	// minWindow is the shortest window: a shorter one is not worth a timer.
	minWindow = 10 * time.Millisecond
	// askAgain: a rolling quota that seems empty is asked again by one call after this long. If nothing is known of
	// its window, then after twice as long, and so on: it is found after twice the time that units took to come back.
	askAgain = 200 * time.Millisecond
	// leastKept is how long a quota is kept at least that is not repeated.
	leastKept = 10 * time.Second
	// mostReturns is how often that time is doubled for a quota that comes back.
	mostReturns = 2
)

// A quota is one limit that an upstream advertises. It holds calls back and never lets one go.
//
// # What remains
//
// What is left for us is what was advertised as remaining, less what has been taken since:
//
//	left = remaining − in flight − ½·others·age
//
// Others are seen where less remains than own starts explain. Example: 60 remain, 4 calls are in flight, others have
// taken 20 in the 2 s of this window, and the answer is 0.4 s old: 60 − 4 − ½·10/s·0.4 s are 54. Calls are spaced so
// that this lasts to the reset, here in 7 s: at 7.7 a second. All who share the quota see the same headers, so they
// all get the same rate, however many they are, and all stop when nothing remains. (Raghavan et al., SIGCOMM 2007,
// have the problem; the law is our own.) A rolling quota (a bucket, a sliding window) gives units back one by one; it
// is seen by more remaining before the reset. Its left lasts for as long as what is lacking takes to come back.
//
// # Long windows are for use
//
// In a fixed window of more than 2 s (shortWindow) calls go at once while three quarters remain. Below, half of what
// the rest of the window is worth is kept for late calls, and the rest goes four times as fast (factor):
//
//	floor = ½·limit · time to the reset / window
//	rate  = (floor + factor·(left − floor)) / time to the reset
//
// Example: 2,500 of 5,000 an hour are left half an hour before the reset. The floor is 1,250, and the rate
// (1,250 + 4·1,250)/1,800 s is 3.5 a second. At the floor and below it is left / time to the reset, here 0.7 a second.
//
// # Alone on a short window
//
// Resets come in whole seconds, and that is half of a short window. One who is alone needs none: calls go at once
// until own starts fill a window, made longer by the spread of the round trips.
type quota struct {
	hint.Quota               // as advertised last
	named      time.Duration // the window that it was first advertised with: a part of its name
	factor     float64       // how much faster than evenly a long window is used

	size        float64       // units in a window
	window      time.Duration // its length: advertised, or the longest reset; 0: not known
	longest     time.Duration // the longest reset, if the window is not advertised
	longer      time.Time     // until when it is not taken for a second
	rolling     bool          // units come back one by one, not all at the reset
	pause       time.Duration // rolling: after which one call asks whether there are any
	until       time.Time     // the earliest advertised end of this window; zero: none was
	closedUntil time.Time     // no call before then, because a throttled answer has closed this quota alone

	// What remains of this window.
	began  time.Time // the window, as far as is known
	fresh  bool      // nothing has been advertised for it yet
	base   float64   // what remained when it began
	left   float64   // the least remaining that was advertised for it
	leftAt time.Time // when it was
	taken  float64   // what others had taken by then
	others float64   // how much they take in a second, smoothed
	shared time.Time // others are taken to be there until then

	// Whether it is repeated.
	heard    time.Time // when it was advertised last
	silent   bool      // answers of its routes have not advertised it since
	refusals bool      // only throttled answers advertise it
	returns  int       // times in a row that it was advertised again soon after it had lapsed

	calls    int     // in flight
	units    float64 // of those calls
	perCall  float64 // smoothed units of a call, where only the upstream can count them
	answered int     // calls, since leftAt

	log  []start       // own starts in the last two windows
	next time.Time     // spaced: when the next call may start
	step time.Duration // by which next was moved last
}

// A start is one entry of a quota's log.
type start struct {
	at           time.Time // the latest
	units, total float64   // of it, and of all up to it
}

// same reports whether an advertised quota is q: it has q's name, unit and window.
func (q *quota) same(t *hint.Quota) bool {
	return q.Name == t.Name && q.Unit == t.Unit && q.named == t.Window
}

// lapses is when the quota holds nothing back any more because it is not repeated: two of its windows or leastKept
// after it was advertised last, whichever is longer; ok is false while it is repeated, or nobody asks. Example: a
// quota of 1 per second that one answer advertises, and those after it do not, is gone after 10 s. Other answers
// cannot repeat what only throttled ones advertise, so that lapses by time alone. One that comes back as soon as it
// has lapsed is repeated after all: the time doubles each time.
func (q *quota) lapses() (at time.Time, ok bool) {
	if !q.silent && !q.refusals {
		return time.Time{}, false
	}
	return limit.Latest(q.heard.Add(max(2*q.window, q.longest, leastKept)<<q.returns), q.closedUntil), true
}

// lapsed reports whether it has lapsed.
func (q *quota) lapsed(now time.Time) bool {
	at, ok := q.lapses()
	return ok && !now.Before(at)
}

// missing takes in an answer of its routes that does not advertise it. counted: it has counted that call, of n units.
// A quota that only throttled answers advertise has to be counted here.
func (q *quota) missing(counted bool, n int, now time.Time) {
	switch {
	case !q.refusals:
		q.silent = true
	case counted && !q.rolling:
		q.turn(now)
		q.left = max(0, q.left-q.weight(n))
	}
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
	left, age := q.left-flying, now.Sub(q.leftAt).Seconds()
	if q.rolling && q.window > 0 {
		return min(left+q.size*age/q.window.Seconds(), q.size-flying)
	}
	return left - max(0, min(q.others*age, q.taken))/2
}

// turn begins a new window when the advertised end has passed.
func (q *quota) turn(now time.Time) {
	if q.rolling || q.until.IsZero() || now.Before(q.until) {
		return
	}
	began, until := q.until, time.Time{}
	if q.window > 0 {
		if until = began.Add(q.window); !now.Before(until) { // nobody was there for a whole window
			began, until = now, now.Add(q.window)
		}
	}
	q.begin(began, until, q.size, now)
	q.fresh = true
}

// begin begins a window that has so much left at now.
func (q *quota) begin(began, until time.Time, left float64, now time.Time) {
	q.began, q.until, q.left, q.leftAt = began, until, left, now
	q.base, q.taken, q.answered = left-q.units, 0, 0 // those in flight may count for either window
}

// sure reports whether the length of the window is advertised, or taken for a second: no reset was longer than two,
// because resets are rounded up to whole seconds, and nothing was throttled for notASecond.
func (q *quota) sure(now time.Time) bool {
	return q.Window > 0 || q.Rate > 0 || q.longest > 0 && q.longest <= 2*time.Second && !now.Before(q.longer)
}

// long reports whether a fixed window is long enough for its reset to say how fast it may be used.
func (q *quota) long() bool {
	return !q.rolling && q.Remaining >= 0 && !q.until.IsZero() && (q.Window > shortWindow || q.Window == 0 && q.window > coarse)
}

// alone reports whether nobody else draws on the quota, as far as is seen.
func (q *quota) alone(now time.Time) bool {
	return q.window > 0 && q.Limit > 0 && !q.counted() && !now.Before(q.shared)
}

// aloneShort reports whether own starts are all that counts.
func (q *quota) aloneShort(now time.Time) bool {
	return !q.rolling && q.window <= shortWindow && q.sure(now) && q.alone(now)
}

// late is how much of the time that a late timer lost may be caught up with.
func (q *quota) late() time.Duration { return min(q.window/100, 2*limit.MaxLate) }

// spent returns until when nothing is left of the quota; zero if something is.
func (q *quota) spent(now time.Time) time.Time {
	if q.lapsed(now) {
		return time.Time{}
	}
	q.turn(now)
	if q.closedUntil.After(now) {
		return q.closedUntil
	}
	if q.rolling || q.aloneShort(now) || q.left >= 1 {
		return time.Time{}
	}
	return q.until
}
