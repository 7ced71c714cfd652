package inbound_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/inbound"
	"github.com/go-throttle/throttle/internal/race"
)

// sleeper is a handler that takes as long as X-User says, and panics afterwards if that is asked for.
var sleeper = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	d, err := time.ParseDuration(user(r))
	time.Sleep(d)
	panicIf(err != nil)
	w.WriteHeader(http.StatusNoContent)
})

// TestAtOnce: how many of eight requests that come together are served, and what the others hear.
func TestAtOnce(t *testing.T) {
	for _, c := range []struct {
		limits string
		served int
		says   string // of a refusal
	}{
		{"4 at once", 4, `"at-once"`},
		{"1 At Once", 1, `"at-once"`},
		{"5/1h window, 7 at once", 5, `"h"`},
		{"100/1h window, 3 at once", 3, `"at-once"`},
		{"8 at once", 8, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := inbound.Limit{Limits: []string{c.limits}}
			h := l.Handler(sleeper)
			var all sync.WaitGroup
			var mu sync.Mutex
			served := 0
			for range 8 {
				all.Go(func() {
					w := get(h, alice, "X-User", "1s")
					mu.Lock()
					defer mu.Unlock()
					if served += bit(w.Code == 204); w.Code == 204 {
						return
					}
					if after := w.Header().Get("Retry-After"); w.Code != 429 || c.says == `"at-once"` && after != "1" || !strings.Contains(w.Body.String(), `"violated-policies":[`+c.says+`]`) {
						t.Errorf("%s: %d %v %s", c.limits, w.Code, w.Header(), w.Body)
					}
				})
			}
			synctest.Wait()
			if w := get(h, bob, "X-User", "0s"); w.Code != 204 {
				t.Errorf("%s: another client: %d", c.limits, w.Code)
			}
			if all.Wait(); served != c.served {
				t.Errorf("%s: %d were served, want %d", c.limits, served, c.served)
			}
			if !strings.Contains(c.limits, "5/") {
				for range 3 {
					recovered(func() { get(h, alice, "X-User", "panic") })
				}
				if w := get(h, alice, "X-User", "0s"); w.Code != 204 {
					t.Errorf("%s: afterwards: %d", c.limits, w.Code)
				}
			}
		})
	}
}

func TestAtOnceIsRead(t *testing.T) {
	for _, limit := range []string{"0 at once", "-1 at once", "+4 at once", "4.5 at once", "3000000000 at once", "at once", "4 at  all", "4 at once, 5", "once", "4 at once window"} {
		if got := recovered(func() { (&inbound.Limit{Limits: []string{limit}}).Handler(ok) }); !strings.Contains(got, "inbound.Limit: Limits: ") {
			t.Errorf("%s: %q", limit, got)
		}
	}
	if got := recovered(func() { inbound.NewKeyed[int](0, "4 at once") }); !strings.Contains(got, "a Limit has") {
		t.Errorf("a Keyed: %q", got)
	}
}

// TestAtOnceWaits: requests that wait for a place go in order, as soon as a handler returns, however short Wait is.
func TestAtOnceWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inbound.Limit{Limits: []string{"2 at once"}, Wait: 250 * time.Millisecond}
		h := l.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(100 * time.Millisecond) })
		var all sync.WaitGroup
		var visitors []*visitor
		for range 10 {
			visitors = append(visitors, send(&all, h, alice))
		}
		all.Wait()
		for i, v := range visitors {
			want, status := time.Duration(1+i/2)*100*time.Millisecond, 200
			if i > 5 {
				want, status = 250*time.Millisecond, 429
			}
			if v.served.Round(time.Millisecond) != want || v.w.Code != status {
				t.Errorf("request %d was answered %d after %v, want %d after %v", i, v.w.Code, v.served, status, want)
			}
		}
	})
}

