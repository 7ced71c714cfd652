package upstream

import (
	"time"

	"golang.org/x/time/rate"
)

// This file finds out that a configured limit is too high, and has a finder search for the true one below it.
//
// Example: 100/s are configured and the upstream accepts 70. At 100/s every third or fourth call is throttled.
// After eight such events within 10 s of each other a finder begins at what was accepted, about 70/s; then 1.2 %
// are throttled instead of 19. If a finder is of little use it goes: throttled answers that come at random, from
// a broken node say, do not become fewer when calls do.

const (
	// A finder begins after tooHighEvents throttled answers, each of another epoch and at most tooHighGap after
	// the one before. A stray one, or a burst that met another client's, is not followed by seven more.
	tooHighEvents = 8
	tooHighGap    = 10 * time.Second

	// Besides, tooHighShare of the answers must be throttled, or the gate closed for tooHighClosed of the time.
	// With less a finder would make it worse: its probes alone cost 1 %.
	tooHighShare  = 0.03
	tooHighClosed = 0.1

	// And tooHighLeast of the configured rate must be accepted: what accepts less is not a slower limit, it is an
	// upstream in an outage.
	tooHighLeast = 0.3

	// A finder that has risen to tooHighOver of the configured rate holds nothing back, and goes. One that has
	// fallen to tooHighGivesUp of it cannot be right, and goes too; the next one is tried after tooHighRetry.
	tooHighOver    = 1.05
	tooHighGivesUp = tooHighLeast / 2
	tooHighRetry   = 10 * time.Minute
)

// A tooHighCheck counts throttled answers beside a configured limit. While there is a finder it counts what
// that one is good for.
type tooHighCheck struct {
	events    int       // throttled answers of distinct epochs
	began     time.Time // the counting
	last      time.Time // the latest throttled answer
	served    float64   // attempts served when it began
	throttled float64   // since then
	closed    float64   // seconds, since then
	retryAt   time.Time // no other finder before then, as the last was of little use; zero: it was not
}

// finderBesideLimit is finder where there is a limit of ours. It is made when throttled answers keep coming, and
// can only tighten. It goes when it holds nothing back, when it is so slow that it cannot be right, and when
// being slower has not helped.
func (s *State) finderBesideLimit(a *Answer, scope uint8, current bool, now time.Time) *finder {
	l := s.learned
	if l != nil && l.finder != nil {
		if a.Outcome == Throttled {
			s.tooHigh.throttled++
			if current {
				s.tooHigh.closed += s.gate.reopens(now).Sub(now).Seconds()
			}
		}
		switch pace := float64(s.limits.Pace(now)); {
		case l.finder.rate(now) > tooHighOver*pace:
			l.finder, s.tooHigh = nil, nil
		case l.finder.held() < tooHighGivesUp*pace, l.finder.cutCount() >= tooHighEvents && s.tooHigh.pointless(s, a, now):
			l.finder, s.tooHigh = nil, &tooHighCheck{retryAt: now.Add(tooHighRetry)}
		}
		return l.finder
	}
	if a.Outcome != Throttled || l != nil && l.explains(scope, now) || !s.limitTooHigh(a, current, now) {
		return nil
	}
	if l == nil {
		s.startLearning()
	}
	accepted := (1 - s.tooHigh.throttledShare(s, a)) * float64(s.limits.Pace(now)) // about
	s.learned.finder = newFinderAt(accepted, now, s.gate.reopens(now))
	s.tooHigh = &tooHighCheck{began: now, served: s.servedCount(a)}
	return s.learned.finder
}

// throttledShare is how much of what was answered has been throttled since the counting began: 30 throttled and
// 70 served are 0.3.
func (c *tooHighCheck) throttledShare(s *State, a *Answer) float64 {
	return c.throttled / max(1, c.throttled+s.servedCount(a)-c.served)
}

// pointless reports whether as much is throttled, or closed, as if nothing were held back. It is asked after
// tooHighEvents cuts: by then a true limit would have been found.
func (c *tooHighCheck) pointless(s *State, a *Answer, now time.Time) bool {
	return c.throttledShare(s, a) > tooHighShare || c.closed > tooHighClosed*now.Sub(c.began).Seconds()
}

// limitTooHigh notes a throttled answer and reports whether it is time to search for a slower rate. A stray
// one, a burst that met another, and an upstream that serves hardly anything are no reason to.
func (s *State) limitTooHigh(a *Answer, current bool, now time.Time) bool {
	c := s.tooHigh
	if c == nil || c.retryAt.IsZero() && now.Sub(c.last) > tooHighGap || !c.retryAt.IsZero() && now.After(c.retryAt) {
		c = &tooHighCheck{began: now, served: s.servedCount(a)}
		s.tooHigh = c
	}
	c.last = now
	c.throttled++
	if current {
		c.events++
		c.closed += s.gate.reopens(now).Sub(now).Seconds()
	}
	if c.events < tooHighEvents || !c.retryAt.IsZero() {
		return false
	}
	pace, took, served := s.limits.Pace(now), now.Sub(c.began).Seconds(), s.servedCount(a)-c.served
	worth := c.throttledShare(s, a) >= tooHighShare || c.closed >= tooHighClosed*(took+c.closed)
	return worth && served > 0 && pace > 0 && pace < rate.Inf && served >= tooHighLeast*float64(pace)*max(0, took-c.closed)
}
