package quota

import (
	"math"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/limit"
)

// The constants of advertised quotas, chosen by TestAdvertised and TestFleet with THROTTLE_FULL=1 unless another test is
// named.
const (
	// One who is alone on a window up to shortWindow uses it at once: 400 calls at 100 per second take 3.2 s, and
	// 4.1 s when spaced.
	shortWindow = 2 * time.Second
	// Of a long window atOnce is kept from being used at once, and reserve of the even rate for late calls: 1,000 of
	// 5,000 calls an hour take 1.7 s, and a late call waits for 47 s, not for 21 minutes (TestCallsBesideALongJob).
	atOnce, reserve = 0.75, 0.5
	// A window whose length is not advertised must be longer than coarse to be used so: a reset in whole seconds may
	// be off by resetGrain. It is not taken for a second for notASecond after one who was alone was throttled.
	coarse, resetGrain, notASecond = time.Minute, 1100 * time.Millisecond, time.Minute
	// othersFade is the time over which the rate of others is smoothed.
	othersFade = 300 * time.Millisecond
	// logGrain: own starts within this part of a window are remembered as one, as of the latest.
	logGrain = 1024
	// A window is not shorter than minWindow, which is worth a timer.
	minWindow = 10 * time.Millisecond
	// A rolling quota that seems empty is asked by one call after askAgain, if its window is not known after twice as
	// long, and so on: units are found after twice the time that they took to come back (TestClockAhead).
	askAgain = 200 * time.Millisecond
	// Beyond farReset a reset without a window is believed only as long as units do not come back before it, and a call
	// tries now and then whether they have (TestClockAhead).
	farReset = time.Hour
	// If nothing is left of such a quota, a call asks after farAsk, then after twice as long each time.
	farAsk = time.Minute
	// A quota that is not repeated is kept for two windows, and for leastKept; one that only throttled answers advertise
	// also for dearness times as long as a throttled answer wants to be left alone: one more is tried then, and may be
	// throttled. That one is gone when goneAt times as many as it allows are.
	leastKept, dearness, goneAt = 10 * time.Second, 16, 16
	// One that lapsed and comes back as it was is kept twice as long each time, up to longestKept (lapsesBy). Of 3 per 5 s
	// that only throttled answers advertise 3.9 % of the requests of 8 workers are throttled, 10 % without it
	// (TestRarelyAdvertised). With twice that time 2.8 %, but a limit that rises is used later.
	longestKept, mostLapses = time.Minute, 4
	// phases of an estimate by two counters are tried: so what others take is seen from 1/16 of the quota on.
	phases = 16
)

