package throttle

import (
	"context"
	"fmt"
	"math"
	"time"

	"golang.org/x/time/rate"
)

// tank is a token bucket on golang.org/x/time/rate: the whole of a Leaky and most of a Bucket.
//
// The rate.Limiter is the account and nothing else. It is driven with explicit times under our own
// lock only, because its clock reads race with its lock; its reservations are not kept, because
// cancelling them loses units; and what it has no words for, debts and costs above the burst, is
// written into it by raising its burst for a moment.
type tank struct {
	c   core
	lim rate.Limiter
}

func (t *tank) core() *core { return &t.c }

// start makes a full account; limit and burst are valid. A rate.Limiter held by value is empty at
// first, and what is given back to it fills it.
func (t *tank) start(limit rate.Limit, burst int) {
	t.c.init()
	t.lim.SetBurstAt(time.Time{}, burst)
	t.setLimit(time.Time{}, limit)
	t.lim.ReserveN(time.Time{}, -burst)
}

// setLimit changes the rate as of at, up to which the old one counts. After rate.Inf, which fills
// the bucket in no time, it is full.
func (t *tank) setLimit(at time.Time, limit rate.Limit) {
	t.lim.SetLimitAt(at, limit)
	t.c.stopped = limit == 0
}

// takeBy tries the moment at first, which is the whole cost of a take that need not wait. There
// AllowN forgives a deficit that is paid in less than 1 ns, the grain of the clock.
func (t *tank) takeBy(at, now time.Time, n int) (time.Time, error) {
	if at = t.c.lift(at); n > 0 && !t.c.stopped && t.lim.AllowN(at, n) {
		t.c.last = at
		return earliest(at, now), nil
	}
	return takeReady(t, at, now, n)
}

// ready follows tokens(x) = min(burst, tokens + rate·(x − last)): n are ready when tokens reach n,
// or the burst if that is less.
func (t *tank) ready(at time.Time, n int) (time.Time, error) {
	at = t.c.lift(at)
	limit, burst := t.lim.Limit(), t.lim.Burst()
	switch {
	case n < 0:
		return at, errNegative(n)
	case n == 0 || limit == rate.Inf:
		return at, nil
	case limit == 0:
		return at, fmt.Errorf("throttle: cost %d can never be paid: the limit is 0", n)
	case span(float64(n)-float64(burst), limit) > maxSurplus:
		return at, fmt.Errorf("throttle: cost %d is above burst %d, and at %v/s the surplus takes more than %v", n, burst, limit, maxSurplus)
	}
	return at.Add(span(float64(min(n, burst))-t.lim.TokensAt(at), limit)), nil
}

// take books as of at.
func (t *tank) take(at time.Time, n int) {
	t.c.last = t.c.lift(at)
	t.book(n)
}

// book takes n tokens as of the limiter's clock, whatever there is: fewer than none is a debt.
// A negative n adds tokens; what is above the burst is cut by the next reckoning.
func (t *tank) book(n int) {
	if t.lim.Limit() == rate.Inf {
		return
	}
	if burst := t.lim.Burst(); n > burst {
		t.lim.SetBurstAt(t.c.last, n)
		defer t.lim.SetBurstAt(t.c.last, burst)
	}
	t.lim.ReserveN(t.c.last, n)
}

// giveBack is exact: min(B, min(B, x−n) + n + r·Δt) is what the bucket would hold without the take.
func (t *tank) giveBack(_, now time.Time, n int) { t.take(now, -n) }

// after: under backlog no token is ever cut off, so the units ahead and our own simply add up.
func (t *tank) after(from time.Time, ahead int64, n int) time.Time {
	from = t.c.lift(from)
	if ahead == 0 && n == 0 {
		return from
	}
	need := float64(ahead) + float64(min(n, t.lim.Burst()))
	return from.Add(span(need-t.lim.TokensAt(from), t.lim.Limit()))
}

func (t *tank) rate() rate.Limit { return t.lim.Limit() }

func (t *tank) available(now time.Time) float64 {
	tokens := t.lim.TokensAt(t.c.lift(now))
	switch {
	case t.lim.Limit() == rate.Inf:
		return math.Inf(1)
	case t.c.stopped:
		return min(0, tokens)
	}
	return tokens
}

func (t *tank) fresh(now time.Time) bool {
	return !t.c.changed && (t.rate() == rate.Inf || t.lim.TokensAt(t.c.lift(now)) >= float64(t.lim.Burst()))
}

// Take implements [Limiter]; ctx is not used. A cost above the burst goes when the bucket is full
// and leaves a debt. It errs for a negative cost, for any cost if the limit is 0, and for one whose
// surplus over the burst takes more than an hour.
func (t *tank) Take(_ context.Context, n int) (wait time.Duration, err error) { return takeNow(t, n) }

// Adjust implements [Adjuster]: n < 0 gives units back, never above the burst; n > 0 takes more and
// may leave a debt.
func (t *tank) Adjust(n int) {
	t.c.change(func(now time.Time) { t.book(n) })
}

// Notify implements [Notifier].
func (t *tank) Notify(changed func()) (stop func()) { return t.c.notify(changed) }

// Limit returns the rate in units per second.
func (t *tank) Limit() rate.Limit {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	return t.rate()
}

// SetLimit changes the rate, in units per second, from now on; what was earned at the old rate
// stays, and sleeping lines are told. It panics for the limits that the constructor refuses.
func (t *tank) SetLimit(limit rate.Limit) {
	t.c.change(func(now time.Time) {
		limit = checkLimit("SetLimit", limit, t.lim.Burst())
		t.setLimit(now, limit)
		t.c.changed = true
	})
}

