package aimd

import "time"

// A Bound is how many may be in flight at once, as a Law moves it: by a load that somebody reads (Follow), or by the response times
// of what was in flight (FollowTimes). It begins at the upper end. Its owner has the lock.
type Bound struct {
	law   *Law
	now   int
	peak  int       // the most that were in flight at once since the last step
	step  time.Time // the last one; zero: there was none
	n     uint64    // of the last reading that has counted
	times times
}

// Init makes b a bound by law.
func (b *Bound) Init(law *Law) { *b = Bound{law: law, now: law.Most} }

// Now is how many may be in flight.
func (b *Bound) Now() int { return b.now }

// Stepped is when the last step was; zero: there was none.
func (b *Bound) Stepped() time.Time { return b.step }

// Use notes how many are in flight.
func (b *Bound) Use(inFlight int) { b.peak = max(b.peak, inFlight) }

// Follow moves b by the n-th reading of a load, if that is new and a second has passed since the last step, and reports whether b
// has moved. inFlight are how many are in flight now.
func (b *Bound) Follow(load float64, n uint64, inFlight int, now time.Time) (moved bool) {
	b.Use(inFlight)
	if n == b.n || !b.step.IsZero() && now.Sub(b.step) < Every {
		return false
	}
	b.n = n
	return b.take(load, inFlight, now)
}

// take is one step.
func (b *Bound) take(load float64, inFlight int, now time.Time) (moved bool) {
	was := b.now
	b.now = Next(b.law, b.now, float64(b.peak), load)
	b.peak, b.step, b.times = inFlight, now, times{}
	return b.now != was
}
