package fleet

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/limit"
)

// This file is what an account is to those who ask for units: a limit.Account, and its own limit.State and limit.Dated. A
// call never waits for whoever grants units, only for a date.
//
// Example: at 0 s the store grants 3 units, the first at 10 ms, the others each 5 ms, valid for 200 ms. A take at 0 s
// is answered 10 ms; takes at 10, 15 and 20 ms succeed. A fourth one finds the hand empty: short sends for more and
// says when to ask again, and the line is woken when they come.

// Parts implements limit.Account.
func (s *account) Parts() (*limit.Guard, limit.State) { return &s.guard, s }

// Owner is the limiter as users see it; see limit.OwnerOf.
func (s *account) Owner() any { return s.owner }

// Notify implements limit.Account.
func (s *account) Notify(changed func()) (stop func()) { return s.guard.Notify(changed) }

// String is the limit as text.
func (s *account) String() (text string) {
	s.locked(func() { text = limit.Text(s.limit, s.burst) + " shared" })
	return text
}

// locked runs f under the lock.
func (s *account) locked(f func()) {
	s.guard.Lock()
	defer s.guard.Unlock()
	f()
}

// update runs f under the lock, then notifies those who watch.
func (s *account) update(f func(now time.Time)) { limit.Change(s, f) }

// Lift implements limit.State.
func (s *account) Lift(at time.Time) time.Time { return limit.Latest(at, s.last) }

// Advance implements limit.State.
func (s *account) Advance(now time.Time) { s.last = now }

// pay takes one unit that is in hand and ripe: the whole cost of a take that need not wait.
func (s *account) pay(at time.Time, n int) bool {
	at = s.Lift(at)
	if n != 1 || s.closed || s.limit == rate.Inf || !s.hand.payOne(at) {
		return false
	}
	s.last = at
	s.taken(at, 1)
	return true
}

// TakeBy implements limit.State. It tries pay, the common case, first.
func (s *account) TakeBy(at, now time.Time, n int) (time.Time, error) {
	if s.pay(at, n) {
		return limit.Earliest(s.last, now), nil
	}
	return limit.TakeReady(s, at, now, n)
}

// Check implements limit.State, as for a bucket: a fleet's schedule has a burst and leaves debts in the same way. What is
// closed refuses everything, calls of no units too.
func (s *account) Check(n int) error {
	if s.closed {
		return ErrClosed
	}
	return limit.CheckCost(n, s.limit, s.burst)
}

// Consume takes n ripe units from the hand. Those that are not there come from the share, or become a debt.
//
// A call that waits comes here after the question (see After) has said that its units are ripe, under the same
// lock. Adjust comes without a question.
func (s *account) Consume(at time.Time, n int) {
	at = s.Lift(at)
	s.last = at
	if !s.hand.paused.After(at) {
		s.hand.paused = time.Time{}
	}
	if n <= 0 || s.limit == rate.Inf {
		return
	}
	s.hand.expire(at)
	if s.hand.ripeUnits(at) < n && s.spend(at, n) {
		return
	}
	s.hand.take(at, n)
	s.taken(at, n)
}

// Adjust implements limit.State. Units that are back, and pay no debt, go to the store with the next request.
func (s *account) Adjust(now time.Time, n int) {
	if n > 0 {
		s.Consume(now, n)
		return
	}
	paid := min(s.hand.debt, -n)
	s.hand.debt -= paid
	s.news.back += -n - paid
}

// GiveBack is for a call that got its units and cannot use them: its ctx has ended, or a limiter of another kind
// has refused.
func (s *account) GiveBack(at, now time.Time, n int) { s.returned(n, s.hand.giveBack(at, now, n)) }

// Refund implements limit.State. Units that were used no longer have a date: they go back to the store.
func (s *account) Refund(_, now time.Time, _, n int) { s.Adjust(now, -n) }

