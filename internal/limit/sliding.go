package limit

import (
	"math"
	"slices"
	"time"
)

// A SlidingWindow is the account of a throttle.SlidingWindow.
type SlidingWindow struct {
	g Guard
	s slidingLog
}

// Parts implements Account.
func (w *SlidingWindow) Parts() (*Guard, State) { return &w.g, &w.s }

// Init makes an unused window of n units in any time per. It panics for nonsense; caller is the
// constructor that the message names.
func (w *SlidingWindow) Init(caller string, n int, per time.Duration) { w.s.init(caller, n, per) }

// Notify has changed called after each change of the units, until stop.
func (w *SlidingWindow) Notify(changed func()) (stop func()) { return w.g.Notify(changed) }

// Adjust takes n units, as a debt if they do not fit. A negative n lessens a debt and then gives the oldest
// units back, so that what remains is blocked the longest.
func (w *SlidingWindow) Adjust(n int) {
	Change(w, func(now time.Time) { w.s.Adjust(now, n) })
}

// SetLimit changes the window from now on: units stay used until they are per old. What the old window had
// forgotten stays forgotten.
func (w *SlidingWindow) SetLimit(n int, per time.Duration) {
	Change(w, func(now time.Time) { w.s.setLimit(now, n, per) })
}

// slidingLog is the state of a SlidingWindow: a stamp, the moment of its start, for each unit until per
// has passed. There are n places; a unit may start when a place is empty or its stamp is per old.
//
// # Debt
//
// n stamps hold any debt, because a stamp may lie in the future: an owed unit takes the place of the
// oldest one, from the moment on that the place falls free. So its stamp is the oldest one + per.
// Example: 5 per second, an empty log, and a call of 12 units at 1 s.
//
//	the first 5          1 1 1 1 1
//	5 more, one later    2 2 2 2 2    free again at 3 s
//	the last 2           2 2 2 3 3    three places free at 3 s, two at 4 s
//
// At 1 s the stamps 2 are one window ahead and the stamps 3 two: 3·1 + 2·2 = 7 units are owed.
type slidingLog struct {
	window
	base time.Time // stamps are nanoseconds since this moment, that of the first take ever
	log  stamps    // of the units in use, in order; at most n
}

// stamp is the stamp of a moment. Before the first take it means nothing, and the log is empty.
func (s *slidingLog) stamp(at time.Time) int64 { return int64(at.Sub(s.base)) }

// expired counts the stamps that are per old at the given one.
func (s *slidingLog) expired(stamp int64) int { return s.log.search(stamp - int64(s.per) + 1) }

// Consume puts the units that fit into free places. Of the rest, the debt, each n units move all stamps by
// one window, and each further unit takes the place of the oldest, as the type's example shows.
func (s *slidingLog) Consume(at time.Time, n int) {
	at = s.Lift(at)
	s.last = at
	if s.base.IsZero() {
		s.base = at
	}
	stamp := s.stamp(at)
	s.log.drop(s.expired(stamp))
	free := min(int64(n), s.n-int64(s.log.len()))
	s.log.push(stamp, int(free))
	if debt := int64(n) - free; debt > 0 {
		for i, stamp := range s.log.live() {
			if debt < s.n {
				break
			}
			s.log.live()[i] = min(plus(stamp, int64(times(debt/s.n, s.per))), int64(Forever))
		}
		for range debt % s.n {
			oldest := s.log.live()[0]
			s.log.drop(1)
			s.log.push(min(oldest+int64(s.per), int64(Forever)), 1)
		}
	}
}

// TakeBy implements State.
func (s *slidingLog) TakeBy(at, now time.Time, n int) (time.Time, error) {
	return TakeReady(s, at, now, n)
}

// GiveBack removes the units' own stamps, unless their window has ended. First all debt is taken off the
// log, then the units of at are cut, and what is still owed is booked again: it gets the places that have
// fallen free. Example: 5 per second, 3 units at 0, 2 at 100 ms, 2 owed; if the 2 of 100 ms come back at
// 500 ms, the 2 owed start then, and 0 units are left.
//
// If a race for the lock made the true stamps a little later than at, the oldest from at on are cut. That
// errs on the safe side, because later ones stay.
func (s *slidingLog) GiveBack(at, now time.Time, n int) { s.Refund(at, now, n, n) }

