package quota

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/limit"
)

// This file is what observers see of quotas, and what can be foreseen.

// A Known is one limit that a key has learned of; throttle.Learned has the words.
type Known struct {
	Name, Unit string        // as advertised
	Source     string        // the header field, "body", or "throttled" for what was found: a rate, or a Limit of the Unit "in-flight"
	Limit      int64         // units; -1: not advertised
	Remaining  int64         // units that are left by now, as far as is known; -1: not advertised
	Reset      time.Duration // until it is back; -1: not known
	Window     time.Duration // its length; 0: not known
	Rate       rate.Limit    // at which starts are spaced; rate.Inf: they are not
	Configured rate.Limit    // of a rate that was found: the limit of ours that is too high; 0: none is
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

// foreseeable is Foreseeable of so many calls before one quota. Example: after 4 of 20 calls a minute the window is said
// to end in 12 s, after 5 in 15 s. Units may come back one by one, which the next answers will show. So when the 15 that
// are left will have gone is known, and when the 16th goes is not.
func (q *quota) foreseeable(calls float64, now time.Time) bool {
	if q.rolling {
		return q.window > 0
	}
	return !q.resetMoves || calls*q.charge(1) <= q.remaining(now)
}
