package client

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/throttletest"
)

// TestAdaptive: 60 workers call what serves 10 at once at full speed, and collapses with more. Each client holds calls back, at the
// start or later, and its last one leaves no goroutine.
func TestAdaptive(t *testing.T) {
	want := map[string]struct{ first, later int }{ // in flight at most
		NoLimit: {60, 60}, FixedLimit: {7, 7},
		"go-concurrency-limits: Vegas": {20, 59}, "go-concurrency-limits: Gradient2": {20, 59}, "go-concurrency-limits: AIMD": {10, 60},
		"failsafe-go: adaptive limiter": {20, 59}, "throttle: target 1.2 × p90": {4, 30}, "throttle: target 2 × p90": {4, 30},
	}
	for _, c := range Adaptive() {
		synctest.Test(t, func(t *testing.T) {
			service := &throttletest.Service{Workers: 10, Share: true, Loss: 0.1, Work: throttletest.Span{Mean: 100 * time.Millisecond, Sigma: 0.5},
				Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })}
			server := &throttletest.Server{Handler: service}
			server.Elapsed()
			d := start(t, c, Job{Base: server, Workers: 60, InFlight: 7, Usual: 200 * time.Millisecond})
			var all sync.WaitGroup
			for range 60 {
				all.Go(func() {
					for server.Elapsed() < 30*time.Second {
						if status, err := send(t, d, http.MethodGet, ""); status != http.StatusOK || err != nil {
							t.Errorf("%s: %d, %v", c.Name, status, err)
						}
					}
				})
			}
			all.Wait()
			first, later := 0, 0
			for _, a := range server.Ledger() {
				if a.Sent == 0 {
					first++
				}
				if a.Sent <= 25*time.Second && a.Answered > 25*time.Second {
					later++
				}
			}
			if w := want[c.Name]; first != w.first || later > w.later {
				t.Errorf("%s: %d in flight at first, %d after 25 s; want %v", c.Name, first, later, w)
			}
		})
	}
}

// TestInTurn: those that wait go in their order, and who leaves takes nothing.
func TestInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := 1
		l := &inTurn{base: &stub{answer: func(int) (int, error) { time.Sleep(time.Second); return http.StatusOK, nil }},
			enter: func() (func(bool), bool) {
				if free == 0 {
					return nil, false
				}
				free--
				return func(bool) { free++ }, true
			}}
		var order []int
		var all sync.WaitGroup
		for i := range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			all.Go(func() {
				defer cancel()
				req, _ := http.NewRequestWithContext(ctx, "GET", "http://api.test/", nil)
				if resp, err := l.RoundTrip(req); err == nil {
					order = append(order, i)
					_ = resp.Body.Close()
				} else if i != 1 {
					t.Error(err)
				}
			})
			synctest.Wait()
			if i == 1 {
				cancel()
				synctest.Wait()
			}
		}
		all.Wait()
		if len(order) != 2 || order[0] != 0 || order[1] != 2 || free != 1 {
			t.Error(order, free)
		}
	})
}
