// Package moment has the few helpers on moments and spans that the other internal packages share, and
// the constants that are about time alone.
package moment

import (
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"
)

const (
	// MaxLate is how far back a take that the timer delayed may be reckoned: a late
	// timer is not lost quota. Any window admits at most its limit + rate × MaxLate.
	MaxLate = 5 * time.Millisecond
	// MaxBelief is how long the library believes what it was told: after it, one probe tests that.
	MaxBelief = 24 * time.Hour
)

// Latest returns the later of two moments.
func Latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// Earliest returns the earlier of two moments.
func Earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Soonest returns the earlier of two moments; the zero one means none.
func Soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// UnitTime is how long n units take at that rate, bounded by an hour.
func UnitTime(n int, pace rate.Limit) time.Duration {
	if pace <= 0 || n <= 0 {
		return 0
	}
	return time.Duration(min(float64(n)/float64(pace)*1e9, float64(time.Hour)))
}

// Jitter is uniform in [0, most).
func Jitter(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return rand.N(most)
}

// Jittered is a told wait, of at most MaxBelief, with its jitter: up to 5 %, at most 1 s.
func Jittered(wait time.Duration) time.Duration {
	wait = min(wait, MaxBelief)
	return wait + Jitter(min(wait/20, time.Second))
}
