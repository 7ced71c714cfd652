package upstream

import (
	"time"

	"golang.org/x/time/rate"
)

// This file decides when a search begins, and what the finder is shown.
const (
	watchEvents = 3    // throttled answers, each of another epoch: so many begin a search beside a known limit,
	watchShare  = 0.03 // if they are such a share of the answers since the first of them, or the gate was closed for it of the time
)

// A watch counts throttled answers beside a known limit, before a search begins.
type watch struct {
	began             time.Time
	closed            time.Duration // what the gate's clock of closed time showed then
	events, throttled float32       // throttled answers of distinct epochs; all
	served            float64       // before it began
}

// seek shows the finder, if there is one or has to be from now on, what an attempt has shown, and returns the rate if that is
// new. wait is what the upstream asked for; current is as in sight. An answer that says that the upstream is in trouble, and one
// that a quota explains, says nothing of a rate.
func (s *State) seek(a *Answer, wait time.Duration, scope uint8, current bool, now time.Time) (news []Known) {
	throttled := a.Outcome == Throttled
	switch {
	case !throttled && a.Outcome != Success, a.inTrouble(),
		throttled && s.learned != nil && s.learned.explains(scope, a.Cost, now):
		return nil
	}
	f := s.found(now)
	had := f != nil
	switch {
	case had || !throttled:
	case !s.limited(scope, now):
		s.watch = nil // it was beside a limit that does not hold here
		f = s.search(a, wait, now)
	default:
		f = s.searchBeside(a, current, now)
	}
	if f == nil {
		return nil
	}
	units := float64(max(1, a.Cost))
	seen := sight{
		units: units, inFlight: units * float64(max(0, a.InFlight-1)), sent: a.Sent, now: now, current: current,
		until: s.gate.Reopens(now), advertised: wait > 0, clock: s.gate.ClosedTime(now), srtt: s.gate.SmoothedTrip(),
	}
	switch {
	case !throttled:
		f.accept(&seen)
	case f.throttle(&seen), !had && f.phase == holding:
		return []Known{f.view(now)}
	}
	return nil
}

// found returns the finder, nil if there is none or its search is over. A probe to a configured rate begins anew if that is raised.
func (s *State) found(now time.Time) *finder {
	if s.learned == nil || s.learned.finder == nil {
		return nil
	}
	f, configured := s.learned.finder, float64(s.limits.Pace(now))
	if configured > f.configured && f.phase == probing {
		f.since = now
	}
	if f.configured = configured; f.over(now) {
		s.learned.finder, s.watch = nil, nil
	}
	return s.learned.finder
}

// limited reports whether a finite limit is known: ours, or an advertised one.
func (s *State) limited(scope uint8, now time.Time) bool {
	return s.limits.Pace(now) < rate.Inf || s.learned != nil && len(s.learned.scope(scope).quotas) > 0
}

// searchBeside notes a throttled answer beside a known limit, and makes a finder if it is time to search for a lower one. If calls
// go about as fast as is configured, that is too high by a little. Otherwise it begins with a ramp, beside a quota with what was served.
func (s *State) searchBeside(a *Answer, current bool, now time.Time) *finder {
	clock, served := s.gate.ClosedTime(now), s.servedCount(a)
	if s.watch == nil {
		s.watch = &watch{began: now, closed: clock, served: served}
	}
	w := s.watch
	if w.throttled++; current {
		w.events++
	}
	until := s.gate.Reopens(now)
	if w.events < watchEvents || until.Sub(w.began) < longEnough || s.gate.Paused(now) {
		return nil
	}
	s.watch = nil
	all, closed := until.Sub(w.began).Seconds(), (until.Sub(now) + clock - w.closed).Seconds()
	sent, configured := served-w.served+float64(w.throttled), float64(s.limits.Pace(now))
	if served -= w.served; served <= 0 || float64(w.throttled) < watchShare*sent && closed < watchShare*all {
		return nil
	}
	f := newFinder(holding, served/all, configured, now, until, clock)
	f.check.evidence = -settleOdds // the first cuts may not go down far enough
	switch {
	case f.held < configured && sent >= keepFirst*configured*(all-closed):
		f.held, f.keep, f.guess = keepMost*configured, keepMost, false
		f.plan(until.Sub(now).Seconds())
	case configured < float64(rate.Inf): // what was served may be all that was wanted
		f.phase, f.held = ramping, max(rampStart, f.held)
	}
	return s.begin(f)
}

// search makes a finder at the first throttled answer: to ramp up at every unknown host would slow each of the many without a limit.
func (s *State) search(a *Answer, wait time.Duration, now time.Time) *finder {
	f := newFinder(ramping, max(rampStart, s.servedRate(a, now)), float64(rate.Inf), now, s.gate.Reopens(now), s.gate.ClosedTime(now))
	if f.double, f.span = max(rampDouble, s.gate.SmoothedTrip()), float64(rate.Inf); wait > 0 && a.Known < longEnough {
		f.span = (a.Known + wait).Seconds()
	}
	f.suppose(s.servedCount(a))
	f.check.first, f.check.began, f.check.since.answered = a.Sent, now, s.servedCount(a)
	return s.begin(f)
}

// searchAfterOutage begins a search with the success of a probe, where no limit is known: what waits would all go at once.
func (s *State) searchAfterOutage(a *Answer, scope uint8, now time.Time) {
	served, ok := s.gate.EndsOutage(a.Epoch)
	if !ok || a.Outcome != Success || s.limited(scope, now) || s.learned != nil && s.learned.finder != nil {
		return
	}
	f := newFinder(ramping, max(rampStart, served), float64(rate.Inf), now, now, s.gate.ClosedTime(now))
	f.double, f.burst = max(reopenDouble, s.gate.SmoothedTrip()), -1
	s.begin(f)
}

// begin begins a search.
func (s *State) begin(f *finder) *finder {
	s.startLearning()
	s.learned.finder, s.watch = f, nil
	return f
}
