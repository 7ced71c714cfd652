package inbound_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet"
	"github.com/go-throttle/throttle/inbound"
)

// user is a Key for tests: what an earlier handler would have found out.
func user(r *http.Request) string { return r.Header.Get("X-User") }

func TestNonsensePanics(t *testing.T) {
	self, twice := &inbound.Limit{}, &inbound.Limit{}
	self.And = []*inbound.Limit{self}
	for name, c := range map[string]struct {
		l    *inbound.Limit
		says string
	}{
		"limits":      {&inbound.Limit{Limits: []string{"ten a day"}}, `"ten a day"`},
		"kind":        {&inbound.Limit{Limits: []string{"10/s fast"}}, "fast"},
		"four":        {&inbound.Limit{Limits: []string{"1/s, 1/m even", "1/h burst 1", "1/d even"}}, "4 limits"},
		"long window": {&inbound.Limit{Limits: []string{"1/40000d window"}}, "longer"},
		"sliding":     {&inbound.Limit{Limits: []string{"5000000000/s sliding"}}, "5000000000"},
		"keys":        {&inbound.Limit{MaxKeys: -1}, "MaxKeys is -1"},
		"many keys":   {&inbound.Limit{MaxKeys: 1<<28 + 1}, "MaxKeys"},
		"wait":        {&inbound.Limit{Wait: -time.Second}, "Wait is -1s"},
		"waiting":     {&inbound.Limit{MaxWaiting: -2}, "MaxWaiting is -2"},
		"name":        {&inbound.Limit{Name: "é"}, "Name"},
		"quoted name": {&inbound.Limit{Name: `"`}, "Name"},
		"tiers":       {&inbound.Limit{Tiers: map[string][]string{"pro": {"1/s"}}}, "Tier is nil"},
		"tier":        {&inbound.Limit{Tier: user, Tiers: map[string][]string{"pro": {"much"}}}, `Tiers["pro"]`},
		"and":         {&inbound.Limit{And: []*inbound.Limit{nil}}, "And[0] is nil"},
		"in and":      {&inbound.Limit{And: []*inbound.Limit{{Limits: []string{"x"}}}}, `"x"`},
		"many and":    {&inbound.Limit{And: []*inbound.Limit{{}, {}, {}, {}}}, "And has 4"},
		"itself":      {self, "And[0]"},
		"twice":       {&inbound.Limit{And: []*inbound.Limit{twice, {}, twice}}, "And[2] is And[0]"},
		"shared":      {&inbound.Limit{Shared: []throttle.Limiter{nil}}, "Shared[0] is nil"},
		"adjuster":    {&inbound.Limit{Shared: []throttle.Limiter{foreign{}, foreign{}}}, "Adjust"},
	} {
		for range 2 { // the second Handler says the same
			if got := recovered(func() { c.l.Handler(ok) }); !strings.HasPrefix(got, "throttle: inbound.Limit: ") || !strings.Contains(got, c.says) {
				t.Errorf("%s: %q, want a text with %s", name, got, c.says)
			}
		}
	}
	l := &inbound.Limit{}
	if recovered(func() { l.Handler(nil) }) == "" || recovered(func() { l.HandlerFunc(nil) }) == "" {
		t.Error("no panic for a nil handler")
	}
	if recovered(func() { inbound.NewKeyed[int](0, "x") }) == "" || recovered(func() { inbound.NewKeyed[int](-1) }) == "" {
		t.Error("no panic of NewKeyed")
	}
}

// foreign is a limiter that has only Take.
type foreign struct{ err error }

func (f foreign) Take(context.Context, int) (time.Duration, error) { return 0, f.err }

