// Package upstream is what one key knows of the other side: whether it may be called now, and how fast.
//
//	state.go             State, the one type that others use: how it begins, what starts, what is idle
//	observe.go           what it makes of an answer
//	closing.go           how long calls are held back, and whether that is too long for them
//	step.go              a limit of the attempts in flight that was found
//	known.go             what observers see of all this
//
// A call passes three of them: the gate (package gate), the quotas of its scope (package quota), the search (package seek). It may start when the last
// of them lets it. All of them can only hold calls back, beside the limiters that are configured.
//
// Example: an answer says that 40 of 100 calls a minute remain, and a minute later a 429 comes with a
// Retry-After of 2 s. From the answer on, calls of that route are spaced so that 40 last to the end of the
// window. From the 429 on the gate is closed for 2 to 2.1 s for every route. Then calls start in pace with
// the configured limit, if there is one, and with the quota.
//
// The words:
//
//	throttled   the upstream has refused an attempt for a limit: a 429 and its kin
//	advertised  said by a response: a quota, a reset, a time not to send
//	scope       the set of advertised quotas that a route falls under
//	closed      the gate stops all calls; probing: only one goes, and its answer decides
//	epoch       the gate's count of events; a stale answer is one to an attempt of an older epoch
//	paced       a reopening at the known rate; slow start: one call in flight, and one more for each success
//
// Nothing here reads a clock, sets a timer or has a lock. Moments are given by the caller, and what is over is
// noticed when somebody asks. The owner of a State guards it with its own lock, all but Alert, which is atomic.
package upstream

import (
	"net/url"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/gate"
	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/quota"
	"github.com/go-throttle/throttle/internal/seek"
)

// A State is what a key knows of its upstream. Its owner makes it with Init.
type State struct {
	gate      gate.Gate
	quotas    *quota.Book // quotas; nil while nothing is known, not even a rate that was found
	found     *found      // nil until a throttled answer came that no quota explains
	limits    *limit.Set  // what the key's calls pay
	sent      uint64      // attempts
	throttled uint64      // those of them that were throttled
}

// A found is what throttled answers have shown of limits that nobody advertises.
type found struct {
	search *seek.Search // of a rate; nil: nothing
	flight *flight      // of attempts in flight; nil: nothing
}

// find is what was found, made if it is missing, and search and flight to be asked.
func (s *State) find() *found {
	if s.found == nil {
		s.found = new(found)
	}
	return s.found
}

func (s *State) search() *seek.Search {
	if s.found == nil {
		return nil
	}
	return s.found.search
}

func (s *State) flight() *flight {
	if s.found == nil {
		return nil
	}
	return s.found.flight
}

// Init makes s the state of an unknown upstream, whose calls pay limits.
func (s *State) Init(limits *limit.Set) { s.limits = limits }

// Limits are what Init got.
func (s *State) Limits() *limit.Set { return s.limits }

// FirstContact makes a new state careful with its first calls. Without a limit, or with an infinite one, four may go until
// the first answer, see gate.FirstContact. A foreign limiter is one, whatever it allows. full: the table of keys is, so one call goes at once and those
// after it at the pace of the limit, as after a closing. Otherwise a flood of new keys would bring a burst for
// each of them.
func (s *State) FirstContact(full bool, now time.Time) {
	switch {
	case full:
		s.gate.BeginPaced(now, s.limits.Pace(now))
	case s.limits.Foreign() == 0 && s.limits.Pace(now) == rate.Inf:
		s.gate.FirstContact(now)
	}
}

// Most keys are calm for all of their life. Then the methods below are not asked at all, or cost a comparison
// of two pointers; that is what keeps an ordinary call cheap.

// Calm reports whether nothing here can hold a call back: nothing has gone wrong since all was well, and
// nothing is learned.
func (s *State) Calm() bool { return !s.gate.Busy() }

// Alert reports whether even an ordinary success must be observed. It needs no lock.
func (s *State) Alert() bool { return s.gate.Alert() }

// Epoch is what an attempt that starts now carries, so that its answer can be recognised as stale.
func (s *State) Epoch() uint32 { return s.gate.Epoch() }

// Counts returns the attempts sent, and those of them that the upstream has throttled.
func (s *State) Counts() (sent, throttled uint64) { return s.sent, s.throttled }

// A RoundTrip is what is known of how long answers take.
type RoundTrip struct {
	// Smoothed is an average of the latest ones, as TCP makes it; 0: nothing is known.
	Smoothed time.Duration
	// Measure: the next attempt's round trip is to be measured.
	Measure bool
}

// RoundTrip returns what is known of how long answers take.
func (s *State) RoundTrip() RoundTrip {
	return RoundTrip{Smoothed: s.gate.SmoothedTrip(), Measure: s.gate.Sample(s.sent)}
}

// Measure notes the round trip of a success without a hint, and reports whether that is all that Observe would do.
func (s *State) Measure(trip time.Duration) bool {
	if !s.Calm() || s.search().Watching() || s.Alert() {
		return false
	}
	s.gate.Measure(trip)
	return true
}

// AnswerTime is how long after its start a call has its answer, in all but a few cases; 0: nothing is known.
func (s *State) AnswerTime() time.Duration { return s.gate.AnswerTime() }