// A quota is one limit that an upstream advertises: what was advertised last, and own starts since. It holds calls
// back and never lets one go.
//
// # What remains
//
// What is left for us is what was advertised as remaining, less what has been taken since:
//
//	left = remaining − in flight − answered in silence − ½·others·age
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
// A long window whose end is not advertised, or by a clock that is wrong, lasts for one window from its first answer. If it
// is over nobody knows what is back. If only its size is advertised, own starts of the last window are what is gone.
//
// # One call asks
//
// Three things say when to come back although nothing is left: a Retry-After before the reset (comeBack), an end that is
// guessed (turn), and a reset that may be of a wrong clock (heardBack). Then one call goes, and the others wait for its
// answer:
//
//	spent, back is set    the first call that comes after back asks; until then all wait
//	asked                 that call is under way. If it ends without a word of the quota, the next one asks
//	something is left     a window begins with that: neither back nor held
//	nothing is left       held: until the end, or of a far one until the next call asks
//
// # Alone on a short window
//
// Resets come in whole seconds, and that is half of a short window. One who is alone needs none: calls go at once
// until own starts fill a window, made longer by the spread of the round trips. Example: 100 per second, round trips
// that vary by 30 ms, and 100 starts between 0 and 0.1 s. The next call may go at 1.03 s: the upstream may have received
// the first start at 0.03 s.
type quota struct {
	hint.Quota               // as advertised last
	named      time.Duration // the window that it was first advertised with: a part of its name
	factor     float64       // how much faster than evenly a long window is used

	size            float64       // units in a window
	window          time.Duration // its length: advertised, or the longest reset; 0: not known
	longest         time.Duration // the longest reset, if the window is not advertised
	notASecondUntil time.Time     // until when it is not taken for a second
	spread          time.Duration // of the round trips, as far as it matters
	rolling         bool          // units come back one by one, not all at the reset
	clockWrong      bool          // resets are of a clock that is wrong, as far as is known
	resetMoves      bool          // the advertised end moves on: perhaps it is rolling, which an answer will show
	pause           time.Duration // rolling: after which one call asks whether there are any

	until       time.Time // the end of this window, as far as is known; zero: it has none
	guessed     bool      // no end is advertised: until is one window after this one was seen to begin
	closedUntil time.Time // no call before then, because a throttled answer has closed this quota alone

	// Whether one call may ask although not enough is left.
	back  time.Time // from then on; zero: none may
	asked time.Time // since when one does; zero: none does
	held  bool      // one has, and nothing was left: a Retry-After does not bring the next

	// What remains of this window.
	began  time.Time // when it began, as far as is known
	fresh  bool      // nothing has been advertised for it yet
	left   float64   // the least remaining that was advertised for it
	leftAt time.Time // when it was,
	sentAt time.Time // by the answer to a call sent then
	silent float64   // units of later calls, answered without a word of it
	base   float64   // what remained when it began
	taken  float64   // what others had taken by leftAt
	others float64   // how much they take in a second, smoothed
	shared time.Time // others are taken to be there until then

	// Whether it is repeated.
	heard        time.Time     // when it was advertised last
	ends         time.Time     // when it lapses, unless it is advertised again; zero: never
	outvotable   bool          // by one answer that contradicts those before it
	servedUnsaid float64       // units served without a word of it, above what it allows in that time,
	since        time.Time     // until then
	refusalWait  time.Duration // refusals: how long the last one wanted to be left alone
	refusals     bool          // only throttled answers advertise it
	told         uint8         // how many of them have, at most 2
	again        time.Time     // when the first of them wants calls again
	row          uint8         // served in a row since then, without a word of it
	lapses       int           // how often it lapsed and came back the same, at most mostLapses

	units    float64 // in flight, as we count
	meter    Counter // that it mirrors, which knows perUnit and what is in flight; nil: none
	perUnit  float64 // the quota's units for each of ours: 1, but smoothed where only the upstream can count them
	answered float64 // our units, since leftAt

	starts starts        // own ones in the last two windows
	next   time.Time     // spaced: when the next call may start
	step   time.Duration // by which next was moved last

	mirrored // where the meter is exact
}

// A mirrored is what a quota knows by its meter, if that is exact.
type mirrored struct {
	level  float64       // what remains as of at,
	at     time.Time     // when
	by     count         // was the meter's count
	then   count         // that of the last answer
	base   count         // that of quota.base
	others float64       // what others have taken of a rolling one in the last window, smoothed
	seen   bool          // that was much at the last answer
	grain  float64       // what remains is advertised in these
	whole  time.Duration // in which all of a rolling one comes back, by its resets; 0: not known
}

// A Counter is a meter of the key that an advertised quota mirrors. It is asked under the lock of the State.
type Counter interface {
	Cost() float64               // what a call costs in the end, on average; 0: nothing is known
	Hold() float64               // what a call holds
	Units() (held, back float64) // what calls have held in all, and what came back of that
	Holds() bool                 // the upstream holds what the meter does
	Turn(t time.Time)            // what was held before t does not come back from now on
}

// same reports whether an advertised quota is q: it has q's name, unit and window.
func (q *quota) same(t *hint.Quota) bool {
	return q.Name == t.Name && q.Unit == t.Unit && q.named == t.Window
}

// keep is how long the quota holds without being repeated.
func (q *quota) keep() time.Duration {
	kept := max(2*q.window, q.longest, leastKept)
	if q.outvotable {
		return kept
	}
	if q.refusals {
		kept = max(kept, dearness*q.refusalWait)
	}
	return max(kept, min(kept<<q.lapses, longestKept))
}

