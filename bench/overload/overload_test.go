package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-kratos/aegis/ratelimit/bbr"
	"github.com/zeromicro/go-zero/core/load"
)

// TestPeersRefuse: 30 requests are held, 15 of them end, and some of 30 more are refused, if the peer takes the CPU for busy and has seen
// nothing else.
func TestPeersRefuse(t *testing.T) {
	for name, e := range map[string]enter{
		"Kratos":    kratos(bbr.WithCPUThreshold(0), bbr.WithWindow(time.Hour), bbr.WithBucket(2)),
		"go-zero":   goZero(load.WithCpuThreshold(0), load.WithWindow(time.Hour), load.WithBuckets(2)),
		"failsafe":  failsafe(),
		"Gradient2": gradient2(),
	} {
		end, entered, left := make(chan struct{}), make(chan struct{}), make(chan int, 60)
		h := guarded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			entered <- struct{}{}
			<-end
		}), e)
		ask := func(n int) (refused int) {
			for range n {
				go func() {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
					left <- w.Code
				}()
				select {
				case <-entered:
				case <-left:
					refused++
				}
			}
			return refused
		}
		in := 30 - ask(30)
		for range in / 2 {
			end <- struct{}{}
			<-left
		}
		refused := ask(30)
		close(end)
		if in == 0 || refused == 0 {
			t.Errorf("%s: %d let in, then %d of 30 refused", name, in, refused)
		}
	}
}

// TestMeasure: requests are refused for which there is no place, and none are if there is no limit.
func TestMeasure(t *testing.T) {
	c := Case{Name: "nothing", Can: 1000, Rate: steadily(100), Do: func(context.Context) {}}
	closed := Peer{"closed", func(next http.Handler) http.Handler {
		return guarded(next, func() (func(), bool) { return nil, false })
	}}
	var all sync.WaitGroup
	for _, p := range append([]Peer{closed}, Peers...) {
		all.Go(func() {
			r := Measure(c, p, 2500*time.Millisecond)
			if r.Peer != p.Name || p.Name == "closed" && (r.Refused == 0 || r.InTime > 0) || p.Name == "none" && r.Refused > 0 {
				t.Errorf("%+v", r)
			}
		})
	}
	all.Wait()
}
