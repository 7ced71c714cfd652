package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/examples/internal/calls"
)

// send makes calls of all keys until ctx ends. Each key has rounds of calls and a rest between them, so that the charts
// have something to show.
func send(ctx context.Context, client *http.Client, upstream string) {
	var keys sync.WaitGroup
	for _, k := range []struct {
		key            string
		calls, workers int
		rest           time.Duration
	}{
		{"api", 400, 32, 3 * time.Second},
		{"search", 100, 6, 2 * time.Second},
		{"mail", 50, 4, time.Second},
	} {
		keys.Go(func() {
			for ctx.Err() == nil {
				calls.Each(ctx, k.calls, k.workers, func() {
					calls.Get(ctx, client, upstream+"/"+k.key) // what becomes of it is on the page
				})
				select {
				case <-ctx.Done():
				case <-time.After(k.rest):
				}
			}
		})
	}
	keys.Wait()
}

// newUpstream is the other side: limits that it enforces, and an outage in each cycle. It keeps no ledger, because it may
// run for days.
func newUpstream(cycle time.Duration) http.Handler {
	start := time.Now()
	limits := map[string]*throttle.Bucket{
		"/api":    throttle.NewBucket(100, 20), // more burst than the client uses: calls bunch on their way
		"/search": throttle.NewBucket(20, 5),
		"/mail":   throttle.NewBucket(1000, 1000),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond) // it works
		limit, ok := limits[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		down := cycle / 5
		if left := down - (time.Since(start)+cycle/2)%cycle; r.URL.Path == "/mail" && left > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(left/time.Second)+1))
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if wait, _ := limit.Take(r.Context(), 1); wait > 0 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
}

// state is what this program reads of the page's state.json.
type state struct {
	Key       string `json:"key"`
	Waiting   int    `json:"waiting"`
	Sent      int    `json:"sent"`
	Throttled int    `json:"throttled"`
}

// states asks the page, as any program can.
func states(ctx context.Context, url string) ([]state, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"?sort=key", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var all struct {
		Transports []struct {
			Keys []state `json:"keys"`
		} `json:"transports"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil || len(all.Transports) == 0 {
		return nil, err
	}
	return all.Transports[0].Keys, nil
}
