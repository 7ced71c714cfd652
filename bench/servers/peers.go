// Package servers sets package inbound beside the middleware that people use instead: what a request costs, what a key
// costs, whether Retry-After is true, what a flood of keys does, and whom a client can pretend to be. From the root of
// the repository:
//
//	go run ./bench/cmd/servers -out bench/results/inbound.md
package servers

import (
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/didip/tollbooth/v8"
	tblimiter "github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled"
	"github.com/throttled/throttled/store/memstore"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/go-throttle/throttle/inbound"
)

// A Peer is a middleware, set up as its documentation recommends.
type Peer struct {
	Name string
	// New limits each client to n requests per time per, around a handler.
	New func(n int, per time.Duration, next http.Handler) http.Handler
	// Proxied is New behind a proxy in 10.0.0.0/8 that appends to X-Forwarded-For, with what the peer has for that;
	// nil: nothing.
	Proxied func(n int, per time.Duration, next http.Handler) http.Handler
}

// proxies is where the proxy is.
const proxies = "10.0.0.0/8"

// Peers are all that are compared; the first is ours.
var Peers = []Peer{
	{"throttle/inbound, bucket", ours(" burst "), oursProxied},
	{"throttle/inbound, sliding", ours(" sliding"), nil},
	{"throttle/inbound, no fields", bare, nil},
	{"go-chi/httprate", func(n int, per time.Duration, next http.Handler) http.Handler {
		return httprate.LimitBy(n, per, func(r *http.Request) (string, error) {
			ip, _, err := net.SplitHostPort(r.RemoteAddr)
			return httprate.CanonicalizeIP(ip), err
		})(next)
	}, func(n int, per time.Duration, next http.Handler) http.Handler {
		limit := httprate.LimitBy(n, per, func(r *http.Request) (string, error) { return middleware.GetClientIP(r.Context()), nil })
		return middleware.ClientIPFromXFF(proxies)(limit(next))
	}},
	{"didip/tollbooth", booth("RemoteAddr"), booth("X-Forwarded-For")},
	{"ulule/limiter", fixed(), fixed(limiter.WithTrustForwardHeader(true))},
	{"throttled/throttled", gcra(&throttled.VaryBy{RemoteAddr: true}), gcra(&throttled.VaryBy{Headers: []string{"X-Forwarded-For"}})},
	{"sethvargo/go-limiter", tokens(), tokens("X-Forwarded-For")},
}

// ours makes a Limit of the words that follow n/per.
func ours(words string) func(int, time.Duration, http.Handler) http.Handler {
	return func(n int, per time.Duration, next http.Handler) http.Handler {
		l := &inbound.Limit{Limits: []string{text(n, per, words)}, MaxKeys: keys}
		return l.Handler(next)
	}
}

func bare(n int, per time.Duration, next http.Handler) http.Handler {
	l := &inbound.Limit{Limits: []string{text(n, per, " burst ")}, MaxKeys: keys, NoFields: true}
	return l.Handler(next)
}

func oursProxied(n int, per time.Duration, next http.Handler) http.Handler {
	l := &inbound.Limit{Limits: []string{text(n, per, " burst ")}, Key: inbound.ByIP(netip.MustParsePrefix(proxies))}
	return l.Handler(next)
}

func booth(lookup string) func(int, time.Duration, http.Handler) http.Handler {
	return func(n int, per time.Duration, next http.Handler) http.Handler {
		l := tollbooth.NewLimiter(float64(n)/per.Seconds(), &tblimiter.ExpirableOptions{DefaultExpirationTTL: time.Hour})
		l.SetBurst(n)
		l.SetIPLookup(tblimiter.IPLookup{Name: lookup})
		return tollbooth.LimitHandler(l, next)
	}
}

func fixed(o ...limiter.Option) func(int, time.Duration, http.Handler) http.Handler {
	return func(n int, per time.Duration, next http.Handler) http.Handler {
		l := limiter.New(memory.NewStore(), limiter.Rate{Period: per, Limit: int64(n)}, o...)
		return stdlib.NewMiddleware(l).Handler(next)
	}
}

func gcra(by *throttled.VaryBy) func(int, time.Duration, http.Handler) http.Handler {
	return func(n int, per time.Duration, next http.Handler) http.Handler {
		store, err := memstore.New(keys)
		must(err)
		l, err := throttled.NewGCRARateLimiter(store, throttled.RateQuota{MaxRate: throttled.PerDay(int(24*time.Hour/per) * n), MaxBurst: n - 1})
		must(err)
		return (&throttled.HTTPRateLimiter{RateLimiter: l, VaryBy: by}).RateLimit(next)
	}
}

func tokens(headers ...string) func(int, time.Duration, http.Handler) http.Handler {
	return func(n int, per time.Duration, next http.Handler) http.Handler {
		store, err := memorystore.New(&memorystore.Config{Tokens: uint64(n), Interval: per})
		must(err)
		m, err := httplimit.NewMiddleware(store, httplimit.IPKeyFunc(headers...))
		must(err)
		return m.Handle(next)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
