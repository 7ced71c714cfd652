package limit

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A seer is a stub that also notes for which moment it is asked, and what it sees beside it.
type seer struct {
	stub
	d     *Dated
	name  string
	later time.Time
	asked []time.Duration // after start
	saw   []string
	start time.Time
}

func (s *seer) Later(time.Time) time.Time { return s.later }

func (s *seer) Short(from time.Time, n int) time.Time {
	s.asked = append(s.asked, from.Sub(s.start))
	s.look()
	return s.stub.Short(from, n)
}

func (s *seer) Taken(at time.Time, n, held int) {
	s.look()
	s.stub.Taken(at, n, held)
}

func (s *seer) look() {
	s.saw = nil
	s.d.Beside(time.Now(), func(other Supply, short int) { s.saw = append(s.saw, fmt.Sprint(other.(*seer).name, " lacks ", short)) })
	slices.Sort(s.saw)
}

// newSeer makes a Dated of 10/s, burst 5, whose supply says to ask again after 70 ms.
func newSeer(name string) *seer {
	s := &seer{stub: stub{again: 70 * time.Millisecond}, d: new(Dated), name: name, start: time.Now()}
	s.d.Init("test", s.d, 10, 5, s)
	return s
}

// TestSetSendsLast: units are sent for when all else that a call pays is ready, and for all at once.
func TestSetSendsLast(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		start, slow := time.Now(), bucket(1, 1)
		a, b, c := newSeer("a"), newSeer("b"), newSeer("c")
		s := set(slow, a.d, b.d, c.d)
		c.d.give(start.Add(20*ms), start.Add(10*time.Second), 0, 9)
		b.d.give(start, start.Add(10*time.Second), 0, 1)
		take := func(n int, want time.Duration) {
			t.Helper()
			a.asked, b.asked, c.asked = nil, nil, nil
			if m, err := s.TakeBy(time.Now(), time.Now(), n); err != nil || m.Sub(start) != want {
				t.Errorf("TakeBy(%d) answers %v, %v, want %v", n, m.Sub(start), err, want)
			}
		}
		take(1, 90*ms) // c has a unit in 20 ms: a is asked for that moment
		if len(a.asked) != 1 || a.asked[0] != 20*ms || b.asked != nil || c.asked != nil {
			t.Errorf("asked for %v, %v and %v", a.asked, b.asked, c.asked)
		}
		if want := []string{"b lacks 0", "c lacks 0"}; !slices.Equal(a.saw, want) {
			t.Errorf("a saw %q, want %q", a.saw, want)
		}
		b.later = start.Add(200 * ms)
		take(2, 270*ms) // b knows that it has nothing before 200 ms, so both are asked for that moment
		if len(a.asked) != 1 || len(b.asked) != 1 || a.asked[0] != b.asked[0] || a.asked[0] != 200*ms {
			t.Errorf("asked for %v and %v", a.asked, b.asked)
		}
		if want := []string{"b lacks 2", "c lacks 0"}; !slices.Equal(a.saw, want) {
			t.Errorf("a saw %q, want %q", a.saw, want)
		}
		a.d.give(start, start.Add(10*time.Second), 0, 9)
		time.Sleep(30 * ms)
		take(1, 30*ms)
		if want := []string{"b lacks 0", "c lacks 0"}; !slices.Equal(a.saw, want) || a.taken != 1 {
			t.Errorf("when units are taken a saw %q, want %q; %d taken", a.saw, want, a.taken)
		}
		a.look()
		if a.saw != nil {
			t.Errorf("outside a take a saw %q", a.saw)
		}
	})
}

// TestBundleSendsLast: as a Set, with an amount for each part.
func TestBundleSendsLast(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		start, slow := time.Now(), bucket(10, 1)
		a, b := newSeer("a"), newSeer("b")
		bundle := new(Bundle)
		bundle.Add("", set(slow, a.d))
		bundle.Add("tokens", set(b.d))
		if m, err := bundle.TakeBy(start, start, []int{1, 3}); err != nil || m.Sub(start) != 70*ms {
			t.Errorf("TakeBy answers %v, %v", m.Sub(start), err)
		}
		if !slices.Equal(a.asked, []time.Duration{0}) || !slices.Equal(b.asked, []time.Duration{0}) || a.short != 1 || b.short != 3 {
			t.Errorf("asked for %v and %v, %d and %d units", a.asked, b.asked, a.short, b.short)
		}
		if !slices.Equal(a.saw, []string{"b lacks 3"}) || !slices.Equal(b.saw, []string{"a lacks 1"}) {
			t.Errorf("a saw %q, b saw %q", a.saw, b.saw)
		}
		a.d.give(start, start.Add(time.Second), 0, 2)
		b.d.give(start, start.Add(time.Second), 0, 3)
		for _, want := range []time.Duration{0, 100 * ms} { // then the bucket has one in 100 ms, and b is asked for that moment
			if m, err := bundle.TakeBy(start, start, []int{1, 3}); err != nil || m.Sub(start) < want {
				t.Errorf("TakeBy answers %v, %v", m.Sub(start), err)
			}
		}
		if b.asked[len(b.asked)-1] != 100*ms {
			t.Errorf("b is asked for %v", b.asked)
		}
	})
}
