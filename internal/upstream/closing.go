package upstream

import (
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// This file says how long calls that wait will be held back, and whether that is too long for them.

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
func (s *State) Closing(now time.Time) Closing {
	g := &s.gate
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

// ClosedTime is a clock that runs only while the gate is closed: how much of a call's time that was is the
// difference of two readings.
func (s *State) ClosedTime(now time.Time) time.Duration { return s.gate.closedTime(now) }

// What holds a call back as far as the upstream is concerned, as observers see it. After HeldByGate comes the cause.
const (
	HeldByGate       = "gate:"
	HeldByReopening  = "gate:reopening"
	heldByMeeting    = "gate:first-contact"
	heldByAdvertised = "limit:advertised"
	heldByFound      = "limit:found"
)

// Held is what holds a call of that scope and cost back at now, were it alone, and until when; "": nothing does, and a
// zero moment: nobody knows. Example: closed for 2 s, and 5 s until a spent quota is back: "limit:advertised", 5 s.
func (s *State) Held(scope uint8, cost int, now time.Time) (by string, until time.Time) {
	if s.gate.breaker != nil {
		open, ok := s.gate.nextStart(now, s.pace(now))
		if by = s.gate.holding(); !ok {
			return by, time.Time{}
		}
		until = open
	}
	if s.learned != nil {
		if m := s.learned.quotasReady(scope, cost, now, now); m.After(until) {
			by, until = heldByAdvertised, m
		}
		if f := s.learned.finder; f != nil && f.next.After(until) {
			by, until = heldByFound, f.next
		}
	}
	if !until.After(now) {
		return "", now
	}
	return by, until
}

// holding is how observers see that the gate holds calls back. It has a breaker.
func (g *gate) holding() string {
	switch {
	case g.cause != Open:
		return HeldByGate + string(g.cause)
	case g.mode == meeting:
		return heldByMeeting
	}
	return HeldByReopening
}

// Patience reports how long a call of that scope has still to wait for the upstream as far as is known, and
// whether that is too long: the upstream may serve nobody for most (negative: for as long as it likes), counted from the
// first closing after its last success. first: nobody else waits before it.
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
func (s *State) Patience(most time.Duration, scope uint8, first bool, now time.Time) (wait time.Duration, over bool) {
	if most < 0 {
		return 0, false
	}
	g := &s.gate
	ends := g.unservedSince(now).Add(most)
	if s.learned != nil {
		if end := s.learned.spent(scope, now); end.After(ends) {
			return end.Sub(now), true
		}
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

// SpentUntil is until when an advertised quota holds back the calls of that scope; zero: none does.
func (s *State) SpentUntil(scope uint8, now time.Time) (until time.Time) {
	if s.learned != nil {
		until = s.learned.spent(scope, now)
	}
	return until
}

// PatienceEnds is when calls that wait leave, if the gate is still closed then; zero: they do not. A closing until a known
// moment is weighed as a whole when it begins, so only while the gate probes does patience run out on the way, and not
// before the floor. Example: with 60 s, 20 s after the first closing since the last success, in 40 s; if somebody has
// paused the gate for 50 s meanwhile, in 90 s.
func (s *State) PatienceEnds(most time.Duration, now time.Time) time.Time {
	g := &s.gate
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
func (g *gate) unservedSince(now time.Time) time.Time {
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

// Before is the units that go before a call: all in its own line, those of them that fall under the same
// quotas, and in all lines at the shared limiter.
type Before struct{ All, Scope, Shared int64 }

// Predict is when a call of n units starts as far as the upstream is concerned, with so many before it.
// Example: closed for 2 s and 100/s known, with 50 units before it: in 2.5 s, unless a quota needs longer.
func (s *State) Predict(scope uint8, before Before, n int, now time.Time) time.Time {
	g := &s.gate
	from := g.reopens(now)
	at := from
	if g.breaker != nil && (g.cause != Open || g.mode == paced) {
		open := from
		if g.cause == Open {
			open = limit.Latest(from, g.next)
		}
		at = open.Add(limit.UnitTime(int(min(before.All, 1<<31)), s.pace(now)))
	}
	if s.learned != nil {
		at = limit.Latest(at, s.learned.after(scope, from, before, n))
	}
	return at
}
