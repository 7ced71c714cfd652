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

// A base is a database of plans, by X-User.
type base struct {
	mu    sync.Mutex
	plans map[string]string
	down  bool
	lasts time.Duration
	asked int
}

func (b *base) plan(r *http.Request) ([]string, error) {
	b.mu.Lock()
	b.asked++
	plan, down := b.plans[user(r)], b.down
	b.mu.Unlock()
	select {
	case <-time.After(b.lasts):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	panicIf(plan == "panic")
	if down {
		return nil, errors.New("down")
	}
	if plan == "" {
		return nil, nil
	}
	return strings.Split(plan, ";"), nil
}

func (b *base) set(user, plan string, down bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.plans[user], b.down = plan, down
}

// TestPlan: keys have the limits that the function says, a changed plan holds within a minute and keeps what was used, and while
// the function fails the old one does.
func TestPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &base{plans: map[string]string{"pro": "50/1d window;20/1m sliding", "big": "1000/1d window"}}
		l := inbound.Limit{Limits: []string{"5/1d window"}, Key: user, Plan: b.plan}
		h := l.Handler(ok)
		check := func(key string, status int, policy, rest string) {
			t.Helper()
			w := get(h, alice, "X-User", key)
			if got := w.Header().Get("RateLimit-Policy"); w.Code != status || got != policy || !strings.Contains(w.Header().Get("RateLimit"), rest) {
				t.Errorf("%s: %d, %s %s; want %d, %s %s", key, w.Code, got, w.Header().Get("RateLimit"), status, policy, rest)
			}
		}
		const five = `"d";q=5;w=86400`
		check("free", 204, five, "r=4")
		check("pro", 204, `"d";q=50;w=86400, "m";q=20;w=60`, `"m";r=19;t=60, "d";r=49`)
		check("big", 204, `"d";q=1000;w=86400`, "r=999")
		for range 4 {
			check("free", 204, five, "")
		}
		check("free", 429, five, "r=0")
		if b.asked != 3 {
			t.Errorf("the function was asked %d times for 3 keys", b.asked)
		}
		b.set("free", "50/1d window;20/1m sliding", false)
		time.Sleep(59 * time.Second)
		check("free", 429, five, "r=0")
		time.Sleep(time.Second)
		check("free", 204, `"d";q=50;w=86400, "m";q=20;w=60`, `"d";r=44`)
		b.set("free", "", true)
		time.Sleep(time.Minute)
		for range 3 {
			check("free", 204, `"d";q=50;w=86400, "m";q=20;w=60`, "")
		}
		check("new", 204, five, "r=4")
		if s := l.Stats(); s.PlanErrors != 2 || b.asked != 6 {
			t.Errorf("%+v, asked %d times", s, b.asked)
		}
		b.set("new", "big", false) // makes no sense
		time.Sleep(time.Second)
		check("new", 204, five, "r=3")
		check("free", 429, five, "r=0") // nine are used
		if s := l.Stats(); s.PlanErrors != 3 || s.Keys != 4 {
			t.Errorf("%+v", s)
		}
	})
}

// TestSlowPlan: all first requests of a key wait for one answer, and later nobody but the one who asks. One who leaves, or a panic,
// lets the next one ask.
func TestSlowPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &base{plans: map[string]string{"a": "100/1h window", "bad": "panic"}, lasts: time.Second}
		l := inbound.Limit{Limits: []string{"1/1h window"}, Key: user, Plan: b.plan, PlanFor: 10 * time.Second}
		h := l.Handler(ok)
		at := func(n int, key string, leaves time.Duration) (all []time.Duration) {
			var mu sync.Mutex
			var wait sync.WaitGroup
			start := time.Now()
			for i := range n {
				wait.Go(func() {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if i == 0 && leaves > 0 {
						defer time.AfterFunc(leaves, cancel).Stop()
					}
					recovered(func() { h.ServeHTTP(&nobody{http.Header{}}, request(alice, "X-User", key).WithContext(ctx)) })
					mu.Lock()
					defer mu.Unlock()
					all = append(all, time.Since(start).Round(time.Millisecond))
				})
				synctest.Wait()
			}
			wait.Wait()
			return all
		}
		check := func(what string, got []time.Duration, asked int, want ...time.Duration) {
			t.Helper()
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("%s: answered after %v, want %v", what, got, want)
				}
			}
			if b.asked != asked {
				t.Errorf("%s: asked %d times, want %d", what, b.asked, asked)
			}
		}
		s := time.Second
		check("one leaves", at(3, "a", s/2), 2, s/2, 3*s/2, 3*s/2)
		check("known", at(3, "a", 0), 2, 0, 0, 0)
		time.Sleep(10 * s)
		check("due", at(3, "a", 0), 3, 0, 0, s)
		check("panic", at(3, "bad", 0), 6, s, 2*s, 3*s)
		if s := l.Stats(); s.Admitted != 9 {
			t.Errorf("%+v", s)
		}
	})
}

// TestManyPlans: a thousand lists of limits can be in use. Those that nobody has make room, and what is known is bounded.
func TestManyPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inbound.Limit{
			Limits: []string{"1/1h window"}, Key: user, MaxKeys: 2000, NoFields: true,
			Plan: func(r *http.Request) ([]string, error) { return []string{user(r) + "/1h burst 2"}, nil },
		}
		h := l.Handler(ok)
		served := func(from, to int) (n int) {
			for i := from; i <= to; i++ {
				for range 3 {
					n += bit(get(h, alice, "X-User", itoa(i)).Code == 204)
				}
			}
			return n
		}
		if n := served(1, 1010); n != 2000+10 {
			t.Errorf("%d were served, want two of each and one of ten", n)
		}
		if s := l.Stats(); s.PlanErrors == 0 {
			t.Errorf("%+v", s)
		}
		time.Sleep(3 * time.Hour)
		if n := served(5001, 5900); n != 1800 {
			t.Errorf("later %d were served, want two of each", n)
		}
	})
}

// TestPlanWithOthers: by its own key in And, beside places and waiting.
func TestPlanWithOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &base{plans: map[string]string{"a": "3 at once", "b": "100/1h window;1 at once"}}
		l := inbound.Limit{
			Limits: []string{"1000/1h window"}, Wait: time.Hour,
			And: []*inbound.Limit{{Key: user, Plan: b.plan, PlanFor: time.Second, Name: "plan"}},
		}
		h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(10 * time.Second) }))
		var all sync.WaitGroup
		var mu sync.Mutex
		start := time.Now()
		served := map[time.Duration]int{}
		try := func(n int) {
			for range n {
				all.Go(func() {
					get(h, alice, "X-User", "a")
					mu.Lock()
					defer mu.Unlock()
					served[time.Since(start).Round(10*time.Second)]++
				})
				synctest.Wait()
			}
		}
		try(3)
		b.set("a", "5 at once", false)
		time.Sleep(time.Second)
		try(5) // two go at once
		if all.Wait(); served[10*time.Second] != 5 || served[20*time.Second] != 3 {
			t.Errorf("%v", served)
		}
		if got := recovered(func() { (&inbound.Limit{Plan: b.plan, Tier: user}).Handler(ok) }); !strings.Contains(got, "Plan and Tier") {
			t.Errorf("%q", got)
		}
		if got := recovered(func() { (&inbound.Limit{PlanFor: 1}).Handler(ok) }); !strings.Contains(got, "PlanFor is 1ns") {
			t.Errorf("%q", got)
		}
	})
}
