package inbound_test

import (
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
