package fleet

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/fleet/store"
)

// ask is a request of a member with W = 250 ms.
func ask(member string, seq uint64, limit rate.Limit, burst, need, want int) store.Request {
	return store.Request{Member: member, Seq: seq, Limit: limit, Burst: burst, Validity: validity250, Need: need, Want: want}
}

// keepers are those that keep the law: each makes a limit, and returns its exchange at a moment.
var keepers = map[string]func(t *testing.T) func(now int64, r store.Request) store.Reply{
	"memory": func(*testing.T) func(int64, store.Request) store.Reply { return new(state).exchange },
	"file": func(t *testing.T) func(int64, store.Request) store.Reply { // which is opened again for each exchange
		path := newPath(t)
		return func(now int64, r store.Request) store.Reply {
			f := openAt(t, path, moment{1, now, now})
			defer f.Close()
			reply, err := f.Exchange(t.Context(), "x", r)
			if err != nil {
				t.Fatal(err)
			}
			return reply
		}
	},
}

// TestLaw is the law as a script: at a moment, in ms, a request, and the runs that it gets.
func TestLaw(t *testing.T) {
	const ms = time.Millisecond
	type step struct {
		at   int64
		r    store.Request
		want []store.Run
	}
	back := func(r store.Request, n int) store.Request { r.Back = n; return r }
	pause := func(r store.Request, d time.Duration) store.Request { r.Pause = d; return r }
	tight := func(r store.Request, d time.Duration) store.Request { r.Tighten, r.NotBefore = true, d; return r }
	for name, script := range map[string][]step{
		"a burst, then one each 100 ms": {
			{0, ask("a", 1, 10, 3, 1, 9), []store.Run{units(0, 0, 1), units(0, 0, 1)}}, // its part of 200 ms: 2
			{0, ask("a", 2, 10, 3, 1, 0), []store.Run{units(0, 0, 1)}},
			{0, ask("a", 3, 10, 3, 1, 0), []store.Run{units(100*ms, 0, 1)}},
			{150, ask("a", 4, 10, 3, 1, 0), []store.Run{units(50*ms, 0, 1)}},
		},
		"a request that is repeated gets its first answer, and an older one nothing": {
			{0, ask("a", 1, 10, 1, 1, 0), []store.Run{units(0, 0, 1)}},
			{0, ask("a", 2, 10, 1, 1, 0), []store.Run{units(100*ms, 0, 1)}},
			{5, ask("a", 2, 10, 1, 1, 0), []store.Run{units(100*ms, 0, 1)}},
			{5, ask("a", 1, 10, 1, 1, 0), nil},
			{5, ask("a", 3, 10, 1, 1, 0), []store.Run{units(195*ms, 0, 1)}},
		},
		"units together are dated by the last, above the burst they leave a debt": {
			{0, ask("a", 1, 10, 4, 3, 0), []store.Run{units(0, 0, 3)}},
			{0, ask("a", 2, 10, 4, 3, 0), []store.Run{units(200*ms, 0, 3)}},
			{200, ask("a", 3, 10, 4, 10, 0), []store.Run{units(400*ms, 0, 10)}}, // full at 600 ms
			{600, ask("a", 4, 10, 4, 1, 0), []store.Run{units(700*ms, 0, 1)}},
		},
		"ahead up to 0.8 W": {
			{0, ask("a", 1, 100, 1, 1, 50), []store.Run{units(0, 0, 1), units(10*ms, 10*ms, 19)}},
			{0, ask("a", 2, 100, 1, 0, 50), []store.Run{units(200*ms, 10*ms, 1)}}, // it says that it holds nothing
			{0, ask("a", 3, 100, 1, 0, 50), nil},
		},
		"two members have half each, and a newcomer a unit on loan": {
			{0, ask("a", 1, 100, 1, 0, 0), nil},
			{0, ask("b", 1, 100, 1, 1, 50), []store.Run{units(0, 0, 1), units(10*ms, 10*ms, 9)}},
			{0, ask("a", 2, 100, 1, 1, 50), []store.Run{units(0, 0, 1), units(110*ms, 10*ms, 9)}},
			{0, ask("c", 1, 100, 1, 1, 0), []store.Run{units(0, 0, 1)}},
			{0, ask("d", 1, 100, 1, 1, 0), []store.Run{units(210*ms, 0, 1)}}, // two units of 20 may be on loan
		},
		"a pause, then paced without a burst": {
			{0, pause(ask("a", 1, 10, 5, 0, 0), time.Second), nil},
			{500, ask("b", 1, 10, 5, 1, 0), []store.Run{units(500*ms, 0, 1)}},
			{500, ask("c", 1, 10, 5, 1, 0), []store.Run{units(600*ms, 0, 1)}},
			{500, pause(ask("c", 2, 10, 5, 0, 0), 100*ms), nil},
			{500, ask("d", 1, 10, 5, 1, 0), []store.Run{units(700*ms, 0, 1)}},
		},
		"a limit that changes keeps what is used": {
			{0, ask("a", 1, 100, 1, 100, 0), []store.Run{units(0, 0, 100)}}, // a debt of one second
			{0, ask("a", 2, 50, 1, 1, 0), []store.Run{units(2*time.Second, 0, 1)}},
			{0, ask("a", 3, 500, 1, 1, 0), []store.Run{units(202*ms, 0, 1)}},
		},
		"units come back, up to the burst": {
			{0, ask("a", 1, 10, 2, 12, 0), []store.Run{units(0, 0, 12)}},
			{0, back(ask("a", 2, 10, 2, 1, 0), 5), []store.Run{units(600*ms, 0, 1)}},
			{0, back(ask("a", 3, 10, 2, 2, 0), 1000), []store.Run{units(0, 0, 2)}},
			{0, ask("a", 4, 10, 2, 1, 0), []store.Run{units(100*ms, 0, 1)}},
		},
		"advertised units tighten and never loosen": {
			{0, tight(ask("a", 1, 10, 20, 1, 0), -200*ms), []store.Run{units(0, 0, 1)}}, // 3 are left
			{0, tight(ask("a", 2, 10, 20, 2, 0), -time.Hour), []store.Run{units(0, 0, 2)}},
			{0, ask("a", 3, 10, 20, 1, 0), []store.Run{units(100*ms, 0, 1)}},
		},
		"nothing is dated more than 30 s ahead": {
			{0, ask("a", 1, 1, 1, 40, 0), []store.Run{units(0, 0, 40)}},
			{0, ask("a", 2, 1, 1, 1, 5), nil},
			{10000, ask("a", 3, 1, 1, 2, 5), []store.Run{units(30*time.Second, 0, 2)}},
		},
	} {
		for in, made := range keepers {
			exchange := made(t)
			start := int64(1_700_000_000_000_000)
			for i, step := range script {
				got := exchange(start+step.at*1000, step.r)
				if !slices.Equal(got.Runs, step.want) {
					t.Errorf("%s: %s: step %d: got %+v, want %+v", in, name, i, got.Runs, step.want)
				}
				if step.want == nil && step.r.Need > 0 && step.r.Seq > 1 && got.Retry == 0 && got.Known.Next > start+30e6 {
					t.Errorf("%s: %s: step %d: no time to ask again", in, name, i)
				}
			}
		}
	}
}

