package gate

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/limit"
)

// This file says what others see of a gate: what holds calls back, for how long, and whether that is too long for them.

// A Closing is what is known of the gate. With Cause Open it is open, and only Count means something.
type Closing struct {
	Cause Cause
	// Over: its time is over, and the next call that asks Ready finds the gate open. Nothing else ends a closing,
	// because there is no timer.
	Over bool
	// Brief: the upstream is overloaded, and it lasts for one round trip. It bounds no retries.
	Brief bool
	// Probing: it ends with the answer to a probe, and nobody knows when.
	Probing bool
	// Erring: it is open, and nothing but 500s has come for as many answers as failures in a row would close it. It closes if that
	// goes on.
	Erring bool
	// Left is the time until the gate opens, or until the next probe is due.
	Left time.Duration
	// Floor is the time for which a pause or an advertised time keeps it closed, whatever a probe shows.
	Floor time.Duration
	// Age is the time since the closing began, without pauses by hand.
	Age time.Duration
	// Status is what was answered last, to a probe or to the call that closed the gate; 0: there was no answer.
	Status uint16
	// Probes counts those sent since the closing began.
	Probes uint32
	// Count is how many closings but brief ones were begun or extended so far. If it has changed, the gate has closed meanwhile.
	Count uint32
}

// Closing returns what is known of the gate at now.
func (g *Gate) Closing(now time.Time) Closing {
	if g.breaker == nil || g.cause == Open {
		return Closing{Count: g.closings, Erring: g.breaker != nil && g.row500 >= failuresToClose}
	}
	left, cause := max(0, g.until.Sub(now)), g.cause
	if g.pausedUntil.After(now) && !g.until.After(g.pausedUntil) { // whatever has closed it, the pause is what lasts
		cause = ForPause
	}
	return Closing{
		Cause: cause, Over: left == 0 && !g.probing, Brief: g.brief, Probing: g.probing, Left: left, Floor: max(0, g.floor.Sub(now)),
		Age: max(0, now.Sub(g.since)), Status: g.status, Probes: g.probes, Count: g.closings,
	}
}

// What holds a call back, as observers see it. After HeldBy comes the cause.
const (
	HeldBy          = "gate:"
	HeldByReopening = "gate:reopening"
	heldByMeeting   = "gate:first-contact"
)

// Held is what holds calls back, and until when, which is not ok if nobody knows. If that is over nothing does. The gate is not calm.
func (g *Gate) Held(now time.Time, pace rate.Limit) (by string, until time.Time, ok bool) {
	until, ok = g.nextStart(now, pace)
	switch {
	case g.cause != Open:
		by = HeldBy + string(g.cause)
	case g.mode == meeting:
		by = heldByMeeting
	default:
		by = HeldByReopening
	}
	return by, until, ok
}

// Patience reports how long a call has still to wait for the upstream as far as is known, and
// whether that is too long: the upstream may serve nobody for most, counted from the
// first closing after its last success. first: nobody else waits before it. spent is until when a quota holds the call back;
// zero: none does.
//
// Half a second of a minute does not count, because the refusals of one event do not come at the same moment, and
// each extends the closing. An example: eight calls are refused within 50 ms, each with a Retry-After of 60 s. The
// closing lasts for 60.05 s since the first, and all may stay. With a Retry-After of 61 s none may.
//
// Example: it may serve nobody for 60 s, and the first closing after its last success was 20 s ago.
//
//	closed for 45 s more       over: it would be 65 s
//	closed for 40 s more       calls may stay; jitter is ours and does not count, nor does half a second of a minute
//	probing                    over when the 60 s are, for calls in line and for new ones: an open circuit, as others say
//	probing, a probe is due    the first call may stay: it is the probe
//	probing, a probe is out    calls may stay until it must have its answer
//	a spent quota, 45 s        over, too, but only for calls of its scope
//	paused by hand             calls may stay: only what remains closed after the pause counts
func (g *Gate) Patience(most time.Duration, first bool, spent, now time.Time) (wait time.Duration, over bool) {
	ends := g.unservedSince(now).Add(most)
	if spent.After(ends) {
		return spent.Sub(now), true
	}
	if g.breaker == nil || g.cause == Open {
		return 0, false
	}
	wait = max(0, g.until.Sub(now))
	if !g.probing || g.floor.After(now) {
		return wait, g.until.Add(-g.jitter - min(most/120, time.Second/2)).After(ends)
	}
	answered := first && wait == 0 || g.probeOut && wait > 0 // by this call, or by the probe that is out
	return wait, !now.Before(ends) && !answered
}

