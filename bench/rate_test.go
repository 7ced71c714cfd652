package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-throttle/throttle"
	"golang.org/x/time/rate"
)

// BenchmarkRate lets 32 workers ask without a rest for about two seconds and reports the share of
// the rate that they got. Real timers come late; what counts is what a limiter makes of that.
func BenchmarkRate(b *testing.B) {
	for _, limit := range []rate.Limit{200, 5000} {
		for _, c := range []struct {
			name  string
			burst int
			wait  func() func(context.Context) error
		}{
			{"leaky", 1, func() func(context.Context) error { return queueOver(throttle.NewLeaky(limit)) }},
			{"bucket1", 1, func() func(context.Context) error { return queueOver(throttle.NewBucket(limit, 1)) }},
			{"bucket10", 10, func() func(context.Context) error { return queueOver(throttle.NewBucket(limit, 10)) }},
			{"rate.Limiter1", 1, func() func(context.Context) error { return rate.NewLimiter(limit, 1).Wait }},
		} {
			b.Run(fmt.Sprintf("%s/%v", c.name, limit), func(b *testing.B) {
				var share float64
				n := 0
				for b.Loop() {
					share += shareOf(b, c.wait(), float64(limit), c.burst)
					n++
				}
				b.ReportMetric(100*share/float64(n), "%quota")
			})
		}
	}
}

func queueOver(l throttle.Limiter) func(context.Context) error {
	return throttle.NewQueue(l, throttle.QueueOptions{}).Wait
}

// shareOf tells what part of the rate n calls got: the burst is free, the others take n - burst
// intervals at best.
func shareOf(b *testing.B, wait func(context.Context) error, limit float64, burst int) float64 {
	n := int64(2 * limit)
	var next atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range 32 {
		wg.Go(func() {
			for next.Add(1) <= n {
				if err := wait(b.Context()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(n-int64(burst)) / (limit * time.Since(start).Seconds())
}
