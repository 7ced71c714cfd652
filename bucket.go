package throttle

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/limit"
)

// A Bucket is a token bucket: it holds up to burst units, is full at first, and gains limit units per second. Any window
// of length L admits at most burst + limit·L units. The burst comes on top of the rate, so NewBucket(10, 10) admits 20
// units in the first second. For an upstream that counts "10 per second", use a burst of 1, or a [SlidingWindow].
//
// A limit of 0 admits nothing: every cost above 0 is an error. Under [rate.Inf] all units are ready at
// once, and burst may be 0. A cost above the burst is allowed: it goes when the bucket is full, and leaves
// a debt that later units wait for. Time is that of package time and never runs backwards.
//
// The formulas are those of [rate.Limiter]. The methods correspond as follows:
//
//	rate.Limiter             Bucket
//	Allow, AllowN            Allow, AllowN: now or never; n above the burst may be allowed
//	Wait                     Wait: in order, and a cancelled waiter costs nothing
//	Reserve, ReserveN        Reserve(n), whose Cancel gives all n back
//	WaitN                    Wait with a ctx from WithCost
//	SetLimit, SetBurst       the same; sleeping callers are re-timed
//	Limit, Burst, Tokens     the same; under rate.Inf, Tokens is math.MaxFloat64
//	AllowN(t, n) and such    none: time is the process's, or a testing/synctest bubble's
//
// Make it with [NewBucket]: the zero Bucket has no burst and errs for every cost, until SetLimit gives it
// a burst of 1. A Bucket is safe for concurrent use and must not be copied.
type Bucket struct {
	bucket limit.Bucket
	line   atomic.Pointer[Queue] // of Wait, which makes it
}

// NewBucket returns a full bucket of burst units that gains limit units per second. For a limit in other
// terms, use [rate.Every](200 * time.Millisecond) or 300.0/60; a float64 variable f needs rate.Limit(f). It
// panics if limit is negative or NaN, or if burst is below 1 (below 0 under rate.Inf).
func NewBucket(limit rate.Limit, burst int) *Bucket {
	b := new(Bucket)
	b.bucket.Init("NewBucket", limit, burst)
	return b
}

// Take implements [Limiter]; ctx is not used. A cost above the burst goes when the bucket is full, and
// leaves a debt. Take returns an error for a negative cost, for every other cost but 0 if the limit is 0,
// and for one whose surplus over the burst takes more than an hour.
func (b *Bucket) Take(_ context.Context, n int) (wait time.Duration, err error) {
	return limit.TakeNow(&b.bucket, n)
}

// Wait blocks until the units that ctx asks for by [WithCost], 1 by default, may be used, and takes them. Callers stand
// in a [Queue] of the bucket's own: a caller that leaves takes nothing, and those behind it move up. Wait fails at once
// if the wait would outlast ctx's deadline. Its errors are those of [Queue.Wait].
func (b *Bucket) Wait(ctx context.Context) error {
	q := b.line.Load()
	if q == nil {
		b.line.CompareAndSwap(nil, NewQueue(b, QueueOptions{})) // of two callers the first one's stays
		q = b.line.Load()
	}
	return q.Wait(ctx)
}

// Allow is AllowN(1), for work that is dropped rather than delayed when the limit is reached.
func (b *Bucket) Allow() bool { return b.AllowN(1) }

// AllowN reports whether n units may be used now, and takes them if so. It returns false for a negative n
// and for one that can never be satisfied.
func (b *Bucket) AllowN(n int) bool {
	wait, err := limit.TakeNow(&b.bucket, n)
	return wait == 0 && err == nil
}

// Adjust implements [Adjuster], for calls whose cost is known afterwards: n < 0 gives units back, up to the burst;
// n > 0 takes more, and may leave a debt.
func (b *Bucket) Adjust(n int) { b.bucket.Adjust(n) }

// Notify implements [Notifier]. Only code that waits for a limiter by itself, without a [Queue], calls it.
func (b *Bucket) Notify(changed func()) (stop func()) { return b.bucket.Notify(changed) }

// String returns the limit as [ParseLimit] reads it, such as "100/m burst 20".
func (b *Bucket) String() string { return b.bucket.String() }

// Limit returns the rate in units per second.
func (b *Bucket) Limit() rate.Limit { return b.bucket.Limit() }

// SetLimit changes the rate, in units per second, from now on. Units gained at the old rate stay, and
// sleeping callers are re-timed. It panics if NewBucket would.
func (b *Bucket) SetLimit(limit rate.Limit) { b.bucket.SetLimit(limit) }

// Burst returns the most units that the bucket can hold: those that can go at once after a quiet time.
func (b *Bucket) Burst() int { return b.bucket.Burst() }

// SetBurst changes the burst, in units. Units above a lower burst are lost; a higher one is filled at the
// limit's rate. Sleeping callers are re-timed. It panics if NewBucket would.
func (b *Bucket) SetBurst(burst int) { b.bucket.SetBurst(burst) }

// Tokens returns the units that could be taken now; negative: a debt. Under rate.Inf it is math.MaxFloat64,
// which unlike infinity can be written as JSON.
func (b *Bucket) Tokens() float64 { return b.bucket.Tokens() }

// Reserve books n units now, as a debt if the bucket lacks them; Delay says how long to wait before using
// them. A reservation overtakes every caller in a line, and no pause stops it: prefer Wait.
func (b *Bucket) Reserve(n int) *Reservation { return &Reservation{b.bucket.Book(n)} }

// A Reservation is n booked units of a [Bucket]. Its methods are safe for concurrent use.
type Reservation struct{ booking limit.Reservation }

// OK reports whether units were booked. It is false if Take would have returned an error.
func (r *Reservation) OK() bool { return r.booking.OK() }

// Delay returns how long to wait, from now, before the units may be used, as computed when they were
// booked. It is 0 if they may be used now, and [rate.InfDuration] if nothing was booked.
func (r *Reservation) Delay() time.Duration {
	if !r.OK() {
		return rate.InfDuration
	}
	return max(0, time.Until(r.booking.Act()))
}

// Cancel gives all units back, whatever was booked after them, and re-times sleeping callers. Call it only
// for units that were not used, and soon: if the bucket has filled up and been drawn on since, they come
// on top of the burst. A second call does nothing.
func (r *Reservation) Cancel() { r.booking.Cancel() }