// TestMembers: those count that asked in this window of 2 s or in the one before.
func TestMembers(t *testing.T) {
	for in, made := range keepers {
		exchange := made(t)
		for i, id := range []string{"a", "b", "c", "a"} {
			exchange(int64(1e9)+int64(i), ask(id, uint64(i+1), 10, 1, 0, 0))
		}
		for _, c := range []struct{ at, want int64 }{{1e9 + 10, 3}, {1e9 + 2e6, 3}, {1e9 + 4e6, 1}, {1e9 + 100e6, 1}} {
			if got := exchange(c.at, ask("a", uint64(c.at), 10, 1, 0, 0)).Members; int64(got) != c.want {
				t.Errorf("%s: at %d: %d members, want %d", in, c.at, got, c.want)
			}
		}
	}
}

// TestMembersForgotten: a member that has not asked for a minute leaves nothing.
func TestMembersForgotten(t *testing.T) {
	s := new(state)
	for i, id := range []string{"a", "b", "c"} {
		s.exchange(int64(1e9)+int64(i), ask(id, 1, 10, 1, 0, 0))
	}
	s.exchange(1e9+100e6, ask("a", 2, 10, 1, 0, 0))
	if len(s.members) != 1 {
		t.Errorf("%d records are kept", len(s.members))
	}
}

// TestMemoryForgets: a limit that is as new takes no memory.
func TestMemoryForgets(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := new(Memory)
		for _, name := range []string{"a", "b"} {
			if _, err := m.Exchange(t.Context(), name, ask("x", 1, 1, 120, 120, 0)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Minute)
		m.Exchange(t.Context(), "b", ask("x", 2, 1, 120, 1, 0))
		if len(m.limits) != 2 {
			t.Errorf("%d limits after 3m, want 2: they are not full yet", len(m.limits))
		}
		time.Sleep(3 * time.Minute)
		m.Exchange(t.Context(), "c", ask("x", 1, 1, 1, 1, 0))
		if len(m.limits) != 1 {
			t.Errorf("%d limits, want 1", len(m.limits))
		}
		if _, err := m.Exchange(t.Context(), "d", ask("x", 1, rate.Inf, 1, 1, 0)); err == nil {
			t.Error("an infinite limit is no error")
		}
	})
}

// units is a run in one line of a table.
func units(first, every time.Duration, n int) store.Run {
	return store.Run{First: first, Every: every, Count: n}
}
