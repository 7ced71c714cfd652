package upstream

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/gate"
	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/quota"
	"github.com/go-throttle/throttle/internal/seek"
	"github.com/go-throttle/throttle/internal/step"
)

// This file is what a State makes of the answer to an attempt.

// A Counter is a meter of the key that an advertised quota mirrors. It is asked under the lock of the State.
type Counter = quota.Counter

// An Answer is what an attempt has shown.
type Answer struct {
	// How it ended.
	Outcome Outcome
	Status  uint16        // of the answer; 0: there was none
	Cut     bool          // the caller's deadline has ended it: the round trip would have been longer
	Trip    time.Duration // the round trip; 0: not measured
	Dated   bool          // it has a Date: the upstream's clock is known
	Hint    hint.Hint     // what the answer says of limits; a value, so that it can stay on the stack

	// How it began: what Start and Epoch said then.
	Counted bool      // its quotas have counted its start
	Scope   uint8     // that it started in
	Epoch   uint32    // that it started in
	Call    uint64    // which call it belongs to; another for each call
	Cost    int       // units
	Sent    time.Time // when it started
	Level   Level     // of the attempts in flight then, this one included

	// Late is how long after its receipt it is observed. Nothing held calls back meanwhile.
	Late time.Duration

	// The route that has answered. After a redirect it need not be the one that was asked for.
	Host, Path string

	// InFlight is how many attempts of the key are under way, this one included.
	InFlight int
	// Slots is how many slots the key holds.
	Slots int
	// Known is how long ago the first call of the key came.
	Known time.Duration
	// Failures is how many failures in a row close the gate; 0: as many as the gate says.
	Failures int
	// Counter returns the meter of the key that an advertised quota mirrors; nil: it mirrors none. Nil: there are no meters.
	Counter func(*hint.Quota) Counter
	// WindowFactor is how much faster than evenly long windows are used.
	WindowFactor float64
}

// An Observation is what has changed by an answer.
type Observation struct {
	// News is limits that are new, for observers.
	News []Known
	// Wait is how long the upstream wants to be left alone; 0: it has not said.
	Wait time.Duration
	// Stopped: a closing began or grew, or a quota is spent, so calls that wait may have to leave because they
	// may not wait that long.
	Stopped bool
	// Random: the attempt was throttled, as calls are at random, as far as is known.
	Random bool
	// Moved: calls that wait may fall under another scope now.
	Moved bool
	// Scope is that of the answer's route.
	Scope uint8
}

// Observe takes in what an attempt has shown, in this order: the quotas that its answer advertises, the
// attempts in flight, the closing of the gate, the search. The order matters for a throttled answer: one that an advertised
// quota explains closes that quota and not the gate, and does not start a search.
//
// Example: 429 with "x-ratelimit-remaining: 0" and a reset in 8 s. The quota has nothing left until then, which
// explains the answer; the gate stays open for routes of other scopes. The same 429 without these fields closes
// the gate for one unit's time, and a search begins.
func (s *State) Observe(a *Answer, now time.Time) (o Observation) {
	s.observeQuotas(a, &o, now)
	s.searchAfterOutage(a, o.Scope, now)
	pace := s.pace(now)
	s.gate.Settle(now, pace) // the rate that was found is the one to reopen at
	alone := false           // the answer holds its route alone
	sees := step.Unknown     // of attempts in flight
	r := gate.Report{
		Outcome: a.Outcome, Epoch: a.Epoch, Call: a.Call, Status: a.Status, Trip: a.Trip, Cut: a.Cut, Late: a.Late, Failures: a.Failures,
	}
	switch {
	case a.Outcome == Throttled:
		s.throttled++
		o.Wait = a.Hint.Wait()
		r.Wait = o.Wait
		pace, r.Random = s.closingPace(a, now)
		o.Random = r.Random
		if s.quotas.CloseQuotas(o.Scope, &a.Hint, now) {
			r.Outcome, r.Held = Success, true // the quota holds its calls back: others may go on
		} else if alone = s.closeRoute(a, &o, now); alone {
			r.Outcome, r.Held = Success, true // the route does
		} else if sees = s.flies(a, o.Scope, now); sees != step.Unknown {
			if r.Random, o.Random = true, true; pace == rate.Inf {
				pace = rate.Limit(s.servedRate(a, now))
			}
			if sees == step.Above && o.Wait == 0 {
				r.Outcome = Cancelled // it says nothing of the upstream
			}
		}
	case a.Hint.Throttled: // and final for its own call
		s.throttled++
	}
	if a.Outcome >= Neutral {
		r.Served = s.servedRate(a, now)
	}
	if r.Held {
		r.HeldUntil = s.quotas.Spent(o.Scope, now)
	}
	current := a.Epoch == s.gate.Epoch()
	o.Stopped = s.gate.Observe(r, now, pace)
	if a.Outcome != Throttled {
		s.flies(a, o.Scope, now)
	}
	if !alone && sees == step.Unknown { // otherwise it says nothing of the rate
		o.News = append(o.News, s.news(s.seek(a, o.Wait, o.Scope, current, now), now)...)
	}
	o.News = append(o.News, s.flightNews()...)
	o.Stopped = o.Stopped || !s.quotas.Spent(o.Scope, now).IsZero()
	return o
}

