package throttle

import (
	"context"
	"math"
)

// ctxOrder is the value behind WithPriority and WithCost.
type ctxOrder struct {
	cost    int
	hasCost bool
	prio    int32
}

type ctxKey struct{}

func ctxValue(ctx context.Context) ctxOrder {
	v, _ := ctx.Value(ctxKey{}).(*ctxOrder)
	if v == nil {
		return ctxOrder{cost: 1}
	}
	return *v
}

// WithPriority returns a ctx whose calls go before those of a lower priority in
// the same line. The default is 0. Every eighth turn goes to the call that has
// waited longest, so a lower priority is slow, not starved: while all levels always have
// calls waiting, the highest gets 87.5 % and those below share the rest equally,
// 6.25 % each if there are two of them. Values beyond 32 bits count as the nearest
// that fits. Use few different ones: each that somebody waits with costs time at
// turns of the line.
func WithPriority(ctx context.Context, p int) context.Context {
	v := ctxValue(ctx)
	v.prio = int32(min(max(p, math.MinInt32), math.MaxInt32))
	return context.WithValue(ctx, ctxKey{}, &v)
}

// WithCost returns a ctx whose calls take n units of the limit instead of 1, or of
// what Transport.Cost says. Each attempt takes them anew, and one that the upstream
// throttles, or that fails, has paid too: a call that is throttled twice takes 3·n
// in all. A cost of 0 takes none, but waits its turn; a negative one is an error.
//
// Where the cost is known only afterwards, give an estimate, and correct it with
// the Adjust of the limiter when the answer has come. That corrects the last
// attempt alone. Where the upstream does not charge for what it throttles, give
// those units back as well: Hooks.Throttled tells of each such attempt.
func WithCost(ctx context.Context, n int) context.Context {
	v := ctxValue(ctx)
	v.cost, v.hasCost = n, true
	return context.WithValue(ctx, ctxKey{}, &v)
}
