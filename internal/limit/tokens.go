package limit

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/time/rate"
)

// tokens is the state of a Bucket: a count at a moment, from which the count at any later moment follows.
//
//	count(t) = min(burst, count + limit·(t − last))
//	n units are ready at t + (min(n, burst) − count(t)) / limit
//
// Example: limit 10/s, burst 3, full at 0 s.
//
//	0 s     a call takes 3            count 0
//	50 ms   a call wants 1            count 0.5, ready at 50 ms + 0.5/10 s = 100 ms
//	300 ms  the bucket is full again  count 3
//	300 ms  a call takes 13           count 3 − 13 = −10: a debt
//	300 ms  a call wants 1            ready when the count is 1: in 11/10 s, at 1.4 s
//
// The call of 13 needs more than the bucket ever holds, so it starts when the bucket is full and those
// behind it pay. Any span of L seconds admits at most max(burst, largest cost) + limit·L units.
type tokens struct {
	clock
	limit   rate.Limit // units per second
	burst   int        // the most units held
	count   float64    // at clock.last; below 0: a debt. Under rate.Inf it means nothing
	changed bool       // a setter was called, so the bucket is not fresh any more
}

// BucketAt is the state of a bucket that has so many units at a moment.
func BucketAt(at time.Time, limit rate.Limit, burst int, units float64) State {
	return &tokens{clock: clock{at}, limit: limit, burst: burst, count: units}
}

// at is that moment, or the clock if that is ahead, and the count then. It is asked up to three times for a call that need not
// wait, so it compares moments once.
func (s *tokens) at(at time.Time) (time.Time, float64) {
	passed := at.Sub(s.last)
	if passed < 0 {
		at, passed = s.last, 0
	}
	count := s.count + float64(passed)/float64(time.Second)*float64(s.limit)
	if full := float64(s.burst); count > full {
		count = full
	}
	return at, count
}

// pay takes n units as of at, if they are there: the whole cost of a take that need not wait. No units are there in a debt too.
func (s *tokens) pay(at time.Time, n int) bool {
	at, count := s.at(at)
	if n < 0 || n > 0 && (float64(n) > count || s.limit == 0) {
		return false
	}
	s.count, s.last = count-float64(n), at
	return true
}

// TakeBy tries pay, the common case, first.
func (s *tokens) TakeBy(at, now time.Time, n int) (time.Time, error) {
	if s.pay(at, n) {
		return Earliest(s.last, now), nil
	}
	return TakeReady(s, at, now, n)
}

// Check implements State.
func (s *tokens) Check(n int) error { return CheckCost(n, s.limit, s.burst) }

// CheckCost is Check of a limit of units per second with a burst: what a cost exceeds the burst by is the debt that it
// would leave. At 1/s and a burst of 10, a cost of 3,610 would block the others for an hour, and one of 3,611 is an error.
func CheckCost(n int, limit rate.Limit, burst int) error {
	switch {
	case n < 0:
		return errNegative(n)
	case n == 0 || limit == rate.Inf:
		return nil
	case limit == 0:
		return fmt.Errorf("throttle: cost %d can never be paid: the limit is 0", n)
	case span(float64(n)-float64(burst), limit) > maxSurplus:
		return fmt.Errorf("throttle: cost %d is above burst %d, and at %v/s the surplus takes more than %v", n, burst, limit, maxSurplus)
	}
	return nil
}

// Consume books n units; a negative n adds units. The next call of at cuts what is above the burst.
func (s *tokens) Consume(at time.Time, n int) {
	at, count := s.at(at)
	s.count, s.last = count-float64(n), at
}

// Adjust implements State. A bucket has no window to give units back to: they are added to what it has, and what is
// above the burst is cut by the next call of at.
func (s *tokens) Adjust(now time.Time, n int) { s.Consume(now, n) }

// GiveBack adds n units to the count, which is then what it would be without the take. Example: limit
// 10/s, burst 3, 2 of 3 units taken at 0 and given back at 50 ms: 1.5 + 2, cut to the burst, is the 3 of
// a bucket that nobody touched. If the bucket has filled up and been drawn on since, up to n units come on
// top: what flowed over meanwhile is not remembered.
func (s *tokens) GiveBack(_, now time.Time, n int) { s.Consume(now, -n) }

// Refund implements State. A bucket knows no windows: what is given back late is cut at the burst, as if it had been earned.
func (s *tokens) Refund(_, now time.Time, _, n int) { s.Consume(now, -n) }

// After uses that under backlog the bucket is never full, so no unit is lost and the units ahead and the
// call's own simply add up: they are there (ahead + n − count)/limit from now.
func (s *tokens) After(from time.Time, ahead int64, n int) time.Time {
	from, count := s.at(from)
	switch {
	case n == 0 && (ahead == 0 || s.limit == 0):
		return from
	case s.limit == 0:
		return from.Add(Forever)
	}
	need := float64(ahead) + float64(min(n, s.burst))
	return from.Add(span(need-count, s.limit))
}

// Rate implements State.
func (s *tokens) Rate() rate.Limit { return s.limit }

// Available implements State. At limit 0 nothing can be taken, but a debt is still seen.
func (s *tokens) Available(now time.Time) float64 {
	switch _, count := s.at(now); s.limit {
	case rate.Inf:
		return float64(rate.Inf)
	case 0:
		return min(0, count)
	default:
		return count
	}
}

// Size implements State.
func (s *tokens) Size() (units float64, window time.Duration) { return float64(s.burst), 0 }

// Fresh implements State: a full bucket is as new.
func (s *tokens) Fresh(now time.Time) bool {
	_, count := s.at(now)
	return !s.changed && (s.limit == rate.Inf || count >= float64(s.burst))
}

// CheckLimit panics for nonsense and returns limit with every infinity written as rate.Inf, because 0 s
// times a real infinity is NaN.
func CheckLimit(caller string, limit rate.Limit, burst int) rate.Limit {
	if !(limit >= 0) { // NaN too
		panic(fmt.Sprintf("throttle: %s: limit %v must not be negative or NaN", caller, float64(limit)))
	}
	limit = min(limit, rate.Inf)
	if burst < 0 || burst < 1 && limit != rate.Inf {
		panic(fmt.Sprintf("throttle: %s: burst %d must be at least 1 (0 goes with limit rate.Inf only)", caller, burst))
	}
	return limit
}

// span is the time in which limit makes so many units, rounded up to the next nanosecond, so that a take
// at its end succeeds. Less than 1/1024 ns is a rounding error of the floats and is not rounded up:
// otherwise a unit due in exactly 1 µs would often come after 1,001 ns.
func span(units float64, limit rate.Limit) time.Duration {
	if units <= 0 {
		return 0
	}
	ns := math.Ceil(units/float64(limit)*float64(time.Second) - 1.0/1024)
	if ns >= float64(Forever) {
		return Forever
	}
	return time.Duration(ns)
}
