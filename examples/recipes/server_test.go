package recipes

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttletest"
)

// TestServe: requests are on their way when the server is asked to end. Each of them has an answer within ten seconds: those
// whose calls have gone by then, even calls that they make meanwhile, a 200, and the others a 503.
func TestServe(t *testing.T) {
	for name, c := range map[string]struct {
		requests int           // each makes two calls, at 10 a second
		latency  time.Duration // of the upstream
		served   [2]int        // at least and at most
		took     time.Duration // at most
		err      error
	}{
		"nobody":                 {took: 0},
		"a few":                  {requests: 10, latency: 20 * time.Millisecond, served: [2]int{10, 10}, took: 3 * time.Second},
		"too many":               {requests: 60, latency: 20 * time.Millisecond, served: [2]int{28, 32}, took: 10 * time.Second, err: context.DeadlineExceeded},
		"an upstream that hangs": {requests: 5, latency: time.Hour, took: 10 * time.Second, err: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				upstream := throttletest.NewServer()
				upstream.Latency = throttletest.Span{Min: c.latency, Max: c.latency}
				transport := &throttle.Transport{Base: upstream, Limiter: throttle.NewBucket(10, 1)}
				l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
				ctx, signal := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- Serve(ctx, l, transport, twice) }()

				pool := &http.Transport{DialContext: l.dial, DisableKeepAlives: true}
				var mu sync.Mutex
				statuses := make(map[int]int)
				var requests sync.WaitGroup
				for range c.requests {
					requests.Go(func() {
						resp, err := (&http.Client{Transport: pool}).Get("http://server.test/")
						if err != nil {
							t.Error(err) // a request without an answer
							return
						}
						resp.Body.Close()
						mu.Lock()
						defer mu.Unlock()
						statuses[resp.StatusCode]++
					})
				}
				time.Sleep(50 * time.Millisecond)
				start := time.Now()
				signal()
				err := <-ended
				took := time.Since(start)
				requests.Wait()
				t.Logf("%v after %v: %v", err, took, statuses)
				if !errors.Is(err, c.err) || took > c.took {
					t.Errorf("it has ended with %v after %v, want %v within %v", err, took, c.err, c.took)
				}
				if ok := statuses[200]; ok < c.served[0] || ok > c.served[1] || ok+statuses[503] != c.requests {
					t.Errorf("%v, want %d to %d served and the rest of %d a 503", statuses, c.served[0], c.served[1], c.requests)
				}
				if _, err := pool.DialContext(t.Context(), "tcp", "server.test"); err == nil {
					t.Error("the server still listens")
				}
			})
		})
	}
}

// twice calls the upstream twice for each request.
func twice(client *http.Client) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 2 {
			req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://api.test/", nil)
			if err == nil {
				err = status(client.Do(req))
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
	})
}

// pipes is a listener without a network, so that a bubble's clock goes on.
type pipes struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }
