package upstream

import (
	"fmt"
	"testing"
	"time"
)

// A route falls under the scope of the longest prefix that is known; one with several scopes below it says
// nothing; of what is remembered there is a bound.
func TestRoutes(t *testing.T) {
	l := newLearner()
	if got := l.scopeOf("a", "/x"); got != 0 {
		t.Errorf("scope %d while nothing is known, want 0", got)
	}
	l.scopes = append(l.scopes, new(scope))
	l.setRoute("a", "/x", 1)
	if got := l.scopeOf("b", "/y"); got != 1 {
		t.Errorf("scope %d while there is only scope 1, want that", got)
	}
	l.scopes = append(l.scopes, new(scope))
	l.setRoute("a", "/search/code", 2)
	if got := l.scopeOf("a", "/other"); got != 0 {
		t.Errorf("scope %d for what may be scope 1 or 2, want 0", got)
	}
	l.setRoute("a", "/search/users", 2)
	l.setRoute("a", "/repos/one/issues/7", 1)
	l.setRoute("c", "/x", 1)
	if b, c := l.scopeOf("b", "/search/code"), l.scopeOf("c", "/y"); b != 0 || c != 1 {
		t.Errorf("other hosts: scopes %d and %d, want 0 for what is not known, 1 for what has only that", b, c)
	}
	for path, want := range map[string]uint8{
		"/search/code": 2, "/search/code/deeper": 2, "/search/users": 2, "/search": 2, "//search//code": 2,
		"/repos/one/issues/8": 1, "/repos/two": 1, "/other": 0, "": 0, "/sear/ch": 0, "/search/x": 2,
	} {
		if got := l.scopeOf("a", path); got != want {
			t.Errorf("%q: scope %d, want %d", path, got, want)
		}
	}
	l.setRoute("a", "/search/users", 1)
	if code, users, other := l.scopeOf("a", "/search/code"), l.scopeOf("a", "/search/users"), l.scopeOf("a", "/search/x"); code != 2 || users != 1 || other != 0 {
		t.Errorf("below a prefix of two scopes: %d, %d, and %d for what is not known; want 2, 1, 0", code, users, other)
	}
	l.setRoute("a", "/search", 1)
	l.setRoute("a", "/d/e/f/1", 2)
	l.setRoute("a", "/d/e/f/2", 1)
	if deeper, deep := l.scopeOf("a", "/search/y"), l.scopeOf("a", "/d/e/f/1"); deeper != 1 || deep != 1 {
		t.Errorf("what was advertised for a route last: scopes %d, %d, want 1, 1", deeper, deep)
	}
	for i := range 3 * maxRoutes {
		l.setRoute("a", fmt.Sprintf("/%d/b/c", i), 1)
	}
	l.setRoute("a", "/z", 2)
	l.setRoute("a", "/z", 2)
	if len(l.routes) != maxRoutes || l.scopeOf("a", "/z") != 2 {
		t.Errorf("%d prefixes are remembered, want %d; scope %d for the last, want 2", len(l.routes), maxRoutes, l.scopeOf("a", "/z"))
	}
}

// Predicting a later moment does not end the finder's hold before its time.
func TestPredictionEndsNoHold(t *testing.T) {
	now := time.Now()
	l := newLearner()
	l.finder = &finder{phase: holding, w: 10, since: now, next: now, hold: 5, throttled: 3}
	l.after(0, now.Add(time.Minute), Before{}, 1)
	if l.finder.phase != holding || l.finder.throttled != 3 {
		t.Errorf("phase %d, %v throttled; want %d, 3", l.finder.phase, l.finder.throttled, holding)
	}
}

// One who shares a short window remembers no more starts than it holds.
func TestOldStartsAreForgotten(t *testing.T) {
	q := &quota{perCall: 1, size: 100, window: time.Second}
	q.Window, q.Limit = time.Second, 100
	now := time.Unix(1e9, 0)
	q.shared = now.Add(time.Hour)
	for range 10_000 {
		now = now.Add(20 * time.Millisecond)
		q.take(1, now, 0)
		q.ended(1)
	}
	if len(q.log) > 60 || q.calls != 0 || q.units != 0 {
		t.Errorf("%d starts remembered, %d calls and %v units in flight; want 51, 0, 0", len(q.log), q.calls, q.units)
	}
}
