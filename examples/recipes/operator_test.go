package recipes

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttletest"
)

// TestWork: 200 calls wait when the program is asked to end. Ten a second go on for ten seconds, the others fail
// at that moment, and nothing is sent afterwards.
func TestWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := throttletest.NewServer(perSecond(10))
		ctx, signal := context.WithCancel(t.Context())
		var calls []*http.Request
		for range 201 {
			calls = append(calls, get(t, "http://api.test/"))
		}
		var mu sync.Mutex
		var served, closed int
		began := time.Now()
		time.AfterFunc(time.Millisecond, signal) // one has gone by then
		err := Work(ctx, upstream, calls, func(resp *http.Response, err error) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case status(resp, err) == nil:
				served++
			case errors.Is(err, throttle.ErrClosed):
				if closed++; time.Since(began) != 10*time.Second+time.Millisecond {
					t.Errorf("a call failed after %v", time.Since(began))
				}
			default:
				t.Error(err)
			}
		})
		synctest.Wait()
		if !errors.Is(err, context.DeadlineExceeded) || served < 100 || served > 102 || served+closed != 201 {
			t.Errorf("%v, %d served and %d closed, want 101 served and the others closed", err, served, closed)
		}
		time.Sleep(time.Minute)
		none(t, upstream, served)
	})
}
