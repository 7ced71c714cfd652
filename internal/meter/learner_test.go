package meter

import (
	"testing"
	"time"
)

// A call holds its cap until 30 with about the same are known, and then what 95 of 100 of them have cost; a stream what it uses in
// 10 s, if that is less.
func TestHold(t *testing.T) {
	var l Learner
	for i := range 30 {
		if n := l.Hold(4096, false); n != 4096 {
			t.Errorf("%d are held when %d calls are known, want the cap", n, i)
		}
		l.Note(4096, 10*(i+1), 100*time.Second, Length{Bytes: 1})
	}
	for _, c := range []struct {
		limit   int
		streams bool
		want    int
	}{
		{4096, false, 290},
		{8191, false, 290},
		{8192, false, 8192},
		{100, false, 100},
		{0, false, 0},
		{4096, true, 17}, // the later calls, which cost more, count more
		{10, true, 10},
	} {
		if n := l.Hold(c.limit, c.streams); n != c.want {
			t.Errorf("%d are held of at most %d, streams %t, want %d", n, c.limit, c.streams, c.want)
		}
	}
}

// Bytes and events each have a price, once four streams are known. An event of 150 bytes and 4 for each unit: one of 350 bytes is 50
// units.
func TestPassed(t *testing.T) {
	var l Learner
	for i := range 20 {
		if n := l.Passed(Length{Bytes: 350, Events: 1}); n != 0 && i < leadFrom {
			t.Errorf("%d are used as far as %d streams show, want 0", n, i)
		}
		units, events := 100*(i+1), 10+i%3
		l.Note(4096, units, time.Second, Length{Bytes: int64(150*events + 4*units), Events: int64(events)})
	}
	if n := l.Passed(Length{Bytes: 350, Events: 1}); n < 48 || n > 52 {
		t.Errorf("%d are used, want 50", n)
	}
	if n := l.Passed(Length{Events: 1}); n != 0 {
		t.Errorf("%d are used by an event without a word", n)
	}
}
