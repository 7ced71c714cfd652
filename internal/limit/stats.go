package limit

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/time/rate"
)

// Stats are what observers see of one limit; throttle.LimitStats has the words.
type Stats struct {
	Reason      string
	Limit       rate.Limit
	Size        float64
	Window      time.Duration
	Available   float64
	Utilization float64
}

// AppendStats adds those of each account that limits anything to all, the slowest first: their own order is random.
// reason is what calls that wait for them are held by. used is how many units a second were taken of late: a bucket does not
// remember that, and a window does.
//
// Example: a bucket of 10/s, burst 5, and a window of 100 a minute, both unused for long; then 10 calls in ten seconds. With used = 1
// the window has 90 of its 100 units left and a utilization of 0.1, and so has the bucket: 1/s of 10/s.
func (s *Set) AppendStats(all []Stats, reason string, used float64, now time.Time) []Stats {
	first := len(all)
	s.each(func(a State) {
		one := Stats{Reason: reason, Limit: a.Rate(), Available: a.Available(now)}
		if one.Limit == rate.Inf {
			return
		}
		switch one.Size, one.Window = a.Size(); {
		case one.Window > 0:
			one.Utilization = (one.Size - one.Available) / one.Size
		case one.Limit > 0:
			one.Utilization = used / float64(one.Limit)
		}
		all = append(all, one)
	})
	slices.SortFunc(all[first:], func(a, b Stats) int {
		return cmp.Or(cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Size, b.Size))
	})
	return all
}