// Scope returns the scope of the route of url, by what is known now: the set of quotas that its calls fall under.
func (s *State) Scope(url *url.URL) uint8 {
	if s.quotas == nil {
		return 0
	}
	return s.quotas.Scope(url)
}

// MaxScopes is how many scopes a key has at most. A line looks at the first call of each at every turn.
const MaxScopes = quota.MaxScopes

// Scopes is how many scopes there are; 0: nothing is learned. With more than one, a call of another scope may
// be ready before the head of the line is.
func (s *State) Scopes() int { return s.quotas.Scopes() }

// ScopeReady is when the quotas of a scope let a call go. Something must have been learned.
func (s *State) ScopeReady(scope uint8, cost int, now time.Time) time.Time {
	return limit.Latest(s.quotas.Ready(scope, cost, now, now), s.searching().Next())
}

// Ready returns the earliest moment, not before at, at which a call of that scope and cost may start: the
// latest of what gate, quotas and search say. exact: that moment follows from a rate, so a timer that comes
// late may be made up for. It is not ok while that depends on an answer that is still out.
//
// Example: the gate reopens paced at 100/s and lets the next call go in 4 ms, its quota in 25 ms, the search at
// once. As long as the gate holds it back the answer is 4 ms, exact; asked again then, it is the other 21 ms.
func (s *State) Ready(scope uint8, cost int, at, now time.Time) (ready time.Time, exact, ok bool) {
	if !s.gate.Calm() {
		open, exact, ok := s.gate.Ready(now, s.pace(now))
		switch {
		case !ok:
			return at, false, false
		case open.After(now):
			return open, exact, true
		}
		at = limit.Latest(at, open)
	}
	return limit.Latest(s.quotas.Ready(scope, cost, at, now), s.searching().Next()), true, true
}

// ProbeDue reports whether the next call to start is the probe whose answer may open the gate.
func (s *State) ProbeDue(now time.Time) bool { return s.gate.ProbeDue(now) }

// Start notes that a call starts as of at, and reports whether its quotas have counted it: then its
// end must be observed or undone. It costs little enough that the compiler inlines it.
func (s *State) Start(scope uint8, cost int, at, now time.Time) (counted bool) {
	s.sent++
	return s.gate.Busy() && s.start(scope, cost, at, now)
}

// start is Start where something may hold calls back. It is apart so that Start costs nothing where nothing
// does.
func (s *State) start(scope uint8, cost int, at, now time.Time) (counted bool) {
	s.gate.Start(cost, at, now, s.pace(now))
	if s.quotas == nil {
		return false
	}
	s.quotas.Take(scope, cost, at)
	s.searching().Take(cost, at)
	return true
}

// Undo takes back a start as of at, in that epoch, that was not used: the gate's count or spacing, and the units of
// the quotas and the search. What was advertised since stands.
func (s *State) Undo(epoch uint32, scope uint8, counted bool, cost int, at, now time.Time) {
	s.sent--
	s.gate.Undo(epoch, cost, now, s.pace(now))
	if counted {
		s.quotas.Undo(scope, cost, at)
		s.searching().Undo()
	}
}

// LineEmpty ends a reopening. It is to be called when a call arrives and nobody waits, and when the last one
// has gone.
func (s *State) LineEmpty(now time.Time) { s.gate.LineEmpty(now) }

// Idle reports whether a state made anew would behave the same, but for what was learned: the gate is open, and its
// reopening is over or has nobody in flight. A paced reopening must end first, or dropping the key would let a
// burst go.
func (s *State) Idle(now time.Time) bool { return s.gate.Idle(now, s.pace(now)) }

// Pause closes the gate for at least d.
func (s *State) Pause(d time.Duration, now time.Time) { s.gate.Pause(d, now, s.pace(now)) }

// HoldUntil closes the gate for what the upstream has said under another key, and reports whether that is longer than
// it is closed already. status is that of the answer.
func (s *State) HoldUntil(until time.Time, status uint16, now time.Time) (longer bool) {
	return s.gate.HoldUntil(until, status, now, s.pace(now))
}

// Resume ends any closing now, and lets one call ask a quota that is spent.
func (s *State) Resume(now time.Time) {
	s.gate.Resume(now, s.pace(now))
	s.quotas.Resume(now)
	s.search().Resume(now)
}

// pace is the rate at which the gate lets calls through after a closing: of the slowest limiter, or what the
// search holds if that is less. It is looked up only where there has been a closing, because it takes the
// limiters' locks. While a search is aside and its ramp over it is unpaced, unless there is a limit of ours; also while attempts in
// flight are held, which bounds a burst.
func (s *State) pace(now time.Time) rate.Limit {
	if s.gate.Calm() {
		return 0
	}
	pace := s.limits.Pace(now)
	if s.holdsFlight() && pace == rate.Inf {
		return gate.Unpaced
	}
	if search := s.searching(); search.On() {
		found := search.Rate(now)
		if found == rate.Inf && pace == rate.Inf {
			return gate.Unpaced
		}
		pace = min(pace, found)
	}
	return pace
}
