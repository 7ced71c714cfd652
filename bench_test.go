package throttle_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"testing"

	"github.com/go-throttle/throttle"
	"golang.org/x/time/rate"
)

// Benchmarks against the peers, with 100,000 waiters and in real time stand in the module bench.

// A limit that no benchmark reaches. A float64 must still count the units one by one.
const (
	benchRate  = 1e9
	benchBurst = 1 << 30
)

// benchStub answers every request with one and the same response.
type benchStub struct{ resp *http.Response }

// benchHeader is what an ordinary answer carries, and nothing about limits.
var benchHeader = http.Header{
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

func newBenchStub(header http.Header) benchStub {
	return benchStub{&http.Response{
		Status: "200 OK", StatusCode: http.StatusOK,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header,
		Body:   http.NoBody,
	}}
}

func (s benchStub) RoundTrip(*http.Request) (*http.Response, error) { return s.resp, nil }

// benchLimited is what most programs write by hand.
type benchLimited struct {
	limiter *rate.Limiter
	base    http.RoundTripper
}

func (l *benchLimited) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := l.limiter.Wait(req.Context()); err != nil {
		return nil, err
	}
	return l.base.RoundTrip(req)
}

func newBenchRequest(tb testing.TB) *http.Request {
	tb.Helper()
	req, err := http.NewRequest(http.MethodGet, "https://api.example.com/v1/items", nil)
	if err != nil {
		tb.Fatal(err)
	}
	return req
}

func benchSend(tb testing.TB, rt http.RoundTripper, req *http.Request) {
	resp, err := rt.RoundTrip(req)
	if err != nil {
		tb.Error(err)
		return
	}
	resp.Body.Close()
}

// BenchmarkRoundTrip measures a call that need not wait, with limit, line and retries on.
// What counts is what throttle adds to the stub, in terms of what rate.Limiter.Wait adds to it.
// The answers of "serial" and "parallel" have no headers; those of "12headers" have to be looked
// through for limits.
func BenchmarkRoundTrip(b *testing.B) {
	for _, c := range []struct {
		name string
		wrap func(http.RoundTripper) http.RoundTripper
	}{
		{"stub", func(base http.RoundTripper) http.RoundTripper { return base }},
		{"limiterwait", func(base http.RoundTripper) http.RoundTripper {
			return &benchLimited{rate.NewLimiter(benchRate, benchBurst), base}
		}},
		{"throttle", func(base http.RoundTripper) http.RoundTripper {
			limiter := throttle.NewBucket(benchRate, benchBurst)
			return &throttle.Transport{Base: base, LimiterFor: func(string) throttle.Limiter { return limiter }}
		}},
		{"throttle-shared", func(base http.RoundTripper) http.RoundTripper {
			return &throttle.Transport{Base: base, Limiter: throttle.NewBucket(benchRate, benchBurst)}
		}},
		// two meters beside the limiter, and no body that is read: at most 1.6 × throttle
		{"throttle-meters", func(base http.RoundTripper) http.RoundTripper {
			limiter := throttle.NewBucket(benchRate, benchBurst)
			meters := []throttle.Meter{
				{Name: "requests", Limiter: throttle.NewBucket(benchRate, benchBurst)},
				{Name: "tokens", Limiter: throttle.NewBucket(benchRate, benchBurst), Hold: func(*http.Request) int { return 2 }},
			}
			return &throttle.Transport{
				Base: base, LimiterFor: func(string) throttle.Limiter { return limiter },
				Meters: func(string) []throttle.Meter { return meters },
			}
		}},
	} {
		b.Run(c.name+"/serial", func(b *testing.B) {
			benchSerial(b, c.wrap(newBenchStub(nil)))
		})
		b.Run(c.name+"/12headers", func(b *testing.B) {
			benchSerial(b, c.wrap(newBenchStub(benchHeader)))
		})
		b.Run(c.name+"/parallel", func(b *testing.B) {
			rt := c.wrap(newBenchStub(nil))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				req := newBenchRequest(b)
				for pb.Next() {
					benchSend(b, rt, req)
				}
			})
		})
	}
}

func benchSerial(b *testing.B, rt http.RoundTripper) {
	req := newBenchRequest(b)
	b.ReportAllocs()
	for b.Loop() {
		benchSend(b, rt, req)
	}
}

