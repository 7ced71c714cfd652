package throttle

import (
	"context"
	"fmt"
	"math"
	"time"

	"golang.org/x/time/rate"
)

// tank is a token bucket: the whole of a Leaky and most of a Bucket. Its formulas are those of
// rate.Limiter; the account is our own because that one has a second lock, reads its clock outside
// it, loses units when a reservation is cancelled, and has no word for a debt.
type tank struct {
	c      core
	limit  rate.Limit
	burst  int
	tokens float64 // at the moment c.last; below 0: a debt. Under rate.Inf they mean nothing
}

func (t *tank) core() *core { return &t.c }

// start makes a full account; limit and burst are valid.
func (t *tank) start(limit rate.Limit, burst int) {
	t.c.init()
	t.limit, t.burst, t.tokens = limit, burst, float64(burst)
}

// tokensAt is min(burst, tokens + limit·(at − last)); at is not before last.
func (t *tank) tokensAt(at time.Time) float64 {
	tokens := t.tokens + at.Sub(t.c.last).Seconds()*float64(t.limit)
	if full := float64(t.burst); tokens > full {
		return full
	}
	return tokens
}

// pay takes n units as of at, if they are there: the whole cost of a take that need not wait.
func (t *tank) pay(at time.Time, n int) bool {
	at = t.c.lift(at)
	tokens := t.tokensAt(at)
	if n <= 0 || float64(n) > tokens || t.limit == 0 {
		return false
	}
	t.tokens, t.c.last = tokens-float64(n), at
	return true
}

func (t *tank) takeBy(at, now time.Time, n int) (time.Time, error) {
	if t.pay(at, n) {
		return earliest(t.c.last, now), nil
	}
	return takeReady(t, at, now, n)
}

// payAlone is pay for one who does not hold the lock.
func (t *tank) payAlone(at time.Time, n int) bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	return t.pay(at, n)
}

func (t *tank) check(n int) error {
	switch {
	case n < 0:
		return errNegative(n)
	case n == 0 || t.limit == rate.Inf:
		return nil
	case t.limit == 0:
		return fmt.Errorf("throttle: cost %d can never be paid: the limit is 0", n)
	case span(float64(n)-float64(t.burst), t.limit) > maxSurplus:
		return fmt.Errorf("throttle: cost %d is above burst %d, and at %v/s the surplus takes more than %v", n, t.burst, t.limit, maxSurplus)
	}
	return nil
}

// take books n tokens as of at, whatever there is; a negative n adds tokens. What is above the
// burst is cut by the next reckoning.
func (t *tank) take(at time.Time, n int) {
	at = t.c.lift(at)
	t.tokens, t.c.last = t.tokensAt(at)-float64(n), at
}

// giveBack is exact, min(B, min(B, x−n) + n + r·Δt) being what the bucket would hold without the take,
// unless it has filled up and been drawn on since: then up to n units come on top.
func (t *tank) giveBack(_, now time.Time, n int) { t.take(now, -n) }

// after: n units start when the tokens reach n, or the burst if that is less. Under backlog no token
// is ever cut off, so the units ahead and our own simply add up.
func (t *tank) after(from time.Time, ahead int64, n int) time.Time {
	from = t.c.lift(from)
	if ahead == 0 && n == 0 {
		return from
	}
	need := float64(ahead) + float64(min(n, t.burst))
	return from.Add(span(need-t.tokensAt(from), t.limit))
}

func (t *tank) rate() rate.Limit { return t.limit }

func (t *tank) available(now time.Time) float64 {
	switch tokens := t.tokensAt(t.c.lift(now)); t.limit {
	case rate.Inf:
		return math.Inf(1)
	case 0:
		return min(0, tokens)
	default:
		return tokens
	}
}

func (t *tank) fresh(now time.Time) bool {
	return !t.c.changed && (t.limit == rate.Inf || t.tokensAt(t.c.lift(now)) >= float64(t.burst))
}

// Take implements [Limiter]; ctx is not used. A cost above the burst goes when the bucket is full
// and leaves a debt. It errs for a negative cost, for any cost if the limit is 0, and for one whose
// surplus over the burst takes more than an hour.
func (t *tank) Take(_ context.Context, n int) (wait time.Duration, err error) { return takeNow(t, n) }

// Adjust implements [Adjuster]: n < 0 gives units back, never above the burst; n > 0 takes more and
// may leave a debt.
func (t *tank) Adjust(n int) {
	t.c.change(func(now time.Time) { t.take(now, n) })
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
		limit = checkLimit("SetLimit", limit, t.burst)
		t.take(now, 0)
		if t.limit == rate.Inf { // which fills the bucket in no time
			t.tokens = float64(t.burst)
		}
		t.limit, t.c.changed = limit, true
	})
}

// checkLimit panics for nonsense and returns limit with every infinity written as rate.Inf, because
// 0 s of a real infinity would make NaN of the tokens.
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
// It reckons as [rate.Limiter] does, whose verbs it answers thus:
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
	wait func(context.Context) error // that of a Queue, made by the first Wait; guarded by the tank's lock
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
	return b.burst
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
		checkLimit("SetBurst", b.limit, burst)
		b.take(now, 0)
		b.burst, b.tokens = burst, min(b.tokens, float64(burst))
		b.c.changed = true
	})
}

// Reserve books n units now, as a debt if the bucket lacks them, and tells how long to wait before
// using them. It goes before all who wait in a line, and a pause cannot stop it; prefer Wait.
func (b *Bucket) Reserve(n int) *Reservation {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	now := b.c.lift(time.Now())
	if b.check(n) != nil {
		return &Reservation{}
	}
	r := &Reservation{bucket: b, act: b.after(now, 0, n), units: n}
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
// it only if they were not used, and soon: if the bucket has filled up and been drawn on meanwhile,
// they come on top of its burst. Sleeping lines are told. A second call does nothing.
func (r *Reservation) Cancel() {
	if r.bucket == nil {
		return
	}
	r.bucket.c.change(func(now time.Time) {
		r.bucket.take(now, -r.units)
		r.units = 0
	})
}
