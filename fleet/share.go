package fleet

import "time"

// A share is what a process may use while its store does not answer: a bucket that starts empty, so that an
// outage does not give every process another burst.
//
// Example: 100/s, burst 20, 4 members. The share is 0.8 · 100/4 = 20/s with a burst of 5. The store is lost at
// 0 s: the first unit is there at 50 ms, and a process that wants nothing until 10 s finds 5.
type share struct {
	rate, burst float64
	units       float64
	last        time.Time
	since       time.Time // the loss that it belongs to
}

// set prepares it for a loss since that moment, with that rate and burst.
func (s *share) set(since time.Time, rate, burst float64) {
	if !s.since.Equal(since) {
		s.since, s.last, s.units = since, since, 0
	}
	s.rate, s.burst = rate, burst
}

// at is what is there at that moment.
func (s *share) at(now time.Time) float64 {
	return min(s.burst, s.units+max(0, now.Sub(s.last).Seconds())*s.rate)
}

// after is when n units may be used: a cost above the burst goes when the bucket is full.
func (s *share) after(now time.Time, n float64) time.Time {
	missing := min(n, s.burst) - s.at(now)
	if missing <= 1e-9 {
		return now
	}
	return now.Add(time.Duration(min(missing/s.rate*1e9+1, 1e18)))
}

// take takes n units, which may leave a debt.
func (s *share) take(now time.Time, n float64) {
	s.units = s.at(now) - n
	if now.After(s.last) {
		s.last = now
	}
}
