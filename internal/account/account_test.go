package account

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

// Each kind of limit, as moments in ms at which a request of one unit arrives: those that are admitted.
func TestKinds(t *testing.T) {
	for name, c := range map[string]struct {
		limit     Limit
		at, admit []int
	}{
		"zero kind":     {Limit{N: 10, Burst: 2}, []int{0, 0, 0, 99, 100, 150, 200, 1000, 1000, 1000}, []int{0, 0, 100, 200, 1000, 1000}},
		"whole burst":   {Limit{Kind: Bucket, N: 2}, []int{0, 0, 0, 499, 500, 1500, 1500}, []int{0, 0, 500, 1500, 1500}},
		"fixed":         {Limit{Kind: Fixed, N: 2}, []int{900, 950, 990, 1000, 1500, 1999, 2000}, []int{900, 950, 1000, 1500, 2000}},
		"phase":         {Limit{Kind: Fixed, N: 1, Phase: 300 * ms}, []int{0, 299, 300, 1299, 1300}, []int{0, 300, 1300}},
		"late phase":    {Limit{Kind: Fixed, N: 1, Phase: 2300 * ms}, []int{0, 299, 300, 1299, 1300}, []int{0, 300, 1300}},
		"fixed-first":   {Limit{Kind: FixedFirst, N: 1}, []int{900, 1899, 1900, 2950, 3900, 3950}, []int{900, 1900, 2950, 3950}},
		"sliding":       {Limit{Kind: Sliding, N: 2}, []int{0, 600, 999, 1000, 1001, 1600}, []int{0, 600, 1000, 1600}},
		"sliding count": {Limit{Kind: Sliding, N: 2}, []int{0, 600, 999, 1000, 1600, 2000}, []int{0, 600, 2000}},
		"fixed count":   {Limit{Kind: Fixed, N: 1}, []int{0, 1, 999, 1000}, []int{0, 1000}},
		// Half of the two of the first window count in the middle of the second.
		"sliding-counter": {Limit{Kind: SlidingCounter, N: 2}, []int{0, 999, 999, 1000, 1499, 1500, 1999, 2000, 2001, 2999, 3000}, []int{0, 999, 1500, 2000, 3000}},
		"counter, idle":   {Limit{Kind: SlidingCounter, N: 2}, []int{0, 1, 3000, 3001, 3002}, []int{0, 1, 3000, 3001}},
		"in-flight":       {Limit{Kind: InFlight, N: 2}, []int{0, 1, 2, 3}, []int{0, 1}},
		"nothing":         {Limit{Burst: 5}, []int{0, 1000}, nil},
		"later":           {Limit{Changes: []Change{{At: 500 * ms, N: 2}}}, []int{0, 499, 500, 501, 502}, []int{500, 501}},
	} {
		a := New(c.limit)
		var got []int
		for _, at := range c.at {
			at := time.Duration(at) * ms
			if a.Of(at, "").Ready(at, 1) == at {
				a.Of(at, "").Take(at, 1)
				got = append(got, int(at/ms))
			} else if strings.HasSuffix(name, " count") { // what is throttled is charged too
				a.Of(at, "").Take(at, 1)
			}
		}
		if !slices.Equal(got, c.admit) {
			t.Errorf("%s admits %v, want %v", name, got, c.admit)
		}
	}
}

// everyKind has a limit of each kind that has a rate.
var everyKind = []Limit{
	{Kind: Bucket, N: 7, Burst: 4}, {Kind: Fixed, N: 5, Phase: 123 * ms}, {Kind: FixedFirst, N: 5},
	{Kind: Sliding, N: 5}, {Kind: SlidingCounter, N: 5, Phase: 123 * ms},
}

// What is said of when units are free is true to the nanosecond: then, and not earlier.
func TestReadyIsExact(t *testing.T) {
	for _, l := range everyKind {
		r := rand.New(rand.NewPCG(1, 2))
		law := New(l).Of(0, "")
		at, waits := time.Duration(0), 0
		for range 1000 {
			n := 1 + r.IntN(4)
			if ready := law.Ready(at, n); ready != at {
				waits++
				if early := law.Ready(ready-1, n); early != ready {
					t.Fatalf("%s: %d units are free at %v, a nanosecond earlier at %v", l.Kind, n, ready, early)
				}
				if again := law.Ready(ready, n); again != ready {
					t.Fatalf("%s: %d units were to be free at %v, then at %v", l.Kind, n, ready, again)
				}
				at = ready
			}
			law.Take(at, n)
			at += time.Duration(r.IntN(int(300 * ms)))
		}
		if waits < 100 {
			t.Errorf("%s: %d waits", l.Kind, waits)
		}
		if ready := law.Ready(at, 6); ready != Never {
			t.Errorf("%s: 6 units at %v, want never", l.Kind, ready)
		}
	}
}

// checkBound reports whether what a limit has admitted is within what its kind allows.
func checkBound(t *testing.T, l Limit, log []taken) {
	t.Helper()
	for i := range log {
		sum := 0
		for _, e := range log[i:] {
			sum += e.n
			span := e.at - log[i].at
			most := l.N
			switch {
			case l.Kind == Bucket: // burst + rate × time, and the half nanosecond that sums may err by
				most = l.Burst + int(float64(l.N)*(span+1).Seconds())
			case span >= time.Second:
				continue
			case l.Kind == Fixed && (log[i].at-l.Phase+time.Second)/time.Second != (e.at-l.Phase+time.Second)/time.Second:
				continue // two windows
			case l.Kind == FixedFirst || l.Kind == SlidingCounter:
				most = 2 * l.N // no more is promised across the edge of two windows
			}
			if sum > most {
				t.Fatalf("%s admits %d units within %v, want at most %d", l.Kind, sum, span, most)
			}
		}
	}
}

