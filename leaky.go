package throttle

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/account"
)

// A Leaky is a leaky bucket: units leave evenly spaced, 1/limit apart, and nothing is saved up while
// nobody asks, so there are never bursts. Unit i leaves at max(its arrival, unit i−1 + 1/limit).
// Under backlog the gaps are equal to the nanosecond; any window of length L admits at most
// 1 + limit·L units.
//
// A cost of n goes when one unit could, and the next unit leaves n/limit later. It is an error if
// (n − 1)/limit is more than an hour. A limit of 0 refuses every cost above 0 with an error; under
// [rate.Inf] all units are ready at once.
//
// Make it with [NewLeaky]: the zero Leaky refuses every cost until SetLimit. It is safe for concurrent
// use and must not be copied. That spacing is what a token bucket of burst 1 does, so it is one.
type Leaky struct{ tank account.Tank }

// NewLeaky returns a leaky bucket of limit units per second. It panics if limit is negative or NaN.
func NewLeaky(limit rate.Limit) *Leaky {
	l := new(Leaky)
	l.tank.Init("NewLeaky", limit, 1)
	return l
}

// Take implements [Limiter]; ctx is not used. A cost above 1 leaves a debt. It errs for the costs
// named above and for a negative one.
func (l *Leaky) Take(_ context.Context, n int) (wait time.Duration, err error) {
	return account.TakeNow(&l.tank, n)
}

// Adjust implements [Adjuster]: n < 0 gives units back, never above one; n > 0 takes more and may
// leave a debt.
func (l *Leaky) Adjust(n int) { l.tank.Adjust(n) }

// Notify implements [Notifier].
func (l *Leaky) Notify(changed func()) (stop func()) { return l.tank.Notify(changed) }

// Limit returns the rate in units per second.
func (l *Leaky) Limit() rate.Limit { return l.tank.Limit() }

// SetLimit changes the rate, in units per second, from now on, and tells sleeping lines. It panics
// where NewLeaky would.
func (l *Leaky) SetLimit(limit rate.Limit) { l.tank.SetLimit(limit) }
