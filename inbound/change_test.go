package inbound_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/inbound"
	"github.com/go-throttle/throttle/internal/race"
)

// TestSetLimits: what is left of new limits at 2 s, after units of the old ones were used at 0 s, and at 12 s.
func TestSetLimits(t *testing.T) {
	for _, c := range []struct {
		from, to   string
		used       int
		now, later int
	}{
		{"100/1d window", "200/1d window", 60, 140, 140},
		{"100/1d window", "80/1d window", 60, 20, 20},
		{"100/1d window", "50/1d window", 60, 0, 0},
		{"100/10s window", "50/10s window", 60, 0, 50}, // no debt by a change
		{"10/10s window", "20/10s window", 25, 0, 15},  // an old debt
		{"100/10s sliding", "200/10s sliding", 60, 140, 152},
		{"100/10s sliding", "50/10s sliding", 60, 0, 10},
		{"9/10s sliding", "5/10s sliding", 7, 0, 5},
		{"5/10s sliding", "9/10s sliding", 4, 5, 9},
		{"9/10s sliding", "90/10s sliding", 4, 86, 86}, // from now on
		{"60/1m burst 20", "60/1m burst 40", 15, 27, 37},
		{"60/1m burst 20", "60/1m burst 5", 15, 0, 5},
		{"60/1m burst 20", "600/1m burst 20", 15, 7, 20},
		{"60/1m burst 20", "100/1m window", 15, 87, 87},
		{"100/1m window", "60/1m burst 20", 15, 5, 15},
		{"100/1m window", "60/1m burst 20", 40, 0, 10},
		{"60/1m burst 20", "3600/1h burst 20", 15, 7, 17}, // the only one
		{"100/1d window", "unlimited", 60, -1, -1},
		{"unlimited", "100/1d window", 60, 100, 100},
		{"100/1d window, 50/1h window", "70/1h window, 90/1d window", 40, 30, 30},
		{"100/1d window", "70/1h window, 90/1d window", 40, 50, 50},
		{"70/1h window, 90/1d window", "100/1d window", 40, 60, 60},
		{"100/1d window", "20/1m sliding, 100/1d window", 40, 20, 20}, // the slots grow
	} {
		synctest.Test(t, func(t *testing.T) {
			k := inbound.NewKeyed[int](0, strings.Split(c.from, ",")...)
			for key := range 100 {
				k.Take(key, key%7)
			}
			k.Reserve(-1, c.used)
			time.Sleep(2 * time.Second)
			if err := k.SetLimits(strings.Split(c.to, ",")...); err != nil {
				t.Fatal(err)
			}
			now := k.Tokens(-1)
			time.Sleep(10 * time.Second)
			if later := k.Tokens(-1); now != c.now || later != c.later {
				t.Errorf("%s and then %s: with %d used %d are left, and later %d; want %d and %d", c.from, c.to, c.used, now, later, c.now, c.later)
			}
			if s := k.Stats(); s.Keys != 101 {
				t.Errorf("%s and then %s: %d keys are left", c.from, c.to, s.Keys)
			}
		})
	}
}

// TestSameLimitsAgain: to set the limits that hold changes nothing, at any moment.
func TestSameLimitsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(45, 3))
		for range race.Pick(500, 20_000) {
			limits, most := randomLimits(r)
			a, b := inbound.NewKeyed[int](1, limits...), inbound.NewKeyed[int](1, limits...)
			for i := range 30 {
				cost := 1 + r.IntN(most)
				if r.IntN(2) == 0 {
					if err := a.SetLimits(limits...); err != nil {
						t.Fatal(err)
					}
				}
				if got, want := a.Take(1, cost), b.Take(1, cost); got != want || a.Tokens(1) != b.Tokens(1) {
					t.Fatalf("%v: take %d: %v and %d left, want %v and %d", limits, i, got, a.Tokens(1), want, b.Tokens(1))
				}
				time.Sleep(time.Duration(r.Int64N(int64(3 * time.Second))))
			}
		}
	})
}

