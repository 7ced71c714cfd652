package fleet

import (
	"fmt"
	"reflect"
	"testing"
	"time"
)

// TestFileClock: how long a limit is closed still, of 10 s, after so much time by the machine's clock and the wall clock.
func TestFileClock(t *testing.T) {
	const start = clockStart + 100*second
	for _, c := range []struct {
		name      string
		id        uint64
		now, wall int64 // since the pause began
		want      time.Duration
	}{
		{"the same start", 1, 4, 4, 6 * time.Second},
		{"the clock was set back", 1, 4, -3600, 6 * time.Second},
		{"the clock was set forward", 1, 4, 3600, 6 * time.Second},
		{"a restart", 2, -90, 4, 6 * time.Second},
		{"a restart, and the clock was set back", 2, -90, -3600, 10 * time.Second},
		{"a restart, and the clock was set forward", 2, -90, 3600, 0},
		{"a container with a clock of its own", 3, 1e6, 4, 6 * time.Second},
		{"a clock that begins in 1970, and another start", 4, -99, -50 * 366 * 86400, 10 * time.Second},
		{"ten years later", 5, -50, 10 * 366 * 86400, 0},
		{"a clock that shows less after the same start", 1, -50, 4, 10 * time.Second},
	} {
		path, wall := newPath(t), int64(1_700_000_000)*second
		f := openAt(t, path, moment{1, start, wall})
		r := ask("a", 1, 10, 5, 1, 0)
		r.Pause = 10 * time.Second
		take(t, f, "x", r)
		f.Close()
		at := moment{c.id, start + c.now*second, wall + c.wall*second}
		f = openAt(t, path, at)
		got := take(t, f, "x", ask("b", 1, 10, 5, 1, 0))
		if got.Pause != c.want || len(got.Runs) != 1 {
			t.Errorf("%s: closed for %v, want %v; %+v", c.name, got.Pause, c.want, got)
		}
		if first := got.Runs[0].First; first < c.want || first > c.want+time.Second {
			t.Errorf("%s: the next unit in %v, after %v", c.name, first, c.want)
		}
		// A second exchange by that clock finds the same.
		if again := take(t, f, "x", ask("c", 1, 10, 5, 1, 0)); again.Pause != c.want {
			t.Errorf("%s: then closed for %v", c.name, again.Pause)
		}
	}
}

// TestTwoClocks: containers whose clocks differ share a limit, as far as they agree on the time of the day.
func TestTwoClocks(t *testing.T) {
	path, granted := newPath(t), 0
	const most = 2 * second
	for i := range 200 {
		passed := int64(i) * second / 100
		at := moment{uint64(i % 2), clockStart + passed, 1_700_000_000*second + passed}
		at.now += int64(i%2) * 5000 * second
		f := openAt(t, path, at)
		for _, run := range take(t, f, "x", ask(fmt.Sprint(i%2), uint64(i+1), 10, 5, 1, 0)).Runs {
			if passed+run.First.Microseconds() < most {
				granted += run.Count
			}
		}
		f.Close()
	}
	if granted < 24 || granted > 27 {
		t.Errorf("%d units are dated within 2s at 10/s, burst 5", granted)
	}
}

// TestManyMembers: more members than a copy has room for share a limit too. Those that asked last are remembered.
func TestManyMembers(t *testing.T) {
	at := moment{1, clockStart + 1000*second, 0}
	f := opened(t, newPath(t), clock{1, func() moment { return at }})
	want := map[string]any{}
	for i := range 1000 {
		at.now += 1000
		member := fmt.Sprint(i)
		reply := take(t, f, "x", ask(member, 1, 1000, 10, 1, 5))
		if i >= 900 {
			want[member] = reply
		}
	}
	for member, reply := range want {
		if got := take(t, f, "x", ask(member, 1, 1000, 10, 1, 5)); !reflect.DeepEqual(any(got), reply) {
			t.Errorf("member %s asks again: %+v, and first %+v", member, got, reply)
		}
	}
	s, err := f.find(keyOf("x"), at, nil)
	if err != nil || len(s.members) < 130 {
		t.Errorf("%d members are remembered, %v", len(s.members), err)
	}
}

func TestTimeval(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0, "short": 0,
		"\x01\x00\x00\x00\x00\x00\x00\x00\x40\xe2\x01\x00\x00\x00\x00":     1_123_456,
		"\x00\xf1\x53\x65\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00": 1_700_000_000 * second,
	} {
		if got := timeval(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// TestSystemClock: two clocks of one machine agree, also with what the runtime measures, and go forward.
func TestSystemClock(t *testing.T) {
	a, err := systemClock()
	b, _ := systemClock()
	if err != nil {
		t.Skip("skipped: ", err)
	}
	if a.id != b.id || a.id == 0 {
		t.Errorf("ids %x and %x", a.id, b.id)
	}
	for last := int64(0); last < 1000; last++ {
		first, begun := a.now(), time.Now()
		second := b.now()
		if most := time.Since(begun).Microseconds() + 2_000_000; second.now < first.now || second.now-first.now > most || first.now < clockStart {
			t.Fatalf("%+v, then %+v", first, second)
		}
	}
}
