package recipes

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
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

// TestAdmin: 400 calls wait at ten a second. A pause of a minute holds them, Resume ends it, and a new limit is felt
// by those in line.
func TestAdmin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := throttletest.NewServer()
		var limit throttle.LimiterVar
		limit.Set(throttle.NewBucket(10, 1))
		client, admin := Admin(upstream, &limit)
		ask := func(method, target string) int {
			w := httptest.NewRecorder()
			admin.ServeHTTP(w, httptest.NewRequest(method, target, nil))
			return w.Code
		}
		var calls sync.WaitGroup
		for range 400 {
			calls.Go(func() {
				if err := status(client.Get("http://api.test/")); err != nil {
					t.Error(err)
				}
			})
		}
		sent := func() int { return len(upstream.Ledger()) }
		time.Sleep(5*time.Second + time.Millisecond)
		if got := sent(); got != 51 {
			t.Errorf("%d calls in 5s, want 51", got)
		}
		if got := ask("POST", "/pause?for=ever"); got != 400 {
			t.Errorf("a pause that is none: %d", got)
		}
		if got := ask("POST", "/pause?for=1h"); got != 200 {
			t.Errorf("/pause: %d", got)
		}
		time.Sleep(30 * time.Minute)
		if got := sent(); got != 51 {
			t.Errorf("%d calls after the pause, want 51", got)
		}
		ask("POST", "/resume")
		time.Sleep(5 * time.Second)
		if got := sent(); got < 100 || got > 103 {
			t.Errorf("%d calls after 5s more, want about 101", got)
		}
		if got := ask("PUT", "/limit?limit=fast"); got != 400 {
			t.Errorf("a limit that is none: %d", got)
		}
		if got := ask("PUT", "/limit?limit=100/s"); got != 200 {
			t.Errorf("/limit: %d", got)
		}
		began := time.Now()
		calls.Wait()
		if took := time.Since(began); took < 2900*time.Millisecond || took > 3100*time.Millisecond {
			t.Errorf("the last 300 calls took %v, want 3s", took)
		}
	})
}
