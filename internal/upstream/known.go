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
	if last := len(all) - 1; last >= 0 && all[last].Source == fromRefusals {
		if all[last].Rate > s.limits.Pace(now) {
			return all[:last] // it holds nothing back
		}
		all[last].Configured = s.tooHigh(all[last].Rate)
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
	if l.finder != nil && !l.finder.aside() {
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
	end := q.closedUntil
	if !q.guessed {
		end = limit.Latest(q.until, end)
	}
	if !end.IsZero() {
		k.Reset = max(0, end.Sub(now))
	}
	return k
}

// view is what observers see of the finder: the rate that a call would find now. To look changes nothing.
func (f *finder) view(now time.Time) Known {
	then := *f
	return foundRate(rate.Limit(then.rate(now)))
}

// fromRefusals is the Source of a rate that was found.
const fromRefusals = "refusals"

// foundRate is a limit that has only a rate.
func foundRate(r rate.Limit) Known {
	return Known{Source: fromRefusals, Limit: -1, Remaining: -1, Reset: -1, Rate: r}
}

// A toldRate is what observers have heard of the rate that was found beside a limit of ours.
type toldRate struct {
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
func (t *toldRate) isNews(held rate.Limit, now time.Time) bool {
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
		*t = toldRate{rate: held, at: now}
	}
	return news
}
