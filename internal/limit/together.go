package limit

import "time"

// A Dated is a State whose units come from elsewhere, each with a date from which it may be used, and for a while after it.
// So a Set sends for them last: when it knows how long all else takes, and for all of them at once, so that one request
// may be for several limits. After of such a state, with nobody ahead, sends for what is not there.
//
// Example: a call pays a bucket that has a unit in 5 s, and a Dated with an empty hand. A unit that is sent for now would
// expire long before the bucket is ready. The Dated is asked for the moment in 5 s, and sends for nothing until
// that is near. If the bucket were ready, it would send now.
type Dated interface {
	State
	// Lacks reports whether n units at that moment have to be sent for, or have been.
	Lacks(at time.Time, n int) bool
	// Later is the moment before which none of what is lacking can be there, as is known already; zero: none.
	Later(now time.Time) time.Time
	// Awaited reports whether what is lacking waits for an answer, and not for a moment.
	Awaited() bool
	// Beside names all accounts that are asked or taken from together, this one among them for n units, until Beside(nil, 0).
	// All their locks are held meanwhile, so it may do with another of its kind what it does with itself.
	Beside(all []Account, n int)
}

// datedOf is the Dated of an account that is in a Set; nil: it has none.
func datedOf(a Account) Dated {
	g, s := a.Parts()
	if !g.dated {
		return nil
	}
	return s.(Dated)
}

// askLocked is readyLocked for those accounts that have to send for units or have done so: the others are ready at m.
//
// Example: two Dated with empty hands, and a bucket that is ready in 20 ms. The second one knows that there is nothing
// before 300 ms. So both are asked for the moment in 300 ms, and the first one sends for nothing that would have
// expired by then.
func (s *Set) askLocked(at, m time.Time, b bill) time.Time {
	s.introduce(s.accounts, b)
	defer s.introduce(nil, bill{})
	from := m
	for i, a := range s.accounts {
		if d := datedOf(a); d != nil && d.Lacks(at, b.of(i)) {
			from = Latest(from, d.Later(at))
		}
	}
	m = from
	for i, a := range s.accounts {
		if d := datedOf(a); d != nil && d.Lacks(at, b.of(i)) {
			m = Latest(m, d.After(from, 0, b.of(i)))
		}
	}
	return m
}

// asked reports whether an account beside others is asked last: it has to send for n units, or has done so.
func (s *Set) asked(a Account, at time.Time, n int) bool {
	if len(s.accounts) == 1 {
		return false
	}
	d := datedOf(a)
	return d != nil && d.Lacks(at, n)
}

// dates is how many of several accounts are Dated; 0 of a single one, which has nobody beside it.
func (s *Set) dates() (n int) {
	if len(s.accounts) == 1 {
		return 0
	}
	for _, a := range s.accounts {
		if datedOf(a) != nil {
			n++
		}
	}
	return n
}

// introduce lets the Dated of a Set know all its accounts, while their locks are held, and what they are asked for; nothing
// if they are taken from. With nil they do not any more.
func (s *Set) introduce(all []Account, b bill) {
	for i, a := range s.accounts {
		if d := datedOf(a); d != nil {
			d.Beside(all, b.of(i))
		}
	}
}
