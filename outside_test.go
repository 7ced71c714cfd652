package throttle_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
)

// These tests look at the library from outside, at what one would not expect of its users.

// roundTrip is a function as a RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// answer is a response with a short body; kv are header fields and their values.
func answer(req *http.Request, code int, kv ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(kv); i += 2 {
		h.Add(kv[i], kv[i+1])
	}
	if req.Body != nil {
		req.Body.Close()
	}
	return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader("hello")), Request: req, ContentLength: 5, ProtoMajor: 1, ProtoMinor: 1}
}

func answers(code int, kv ...string) roundTrip {
	return func(req *http.Request) (*http.Response, error) { return answer(req, code, kv...), nil }
}

// get sends one request, reads the answer and returns its status.
func get(ctx context.Context, tr http.RoundTripper, url string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// statsOf returns the statistics of a Transport's only key.
func statsOf(tr *throttle.Transport) (s throttle.KeyStats) {
	for s = range tr.Stats() {
	}
	return s
}

// wrapped is a limiter of the user's with Bucket's Adjust and Notify.
type wrapped struct {
	*throttle.Bucket
	asked atomic.Int64
}

func (w *wrapped) Take(ctx context.Context, n int) (time.Duration, error) {
	if w.asked.Add(1) > 1000 {
		return 0, errors.New("asked too often")
	}
	return w.Bucket.Take(ctx, n)
}

// Of two foreign limiters the second refuses; the first is given back what it gave, and tells so.
func TestGivingBackIsNoReasonToAskAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &wrapped{Bucket: throttle.NewBucket(100, 100)}, &wrapped{Bucket: throttle.NewBucket(1, 1)}
		q := throttle.NewQueue(throttle.All(a, b), throttle.QueueOptions{})
		start := time.Now()
		for range 3 {
			if err := q.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("three units at 1/s and burst 1 took %v", took)
		}
		if a.asked.Load() > 40 || b.asked.Load() > 40 {
			t.Errorf("asked %d and %d times", a.asked.Load(), b.asked.Load())
		}
	})
}

// The same, where two keys wake each other.
func TestGivingBackToAnotherKeyIsNoReasonToAskAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &wrapped{Bucket: throttle.NewBucket(100, 100)}
		var made [2]atomic.Pointer[wrapped] // as many callers as want may make one
		tr := &throttle.Transport{Base: answers(200), Limiter: a, LimiterFor: func(key string) throttle.Limiter {
			w := &wrapped{Bucket: throttle.NewBucket(1, 1)}
			made[key[0]-'a'].Store(w)
			return w
		}}
		for range 3 {
			for _, url := range []string{"http://a.test/", "http://b.test/"} {
				go func() {
					if _, err := get(t.Context(), tr, url); err != nil {
						t.Error(err)
					}
				}()
			}
		}
		start := time.Now()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		for i := range made {
			if n := made[i].Load().asked.Load(); n > 60 {
				t.Errorf("key %d: asked %d times in %v", i, n, time.Since(start))
			}
		}
		if got := statsOf(tr); got.Sent != 3 {
			t.Errorf("%+v", got)
		}
	})
}

// A quota that is not spaced has rate.Inf, which is no real infinity.
func TestLearnedRateIsRateInf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{Base: answers(200, "Ratelimit-Policy", `"a";q=10;w=1`, "Ratelimit", `"a";r=9;t=1`)}
		for range 2 {
			if _, err := get(t.Context(), tr, "http://a.test/"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if l := statsOf(tr).Learned; len(l) != 1 || l[0].Rate != rate.Inf {
			t.Errorf("%+v", l)
		}
	})
}

func TestErrorWithoutReason(t *testing.T) {
	e := &throttle.Error{Key: "a.test"}
	if got, want := e.Error(), `throttle: call to "a.test" ended on this side`; got != want || e.Timeout() {
		t.Errorf("%s, timeout %v", got, e.Timeout())
	}
}

// What a Transport below refuses is no failure of the upstream.
func TestTransportOverTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := &throttle.Transport{
			Base: answers(200), Limiter: throttle.NewBucket(0.01, 1), Queue: throttle.QueueOptions{MaxWait: time.Second},
		}
		tr := &throttle.Transport{Base: below}
		start := time.Now()
		for i := range 20 {
			if _, err := get(t.Context(), tr, "http://a.test/"); i > 0 != errors.Is(err, throttle.ErrWaitTooLong) {
				t.Error(err)
			}
		}
		if s := statsOf(tr); s.Retried > 0 || s.Cause != "" || time.Since(start) > 0 {
			t.Errorf("after %v: %+v", time.Since(start), s)
		}
	})
}

// Retried counts attempts, not intentions.
func TestRetriedCountsWhatWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		tr := &throttle.Transport{Base: roundTrip(func(req *http.Request) (*http.Response, error) {
			n.Add(1)
			return answer(req, 429, "Retry-After", "10"), nil
		})}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := get(ctx, tr, "http://a.test/"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if s := statsOf(tr); n.Load() != 1 || s.Sent != 1 || s.Retried != 0 {
			t.Errorf("sent %d: %+v", n.Load(), s)
		}
		get(t.Context(), tr, "http://a.test/")
		if s := statsOf(tr); s.Sent != uint64(n.Load()) || s.Retried != s.Sent-2 {
			t.Errorf("sent %d: %+v", n.Load(), s)
		}
	})
}

func TestLongestWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, l := range []throttle.Limiter{throttle.NewSlidingWindow(2, math.MaxInt64), throttle.NewFixedWindow(2, math.MaxInt64)} {
			for range 2 {
				if wait, err := l.Take(t.Context(), 1); wait != 0 || err != nil {
					t.Errorf("%T: %v, %v", l, wait, err)
				}
				time.Sleep(time.Second)
			}
			for _, n := range []int{1, 2} {
				if wait, err := l.Take(t.Context(), n); wait < 30*365*24*time.Hour || err != nil {
					t.Errorf("%T, %d units: %v, %v", l, n, wait, err)
				}
			}
		}
	})
}

// A debt beyond all measure stays one.
func TestBoundlessDebt(t *testing.T) {
	for _, per := range []time.Duration{time.Nanosecond, time.Hour, math.MaxInt64} {
		for _, l := range []throttle.Limiter{throttle.NewSlidingWindow(3, per), throttle.NewFixedWindow(3, per), throttle.NewBucket(1e-9, 3)} {
			for range 100 {
				for _, n := range []int{math.MaxInt, 1 << 40, 1, 2} {
					l.(throttle.Adjuster).Adjust(n)
				}
			}
			if wait, err := l.Take(t.Context(), 1); err != nil || wait < time.Hour {
				t.Errorf("%T, per %v: %v, %v", l, per, wait, err)
			}
			if s := throttle.NewQueue(l, throttle.QueueOptions{}).Stats(); s.Tokens >= 0 {
				t.Errorf("%T, per %v: %+v", l, per, s)
			}
		}
	}
}

// The zero limiters refuse every cost, whatever is done to them.
func TestZeroLimiters(t *testing.T) {
	for _, l := range []throttle.Limiter{new(throttle.FixedWindow), new(throttle.SlidingWindow), new(throttle.Bucket), new(throttle.Leaky)} {
		for _, n := range []int{0, 1, -1, math.MaxInt, math.MinInt} {
			l.(throttle.Adjuster).Adjust(n)
			q := throttle.NewQueue(l, throttle.QueueOptions{})
			if err := q.Wait(t.Context()); err == nil {
				t.Errorf("%T has let one go after Adjust(%d)", l, n)
			}
			if s := q.Stats(); s.Limit != 0 {
				t.Errorf("%T: %+v", l, s)
			}
		}
	}
}

// zeroLimiters are the zero values of all kinds, alone and joined.
func zeroLimiters() map[string]func() throttle.Limiter {
	return map[string]func() throttle.Limiter{
		"Bucket":        func() throttle.Limiter { return new(throttle.Bucket) },
		"Leaky":         func() throttle.Limiter { return new(throttle.Leaky) },
		"FixedWindow":   func() throttle.Limiter { return new(throttle.FixedWindow) },
		"SlidingWindow": func() throttle.Limiter { return new(throttle.SlidingWindow) },
		"all of them": func() throttle.Limiter {
			return throttle.All(new(throttle.Bucket), new(throttle.Leaky), new(throttle.FixedWindow), new(throttle.SlidingWindow))
		},
		"beside another": func() throttle.Limiter { return throttle.All(throttle.NewBucket(10, 5), new(throttle.SlidingWindow)) },
	}
}

// A queue before a zero limiter refuses costs, lets calls without one go, and can say how long they wait.
func TestQueueBeforeAZeroLimiter(t *testing.T) {
	for name, zero := range zeroLimiters() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := throttle.NewQueue(zero(), throttle.QueueOptions{MaxInFlight: 1})
				free := throttle.WithCost(t.Context(), 0)
				soon, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				second := func(context.Context) error { time.Sleep(time.Second); return nil }
				var wg sync.WaitGroup
				for range 3 { // one holds the slot, two wait for it
					wg.Go(func() {
						if err := q.Do(free, second); err != nil {
							t.Errorf("cost 0: %v", err)
						}
					})
				}
				synctest.Wait()
				for _, ctx := range []context.Context{soon, t.Context()} {
					wg.Go(func() {
						if err := q.Wait(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("cost 1 in line: %v", err)
						}
					})
					synctest.Wait()
					wg.Go(func() {
						if err := q.Do(throttle.WithCost(ctx, 0), second); err != nil {
							t.Errorf("cost 0 behind cost 1: %v", err)
						}
					})
					synctest.Wait()
				}
				q.Pause(time.Second)
				q.Stats()
				q.Resume()
				if wg.Wait(); q.Stats().Waiting != 0 || q.Stats().Tokens > 0 || q.Stats().Limit != 0 {
					t.Errorf("%+v", q.Stats())
				}
				q = throttle.NewQueue(zero(), throttle.QueueOptions{MaxWait: time.Second, MaxWaiting: 1})
				q.Pause(time.Second / 2)
				for _, ctx := range []context.Context{soon, t.Context()} {
					if err := q.Wait(ctx); err == nil || errors.Is(err, throttle.ErrWaitTooLong) {
						t.Errorf("cost 1: %v", err)
					}
					if err := q.Wait(throttle.WithCost(ctx, 0)); err != nil {
						t.Errorf("cost 0: %v", err)
					}
				}
			})
		})
	}
}

