package limit

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/race"
	"golang.org/x/time/rate"
)

// together takes from all of s or from none.
func together(s *Set) takeFunc {
	return func(n int) (time.Duration, error) { return s.Take(context.Background(), n) }
}

func TestSetHoldsEveryLimit(t *testing.T) {
	for seed := range race.Pick(uint64(6), 20) {
		synctest.Test(t, func(t *testing.T) {
			lim := set(bucket(40, 5), sliding(20, time.Second), leaky(100))
			used := drive{seed: seed, lim: lim, mean: 20 * time.Millisecond, maxCost: 4, undo: 0.1}.run(1500)
			checkWindows(t, used, func(from, to time.Time) float64 {
				l := to.Sub(from)
				most := min(5+40*l.Seconds(), 4+100*l.Seconds()) + 1e-6
				if l < time.Second {
					most = min(most, 20)
				}
				return most
			})
			if n := backlog(together(lim), time.Minute, one); n < 1194 {
				t.Errorf("%d units in a minute, want 99.5 %% of 1200", n)
			}
		})
	}
}

// Sets of the same accounts in opposite orders do not block each other.
func TestSetsLockInOneOrder(t *testing.T) {
	a, b, c := bucket(1e9, 1e9), fixed(1e9, time.Second), sliding(1e6, time.Second)
	var wg sync.WaitGroup
	merged := set(b)
	merged.Merge(set(c, a))
	for _, l := range []*Set{set(a, b, c), set(c, b, a), merged} {
		wg.Go(func() {
			for range 5000 {
				l.Take(context.Background(), 1)
			}
		})
	}
	wg.Wait()
	for range 2000 {
		for name, x := range everyKind(1) {
			y := everyKind(1)[name]
			if set(x, y).accounts[0] != set(y, x).accounts[0] {
				t.Fatalf("%s: the order is that of joining", name)
			}
		}
	}
}

func TestSetTakesAtTheLatestOfAllMomentsAndNeverBefore(t *testing.T) {
	start := time.Unix(1000, 0)
	a, b := leaky(1), fixed(2, 10*time.Second)
	s := set(a, b, a)
	for _, step := range []struct {
		at, now, want time.Duration // want: taken as of, or to ask again
		n             int
	}{
		{0, 0, 0, 1},
		{0, ms, time.Second, 1},
		{0, 3 * time.Second, time.Second, 1}, // as of the first moment at which all are ready
		{0, 4 * time.Second, 10 * time.Second, 1},
		{0, 20 * time.Second, 10 * time.Second, 2},
		{0, 20 * time.Second, 20 * time.Second, 1},
		{19 * time.Second, 19 * time.Second, 21 * time.Second, 1},
	} {
		before := s.Available(start.Add(step.now))
		m, err := s.TakeBy(start.Add(step.at), start.Add(step.now), step.n)
		if m.Sub(start) != step.want || err != nil {
			t.Errorf("%d units from %v to %v: %v, %v, want %v", step.n, step.at, step.now, m.Sub(start), err, step.want)
		}
		if after := s.Available(start.Add(step.now)); step.want > step.now && after != before {
			t.Errorf("refused at %v, and %v of %v units are left", step.now, after, before)
		}
	}
	if len(s.accounts) != 2 {
		t.Errorf("%d accounts, want 2", len(s.accounts))
	}
	if m, err := set().TakeBy(start, start.Add(ms), 1); !m.Equal(start) || err != nil {
		t.Errorf("the empty set is ready at %v, %v, want at once", m.Sub(start), err)
	}
}

// A caller whose clock is behind that of one account need not wait for it.
func TestSetTakesAlthoughACallersClockIsBehind(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, o := range everyKind(1) {
		stateOf(o).Consume(start, 0)
		behind := start.Add(-1)
		if m, err := set(o, bucket(1, 1)).TakeBy(behind, behind, 1); !m.Equal(behind) || err != nil {
			t.Errorf("%s: %v, %v, want taken as of the caller's now", name, m.Sub(start), err)
		}
	}
}

func TestSetSaysTheLeastOfWhatItsAccountsSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		a, b := bucket(2, 10), fixed(100, 20*time.Second)
		s := set(a, b)
		check := func(what string, got, want any) {
			t.Helper()
			if got != want {
				t.Errorf("%s is %v, want %v", what, got, want)
			}
		}
		check("the rate", s.Rate(), rate.Limit(2))
		check("the rate of none", set().Rate(), rate.Inf)
		check("the zero window's rate", stateOf(new(FixedWindow)).Rate(), rate.Limit(0))
		check("what is left", s.Available(now), 10.)
		check("what is left without limit", set(bucket(rate.Inf, 0)).Available(now), float64(rate.Inf))
		check("what none has left", set().Available(now), float64(rate.Inf))
		check("fresh", s.Fresh(now), true)
		check("with 4 ahead 8 units go", s.After(now, 4, 8).Sub(now), time.Second)
		check("with 103 ahead 3 units go", s.After(now, 103, 3).Sub(now), 48*time.Second)

		m, err := s.TakeBy(now, now, 4)
		check("the error", err, nil)
		check("what 4 leave", s.Available(now), 6.)
		check("what 4 leave of the window", stateOf(b).Available(now), 96.)
		check("fresh", s.Fresh(now), false)
		check("fresh when only one is", s.Fresh(now.Add(2*time.Second)), false)
		if s.GiveBack(m, now, 4); !s.Fresh(now) {
			t.Error("not fresh though all was given back")
		}

		calls := 0
		stop := s.Watch(func() { calls++ })
		s.adjustOwn(5)
		check("the calls of watchers", calls, 2)
		check("what 5 leave", s.Available(now), 5.)
		check("what 5 leave of the window", stateOf(b).Available(now), 95.)
		stop()
		s.adjustOwn(-5)
		check("the calls after stop", calls, 2)
	})
}

func TestPaceSpendsWhatIsLeftInTenMinutes(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		s    *Set
		want rate.Limit
	}{
		"none":              {set(), rate.Inf},
		"little left":       {set(bucket(2, 1199)), 2},
		"much left":         {set(bucket(2, 1800)), 3},
		"a day's quota":     {set(fixed(86400, 24*time.Hour)), 144},
		"the slowest of it": {set(fixed(86400, 24*time.Hour), bucket(5, 1), bucket(rate.Inf, 0)), 5},
	} {
		if got := c.s.Pace(now); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// foreign is a limiter of another kind; what it gave is in taken.
type foreign struct {
	wait  time.Duration
	err   error
	taken int
}

func (f *foreign) Take(_ context.Context, n int) (time.Duration, error) {
	if f.wait == 0 && f.err == nil {
		f.taken += n
	}
	return f.wait, f.err
}

// adjustable can take units back, and notifying can say that it has changed.
type adjustable struct{ foreign }

func (f *adjustable) Adjust(n int) { f.taken += n }

type notifying struct{ adjustable }

func (f *notifying) Notify(func()) func() { return nil }

func TestSetWithForeignLimiters(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		last foreign
		wait time.Duration
		err  string
	}{
		"all give":  {},
		"one waits": {last: foreign{wait: time.Minute}, wait: time.Minute},
		"one errs":  {last: foreign{wait: time.Minute, err: boom}, wait: time.Minute, err: "boom"},
		"negative":  {last: foreign{wait: -1}, err: "*limit.foreign.Take returned the negative wait -1ns"},
	} {
		own, first, last := bucket(1, 10), new(notifying), &c.last
		s := set(own)
		for _, l := range []taker{last, first} { // the one that cannot give back goes last
			if err := s.JoinForeign(l); err != nil {
				t.Fatal(err)
			}
		}
		wait, err := s.Take(context.Background(), 3)
		if wait != c.wait || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: Take = %v, %v, want %v, %q", name, wait, err, c.wait, c.err)
		}
		want := 0
		if wait == 0 && err == nil {
			want = 3
		}
		if paid := 10 - int(math.Round(own.Tokens())); paid != want || first.taken != want || last.taken != want {
			t.Errorf("%s: paid %d, %d and %d, want %d", name, paid, first.taken, last.taken, want)
		}
		if !s.Silent() {
			t.Errorf("%s: a set with a limiter that lacks Notify is not silent", name)
		}
		other := new(Set)
		other.JoinForeign(new(foreign))
		if err := s.Merge(other); err == nil || !strings.Contains(err.Error(), "both lack Adjust") {
			t.Errorf("%s: a second one that cannot give back is merged: %v", name, err)
		}
	}
	s := set(new(FixedWindow), new(SlidingWindow))
	s.JoinForeign(&foreign{wait: time.Second})
	if wait, err := s.Take(context.Background(), 0); wait != time.Second || err != nil { // with nothing to give back
		t.Errorf("0 units of a set with zero windows: %v, %v", wait, err)
	}
	s = new(Set)
	s.JoinForeign(new(notifying))
	if s.JoinForeign(new(notifying)); s.Silent() || len(s.foreign) != 2 {
		t.Errorf("silent %v, %d foreign limiters", s.Silent(), len(s.foreign))
	}
	s.WatchForeign(func() {})() // a nil stop is none
}