// seek shows the search, if there is one or has to be from now on, what an attempt has shown, and returns the rate if that is
// new. wait is what the upstream asked for; current: it was sent in the epoch that was current before the answer. An answer that says
// that the upstream is in trouble, and one that a quota explains, says nothing of a rate.
func (s *State) seek(a *Answer, wait time.Duration, scope uint8, current bool, now time.Time) (news []Known) {
	throttled := a.Outcome == Throttled
	switch {
	case s.holdsFlight():
		return nil
	case !throttled && (a.Outcome != Success || !s.search().On()), a.inTrouble(),
		throttled && s.quotas.Explains(scope, a.Cost, now):
		return nil
	}
	if s.search() == nil {
		s.find().search = new(seek.Search)
	}
	units := float64(max(1, a.Cost))
	cut := s.search().Observe(&seek.Sight{
		Throttled: throttled, Units: units, InFlight: units * float64(max(0, a.InFlight-1)), Sent: a.Sent, Now: now, Current: current, Wait: wait,
		Reopens: s.gate.Reopens(now), Paused: s.gate.Paused(now), Clock: s.gate.ClosedTime(now), Trip: s.gate.SmoothedTrip(),
		Configured: s.limits.Pace(now), Limited: s.limited(scope, now), Known: a.Known, Served: s.servedCount(a), Rate: s.servedRate(a, now),
	})
	if s.search().On() {
		s.startLearning()
	}
	if !cut {
		return nil
	}
	held, _ := s.search().Held(now)
	return []Known{foundRate(held)}
}

// searchAfterOutage begins a search with the success of a probe, where no limit is known: what waits would all go at once.
func (s *State) searchAfterOutage(a *Answer, scope uint8, now time.Time) {
	served, ok := s.gate.EndsOutage(a.Epoch)
	if !ok || a.Outcome != Success || s.limited(scope, now) || s.search().On() {
		return
	}
	if s.search() == nil {
		s.find().search = new(seek.Search)
	}
	s.search().AfterOutage(served, now, s.gate.ClosedTime(now), s.gate.SmoothedTrip())
	s.startLearning()
}

// limited reports whether a finite limit is known: ours, or an advertised one.
func (s *State) limited(scope uint8, now time.Time) bool {
	return s.limits.Pace(now) < rate.Inf || s.quotas.Any(scope)
}

// news is what observers should hear of the rate that was found: each one that was cut, or beside a limit of ours what the search
// says is news.
func (s *State) news(cut []Known, now time.Time) []Known {
	if !s.search().Heard() {
		return nil
	}
	ours := s.limits.Pace(now)
	if ours == rate.Inf {
		return cut
	}
	held, isNews := s.search().Beside(ours, now)
	if !isNews {
		return nil
	}
	k := foundRate(held)
	k.Configured = s.tooHigh(held)
	return []Known{k}
}

