package upstream

import (
	"math"
	"time"
)

// This file decides when a finder is needed, and what it is shown.

// seek shows the finder, if there is one or has to be from now on, what an attempt has shown, and returns
// the rate if that is new. wait is what the upstream asked for. current: the attempt was sent in the epoch that
// was current before its own answer, so it can be a new event and cut the rate.
func (s *State) seek(a *Answer, wait time.Duration, scope uint8, current bool, now time.Time) (news []Known) {
	had := s.learned != nil && s.learned.finder != nil
	f := s.finder(a, wait, scope, current, now)
	if f == nil {
		return nil
	}
	switch a.Outcome {
	case Throttled:
		tightened := !had && s.limits.Own() > 0 // a limit of ours, from now on
		if f.throttle(a.Sent, now, s.gate.reopens(now), current, wait > 0, s.gate.srtt) || tightened {
			return []Known{f.view(now)}
		}
	case Success:
		f.accept(max(1, a.Cost), a.Sent, current)
	}
	return nil
}

// finder returns what searches for a limit, nil if nothing does. It is made at the first throttled answer
// that neither a limit of ours nor an advertised quota explains: to ramp up slowly at every unknown host
// would slow each of the many that have no limit. Its first burst costs at most the calls in flight. Where there
// is a limit of ours, see limit_too_high.go.
func (s *State) finder(a *Answer, wait time.Duration, scope uint8, current bool, now time.Time) *finder {
	if !s.limits.Empty() {
		return s.finderBesideLimit(a, scope, current, now)
	}
	if a.Outcome == Throttled && (s.learned == nil || s.learned.finder == nil && !s.learned.explains(scope, now)) {
		if s.learned == nil {
			s.startLearning()
		}
		s.learned.finder = newFinder(now, s.firstThrottle(a, wait, now))
	}
	if s.learned == nil {
		return nil
	}
	return s.learned.finder
}

// firstThrottle is what is known when a search begins. If the answer comes within a second of a slow start's
// beginning, that includes about how many attempts were sent and served in it: they spent the burst that had come
// back meanwhile.
func (s *State) firstThrottle(a *Answer, wait time.Duration, now time.Time) firstThrottle {
	first := firstThrottle{until: s.gate.reopens(now), burst: s.servedCount(a), window: math.Inf(1), servedRate: s.servedRate(a, now)}
	if wait > 0 {
		first.window = (now.Sub(s.born) + wait).Seconds()
	}
	if g := &s.gate; g.breaker != nil && now.Sub(g.opened) < time.Second {
		first.opened, first.srtt = g.opened, g.srtt
		first.served = g.successes + 1
		first.sent = first.served + g.inFlight + 1
	}
	return first
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
	open := now.Sub(s.born) - s.gate.closedTime(now)
	if open < longEnough {
		return 0
	}
	return s.servedCount(a) / open.Seconds()
}
