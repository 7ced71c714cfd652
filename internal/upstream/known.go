package upstream

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/quota"
)

// This file is what observers see of what was learned.

// A Known is one limit that a key has learned of.
type Known = quota.Known

// Learned is what observers see of what was learned; nil: nothing.
func (s *State) Learned(now time.Time) []Known {
	all := s.quotas.Known(now)
	if s.provenFlight() {
		all = append(all, foundFlight(s.flight().Most()))
	}
	if held, ok := s.search().Held(now); ok && held <= s.limits.Pace(now) {
		k := foundRate(held)
		k.Configured = s.tooHigh(held)
		all = append(all, k)
	}
	return all
}

// tooHigh is the limit of ours that is above the rate that was found, in units a second; 0: none is. Of several it is the
// slowest, as of the line's Stats. An infinite limit and that of a foreign limiter count for none. What a long window lets go in
// a burst is not configured as a rate. Example: of 5,000 an hour, 1.4/s, up to 8.3/s may go at first (Pace). If 5/s are found to be
// accepted, the limit of ours is not too high.
//
// found rate.Inf: nothing is held, and it is the limit of ours that holds alone.
func (s *State) tooHigh(found rate.Limit) rate.Limit {
	if ours := s.limits.Rate(); ours < rate.Inf && (ours > found || found == rate.Inf) {
		return ours
	}
	return 0
}

// foundRate is a limit that was found: it has only a rate.
func foundRate(r rate.Limit) Known {
	return Known{Source: "throttled", Limit: -1, Remaining: -1, Reset: -1, Rate: r}
}
