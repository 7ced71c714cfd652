package bench

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/PuerkitoBio/rehttp"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/go-throttle/throttle"
	"github.com/hashicorp/go-retryablehttp"
	"golang.org/x/time/rate"
)

// A limit that no benchmark reaches. A float64 must still count the units one by one:
// 2^30 units and those of a nanosecond are far from the 2^53 where it stops.
const (
	plentyRate  = 1e9
	plentyBurst = 1 << 30
)

// contender is a row of the table: one way to send a request within a limit.
type contender struct {
	name string
	// wrap puts the contender's client, set up as its own documentation recommends, before base.
	wrap func(base http.RoundTripper) http.RoundTripper
	// fresh says that the client writes to the response it got, so that it needs one of its own
	// for every call. The "stub-fresh" row tells what that costs without the client.
	fresh bool
}

var contenders = []contender{
	{name: "stub", wrap: func(base http.RoundTripper) http.RoundTripper { return base }},
	{name: "stub-fresh", fresh: true, wrap: func(base http.RoundTripper) http.RoundTripper { return base }},
	{name: "rate", wrap: newLimited},
	{name: "throttle", wrap: newThrottle},
	{name: "rehttp", fresh: true, wrap: newRehttp},
	{name: "retryablehttp+rate", wrap: newRetryable},
	{name: "failsafe", fresh: true, wrap: newFailsafe},
}

// limited is what most programs write by hand.
type limited struct {
	limiter *rate.Limiter
	base    http.RoundTripper
}

func newLimited(base http.RoundTripper) http.RoundTripper {
	return &limited{rate.NewLimiter(plentyRate, plentyBurst), base}
}

func (l *limited) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := l.limiter.Wait(req.Context()); err != nil {
		return nil, err
	}
	return l.base.RoundTrip(req)
}

// newThrottle has the limit, the line and retries on.
func newThrottle(base http.RoundTripper) http.RoundTripper {
	limiter := throttle.NewBucket(plentyRate, plentyBurst)
	return &throttle.Transport{
		Base:       base,
		LimiterFor: func(string) throttle.Limiter { return limiter },
	}
}

// newRehttp only retries: rehttp has no limiter.
func newRehttp(base http.RoundTripper) http.RoundTripper {
	return rehttp.NewTransport(base,
		rehttp.RetryAll(
			rehttp.RetryMaxRetries(3),
			rehttp.RetryAny(
				rehttp.RetryTemporaryErr(),
				rehttp.RetryStatuses(http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout),
			),
		),
		rehttp.ExpJitterDelay(500*time.Millisecond, 30*time.Second),
	)
}

// newRetryable has the limiter below the retries, so that every attempt pays.
func newRetryable(base http.RoundTripper) http.RoundTripper {
	client := retryablehttp.NewClient()
	client.Logger = nil // the default logs every request to stderr
	client.RetryMax = 3
	client.HTTPClient.Transport = newLimited(base)
	return &retryablehttp.RoundTripper{Client: client} // what StandardClient uses
}

// newFailsafe names the inner policy last, so that every attempt pays.
func newFailsafe(base http.RoundTripper) http.RoundTripper {
	retry := failsafehttp.NewRetryPolicyBuilder().
		WithMaxRetries(3).
		WithBackoff(500*time.Millisecond, 30*time.Second).
		Build()
	limiter := ratelimiter.NewBurstyBuilder[*http.Response](plentyBurst, time.Second).
		WithMaxWaitTime(time.Minute).
		Build()
	return failsafehttp.NewRoundTripper(base, retry, limiter)
}

// sharedStub answers every request with one and the same response.
type sharedStub struct{ resp *http.Response }

func (s sharedStub) RoundTrip(*http.Request) (*http.Response, error) { return s.resp, nil }

// freshStub answers every request with a copy.
type freshStub struct{ resp *http.Response }

func (s freshStub) RoundTrip(*http.Request) (*http.Response, error) {
	resp := *s.resp
	return &resp, nil
}

