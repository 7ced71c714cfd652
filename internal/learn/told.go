package learn

import (
	"math"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/moment"
)

// The constants of told quotas, chosen by simulation.
const (
	shortWindow  = 2 * time.Second         // one who is alone on a window up to this length spends it at once
	othersFade   = 300 * time.Millisecond  // over which the rate of others is smoothed
	resetGrain   = 1100 * time.Millisecond // by which a reset that is told in whole seconds may be off
	minWindow    = 10 * time.Millisecond   // shorter ones are not worth a timer
	maxLog       = 4096                    // own starts remembered one by one; above, starts are spaced
	askAgain     = 200 * time.Millisecond  // a rolling quota that seems empty is asked again after this long
	noWindowTold = time.Minute             // where neither a window nor a reset is told
)

// A ToldQuota is one limit that an upstream tells of. It holds calls back and never
// lets one go: calls start while the told remaining, less those in flight, lasts.
// While others draw on it too, what is left is spread over the time to the reset:
//
//	rate = (remaining − in flight − ½·others·age) / time to the reset
//
// All who share the quota are told the same, so all get the same rate (Raghavan
// et al., SIGCOMM 2007, has the problem; the law is our own). One who is alone needs no reset: he sends at most the limit
// in any window of his own, made longer by the spread of the round trips.
//
// All is guarded by the lock of its Learner's owner.
type ToldQuota struct {
	hint.Quota               // as told last
	named      time.Duration // the window that it was told with first, a part of its name

	size   float64       // units in a window
	window time.Duration // its length: told, or guessed from the resets, see guess.go; 0: not known
	left   float64       // told to remain, the least of this window
	leftAt time.Time     // when that was told
	began  time.Time     // this window, as far as is known
	until  time.Time     // its told end, the earliest heard; zero: none told
	shut   time.Time     // told not to send before, for this quota alone
	fresh  bool          // nothing has been told of this window yet
	roll   bool          // units come back one by one, not all at the reset

	Calls   int     // in flight
	Units   float64 // theirs
	perCall float64 // smoothed, where the unit is not ours to count

	shared  time.Time // others are taken to be there until then
	seen    bool      // they have been
	others  float64   // their units per second, smoothed
	answers float64   // own units answered since leftAt

	// Of a window whose length is not told:
	longest time.Duration // reset told
	asked   time.Time     // when a call went to see whether the window is over; zero: none is out
	found   bool          // it was, when guessed
	doubt   time.Duration // by how much the window may be longer still

	sent tallyRing
	log  []start // alone on a short window: own starts within it
	sum  float64 // units in log
	next time.Time
	step time.Duration // by which next was moved last
}

type start struct {
	at    time.Time
	units float64
}

// weight is how many of the quota's units a call of n of ours takes.
func (q *ToldQuota) weight(n int) float64 {
	switch q.Unit {
	case "requests", "request":
		return 1
	case "":
		return float64(n)
	}
	return q.perCall
}

// remaining is what may be sent at now without an answer to those in flight.
func (q *ToldQuota) remaining(now time.Time) float64 {
	flying := q.Units
	if q.counted() {
		flying = float64(q.Calls) * q.perCall
	}
	left := q.left - flying
	switch age := now.Sub(q.leftAt).Seconds(); {
	case q.roll && q.window > 0:
		left = min(left+q.size*age/q.window.Seconds(), q.size-flying)
	case now.Before(q.shared):
		left -= q.others * age / 2
	}
	return left
}

// counted reports whether calls are measured in units that only the upstream knows.
func (q *ToldQuota) counted() bool {
	return q.Unit != "" && q.Unit != "requests" && q.Unit != "request"
}

