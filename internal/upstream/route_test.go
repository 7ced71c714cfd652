package upstream

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/go-throttle/throttle/hint"
)

// A routesTest is a learner with two scopes, and what answers of some routes have said.
type routesTest struct{ *learner }

func newRoutesTest() routesTest {
	l := newLearner()
	l.scopes = append(l.scopes, new(scope), new(scope))
	return routesTest{l}
}

func (r routesTest) says(id uint8, paths ...string) {
	for _, path := range paths {
		r.vote(RouteOf("a", path), id)
	}
}

func (r routesTest) keepsSilent(paths ...string) {
	for _, path := range paths {
		r.vote(RouteOf("a", path), 0)
	}
}

func (r routesTest) want(t *testing.T, id uint8, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if got := r.scopeOf(RouteOf("a", path)); got != id {
			t.Errorf("%q falls under scope %d, want %d", path, got, id)
		}
	}
}

// A route that advertises falls under its own scope, one that is not known under that of the longest known
// beginning, without spacing, and one under several scopes under none. Another host's routes are free.
func TestRoutes(t *testing.T) {
	r := newRoutesTest()
	r.want(t, 0, "/x")
	r.says(1, "/repos/one/issues/7")
	r.want(t, 1, "/repos/one/issues", "//repos//one/issues/8")
	r.want(t, 1+unspaced, "/repos/one", "/repos/two", "/other", "")
	if got := r.scopeOf(RouteOf("b", "/repos/one/issues")); got != 0 {
		t.Errorf("another host's route falls under scope %d", got)
	}
	r.says(2, "/search/code")
	r.want(t, 2, "/search/code", "/search/code/")
	r.want(t, 2+unspaced, "/search/users")
	r.want(t, 1+unspaced, "/repos/two")
	r.want(t, 0, "/other", "")
	r.says(1, "/search/users")
	r.want(t, 0, "/search/x")
	r.says(1, "/search/code")
	r.want(t, 1, "/search/code")
}

// Once three routes have advertised a scope, those that are not known yet are spaced by it too.
func TestRoutesOfObjects(t *testing.T) {
	r := newRoutesTest()
	r.says(1, "/users/1", "/users/1", "/users/2", "/users/2")
	r.want(t, 1+unspaced, "/users/7", "/teams")
	r.says(1, "/users/3")
	r.want(t, 1, "/users/7", "/teams")
	for i := range 3 * maxRoutes {
		r.says(1, fmt.Sprintf("/users/%d", i))
	}
	if n := len(r.routes); n > 10 {
		t.Errorf("%d are kept, although the host says it all", n)
	}
}

// A route that has never advertised is free after three silent answers in a row. One that has stays.
func TestSilentRoutes(t *testing.T) {
	r := newRoutesTest()
	r.says(1, "/auth")
	r.keepsSilent("/data", "/data", "/auth", "/auth", "/auth", "/auth")
	r.want(t, 1+unspaced, "/data", "/other")
	r.keepsSilent("/data")
	r.want(t, 0, "/data")
	r.want(t, 1, "/auth")
	r.want(t, 1+unspaced, "/other")
	r.keepsSilent("/other/1", "/other/2")
	r.want(t, 0, "/other", "/new") // three routes in a row
	r.says(1, "/new", "/data")
	r.want(t, 0, "/other", "/more")
	r.says(1, "/other")
	r.want(t, 1, "/more")
}

// If the key's first answers were silent, routes that are not known are free.
func TestSilentAtFirst(t *testing.T) {
	r := newRoutesTest()
	r.silentFirst = true
	r.says(1, "/auth/login")
	r.want(t, 1, "/auth/login")
	r.want(t, 1+unspaced, "/auth/token")
	r.want(t, 0, "/data", "")
}

// No more routes are kept than there is place for.
func TestManyRoutes(t *testing.T) {
	r := newRoutesTest()
	for i := range 3 * maxRoutes {
		r.says(uint8(i%2+1), fmt.Sprintf("/%d/b/c", i))
	}
	r.says(2, "/z")
	r.want(t, 2, "/z")
	if len(r.routes) != maxRoutes {
		t.Errorf("%d are kept, want %d", len(r.routes), maxRoutes)
	}
}

// What all routes of an API begin with does not tell them apart.
func TestVersionsOfAnAPI(t *testing.T) {
	for path, same := range map[string]string{
		"/api/v10/channels/7/messages": "/channels/7/messages", "/v1/a/b/c": "/a/b/c", "/api/users": "/users", "//api//v2//users": "/users",
	} {
		if RouteOf("a", path) != RouteOf("a", same) {
			t.Errorf("%s is another route than %s", path, same)
		}
	}
	for path, other := range map[string]string{"/apis/a": "/a", "/v/a": "/a", "/vx1/a": "/a", "/a/v1/b": "/a/b", "/api/v1": "/", "/1/a": "/a"} {
		if RouteOf("a", path) == RouteOf("a", other) {
			t.Errorf("%s is the same route as %s", path, other)
		}
	}
}

// A route that is throttled with a time again and again waits alone. An answer to an attempt that was sent before its
// closing does not open it, whatever that advertises; the first one after it says where the route belongs.
func TestClosedRoute(t *testing.T) {
	s := newState(0)
	waits := func(path string, now time.Time) time.Duration {
		then, _, _ := s.Ready(s.Scope(&url.URL{Host: "a", Path: path}), 1, now, now)
		return max(0, then.Sub(now))
	}
	send := func(path string, now time.Time) (a Answer) {
		waits(path, now) // which opens the gate
		a = Answer{Scope: s.Scope(&url.URL{Host: "a", Path: path}), Epoch: s.Epoch(), Cost: 1, Sent: now, Host: "a", Path: path, InFlight: 1, WindowFactor: 4}
		a.Counted = s.Start(a.Scope, 1, now, now)
		return a
	}
	answer := func(a Answer, o Outcome, h hint.Hint, now time.Time) {
		a.Outcome, a.Hint = o, h
		s.Observe(&a, now)
	}
	throttled := hint.Hint{Throttled: true, RetryAfter: 10 * time.Second}
	for i := range 3 {
		begin := at(float64(100 * i))
		early := send("/x", begin)
		answer(send("/x", begin), Throttled, throttled, begin.Add(time.Second))
		x, y := waits("/x", begin.Add(time.Second)), waits("/y", begin.Add(time.Second))
		if x < 10*time.Second || (y > 0) != (i < 2) {
			t.Errorf("throttled %d times, /x waits for %v and /y for %v; want at least 10 s, and /y until the second", i+1, x, y)
		}
		if i == 2 {
			answer(early, Success, hint.Hint{Quotas: []hint.Quota{named("q")}}, begin.Add(2*time.Second))
			if x := waits("/x", begin.Add(2*time.Second)); x < 9*time.Second {
				t.Errorf("an answer to an attempt before the closing opens it: /x waits for %v", x)
			}
		}
		later := begin.Add(50 * time.Second)
		answer(send("/y", later), Success, hint.Hint{}, later)
	}
	after := at(300)
	answer(send("/x", after), Success, hint.Hint{Quotas: []hint.Quota{named("q")}}, after)
	if id := s.Scope(&url.URL{Host: "a", Path: "/x"}); len(s.learned.scope(id).quotas) != 1 {
		t.Errorf("the answer after the closing does not move /x: scope %d", id)
	}
}
