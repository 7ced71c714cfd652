package throttle_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
)

// An outage, and then an upstream that answers every call with a 429 that no wait cures. It is back: each
// caller is to get the answer to its own call, as without the outage.
func TestHostileFinalAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		tr := &throttle.Transport{Retry: throttle.Retry{MaxAttempts: 1}, Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			time.Sleep(200 * time.Millisecond)
			if down.Load() {
				return nil, errors.New("connection refused")
			}
			return answer(r, 429, "X-Should-Retry", "false"), nil
		})}
		for range 10 {
			fetch(tr, time.Second, "http://api/")
		}
		down.Store(false)
		time.Sleep(10 * time.Second)
		var ok, paused atomic.Int64
		var wg sync.WaitGroup
		for range 3 * 60 * 10 { // ten a second for three minutes
			wg.Go(func() {
				req, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://api/", nil)
				switch resp, err := tr.RoundTrip(req); {
				case err == nil && resp.StatusCode == 429:
					ok.Add(1)
				case errors.Is(err, throttle.ErrPaused):
					paused.Add(1)
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		wg.Wait()
		if ok.Load() < 1790 {
			t.Errorf("%d of 1800 callers got their answer, %d ErrPaused", ok.Load(), paused.Load())
		}
	})
}
