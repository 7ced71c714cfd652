package client

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/platinummonkey/go-concurrency-limits/core"
	"github.com/platinummonkey/go-concurrency-limits/limit"
	"github.com/platinummonkey/go-concurrency-limits/limiter"
	"github.com/platinummonkey/go-concurrency-limits/strategy"

	"github.com/go-throttle/throttle"
)

// The names of those that others are compared with.
const (
	NoLimit    = "no limit"
	FixedLimit = "best fixed limit" // Job.InFlight
)

// Adaptive are the clients for scenarios in which a limit of the calls in flight is to follow response times, the library
// last. The peers have their defaults. The library is given a target: by how much Job.Usual may be exceeded.
func Adaptive() []Client {
	var all []Client
	for _, c := range []struct {
		name  string
		start func(Job) http.RoundTripper
	}{
		{NoLimit, func(job Job) http.RoundTripper { return job.Base }},
		{FixedLimit, func(job Job) http.RoundTripper { return withSlots(job.Base, job.InFlight) }},
		{"go-concurrency-limits: Vegas", func(job Job) http.RoundTripper {
			return netflix(job, limit.NewDefaultVegasLimit("", nil, nil))
		}},
		{"go-concurrency-limits: Gradient2", func(job Job) http.RoundTripper {
			return netflix(job, limit.NewDefaultGradient2Limit("", nil, nil))
		}},
		{"go-concurrency-limits: AIMD", func(job Job) http.RoundTripper {
			return netflix(job, limit.NewDefaultAIMDLimit("", nil))
		}},
		{"failsafe-go: adaptive limiter", failsafeAdaptive},
		{"throttle: target 1.2 × p90", targeted(1.2)},
		{"throttle: target 2 × p90", targeted(2)},
	} {
		start := func(job Job) (Doer, error) { return over(c.start(job), job), nil }
		all = append(all, Client{Name: c.name, Bubble: true, Adapts: true, Start: start})
	}
	return all
}

// targeted is the library with a target for response times, and no call more than there are workers.
func targeted(factor float64) func(Job) http.RoundTripper {
	return func(job Job) http.RoundTripper {
		return &throttle.Transport{Base: job.Base, Queue: throttle.QueueOptions{
			InFlight: &throttle.Adaptive{Target: factor * job.Usual.Seconds(), Most: job.Workers},
		}}
	}
}

// An enter asks a peer's limiter for a place, without waiting. leave gives it back, and says whether it was answered.
type enter func() (leave func(answered bool), ok bool)

// netflix is a law of go-concurrency-limits in its DefaultLimiter, with the values of NewDefaultLimiterWithDefaults.
func netflix(job Job, law core.Limit) http.RoundTripper {
	l, err := limiter.NewDefaultLimiter(law, int64(time.Second), int64(time.Second), int64(100*time.Microsecond), 100,
		strategy.NewSimpleStrategy(law.EstimatedLimit()), limit.NoopLimitLogger{}, core.EmptyMetricRegistryInstance)
	if err != nil {
		panic(err) // the values are its own
	}
	return &inTurn{base: job.Base, enter: func() (func(bool), bool) {
		listener, ok := l.Acquire(context.Background())
		if !ok {
			return nil, false
		}
		return func(answered bool) {
			if answered {
				listener.OnSuccess()
			} else {
				listener.OnDropped()
			}
		}, true
	}}
}

// failsafeAdaptive is what NewWithDefaults makes.
func failsafeAdaptive(job Job) http.RoundTripper {
	l := adaptivelimiter.NewWithDefaults[*http.Response]()
	return &inTurn{base: job.Base, enter: func() (func(bool), bool) {
		permit, ok := l.TryAcquirePermit()
		if !ok {
			return nil, false
		}
		return func(answered bool) {
			if answered {
				permit.Record()
			} else {
				permit.Drop()
			}
		}, true
	}}
}

// inTurn has calls wait for a place, first come first served. The peers' own lines refuse, or hold 100 calls for a second, which
// would compare lines rather than laws.
type inTurn struct {
	base  http.RoundTripper
	enter enter

	mu      sync.Mutex
	waiting []chan func(bool)
}

// RoundTrip keeps its place until the answer's body is closed. A 429 or a 5xx is not an answer.
func (l *inTurn) RoundTrip(req *http.Request) (*http.Response, error) {
	leave, err := l.wait(req.Context())
	if err != nil {
		return nil, unsent(req, err)
	}
	resp, err := l.base.RoundTrip(req)
	if err != nil {
		l.leave(leave, false)
		return nil, err
	}
	answered := resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests
	resp.Body = &endBody{resp.Body, sync.OnceFunc(func() { l.leave(leave, answered) })}
	return resp, nil
}

func (l *inTurn) wait(ctx context.Context) (leave func(bool), err error) {
	turn := make(chan func(bool), 1)
	l.mu.Lock()
	l.waiting = append(l.waiting, turn)
	l.nextLocked()
	l.mu.Unlock()
	select {
	case leave = <-turn:
		return leave, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, turn); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		return nil, ctx.Err()
	}
	return <-turn, nil // it came first
}

func (l *inTurn) leave(leave func(bool), answered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	leave(answered)
	l.nextLocked()
}

// nextLocked gives places to who waits, as long as there are any.
func (l *inTurn) nextLocked() {
	for len(l.waiting) > 0 {
		leave, ok := l.enter()
		if !ok {
			return
		}
		l.waiting[0] <- leave
		l.waiting = l.waiting[1:]
	}
}
