package limit

import (
	"time"

	"golang.org/x/time/rate"
)

// This file is for Sets some of whose accounts are Dated. Units that are sent for have dates, and expire. So a Set
// sends for them last: when it knows how long all else takes, and for all of them at once, so that a supply may
// ask for several limits in one step.
//
// Example: a call pays a bucket that has a unit in 5 s, and a Dated with an empty hand. A unit that is sent for now would
// expire long before the bucket is ready. The Dated is asked for the moment in 5 s, and sends for nothing until
// that is near. If the bucket were ready, it would send now.
//
// Whom a Dated sees beside itself is noted in it under all the locks, and taken out before they are released. So it is
// never seen by a call that pays other accounts, and what is seen is locked. Two Sets that share a Dated note different
// things in it, one after the other.

// askLocked is readyLocked for those accounts that have to send for units or have done so: the others are ready at m. units
// is what an account is asked for.
//
// Example: two Dated with empty hands, and a bucket that is ready in 20 ms. The supply of the second one knows that there
// is nothing before 300 ms. So both are asked for the moment in 300 ms, and the first one sends for nothing that would
// have expired by then.
func (s *Set) askLocked(at, m time.Time, units func(i int) int) time.Time {
	s.introduce(s, units)
	defer s.introduce(nil, none)
	from := m
	for i, a := range s.accounts {
		if d, ok := stateOf(a).(*dated); ok && d.misses(at, units(i)) {
			from = Latest(from, d.supply.Later(at))
		}
	}
	m = from
	for i, a := range s.accounts {
		if d, ok := stateOf(a).(*dated); ok && d.misses(at, units(i)) {
			m = Latest(m, d.After(from, 0, units(i)))
		}
	}
	return m
}

// none is what is asked for when units are taken.
func none(int) int { return 0 }

// asked reports whether an account beside others is asked last: it has to send for n units, or has done so.
func (s *Set) asked(a State, at time.Time, n int) bool {
	if len(s.accounts) == 1 {
		return false
	}
	d, ok := a.(*dated)
	return ok && d.misses(at, n)
}

// dates is how many of several accounts are Dated; 0 of a single one, which has nobody beside it.
func (s *Set) dates() (n int) {
	if len(s.accounts) == 1 {
		return 0
	}
	for _, a := range s.accounts {
		if _, ok := a.(*Dated); ok {
			n++
		}
	}
	return n
}

// introduce lets the Dated of a Set see each other, while all their locks are held: see Dated.Beside. With nil they do
// not any more.
func (s *Set) introduce(beside *Set, units func(i int) int) {
	for i, a := range s.accounts {
		if d, ok := stateOf(a).(*dated); ok {
			d.beside, d.units = beside, units(i)
		}
	}
}

// Beside visits the supplies of the others that are asked or taken from together with d. short is how many units of
// theirs are missing; 0: none, or they are not asked now. It is called by the Supply. The locks of all of them are
// held, so a supply may do with another what it does with itself.
//
// Example: a call of 2 units pays three Dated: the first has an empty hand, the second one unit, and the third
// enough. The first one's supply sends, and sees: the second one lacks 2, because units that are needed are dated
// together; the third one lacks 0.
func (d *Dated) Beside(at time.Time, visit func(other Supply, short int)) {
	if d.s.beside == nil {
		return
	}
	for _, a := range d.s.beside.accounts {
		o, ok := stateOf(a).(*dated)
		switch {
		case !ok || o == &d.s:
		case o.misses(at, o.units):
			visit(o.supply, o.units+o.debt)
		default:
			visit(o.supply, 0)
		}
	}
}

// misses reports whether the supply has to be asked for n units at that moment.
func (s *dated) misses(at time.Time, n int) bool {
	if at = s.Lift(at); n == 0 || s.limit == 0 || s.limit == rate.Inf || s.paused.After(at) {
		return false
	}
	_, missing := s.dateOf(at, int64(n), true)
	return missing > 0
}
