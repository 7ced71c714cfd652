package account

import (
	"bytes"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/moment"
)

// A Set is limiters that a call pays together. The zero Set is empty. The methods that read or change
// accounts lock them, in one order; a Set itself must not be changed once it is in use.
type Set struct {
	Accounts []Account // sorted by rank, no duplicates
	Foreign  []takes   // limiters of other kinds, in the order of joining, the one without Adjust last
	sole     *Tank     // the only account, where it is of this kind: it is asked without a detour; else nil
}

// Join puts an account in its place, unless it is there already. It takes the account's lock.
func (s *Set) Join(o Account) {
	o.core().drawRank()
	if !slices.Contains(s.Accounts, o) {
		s.Accounts = append(s.Accounts, o)
		slices.SortFunc(s.Accounts, func(a, b Account) int { return bytes.Compare(a.core().rank[:], b.core().rank[:]) })
	}
	if s.sole = nil; len(s.Accounts) == 1 {
		s.sole, _ = s.Accounts[0].(*Tank)
	}
}

func (s *Set) lock() {
	for _, o := range s.Accounts {
		o.core().mu.Lock()
	}
}

func (s *Set) unlock() {
	for _, o := range s.Accounts {
		o.core().mu.Unlock()
	}
}

// TakeBy takes n units from all own limiters, as of the first moment from at to now at which all of
// them are ready; as readiness is monotone, one pass finds it. A moment not after now means taken;
// otherwise nothing was, and it is the one to ask again.
func (s *Set) TakeBy(at, now time.Time, n int) (time.Time, error) {
	if s.sole != nil {
		return s.sole.takeByAlone(at, now, n)
	}
	s.lock()
	defer s.unlock()
	m, err := s.readyLocked(at, n)
	if err != nil {
		return m, err
	}
	clock := now // the most advanced of theirs
	for _, o := range s.Accounts {
		clock = o.core().lift(clock)
	}
	if m.After(clock) {
		return m, nil
	}
	for _, o := range s.Accounts {
		o.consume(m, n)
	}
	return moment.Earliest(m, now), nil
}

// Pay takes n units as of now, if they are there. It is the whole cost of a call that need not wait, so
// one account is asked in the shortest way.
func (s *Set) Pay(now time.Time, n int) bool {
	if s.sole != nil && s.sole.payAlone(now, n) {
		return true
	}
	m, err := s.TakeBy(now, now, n)
	return err == nil && !m.After(now)
}

// Ready is the latest of what all say.
func (s *Set) Ready(at time.Time, n int) (m time.Time, err error) {
	s.lock()
	defer s.unlock()
	return s.readyLocked(at, n)
}

func (s *Set) readyLocked(at time.Time, n int) (m time.Time, err error) {
	if n < 0 {
		return at, errNegative(n)
	}
	m = at
	for _, o := range s.Accounts {
		if err := o.check(n); err != nil {
			return at, err
		}
		m = moment.Latest(m, o.after(at, 0, n))
	}
	return m, nil
}

// each visits all own limiters under their locks.
func (s *Set) each(visit func(Account)) {
	s.lock()
	defer s.unlock()
	for _, o := range s.Accounts {
		visit(o)
	}
}

// GiveBack undoes an unused TakeBy of n units that answered at. It tells nobody: it may be called
// under the line's lock, and a Set whose foreign limiters refuse again and again must not wake its own
// line each time.
func (s *Set) GiveBack(at, now time.Time, n int) {
	if n > 0 { // a zero window has let 0 units go, and cannot reckon
		s.each(func(o Account) { o.giveBack(at, now, n) })
	}
}

// After is the latest prediction.
func (s *Set) After(from time.Time, ahead int64, n int) time.Time {
	if s.sole != nil {
		return s.sole.afterAlone(from, ahead, n)
	}
	m := from
	s.each(func(o Account) { m = moment.Latest(m, o.after(from, ahead, n)) })
	return m
}

// Rate is the slowest rate, rate.Inf if there is none.
func (s *Set) Rate() rate.Limit {
	slowest := rate.Inf
	s.each(func(o Account) { slowest = min(slowest, o.rate()) })
	return slowest
}

// easeIn is the time over which the gate spreads what a limiter has left when it
// lets calls in again: a quota for a day must not slow them to one in minutes.
const easeIn = 10 * time.Minute

// Pace is the rate at which the gate lets calls in again: the slowest long-run rate,
// of a limiter with much left what spends that within easeIn. rate.Inf if there is none.
func (s *Set) Pace(now time.Time) rate.Limit {
	slowest := rate.Inf
	s.each(func(o Account) {
		slowest = min(slowest, max(o.rate(), rate.Limit(o.available(now)/easeIn.Seconds())))
	})
	return slowest
}

// Available is the smallest number of units that could be taken at now, that of rate.Inf without limit.
func (s *Set) Available(now time.Time) float64 {
	fewest := float64(rate.Inf)
	s.each(func(o Account) { fewest = min(fewest, o.available(now)) })
	return fewest
}

// Watchers counts those who are to be told of changes.
func (s *Set) Watchers() int {
	n := 0
	s.each(func(o Account) { n += len(o.core().watchers) })
	return n
}

// Fresh reports whether all own limiters are as new. Of foreign ones it knows nothing.
func (s *Set) Fresh(now time.Time) bool {
	fresh := true
	s.each(func(o Account) { fresh = fresh && o.fresh(now) })
	return fresh
}
