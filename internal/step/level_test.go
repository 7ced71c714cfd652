package step

import "testing"

// A level stands for a run of numbers that ends with its Most, and a thirtieth of it is the most that is lost.
func TestLevels(t *testing.T) {
	last := Level(0)
	for n := 0; n <= 3000; n++ {
		l := LevelOf(n)
		if l < last || int(l) > int(last)+1 {
			t.Fatalf("%d is level %d after level %d", n, l, last)
		}
		if last = l; n > highest {
			continue
		}
		most := l.Most()
		if LevelOf(most) != l || most < n || most < highest && LevelOf(most+1) != l+1 || most-n > n/30 {
			t.Errorf("%d is level %d, of which the most is %d", n, l, most)
		}
	}
	for n, want := range map[int]Level{-1: 0, 1: 1, 128: 128, 129: 129, 132: 129, 133: 130, 257: 161, 264: 161, 1985: 255, 1 << 30: 255} {
		if LevelOf(n) != want {
			t.Errorf("%d is level %d, want %d", n, LevelOf(n), want)
		}
	}
}
