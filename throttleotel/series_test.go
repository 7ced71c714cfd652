package throttleotel

import "testing"

// What a collection sees of a key, and what the tally makes of it.
func TestTally(t *testing.T) {
	var key, others tally
	for n, c := range []struct{ sees, all, key, others uint64 }{
		{10, 10, 10, 0},
		{30, 30, 30, 0},
		{29, 29, 30, 0}, // a start was taken back
		{33, 40, 33, 7},
		{5, 50, 38, 12}, // the key was dropped and has come back
		{6, 51, 39, 12},
		{8, 51, 41, 12}, // more than was sent: it is on its way
		{8, 54, 41, 13},
	} {
		key.follow(c.sees)
		if others.rest(c.all, key.total); key.total != c.key || others.total != c.others {
			t.Errorf("step %d: the key has %d and the others %d, want %d and %d", n, key.total, others.total, c.key, c.others)
		}
	}
}
