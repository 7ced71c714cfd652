package upstream

import (
	"slices"
	"time"

	"github.com/go-throttle/throttle/hint"
)

// This file is what a State makes of the answer to an attempt.

// An Answer is what an attempt has shown.
type Answer struct {
	// How it ended.
	Outcome Outcome
	Status  uint16        // of the answer; 0: there was none
	Cut     bool          // the caller's deadline has ended it: the round trip would have been longer
	Trip    time.Duration // the round trip; 0: not measured
	Hint    *hint.Hint    // what the answer says of limits

	// How it began: what Start and Epoch said then.
	Counted bool      // its quotas have counted its start
	Scope   uint8     // that it started in
	Epoch   uint32    // that it started in
	Call    uint64    // which call it belongs to; another for each call
	Cost    int       // units
	Sent    time.Time // when it started

	// The route that has answered. After a redirect it need not be the one that was asked for.
	Host, Path string

	// InFlight is how many attempts of the key are under way, this one included.
	InFlight int
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
	// Moved: all calls that wait fall under Scope now.
	Moved bool
	// Scope is that of the answer's route.
	Scope uint8
}

// Observe takes in what an attempt has shown, in this order: the quotas that its answer advertises, the
// closing of the gate, the finder. The order matters for a throttled answer: one that an advertised
// quota explains closes that quota and not the gate, and does not start a search.
//
// Example: 429 with "x-ratelimit-remaining: 0" and a reset in 8 s. The quota has nothing left until then, which
// explains the answer; the gate stays open for routes of other scopes. The same 429 without these fields closes
// the gate for one unit's time, and a finder begins to search.
func (s *State) Observe(a *Answer, now time.Time) (o Observation) {
	s.observeQuotas(a, &o, now)
	pace := s.pace(now)
	s.gate.settle(now, pace) // the rate that was found is the one to reopen at
	r := report{outcome: a.Outcome, epoch: a.Epoch, call: a.Call, status: a.Status, trip: a.Trip, cut: a.Cut}
	switch {
	case a.Outcome == Throttled:
		s.throttled++
		o.Wait = advertisedWait(a.Hint)
		r.wait = o.Wait
		pace = s.limits.Pace(now) // a rate that was found counts for a reopening, not for a closing's length
		if s.learned != nil && s.learned.closeQuotas(o.Scope, a.Hint, now) {
			r.outcome = Success // the quota holds its calls back: others may go on
		}
	case a.Hint.Throttled: // and final for its own call
		s.throttled++
	}
	before := s.gate.epoch
	current := a.Epoch == before
	o.Stopped = s.gate.observe(r, now, pace)
	s.gate.checkAnswer(before, current)
	if o.Stopped && s.gate.cause == ForFailures {
		s.gate.servedRate = s.servedRate(a, now)
	}
	o.News = append(o.News, s.seek(a, o.Wait, o.Scope, current, now)...)
	o.Stopped = o.Stopped || s.learned != nil && !s.learned.spent(o.Scope, now).IsZero()
	return o
}

// observeQuotas ends the attempt in the quotas that have counted it, and takes in those that its answer
// advertises. The first scope that is learned takes over all calls that wait: until more is known, all fall
// under its quotas. Later ones leave them where they are.
func (s *State) observeQuotas(a *Answer, o *Observation, now time.Time) {
	if a.Counted {
		o.Scope = a.Scope
		if s.learned != nil {
			s.learned.ended(a.Scope, a.Cost)
		}
	}
	if len(a.Hint.Quotas) > 0 && s.teachable(a.Hint) {
		known := len(s.learned.scopes)
		o.Scope, o.News = s.learned.observe(o.Scope, a, float64(s.sent), now)
		o.Moved = known == 1 && o.Scope > 0
	}
	if s.learned != nil {
		s.learned.trip(a.Trip)
	}
}

// Finish notes that a call has ended whose result says nothing of an upstream: its start, in that
// epoch, stands for its answer. trip is how long it took, 0: not measured.
func (s *State) Finish(epoch uint32, trip time.Duration, cut bool, now time.Time) {
	s.gate.observe(report{outcome: Success, epoch: epoch, trip: trip, cut: cut}, now, s.pace(now))
}

// advertisedWait is how long a throttled answer asks to be left alone; 0: it does not say. Without a
// Retry-After that is the latest reset of its spent quotas.
func advertisedWait(h *hint.Hint) (wait time.Duration) {
	if wait = max(0, h.RetryAfter); wait > 0 {
		return wait
	}
	for i := range h.Quotas {
		if h.Quotas[i].Remaining == 0 {
			wait = max(wait, h.Quotas[i].Reset)
		}
	}
	return wait
}

// teachable reports whether there is a learner for what h says, and makes it if something of that can
// be kept.
func (s *State) teachable(h *hint.Hint) bool {
	if s.learned == nil && slices.ContainsFunc(h.Quotas, func(t hint.Quota) bool { return useful(&t) }) {
		s.startLearning()
	}
	return s.learned != nil
}

// startLearning makes the learner. From now on every answer has to be observed.
func (s *State) startLearning() {
	s.learned = newLearner()
	s.gate.observeAll = true
	s.gate.setAlert()
}