// TestAtOnceByManyWays: whatever happens to requests, no key ever has more in flight than its limit, or twice as much if it had no slot, nobody is turned away while
// a place is free, and in the end all places are.
func TestAtOnceByManyWays(t *testing.T) {
	for seed := range uint64(race.Pick(30, 1000)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(45, seed))
			n, wait := 1+r.IntN(4), time.Duration(r.IntN(2))*time.Second
			var mu sync.Mutex
			in := map[string]int{}
			count := func(addr string, d int) int {
				mu.Lock()
				defer mu.Unlock()
				in[addr] += d
				return in[addr]
			}
			inner := &inbound.Limit{Limits: []string{"1000/1s window"}, Key: user}
			l := inbound.Limit{
				Limits: []string{itoa(n) + " at once", "20/1s burst 20"}, Wait: wait, And: []*inbound.Limit{inner}, MaxKeys: 1 + r.IntN(5),
				Settle: func(*http.Request, int, http.Header) int { return 0 },
			}
			l.OnRefusal = func(q *http.Request, d time.Duration) {
				if d == time.Second && wait == 0 && count(q.RemoteAddr, 0) < n && l.Stats().Newcomers == 0 {
					t.Errorf("seed %d: turned away with %d in flight", seed, count(q.RemoteAddr, 0))
				}
			}
			h := l.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
				if now := count(q.RemoteAddr, 1); now > n*(1+bit(l.Stats().Newcomers > 0)) {
					t.Errorf("seed %d: %d in flight, at most %d", seed, now, n)
				}
				defer count(q.RemoteAddr, -1)
				sleeper(&nobody{http.Header{}}, q)
			})
			var all sync.WaitGroup
			for range 60 {
				time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
				addr, lasts := "192.0.2."+itoa(r.IntN(4))+":1", itoa(r.IntN(900))+"ms"
				if r.IntN(6) == 0 {
					lasts = "panic"
				}
				leaves := time.Duration(r.IntN(2000)) * time.Millisecond
				all.Go(func() {
					q := request(addr, "X-User", lasts)
					ctx, cancel := context.WithTimeout(t.Context(), leaves)
					defer cancel()
					recovered(func() { h.ServeHTTP(&nobody{http.Header{}}, q.WithContext(ctx)) })
				})
			}
			all.Wait()
			time.Sleep(time.Hour)
			for i := range 4 {
				for range n { // all together
					all.Go(func() {
						if w := get(h, "192.0.2."+itoa(i)+":1", "X-User", "1s"); w.Code != 200 {
							t.Errorf("seed %d: in the end: %d", seed, w.Code)
						}
					})
				}
				all.Wait()
			}
		})
	}
}

// TestAtOnceUnderAFlood: a key with a request in flight keeps its slot however long that takes and however many others come, which
// share one key's places, and may come all the same when the flood is over.
func TestAtOnceUnderAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inbound.Limit{Limits: []string{"2 at once"}, MaxKeys: 3, Key: user}
		h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Hour) }))
		var all sync.WaitGroup
		var served atomic.Int32
		want := int32(3 + 2)
		for i := range 50 {
			all.Go(func() { served.Add(int32(bit(get(h, alice, "X-User", itoa(i)).Code == 200))) })
			synctest.Wait()
			time.Sleep(time.Minute)
		}
		for _, key := range []string{"0", "1", "2"} {
			all.Go(func() { served.Add(int32(bit(get(h, alice, "X-User", key).Code == 200))) })
			synctest.Wait()
			want++
		}
		if all.Wait(); served.Load() != want {
			t.Errorf("%d were served, want %d", served.Load(), want)
		}
		for i := range 6 {
			if w := get(h, alice, "X-User", "new"+itoa(i)); w.Code != 200 {
				t.Errorf("afterwards: %d", w.Code)
			}
		}
	})
}

// TestAtOnceChanges: requests that are in flight count on under a new number, and no others.
func TestAtOnceChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inbound.Limit{Limits: []string{"3 at once"}}
		h := l.Handler(sleeper)
		var all sync.WaitGroup
		try := func(lasts string, want int) {
			t.Helper()
			all.Go(func() {
				if w := get(h, alice, "X-User", lasts); w.Code != want {
					t.Errorf("%d, want %d", w.Code, want)
				}
			})
			synctest.Wait()
		}
		set := func(limits ...string) {
			t.Helper()
			if err := l.SetLimits(limits...); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			try("10s", 204)
		}
		try("1s", 429)
		set("100/1h window", "4 at once")
		try("5s", 204)
		try("1s", 429)
		set("2 at once")
		time.Sleep(7 * time.Second)
		try("1s", 429)
		time.Sleep(4 * time.Second) // all are over
		try("1s", 204)
		try("1s", 204)
		try("1s", 429)
		set("100/1h window") // those two are not counted from now on
		set("1 at once")
		try("5s", 204)
		try("5s", 429)
		time.Sleep(2 * time.Second)
		try("5s", 429) // their ends free nothing
		all.Wait()
		try("1s", 204)
		all.Wait()
	})
}