// observeQuotas ends the attempt in the quotas that have counted it, and takes in those that its answer
// advertises, or that it does not.
func (s *State) observeQuotas(a *Answer, o *Observation, now time.Time) {
	if s.quotas == nil && !quota.Useful(a.Hint.Quotas) {
		return
	}
	s.startLearning()
	o.Scope, o.News, o.Moved = s.quotas.Observe(&quota.Answer{
		Quotas: a.Hint.Quotas, RetryAfter: a.Hint.RetryAfter, Dated: a.Dated,
		Served: a.Outcome == Success, Throttled: a.Outcome == Throttled, Overloaded: a.Outcome == Overloaded,
		Counted: a.Counted, Scope: a.Scope, Cost: a.Cost, Sent: a.Sent, Trip: a.Trip, Host: a.Host, Path: a.Path, InFlight: a.InFlight,
		Known: a.Known, All: float64(s.sent), Well: s.servedCount(a), WindowFactor: a.WindowFactor, Counter: a.Counter,
	}, now)
}

// closeRoute reports whether a throttled answer holds its route alone.
func (s *State) closeRoute(a *Answer, o *Observation, now time.Time) bool {
	if a.Hint.RetryAfter <= 0 || a.Hint.Scope != "" || a.Host == "" {
		return false
	}
	s.startLearning()
	id, alone, forget := s.quotas.CloseRoute(quota.RouteOf(a.Host, a.Path), s.search().On(), now.Add(limit.Jittered(a.Hint.RetryAfter)), now)
	if forget {
		s.search().End()
	}
	if alone {
		o.Scope, o.Moved = id, true
	}
	return alone
}

// Finish notes that a call has ended whose result says nothing of an upstream: its start, in that
// epoch, stands for its answer. trip is how long it took, 0: not measured.
func (s *State) Finish(epoch uint32, trip time.Duration, cut bool, now time.Time) {
	s.gate.Observe(gate.Report{Outcome: Success, Epoch: epoch, Trip: trip, Cut: cut}, now, s.pace(now))
}

// inTrouble reports whether a throttled answer says that the upstream is in trouble, and not that we are too fast. It
// closes the gate for the time that it names, and starts no search.
func (a *Answer) inTrouble() bool {
	return a.Status == 503 || a.Status == 529 || a.Status == 418
}

// startLearning makes the book of quotas, if there is none. From now on every answer has to be observed.
func (s *State) startLearning() {
	if s.quotas == nil {
		s.quotas = quota.New()
		s.gate.ObserveAll()
	}
}

// closingPace is the rate by which the gate closes for one unit's time. A rate that was found does not count for
// it. Where a 429 is likely one of those at random, what is served does. An answer that says that the
// upstream is in trouble is not throttled at random.
func (s *State) closingPace(a *Answer, now time.Time) (pace rate.Limit, random bool) {
	pace = s.limits.Pace(now)
	random = s.search().LikelyRandom() && !a.inTrouble()
	if random && pace == rate.Inf {
		pace = rate.Limit(s.servedRate(a, now))
	}
	return pace, random
}

// servedCount is how many attempts have been served, about: those sent, neither throttled nor under way. Failures are among them.
func (s *State) servedCount(a *Answer) float64 {
	return max(0, float64(s.sent)-float64(s.throttled)-float64(max(0, a.InFlight)))
}

// servedRate is the rate that the upstream has answered so far while the gate was open, 0 if that has not been long: 600 answers
// in 12 s, 2 s of them behind a closed gate, are 60 a second. Where nothing was throttled it can serve that rate.
func (s *State) servedRate(a *Answer, now time.Time) float64 {
	open := a.Known - s.gate.ClosedTime(now)
	if open < seek.LongEnough {
		return 0
	}
	return s.servedCount(a) / open.Seconds()
}
