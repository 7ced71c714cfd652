package inbound_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/inbound"
)

// TestPlacesAfterPanics: a panic before the handler is called gives the places back too.
func TestPlacesAfterPanics(t *testing.T) {
	bad := true
	for name, l := range map[string]*inbound.Limit{
		"shared limit": {Limits: []string{"1 at once"}, Shared: []throttle.Limiter{panics{&bad}}},
		"OnRefusal": {
			Limits: []string{"1/1h window"}, Shadow: true, OnRefusal: func(*http.Request, time.Duration) { panicIf(bad) },
			And: []*inbound.Limit{{Limits: []string{"1 at once"}}},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := l.Handler(ok)
			for range 3 {
				recovered(func() { get(h, alice) })
			}
			bad = false
			if w := get(h, alice); w.Code != 204 {
				t.Errorf("%s: %d with nobody in flight", name, w.Code)
			}
			bad = true
		})
	}
}

// panics is a shared limit that panics for a while.
type panics struct{ now *bool }

func (p panics) Take(context.Context, int) (time.Duration, error) {
	panicIf(*p.now)
	return 0, nil
}
