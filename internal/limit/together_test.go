package limit

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A seer is a Dated that notes for which moment it is asked, and what it sees beside it. It has units that somebody has given
// it, from ready on, and says to ask again after 70 ms for others.
type seer struct {
	tokens
	g            Guard
	name         string
	ready, later time.Time
	asked        []time.Duration // after start
	saw          []string
	start        time.Time
	beside       []Account
	units        int
}

func (s *seer) Parts() (*Guard, State)              { return &s.g, s }
func (s *seer) Notify(changed func()) (stop func()) { return s.g.Notify(changed) }
func (s *seer) Lacks(_ time.Time, n int) bool       { return s.count < float64(n) }
func (s *seer) Later(time.Time) time.Time           { return s.later }
func (s *seer) Awaited() bool                       { return true }
func (s *seer) Beside(all []Account, n int)         { s.beside, s.units = all, n }
func (s *seer) Consume(at time.Time, n int)         { s.look(); s.tokens.Consume(at, n) }
func (s *seer) After(from time.Time, _ int64, n int) time.Time {
	if !s.Lacks(from, n) {
		return Latest(from, s.ready)
	}
	s.asked = append(s.asked, from.Sub(s.start))
	s.look()
	return from.Add(70 * time.Millisecond)
}

func (s *seer) look() {
	s.saw = nil
	for _, a := range s.beside {
		if o, ok := a.(*seer); ok && o != s {
			s.saw = append(s.saw, fmt.Sprint(o.name, " lacks ", o.Lacks(time.Now(), o.units)))
		}
	}
	slices.Sort(s.saw)
}

// newSeer makes a seer without units.
func newSeer(name string) *seer {
	return &seer{tokens: tokens{clock: clock{time.Now()}, limit: 1e-9, burst: 10}, name: name, start: time.Now()}
}

// TestSetSendsLast: units are sent for when all else that a call pays is ready, and for all at once.
func TestSetSendsLast(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		start, slow := time.Now(), bucket(1, 1)
		a, b, c := newSeer("a"), newSeer("b"), newSeer("c")
		s := set(slow, a, b, c)
		c.count, c.ready, b.count = 9, start.Add(20*ms), 1
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
		if want := []string{"b lacks false", "c lacks false"}; !slices.Equal(a.saw, want) {
			t.Errorf("a saw %q, want %q", a.saw, want)
		}
		if until := s.Awaited(start, 1); until.Sub(start) != 70*ms {
			t.Errorf("awaited until %v", until.Sub(start))
		}
		b.later = start.Add(200 * ms)
		take(2, 270*ms) // b knows that it has nothing before 200 ms, so both are asked for that moment
		if len(a.asked) != 1 || len(b.asked) != 1 || a.asked[0] != b.asked[0] || a.asked[0] != 200*ms {
			t.Errorf("asked for %v and %v", a.asked, b.asked)
		}
		if want := []string{"b lacks true", "c lacks false"}; !slices.Equal(a.saw, want) {
			t.Errorf("a saw %q, want %q", a.saw, want)
		}
		a.count = 9
		time.Sleep(30 * ms)
		take(1, 30*ms)
		if want := []string{"b lacks false", "c lacks false"}; !slices.Equal(a.saw, want) || a.count > 8.5 {
			t.Errorf("when units are taken a saw %q, want %q; %v are left", a.saw, want, a.count)
		}
		a.look()
		if a.saw != nil {
			t.Errorf("outside a take a saw %q", a.saw)
		}
	})
}

// TestPartsSendLast: with an amount for each part.
func TestPartsSendLast(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		start, slow := time.Now(), bucket(10, 1)
		a, b := newSeer("a"), newSeer("b")
		s := new(Set)
		s.AddPart("", set(slow, a))
		s.AddPart("tokens", set(b))
		if m, err := s.TakeBy(start, start, 1, 3); err != nil || m.Sub(start) != 70*ms {
			t.Errorf("TakeBy answers %v, %v", m.Sub(start), err)
		}
		if !slices.Equal(a.asked, []time.Duration{0}) || !slices.Equal(b.asked, []time.Duration{0}) {
			t.Errorf("asked for %v and %v", a.asked, b.asked)
		}
		if !slices.Equal(a.saw, []string{"b lacks true"}) || !slices.Equal(b.saw, []string{"a lacks true"}) {
			t.Errorf("a saw %q, b saw %q", a.saw, b.saw)
		}
		a.count, b.count = 2, 3
		for _, want := range []time.Duration{0, 100 * ms} { // then the bucket has one in 100 ms, and b is asked for that moment
			if m, err := s.TakeBy(start, start, 1, 3); err != nil || m.Sub(start) < want {
				t.Errorf("TakeBy answers %v, %v", m.Sub(start), err)
			}
		}
		if b.asked[len(b.asked)-1] != 100*ms {
			t.Errorf("b is asked for %v", b.asked)
		}
	})
}

// An account of another package is known by its owner: what a user has built around the owner is not it.
func TestOwnersAreExact(t *testing.T) {
	type mine struct{ *ownedSeer }
	s := &ownedSeer{seer: newSeer("a")}
	s.Owned = Own(s)
	if a, ok := AccountOf(s); !ok || a != Account(s) {
		t.Errorf("%v, %v", a, ok)
	}
	if _, ok := AccountOf(mine{s}); ok {
		t.Error("a struct around it passes for it")
	}
	if OwnerOf(new(Bucket)) != nil {
		t.Error("a Bucket knows an owner")
	}
}

type ownedSeer struct {
	Owned
	*seer
}

func (s *ownedSeer) Owner() any { return s }
