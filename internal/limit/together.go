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

// askLocked is readyLocked for those accounts that have to send for units or have done so: the others are ready for n
// units at m.
func (s *Set) askLocked(at, m time.Time, n int) time.Time {
	s.introduce(s, n)
	defer s.introduce(nil, 0)
	from := m
	for _, a := range s.accounts {
		if d, ok := stateOf(a).(*dated); ok && d.misses(at, n) {
			from = Latest(from, d.supply.Later(at))
		}
	}
	m = from
	for _, a := range s.accounts {
		if d, ok := stateOf(a).(*dated); ok && d.misses(at, n) {
			m = Latest(m, d.after(from, 0, n))
		}
	}
	return m
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
func (s *Set) introduce(beside *Set, n int) {
	for _, a := range s.accounts {
		if d, ok := stateOf(a).(*dated); ok {
			d.beside, d.units = beside, n
		}
	}
}

// Beside visits the supplies of the others that are asked or taken from together with d. short is how many units of
// theirs are missing; 0: none, or they are not asked now. It is called by the Supply. The locks of all of them are
// held, so a supply may do with another what it does with itself.
//
// Example: a call of 2 units pays three Dated, of which the first has an empty hand, the second one unit, and the third
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
	if at = s.lift(at); n == 0 || s.limit == 0 || s.limit == rate.Inf || s.paused.After(at) {
		return false
	}
	_, missing := s.dateOf(at, int64(n), true)
	return missing > 0
}
