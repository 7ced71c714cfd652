package throttle

import (
	"context"
	"math"
)

// ctxOrder is what WithPriority and WithCost put into a ctx: one value for both, so that a call looks it
// up once.
type ctxOrder struct {
	cost    int
	hasCost bool // WithCost has set cost; otherwise Transport.Cost may
	prio    int32
}

// ctxKey is the key of that value.
type ctxKey struct{}

// ctxValue returns what ctx says, or the defaults.
func ctxValue(ctx context.Context) ctxOrder {
	v, _ := ctx.Value(ctxKey{}).(*ctxOrder)
	if v == nil {
		return ctxOrder{cost: 1}
	}
	return *v
}

// WithPriority returns a ctx whose calls go before those of a lower priority in the same line. The default
// is 0; values beyond 32 bits are clamped. Every eighth call is the one that has waited longest, so a low
// priority is slow but never starves. If calls of all priorities are always waiting, the highest gets
// 87.5 % of the starts and the others share the rest equally. Use few different priorities: each one in
// use makes the line slower.
func WithPriority(ctx context.Context, p int) context.Context {
	v := ctxValue(ctx)
	v.prio = int32(min(max(p, math.MinInt32), math.MaxInt32))
	return context.WithValue(ctx, ctxKey{}, &v)
}

// WithCost returns a ctx whose calls take n units instead of 1, or of what Transport.Cost says. A cost of 0
// takes no units but waits its turn; a negative one is an error. Each attempt takes n units, also one that
// fails or is throttled: a call that is throttled twice takes 3·n. If the cost is known only afterwards,
// take an estimate and correct it through the limiter's Adjust, as the tokens example of Transport does.
// If the upstream does not charge for what it throttles, give those units back in the hook Throttled.
func WithCost(ctx context.Context, n int) context.Context {
	v := ctxValue(ctx)
	v.cost, v.hasCost = n, true
	return context.WithValue(ctx, ctxKey{}, &v)
}
