package shed

import (
	"testing"
	"time"
)

// TestLevels: after a second that served so many, who of the next one is turned away, by priority 0, 1, 2 and 3.
func TestLevels(t *testing.T) {
	for _, c := range []struct {
		name   string
		came   [4]int
		served int
		away   [4]int // of 100 of each
	}{
		{"all were served", [4]int{10, 10, 10, 10}, 40, [4]int{}},
		{"the example", [4]int{600, 300, 100}, 250, [4]int{100, 50, 0}},
		{"the highest is not turned away", [4]int{100, 0, 0, 400}, 100, [4]int{100, 0, 0, 0}},
		{"one level", [4]int{400}, 100, [4]int{}},
		{"an eighth of the lowest", [4]int{80, 20}, 90, [4]int{12, 0, 0, 0}},
		{"more were served than came", [4]int{80, 20}, 900, [4]int{}},
	} {
		var l Levels
		now := time.Unix(100, 0)
		for prio, n := range c.came {
			for range n {
				if l.Arrive(now, int32(prio)) {
					t.Errorf("%s: turned away before anything is known", c.name)
				}
			}
		}
		for range c.served {
			l.Serve()
		}
		now = now.Add(second)
		var away [4]int
		for range 100 {
			for prio, n := range c.came {
				if n > 0 && l.Arrive(now, int32(prio)) {
					away[prio]++
				}
			}
		}
		if away != c.away {
			t.Errorf("%s: %v turned away, want %v", c.name, away, c.away)
		}
		now = now.Add(2 * second)
		for prio := range c.came {
			if l.Arrive(now, int32(prio)) {
				t.Errorf("%s: turned away by what was two seconds ago", c.name)
			}
		}
	}
}

// TestManyLevels: a program that uses moments as priorities fills no memory, and the last level known stands for its
// neighbours.
func TestManyLevels(t *testing.T) {
	var l Levels
	now := time.Unix(100, 0)
	for i := range 1000 {
		l.Arrive(now.Add(time.Duration(i)*5*time.Millisecond), int32(i))
		if len(l.all) > mostLevels {
			t.Fatalf("%d levels", len(l.all))
		}
	}
}
