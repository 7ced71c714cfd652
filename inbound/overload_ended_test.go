package inbound

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
)

// TestOverloadEndedContext: a request whose context ends on this side, by a deadline or a shutdown, still has a client that reads an
// answer, and that answer is not an empty 200.
func TestOverloadEndedContext(t *testing.T) {
	const soon = 10 * time.Millisecond
	end := func(parent context.Context) context.Context {
		ctx, cancel := context.WithCancel(parent)
		time.AfterFunc(soon, cancel)
		return ctx
	}
	deadline := func(parent context.Context) context.Context {
		ctx, cancel := context.WithTimeout(parent, soon)
		time.AfterFunc(time.Second, cancel)
		return ctx
	}
	for _, c := range []struct {
		name       string
		ctx        func(context.Context) context.Context
		before     time.Duration // that the request comes later
		late, left uint64
	}{
		{"a deadline that is over", deadline, 2 * soon, 1, 0},
		{"a deadline that ends in line", deadline, 0, 1, 0},
		{"cancelled before", end, 2 * soon, 0, 1},
		{"cancelled in line", end, 0, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDoor(t, &Overload{Adaptive: fixed(1)})
				d.ask("a")
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r = r.WithContext(c.ctx(t.Context()))
				time.Sleep(c.before)
				w := httptest.NewRecorder()
				d.h.ServeHTTP(w, r)
				if s := d.o.Stats(); w.Code != http.StatusServiceUnavailable || s.Late != c.late || s.Left != c.left {
					t.Errorf("status %d, body %q: %+v", w.Code, w.Body, s)
				}
				d.let(1)
				close(d.out)
				d.all.Wait()
				time.Sleep(time.Second)
			})
		})
	}
}

// TestOverloadAsksWithoutLock: a Priority that takes its time, since it asks somebody else, holds only its own request.
func TestOverloadAsksWithoutLock(t *testing.T) {
	for _, shadow := range []bool{false, true} {
		o := &Overload{source: idle(), Shadow: shadow}
		o.Priority = func(*http.Request) int {
			if !o.core.mu.TryLock() {
				t.Errorf("Shadow %v: all others wait for this one", shadow)
				return 0
			}
			o.core.mu.Unlock()
			return 0
		}
		o.Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	}
}

// TestOverloadRisesWhileOneStays: the load has gone, but the request that is in flight lasts for minutes. Those that arrive see that
// more may be in flight, and so do those that wait.
func TestOverloadRisesWhileOneStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		load := 5.
		o := &Overload{Wait: 10 * time.Second, Adaptive: &throttle.Adaptive{Load: func() float64 { return load }, Target: 1, Most: 2}}
		d := newDoor(t, o)
		time.Sleep(2 * time.Second)
		d.ask("stays")
		load = 0
		time.Sleep(2 * time.Second)
		d.ask("a")
		time.Sleep(2 * time.Second)
		d.ask("b")
		if s := o.Stats(); s.InFlight != 2 || s.Limit != 2 {
			t.Errorf("%+v, want 2 in flight: nothing is loaded any more", s)
		}
		d.let(3)
		close(d.out)
		d.all.Wait()
	})
}

// TestOverloadKeepsNoKeys: what clients send as their keys, up to 1 MB each, is not kept after their requests.
func TestOverloadKeepsNoKeys(t *testing.T) {
	o := &Overload{source: idle(), Adaptive: fixed(1), Key: byWho}
	h := o.Handler(http.NotFoundHandler())
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range 100 {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Who", fmt.Sprint(i)+strings.Repeat("x", 1<<18))
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	if grown := int64(heap() - before); grown > 1<<22 {
		t.Errorf("%d KB are kept of 100 keys of 256 KB", grown>>10)
	}
	runtime.KeepAlive(o)
}

// TestOverloadStreamsByName: a header that clients write lets nobody pass the limit.
func TestOverloadStreamsByName(t *testing.T) {
	k := &crowd{rate: 1600, header: [2]string{"Accept", "text/event-stream"}}
	run(t, &Overload{}, newMachine(), 2, k)
	if got := float64(k.ok.Load()) / float64(k.sent.Load()); got > 0.5 {
		t.Errorf("%.2f were let in at four times what can be done", got)
	}
}

// TestOverloadLoadEndsGoroutine: a Load that ends the goroutine of whoever asks it, or panics, costs no place.
func TestOverloadLoadEndsGoroutine(t *testing.T) {
	for name, end := range map[string]func(){"Goexit": runtime.Goexit, "panic": func() { panic("test") }} {
		synctest.Test(t, func(t *testing.T) {
			bad := false
			o := &Overload{source: idle(), Wait: -1}
			o.Adaptive = &throttle.Adaptive{Target: 1, Most: 1, Load: func() float64 {
				if bad {
					end()
				}
				return 1
			}}
			h := o.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				time.Sleep(2 * time.Second)
				bad = true
			})
			for range 3 {
				bad = false
				w := httptest.NewRecorder()
				var one sync.WaitGroup
				one.Go(func() { h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil)) })
				one.Wait()
				if s := o.Stats(); s.InFlight != 0 || s.Refused != 0 {
					t.Fatalf("%s: %+v", name, s)
				}
				time.Sleep(2 * time.Second)
			}
		})
	}
}

// TestOverloadTwice: a request that comes through two handlers of one Overload has one place, and another one of its own
// still needs one.
func TestOverloadTwice(t *testing.T) {
	o := &Overload{source: idle(), Wait: -1, Adaptive: fixed(1)}
	other := o.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	h := o.Handler(o.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s := o.Stats(); s.InFlight != 1 || s.Admitted != 1 {
			t.Errorf("%+v, want one request", s)
		}
		second := httptest.NewRecorder()
		if other.ServeHTTP(second, httptest.NewRequest(http.MethodGet, "/", nil)); second.Code != http.StatusServiceUnavailable {
			t.Errorf("another request got in: %d", second.Code)
		}
	}))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if s := o.Stats(); w.Code != http.StatusOK || s.InFlight != 0 || s.Admitted != 1 || s.Refused != 1 {
		t.Errorf("status %d: %+v", w.Code, s)
	}
}
