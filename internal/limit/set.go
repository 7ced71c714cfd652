package limit

import (
	"bytes"
	"slices"
	"time"

	"golang.org/x/time/rate"
)

// A Set is limiters that a call pays together: from all of them or from none. The zero Set is empty. The
// methods lock the accounts; a Set itself must not be changed once it is in use.
//
// All accounts are locked at once, so that nobody sees half a take. Two sets may share accounts and name
// them in another order; they lock them in the order of a random rank that each account draws for itself,
// so neither waits for the other in a circle.
//
// Example: 5 even per second and 100 per minute by window. A call of 1 unit finds the first ready in 200 ms
// and the second at once: it takes nothing and gets the later moment, 200 ms. At that moment both are
// ready, because a limiter that is ready stays so until somebody takes.
//
// # Amounts
//
// What a call pays is one amount for all accounts, or, if the Set was made of parts (see AddPart), one for each part, in
// their order.
type Set struct {
	accounts []Account // sorted by rank, each once; behind its length as many again, see inOrder
	foreign  []taker   // limiters of other kinds, in the order of joining; one without Adjust is last
	sole     *Bucket   // the only account if it is a Bucket, which is asked without a detour; nil: it is not
	dyn      *dynamic  // nil: no account is a Var
	parts    *parts    // nil: all accounts pay the first amount
}

// Own and Foreign count the limiters of each kind.
func (s *Set) Own() int     { return len(s.accounts) }
func (s *Set) Foreign() int { return len(s.foreign) }

// Join adds an account unless it is there already. It takes the account's lock.
func (s *Set) Join(a Account) {
	if v, ok := a.(*Var); ok && !slices.Contains(s.accounts, a) {
		if s.dyn == nil {
			s.dyn = new(dynamic)
		}
		s.dyn.vars = append(s.dyn.vars, v)
	}
	s.add(a)
	if s.sole = nil; len(s.accounts) == 1 {
		s.sole, _ = s.accounts[0].(*Bucket)
	}
}

// add is Join for a Set that is used no further than to lock, or that takes a Var for what it is: an account without
// units.
func (s *Set) add(a Account) {
	enroll(a)
	if slices.Contains(s.accounts, a) {
		return
	}
	joined := append(slices.Clip(s.inOrder()), a)
	s.accounts = joined
	if n := len(joined); n > 1 {
		sorted := slices.SortedFunc(slices.Values(joined), func(a, b Account) int { return bytes.Compare(guardOf(a).rank[:], guardOf(b).rank[:]) })
		s.accounts = append(sorted, joined...)[:n]
	}
}

// inOrder are the accounts in the order of joining, for people. They stand behind the sorted ones, because a field of its own
// would cost every key of a Transport 32 bytes. A single account is in either order. s may be nil.
func (s *Set) inOrder() []Account {
	switch {
	case s == nil:
		return nil
	case len(s.accounts) < 2:
		return s.accounts
	}
	n := len(s.accounts)
	return s.accounts[n : 2*n]
}

// addAll adds the accounts of other, which may be nil. A Var among them is added without what it holds.
func (s *Set) addAll(other *Set) {
	if other == nil {
		return
	}
	for _, a := range other.accounts {
		s.add(a)
	}
}

// lock locks all accounts, in the order of their ranks.
func (s *Set) lock() {
	for _, a := range s.accounts {
		guardOf(a).mu.Lock()
	}
}

// unlock unlocks all accounts. The order does not matter.
func (s *Set) unlock() {
	for _, a := range s.accounts {
		guardOf(a).mu.Unlock()
	}
}

// TakeBy takes what a call pays from all accounts, as of the first moment from at to now at which all of them are
// ready. A moment not after now means taken; otherwise nothing was, and it is the one to ask again. One
// pass finds it, because an account that is ready at a moment is ready at any later one.
func (s *Set) TakeBy(at, now time.Time, amounts ...int) (time.Time, error) {
	switch {
	case s.sole != nil:
		return s.sole.takeByAlone(at, now, amounts[0])
	case len(s.accounts) == 1 && s.dyn == nil && s.parts == nil:
		g, its := s.accounts[0].Parts()
		g.Lock()
		defer g.Unlock()
		return its.TakeBy(at, now, amounts[0])
	}
	s, b := s.billed(amounts)
	defer s.unlock()
	m, err := s.readyLocked(at, b)
	if err != nil {
		return m, err
	}
	return s.takeLocked(m, now, b), nil
}

// takeLocked takes what each account is to pay as of m, at which all are ready. If that is not yet, nothing is taken. It returns
// what TakeBy does.
func (s *Set) takeLocked(m, now time.Time, b bill) time.Time {
	clock := now // the most advanced of theirs
	for _, a := range s.accounts {
		clock = stateOf(a).Lift(clock)
	}
	if m.After(clock) {
		return m
	}
	if s.dates() > 1 {
		s.introduce(s.accounts, bill{})
		defer s.introduce(nil, bill{})
	}
	for i, a := range s.accounts {
		stateOf(a).Consume(m, b.of(i))
	}
	return Earliest(m, now)
}

