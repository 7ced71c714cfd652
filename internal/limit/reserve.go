package limit

import (
	"math"
	"time"
)

// Reserve keeps held units free that were taken, and that the upstream has not charged yet: what is there and what is held are never
// more than there can be. The rest is taken, and comes back by itself as units do. It calls no watchers, so it may be called
// under the line's lock.
//
// Without it the limiter would earn while the upstream's is full, and the upstream charges later. Example: a bucket of 1,000 whose
// calls hold 900. In a minute it earns 600, but only 100 are there: the 900 are still to be charged, and then nothing
// may be left.
func (s *Set) Reserve(now time.Time, held int64) {
	if held <= 0 {
		return
	}
	s.each(func(a State) {
		clock := a.Lift(now)
		if over := a.Available(clock) + float64(held) - sizeOf(a); over >= 1 {
			a.Adjust(clock, int(min(over, math.MaxInt32)))
			a.Advance(clock)
		}
	})
}

// sizeOf is the most units that are ever there; +Inf: nobody knows.
func sizeOf(a State) float64 {
	switch a := a.(type) {
	case *tokens:
		return float64(a.burst)
	case *fixedCount:
		return float64(a.n)
	case *slidingLog:
		return float64(a.n)
	}
	return math.Inf(1)
}