// BenchmarkQueueWait is to be held against BenchmarkLimiterWait in the same run.
func BenchmarkQueueWait(b *testing.B) {
	benchWait(b, func() func(context.Context) error {
		return throttle.NewQueue(throttle.NewBucket(benchRate, benchBurst), throttle.QueueOptions{}).Wait
	})
}

func BenchmarkLimiterWait(b *testing.B) {
	benchWait(b, func() func(context.Context) error { return rate.NewLimiter(benchRate, benchBurst).Wait })
}

func benchWait(b *testing.B, newWait func() func(context.Context) error) {
	b.Run("serial", func(b *testing.B) {
		wait, ctx := newWait(), context.Background()
		b.ReportAllocs()
		for b.Loop() {
			if err := wait(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		wait, ctx := newWait(), context.Background()
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := wait(ctx); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

// benchShard is how many keys each Transport holds; it keeps at most 65,536.
const benchShard = 62_500

// BenchmarkKeys looks a random key up among many and sends a request under it. Each key has spent
// one unit of its burst of 10 at a rate that never gives it back here, so that no key is idle and
// all are kept; the requests that are timed cost nothing, so that none must wait.
// "plainmap" is a map of *rate.Limiter under a mutex, before the same stub.
func BenchmarkKeys(b *testing.B) {
	for _, n := range []int{1, 10_000, 1_000_000} {
		b.Run(fmt.Sprintf("throttle/%d", n), func(b *testing.B) { benchKeys(b, n, newThrottleKeys) })
		b.Run(fmt.Sprintf("plainmap/%d", n), func(b *testing.B) { benchKeys(b, n, newPlainKeys) })
	}
}

// benchKeyed makes a client for many hosts. cost is read at every request.
type benchKeyed func(base http.RoundTripper, cost *int) http.RoundTripper

func newThrottleKeys(base http.RoundTripper, cost *int) http.RoundTripper {
	return &throttle.Transport{
		Base:       base,
		LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(1e-4, 10) },
		Cost:       func(*http.Request) int { return *cost },
	}
}

func newPlainKeys(base http.RoundTripper, cost *int) http.RoundTripper {
	return &benchPlainMap{base: base, cost: cost, limiters: make(map[string]*rate.Limiter)}
}

type benchPlainMap struct {
	base http.RoundTripper
	cost *int

	mu       sync.Mutex
	limiters map[string]*rate.Limiter
}

func (m *benchPlainMap) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := m.limiterFor(req.URL.Host).WaitN(req.Context(), *m.cost); err != nil {
		return nil, err
	}
	return m.base.RoundTrip(req)
}

func (m *benchPlainMap) limiterFor(host string) *rate.Limiter {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.limiters[host]
	if l == nil {
		l = rate.NewLimiter(1e-4, 10)
		m.limiters[host] = l
	}
	return l
}

func benchKeys(b *testing.B, n int, newClient benchKeyed) {
	hosts := make([]string, n)
	for i := range hosts {
		hosts[i] = fmt.Sprintf("h%07d.example.com", i)
	}
	req, cost := newBenchRequest(b), 1
	clients := make([]http.RoundTripper, (n+benchShard-1)/benchShard)
	send := func(i int) {
		req.URL.Host = hosts[i]
		benchSend(b, clients[i/benchShard], req)
	}

	before := benchHeap()
	for i := range clients {
		clients[i] = newClient(newBenchStub(nil), &cost)
	}
	for i := range hosts {
		send(i)
	}
	perKey := (float64(benchHeap()) - float64(before)) / float64(n)

	cost = 0
	rng := rand.New(rand.NewPCG(1, 2))
	b.ReportAllocs()
	for b.Loop() {
		send(rng.IntN(n))
	}
	if n > 1 { // one key alone measures the Transport
		b.ReportMetric(perKey, "B/key")
	}
	if kept, ok := benchKept(clients); ok && kept != n {
		b.Errorf("%d keys are kept, want %d", kept, n)
	}
	runtime.KeepAlive(hosts)
}

// benchKept counts the keys that throttle holds; ok is false for the plain map.
func benchKept(clients []http.RoundTripper) (kept int, ok bool) {
	for _, c := range clients {
		t, isThrottle := c.(*throttle.Transport)
		if !isThrottle {
			return 0, false
		}
		for range t.Stats() {
			kept++
		}
	}
	return kept, true
}

func benchHeap() uint64 {
	for range 2 { // the second frees what finalizers and pools held
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