// TestChangedLimitsHold: whatever is set in between, no key gets more of a window at one moment than the largest limit, nor more
// than the present one if that was used before; and units of a take before go back once.
func TestChangedLimitsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(45, 4))
		kinds := []string{"%d/1h window", "%d/1h sliding", "1/1h burst %d", "%d/month in UTC"}
		for range race.Pick(1000, 30_000) {
			kind := kinds[r.IntN(4)]
			n := 1 + r.IntN(40)
			k, used := inbound.NewKeyed[int](1, fmt.Sprintf(kind, n)), 0
			for range 20 {
				switch r.IntN(3) {
				case 0:
					if r.IntN(3) == 0 {
						kind = kinds[r.IntN(4)]
					}
					n = 1 + r.IntN(40)
					if err := k.SetLimits(fmt.Sprintf(kind, n)); err != nil {
						t.Fatal(err)
					}
					used = min(used, n)
				case 1:
					if cost := r.IntN(n + 1); k.Allow(1, cost) {
						used += cost
					}
				case 2:
					cost := r.IntN(1 + n - used)
					b := k.Reserve(1, cost)
					if r.IntN(2) == 0 {
						more := 1 + r.IntN(40)
						if err := k.SetLimits(fmt.Sprintf(kind, n+more)); err != nil {
							t.Fatal(err)
						}
						n += more
					}
					b.Settle(cost / 2)
					used += cost / 2
				}
				if left := k.Tokens(1); left != n-used {
					t.Fatalf("%s with %d: %d are used and %d left", kind, n, used, left)
				}
			}
		}
	})
}

// TestFieldsOfChangedLimits: the fields tell the new limits at once, under names of their own, and who waits goes by them.
func TestFieldsOfChangedLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &inbound.Limit{Limits: []string{"50/1d window"}, Name: "in"}
		l := inbound.Limit{
			Limits: []string{"2/1h window"}, Wait: 2 * time.Hour, And: []*inbound.Limit{inner},
			Tier: user, Tiers: map[string][]string{"pro": {"7/1m window"}},
		}
		h := l.Handler(ok)
		check := func(plan, policy, rest string) {
			t.Helper()
			h := get(h, alice, "X-User", plan).Header()
			if got := strings.Join(h.Values("RateLimit-Policy"), ", "); got != policy || !contains(h.Values("RateLimit"), rest) {
				t.Errorf("%s %s, want %s %s", got, h.Values("RateLimit"), policy, rest)
			}
		}
		check("", `"h";q=2;w=3600, "in-d";q=50;w=86400`, `"h";r=1`)
		check("", `"h";q=2;w=3600, "in-d";q=50;w=86400`, `"h";r=0`)
		var all sync.WaitGroup
		v := send(&all, h, alice)
		if err := l.SetLimits("5/1h window", "in"); err == nil || !strings.HasPrefix(err.Error(), "throttle: inbound.Limit.SetLimits: ") {
			t.Error(err)
		}
		if n := l.Stats().Waiting; n != 1 {
			t.Errorf("%d wait", n)
		}
		if err := l.SetLimits("5/1h window", "9/1d window"); err != nil {
			t.Error(err)
		}
		if all.Wait(); v.served != 0 || v.w.Code != 204 {
			t.Errorf("the one who waited was answered %d after %v", v.w.Code, v.served)
		}
		check("", `"h";q=5;w=3600, "d";q=9;w=86400, "in-d";q=50;w=86400`, `"h";r=1`)
		check("pro", `"m";q=7;w=60, "in-d";q=50;w=86400`, `"m";r=6`)
		if err := l.SetTier("pro", "9/1m window"); err != nil {
			t.Error(err)
		}
		check("pro", `"m";q=9;w=60, "in-d";q=50;w=86400`, `"m";r=7`)
		if err := inner.SetLimits("60/1d window"); err != nil {
			t.Error(err)
		}
		check("pro", `"m";q=9;w=60, "in-d";q=60;w=86400`, `"in-d";r=53`)
		if err := l.SetLimits(); err != nil {
			t.Error(err)
		}
		check("", `"in-d";q=60;w=86400`, `"in-d";r=52`)
		if err := l.SetTier("none", "9/1m window"); err == nil {
			t.Error("no error for a tier that is not there")
		}
	})
}

// TestSetLimitsInUse: new limits, takes, refusals, settlements and statistics at the same time.
func TestSetLimitsInUse(t *testing.T) {
	l := inbound.Limit{Limits: []string{"100/1h window"}, MaxKeys: 50, Settle: onlyFailures, Tier: user, Tiers: map[string][]string{"a": {"3/1m burst 2"}}}
	h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := range 500 {
				get(h, fmt.Sprintf("192.0.2.%d:1", i%100), "X-User", []string{"", "a"}[worker%2])
			}
		})
	}
	for i := range 50 {
		if err := l.SetLimits([]string{"20/1h sliding", "5/1m even, 7/1h window", "", "100/1h window"}[i%3]); (err != nil) != (i%3 == 2) {
			t.Error(err)
		}
		if err := l.SetTier("a", []string{"20/1h sliding", "5/1m even, 7/1h window"}[i%2]); err != nil {
			t.Error(err)
		}
		l.Stats()
	}
	all.Wait()
	if s := l.Stats(); s.Admitted+s.Refused != 2000 {
		t.Errorf("%+v", s)
	}
}