// Pay is PayBy of one amount. It is the whole cost of a call that need not wait, so a Bucket is asked in the shortest way.
func (s *Set) Pay(now time.Time, n int) bool {
	return s.sole != nil && s.sole.payAlone(now, n) || s.PayBy(now, n)
}

// PayBy is TakeBy as of now, if the units are there, and takes nothing otherwise. Buckets in parts are asked in a shorter way.
func (s *Set) PayBy(now time.Time, amounts ...int) bool {
	if s.parts != nil && s.parts.pay(now, amounts) {
		return true
	}
	m, err := s.TakeBy(now, now, amounts...)
	return err == nil && !m.After(now)
}

// Ready is the first moment, not before at, at which all accounts are ready for what a call pays. An error says
// that they never are.
func (s *Set) Ready(at time.Time, amounts ...int) (m time.Time, err error) {
	s, b := s.billed(amounts)
	defer s.unlock()
	return s.readyLocked(at, b)
}

// readyLocked is Ready for those who have the locks.
func (s *Set) readyLocked(at time.Time, b bill) (m time.Time, err error) {
	for _, n := range b.amounts {
		if n < 0 {
			return at, errNegative(n)
		}
	}
	m = at
	asks := false
	for i, a := range s.accounts {
		its, n := stateOf(a), b.of(i)
		if err := its.Check(n); err != nil {
			return at, b.named(err, i)
		}
		if s.asked(a, at, n) {
			asks = true
			continue
		}
		m = Latest(m, its.After(at, 0, n))
	}
	if asks {
		m = s.askLocked(at, m, b)
	}
	return m, nil
}

// Awaited is when n units are asked for again that are asked for already: the account that is ready last waits for an
// answer from elsewhere, and has no date yet. Zero: none does.
func (s *Set) Awaited(now time.Time, n int) (until time.Time) {
	s.each(func(a State) {
		if d, ok := a.(Dated); ok && d.Lacks(now, n) && d.Awaited() {
			until = Latest(until, d.After(now, 0, n))
		}
	})
	return until
}

// each visits the states of all accounts under their locks.
func (s *Set) each(visit func(State)) {
	s = s.locked()
	defer s.unlock()
	for _, a := range s.accounts {
		visit(stateOf(a))
	}
}

// GiveBack undoes an unused TakeBy that answered at. at tells the windows which units are meant:
// those whose window has ended since have come back already. It calls no watchers: it may be called
// under the line's lock, and a Set whose foreign limiters refuse again and again must not wake its own
// line each time.
func (s *Set) GiveBack(at, now time.Time, amounts ...int) {
	s, b := s.billed(amounts)
	defer s.unlock()
	for i, a := range s.accounts {
		if n := b.of(i); n > 0 { // a zero window lets calls of 0 units go, and cannot count windows
			stateOf(a).GiveBack(at, now, n)
		}
	}
}

// After predicts when a call of n units starts if ahead units go before it: when the slowest account
// lets it. Of several accounts that is the earliest that it may be, see Plain and Forecast.
func (s *Set) After(from time.Time, ahead int64, n int) time.Time {
	if s.sole != nil {
		return s.sole.afterAlone(from, ahead, n)
	}
	if ahead == 0 && s.dates() > 0 {
		if m, err := s.Ready(from, n); err == nil {
			return m
		}
	}
	m := from
	s.each(func(a State) { m = Latest(m, a.After(from, ahead, n)) })
	return m
}

// Rate is the slowest rate; rate.Inf if there is none.
func (s *Set) Rate() rate.Limit {
	slowest := rate.Inf
	s.each(func(a State) { slowest = min(slowest, a.Rate()) })
	return slowest
}

// easeIn is the time over which a reopening gate spreads what a limiter has left. Ten minutes keep a
// quota for a day from slowing a reopening to one call in minutes.
const easeIn = 10 * time.Minute

// Pace is the rate at which a gate lets calls in again: the slowest of the accounts' rates, where an
// account with much left counts with what spends that within easeIn. Example: 86,400 a day are one a
// second; with all of them left the pace is 86,400/600 s = 144 a second. rate.Inf: no limit.
func (s *Set) Pace(now time.Time) rate.Limit {
	slowest := rate.Inf
	s.each(func(a State) {
		slowest = min(slowest, paceOf(a, now))
	})
	return slowest
}

// Available is the smallest number of units that could be taken at now; that of rate.Inf without a
// limit.
func (s *Set) Available(now time.Time) float64 {
	fewest := float64(rate.Inf)
	s.each(func(a State) { fewest = min(fewest, a.Available(now)) })
	return fewest
}

// Fresh reports whether all accounts are as new. It knows nothing of foreign limiters.
func (s *Set) Fresh(now time.Time) bool {
	fresh := true
	s.each(func(a State) { fresh = fresh && a.Fresh(now) })
	return fresh
}
