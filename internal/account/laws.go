package account

import (
	"cmp"
	"math"
	"math/bits"
	"time"
)

// A bucket is kept as one moment, full, at which all that was taken will have come back. This is GCRA's theoretical
// arrival time: n units fit as long as full is no further ahead than the time in which burst - n units come back.
//
// An example with N 10, Per 1 s, Burst 3: unit is 100 ms, and full 0. Three requests at 0 make it 300
// ms. A fourth fits when full − (3 − 1) × 100 ms = 100 ms has come. Taken then, it makes full 400 ms.
// Nothing runs in between: a rested bucket is one whose full is over.
type bucket struct {
	per        time.Duration
	burst      int
	unit, full float64 // ns; a unit comes back in unit, never if that is 0
}

func (b *bucket) set(at time.Duration, n int) {
	unit := 0.0
	if n > 0 {
		unit = float64(b.per) / float64(n)
	}
	// At 10/s a debt of 300 ms is 3 units. At 5/s the same 3 units take 600 ms.
	if debt := b.full - float64(at); debt > 0 && b.unit > 0 && unit > 0 {
		b.full = float64(at) + debt/b.unit*unit // as many units are missing as before
	}
	b.unit, b.burst = unit, cmp.Or(b.burst, n)
}

// More than the burst never fits: no rest makes a bucket larger.
func (b *bucket) Ready(at time.Duration, n int) time.Duration {
	if n > b.burst || b.unit == 0 {
		return Never
	}
	first := b.full - float64(b.burst-n)*b.unit
	if first <= float64(at)+0.5 { // half a nanosecond: sums of fractions err
		return at
	}
	return time.Duration(math.Ceil(first - 0.5))
}

func (b *bucket) Take(at time.Duration, n int) {
	b.full = max(b.full, float64(at)) + float64(n)*b.unit
}

// In the example above, right after the fourth request, at 100 ms: the debt is 300 ms, so 0 of 3 units
// remain, and Reset is 300 ms. At 250 ms the debt is 150 ms, which is 1.5 units: 1 remains, rounded
// down.
func (b *bucket) State(at time.Duration) State {
	if b.unit == 0 {
		return State{Limit: b.burst}
	}
	debt := max(0, b.full-float64(at))
	left := max(0, float64(b.burst)-debt/b.unit) + 1e-9 // for sums that err
	per := time.Duration(float64(b.burst) * b.unit)
	return State{Limit: b.burst, Remaining: int(left), Window: per, Reset: time.Duration(debt)}
}

// A window counts what has come since it began. If it slides, what came in the window before counts too, by the share
// of this window that is left. For an even flow that is what came within the last Per. HAProxy's http_req_rate is
// such a sum, and so are the estimates of many gateways.
//
// An example of a SlidingCounter with N 100 and Per 60 s: 80 units came in the window before, 30 in
// this one, and 15 s of it are over, so 45 s are left. The sum is 30 + 80 × 45 ÷ 60 = 90, and 10 units
// are free. A Fixed limit would have 70 free, because it forgets the window before at once: at the edge
// of its windows it admits 200 units in a moment.
type window struct {
	n             int
	per           time.Duration
	first, slides bool          // it begins with a request; SlidingCounter
	began         time.Duration // may be over
	before, now   int           // units of the window before, and of this one
}

func (w *window) set(_ time.Duration, n int) { w.n = n }

// turn goes on to the window of a moment.
//
// Of a FixedFirst window that is over only the count goes: the next one begins with the next unit, in
// take. A SlidingCounter remembers one window: after a pause of two it has forgotten all.
func (w *window) turn(at time.Duration) {
	k := (at - w.began) / w.per
	if k == 0 {
		return
	}
	if w.before, w.now = w.now, 0; k > 1 || !w.slides {
		w.before = 0
	}
	if !w.first {
		w.began += k * w.per
	}
}

// left is how much of a window may be left so that the units of the window before count for free ones at most:
// before × left ÷ per ≤ free, rounded down.
//
// In the example above, a request of 20 units: free is 100 − 20 − 30 = 50, and 80 × left ÷ 60 s ≤ 50
// from 37.5 s on. So it is admitted when 37.5 s are left, 7.5 s from now.
func (w *window) left(before, free int) time.Duration {
	if before <= free {
		return w.per
	}
	hi, lo := bits.Mul64(uint64(w.per), uint64(free)) // many units in a long window need more than 64 bits
	left, _ := bits.Div64(hi, lo, uint64(before))
	return time.Duration(left)
}

// If this window is too full by itself, the next one must come first. There this window is the one
// before, and the same formula says how much of it must be forgotten.
func (w *window) Ready(at time.Duration, n int) time.Duration {
	w.turn(at)
	end := w.began + w.per
	switch free := w.n - n - w.now; {
	case n > w.n:
		return Never
	case free >= 0: // as soon as enough of the window before is forgotten
		return max(at, end-w.left(w.before, free))
	case w.slides: // in the next window, once enough of this one is
		return end + w.per - w.left(w.now, w.n-n)
	}
	return end
}

