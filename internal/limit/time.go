package limit

import (
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"
)

// This file has the helpers on moments and spans that the internal packages share, and the constants that
// are about time alone.

const (
	// MaxLate is how far back a take may be dated whose timer came late: a late timer is not lost quota.
	// Without it a strict limiter at 5,000/s, whose units are 200 µs apart, reaches 18 % of its rate under
	// real timers. With it any span admits at most its limit + rate × MaxLate.
	MaxLate = 5 * time.Millisecond
	// MaxBelief is how long a time that an upstream advertises is believed: after it, one probe asks. A
	// longer time has so far always been a mistaken unit, such as a moment sent as a number of seconds.
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

// UnitTime is how long n units take at a pace in units per second, at most an hour. It is 0 if pace
// is.
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

// Jittered is an advertised wait, at most MaxBelief, with its jitter of up to 5 % and at most 1 s: 10 s
// become 10 to 10.5 s. Jitter keeps processes that were stopped together from coming back together. It is
// never negative: a call before the advertised time would be throttled again.
func Jittered(wait time.Duration) time.Duration {
	wait = min(wait, MaxBelief)
	return wait + Jitter(min(wait/20, time.Second))
}
