package inbound_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/inbound"
)

// TestPlanRaisedInFlight: the end of a request that came under the old plan changes nothing but its own units and place.
func TestPlanRaisedInFlight(t *testing.T) {
	for _, c := range []struct {
		name, old, new string
		settle         func(*http.Request, int, http.Header) int
		rest           string // at the end, with 90 or 91 taken, or 95
	}{
		{"failures", "50/1d window", "100/1d window", func(r *http.Request, _ int, _ http.Header) int { return bit(r.Method != "PUT") }, "r=10;"},
		{"tokens", "50/1d window", "100/1d window", func(r *http.Request, _ int, _ http.Header) int { return 1 + 4*bit(r.Method == "PUT") }, "r=5;"},
		{"places", "50/1d window;9 at once", "100/1d window;9 at once", nil, "r=9;"},
		{"places of a burst", "50/1d burst 50;9 at once", "100/1d burst 100;9 at once", nil, "r=9;"},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &base{plans: map[string]string{"a": c.old}}
			l := inbound.Limit{Limits: []string{"1/1h window"}, Key: user, Plan: b.plan, PlanFor: time.Second, Settle: c.settle}
			h := l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.Method == "PUT" {
					time.Sleep(10 * time.Second)
				}
			}))
			var all sync.WaitGroup
			all.Go(func() {
				long := request(alice, "X-User", "a")
				long.Method = "PUT"
				h.ServeHTTP(&nobody{http.Header{}}, long)
			})
			time.Sleep(time.Second)
			b.set("a", c.new, false)
			for range 89 {
				get(h, alice, "X-User", "a")
			}
			all.Wait()
			if w := get(h, alice, "X-User", "a"); !strings.Contains(w.Header().Get("RateLimit"), c.rest) {
				t.Errorf("%s: %s, want %s", c.name, w.Header().Get("RateLimit"), c.rest)
			}
		})
	}
}

// TestPlanChangesWhileOneWaits: who waits goes by the plan that its key has got since, be it higher or lower.
func TestPlanChangesWhileOneWaits(t *testing.T) {
	for _, c := range []struct {
		old, new string
		served   int           // of five requests, one of them after the change
		last     time.Duration // when the last of them is
	}{
		{"2/1h window", "10/1h window", 5, 3 * time.Second},
		{"2/1m window", "1/1h window", 2, 0},
		{"2/1m burst 2", "1/1h burst 1", 2, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &base{plans: map[string]string{"a": c.old}}
			l := inbound.Limit{Limits: []string{"1/1h window"}, Key: user, Plan: b.plan, PlanFor: time.Second, Wait: time.Hour - time.Minute}
			if c.served == 5 {
				l.Wait = time.Hour
			}
			h := l.Handler(ok)
			var all sync.WaitGroup
			var mu sync.Mutex
			served, last, start := 0, time.Duration(0), time.Now()
			try := func() {
				all.Go(func() {
					w := get(h, alice, "X-User", "a")
					mu.Lock()
					defer mu.Unlock()
					if w.Code == 204 {
						served, last = served+1, time.Since(start)
					}
				})
				synctest.Wait()
			}
			for range 4 {
				try()
			}
			time.Sleep(2 * time.Second)
			b.set("a", c.new, false)
			try()
			all.Wait()
			if served != c.served || last > c.last {
				t.Errorf("%s, then %s: %d were served until %v, want %d until %v", c.old, c.new, served, last, c.served, c.last)
			}
		})
	}
}

// TestPlanForgotten: a key whose plan is no longer known, because others have come, keeps its limits if Plan fails or its client
// leaves, and what is used of them.
func TestPlanForgotten(t *testing.T) {
	for _, down := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := &base{plans: map[string]string{"a": "20/1d window"}}
			l := inbound.Limit{
				Limits: []string{"5/1m window"}, Key: user, MaxKeys: 16,
				Plan: func(r *http.Request) ([]string, error) {
					if user(r) == "a" {
						if err := r.Context().Err(); err != nil {
							return nil, err
						}
						return b.plan(r)
					}
					return nil, errors.New("unknown")
				},
			}
			h := l.Handler(ok)
			for range 20 {
				get(h, alice, "X-User", "a")
			}
			for i := range 40 {
				get(h, alice, "X-User", itoa(i))
			}
			b.set("a", "20/1d window", down)
			r := request(alice, "X-User", "a")
			if !down {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				r = r.WithContext(ctx)
			}
			h.ServeHTTP(&nobody{http.Header{}}, r)
			b.set("a", "20/1d window", false)
			time.Sleep(time.Second)
			if w := get(h, alice, "X-User", "a"); w.Code != 429 {
				t.Errorf("down %v: %d, %s after 20 of 20", down, w.Code, w.Header().Get("RateLimit"))
			}
		})
	}
}

// TestPlanOfAReusedTier: a request that was held up while its list of limits was given up counts by no wrong limits later.
func TestPlanOfAReusedTier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inbound.Limit{
			Limits: []string{"1/1h window"}, Key: user, MaxKeys: 8000, NoFields: true, PlanFor: time.Second,
			Plan: func(r *http.Request) ([]string, error) { return r.Header["X-Plan"], nil },
			And: []*inbound.Limit{{
				Key: func(*http.Request) string { return "" }, PlanFor: time.Second,
				Plan: func(r *http.Request) ([]string, error) {
					time.Sleep(time.Duration(bit(r.Method == "PUT")) * time.Hour)
					return nil, nil
				},
			}},
		}
		h := l.Handler(ok)
		come := func(from, to int, limit string) {
			for i := from; i < to; i++ {
				get(h, alice, "X-User", itoa(i), "X-Plan", itoa(i)+limit)
			}
		}
		come(1, 950, "/1s window")
		time.Sleep(time.Minute)
		var all sync.WaitGroup
		all.Go(func() {
			slow := request(alice, "X-User", "a", "X-Plan", "10/1h burst 10")
			slow.Method = "PUT"
			h.ServeHTTP(&nobody{http.Header{}}, slow)
		})
		time.Sleep(time.Hour - time.Minute)
		come(1001, 1100, "/3h window") // the others' lists are given up
		all.Wait()
		come(2000, 2890, "/3h window")
		if w := get(h, alice, "X-User", "a", "X-Plan", "5000/3h window"); w.Code != 204 {
			t.Errorf("%d after one of 10", w.Code)
		}
	})
}