// FuzzAccounts sends requests at moments and of sizes that the input says. No stretch of time has more units than
// the limit allows, and the state agrees with what is admitted.
func FuzzAccounts(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 200, 1, 100, 2, 255, 3, 0, 0, 90, 1})
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		in := make([]byte, 200)
		for i := range in {
			in[i] = byte(r.Uint32())
		}
		f.Add(in)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, l := range everyKind {
			law, at := New(l).Of(0, ""), time.Duration(0)
			var log []taken
			for i := 0; i+1 < len(in); i += 2 {
				at += time.Duration(in[i]) * time.Duration(in[i]) * 10 * time.Microsecond
				n := 1 + int(in[i+1]%4)
				before := law.State(at)
				ready := law.Ready(at, n)
				if ready < at || (ready == at) != (n <= before.Remaining) {
					t.Fatalf("%s at %v: %d units are free at %v, with %d remaining", l.Kind, at, n, ready, before.Remaining)
				}
				if ready > at {
					continue
				}
				law.Take(at, n)
				log = append(log, taken{at, n})
				if after := law.State(at); after.Remaining != before.Remaining-n || after.Reset < 0 || after.Limit != before.Limit {
					t.Fatalf("%s at %v: %+v, and %+v after %d units", l.Kind, at, before, after, n)
				}
			}
			checkBound(t, l, log)
		}
	})
}

// What each kind says after 3 of 10 in a window of 10 s that came at 4.2, 4.3 and 4.4 s.
func TestStates(t *testing.T) {
	for k, want := range map[Kind]State{
		Fixed:          {Limit: 10, Remaining: 7, Reset: 5600 * ms, Window: 10 * time.Second},
		FixedFirst:     {Limit: 10, Remaining: 7, Reset: 9800 * ms, Window: 10 * time.Second},
		Sliding:        {Limit: 10, Remaining: 7, Reset: 9800 * ms, Window: 10 * time.Second},
		SlidingCounter: {Limit: 10, Remaining: 7, Reset: 5600 * ms, Window: 10 * time.Second},
		Bucket:         {Limit: 10, Remaining: 7, Reset: 2800 * ms, Window: 10 * time.Second},
		InFlight:       {Limit: 10, Remaining: 7},
	} {
		law := New(Limit{Kind: k, N: 10, Per: 10 * time.Second}).Of(0, "")
		for _, at := range []time.Duration{4200, 4300, 4400} {
			law.Take(at*ms, 1)
		}
		if got := law.State(4400 * ms); got != want {
			t.Errorf("%s says %+v, want %+v", k, got, want)
		}
	}
	if got := New(Limit{}).Of(0, "").State(0); got != (State{}) {
		t.Errorf("a limit of nothing says %+v", got)
	}
	for _, k := range []Kind{Bucket, Fixed, FixedFirst, Sliding} { // to the nanosecond
		law := New(Limit{Kind: k, N: 10, Burst: 1}).Of(0, "")
		law.Take(0, 1)
		before, then := law.State(time.Second-1), law.State(time.Second)
		if k != Bucket && before.Remaining != 9 || then.Remaining != then.Limit {
			t.Errorf("%s says %+v, and a nanosecond later %+v", k, before, then)
		}
	}
}

// A change of the rate leaves as many units missing as before, for every key.
func TestChange(t *testing.T) {
	a := New(Limit{N: 10, Burst: 1, Changes: []Change{{50 * ms, 5}, {1000 * ms, 0}, {2000 * ms, 10}}})
	a.Of(0, "").Take(0, 1)
	a.Of(0, "other").Take(0, 1)
	for _, at := range []time.Duration{50 * ms, 60 * ms} { // half a unit is missing: 100 ms at 5/s
		if got := a.Of(at, "").Ready(at, 1); got != 150*ms {
			t.Errorf("ready at %v, want 150ms", got)
		}
		if got := a.Of(at, "other").Ready(at, 1); got != 150*ms {
			t.Errorf("the other key is ready at %v, want 150ms", got)
		}
	}
	if got := a.Of(1000*ms, "").Ready(1000*ms, 1); got != Never {
		t.Errorf("without a rate ready at %v", got)
	}
	a.Of(1000*ms, "").Take(1000*ms, 1)
	if got := a.Of(2000*ms, "").Ready(2000*ms, 1); got != 2000*ms {
		t.Errorf("with a rate again ready at %v", got)
	}
}

func TestInFlightAccount(t *testing.T) {
	a := New(Limit{Kind: InFlight, N: 2, Changes: []Change{{At: 9, N: 1}}})
	a.Of(0, "").Take(0, 1)
	a.Of(0, "").Take(0, 1)
	if a.Of(0, "").Ready(0, 1) != Never {
		t.Error("a third at once")
	}
	if a.Done(5, "", 1); a.Of(5, "").Ready(5, 1) != 5 {
		t.Error("not free again")
	}
	if a.Of(9, "").Ready(9, 1) != Never {
		t.Error("a second after the change")
	}
}

// Long windows with many units do not overflow.
func TestLargeNumbers(t *testing.T) {
	l := New(Limit{Kind: SlidingCounter, N: 1 << 30, Per: 365 * 24 * time.Hour}).Of(0, "")
	l.Take(0, 1<<30)
	if got, want := l.Ready(0, 1<<29), (365+365/2)*24*time.Hour+12*time.Hour; got != want {
		t.Errorf("half is free after %v, want %v", got, want)
	}
}
