package limit

import "time"

// Settle corrects a take of held units as of at: n units is what it has cost. What was too much comes back, unless its
// window is over, and what was too little is taken now and may leave a debt. The watchers are called, so no lock may be
// held. Example: a window of 1,000 per minute, and a call of 0:50 that has held 500. At 0:55 it has cost 100, and 400
// units are there again. At 1:10 nothing comes back: the window of 1:00 has never been charged.
func (s *Set) Settle(at time.Time, held, n int) {
	for _, changed := range s.settleLocked(at, held, n) {
		(*changed)()
	}
}

// settleLocked is Settle without calling the watchers, which it returns. What was held and is right touches nothing.
func (s *Set) settleLocked(at time.Time, held, n int) (watchers []*func()) {
	if held == n {
		return nil
	}
	s = s.locked()
	defer s.unlock()
	now := time.Now()
	for _, a := range s.accounts {
		g, its := a.Parts()
		clock := its.Lift(now)
		if n < held {
			its.Refund(at, clock, held, held-n)
		} else {
			its.Adjust(clock, n-held)
		}
		its.Advance(clock)
		watchers = g.appendTo(watchers)
	}
	return watchers
}
