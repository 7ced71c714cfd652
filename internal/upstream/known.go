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
}

// Learned is what observers see of what was learned; nil: nothing.
func (s *State) Learned(now time.Time) []Known {
	if s.learned == nil {
		return nil
	}
	return s.learned.known(now)
}

// known lists each quota that has not lapsed once, although several scopes may share it, and the finder.
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
	if l.finder != nil && l.finder.phase != aside {
		all = append(all, l.finder.view(now))
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
	if end := limit.Latest(q.until, q.closedUntil); !end.IsZero() {
		k.Reset = max(0, end.Sub(now))
	}
	return k
}

// view is what observers see of the finder: a limit that has only a rate.
func (f *finder) view(now time.Time) Known {
	return Known{Source: "refusals", Limit: -1, Remaining: -1, Reset: -1, Rate: rate.Limit(f.rate(now))}
}
