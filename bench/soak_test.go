package bench

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-throttle/throttle"
)

var soakReal = flag.Duration("soak.real", 0, "TestSoakReal: how long, such as 60s; 0: not at all")

const (
	soakKeys       = 1000
	soakCallers    = 64
	soakHeap       = 2 << 20 // bytes by which the heap may grow from the first third to the last
	soakGoroutines = 40      // the same for goroutines: connections come and go
)

// TestSoakReal keeps a Transport as busy as the machine can, over loopback, and checks that memory and
// goroutines do not grow:
//
//	go test -v -run TestSoakReal -soak.real 60s .
//
// All that a Transport has is in use: a limit for each key and one for all, priorities, slots, advertised
// quotas, throttled calls, failures, retries, bodies, cancelled calls. The limits are far above what is sent.
func TestSoakReal(t *testing.T) {
	if *soakReal == 0 {
		t.Skip("takes real time; see -soak.real")
	}
	server := httptest.NewServer(http.HandlerFunc(soakAnswer))
	defer server.Close()
	base := server.Client().Transport.(*http.Transport)
	base.MaxIdleConnsPerHost, base.MaxIdleConns = soakCallers, soakCallers
	rt := &throttle.Transport{
		Base:       base,
		Limiter:    throttle.NewBucket(1e6, 1e4),
		LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(1e4, 100) },
		Key:        func(req *http.Request) string { return req.URL.Query().Get("key") },
		Queue:      throttle.QueueOptions{MaxInFlight: 4},
		Retry:      throttle.Retry{Backoff: func() throttle.Backoff { return soakBackoff{} }},
	}
	var calls, failed, cancelled atomic.Int64
	ctx, stop := context.WithTimeout(t.Context(), *soakReal)
	defer stop()
	var callers sync.WaitGroup
	for range soakCallers {
		callers.Go(func() {
			for ctx.Err() == nil {
				calls.Add(1)
				switch code, err := soakCall(ctx, rt, server.URL); {
				case err != nil:
					cancelled.Add(1)
				case code != 200:
					failed.Add(1)
				}
			}
		})
	}
	heap, goroutines := soakWatch(ctx, *soakReal*2/25) // not at the very end
	callers.Wait()
	rt.CloseIdleConnections()
	sum := fmt.Sprintf("%v: %d calls, %.0f a second, %d ended with a refusal or failure, %d cancelled; heap after GC %d KB to %d KB, goroutines %d to %d",
		*soakReal, calls.Load(), float64(calls.Load())/soakReal.Seconds(), failed.Load(), cancelled.Load(), heap.first>>10, heap.last>>10, goroutines.first, goroutines.last)
	t.Log(sum)
	if heap.last > heap.first+soakHeap || goroutines.last > goroutines.first+soakGoroutines {
		t.Errorf("more than %d KB and %d goroutines were added: %v, %v", soakHeap>>10, soakGoroutines, heap.all, goroutines.all)
	}
}

// soakAnswer answers like an API that tells of a quota, and sometimes refuses or fails.
func soakAnswer(w http.ResponseWriter, req *http.Request) {
	io.Copy(io.Discard, req.Body)
	h := w.Header()
	h.Set("RateLimit", `"default";r=900000;t=1`)
	h.Set("RateLimit-Policy", `"default";q=1000000;w=1`)
	switch rand.IntN(2000) {
	case 0:
		w.WriteHeader(http.StatusTooManyRequests)
	case 1:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	w.Write(soakText)
}

var soakText = bytes.Repeat([]byte("answer "), 100)

type soakBackoff struct{}

func (soakBackoff) NextBackOff() time.Duration { return time.Millisecond }

func soakCall(ctx context.Context, rt http.RoundTripper, url string) (code int, err error) {
	n := rand.IntN(1 << 20)
	ctx = throttle.WithPriority(ctx, n%3)
	if n%100 == 0 {
		c, cancel := context.WithTimeout(ctx, time.Duration(n%1000)*time.Microsecond)
		defer cancel()
		ctx = c
	}
	var body io.Reader
	if n%5 == 0 {
		body = bytes.NewReader(soakText)
	}
	req, err := http.NewRequestWithContext(ctx, "PUT", fmt.Sprint(url, "/?key=", n%soakKeys), body)
	if err != nil {
		return 0, err
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// A soakSeries is a number over time: first is the most in the first third, the very beginning left
// out, last the least in the last third.
type soakSeries struct {
	all         []int
	first, last int
}

func (s *soakSeries) sum() {
	third := max(1, len(s.all)/3)
	for _, x := range s.all[min(1, len(s.all)-1):third] {
		s.first = max(s.first, x)
	}
	s.last = s.all[len(s.all)-1]
	for _, x := range s.all[len(s.all)-third:] {
		s.last = min(s.last, x)
	}
}

// soakWatch samples the heap in use after a collection, and the goroutines, until ctx ends.
func soakWatch(ctx context.Context, every time.Duration) (heap, goroutines soakSeries) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			heap.sum()
			goroutines.sum()
			return heap, goroutines
		case <-tick.C:
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			heap.all, goroutines.all = append(heap.all, int(m.HeapAlloc)), append(goroutines.all, runtime.NumGoroutine())
		}
	}
}
