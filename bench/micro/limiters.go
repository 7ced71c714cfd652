package micro

import (
	"context"
	"net/http"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/bench/scenario"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"
	restyv3 "resty.dev/v3"
)

// A limiter is a library's without its HTTP.
type limiter struct {
	try  func() bool // nil: it has none
	wait func(context.Context) error
}

// free are limiters whose limit nobody reaches.
func free(name string) limiter {
	switch name {
	case reference:
		l := rate.NewLimiter(rate.Limit(plenty.N), plenty.Burst)
		return limiter{l.Allow, l.Wait}
	case uber:
		l := ratelimit.New(plenty.N, ratelimit.WithSlack(plenty.Burst))
		return limiter{nil, func(context.Context) error { l.Take(); return nil }}
	case failsafe:
		l := ratelimiter.NewSmooth[*http.Response](uint(plenty.N), plenty.Per)
		return limiter{l.TryAcquirePermit, l.AcquirePermit}
	case resty:
		return limiter{nil, restyv3.NewRateLimitTokenBucket(float64(plenty.N), plenty.Burst).Allow}
	case library:
		b := throttle.NewBucket(rate.Limit(plenty.N), plenty.Burst)
		return limiter{b.Allow, throttle.NewQueue(b, throttle.QueueOptions{}).Wait}
	}
	return limiter{}
}

func limiters() scenario.Scenario {
	return scenario.Scenario{
		Name:  "limiter",
		Title: "Cost of a limiter alone",
		About: "A limiter that has a unit left is asked for it: by a call that never waits (Allow, TryAcquirePermit) and by one that " +
			"would (Wait, Take, AcquirePermit; of throttle, Queue.Wait). CPU of the process; from two goroutines " +
			"at once the clock's time for each. The ratio is to rate.Limiter.Wait in the same run.",
		Metrics: []scenario.Metric{
			{Name: "try_ns", Title: "without waiting", Unit: "ns", Better: -1},
			{Name: "wait_ns", Title: "ready to wait", Unit: "ns", Better: -1},
			{Name: "wait_x", Title: "ratio", Better: -1, Digits: 2},
			{Name: "wait2_ns", Title: "two at once", Unit: "ns", Better: -1},
			{Name: "wait2_x", Title: "ratio", Better: -1, Digits: 2},
			{Name: "allocs", Title: "allocations", Better: -1},
		},
		Takes: time.Second, Alone: true, Noisy: true,
		Fits: only(reference, uber, failsafe, resty, library),
		Run:  runLimiters,
	}
}

func runLimiters(ctx context.Context, c client.Client, o scenario.Options) (scenario.Result, error) {
	r := scenario.Result{Values: map[string]float64{}}
	wait, cancel := request(ctx)
	defer cancel()
	ref, mine := free(reference), free(c.Name)
	works := []work{
		waits(wait, ref), waits(wait, mine),
		together(waits(wait, ref), waits(wait, ref)), together(waits(wait, mine), waits(wait, mine)),
	}
	if mine.try != nil {
		works = append(works, tries(mine))
	}
	ns, err := times(ctx, o, works...)
	if err != nil {
		return r, err
	}
	put(r.Values, "wait", ns[1].alone(), ns[0].alone())
	put(r.Values, "wait2", ns[3].wall, ns[2].wall)
	if mine.try != nil {
		r.Values["try_ns"] = ns[4].alone()
	}
	r.Values["allocs"] = allocs(works[1])
	return r, nil
}

func waits(ctx context.Context, l limiter) work {
	return func(n int) {
		for range n {
			if err := l.wait(ctx); err != nil {
				return // ctx is over, and the run with it
			}
		}
	}
}

func tries(l limiter) work {
	return func(n int) {
		for range n {
			l.try()
		}
	}
}