// After implements limit.State. Units in hand have their dates. What is not there is sent for, for a call with nobody
// before it, or guessed. from may lie in the future, so nothing is dropped here.
//
// Example: units of 10 and 20 ms are in hand. A call of one unit is answered 10 ms, and one behind it 20 ms. A third one
// gets a guess. A call of three units that is first sends for three that are dated together: two singles and one
// that comes later might never be there at one moment.
func (s *account) After(from time.Time, ahead int64, n int) time.Time {
	from = s.Lift(from)
	paused := s.hand.paused.After(from)
	switch {
	case n == 0 && ahead == 0, s.limit == rate.Inf:
		return from
	case s.limit == 0:
		return from.Add(limit.Forever)
	case paused:
		from = s.hand.paused
	}
	at, missing := s.hand.dateOf(from, ahead+int64(n), ahead == 0)
	switch {
	case missing == 0:
		return at
	case ahead > 0:
		return limit.Latest(from, s.beyond(from, float64(missing)))
	case paused: // nothing is sent for before the pause is over
		return from
	}
	return s.short(from, n+s.hand.debt)
}

// Rate implements limit.State.
func (s *account) Rate() rate.Limit { return s.limit }

// Available implements limit.State: what is in hand and ripe, less what is owed.
func (s *account) Available(now time.Time) float64 {
	if s.limit == rate.Inf {
		return float64(rate.Inf)
	}
	now = s.Lift(now)
	s.hand.expire(now)
	return float64(s.hand.ripeUnits(now) - s.hand.debt)
}

// Size implements limit.State: the burst of the limit that all processes share; this one has a part of it in hand.
func (s *account) Size() (units float64, window time.Duration) { return float64(s.burst), 0 }

// Fresh implements limit.State: a limiter made anew finds the same units in the store. One that still holds some is kept,
// or they would be lost; so is one in a pause that a new one would not know of.
func (s *account) Fresh(now time.Time) bool {
	s.hand.expire(now)
	return !s.changed && s.hand.held == 0 && s.hand.debt == 0 && !s.hand.paused.After(now) && s.out == nil
}

// Carry implements limit.State: what was used is known to the store.
func (s *account) Carry(time.Time, limit.State) {}

// Clone implements limit.State. What is run ahead must send for nothing, so the copy is a bucket that has what is in hand,
// and earns at the rate at which units are foreseen now. Example: 3 in hand, and the 1,000 units after those are
// foreseen in 4 s: a bucket of 250/s with 3 units.
func (s *account) Clone() limit.State {
	const units = 1000
	now, pace := s.last, s.limit
	per := s.beyond(now, 1+units).Sub(s.beyond(now, 1)).Seconds()
	if per > 0 && pace != rate.Inf {
		pace = rate.Limit(units / per)
	}
	return limit.BucketAt(now, pace, max(1, s.burst), float64(s.hand.held-s.hand.debt))
}

// Lacks implements limit.Dated.
func (s *account) Lacks(at time.Time, n int) bool {
	if at = s.Lift(at); n == 0 || s.limit == 0 || s.limit == rate.Inf || s.hand.paused.After(at) {
		return false
	}
	_, missing := s.hand.dateOf(at, int64(n), true)
	return missing > 0
}

// Later implements limit.Dated.
func (s *account) Later(now time.Time) time.Time {
	if up, _, _ := s.breaker.Look(); up && s.out == nil && now.Before(s.retry) {
		return s.retry
	}
	return time.Time{}
}

// Awaited implements limit.Dated. While the store does not answer, Closed waits for it, and the others for their share
// or for nothing.
//
// Example: a call finds the hand empty at 0 s, and a unit is sent for: awaited. At 2 ms the answer brings one that is
// dated 80 ms: not lacking any more, though more may be sent for meanwhile.
func (s *account) Awaited() bool {
	up, _, _ := s.breaker.Look()
	return up && s.out != nil || !up && s.o.Mode == Closed
}

// Beside implements limit.Dated.
func (s *account) Beside(all []limit.Account, n int) { s.beside, s.units = all, n }
