package throttle

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/account"
)

// A Bucket is a token bucket: it holds up to burst units, is full at first, and gains limit units
// per second. Any window of length L admits at most burst + limit·L units: the burst comes on top, so
// NewBucket(10, 10) lets 20 go in the first second. Where an upstream counts "10 per second", use a
// burst of 1, or a [SlidingWindow].
//
// A limit of 0 refuses every cost above 0 with an error; under [rate.Inf] all units are ready at
// once and burst may be 0. A cost above the burst is no error: it goes when the bucket is full and
// leaves a debt that later units wait for. The clock is package time's and never runs backwards.
//
// It reckons as [rate.Limiter] does, whose verbs it answers thus:
//
//	rate.Limiter             Bucket
//	Allow, AllowN            Allow, AllowN: now or never; n above the burst may be allowed
//	Wait                     Wait: in order, and a cancelled waiter costs nothing
//	Reserve, ReserveN        Reserve(n), whose Cancel gives all n back
//	WaitN                    Wait with a cost in its context: see WithCost
//	SetLimit, SetBurst       the same; sleeping callers are told
//	Limit, Burst, Tokens     the same; under rate.Inf, Tokens is math.MaxFloat64
//	AllowN(t, n) and such    none: time is the process's, or a testing/synctest bubble's
//
// Make it with [NewBucket]: the zero Bucket has no burst and refuses every cost. A SetLimit gives it a
// burst of 1. A Bucket is safe for concurrent use and must not be copied.
type Bucket struct {
	tank account.Tank
	wait func(context.Context) error // that of a Queue, made by the first Wait; guarded by the tank's lock
}

// NewBucket returns a full bucket of limit units per second and the given burst in units. Of a limit
// in other terms, [rate.Every](200 * time.Millisecond) or 300.0/60 makes a rate.
// It panics if limit is negative or NaN, or burst is below 1, or below 0 where limit is rate.Inf.
func NewBucket(limit rate.Limit, burst int) *Bucket {
	b := new(Bucket)
	b.tank.Init("NewBucket", limit, burst)
	return b
}

// Take implements [Limiter]; ctx is not used. A cost above the burst goes when the bucket is full
// and leaves a debt. It errs for a negative cost, for any cost if the limit is 0, and for one whose
// surplus over the burst takes more than an hour.
func (b *Bucket) Take(_ context.Context, n int) (wait time.Duration, err error) {
	return account.TakeNow(&b.tank, n)
}

// Wait blocks until the units that ctx asks for may be used, 1 if it asks for none ([WithCost]),
// and takes them. Callers stand in a [Queue] of the bucket's own: a caller that leaves takes
// nothing and lets those behind move up. If the wait would outlast ctx's deadline, Wait fails at
// once. Errors are as those of [Queue.Wait].
func (b *Bucket) Wait(ctx context.Context) error {
	var wait func(context.Context) error
	b.tank.Locked(func() { wait = b.wait })
	if wait == nil {
		made := NewQueue(b, QueueOptions{}).Wait // which takes the lock
		b.tank.Locked(func() {
			if b.wait == nil { // else another caller was faster
				b.wait = made
			}
			wait = b.wait
		})
	}
	return wait(ctx)
}

// Allow reports whether one unit may start now, and if so takes it.
func (b *Bucket) Allow() bool { return b.AllowN(1) }

// AllowN reports whether n units may start now, and if so takes them. A cost that can never be paid
// is not allowed, a negative one neither.
func (b *Bucket) AllowN(n int) bool {
	wait, err := account.TakeNow(&b.tank, n)
	return wait == 0 && err == nil
}

// Adjust implements [Adjuster]: n < 0 gives units back, never above the burst; n > 0 takes more and
// may leave a debt.
func (b *Bucket) Adjust(n int) { b.tank.Adjust(n) }

// Notify implements [Notifier].
func (b *Bucket) Notify(changed func()) (stop func()) { return b.tank.Notify(changed) }

// Limit returns the rate in units per second.
func (b *Bucket) Limit() rate.Limit { return b.tank.Limit() }

// SetLimit changes the rate, in units per second, from now on; what was earned at the old rate
// stays, and sleeping lines are told. It panics where NewBucket would.
func (b *Bucket) SetLimit(limit rate.Limit) { b.tank.SetLimit(limit) }

// Burst returns the most units that the bucket holds.
func (b *Bucket) Burst() int { return b.tank.Burst() }

// SetBurst changes the burst in units: a lower one cuts what the bucket holds now, a higher one is
// filled at the limit's rate. Sleeping lines are told. It panics where NewBucket would.
func (b *Bucket) SetBurst(burst int) { b.tank.SetBurst(burst) }

// Tokens returns the units that could be taken now: negative under a debt, and under rate.Inf its
// value, math.MaxFloat64, which JSON can hold.
func (b *Bucket) Tokens() float64 { return b.tank.Tokens() }

// Reserve books n units now, as a debt if the bucket lacks them, and tells how long to wait before
// using them. It goes before all who wait in a line, and a pause cannot stop it; prefer Wait.
func (b *Bucket) Reserve(n int) *Reservation { return &Reservation{b.tank.Book(n)} }

// A Reservation is a booking of units in a [Bucket]. Its methods are safe for concurrent use.
type Reservation struct{ booking account.Booking }

// OK reports whether units were booked. They are not if Take would have returned an error.
func (r *Reservation) OK() bool { return r.booking.Tank != nil }

// Delay returns how long to wait from now on before the units may be used, as reckoned when they
// were booked: 0 if they may be used, [rate.InfDuration] if nothing was booked.
func (r *Reservation) Delay() time.Duration {
	if !r.OK() {
		return rate.InfDuration
	}
	return max(0, time.Until(r.booking.Act))
}

// Cancel gives all of the units back, whatever was booked after them and however late it is; call
// it only if they were not used, and soon: if the bucket has filled up and been drawn on meanwhile,
// they come on top of its burst. Sleeping lines are told. A second call does nothing.
func (r *Reservation) Cancel() { r.booking.Cancel() }
