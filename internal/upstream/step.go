package upstream

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/seek"
	"github.com/go-throttle/throttle/internal/step"
)

// This file is about a limit of the attempts in flight that throttled answers show, see package step. It is asked before the search for a
// rate is:
//
//	nothing   the search sees and holds all, as if there were no step
//	trial     the search is neither asked nor shown anything; the gate closes as ever, and lets all in again that the bound does
//	proven    the search is over, and a throttled answer above what is held does nothing, unless it names a time; one within it closes the gate as one
//	          at random does

// A Level stands for how many attempts were in flight, see package step.
type Level = step.Level

// LevelOf returns the level of n attempts.
func LevelOf(n int) Level { return step.LevelOf(n) }

// A flight is what throttled answers show of a limit of the attempts in flight.
type flight struct {
	step.Step
	slotted bool // calls take slots, since the second event
	loose   int  // attempts under way that began before
	told    int  // what observers have heard
}

// Slotted reports whether calls take slots, because there may be a limit of them.
func (s *State) Slotted() bool { f := s.flight(); return f != nil && f.slotted }

// Loose is how many attempts are under way without a slot.
func (s *State) Loose() int {
	if f := s.flight(); f != nil {
		return f.loose
	}
	return 0
}

// EndLoose notes the end of one.
func (s *State) EndLoose() {
	if f := s.flight(); f != nil {
		f.loose = max(0, f.loose-1)
	}
}

// MostInFlight is how many attempts may be in flight as far as was found; 0: any number.
func (s *State) MostInFlight(now time.Time) int {
	if f := s.flight(); f != nil {
		return f.Bound(now)
	}
	return 0
}

// StartAt notes an attempt that starts with so many in flight.
func (s *State) StartAt(l Level, now time.Time) {
	if f := s.flight(); f != nil {
		f.Start(l, now)
	}
}

// holdsFlight reports whether attempts in flight are held, and provenFlight whether that is proven.
func (s *State) holdsFlight() bool  { f := s.flight(); return f != nil && f.Most() > 0 }
func (s *State) provenFlight() bool { f := s.flight(); return f != nil && f.Proven() }

// searching is the search, if it is asked.
func (s *State) searching() *seek.Search {
	if s.holdsFlight() {
		return nil
	}
	return s.search()
}

// flies shows an answer to the step, if there is one or has to be from now on: the second throttled answer makes one, as a table full of
// keys that were throttled once has no room for it. What has another reason says nothing of it.
func (s *State) flies(a *Answer, scope uint8, now time.Time) step.Verdict {
	f, throttled := s.flight(), a.Outcome == Throttled
	switch {
	case !throttled && (a.Outcome != Success || f == nil), throttled && (a.inTrouble() || s.quotas.Explains(scope, a.Cost, now)):
		return step.Unknown
	case f == nil && s.throttled < 2:
		return step.Unknown
	case f == nil:
		f = new(flight)
		s.find().flight = f
	}
	v := f.Observe(&step.Sight{
		Level: a.Level, InFlight: max(0, a.InFlight-1), Throttled: throttled, Random: s.search().LikelyRandom(), Wait: a.Hint.Wait(), Sent: a.Sent, Now: now,
	})
	if !f.slotted && f.Twice() {
		if f.slotted = true; a.Slots == 0 {
			f.loose = max(0, a.InFlight-1)
		}
		s.startLearning()
	}
	if f.Proven() {
		s.search().End()
	}
	return v
}

// flightNews is the limit of attempts in flight that was found, if it is proven, and new to observers or another by more than a tenth.
func (s *State) flightNews() []Known {
	if !s.provenFlight() {
		return nil
	}
	f := s.flight()
	most, told := f.Most(), f.told
	if told > 0 && max(most-told, told-most) <= max(1, told/10) {
		return nil
	}
	f.told = most
	return []Known{foundFlight(most)}
}

// foundFlight is a limit of attempts in flight that was found.
func foundFlight(most int) Known {
	return Known{Source: "throttled", Unit: "in-flight", Limit: int64(most), Remaining: -1, Reset: -1, Rate: rate.Inf}
}
