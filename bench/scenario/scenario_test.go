package scenario

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/bench/client"
	"golang.org/x/time/rate"
)

// The clients of these tests: nothing, and the library in its plainest setups.
var (
	plain = client.Client{Name: "plain", Bubble: true, Start: func(job client.Job) (client.Doer, error) {
		return &http.Client{Transport: job.Base}, nil
	}}
	known = client.Client{Name: "known", Limits: true, Retries: true, Bubble: true, Urgent: urgent, Start: func(job client.Job) (client.Doer, error) {
		var all []throttle.Limiter
		for _, l := range job.Limits {
			switch {
			case job.Even:
				all = append(all, throttle.NewLeaky(rate.Limit(l.Rate())))
			case l.Window:
				all = append(all, throttle.NewSlidingWindow(l.N, l.Per))
			default:
				all = append(all, throttle.NewBucket(rate.Limit(l.Rate()), l.Burst))
			}
		}
		return library(job, throttle.All(all...)), nil
	}}
	finds = client.Client{Name: "finds", Retries: true, Bubble: true, Urgent: urgent, Start: func(job client.Job) (client.Doer, error) {
		return library(job, nil), nil
	}}
)

func urgent(ctx context.Context) context.Context { return throttle.WithPriority(ctx, 1) }

func library(job client.Job, limiter throttle.Limiter) client.Doer {
	t := &throttle.Transport{
		Base: job.Base, Limiter: limiter, Queue: throttle.QueueOptions{MaxInFlight: job.InFlight},
		Retry: throttle.Retry{MaxAttempts: 1000, MaxPause: job.Patience, Budget: throttle.Budget{PerCall: 0.5, Max: 100}},
	}
	if job.Gate != nil {
		job.Gate(func() bool {
			for s := range t.Stats() {
				if s.QueueStats.Cause != "" {
					return true
				}
			}
			return false
		})
	}
	return &http.Client{Transport: t}
}

// Every scenario runs in virtual time, and says something of each client.
func TestVirtual(t *testing.T) {
	for _, s := range All() {
		t.Run(s.Name, func(t *testing.T) {
			for _, c := range []client.Client{plain, known, finds, Oracle()} {
				if s.Fits != nil && !s.Fits(c) {
					continue
				}
				begun := time.Now()
				r, err := InBubble(t, s, c, Options{Seed: 1, Short: testing.Short()})
				if err != nil {
					t.Fatal(c.Name, err)
				}
				t.Logf("%-8s %v %s in %v", c.Name, r.Values, r.Failed, time.Since(begun).Round(time.Millisecond))
			}
		})
	}
}

// TestReal runs scenarios in real time, with all their load: BENCH_REAL=outage- go test -v -run Real .
func TestReal(t *testing.T) {
	names, ok := os.LookupEnv("BENCH_REAL")
	if !ok {
		t.Skip("BENCH_REAL is not set")
	}
	for _, s := range All() {
		if !strings.HasPrefix(s.Name, names) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			for _, c := range append(client.All(), plain, known, finds, Oracle()) {
				if s.Fits != nil && !s.Fits(c) {
					continue
				}
				t.Run(c.Name, func(t *testing.T) {
					if !s.Alone {
						t.Parallel()
					}
					r, err := s.Run(t.Context(), c, Options{Seed: 1})
					t.Logf("%-40s %v %s %v", c.Name, r.Values, r.Failed, err)
				})
			}
		})
	}
}
