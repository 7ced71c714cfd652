package seek

import (
	"time"

	"golang.org/x/time/rate"
)

// This file decides when a search begins.
const (
	watchEvents = 3    // throttled answers, each of another epoch: so many begin a search beside a known limit,
	watchShare  = 0.03 // if they are such a share of the answers since the first of them, or the gate was closed for it of the time
)

// Observe takes in what an answer says of a rate, which begins the search if there is none and it is time. It reports whether that has
// lowered the rate that is held, or begun to hold one.
func (s *Search) Observe(a *Sight) (cut bool) {
	f := s.found(a)
	had := f != nil
	switch {
	case had || !a.Throttled:
	case !a.Limited:
		s.watch = nil // it was beside a limit that does not hold here
		f = s.first(a)
	default:
		f = s.beside(a)
	}
	switch {
	case f == nil:
		return false
	case !a.Throttled:
		f.accept(a)
		return false
	}
	return f.throttle(a) || !had && f.phase == holding
}

// found returns the finder, nil if there is none or its search is over. A probe to a configured rate begins anew if that is raised.
func (s *Search) found(a *Sight) *finder {
	f, configured := s.finder, float64(a.Configured)
	if f == nil {
		return nil
	}
	if configured > f.configured && f.phase == probing {
		f.since = a.Now
	}
	if f.configured = configured; f.over(a.Now) {
		s.begin(nil)
	}
	return s.finder
}

// beside notes a throttled answer beside a known limit, and makes a finder if it is time to search for a lower one. If calls
// go about as fast as is configured, that is too high by a little. Otherwise it begins with a ramp, beside a quota with what was served.
func (s *Search) beside(a *Sight) *finder {
	if s.watch == nil {
		s.watch = &watch{began: a.Now, closed: a.Clock, served: a.Served}
	}
	w := s.watch
	if w.throttled++; a.Current {
		w.events++
	}
	if w.events < watchEvents || a.Reopens.Sub(w.began) < LongEnough || a.Paused {
		return nil
	}
	s.watch = nil
	all, closed := a.Reopens.Sub(w.began).Seconds(), (a.Reopens.Sub(a.Now) + a.Clock - w.closed).Seconds()
	served, configured := a.Served-w.served, float64(a.Configured)
	sent := served + float64(w.throttled)
	if served <= 0 || float64(w.throttled) < watchShare*sent && closed < watchShare*all {
		return nil
	}
	f := newFinder(holding, served/all, configured, a.Now, a.Reopens, a.Clock)
	f.check.evidence = -settleOdds // the first cuts may not go down far enough
	switch {
	case f.held < configured && sent >= keepFirst*configured*(all-closed):
		f.held, f.keep, f.guess = keepMost*configured, keepMost, false
		f.plan(a.Reopens.Sub(a.Now).Seconds())
	case configured < float64(rate.Inf): // what was served may be all that was wanted
		f.phase, f.held = ramping, max(rampStart, f.held)
	}
	return s.begin(f)
}

// first makes a finder at the first throttled answer: to ramp up at every unknown host would slow each of the many without a limit.
func (s *Search) first(a *Sight) *finder {
	f := newFinder(ramping, max(rampStart, a.Rate), float64(rate.Inf), a.Now, a.Reopens, a.Clock)
	if f.double, f.span = max(rampDouble, a.Trip), float64(rate.Inf); a.Wait > 0 && a.Known < LongEnough {
		f.span = (a.Known + a.Wait).Seconds()
	}
	f.suppose(a.Served)
	f.check.first, f.check.began, f.check.since.answered = a.Sent, a.Now, a.Served
	return s.begin(f)
}

// AfterOutage begins a search with the end of an outage, before which so much was served in a second. clock and trip are as in Sight.
func (s *Search) AfterOutage(served float64, now time.Time, clock, trip time.Duration) {
	f := newFinder(ramping, max(rampStart, served), float64(rate.Inf), now, now, clock)
	f.double, f.burst = max(reopenDouble, trip), -1
	s.begin(f)
}

// begin begins a search, or ends it.
func (s *Search) begin(f *finder) *finder {
	s.finder, s.watch = f, nil
	return f
}
