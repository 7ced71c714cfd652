package throttle

import (
	"context"
	"math"
	"time"

	"github.com/go-throttle/throttle/internal/fault"
	"github.com/go-throttle/throttle/internal/queue"
)

// ctxOrder is what WithPriority and the others put into a ctx: one value for all, so that a call looks it up once.
type ctxOrder struct {
	want     queue.Want
	hasCost  bool                // WithCost has set want.Cost; otherwise Transport.Cost may
	attempts int                 // of WithMaxAttempts; 0: as Retry says
	holds    map[string]int      // of WithHold; never changed
	bill     *Bill               // of WithBill
	last     *fault.Last[*Error] // of WithError
}

// ctxKey is the key of that value.
type ctxKey struct{}

// noOrder is what a ctx without any of them says. Nobody changes it.
var noOrder = ctxOrder{want: queue.Want{Cost: 1}}

// ctxValue returns what ctx says, or the defaults. It must not be changed.
func ctxValue(ctx context.Context) *ctxOrder {
	if v, ok := ctx.Value(ctxKey{}).(*ctxOrder); ok {
		return v
	}
	return &noOrder
}

// WithPriority returns a ctx whose calls go before those of a lower priority in the same line. The default is 0; values
// beyond 32 bits are clamped. Every eighth call is the one that has waited longest, so a low priority is slow but never
// starves. If calls of all priorities are always waiting, the highest gets 87.5 % of the starts and the others share the
// rest equally. Use few different priorities: each one in use makes the line slower.
func WithPriority(ctx context.Context, p int) context.Context {
	v := *ctxValue(ctx)
	v.want.Priority = int32(min(max(p, math.MinInt32), math.MaxInt32))
	return context.WithValue(ctx, ctxKey{}, &v)
}

// WithCost returns a ctx whose calls take n units instead of 1, or of what Transport.Cost says. A cost of 0
// takes no units but waits its turn; a negative one is an error, and one beyond 32 bits is clamped.
// Each attempt takes n units, also one that fails or is throttled: a call that is throttled twice takes 3·n.
// If the cost is known only afterwards, or the upstream does not charge for what it throttles, use Transport.Meters.
func WithCost(ctx context.Context, n int) context.Context {
	v := *ctxValue(ctx)
	v.want.Cost, v.hasCost = n, true
	return context.WithValue(ctx, ctxKey{}, &v)
}

// WithMaxAttempts returns a ctx whose calls make at most n attempts, the first included, in place of
// Retry.MaxAttempts. Negative: as many as fit until ctx ends, whatever the budget. 0: as Retry says. A Group and a Queue, which make
// one attempt, ignore it.
func WithMaxAttempts(ctx context.Context, n int) context.Context {
	v := *ctxValue(ctx)
	v.attempts = n
	return context.WithValue(ctx, ctxKey{}, &v)
}

// WithMaxWait returns a ctx whose calls wait for at most d, in place of QueueOptions.MaxWait: each attempt starts
// within d or fails with ErrWaitTooLong. A call that is predicted to wait longer fails at once. With d ≤ 0 it
// starts at once or not at all. Retry.MaxPause holds too.
func WithMaxWait(ctx context.Context, d time.Duration) context.Context {
	v := *ctxValue(ctx)
	if v.want.MaxWait = d; d <= 0 {
		v.want.MaxWait = -1
	}
	return context.WithValue(ctx, ctxKey{}, &v)
}

// WithFlow returns a ctx whose calls belong to a flow, such as a tenant's. Among waiting calls of one priority the
// flows take turns, by QueueOptions.Weight: who floods the line delays only itself, and a newcomer waits for at most
// about one call of each other flow. Calls that name no flow are one flow together; where keys share a limiter
// or slots those of each key are. The name is shown in Stats, so it must not be a credential; above 256
// bytes it is cut, and ends with a hash of the whole.
func WithFlow(ctx context.Context, name string) context.Context {
	v := *ctxValue(ctx)
	v.want.Flow = bounded(name)
	return context.WithValue(ctx, ctxKey{}, &v)
}

// WithError returns a ctx, and a function that explains the error of one call of an SDK: it joins the [*Error] of the newest
// request under ctx to it, or what Reason says of that request's response. Use it if the *Error is lost on the way: many SDKs
// return ctx.Err() alone, and http.Client keeps only a text after its Timeout. errors.Is and errors.As find both errors. nil, an
// error that has an *Error, and one that this package has no part in stay as they are. A Group and a Queue ignore it. Of
// requests at the same time the one that ends last counts, and a ctx made from this one by WithError explains alone.
func WithError(ctx context.Context) (_ context.Context, explain func(error) error) {
	v := *ctxValue(ctx)
	v.last = new(fault.Last[*Error])
	return context.WithValue(ctx, ctxKey{}, &v), v.last.Explain
}

// attemptKey is the key of the number of the attempt under way.
type attemptKey struct{}

// withAttempt returns a ctx of that attempt.
func withAttempt(ctx context.Context, n int) context.Context {
	return context.WithValue(ctx, attemptKey{}, n)
}

// Attempt returns the number of the attempt that ctx belongs to: the last one sent in [Retry].Check and [Hooks],
// 0 before the first, and the one under way in Transport.Base, from the second on. The first attempt sends the
// caller's own request, so Attempt is 0 there, as in any ctx that is not of a call.
func Attempt(ctx context.Context) int {
	n, _ := ctx.Value(attemptKey{}).(int)
	return n
}
