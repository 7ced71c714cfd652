package account

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/moment"
)

// A Tank is a token bucket: the account of a throttle.Bucket and of a throttle.Leaky. Its formulas are those of
// rate.Limiter; the account is our own because that one has a second lock, reads its clock outside
// it, loses units when a reservation is cancelled, and has no word for a debt.
type Tank struct {
	c      core
	limit  rate.Limit
	burst  int
	tokens float64 // at the moment c.last; below 0: a debt. Under rate.Inf they mean nothing
}

func (t *Tank) core() *core { return &t.c }

// Init makes a full account. It panics for nonsense; caller is the constructor to be named.
func (t *Tank) Init(caller string, limit rate.Limit, burst int) {
	limit = checkLimit(caller, limit, burst)
	t.limit, t.burst, t.tokens = limit, burst, float64(burst)
}

// tokensAt is min(burst, tokens + limit·(at − last)); at is not before last.
func (t *Tank) tokensAt(at time.Time) float64 {
	tokens := t.tokens + at.Sub(t.c.last).Seconds()*float64(t.limit)
	if full := float64(t.burst); tokens > full {
		return full
	}
	return tokens
}

// pay takes n units as of at, if they are there: the whole cost of a take that need not wait.
func (t *Tank) pay(at time.Time, n int) bool {
	at = t.c.lift(at)
	tokens := t.tokensAt(at)
	if n <= 0 || float64(n) > tokens || t.limit == 0 {
		return false
	}
	t.tokens, t.c.last = tokens-float64(n), at
	return true
}

func (t *Tank) takeBy(at, now time.Time, n int) (time.Time, error) {
	if t.pay(at, n) {
		return moment.Earliest(t.c.last, now), nil
	}
	return takeReady(t, at, now, n)
}

func (t *Tank) check(n int) error {
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

// consume books n tokens as of at, whatever there is; a negative n adds tokens. What is above the
// burst is cut by the next reckoning.
func (t *Tank) consume(at time.Time, n int) {
	at = t.c.lift(at)
	t.tokens, t.c.last = t.tokensAt(at)-float64(n), at
}

// giveBack is exact, min(B, min(B, x−n) + n + r·Δt) being what the bucket would hold without the take,
// unless it has filled up and been drawn on since: then up to n units come on top.
func (t *Tank) giveBack(_, now time.Time, n int) { t.consume(now, -n) }

// after: n units start when the tokens reach n, or the burst if that is less. Under backlog no token
// is ever cut off, so the units ahead and our own simply add up.
func (t *Tank) after(from time.Time, ahead int64, n int) time.Time {
	from = t.c.lift(from)
	switch {
	case n == 0 && (ahead == 0 || t.limit == 0):
		return from
	case t.limit == 0:
		return from.Add(Forever)
	}
	need := float64(ahead) + float64(min(n, t.burst))
	return from.Add(span(need-t.tokensAt(from), t.limit))
}

// rate implements [Account]: it is Limit, for those who hold the lock.
func (t *Tank) rate() rate.Limit { return t.limit }

func (t *Tank) available(now time.Time) float64 {
	switch tokens := t.tokensAt(t.c.lift(now)); t.limit {
	case rate.Inf:
		return float64(rate.Inf)
	case 0:
		return min(0, tokens)
	default:
		return tokens
	}
}

func (t *Tank) fresh(now time.Time) bool {
	return !t.c.changed && (t.limit == rate.Inf || t.tokensAt(t.c.lift(now)) >= float64(t.burst))
}

// The methods that follow take the lock themselves.

// payAlone is pay, for a call that pays nothing but this account.
func (t *Tank) payAlone(at time.Time, n int) bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	return t.pay(at, n)
}

// takeByAlone is takeBy, for a call that pays nothing but this account.
func (t *Tank) takeByAlone(at, now time.Time, n int) (time.Time, error) {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	return t.takeBy(at, now, n)
}

// afterAlone is after likewise.
func (t *Tank) afterAlone(from time.Time, ahead int64, n int) time.Time {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	return t.after(from, ahead, n)
}

// Locked runs f under the lock.
func (t *Tank) Locked(f func()) {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	f()
}

// Adjust takes n units, whatever there is; a negative n gives them back.
func (t *Tank) Adjust(n int) {
	t.c.change(func(now time.Time) { t.consume(now, n) })
}

// Notify has changed called after each change.
func (t *Tank) Notify(changed func()) (stop func()) { return t.c.notify(changed) }

// Limit returns the rate.
func (t *Tank) Limit() (limit rate.Limit) {
	t.Locked(func() { limit = t.limit })
	return limit
}

// Burst returns the most units that are held.
func (t *Tank) Burst() (burst int) {
	t.Locked(func() { burst = t.burst })
	return burst
}

// Tokens returns the units that could be taken now.
func (t *Tank) Tokens() (tokens float64) {
	t.Locked(func() { tokens = t.available(time.Now()) })
	return tokens
}

// SetLimit changes the rate; what was earned at the old one stays. The zero Tank gets a burst of 1.
func (t *Tank) SetLimit(limit rate.Limit) {
	t.c.change(func(now time.Time) {
		burst := t.burst
		if burst == 0 && t.limit == 0 && limit < rate.Inf {
			burst = 1
		}
		limit = checkLimit("SetLimit", limit, burst)
		t.burst = burst
		t.consume(now, 0)
		if t.limit == rate.Inf { // which fills the bucket in no time
			t.tokens = float64(t.burst)
		}
		t.limit, t.c.changed = limit, true
	})
}

// SetBurst changes the burst: a lower one cuts what is held.
func (t *Tank) SetBurst(burst int) {
	t.c.change(func(now time.Time) {
		checkLimit("SetBurst", t.limit, burst)
		t.consume(now, 0)
		t.burst, t.tokens = burst, min(t.tokens, float64(burst))
		t.c.changed = true
	})
}

// A Booking is n units taken whether they are there or not, until it is cancelled.
type Booking struct {
	Tank  *Tank     // nil: refused
	Act   time.Time // when the units may be used; fixed
	units int       // what Cancel gives back; guarded by the tank's lock
}

// Book takes n units as of now, as a debt if they are not there.
func (t *Tank) Book(n int) Booking {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	now := t.c.lift(time.Now())
	if t.check(n) != nil {
		return Booking{}
	}
	b := Booking{Tank: t, Act: t.after(now, 0, n), units: n}
	if t.limit == rate.Inf {
		b.units = 0 // nothing is booked, so nothing can come back when a limit is set
	}
	t.consume(now, n)
	return b
}

// Cancel gives the units back, once.
func (b *Booking) Cancel() {
	if b.Tank == nil {
		return
	}
	b.Tank.c.change(func(now time.Time) {
		b.Tank.consume(now, -b.units)
		b.units = 0
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
	if ns >= float64(Forever) {
		return Forever
	}
	return time.Duration(ns)
}