// lapsesBy is lapses after an answer that advertises t: one more if the quota had lapsed and comes back as it was. It begins
// anew with another limit, and if it was outvoted. If only throttled answers advertise it, it does if none came until it was
// gone; else if it was not repeated for longestKept, because it would lapse in any case. A quota whose window is not advertised
// does not count: kept for longer, what is guessed of it does more harm.
//
// Example: each 30th answer advertises 2 a second, so the quota lapses between two of them. It is kept for 10 s, then for
// 20 s, and then it does not lapse any more.
func (q *quota) lapsesBy(t *hint.Quota, now time.Time) int {
	switch {
	case t.Window <= 0 && t.Rate <= 0, t.Limit != q.Limit, q.outvotable,
		q.refusals && q.lapsed(now), !q.refusals && now.Sub(q.heard) > longestKept:
		return 0
	case !q.ends.IsZero() && now.After(q.ends):
		return min(q.lapses+1, mostLapses)
	}
	return q.lapses
}

// lapsed reports whether the quota holds nothing back any more, because it was not repeated for so long. Example: a
// quota of 1 per second that two answers advertise, and those after them do not, is gone after 10 s. What only throttled
// answers advertise goes step by step: it allows one unit more, two after a window, four after another one, and is gone at
// goneAt times as many.
func (q *quota) lapsed(now time.Time) bool {
	return !q.ends.IsZero() && !now.Before(limit.Latest(q.ends, q.closedUntil)) && (!q.refusals || q.outvotable || q.extra(now) >= goneAt*q.size)
}

// extra is how many more than it allows are tried, because only throttled answers advertise it and none did lately.
func (q *quota) extra(now time.Time) float64 {
	if !q.refusals || now.Before(q.ends) {
		return 0
	}
	return math.Exp2(now.Sub(q.ends).Seconds() / max(q.window, minWindow).Seconds())
}

// allows is how many units it allows in that time.
func (q *quota) allows(d time.Duration) float64 {
	return q.size * d.Seconds() / max(q.window, minWindow).Seconds()
}

// ours is how a call of n units counts: as 1, unless the unit is not advertised.
func (q *quota) ours(n int) float64 {
	if q.Unit == "" {
		return float64(n)
	}
	return 1
}

// charge is how many of the quota's units a call of n of ours takes.
func (q *quota) charge(n int) float64 { return q.ours(n) * q.perUnit }

// counted reports whether calls are measured in units that only the upstream can count.
func (q *quota) counted() bool {
	return q.Unit != "" && q.Unit != "requests" && q.Unit != "request"
}

// exact reports whether the meter knows when the upstream takes units, and when they come back.
func (q *quota) exact() bool { return q.meter != nil && q.meter.Holds() }

// far reports whether the reset of a window without a length is so far away that the upstream's clock may be wrong.
func (q *quota) far(now time.Time) bool {
	return q.Window <= 0 && q.Rate <= 0 && !q.exact() && q.until.Sub(now) > farReset
}

// believes reports whether a reset without a window may be right.
func (q *quota) believes(reset time.Duration) bool {
	return reset < limit.MaxBelief && !q.clockWrong
}

// sure reports whether the length of the window is advertised, or taken for a second: no reset was longer than two,
// because resets are rounded up to whole seconds, and nothing was throttled for notASecond.
func (q *quota) sure(now time.Time) bool {
	return q.Window > 0 || q.Rate > 0 || q.longest > 0 && q.longest <= 2*time.Second && !now.Before(q.notASecondUntil)
}

// long reports whether a fixed window is long enough for its reset to say how fast it may be used.
func (q *quota) long() bool {
	return !q.rolling && q.Remaining >= 0 && !q.until.IsZero() && (q.Window > shortWindow || q.Window == 0 && q.window > coarse)
}

// alone reports whether nobody else draws on the quota, as far as is seen.
func (q *quota) alone(now time.Time) bool {
	return q.window > 0 && q.Limit > 0 && !q.counted() && !now.Before(q.shared)
}

// ownOnly reports whether own starts are all that is known: a size and a window are advertised, and nothing else.
func (q *quota) ownOnly() bool {
	return q.Remaining < 0 && q.Window > 0 && !q.rolling && !q.exact()
}

// aloneShort reports whether own starts are all that counts.
func (q *quota) aloneShort(now time.Time) bool {
	return !q.rolling && q.window <= shortWindow && q.sure(now) && q.alone(now)
}