// PatienceEnds is when calls that wait leave, if the gate is still closed then; zero: they do not. A closing until a known
// moment is weighed as a whole when it begins, so only while the gate probes does patience run out on the way, and not
// before the floor. Example: with 60 s, 20 s after the first closing since the last success, in 40 s; if somebody has
// paused the gate for 50 s meanwhile, in 90 s.
func (g *Gate) PatienceEnds(most time.Duration, now time.Time) time.Time {
	if most < 0 || g.breaker == nil || !g.probing {
		return time.Time{}
	}
	ends := limit.Latest(g.unservedSince(now).Add(most), g.floor)
	if g.probeOut && !ends.After(now) {
		return g.until
	}
	return ends
}

// unservedSince is since when the upstream has served nobody: now, or the end of a pause by hand, if it does.
func (g *Gate) unservedSince(now time.Time) time.Time {
	switch {
	case g.breaker == nil:
		return now
	case !g.unserved.IsZero():
		return g.unserved
	case g.cause == Open:
		return now
	}
	return limit.Latest(now, g.pausedUntil)
}

// Reopens is when the gate opens as far as is known, now if it is open. While it probes that is when the next probe
// is due, which may fail.
func (g *Gate) Reopens(now time.Time) time.Time {
	if g.breaker == nil || g.cause == Open {
		return now
	}
	return limit.Latest(g.until, now)
}

// PacedFrom is the moment from which calls that wait start at the pace, if they do: after a closing, or while the gate reopens paced.
func (g *Gate) PacedFrom(now time.Time) (from time.Time, ok bool) {
	switch {
	case g.breaker == nil || g.cause == Open && g.mode != paced:
		return now, false
	case g.cause == Open:
		return limit.Latest(now, g.next), true
	}
	return g.Reopens(now), true
}

// Foreseeable reports whether no answer has to come that nobody can foresee before so many more calls have started.
func (g *Gate) Foreseeable(calls int64, pace rate.Limit) bool {
	switch {
	case g.breaker == nil, g.cause == Open && g.mode == paced:
		return true
	case g.cause != Open && g.probing:
		return false
	case g.cause != Open:
		return calls <= 1 || pace > 0 || g.brief
	case g.mode == slowStart, g.mode == meeting:
		return int64(g.inFlight)+calls <= int64(g.allowed)
	}
	return true
}

// ClosedTime is a clock that runs only while the gate is closed, for whatever cause. How much of a call's time was closed is
// the difference of two readings, so it needs no bookkeeping for each call. Example: closed from 1 s to
// 3 s and from 10 s on, it shows 2 s at 9 s and 4 s at 12 s.
func (g *Gate) ClosedTime(now time.Time) time.Duration {
	switch {
	case g.breaker == nil || g.cause == Open:
		return g.total
	case !g.probing && now.After(g.until):
		now = g.until
	}
	return g.total + max(0, now.Sub(g.since)+g.moved)
}

// Paused reports whether somebody has paused the gate for longer than until now.
func (g *Gate) Paused(now time.Time) bool { return g.breaker != nil && g.pausedUntil.After(now) }

// EndsOutage reports whether a success of that epoch ends an outage, and the rate that was served before it; 0: not known.
func (g *Gate) EndsOutage(epoch uint32) (served float64, ok bool) {
	if g.breaker == nil || g.cause != ForFailures || !g.probing || epoch != g.epoch {
		return 0, false
	}
	return float64(g.servedRate), true
}
