package throttle

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A route falls under the lane of the longest beginning that is known; one with several lanes below it says
// nothing; of what is remembered there is a bound.
func TestRoutes(t *testing.T) {
	l := newLearned()
	if got := l.laneOf("a", "/x"); got != 0 {
		t.Errorf("lane %d while nothing is known, want 0", got)
	}
	l.lanes = append(l.lanes, new(lane))
	l.teach("a", "/x", 1)
	if got := l.laneOf("b", "/y"); got != 1 {
		t.Errorf("lane %d while there is only lane 1, want that", got)
	}
	l.lanes = append(l.lanes, new(lane))
	l.teach("a", "/search/code", 2)
	l.teach("a", "/repos/one/issues/7", 1)
	for path, want := range map[string]uint8{
		"/search/code": 2, "/search/code/deeper": 2, "/search/users": 2, "/search": 2, "//search//code": 2,
		"/repos/one/issues/8": 1, "/repos/two": 1, "/other": 0, "": 0,
	} {
		if got := l.laneOf("a", path); got != want {
			t.Errorf("%q: lane %d, want %d", path, got, want)
		}
	}
	l.teach("a", "/search/users", 1)
	if code, users, other := l.laneOf("a", "/search/code"), l.laneOf("a", "/search/users"), l.laneOf("a", "/search/x"); code != 2 || users != 1 || other != 0 {
		t.Errorf("below a beginning of two lanes: %d, %d, and %d for what is not known; want 2, 1, 0", code, users, other)
	}
	for i := range 3 * maxRoutes {
		l.teach("a", fmt.Sprintf("/%d/b/c", i), 1)
	}
	if len(l.routes) > maxRoutes {
		t.Errorf("%d beginnings are remembered, want at most %d", len(l.routes), maxRoutes)
	}
}

// Calls that wait for one quota are not ahead of those that fall under another: a deadline that the other
// allows is no reason to refuse.
func TestSpentQuotaDoomsNoOtherRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tr := &Transport{Retry: Retry{MaxPause: -1}, Base: baseFunc(func(req *http.Request) (*http.Response, error) {
			time.Sleep(20 * time.Millisecond)
			resp := reply(req, 200)
			name, left := "core", 500
			if strings.HasPrefix(req.URL.Path, "/search") {
				name, left = "search", 0
			}
			resp.Header.Set("RateLimit-Policy", fmt.Sprintf(`"%s";q=1000;w=3600`, name))
			resp.Header.Set("RateLimit", fmt.Sprintf(`"%s";r=%d;t=%d`, name, left, 3600-int(time.Since(start).Seconds())))
			return resp, nil
		})}
		for _, path := range []string{"/core", "/search", "/core"} {
			if code, err := status(tr, t.Context(), "http://a.test"+path); err != nil || code != 200 {
				t.Fatal(code, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range 600 {
			go status(tr, ctx, "http://a.test/search")
		}
		time.Sleep(time.Minute)
		soon, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if code, err := status(tr, soon, "http://a.test/core"); err != nil || code != 200 {
			t.Errorf("a call that falls under another quota: %d, %v", code, err)
		}
		cancel()
		synctest.Wait()
	})
}

// In whatever lanes they are, waiters of one priority are ordered by arrival.
func TestOrderedAcrossLanes(t *testing.T) {
	var r ranks
	for i, lane := range []uint8{2, 0, 1, 0} {
		r.push(&waiter{seq: uint64(i + 1), lane: lane, cost: 1})
	}
	r.push(&waiter{seq: 5, prio: 1, cost: 1})
	var got []uint64
	for _, w := range r.ordered() {
		got = append(got, w.seq)
	}
	if want := []uint64{5, 1, 2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("ordered %v, want %v", got, want)
	}
}

// A first refusal that tells a quota's reset beyond the call's MaxPause is handed out at once and untouched.
func TestFirstRefusalBeyondMaxPauseIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retried := 0
		tr := &Transport{
			Base: baseFunc(func(req *http.Request) (*http.Response, error) {
				return reply(req, 429, "RateLimit-Policy", `"q";q=100;w=3600`, "RateLimit", `"q";r=0;t=300`), nil
			}),
			Hooks: Hooks{Retrying: func(context.Context, Event) { retried++ }},
		}
		resp, err := tr.RoundTrip(request(t.Context(), "GET", "http://a.test/x"))
		if err != nil {
			t.Fatal(err)
		}
		if _, kept := resp.Body.(*keptBody); kept || retried > 0 || resp.StatusCode != 429 {
			t.Errorf("status %d, %d retries announced, body read ahead: %v; want 429, none, false", resp.StatusCode, retried, kept)
		}
		resp.Body.Close()
	})
}

// Predicting a later moment does not end the finder's hold before its time.
func TestPredictionEndsNoHold(t *testing.T) {
	now := time.Now()
	l := newLearned()
	l.find = &finder{phase: holding, w: 10, since: now, next: now, hold: 5, refused: 3}
	l.after(0, now.Add(time.Minute), before{}, 1)
	if l.find.phase != holding || l.find.refused != 3 {
		t.Errorf("phase %d, %v refusals; want %d, 3", l.find.phase, l.find.refused, holding)
	}
}
