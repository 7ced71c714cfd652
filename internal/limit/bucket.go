package limit

import (
	"time"

	"golang.org/x/time/rate"
)

// A Bucket is the account of a throttle.Bucket and of a throttle.Leaky, which is a bucket of burst 1. Its
// formulas are those of rate.Limiter. It is not built on one, because that has a second lock, reads its
// clock outside that lock, loses units when a reservation is cancelled, and does not know debts.
type Bucket struct {
	g Guard
	s tokens
}

// Parts implements Account.
func (b *Bucket) Parts() (*Guard, State) { return &b.g, &b.s }

// Init makes a full bucket of limit units per second. It panics for nonsense; caller is the constructor
// that the message names.
func (b *Bucket) Init(caller string, limit rate.Limit, burst int) {
	limit = CheckLimit(caller, limit, burst)
	b.s.limit, b.s.burst, b.s.count = limit, burst, float64(burst)
}

// payAlone is tokens.pay, for a call that pays nothing but this account.
func (b *Bucket) payAlone(at time.Time, n int) bool {
	b.g.mu.Lock()
	defer b.g.mu.Unlock()
	return b.s.pay(at, n)
}

// takeByAlone is State.TakeBy, for a call that pays nothing but this account.
func (b *Bucket) takeByAlone(at, now time.Time, n int) (time.Time, error) {
	b.g.mu.Lock()
	defer b.g.mu.Unlock()
	return b.s.TakeBy(at, now, n)
}

// afterAlone is State.After, for a call that pays nothing but this account.
func (b *Bucket) afterAlone(from time.Time, ahead int64, n int) time.Time {
	b.g.mu.Lock()
	defer b.g.mu.Unlock()
	return b.s.After(from, ahead, n)
}

// UnderLock runs f under the lock, which also guards what the owner keeps beside the bucket.
func (b *Bucket) UnderLock(f func()) {
	b.g.mu.Lock()
	defer b.g.mu.Unlock()
	f()
}

// Adjust takes n units, as a debt if they are not there; a negative n gives units back, up to the burst.
func (b *Bucket) Adjust(n int) {
	Change(b, func(now time.Time) { b.s.Consume(now, n) })
}

// Notify has changed called after each change of the limit, the burst or the units, until stop.
func (b *Bucket) Notify(changed func()) (stop func()) { return b.g.Notify(changed) }

// Limit returns the rate in units per second.
func (b *Bucket) Limit() (limit rate.Limit) {
	b.UnderLock(func() { limit = b.s.limit })
	return limit
}

// Burst returns the most units that the bucket holds.
func (b *Bucket) Burst() (burst int) {
	b.UnderLock(func() { burst = b.s.burst })
	return burst
}

// Tokens returns the units that could be taken now; negative under a debt.
func (b *Bucket) Tokens() (units float64) {
	b.UnderLock(func() { units = b.s.Available(time.Now()) })
	return units
}

// SetLimit changes the rate; what was earned at the old one stays. The zero Bucket gets a burst of 1.
func (b *Bucket) SetLimit(limit rate.Limit) {
	Change(b, func(now time.Time) {
		s := &b.s
		burst := s.burst
		if burst == 0 && s.limit == 0 && limit < rate.Inf {
			burst = 1
		}
		limit = CheckLimit("SetLimit", limit, burst)
		s.burst = burst
		s.Consume(now, 0)
		if s.limit == rate.Inf { // an infinite rate has filled the bucket
			s.count = float64(s.burst)
		}
		s.limit, s.changed = limit, true
	})
}

// SetBurst changes the burst: a lower one cuts what the bucket holds, a higher one is filled at the
// rate.
func (b *Bucket) SetBurst(burst int) {
	Change(b, func(now time.Time) {
		s := &b.s
		CheckLimit("SetBurst", s.limit, burst)
		s.Consume(now, 0)
		s.burst, s.count = burst, min(s.count, float64(burst))
		s.changed = true
	})
}

// A Reservation is n units taken whether they were there or not, until it is cancelled.
type Reservation struct {
	bucket *Bucket   // nil: n units can never be taken, and nothing was
	act    time.Time // when the units may be used; it does not change
	units  int       // what Cancel gives back; guarded by the bucket's lock
}

// OK reports whether units were booked.
func (r *Reservation) OK() bool { return r.bucket != nil }

// Act is when the units may be used. It does not change.
func (r *Reservation) Act() time.Time { return r.act }

// Book takes n units as of now, as a debt if they are not there. Example: an empty bucket of 10/s, burst 10. Book(5)
// leaves a debt of 5 and says 500 ms; whoever asks next for 1 unit waits 600 ms, and 100 ms again once the
// reservation is cancelled.
func (b *Bucket) Book(n int) Reservation {
	b.g.mu.Lock()
	defer b.g.mu.Unlock()
	now := b.s.Lift(time.Now())
	if b.s.Check(n) != nil {
		return Reservation{}
	}
	r := Reservation{bucket: b, act: b.s.After(now, 0, n), units: n}
	if b.s.limit == rate.Inf {
		r.units = 0 // nothing is booked, so nothing can come back when a limit is set
	}
	b.s.Consume(now, n)
	return r
}

// Cancel gives the units back, once.
func (r *Reservation) Cancel() {
	if r.bucket == nil {
		return
	}
	Change(r.bucket, func(now time.Time) {
		r.bucket.s.Consume(now, -r.units)
		r.units = 0
	})
}
