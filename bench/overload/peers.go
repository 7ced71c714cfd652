package main

import (
	"context"
	"net/http"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/go-kratos/aegis/ratelimit"
	"github.com/go-kratos/aegis/ratelimit/bbr"
	"github.com/platinummonkey/go-concurrency-limits/core"
	"github.com/platinummonkey/go-concurrency-limits/limit"
	"github.com/platinummonkey/go-concurrency-limits/limiter"
	"github.com/platinummonkey/go-concurrency-limits/strategy"
	"github.com/zeromicro/go-zero/core/load"
	"github.com/zeromicro/go-zero/core/logx"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/inbound"
)

// A Peer is a middleware with its defaults.
type Peer struct {
	Name string
	New  func(next http.Handler) http.Handler
}

// Peers are all that are compared.
var Peers = []Peer{
	{"none", func(next http.Handler) http.Handler { return next }},
	{"throttle: Overload", func(next http.Handler) http.Handler { return new(inbound.Overload).Handler(next) }},
	{"throttle: Overload, Adaptive of 0.5 s", func(next http.Handler) http.Handler {
		return (&inbound.Overload{Adaptive: &throttle.Adaptive{Target: 0.5, Most: 1000}}).Handler(next)
	}},
	{"Kratos: BBR", func(next http.Handler) http.Handler { return guarded(next, kratos()) }},
	{"go-zero: adaptive shedder", func(next http.Handler) http.Handler { return guarded(next, goZero()) }},
	{"failsafe-go: adaptive limiter", func(next http.Handler) http.Handler { return guarded(next, failsafe()) }},
	{"go-concurrency-limits: Gradient2", func(next http.Handler) http.Handler { return guarded(next, gradient2()) }},
}

// An enter asks for a place, and leave gives it back.
type enter func() (leave func(), ok bool)

// guarded answers 503 to a request for which there is no place.
func guarded(next http.Handler, e enter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leave, ok := e()
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer leave()
		next.ServeHTTP(w, r)
	})
}

func kratos(options ...bbr.Option) enter {
	l := bbr.NewLimiter(options...)
	return func() (func(), bool) {
		done, err := l.Allow()
		return func() { done(ratelimit.DoneInfo{}) }, err == nil
	}
}

func goZero(options ...load.ShedderOption) enter {
	logx.Disable()
	l := load.NewAdaptiveShedder(options...)
	return func() (func(), bool) {
		promise, err := l.Allow()
		return func() { promise.Pass() }, err == nil
	}
}

func failsafe() enter {
	l := adaptivelimiter.NewWithDefaults[any]()
	return func() (func(), bool) {
		permit, ok := l.TryAcquirePermit()
		return func() { permit.Record() }, ok
	}
}

func gradient2() enter {
	law := limit.NewDefaultGradient2Limit("", nil, nil)
	l, err := limiter.NewDefaultLimiter(law, int64(time.Second), int64(time.Second), int64(100*time.Microsecond), 100,
		strategy.NewSimpleStrategy(law.EstimatedLimit()), limit.NoopLimitLogger{}, core.EmptyMetricRegistryInstance)
	if err != nil {
		panic(err) // the values are its own
	}
	return func() (func(), bool) {
		listener, ok := l.Acquire(context.Background())
		return func() { listener.OnSuccess() }, ok
	}
}
