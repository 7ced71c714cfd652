package throttle

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

type rt func(*http.Request) (*http.Response, error)

func (f rt) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answerWith(code int, h http.Header) *http.Response {
	if h == nil {
		h = http.Header{}
	}
	return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader("x")), ContentLength: 1}
}

func TestSmoke429(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		start := time.Now()
		var mu sync.Mutex
		var sent []time.Duration
		tr := &Transport{Limiter: NewBucket(100, 10), Base: rt(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			sent = append(sent, time.Since(start))
			mu.Unlock()
			time.Sleep(20 * time.Millisecond)
			if n.Add(1) == 20 {
				return answerWith(429, http.Header{"Retry-After": {"5"}}), nil
			}
			return answerWith(200, nil), nil
		})}
		var wg sync.WaitGroup
		for range 500 {
			wg.Go(func() {
				req, _ := http.NewRequest("GET", "http://x/", nil)
				resp, err := tr.RoundTrip(req)
				if err != nil || resp.StatusCode != 200 {
					t.Error(resp, err)
					return
				}
				resp.Body.Close()
			})
		}
		wg.Wait()
		t.Log(time.Since(start), len(sent), sent[18:30])
		for i := 1; i < len(sent); i++ {
			if g := sent[i] - sent[i-1]; g > time.Second {
				t.Log(i, sent[i-1], sent[i])
			}
		}
	})
}

func TestSmokeCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(NewBucket(100, 1), QueueOptions{})
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var ok, no int32
		for i := range 10000 {
			wg.Go(func() {
				c := ctx
				if i%2 == 0 {
					c = t.Context()
				}
				if err := q.Wait(c); err == nil {
					atomic.AddInt32(&ok, 1)
				} else if errors.Is(err, context.Canceled) {
					atomic.AddInt32(&no, 1)
				}
			})
		}
		time.Sleep(time.Second)
		cancel()
		wg.Wait()
		t.Log(time.Since(start), ok, no)
	})
}

func TestSmokeGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(NewLeaky(1000), QueueOptions{MaxInFlight: 5})
		g, ctx := NewGroup(t.Context(), q)
		start := time.Now()
		var n atomic.Int64
		for range 1000 {
			g.Go(ctx, func(context.Context) error { n.Add(1); time.Sleep(time.Millisecond); return nil })
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		t.Log(time.Since(start), n.Load())
	})
}

func TestSmokeOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		attempts, inFirst := 0, 0
		var back time.Time
		tr := &Transport{Limiter: NewBucket(100, 1), Base: rt(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			attempts++
			now := time.Since(start)
			if now >= 35*time.Second {
				if back.IsZero() {
					back = time.Now()
				}
				if time.Since(back) < time.Second {
					inFirst++
				}
			}
			mu.Unlock()
			time.Sleep(20 * time.Millisecond)
			if now >= 5*time.Second && now < 35*time.Second {
				return answerWith(503, nil), nil
			}
			return answerWith(200, nil), nil
		})}
		work := make(chan int, 10000)
		var wg sync.WaitGroup
		var ok, bad int32
		for range 200 {
			wg.Go(func() {
				for range work {
					req, _ := http.NewRequest("GET", "http://x/", nil)
					resp, err := tr.RoundTrip(req)
					if err == nil && resp.StatusCode == 200 {
						atomic.AddInt32(&ok, 1)
					} else {
						atomic.AddInt32(&bad, 1)
						t.Log(time.Since(start), err)
					}
				}
			})
		}
		for i := range 3600 {
			time.Sleep(time.Duration(i)*time.Second/60 - time.Since(start))
			work <- i
		}
		close(work)
		wg.Wait()
		t.Log(time.Since(start), ok, bad, attempts, inFirst, back.Sub(start))
	})
}

func TestWaiterIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(waiter{}); n > 64 {
		t.Errorf("a waiter has %d bytes", n)
	}
}
