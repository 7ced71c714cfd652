package quota

import (
	"fmt"
	"testing"
)

// A routesTest is the routes of a key with two scopes, and what answers of some routes have said.
type routesTest struct{ *routes }

func newRoutesTest() routesTest { return routesTest{new(routes)} }

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
	if n := len(r.known); n > 10 {
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
	if len(r.known) != maxRoutes {
		t.Errorf("%d are kept, want %d", len(r.known), maxRoutes)
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
