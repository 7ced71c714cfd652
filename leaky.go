package throttle

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/limit"
)

// A Leaky is a leaky bucket: units leave evenly spaced, 1/limit apart. Nothing is saved up while nobody
// asks, so there are no bursts. Unit i leaves at max(its arrival, when unit i−1 left + 1/limit). Under
// backlog the gaps are equal to the nanosecond, and any window of length L admits at most 1 + limit·L units.
//
// A cost of n goes when one unit could, and the next call n/limit later. If (n − 1)/limit is more than an hour, the cost
// is an error. A limit of 0 admits nothing: every cost above 0 is an error. Under [rate.Inf] all units are ready at once.
//
// Make it with [NewLeaky]: the zero Leaky errs for every cost until SetLimit. It is safe for concurrent use
// and must not be copied. Inside it is a token bucket of burst 1, which spaces units just so.
type Leaky struct{ bucket limit.Bucket }

// NewLeaky returns a leaky bucket of limit units per second. It panics if limit is negative or NaN.
func NewLeaky(limit rate.Limit) *Leaky {
	l := new(Leaky)
	l.bucket.Init("NewLeaky", limit, 1)
	return l
}

// Take implements [Limiter]; ctx is not used. A cost above 1 leaves a debt. Take returns an error for a
// negative cost and for those that the type's doc names.
func (l *Leaky) Take(_ context.Context, n int) (wait time.Duration, err error) {
	return limit.TakeNow(&l.bucket, n)
}

// Adjust implements [Adjuster] as [Bucket.Adjust] does: n < 0 gives units back, up to one, if a call has cost less than
// was taken; n > 0 takes more, and may leave a debt.
func (l *Leaky) Adjust(n int) { l.bucket.Adjust(n) }

// Notify implements [Notifier], as [Bucket.Notify] does, for code without a [Queue].
func (l *Leaky) Notify(changed func()) (stop func()) { return l.bucket.Notify(changed) }

// String returns the limit as [ParseLimit] reads it, such as "5/s even".
func (l *Leaky) String() string { return l.bucket.Even() }

// Limit returns the rate in units per second.
func (l *Leaky) Limit() rate.Limit { return l.bucket.Limit() }

// SetLimit changes the rate, in units per second, from now on, and re-times sleeping callers. It panics if
// NewLeaky would.
func (l *Leaky) SetLimit(limit rate.Limit) { l.bucket.SetLimit(limit) }