// ordinary is what an answer carries, and nothing about limits.
var ordinary = http.Header{
	"Cache-Control":             {"no-store"},
	"Connection":                {"keep-alive"},
	"Content-Type":              {"application/json"},
	"Date":                      {"Mon, 02 Jan 2006 15:04:05 GMT"},
	"Etag":                      {`"5e1f"`},
	"Referrer-Policy":           {"no-referrer"},
	"Server":                    {"stub"},
	"Strict-Transport-Security": {"max-age=31536000"},
	"Vary":                      {"Accept-Encoding"},
	"Via":                       {"1.1 edge"},
	"X-Content-Type-Options":    {"nosniff"},
	"X-Request-Id":              {"7f3d4a2c"},
}

func newResponse(header http.Header) *http.Response {
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header,
		Body:   http.NoBody,
	}
}

func newRequest(tb testing.TB) *http.Request {
	tb.Helper()
	req, err := http.NewRequest(http.MethodGet, "https://api.example.com/v1/items", nil)
	if err != nil {
		tb.Fatal(err)
	}
	return req
}

func (c contender) stub(answer http.Header) http.RoundTripper {
	if c.fresh {
		return freshStub{newResponse(answer)}
	}
	return sharedStub{newResponse(answer)}
}

func send(tb testing.TB, rt http.RoundTripper, req *http.Request) {
	resp, err := rt.RoundTrip(req)
	if err != nil {
		tb.Error(err)
		return
	}
	if resp.StatusCode != http.StatusOK {
		tb.Errorf("status %d", resp.StatusCode)
	}
	resp.Body.Close()
}

// BenchmarkRoundTrip compares the cost of a call that need not wait. The requests and answers of
// "serial" and "parallel" have no header at all. The requests of "header" have what most API calls
// carry, which a client that clones requests pays for; the answers of "12headers" what most APIs
// send, which a client that looks for limits in them pays for.
func BenchmarkRoundTrip(b *testing.B) {
	for _, c := range contenders {
		b.Run(c.name+"/serial", func(b *testing.B) { serial(b, c.wrap(c.stub(nil)), newRequest(b)) })
	}
	for _, c := range contenders {
		b.Run(c.name+"/header", func(b *testing.B) {
			req := newRequest(b)
			req.Header.Set("Accept", "application/json")
			req.Header.Set("Authorization", "Bearer 0123456789abcdef")
			req.Header.Set("User-Agent", "bench/1")
			serial(b, c.wrap(c.stub(nil)), req)
		})
	}
	for _, c := range contenders {
		b.Run(c.name+"/12headers", func(b *testing.B) { serial(b, c.wrap(c.stub(ordinary)), newRequest(b)) })
	}
	for _, c := range contenders {
		b.Run(c.name+"/parallel", func(b *testing.B) {
			rt := c.wrap(c.stub(nil))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				req := newRequest(b)
				for pb.Next() {
					send(b, rt, req)
				}
			})
		})
	}
}

func serial(b *testing.B, rt http.RoundTripper, req *http.Request) {
	b.ReportAllocs()
	for b.Loop() {
		send(b, rt, req)
	}
}

// countingStub counts what reaches the base.
type countingStub struct {
	http.RoundTripper
	n atomic.Int64
}

func (s *countingStub) RoundTrip(req *http.Request) (*http.Response, error) {
	s.n.Add(1)
	return s.RoundTripper.RoundTrip(req)
}

// TestContendersDeliver keeps the table honest: each client sends each request once.
func TestContendersDeliver(t *testing.T) {
	const workers, each = 8, 50
	for _, c := range contenders {
		t.Run(c.name, func(t *testing.T) {
			base := &countingStub{RoundTripper: c.stub(nil)}
			rt := c.wrap(base)
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					req := newRequest(t)
					for range each {
						send(t, rt, req)
					}
				})
			}
			wg.Wait()
			if n := base.n.Load(); n != workers*each {
				t.Errorf("%d requests reached the base, want %d", n, workers*each)
			}
		})
	}
}