// turn begins a new window when the told end has passed.
func (q *ToldQuota) turn(now time.Time) {
	if q.roll || q.until.IsZero() || now.Before(q.until) {
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
func (q *ToldQuota) alone(now time.Time) bool {
	return q.window > 0 && q.Limit > 0 && !now.Before(q.shared) && !q.counted()
}

// own reports whether it is enough to look at one's own starts: nobody else is there,
// and a quota that gives back one by one has told how fast.
func (q *ToldQuota) own(now time.Time) bool { return q.alone(now) && (q.sure() || !q.roll) }

// ready returns the moment, not before at, from which on a call of n units may go.
func (q *ToldQuota) ready(n int, at, now time.Time, spread time.Duration) time.Time {
	q.turn(now)
	at = moment.Latest(at, q.shut)
	need := min(q.weight(n), q.size)
	alone := q.alone(now)
	if !alone || !q.sure() {
		switch {
		case q.remaining(now) >= need:
		case q.asks(now, spread):
			at = moment.Latest(at, q.due(spread))
		default:
			return moment.Latest(at, q.refill(need, now))
		}
	}
	if !q.own(now) {
		return moment.Latest(at, q.next)
	}
	if q.left <= 0 && !q.roll && q.Calls == 0 && now.Before(q.until) && q.mine(now) == 0 {
		return moment.Latest(at, q.until) // all was spent before we came
	}
	if !q.logs() {
		return moment.Latest(at, q.next)
	}
	sum := q.sum
	for i := 0; i < len(q.log) && sum+need > q.size; i++ {
		sum -= q.log[i].units
		at = moment.Latest(at, q.log[i].at.Add(q.window+spread))
	}
	return at
}

// trim forgets the starts that are older than a window.
func (q *ToldQuota) trim(now time.Time, spread time.Duration) {
	for len(q.log) > 0 && !q.log[0].at.After(now.Add(-q.window-spread)) {
		q.sum -= q.log[0].units
		q.log = q.log[1:]
	}
	if len(q.log) == 0 {
		q.sum = 0
	}
}

// refill is when need units may be there again.
func (q *ToldQuota) refill(need float64, now time.Time) time.Time {
	switch {
	case q.roll && q.Calls == 0:
		return q.leftAt.Add(askAgain)
	case q.roll && q.window > 0:
		lack := need - q.remaining(now)
		return now.Add(max(time.Millisecond, time.Duration(lack/q.size*float64(q.window))))
	case !q.until.IsZero():
		return q.until
	case q.Calls > 0: // an answer will tell
		return now.Add(time.Second)
	}
	return q.leftAt.Add(max(q.window, time.Second))
}

// logs reports whether starts are remembered one by one instead of spaced.
func (q *ToldQuota) logs() bool { return q.window <= shortWindow && q.size <= maxLog }

// span is what the window cannot be longer than.
func (q *ToldQuota) span() time.Duration { return max(q.window, q.longest) }

// mine is own units started within one window.
func (q *ToldQuota) mine(now time.Time) float64 { return q.sent.sum(now, q.window) }

// pace is the rate at which starts are spaced at now; +Inf: not at all.
func (q *ToldQuota) pace(now time.Time, spread time.Duration) float64 {
	even := q.size / (q.window + spread + q.late()).Seconds() // +Inf while no window is known
	if q.own(now) {
		if q.logs() {
			return math.Inf(1)
		}
		return even
	}
	left := q.remaining(now)
	var h float64
	switch {
	case q.alone(now): // what has not been spent shows that the window is shorter
		return even * (1 + max(left, 0)/q.size)
	case q.roll && q.window > 0:
		h = max(1e-3, q.window.Seconds()*(1-left/q.size))
	case !q.until.IsZero():
		h = max(1e-3, q.until.Sub(now).Seconds())
	default:
		return even
	}
	r := left / h
	if q.Window > shortWindow { // told: no faster, whatever remaining and reset say
		r = min(r, q.size/q.window.Seconds())
	}
	return max(r, 2/h) // at the latest after half of the time
}

// take counts a start of n units at at.
func (q *ToldQuota) take(n int, at time.Time, spread time.Duration) {
	u := q.weight(n)
	if q.asks(at, spread) && q.remaining(at) < min(u, q.size) {
		q.asked = at
	}
	q.step = 0
	if r := q.pace(at, spread); !math.IsInf(r, 1) {
		q.step = time.Duration(min(u/r*1e9, float64(moment.MaxBelief)))
		q.next = moment.Latest(q.next, at.Add(-q.credit(u, at))).Add(q.step)
	}
	q.Calls++
	q.Units += u
	q.trim(at, spread)
	q.count(u, at)
}

// count notes that units have been sent.
func (q *ToldQuota) count(units float64, at time.Time) {
	if q.sent.add(units, at, q.span()); q.logs() {
		q.log = append(q.log, start{at, units})
		q.sum += units
	} else {
		q.log, q.sum = nil, 0
	}
}

// late is how much of the time that a late timer lost may be caught up with.
func (q *ToldQuota) late() time.Duration { return min(q.window/100, 2*moment.MaxLate) }

// credit is how much of the time that nobody used may be caught up with: while
// nobody else is seen and only what remains bounds the calls, 1/16 of the window.
func (q *ToldQuota) credit(units float64, at time.Time) time.Duration {
	if q.sure() || at.Before(q.shared) && q.seen || q.mine(at)+units > q.size*3/4 {
		return q.late()
	}
	return q.window / 16
}

// undo takes back a start that was not used, at the moment that it was taken as of.
func (q *ToldQuota) undo(n int, at time.Time) {
	u := q.weight(n)
	q.landed(n)
	q.answers -= u // it has none
	q.next = q.next.Add(-q.step)
	q.step = 0
	q.sent.add(-u, at, q.span())
	if q.asked.Equal(at) {
		q.asked = time.Time{}
	}
	for i := len(q.log) - 1; i >= 0; i-- {
		if q.log[i].at.Equal(at) {
			q.sum -= q.log[i].units
			q.log = append(q.log[:i], q.log[i+1:]...)
			return
		}
	}
}

// landed notes that a call of n units has its answer.
func (q *ToldQuota) landed(n int) {
	q.Calls = max(0, q.Calls-1)
	if q.Units -= q.weight(n); q.Calls == 0 || q.Units < 0 {
		q.Units = 0
	}
	q.answers += q.weight(n)
}

// spent returns until when nothing is left of the quota; zero if something is.
func (q *ToldQuota) spent(now time.Time) time.Time {
	q.turn(now)
	if q.shut.After(now) {
		return q.shut
	}
	if q.roll || q.alone(now) && q.logs() || q.left >= 1 {
		return time.Time{}
	}
	return q.until
}

// after predicts when a call of n units starts that has ahead units before it.
func (q *ToldQuota) after(from time.Time, ahead int64, n int, spread time.Duration) time.Time {
	m := moment.Latest(from, q.shut)
	if r := q.pace(from, spread); !math.IsInf(r, 1) {
		m = moment.Latest(m, q.next).Add(time.Duration(min(float64(ahead)*q.weight(1)/r*1e9, float64(moment.MaxBelief))))
	}
	lack := float64(ahead)*q.weight(1) + q.weight(n) - q.remaining(from)
	if lack <= 0 || q.roll {
		return m
	}
	windows := math.Ceil(lack/q.size) - 1 // more than the next one
	return moment.Latest(m, q.until.Add(time.Duration(min(windows*float64(q.window), float64(moment.MaxBelief)))))
}
