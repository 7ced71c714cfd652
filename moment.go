package throttle

import (
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"
)

const (
	// maxLate is how far back a take that the timer delayed may be reckoned: a late
	// timer is not lost quota. Any window admits at most its limit + rate × maxLate.
	maxLate = 5 * time.Millisecond
	// maxBelief is how long the library believes what it was told: after it, one probe tests that.
	maxBelief = 24 * time.Hour
)

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// soonest returns the earlier of two moments; the zero one means none.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// unitTime is how long n units take at that rate, bounded by an hour.
func unitTime(n int, pace rate.Limit) time.Duration {
	if pace <= 0 || n <= 0 {
		return 0
	}
	return time.Duration(min(float64(n)/float64(pace)*1e9, float64(time.Hour)))
}

// jitter is uniform in [0, most).
func jitter(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return rand.N(most)
}
