package learn

import (
	"fmt"
	"testing"
	"time"
)

// A route falls under the lane of the longest beginning that is known; one with several lanes below it says
// nothing; of what is remembered there is a bound.
func TestRoutes(t *testing.T) {
	l := New()
	if got := l.LaneOf("a", "/x"); got != 0 {
		t.Errorf("lane %d while nothing is known, want 0", got)
	}
	l.Lanes = append(l.Lanes, new(Lane))
	l.teach("a", "/x", 1)
	if got := l.LaneOf("b", "/y"); got != 1 {
		t.Errorf("lane %d while there is only lane 1, want that", got)
	}
	l.Lanes = append(l.Lanes, new(Lane))
	l.teach("a", "/search/code", 2)
	if got := l.LaneOf("a", "/other"); got != 0 {
		t.Errorf("lane %d for what may be lane 1 or 2, want 0", got)
	}
	l.teach("a", "/search/users", 2)
	l.teach("a", "/repos/one/issues/7", 1)
	l.teach("c", "/x", 1)
	if b, c := l.LaneOf("b", "/search/code"), l.LaneOf("c", "/y"); b != 0 || c != 1 {
		t.Errorf("other hosts: lanes %d and %d, want 0 for what is not known, 1 for what has only that", b, c)
	}
	for path, want := range map[string]uint8{
		"/search/code": 2, "/search/code/deeper": 2, "/search/users": 2, "/search": 2, "//search//code": 2,
		"/repos/one/issues/8": 1, "/repos/two": 1, "/other": 0, "": 0, "/sear/ch": 0, "/search/x": 2,
	} {
		if got := l.LaneOf("a", path); got != want {
			t.Errorf("%q: lane %d, want %d", path, got, want)
		}
	}
	l.teach("a", "/search/users", 1)
	if code, users, other := l.LaneOf("a", "/search/code"), l.LaneOf("a", "/search/users"), l.LaneOf("a", "/search/x"); code != 2 || users != 1 || other != 0 {
		t.Errorf("below a beginning of two lanes: %d, %d, and %d for what is not known; want 2, 1, 0", code, users, other)
	}
	l.teach("a", "/search", 1)
	l.teach("a", "/d/e/f/1", 2)
	l.teach("a", "/d/e/f/2", 1)
	if deeper, deep := l.LaneOf("a", "/search/y"), l.LaneOf("a", "/d/e/f/1"); deeper != 1 || deep != 1 {
		t.Errorf("what was told of a route last: lanes %d, %d, want 1, 1", deeper, deep)
	}
	for i := range 3 * maxRoutes {
		l.teach("a", fmt.Sprintf("/%d/b/c", i), 1)
	}
	l.teach("a", "/z", 2)
	l.teach("a", "/z", 2)
	if len(l.routes) != maxRoutes || l.LaneOf("a", "/z") != 2 {
		t.Errorf("%d beginnings are remembered, want %d; lane %d for the last, want 2", len(l.routes), maxRoutes, l.LaneOf("a", "/z"))
	}
}

// Predicting a later moment does not end the finder's hold before its time.
func TestPredictionEndsNoHold(t *testing.T) {
	now := time.Now()
	l := New()
	l.Finder = &Finder{phase: holding, w: 10, since: now, next: now, hold: 5, refused: 3}
	l.After(0, now.Add(time.Minute), Before{}, 1)
	if l.Finder.phase != holding || l.Finder.refused != 3 {
		t.Errorf("phase %d, %v refusals; want %d, 3", l.Finder.phase, l.Finder.refused, holding)
	}
}

// One who shares a short window remembers no more starts than it holds.
func TestOldStartsAreForgotten(t *testing.T) {
	q := &ToldQuota{perCall: 1, size: 100, window: time.Second}
	q.Window, q.Limit = time.Second, 100
	now := time.Unix(1e9, 0)
	q.shared = now.Add(time.Hour)
	for range 10_000 {
		now = now.Add(20 * time.Millisecond)
		q.take(1, now, 0)
		q.landed(1)
	}
	if len(q.log) > 60 || q.Calls != 0 || q.Units != 0 {
		t.Errorf("%d starts remembered, %d calls and %v units in flight; want 51, 0, 0", len(q.log), q.Calls, q.Units)
	}
}