// checkLimit panics for nonsense and returns limit with every infinity written as rate.Inf, because
// a real infinity would make NaN of rate.Limiter's tokens.
func checkLimit(caller string, limit rate.Limit, burst int) rate.Limit {
	if !(limit >= 0) { // NaN too
		panic(fmt.Sprintf("throttle: %s: limit %v must not be negative or NaN", caller, float64(limit)))
	}
	limit = min(limit, rate.Inf)
	if burst < 0 || burst < 1 && limit != rate.Inf {
		panic(fmt.Sprintf("throttle: %s: burst %d must be at least 1 (0 goes with limit rate.Inf only)", caller, burst))
	}
	return limit
}

// span is the time in which limit makes so many units, rounded up to the next nanosecond, so that a
// take at its end succeeds. What is less than 1/1024 ns is noise of the floats and not rounded up,
// or a unit due in exactly 1 µs would often come after 1,001 ns.
func span(units float64, limit rate.Limit) time.Duration {
	if units <= 0 {
		return 0
	}
	ns := math.Ceil(units/float64(limit)*float64(time.Second) - 1.0/1024)
	if ns >= float64(forever) {
		return forever
	}
	return time.Duration(ns)
}

// A Bucket is a token bucket: it holds up to burst units, is full at first, and gains limit units
// per second. Any window of length L admits at most burst + limit·L units: the burst comes on top, so
// NewBucket(10, 10) lets 20 go in the first second. Where an upstream counts "10 per second", use a
// burst of 1, or a [SlidingWindow].
//
// A limit of 0 refuses every cost above 0 with an error; under [rate.Inf] all units are ready at
// once and burst may be 0. A cost above the burst is no error: it goes when the bucket is full and
// leaves a debt that later units wait for. The clock is package time's and never runs backwards.
//
// It stands on [rate.Limiter], whose verbs it answers thus:
//
//	rate.Limiter             Bucket
//	Allow, AllowN            Allow, AllowN: now or never; n above the burst may be allowed
//	Wait                     Wait: in order, and a cancelled waiter costs nothing
//	Reserve, ReserveN        Reserve(n), whose Cancel gives all n back
//	WaitN                    Wait with a cost in its context: see WithCost
//	SetLimit, SetBurst       the same; sleeping callers are told
//	Limit, Burst, Tokens     the same; Tokens is +Inf under rate.Inf
//	AllowN(t, n) and such    none: time is the process's, or a testing/synctest bubble's
//
// Make it with [NewBucket]: the zero Bucket refuses every cost. It is safe for concurrent use and
// must not be copied.
type Bucket struct {
	tank
	line *bucketLine // made by the first Wait; guarded by the tank's lock
}

// NewBucket returns a full bucket of limit units per second and the given burst in units. Of a limit
// in other terms, [rate.Every](200 * time.Millisecond) or 300.0/60 makes a rate.
// It panics if limit is negative or NaN, or burst is below 1, or below 0 where limit is rate.Inf.
func NewBucket(limit rate.Limit, burst int) *Bucket {
	limit = checkLimit("NewBucket", limit, burst)
	b := new(Bucket)
	b.start(limit, burst)
	return b
}

// Allow reports whether one unit may start now, and if so takes it.
func (b *Bucket) Allow() bool { return b.AllowN(1) }

// AllowN reports whether n units may start now, and if so takes them. A cost that can never be paid
// is not allowed, a negative one neither.
func (b *Bucket) AllowN(n int) bool {
	wait, err := takeNow(b, n)
	return wait == 0 && err == nil
}

// Burst returns the most units that the bucket holds.
func (b *Bucket) Burst() int {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	return b.lim.Burst()
}

// Tokens returns the units that could be taken now: negative under a debt, +Inf under rate.Inf.
func (b *Bucket) Tokens() float64 {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	return b.available(time.Now())
}

// SetBurst changes the burst in units: a lower one cuts what the bucket holds now, a higher one is
// filled at the limit's rate. Sleeping lines are told. It panics where NewBucket would.
func (b *Bucket) SetBurst(burst int) {
	b.c.change(func(now time.Time) {
		checkLimit("SetBurst", b.lim.Limit(), burst)
		b.lim.SetBurstAt(now, burst)
		b.c.changed = true
	})
}

// Reserve books n units now, as a debt if the bucket lacks them, and tells how long to wait before
// using them. It goes before all who wait in a line, and a pause cannot stop it; prefer Wait.
func (b *Bucket) Reserve(n int) *Reservation {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	now := b.c.lift(time.Now())
	act, err := b.ready(now, n)
	if err != nil {
		return &Reservation{}
	}
	r := &Reservation{bucket: b, act: act, units: n}
	if b.rate() == rate.Inf {
		r.units = 0 // nothing is booked, so nothing can come back when a limit is set
	}
	b.take(now, n)
	return r
}

// A Reservation is a booking of units in a [Bucket]. Its methods are safe for concurrent use.
type Reservation struct {
	bucket *Bucket   // nil: refused
	act    time.Time // when the units may be used; fixed
	units  int       // what Cancel gives back; guarded by the bucket's lock
}

// OK reports whether units were booked. They are not if Take would have returned an error.
func (r *Reservation) OK() bool { return r.bucket != nil }

// Delay returns how long to wait from now on before the units may be used, as reckoned when they
// were booked: 0 if they may be used, [rate.InfDuration] if nothing was booked.
func (r *Reservation) Delay() time.Duration {
	if r.bucket == nil {
		return rate.InfDuration
	}
	return max(0, time.Until(r.act))
}

// Cancel gives all of the units back, whatever was booked after them and however late it is; call
// it only if they were not used. Sleeping lines are told. A second call does nothing.
func (r *Reservation) Cancel() {
	if r.bucket == nil {
		return
	}
	r.bucket.c.change(func(time.Time) {
		r.bucket.book(-r.units)
		r.units = 0
	})
}
