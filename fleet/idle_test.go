package fleet

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet/store"
	"github.com/go-throttle/throttle/internal/race"
)

// A giver is a store that grants everything, and keeps nothing.
type giver struct {
	Memory // for its breaker and messages
	trips  atomic.Int64
}

func (g *giver) Exchange(_ context.Context, _ string, r store.Request) (store.Reply, error) {
	g.trips.Add(1)
	return store.Reply{Members: 1, Runs: []store.Run{{Count: r.Need + r.Want}}}, nil
}

// TestIdle: an idle limit takes little memory, and neither a goroutine nor a request.
func TestIdle(t *testing.T) {
	keys := race.Pick(2000, 10_000)
	bubble(t, func(t *testing.T) {
		store, names := new(giver), make([]string, keys)
		for i := range names {
			names[i] = fmt.Sprint("tenant-", i)
		}
		lims, goroutines := make([]*Limiter, keys), runtime.NumGoroutine()
		before := heap()
		for i, name := range names {
			lims[i] = New(store, name, 100, 10, Options{})
			for range 20 {
				lims[i].Take(t.Context(), 1)
				synctest.Wait()
			}
		}
		time.Sleep(time.Minute)
		each := float64(heap()-before) / float64(keys)
		t.Logf("an idle limit takes %.0f B", each)
		if each > 1500 {
			t.Errorf("an idle limit takes %.0f B, want at most 1500", each)
		}
		trips := store.trips.Load()
		time.Sleep(24 * time.Hour)
		if n := store.trips.Load(); n != trips || trips < int64(keys) {
			t.Errorf("%d requests of idle limits, after %d in use", n-trips, trips)
		}
		if n := runtime.NumGoroutine(); n > goroutines {
			t.Errorf("%d goroutines of idle limits", n-goroutines)
		}
		runtime.KeepAlive(lims)
	})
}

// heap is how much memory is in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestTenants: each key of a Transport has a limit of its own in the store, and those that are not in use any more are
// forgotten.
func TestTenants(t *testing.T) {
	keys := race.Pick(2000, 10_000)
	bubble(t, func(t *testing.T) {
		store := new(giver)
		tr := &throttle.Transport{
			Base: roundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			}),
			LimiterFor: func(key string) throttle.Limiter { return New(store, key, 100, 10, Options{}) },
		}
		call := func(i int) {
			r, _ := http.NewRequest("GET", fmt.Sprintf("http://tenant-%d/", i), nil)
			if _, err := tr.RoundTrip(r); err != nil {
				t.Fatal(err)
			}
		}
		for i := range keys {
			call(i)
		}
		trips := store.trips.Load()
		time.Sleep(time.Hour)
		if n := store.trips.Load(); n != trips || trips < int64(keys) {
			t.Errorf("%d requests of idle limits, after %d in use", n-trips, trips)
		}
		for range 2 * keys {
			call(0)
			time.Sleep(100 * time.Millisecond)
		}
		left := 0
		for range tr.Stats() {
			left++
		}
		if left > keys/10 {
			t.Errorf("%d keys are kept, and one is in use", left)
		}
	})
}
