package throttle

import (
	"fmt"
	"testing"
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