// TestFields: what an answer says, letter by letter.
func TestFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inbound.Limit{Limits: []string{"100/1m burst 20", "50/h window", "30/s burst 25"}, XRateLimit: true}
		h := l.Handler(ok)
		get(h, alice)
		time.Sleep(1500 * time.Millisecond)
		check := func(header http.Header, want map[string]string) {
			t.Helper()
			for name, value := range want {
				if got := strings.Join(header.Values(name), " | "); got != value {
					t.Errorf("%s: %s, want %s", name, got, value)
				}
			}
		}
		// A bucket of 100/m gains a unit in 600 ms.
		check(get(h, alice).Header(), map[string]string{
			"RateLimit-Policy":      `"m";q=20;w=12, "h";q=50;w=3600`,
			"RateLimit":             `"m";r=19;t=1, "h";r=48;t=3599`,
			"X-RateLimit-Limit":     "20",
			"X-RateLimit-Remaining": "19",
			"X-RateLimit-Reset":     "1",
			"Retry-After":           "",
		})
		for range 19 {
			get(h, alice)
		}
		w := get(h, alice)
		check(w.Header(), map[string]string{
			"RateLimit":    `"m";r=0;t=12, "h";r=29;t=3599`,
			"Retry-After":  "1",
			"Content-Type": "application/problem+json",
		})
		var problem struct {
			Type     string
			Status   int
			Violated []string `json:"violated-policies"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || w.Code != 429 || problem.Status != 429 ||
			!strings.HasSuffix(problem.Type, "#quota-exceeded") || len(problem.Violated) == 0 || problem.Violated[0] != "m" {
			t.Errorf("%d %s %v", w.Code, w.Body, err)
		}
	})
}

// TestPolicies: what RateLimit-Policy says of small limits.
func TestPolicies(t *testing.T) {
	for limit, want := range map[string]string{
		"1/s": `"s";q=1;w=1`, "1/1s even": `"s";q=1;w=1`, "1/1s window": `"s";q=1;w=1`, "1/1s sliding": `"s";q=1;w=1`,
		"3/s burst 3": `"s";q=3;w=1`, "7/7s burst 1": `"7s";q=1;w=1`, "1/3s even": `"3s";q=1;w=3`, "2/3s even": `"3s";q=1;w=2`,
		"3/s": "", "3/s burst 2": "", "1/1500ms window": "", "1/999ms even": "",
	} {
		l := inbound.Limit{Limits: []string{limit}}
		if got := get(l.Handler(ok), alice).Header().Get("RateLimit-Policy"); got != want {
			t.Errorf("%s: %s, want %s", limit, got, want)
		}
	}
}

// TestStackedLimits: of Limits around each other X-RateLimit is that of the tightest, wherever it stands, also in a refusal;
// the lists of RateLimit have all. What another middleware has written under these names is replaced.
func TestStackedLimits(t *testing.T) {
	for _, order := range [][3]string{
		{"3/1m window", "1000/1h window", "50/1s window"}, {"1000/1h window", "3/1m window", "50/1s window"},
		{"50/1s window", "1000/1h window", "3/1m window"}, {"1000/1h window", "3/1m sliding", "3/2s even"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var h http.Handler = ok
			for i := range order {
				h = (&inbound.Limit{Limits: order[2-i : 3-i], Name: itoa(2 - i), XRateLimit: true}).Handler(h)
			}
			h = http.HandlerFunc(func(next http.Handler) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("X-RateLimit-Limit", "many")
					next.ServeHTTP(w, r)
				}
			}(h))
			for i := range 5 {
				w := get(h, alice)
				got := [3]string{w.Header().Get("X-RateLimit-Limit"), w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("X-RateLimit-Reset")}
				want := [3]string{"3", itoa(max(0, 2-i)), itoa(60 - 2*i)}
				if w.Code != map[bool]int{true: 204, false: 429}[i < 3] || got[0] != want[0] || got[1] != want[1] || got[2] > want[2] && order[1] != "3/1m sliding" {
					t.Errorf("%v: request %d: %d %v, want %v", order, i, w.Code, got, want)
				}
				if i < 3 && len(w.Header()["Ratelimit"]) != 3-strings.Count(order[2], "even") {
					t.Errorf("%v: request %d: %v", order, i, w.Header()["Ratelimit"])
				}
				time.Sleep(2 * time.Second)
			}
		})
	}
}

// TestNames: no two limits of an answer have one name.
func TestNames(t *testing.T) {
	l := inbound.Limit{
		Limits: []string{"10/m burst 100, 20/m window"}, Name: "ip",
		And: []*inbound.Limit{{Limits: []string{"100/h window"}}, {Limits: []string{"200/h window"}}},
	}
	h := get(l.Handler(ok), alice).Header()
	want := `"ip-m-2";q=20;w=60`
	if all := h.Values("RateLimit-Policy"); !contains(all, want) || !contains(all, `"h";q=100`) || !contains(all, `"h-2";q=200`) {
		t.Errorf("%v", all)
	}
	l = inbound.Limit{Limits: []string{"10/m burst 100"}, NoFields: true}
	if h := get(l.Handler(ok), alice).Header(); len(h) != 0 {
		t.Errorf("NoFields: %v", h)
	}
}

// TestFurtherLimits: all limits let a request in, or it takes from none, and Retry-After is the longest wait.
func TestFurtherLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		perUser := &inbound.Limit{Limits: []string{"3/h window"}, Key: user, Name: "user"}
		l := inbound.Limit{Limits: []string{"1/m burst 10"}, And: []*inbound.Limit{perUser}}
		h := l.Handler(ok)
		for i := range 6 {
			w := get(h, alice, "X-User", "a")
			if want := map[bool]int{true: 204, false: 429}[i < 3]; w.Code != want {
				t.Errorf("request %d: %d, want %d", i, w.Code, want)
			}
			if i >= 3 && (w.Header().Get("Retry-After") != "3600" || !contains(w.Header()["Ratelimit"], `"m";r=7`)) {
				t.Errorf("request %d: %v; want the wait of the user, and 7 left for the address", i, w.Header())
			}
		}
		if all := get(h, alice, "X-User", "a").Header()["Ratelimit"]; len(all) != 1 || !strings.HasPrefix(all[0], `"user-h"`) {
			t.Errorf("%v; want the tightest limit first", all)
		}
		for i := range 7 {
			if w := get(h, alice, "X-User", "b"+itoa(i)); w.Code != 204 {
				t.Errorf("another user: %d", w.Code)
			}
		}
		if w := get(h, alice, "X-User", "a"); w.Header().Get("Retry-After") != "3600" {
			t.Errorf("both are used up: %v", w.Header())
		}
		if s := l.Stats(); s.Admitted != 10 || s.Refused != 5 {
			t.Errorf("%+v, want 10 let in and 5 refused", s)
		}
		if s := perUser.Stats(); s.Admitted != 10 || s.Refused != 4 {
			t.Errorf("of the user: %+v, want 10 let in and 4 refused", s)
		}
	})
}

func TestTiers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inbound.Limit{
			Limits: []string{"2/h window"}, Key: user, MaxKeys: 4,
			Tier:  func(r *http.Request) string { return r.Header.Get("X-Plan") },
			Tiers: map[string][]string{"pro": {"5/m burst 5", "7/h sliding"}, "none": nil},
		}
		h := l.Handler(ok)
		for plan, want := range map[string]int{"": 2, "pro": 5, "no such plan": 2, "none": 20} {
			n := 0
			for range 20 {
				if get(h, alice, "X-User", plan, "X-Plan", plan).Code == 204 {
					n++
				}
			}
			if n != want {
				t.Errorf("plan %q: %d were served, want %d", plan, n, want)
			}
		}
		time.Sleep(time.Minute)
		if w := get(h, alice, "X-User", "pro", "X-Plan", "pro"); w.Code != 204 {
			t.Errorf("a minute later: %d", w.Code)
		}
	})
}

func TestAllow(t *testing.T) {
	l := inbound.Limit{Limits: []string{"1/h burst 1"}, Allow: func(r *http.Request) bool { return r.Header.Get("X-User") == "health" }}
	h := l.Handler(ok)
	for range 5 {
		if w := get(h, alice, "X-User", "health"); w.Code != 204 || len(w.Header()) > 0 {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	}
	if s := l.Stats(); s != (inbound.Stats{}) {
		t.Errorf("%+v", s)
	}
}

// TestShadow: everything is served, without fields, and counted.
func TestShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := 0
		l := inbound.Limit{Limits: []string{"3/m window"}, Shadow: true, OnRefusal: func(_ *http.Request, wait time.Duration) {
			if seen++; wait != time.Minute {
				t.Errorf("wait %v", wait)
			}
		}}
		h := l.Handler(ok)
		for range 10 {
			if w := get(h, alice); w.Code != 204 || len(w.Header()) > 0 {
				t.Errorf("%d %v", w.Code, w.Header())
			}
		}
		if s := l.Stats(); s.Admitted != 3 || s.Refused != 7 || seen != 7 {
			t.Errorf("%+v, %d seen; want 3 and 7", s, seen)
		}
	})
}

func TestRefused(t *testing.T) {
	l := inbound.Limit{Limits: []string{"1/h burst 1"}, Refused: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "later: "+w.Header().Get("Retry-After"), http.StatusTooManyRequests)
	})}
	h := l.HandlerFunc(ok)
	get(h, alice)
	if w := get(h, alice); w.Code != 429 || !strings.HasPrefix(w.Body.String(), "later: 3") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cost := 0
		l := inbound.Limit{Limits: []string{"1/m burst 10"}, Cost: func(*http.Request) int { return cost }}
		h := l.Handler(ok)
		for _, c := range []struct{ cost, status, left int }{
			{0, 204, 10}, {4, 204, 6}, {-3, 204, 5}, {6, 429, 5}, {5, 204, 0}, {0, 204, 0}, {1, 429, 0}, {math.MaxInt, 429, 0},
		} {
			cost = c.cost
			w := get(h, alice)
			if w.Code != c.status || !contains(w.Header()["Ratelimit"], ";r="+itoa(c.left)) {
				t.Errorf("cost %d: %d %v, want %d and %d left", c.cost, w.Code, w.Header(), c.status, c.left)
			}
		}
		if w := get(h, alice); w.Header().Get("Retry-After") != "" {
			t.Errorf("a cost that can never be paid: %v", w.Header())
		}
	})
}

// TestDebts: a cost above a window fills the windows that follow, as in package throttle. The estimate of a sliding window
// remembers each for one more.
func TestDebts(t *testing.T) {
	for limit, want := range map[string][]int{
		"5/s window":   {0, 0, 3, 5, 5},
		"5/s sliding":  {0, 0, 3, 5, 5},
		"50/s window":  {0, 0, 30, 50, 50},
		"50/s sliding": {0, 0, 0, 30, 50},
	} {
		synctest.Test(t, func(t *testing.T) {
			k := inbound.NewKeyed[string](0, limit)
			if !k.Allow("", 12*want[4]/5) {
				t.Fatalf("%s: 2.4 windows were refused by an empty one", limit)
			}
			for i, left := range want {
				if got := k.Tokens(""); got != left {
					t.Errorf("%s: %d are left after %d s, want %d", limit, got, i, left)
				}
				time.Sleep(time.Second)
			}
		})
	}
}

// TestPanicsTakeNothing: a Key, Cost or Tier that panics ends the request, and the limit goes on as before.
func TestPanicsTakeNothing(t *testing.T) {
	bad := true
	for _, l := range []*inbound.Limit{
		{Key: func(*http.Request) string { panicIf(bad); return "" }},
		{Cost: func(*http.Request) int { panicIf(bad); return 1 }},
		{Tier: func(*http.Request) string { panicIf(bad); return "" }},
		{Allow: func(*http.Request) bool { panicIf(bad); return false }},
		{And: []*inbound.Limit{{Key: func(*http.Request) string { panicIf(bad); return "" }}}},
	} {
		l.Limits = []string{"5/h window"}
		h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { panicIf(bad); w.WriteHeader(204) }))
		bad = true
		for range 3 {
			if recovered(func() { get(h, alice) }) != "bad" {
				t.Error("no panic")
			}
		}
		bad = false
		if w := get(h, alice); w.Code != 204 || !contains(w.Header()["Ratelimit"], ";r=4") {
			t.Errorf("afterwards: %d %v", w.Code, w.Header())
		}
	}
}

func panicIf(bad bool) {
	if bad {
		panic("bad")
	}
}

// TestHugeKeys: a key of a megabyte is a key, and is not kept.
func TestHugeKeys(t *testing.T) {
	l := inbound.Limit{Limits: []string{"1/h burst 1"}, Key: user}
	h := l.Handler(ok)
	huge := strings.Repeat("x", 1<<20)
	before := heap()
	for i := range 20 {
		name := huge + itoa(i)
		if get(h, alice, "X-User", name).Code != 204 || get(h, alice, "X-User", name).Code != 429 {
			t.Error("a huge key is not one key")
		}
	}
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("%d bytes for 20 keys", grown)
	}
	l.Stats()
}

// TestHandlersShareOneTable: two handlers of one Limit count together.
func TestHandlersShareOneTable(t *testing.T) {
	l := inbound.Limit{Limits: []string{"4/h window"}}
	a, b := l.Handler(ok), l.Handler(ok)
	n, _ := statuses(t, a, alice, 3)
	m, _ := statuses(t, b, alice, 3)
	if n+m != 4 {
		t.Errorf("%d and %d were served, want 4 in all", n, m)
	}
}

// TestSharedLimits: a limit of all servers comes behind those of the clients. A store that has not been asked yet
// refuses nobody, one that hangs delays a request by its soft timeout.
func TestSharedLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store fleet.Memory
		servers := make([]*inbound.Limit, 2)
		for i := range servers {
			servers[i] = &inbound.Limit{
				Limits: []string{"100/s burst 20"},
				Shared: []throttle.Limiter{throttle.NewBucket(1000, 1000), fleet.New(&store, "api", 10, 30, fleet.Options{})},
			}
		}
		served := 0
		for i := range 60 {
			w := get(servers[i%2].Handler(ok), "192.0.2."+itoa(i%4)+":80")
			if w.Code == 204 {
				served++
			} else if w.Header().Get("Retry-After") == "" {
				t.Errorf("request %d: %v", i, w.Header())
			}
		}
		if served < 25 || served > 40 {
			t.Errorf("%d were served, want about the burst of 30", served)
		}
		left := servers[0].Shared[0].(*throttle.Bucket).Tokens()
		if s := servers[0].Stats(); s.Admitted+s.Refused != 30 || left != 1000-float64(s.Admitted) {
			t.Errorf("%+v, and %v are left of the other shared limit", s, left)
		}
		time.Sleep(time.Minute)
	})
}

// TestSmallSharedLimits: a fleet's limit serves as much as an exact sliding one: a client that keeps to it evenly, and one that
// comes with all at once, whichever server it asks.
func TestSmallSharedLimits(t *testing.T) {
	for _, n := range []int{1, 2, 3, 6, 7, 9, 10} {
		for _, servers := range []int{1, 4} {
			synctest.Test(t, func(t *testing.T) {
				var store fleet.Memory
				var all []http.Handler
				for range servers {
					l := &inbound.Limit{Shared: []throttle.Limiter{fleet.New(&store, "api", rate.Limit(float64(n)/10), n, fleet.Options{})}}
					all = append(all, l.Handler(ok))
				}
				refused, i := 0, 0
				come := func(times int, pause time.Duration) {
					for range times {
						if w := get(all[i%servers], alice); w.Code == http.StatusTooManyRequests {
							refused++
							t.Logf("request %d: Retry-After %s; %s", i, w.Header().Get("Retry-After"), w.Body)
						}
						i++
						time.Sleep(pause)
					}
				}
				come(20*n, 10*time.Second/time.Duration(n)+time.Millisecond)
				time.Sleep(time.Minute)
				for range 10 {
					come(n, 0)
					time.Sleep(10*time.Second + time.Millisecond)
				}
				if refused > 0 {
					t.Errorf("%d/10s for %d servers: %d of %d were refused", n, servers, refused, i)
				}
			})
		}
	}
}

// TestSharedLimitThatFails refuses, and gives back what was taken.
func TestSharedLimitThatFails(t *testing.T) {
	b := throttle.NewBucket(1, 10)
	l := inbound.Limit{Limits: []string{"5/h window"}, Shared: []throttle.Limiter{b, foreign{errors.New("down")}}}
	h := l.Handler(ok)
	w := get(h, alice)
	if w.Code != 429 || !contains(w.Header()["Ratelimit"], ";r=5") || b.Tokens() < 10 {
		t.Errorf("%d %v, %v left", w.Code, w.Header(), b.Tokens())
	}
}

// late is a shared limit that takes 50 ms to refuse while it is slow, and gives its units otherwise.
type late struct{ slow bool }

func (l *late) Take(context.Context, int) (time.Duration, error) {
	if !l.slow {
		return 0, nil
	}
	time.Sleep(50 * time.Millisecond)
	return time.Second, nil
}

// TestSharedLimitThatIsSlow: units that a shared limit refuses after their window has ended are not given to the next one.
func TestSharedLimitThatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &late{}
		h := (&inbound.Limit{Limits: []string{"5/1s window"}, Shared: []throttle.Limiter{slow}}).Handler(ok)
		get(h, alice)
		time.Sleep(990 * time.Millisecond)
		var all sync.WaitGroup
		slow.slow = true
		for range 4 {
			all.Go(func() { get(h, alice) })
		}
		synctest.Wait()
		slow.slow = false
		time.Sleep(20 * time.Millisecond) // the next window begins
		served, _ := statuses(t, h, alice, 10)
		all.Wait()
		more, _ := statuses(t, h, alice, 10)
		if served += more; served != 5 {
			t.Errorf("%d were served in a window of 5", served)
		}
	})
}

// failsLater is a shared limit that says to wait, and fails when it is asked again.
type failsLater struct{ asked bool }

func (f *failsLater) Take(context.Context, int) (time.Duration, error) {
	if f.asked {
		return 0, errors.New("closed")
	}
	f.asked = true
	return time.Second, nil
}

// TestSharedLimitThatFailsLater: a request that is held while a shared limit fails gets no Retry-After, like one that is not
// held.
func TestSharedLimitThatFailsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits []time.Duration
		l := inbound.Limit{
			Limits: []string{"9/m burst 9"}, Shared: []throttle.Limiter{&failsLater{}}, Wait: time.Minute,
			OnRefusal: func(_ *http.Request, wait time.Duration) { waits = append(waits, wait) },
		}
		w := get(l.Handler(ok), alice)
		if after, named := w.Header()["Retry-After"]; w.Code != http.StatusTooManyRequests || named || len(waits) != 1 || waits[0] >= 0 {
			t.Errorf("answered %d, Retry-After %q, and OnRefusal got %v; want 429 without one, and a negative wait", w.Code, after, waits)
		}
		if !strings.Contains(w.Header().Get("RateLimit"), "r=9;") {
			t.Errorf("RateLimit is %q, want all 9 units left", w.Header().Get("RateLimit"))
		}
	})
}

// TestManyClientsAtOnce: 50 goroutines make 1,000 requests each.
func TestManyClientsAtOnce(t *testing.T) {
	l := inbound.Limit{Limits: []string{"1000/24h window"}, And: []*inbound.Limit{{Limits: []string{"3500/24h window"}, Key: func(*http.Request) string { return "" }}}}
	h := l.Handler(ok)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			for range 200 {
				get(h, "192.0.2."+itoa(i%5)+":80")
			}
		})
	}
	all.Wait()
	if s := l.Stats(); s.Admitted != 3500 || s.Refused != 6500 {
		t.Errorf("%+v, want 3500 let in of 10000", s)
	}
}

// TestNonsenseInTwoLimitsAtOnce: a Limit that makes no sense panics in each place that uses it, and with the race detector
// nothing is said against it.
func TestNonsenseInTwoLimitsAtOnce(t *testing.T) {
	for range 20 {
		wrong := &inbound.Limit{Limits: []string{"nonsense"}}
		var all sync.WaitGroup
		for _, l := range []*inbound.Limit{wrong, {And: []*inbound.Limit{wrong}}, {And: []*inbound.Limit{wrong}}} {
			all.Go(func() {
				if text := recovered(func() { l.Handler(ok) }); !strings.Contains(text, "nonsense") {
					t.Errorf("panicked with %q, want it to name the limit", text)
				}
			})
		}
		all.Wait()
	}
}
