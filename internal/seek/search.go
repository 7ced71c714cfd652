// Package seek searches for a limit that is not advertised, or is lower than the configured one: only throttled answers show it.
//
//	search.go   Search, what others ask of it, and what observers hear
//	begin.go    when a search begins and ends
//	finder.go   the law: ramps, holds and probes
//	check.go    whether that helps, or answers are throttled at random
//
// Nothing here reads a clock or has a lock: moments are given by the caller, who guards a Search with a lock of its own.
//
// # States of a search, all under the caller's lock
//
//	no finder  the first throttled answer, no limit known; the success of an outage's probe -> ramping
//	no finder  the third event beside a known limit, two seconds or more after the first -> holding; ramping, if the configured limit is not used up
//	ramping    an event; at full speed only what was accepted tells the rate -> holding
//	ramping    all of the ramp has met nothing -> no finder
//	holding    the hold is over -> probing
//	holding    an event: a cut -> holding, lower
//	holding    the same, and such answers are as frequent as above holds -> ramping, aside
//	probing    an event: a cut -> holding
//	probing    the configured rate was accepted for a hold's time -> no finder
//
// Nothing runs by itself: a hold ends when somebody asks for the rate, a search when an answer comes.
package seek

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/limit"
)

// A Search is what a key has found of a limit. Nil: nothing was throttled yet. What only asks may be asked of nil.
type Search struct {
	finder *finder // nil: no search is under way
	watch  *watch  // nil unless throttled answers come beside a known limit
	told   *told   // what observers know of a rate beside a limit of ours; nil: nothing
}

// A watch counts throttled answers beside a known limit, before a search begins.
type watch struct {
	began             time.Time
	closed            time.Duration // what the gate's clock of closed time showed then
	events, throttled float32       // throttled answers of distinct epochs; all
	served            float64       // before it began
}

// In less than LongEnough a burst would count for a rate.
const LongEnough = 2 * time.Second

// On reports whether a search is under way.
func (s *Search) On() bool { return s != nil && s.finder != nil }

// Watching reports whether throttled answers have come beside a known limit, so that each answer counts.
func (s *Search) Watching() bool { return s != nil && s.watch != nil }

// End ends the search.
func (s *Search) End() {
	if s != nil {
		s.finder = nil
	}
}

// Next is when the next call may start; zero: at once.
func (s *Search) Next() (at time.Time) {
	if s.On() {
		at = s.finder.next
	}
	return at
}

// Rate is the rate at which calls may start at now. A search is on.
func (s *Search) Rate(now time.Time) rate.Limit { return rate.Limit(s.finder.rate(now)) }

// Held is Rate as observers see it, and not ok if the search holds nobody back. To look changes nothing.
func (s *Search) Held(now time.Time) (r rate.Limit, ok bool) {
	if !s.On() || s.finder.aside() {
		return rate.Inf, false
	}
	then := *s.finder
	return rate.Limit(then.rate(now)), true
}

// Take counts a start of n units.
func (s *Search) Take(n int, at time.Time) {
	if s.On() {
		s.finder.take(n, at)
	}
}

// Undo takes back the last start.
func (s *Search) Undo() {
	if s.On() {
		s.finder.undo()
	}
}

// Resume lets the next call start now.
func (s *Search) Resume(now time.Time) {
	if s.On() {
		s.finder.resume(now)
	}
}

// After predicts when a call starts that has so many units before it; zero: nothing holds it back.
func (s *Search) After(from time.Time, before int64) time.Time {
	if !s.On() {
		return time.Time{}
	}
	then := *s.finder // to look ahead must not end its hold
	return limit.Latest(from, then.next).Add(limit.UnitTime(int(min(before, 1<<31)), rate.Limit(then.rate(from))))
}

// Foreseeable reports whether the rate is known for some time: what a ramp holds now is probably too low.
func (s *Search) Foreseeable() bool {
	f := s.finder
	return f.aside() || f.phase != ramping && !f.guess
}

// LikelyRandom reports whether a throttled answer is most likely one of those at random.
func (s *Search) LikelyRandom() bool { return s.On() && s.finder.likelyRandom() }

// Heard reports whether observers have heard of a rate, or may hear of one.
func (s *Search) Heard() bool { return s != nil && (s.told != nil || s.finder != nil) }

// Beside is the rate that is held beside a limit of ours, rate.Inf if none is, and whether observers should hear of it now: of those that
// were held until the next probe.
func (s *Search) Beside(ours rate.Limit, now time.Time) (held rate.Limit, news bool) {
	held = rate.Inf
	if f := s.finder; f != nil {
		switch {
		case rate.Limit(f.rate(now)) > ours:
		case f.phase == probing: // it has been held for all of a hold
			held = rate.Limit(f.held)
		default:
			return held, false
		}
	}
	if s.told == nil {
		s.told = new(told)
	}
	return held, s.told.isNews(held, now)
}

// A told is what observers have heard of the rate that was found beside a limit of ours.
type told struct {
	rate  rate.Limit // rate.Inf: the limit of ours holds alone; 0: they have heard nothing yet
	at    time.Time
	above time.Time // since when what is held is more than that; zero: it is not
}

// Observers hear of another rate beside a limit of ours if it differs by more than toldChange of what they have heard last: of a
// lower one toldEvery later at the earliest, of a higher one, or that the limit of ours holds alone, when that has lasted for
// toldAbove. What a probe lets through is often throttled soon after.
const (
	toldChange = 0.05
	toldEvery  = time.Minute
	toldAbove  = 10 * time.Minute
)

// isNews notes what is held beside a limit of ours now (rate.Inf: nothing), and reports whether observers should hear of it. They
// hear of the first one at once, because it says that the limit is too high.
//
// Example: 10/s are configured. 9.6/s are found, which is news. 9.4/s a minute later are none, 9/s are. Ten minutes after the
// search has ended, because the upstream accepts 10/s again, rate.Inf is news.
func (t *told) isNews(held rate.Limit, now time.Time) bool {
	switch {
	case float64(held) <= (1+toldChange)*float64(t.rate):
		t.above = time.Time{}
	case t.above.IsZero():
		t.above = now
	}
	news := !t.above.IsZero() && now.Sub(t.above) >= toldAbove
	switch {
	case t.rate == 0:
		news = held < rate.Inf
	case held < (1-toldChange)*t.rate:
		news = now.Sub(t.at) >= toldEvery
	}
	if news {
		*t = told{rate: held, at: now}
	}
	return news
}
