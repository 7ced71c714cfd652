package limit

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/time/rate"
)

// Stats are what observers see of one limit; throttle.LimitStats has the words.
type Stats struct {
	Reason    string
	Limit     rate.Limit
	Size      float64
	Window    time.Duration
	Available float64
	Taken     int64
}

// AppendStats adds those of each account that limits anything to all, the slowest first: their own order is random.
// reason is what calls that wait for them are held by, and taken how many units calls have taken, which accounts do not remember.
func (s *Set) AppendStats(all []Stats, reason string, taken int64, now time.Time) []Stats {
	first := len(all)
	s.each(func(a State) {
		one := Stats{Reason: reason, Limit: a.Rate(), Available: a.Available(now), Taken: taken}
		if one.Limit == rate.Inf {
			return
		}
		one.Size, one.Window = a.Size()
		all = append(all, one)
	})
	slices.SortFunc(all[first:], func(a, b Stats) int {
		return cmp.Or(cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Size, b.Size))
	})
	return all
}
