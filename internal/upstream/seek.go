package upstream

import (
	"time"

	"golang.org/x/time/rate"
)

// This file decides when a search begins and ends, and what the finder is shown.

const (
	// Beside a known limit, of ours or advertised, a search begins after watchEvents throttled answers, each of
	// another epoch, if watchShare of the answers since the first of them were throttled. With less a search would
	// make it worse: its probes alone cost 1 %.
	watchEvents = 8
	watchShare  = 0.03

	// If more was accepted before the first throttled answer than a bucket's burst is likely to be, it is taken for a
	// window, as long as the time it took and the advertised pause: 100 calls in 0.2 s and a pause of 0.8 s make 100 a
	// second. keepWindow of that are held, if it is leastWindow units a second or more (TestFinderShortRuns).
	keepWindow  = 0.95
	leastWindow = 80.0
)

// A watch counts throttled answers beside a known limit, before a search begins.
//
// Example: 100/s are configured and the upstream accepts 70. At 100/s every third or fourth call is throttled.
// After eight such events a search begins at what was served, about 70/s; then 1.2 % are throttled instead of
// 19. One call in a hundred that is throttled at random begins none.
type watch struct {
	began             time.Time
	events            int     // throttled answers of distinct epochs
	throttled, served float64 // answers; those served before it began
}

// seek shows the finder, if there is one or has to be from now on, what an attempt has shown, and returns
// the rate if that is new. wait is what the upstream asked for. current: the attempt was sent in the epoch that
// was current before its own answer, so it can be a new event and cut the rate.
//
// An answer that says that the upstream is in trouble, and one that a quota explains, says nothing of a rate.
func (s *State) seek(a *Answer, wait time.Duration, scope uint8, current bool, now time.Time) (news []Known) {
	throttled := a.Outcome == Throttled
	switch {
	case !throttled && a.Outcome != Success, a.inTrouble(),
		throttled && s.learned != nil && s.learned.explains(scope, now):
		return nil
	}
	f := s.found(now)
	had := f != nil && !f.over(now)
	switch {
	case had || !throttled:
	case !s.limited(scope, now):
		s.watch = nil // it was beside a limit that does not hold here
		f = s.search(a, wait, now)
	case s.limitTooHigh(a, current, now):
		f = s.search(a, wait, now)
	}
	switch {
	case f == nil:
	case !throttled:
		f.accept(float64(max(1, a.Cost)), a.Sent, now, current)
	case f.throttle(a.Sent, now, s.gate.reopens(now), current, wait > 0, s.gate.srtt, float64(max(0, a.InFlight-1)*max(1, a.Cost))), !had && f.phase == holding:
		return []Known{f.view(now)}
	}
	return nil
}

// found returns the finder, nil if there is none. It goes when its rate is above the configured one, so that it holds
// nothing back any more.
func (s *State) found(now time.Time) *finder {
	if s.learned == nil || s.learned.finder == nil {
		return nil
	}
	if f := s.learned.finder; f.phase != aside && f.rate(now) > float64(s.limits.Pace(now)) {
		s.learned.finder, s.watch = nil, nil
	}
	return s.learned.finder
}

// limited reports whether a limit is known: ours, or one that is advertised for the scope. An infinite one and that
// of a foreign limiter count for none.
func (s *State) limited(scope uint8, now time.Time) bool {
	return s.limits.Pace(now) < rate.Inf || s.learned != nil && len(s.learned.scope(scope).quotas) > 0
}

// limitTooHigh notes a throttled answer beside a known limit and reports whether it is time to search for a lower
// one. An upstream that has served nothing is no slower one.
func (s *State) limitTooHigh(a *Answer, current bool, now time.Time) bool {
	if s.watch == nil {
		s.watch = &watch{began: now, served: s.servedCount(a)}
	}
	w := s.watch
	w.throttled++
	if current {
		w.events++
	}
	if w.events < watchEvents {
		return false
	}
	served := s.servedCount(a) - w.served
	if served > 0 && w.throttled >= watchShare*(w.throttled+served) {
		return true
	}
	s.watch = nil
	return false
}

// search makes a finder at a throttled answer: to ramp up slowly at every unknown host would slow each of the many
// that have no limit. Its first burst costs at most the calls in flight. Beside a known limit it begins with what
// was served since the first throttled answer, and one that was put aside with what was served since.
func (s *State) search(a *Answer, wait time.Duration, now time.Time) *finder {
	if s.learned == nil {
		s.startLearning()
	}
	l, until := s.learned, s.gate.reopens(now)
	switch old, w := l.finder, s.watch; {
	case old != nil:
		l.finder = newFinder(holding, old.units/now.Sub(old.lastCut).Seconds(), now, until)
		l.finder.check, l.finder.random.last = old.check.again(), old.random.share
	case w != nil:
		l.finder = newFinder(holding, (s.servedCount(a)-w.served)/max(1e-3, now.Sub(w.began).Seconds()), now, until)
	default:
		l.finder = newFinder(ramping, max(rampStart, s.servedRate(a, now)), now, until)
		l.finder.burst, l.finder.double = s.servedCount(a), max(rampDouble, s.gate.srtt)
		if w := keepWindow * s.servedCount(a) / (a.Known + wait).Seconds(); wait > 0 && w >= leastWindow {
			l.finder = newFinder(holding, w, now, until)
			l.finder.plan(wait.Seconds())
		}
		l.finder.check.begin(a.Sent, now, s.servedCount(a))
	}
	s.watch = nil
	return l.finder
}

// servedCount is how many attempts have been served, about: those sent, neither throttled nor under way. Failures
// are among them; they are few, or the gate is closed.
func (s *State) servedCount(a *Answer) float64 {
	return max(0, float64(s.sent)-float64(s.throttled)-float64(max(0, a.InFlight)))
}

// servedRate is the rate that the upstream has answered so far while the gate was open, 0 if that has not
// been long: 600 answers in 12 s, 2 s of them behind a closed gate, are 60 a second. Where nothing was throttled,
// the upstream can serve that rate.
func (s *State) servedRate(a *Answer, now time.Time) float64 {
	open := a.Known - s.gate.closedTime(now)
	if open < longEnough {
		return 0
	}
	return s.servedCount(a) / open.Seconds()
}