// A FixedFirst window that is over begins anew with this unit: one at 75 s makes it 75 s to 135 s, if
// Per is 60 s.
func (w *window) Take(at time.Duration, n int) {
	if w.turn(at); w.first && at >= w.began+w.per {
		w.began = at
	}
	w.now += n
}

func (w *window) State(at time.Duration) State {
	w.turn(at)
	left := max(0, w.began+w.per-at)
	used := float64(w.now) + float64(w.before)*float64(left)/float64(w.per)
	return State{Limit: w.n, Remaining: max(0, int(float64(w.n)-used)), Window: w.per, Reset: left}
}

// sliding remembers when the units of the last Per came.
//
// An example with N 3 and Per 10 s: units at 0, 4 and 6 s. A fourth fits at 10 s, when the first one
// leaves, and the next ones at 14 and 16 s. Any 10 s have at most 3, which neither kind of window
// promises.
type sliding struct {
	n    int
	per  time.Duration
	used int // by the log
	log  []taken
}

type taken struct {
	at time.Duration
	n  int
}

func (s *sliding) set(_ time.Duration, n int) { s.n = n }

// turn forgets the units that came Per ago and earlier.
func (s *sliding) turn(at time.Duration) {
	for ; len(s.log) > 0 && s.log[0].at <= at-s.per; s.log = s.log[1:] {
		s.used -= s.log[0].n
	}
}

// With CountThrottled or after a Change more may have been charged than N. An example: N 3, 5 in the
// log, and 1 wanted. 5 + 1 − 3 = 3 must leave, so it is the third entry that counts.
func (s *sliding) Ready(at time.Duration, n int) time.Duration {
	if s.turn(at); n > s.n {
		return Never
	}
	for i, over := 0, s.used+n-s.n; over > 0; i++ { // so many units have to leave first
		over -= s.log[i].n
		at = s.log[i].at + s.per
	}
	return at
}

func (s *sliding) Take(at time.Duration, n int) {
	s.turn(at)
	s.log, s.used = append(s.log, taken{at, n}), s.used+n
}

func (s *sliding) State(at time.Duration) State {
	s.turn(at)
	st := State{Limit: s.n, Remaining: max(0, s.n-s.used), Window: s.per}
	if len(s.log) > 0 {
		st.Reset = s.log[0].at + s.per - at
	}
	return st
}

// A flight caps what is at work at once. Account.done takes off what has ended.
type flight struct{ n, flying int }

func (f *flight) set(_ time.Duration, n int)  { f.n = n }
func (f *flight) Take(_ time.Duration, n int) { f.flying += n }

// An example with N 2 and Work 1 s: requests at 0 and 0.4 s are at work, and one at 0.5 s is throttled.
// From 1 s on there is a place. The account cannot say so, because it does not know the work.
func (f *flight) Ready(at time.Duration, n int) time.Duration {
	if f.flying+n > f.n {
		return Never
	}
	return at
}

// State has no Window, so it is not advertised: there is no time in which units come back.
func (f *flight) State(time.Duration) State {
	return State{Limit: f.n, Remaining: max(0, f.n-f.flying)}
}

// Settle is take, of units that may be negative: a bucket is never fuller than its burst.
func (b *bucket) Settle(at, _ time.Duration, n int) { b.Take(at, n) }

// Settle gives back to the window that has been charged. If that is over nobody asks about it any more. More is charged to
// the window of now.
//
// An example of a Fixed limit of a minute: 500 units were held at 50 s, and 200 were used at 70 s. The window of 0 to 60 s is over,
// so nothing changes. If 700 were used, 200 are charged to the window of 60 to 120 s.
func (w *window) Settle(at, charged time.Duration, n int) {
	w.turn(at)
	switch {
	case n > 0:
		w.Take(at, n)
	case charged >= w.began:
		w.now = max(0, w.now+n)
	case charged >= w.began-w.per && w.slides:
		w.before = max(0, w.before+n)
	}
}

// Settle gives back what still counts of the moment of the charge. More counts from now on.
//
// An example: 500 units stand in the log at 50 s. At 70 s 200 were used: the entry becomes 200 and leaves the log at 110 s, as
// before.
func (s *sliding) Settle(at, charged time.Duration, n int) {
	if n > 0 {
		s.Take(at, n)
		return
	}
	s.turn(at)
	for i := range s.log {
		if e := &s.log[i]; e.at == charged && n < 0 {
			back := min(e.n, -n)
			e.n, s.used, n = e.n-back, s.used-back, n+back
		}
	}
}

// Settle does nothing: what is at work is counted by itself.
func (f *flight) Settle(_, _ time.Duration, _ int) {}