// Refund returns the last units of a take of held: those whose windows end last.
func (s *slidingLog) Refund(at, now time.Time, held, n int) {
	if s.n == 0 {
		return
	}
	now = s.Lift(now)
	ended := int64(now.Sub(at) / s.per)
	if left := min(int64(n), int64(held)-min(ended, s.windows(int64(held)))*s.n); left > 0 {
		debt := s.settle(now)
		left -= s.log.cut(s.log.search(s.stamp(at)), left)
		s.Consume(now, int(max(0, debt-left)))
	}
}

// Adjust is the window's Adjust at now. A zero window has nothing to adjust.
func (s *slidingLog) Adjust(now time.Time, n int) {
	switch {
	case s.n == 0:
	case n > 0:
		s.Consume(now, n)
	default:
		left := -int64(max(n, -math.MaxInt)) - s.settle(now)
		s.log.cut(0, max(0, left))
		s.Consume(now, int(max(0, -left)))
	}
}

// setLimit is SetLimit at now. If more units are in use than the new window has, the oldest are dropped: the
// next unit may start when fewer than n are in the window, and that is when the oldest of the newest n
// leaves it. Example: 5 units at 1, 2, 3, 4 and 5 s, and at 6 s the limit becomes 2 per 10 s. The next unit
// starts at 14 s, when that of 4 s is 10 s old. A debt is booked again in the new windows.
func (s *slidingLog) setLimit(now time.Time, n int, per time.Duration) {
	fresh := s.window
	fresh.init("SetLimit", n, per) // it may panic, and then nothing has changed
	var debt int64
	if s.n > 0 {
		debt = s.settle(now)
	}
	s.window = fresh
	s.log.drop(max(0, s.log.len()-n))
	s.changed = true
	if debt > 0 {
		s.Consume(now, int(debt))
	}
}

// periods is how many windows ahead of now a stamp is, rounded up: what it stands for in owed units.
func (s *slidingLog) periods(stamp, now int64) int64 {
	return (stamp - now + int64(s.per) - 1) / int64(s.per)
}

// settle takes the debt off the log, the reverse of what consume did, and returns it: each stamp in the
// future goes back by its periods. In the type's example, at 1 s, all five are at 1 s again and 7 is
// returned. Whoever frees places must settle first, because owed units come before new ones.
func (s *slidingLog) settle(at time.Time) (debt int64) {
	now := s.stamp(at)
	s.log.drop(s.expired(now))
	owed := s.log.live()[s.log.search(now+1):]
	for i, stamp := range owed {
		k := s.periods(stamp, now)
		owed[i] = stamp - k*int64(s.per)
		debt = plus(debt, k)
	}
	slices.Sort(s.log.live())
	return debt
}

// After numbers the units of the backlog from 0: place i falls free at first(i), and each unit that takes
// it frees it per later. So unit k starts at first(k mod n) + ⌊k/n⌋·per. A cost above n waits until all
// places are free. Example: 5 per second, 3 units at 300 ms and 2 at 500; with 6 ahead a call of 1 is unit
// 6, and starts at first(1) + 1 s = 1.3 s + 1 s.
func (s *slidingLog) After(from time.Time, ahead int64, n int) time.Time {
	from = s.Lift(from)
	switch {
	case n == 0 && (ahead == 0 || s.n == 0):
		return from
	case s.n == 0:
		return from.Add(Forever)
	}
	last, extra := plus(ahead, int64(n)), time.Duration(0)
	if int64(n) > s.n { // all ahead must have expired
		last, extra = ahead, s.per
	}
	gone := s.expired(s.stamp(from))
	free := s.n - int64(s.log.len()-gone)
	if last == 0 { // a cost above n with nobody ahead
		last, extra = s.n, 0
	}
	cycle, place := (last-1)/s.n, (last-1)%s.n
	start := from
	if place >= free {
		start = s.base.Add(time.Duration(s.log.live()[gone+int(place-free)]) + s.per)
	}
	return start.Add(times(cycle, s.per) + extra)
}

// Available subtracts a stamp in the future once for its place, and once more for each window that it is
// ahead: that is the debt.
func (s *slidingLog) Available(now time.Time) float64 {
	stamp := s.stamp(s.Lift(now))
	units := float64(s.n) - float64(s.log.len()-s.expired(stamp))
	for _, owed := range s.log.live()[s.log.search(stamp+1):] {
		units -= float64(s.periods(owed, stamp))
	}
	return units
}

// Fresh implements State: with all stamps expired nothing of the past counts.
func (s *slidingLog) Fresh(now time.Time) bool {
	return !s.changed && s.expired(s.stamp(s.Lift(now))) == s.log.len()
}
