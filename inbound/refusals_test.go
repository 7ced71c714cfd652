package inbound_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/inbound"
)

// TestLimitStats: each limit counts what it has refused, or would have, under the name that clients see.
func TestLimitStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inbound.Limit{
			Limits: []string{"5/1m window, 8/1h window"}, Name: "ip", NoFields: true, Shared: []throttle.Limiter{throttle.NewBucket(0.001, 9)},
			And: []*inbound.Limit{{Limits: []string{"2/1m burst 2"}, Key: user, Shadow: true}, {Limits: []string{"1 at once"}, Key: user, Name: "user"}},
		}
		h := l.Handler(sleeper)
		if all := l.LimitStats(); len(all) != 0 {
			t.Errorf("%v", all)
		}
		for range 7 {
			get(h, alice, "X-User", "1ms") // two of them are refused by ip-m
		}
		time.Sleep(time.Minute)
		for range 5 {
			get(h, alice, "X-User", "2ms") // three go
		}
		go get(h, bob, "X-User", "1h")
		synctest.Wait()
		get(h, bob, "X-User", "1h")
		get(h, bob, "X-User", "3ms")
		want := []inbound.LimitStats{
			{Name: "ip-h", Refused: 2}, {Name: "ip-m", Refused: 2}, {Name: "m", WouldRefuse: 4}, {Name: "shared", Refused: 1}, {Name: "user-at-once", Refused: 1},
		}
		if all := l.LimitStats(); !slices.Equal(all, want) {
			t.Errorf("%v, want %v", all, want)
		}
		time.Sleep(time.Hour)
	})
}

// TestNamesAreBounded: a database that makes up limits does not make up names without end.
func TestNamesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		l := inbound.Limit{Key: user, NoFields: true, Plan: func(*http.Request) ([]string, error) { return []string{"1/" + itoa(n) + "m window"}, nil }}
		h := l.Handler(ok)
		for n = 2; n < 302; n++ {
			get(h, alice, "X-User", itoa(n))
			get(h, alice, "X-User", itoa(n))
		}
		all := l.LimitStats()
		other := all[slices.IndexFunc(all, func(s inbound.LimitStats) bool { return s.Name == "_other" })]
		if len(all) != 101 || other.Refused != 200 {
			t.Errorf("%d names, %+v", len(all), other)
		}
	})
}

// TestRefusalsOfHighCosts: a cost that can never be paid is refused by the limit that says so, not by one that could pay it, nor by
// Shared.
func TestRefusalsOfHighCosts(t *testing.T) {
	l := inbound.Limit{
		Limits: []string{"10000/1s burst 10", "10/1d window"}, Shared: []throttle.Limiter{foreign{}},
		Cost: func(*http.Request) int { return 100 },
	}
	w := get(l.Handler(ok), alice)
	if got := fmt.Sprint(l.LimitStats()); got != "[{d 1 0}]" || !strings.Contains(w.Body.String(), `"violated-policies":["d"]`) {
		t.Errorf("%s, %s", got, w.Body)
	}
}