// A Transport over a zero limiter refuses every request that costs something.
func TestTransportOverAZeroLimiter(t *testing.T) {
	for name, zero := range zeroLimiters() {
		synctest.Test(t, func(t *testing.T) {
			base := answers(200)
			soon, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for _, tr := range []*throttle.Transport{
				{Base: base, Limiter: zero()},
				{Base: base, LimiterFor: func(string) throttle.Limiter { return zero() }},
				{Base: base, Limiter: throttle.NewLeaky(100), LimiterFor: func(string) throttle.Limiter { return zero() }},
			} {
				for _, ctx := range []context.Context{soon, t.Context()} {
					for cost := range 3 {
						if _, err := get(throttle.WithCost(ctx, cost), tr, "http://x/"); (err == nil) != (cost == 0) || errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("%s: cost %d: %v", name, cost, err)
						}
					}
				}
				for range tr.Stats() {
				}
			}
		})
	}
}

// unheard is a limiter whose Notify is of no use.
type unheard struct{ stop func() }

func (unheard) Take(context.Context, int) (time.Duration, error) { return 0, nil }
func (u unheard) Notify(func()) (stop func())                    { return u.stop }

func TestNotifyWithoutStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, l := range []throttle.Limiter{unheard{}, throttle.All(unheard{}, throttle.NewBucket(1, 1))} {
			if err := throttle.NewQueue(l, throttle.QueueOptions{}).Wait(t.Context()); err != nil {
				t.Error(err)
			}
			l.(throttle.Notifier).Notify(func() {})
		}
		all := throttle.All(unheard{}, throttle.NewBucket(1, 1)).(throttle.Notifier)
		all.Notify(func() {})()
	})
}

// A call that was granted its slot, and whose goroutine panics before it can use it, gives it back.
func TestPanicInStopLosesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := true
		l := unheard{func() {
			if broken {
				panic("test")
			}
		}}
		tr := &throttle.Transport{Base: answers(200), Limiter: l, Queue: throttle.QueueOptions{MaxInFlight: 1}}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not pass through")
				}
			}()
			get(t.Context(), tr, "http://a.test/")
		}()
		broken = false
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := get(ctx, tr, "http://a.test/"); err != nil {
			t.Error(err)
		}
		if s := statsOf(tr); s.InFlight != 0 || s.Sent != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// An upstream that nothing is known of, and that does not answer, holds others up for a second.
func TestFirstContactWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		tr := &throttle.Transport{Base: roundTrip(func(req *http.Request) (*http.Response, error) {
			sent.Add(1)
			time.Sleep(10 * time.Second)
			return answer(req, 200), nil
		})}
		for range 20 {
			go get(t.Context(), tr, "http://a.test/")
		}
		time.Sleep(time.Second - 1)
		synctest.Wait()
		if n := sent.Load(); n != 4 {
			t.Errorf("%d sent before the first answer", n)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if n := sent.Load(); n != 20 {
			t.Errorf("%d sent after a second", n)
		}
		time.Sleep(time.Minute)
	})
}

// A request that cannot be sent is its caller's mistake, and no failure of the upstream.
func TestMistakesAreNotRetried(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	for name, spoil := range map[string]func(*http.Request){
		"value":   func(r *http.Request) { r.Header.Set("X", "a\nb") },
		"name":    func(r *http.Request) { r.Header["X Y"] = []string{"a"} },
		"header":  func(r *http.Request) { r.Header = nil },
		"method":  func(r *http.Request) { r.Method = "G ET"; r.Header.Set("Idempotency-Key", "1") },
		"scheme":  func(r *http.Request) { r.URL.Scheme = "gopher" },
		"host":    func(r *http.Request) { r.URL.Host = "" },
		"port":    func(r *http.Request) { r.URL.Host = "127.0.0.1:99999" },
		"length":  func(r *http.Request) { r.ContentLength = 5 },
		"trailer": func(r *http.Request) { r.Trailer = http.Header{"X Y": {"a"}} },
	} {
		tr := &throttle.Transport{Base: new(http.Transport)}
		for range 10 {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
			spoil(req)
			if _, err := tr.RoundTrip(req); err == nil {
				t.Errorf("%s: sent", name)
			}
		}
		if s := statsOf(tr); s.Sent != 10 || s.Retried != 0 || s.Cause != "" {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

func TestStatsAsJSON(t *testing.T) {
	tr := &throttle.Transport{Base: roundTrip(func(req *http.Request) (*http.Response, error) {
		resp := answer(req, 200)
		resp.Header.Set("RateLimit", `"a";r=10;t=1`)
		return resp, nil
	})}
	get(t.Context(), tr, "http://a.test/")
	for s := range tr.Stats() {
		if b, err := json.Marshal(s); err != nil {
			t.Errorf("%s %v", b, err)
		}
	}
}
