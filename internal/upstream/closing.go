package upstream

import (
	"time"

	"github.com/go-throttle/throttle/internal/gate"
	"github.com/go-throttle/throttle/internal/limit"
)

// This file says how long calls that wait will be held back, and whether that is too long for them.

// A Closing is what is known of the gate.
type Closing = gate.Closing

// Why it is closed, as far as anybody else asks.
const (
	Open          = gate.Open
	ForRetryAfter = gate.ForRetryAfter
	ForPause      = gate.ForPause
)

// Closing returns what is known of the gate at now.
func (s *State) Closing(now time.Time) Closing { return s.gate.Closing(now) }

// ClosedTime is a clock that runs only while the gate is closed: how much of a call's time that was is the
// difference of two readings.
func (s *State) ClosedTime(now time.Time) time.Duration { return s.gate.ClosedTime(now) }

// What holds a call back as far as the upstream is concerned, as observers see it. After HeldByGate comes the cause.
const (
	HeldByGate       = gate.HeldBy
	HeldByReopening  = gate.HeldByReopening
	heldByAdvertised = "limit:advertised"
	heldByFound      = "limit:found"
)

// Held is what holds a call of that scope and cost back at now, were it alone, and until when; "": nothing does, and a
// zero moment: nobody knows. Example: closed for 2 s, and 5 s until a spent quota is back: "limit:advertised", 5 s.
func (s *State) Held(scope uint8, cost int, now time.Time) (by string, until time.Time) {
	if !s.gate.Calm() {
		var ok bool
		if by, until, ok = s.gate.Held(now, s.pace(now)); !ok {
			return by, time.Time{}
		}
	}
	if m := s.quotas.Ready(scope, cost, now, now); m.After(until) {
		by, until = heldByAdvertised, m
	}
	if m := s.searching().Next(); m.After(until) {
		by, until = heldByFound, m
	}
	if !until.After(now) {
		return "", now
	}
	return by, until
}

// Patience reports how long a call of that scope has still to wait for the upstream as far as is known, and whether that is
// too long: the upstream may serve nobody for most (negative: for as long as it likes). first: nobody else waits before it.
func (s *State) Patience(most time.Duration, scope uint8, first bool, now time.Time) (wait time.Duration, over bool) {
	if most < 0 {
		return 0, false
	}
	return s.gate.Patience(most, first, s.SpentUntil(scope, now), now)
}

// PatienceEnds is when calls that wait leave, if the gate is still closed then; zero: they do not.
func (s *State) PatienceEnds(most time.Duration, now time.Time) time.Time {
	return s.gate.PatienceEnds(most, now)
}

// SpentUntil is until when an advertised quota holds back the calls of that scope; zero: none does.
func (s *State) SpentUntil(scope uint8, now time.Time) time.Time { return s.quotas.Spent(scope, now) }

// Before is the units that go before a call: all in its own line, those of them that fall under the same
// quotas, and in all lines at the shared limiter.
type Before struct{ All, Scope, Shared int64 }

// Predict is when a call of n units starts as far as the upstream is concerned, with so many before it.
// Example: closed for 2 s and 100/s known, with 50 units before it: in 2.5 s, unless a quota needs longer. Units of other scopes
// count for the search alone: they wait for quotas of their own. With 70 units before it in the line, 50 of them in its
// scope, a quota at 10/s lets it go in 5 s, a search that holds 10/s in 7 s.
func (s *State) Predict(scope uint8, before Before, n int, now time.Time) time.Time {
	from := s.gate.Reopens(now)
	at := from
	if open, ok := s.gate.PacedFrom(now); ok {
		at = open.Add(limit.UnitTime(int(min(before.All, 1<<31)), s.pace(now)))
	}
	at = limit.Latest(at, s.quotas.After(scope, from, before.Scope, n))
	return limit.Latest(at, s.searching().After(from, before.All))
}

// Foreseeable reports whether Predict knows when so many more calls of a scope will have started: no answer has to come
// first that nobody can foresee, as a probe's, those that a slow start waits for, or one that says when units are back;
// and no limit is searched for, whose rate is not known yet. What is paced is known: by a configured limit, a quota
// whose window is advertised, or a rate that was found and is held. How long an outage lasts is known to nobody, so the
// time until the next probe is the least that a call waits, and not what to show to a user.
//
// Example: after a closing without a known limit, one call goes, and each success lets one more be in flight. When the
// first goes is known, and for the second it is not.
func (s *State) Foreseeable(scope uint8, calls int64, now time.Time) bool {
	if search := s.searching(); search.On() && !search.Foreseeable() {
		return false
	}
	return s.quotas.Foreseeable(scope, calls, now) && s.gate.Foreseeable(calls, s.pace(now))
}

// LatestScope is the scope whose quotas were advertised last; 0: nothing is learned. A call whose route is not known is
// most likely one of those.
func (s *State) LatestScope() uint8 { return s.quotas.Latest() }
