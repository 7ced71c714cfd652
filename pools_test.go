package throttle_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
)

// These tests are about calls that need several things which keys share.

// Calls that take of several shared limits, each of another amount, all go: two of them never wait for each other.
func TestSharedLimitsDoNotDeadlock(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		var buckets []*throttle.Bucket
		for range 4 {
			buckets = append(buckets, throttle.NewBucket(rate.Limit(1+r.IntN(20)), 1+r.IntN(10)))
		}
		const keys = 6
		meters := map[string][]throttle.Meter{}
		for k := range keys {
			for i, b := range buckets {
				if n := r.IntN(18); n < 9 {
					key := fmt.Sprint("k", k)
					meters[key] = append(meters[key], throttle.Meter{Name: fmt.Sprint(i), Limiter: b, Hold: func(*http.Request) int { return n }})
				}
			}
		}
		tr := &throttle.Transport{
			Limiter: throttle.NewBucket(rate.Limit(1+r.IntN(20)), 1+r.IntN(10)),
			Meters:  func(key string) []throttle.Meter { return meters[key] },
		}
		synctest.Test(t, func(t *testing.T) {
			tr.Base = roundTripper(func(req *http.Request) (*http.Response, error) { return reply(req, 200), nil })
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			var served atomic.Int64
			for i := range 20 * keys {
				go func() {
					if code, err := status(tr, throttle.WithCost(ctx, 1+i%4), fmt.Sprintf("http://k%d/", i%keys)); err == nil && code == 200 {
						served.Add(1)
					}
				}()
			}
			<-ctx.Done()
			synctest.Wait()
			if n := served.Load(); n != 20*keys {
				t.Errorf("seed %d: %d of %d calls were served in an hour", seed, n, 20*keys)
			}
		})
	}
}

// A worker that uses all of a limit, or two that use the one slot, leave nobody in line at times, and still a host that
// failed once and is well again is served in seconds.
func TestHostThatFailedOnceIsServedBesideOneWorker(t *testing.T) {
	for workers, tr := range map[int]*throttle.Transport{1: {Limiter: throttle.NewBucket(10, 1)}, 2: {MaxInFlight: 1}} {
		tr.Retry.MaxAttempts = 1
		reply := func(host string, n int) (time.Duration, bool) {
			return 10 * time.Millisecond, host != "once" || n > 1
		}
		inTown(t, tr, reply, func(w *town) {
			w.call(w.ctx, "once")
			w.work(w.ctx, workers, "live", time.Second)
			time.Sleep(time.Second)
			ctx, cancel := context.WithTimeout(w.ctx, 3*time.Second)
			defer cancel()
			if !w.call(ctx, "once") {
				t.Errorf("%d workers: not served in 3 s", workers)
			}
		})
	}
}
