package upstream

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/limit"
)

// This file is what observers see of what was learned.

// A Known is one limit that a key has learned of; throttle.Learned has the words.
type Known struct {
	Name, Unit string        // as advertised
	Source     string        // the header field, "body", or "refusals" for a rate that was found
	Limit      int64         // units; -1: not advertised
	Remaining  int64         // units that are left by now, as far as is known; -1: not advertised
	Reset      time.Duration // until it is back; -1: not known
	Window     time.Duration // its length; 0: not known
	Rate       rate.Limit    // at which starts are spaced; rate.Inf: they are not
	Configured rate.Limit    // of a rate that was found: the limit of ours that is too high; 0: none is
}

// Learned is what observers see of what was learned; nil: nothing.
func (s *State) Learned(now time.Time) []Known {
	if s.learned == nil {
		return nil
	}
	all := s.learned.known(now)
	if held, ok := s.search.Held(now); ok && held <= s.limits.Pace(now) {
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

// known lists each quota that has not lapsed once, although several scopes may share it.
func (l *learner) known(now time.Time) (all []Known) {
	seen := map[*quota]bool{}
	for _, a := range l.scopes {
		if a.closedUntil.After(now) {
			all = append(all, Known{Source: "Retry-After", Limit: -1, Remaining: -1, Reset: a.closedUntil.Sub(now), Rate: rate.Inf})
		}
		for _, q := range a.quotas {
			if !seen[q] && !q.lapsed(now) {
				seen[q] = true
				q.turn(now)
				all = append(all, q.view(now))
			}
		}
	}
	return all
}

// view is what observers see of the quota: as advertised last, with what is left of the window that is open.
func (q *quota) view(now time.Time) Known {
	k := Known{
		Name: q.Name, Unit: q.Unit, Source: q.Source,
		Limit: q.Limit, Remaining: q.Remaining, Reset: -1, Window: q.Window,
		Rate: rate.Limit(min(q.pace(now), float64(rate.Inf))),
	}
	if q.Remaining >= 0 {
		k.Remaining = int64(min(max(0, min(q.left-q.silent, q.size)), 1<<63-1024)) // the largest float64 that fits
	}
	end := q.closedUntil
	if !q.guessed {
		end = limit.Latest(q.until, end)
	}
	if !end.IsZero() {
		k.Reset = max(0, end.Sub(now))
	}
	return k
}

// foundRate is a limit that was found: it has only a rate.
func foundRate(r rate.Limit) Known {
	return Known{Source: "refusals", Limit: -1, Remaining: -1, Reset: -1, Rate: r}
}
