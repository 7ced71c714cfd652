package limit

import "time"

// A FixedWindow is the account of a throttle.FixedWindow.
type FixedWindow struct {
	g Guard
	s fixedCount
}

// Parts implements Account.
func (w *FixedWindow) Parts() (*Guard, State) { return &w.g, &w.s }

// Init makes an unused window of n units per time per. It panics for nonsense; caller is the constructor
// that the message names.
func (w *FixedWindow) Init(caller string, n int, per time.Duration) { w.s.init(caller, n, per) }

// Notify has changed called after each change of the units, until stop.
func (w *FixedWindow) Notify(changed func()) (stop func()) { return w.g.Notify(changed) }

// Adjust takes n units, as a debt if they do not fit; a negative n gives units of the open window back.
func (w *FixedWindow) Adjust(n int) {
	Change(w, func(now time.Time) { w.s.Adjust(now, n) })
}

// SetLimit changes the window from now on. The units of the open window stay used, and it ends per after it
// began. Example: 100 per minute, 60 used since 0 s. At 20 s the limit becomes 50 per 30 s: nothing is left
// until 30 s, and 10 units of the next window are used already.
func (w *FixedWindow) SetLimit(n int, per time.Duration) {
	Change(w, func(now time.Time) {
		start, used := w.s.at(now)
		w.s.init("SetLimit", n, per)
		w.s.start, w.s.used, w.s.changed = start, used, true
	})
}

// fixedCount is the state of a FixedWindow: a window opens with the first unit after the last one ended.
//
// used may be more than n: the surplus is a debt that fills the windows after this one, without a gap.
// Example: 5 per second, and a call of 12 units at 1 s.
//
//	1 s to 2 s  5 units used up
//	2 s to 3 s  5 more
//	3 s to 4 s  the last 2, so that 3 are left: a call of 3 starts at 3 s, one of 4 at 4 s
type fixedCount struct {
	window
	start time.Time // of the current window, or of the last one
	used  int64     // units since start
}

// at returns the window that is open at a moment: its start, and the units used from that start on. If no
// window is open, a new one would start now. In the example, at 2.5 s that is 2 s and 12 − 5 = 7 units.
func (s *fixedCount) at(now time.Time) (start time.Time, used int64) {
	if s.used == 0 {
		return now, 0
	}
	ended := int64(now.Sub(s.start) / s.per)
	if ended >= s.windows(s.used) {
		return now, 0
	}
	return s.start.Add(time.Duration(ended) * s.per), s.used - ended*s.n
}

// Consume implements State. It makes the window that is open at that moment the current one first.
func (s *fixedCount) Consume(at time.Time, n int) {
	at = s.Lift(at)
	s.last = at
	start, used := s.at(at)
	s.start, s.used = start, plus(used, int64(n))
}

// TakeBy implements State.
func (s *fixedCount) TakeBy(at, now time.Time, n int) (time.Time, error) {
	return TakeReady(s, at, now, n)
}

// GiveBack returns only what windows that have not ended still hold. In the example, at 2.5 s one window
// of the call's three is over with 5 of its units, and the other 7 come back. A cost that fits one window
// is gone when that window is.
func (s *fixedCount) GiveBack(at, now time.Time, n int) { s.Refund(at, now, n, n) }

// Refund returns the last units of a take, which are those of the windows that end last. In the example, 8 of
// the 12 units come back at 2.5 s: 5 are gone with their window, so 7 of the 8 do.
func (s *fixedCount) Refund(at, now time.Time, held, n int) {
	if s.n == 0 {
		return
	}
	now = s.Lift(now)
	start, used := s.at(now)
	ended := int64((start.Sub(at) + s.per - 1) / s.per)
	if ended < s.windows(int64(held)) {
		s.start, s.used = start, max(0, used-min(int64(n), int64(held)-ended*s.n))
		s.last = now
	}
}

// Adjust is the window's Adjust at now. A zero window has nothing to adjust.
func (s *fixedCount) Adjust(now time.Time, n int) {
	switch {
	case s.n == 0:
	case n > 0:
		s.Consume(now, n)
	default:
		start, used := s.at(now)
		s.start, s.used = start, max(0, used+int64(n))
	}
}

// After skips windows that are full: until the units fit into one, or, for a cost above n, until none is
// open. Under backlog windows follow each other without a gap, so the units ahead count as used already.
// Example: 5 per second, 4 used since 0 s; with 3 ahead a call of 2 starts at 1 s (7 used, 2 fit beside
// the 2 in the second window), and one of 4 at 2 s.
func (s *fixedCount) After(from time.Time, ahead int64, n int) time.Time {
	from = s.Lift(from)
	switch {
	case n == 0 && (ahead == 0 || s.n == 0):
		return from
	case s.n == 0:
		return from.Add(Forever)
	}
	start, used := s.at(from)
	used = plus(used, ahead)
	full := s.windows(used)
	if int64(n) <= s.n {
		full = s.windows(max(0, plus(used, int64(n))-s.n))
	}
	return Latest(from, start.Add(times(full, s.per)))
}

// Available implements State: what the open window has left, less what the windows after it owe.
func (s *fixedCount) Available(now time.Time) float64 {
	_, used := s.at(s.Lift(now))
	return float64(s.n - used)
}

// Fresh implements State: without a window open nothing of the past counts.
func (s *fixedCount) Fresh(now time.Time) bool {
	_, used := s.at(s.Lift(now))
	return used == 0 && !s.changed
}
