package account

import (
	"math"
	"slices"
	"time"
)

// A SlidingWindow is the account of a throttle.SlidingWindow: the moment of every unit until per has
// passed.
type SlidingWindow struct {
	quota
	base time.Time // the moment 0 of the stamps: that of the first take ever
	log  stamps    // when the units in use started, in order; at most n; future ones are a debt
}

// since is the stamp of a moment; before the first take it means nothing, and the log is empty.
func (w *SlidingWindow) since(at time.Time) int64 { return int64(at.Sub(w.base)) }

// expired counts the stamps that no longer matter at the given one.
func (w *SlidingWindow) expired(stamp int64) int { return w.log.search(stamp - int64(w.per) + 1) }

// consume also books what does not fit, as a debt: such a unit has the place of the oldest one from the
// moment on that this expires. So n stamps hold any debt, and a cost of (k−1)·n + r of an empty
// window leaves r stamps at at + (k−1)·per, with those before them expiring just then.
func (w *SlidingWindow) consume(at time.Time, n int) {
	at = w.c.lift(at)
	w.c.last = at
	if w.base.IsZero() {
		w.base = at
	}
	stamp := w.since(at)
	w.log.drop(w.expired(stamp))
	free := min(int64(n), w.n-int64(w.log.len()))
	w.log.push(stamp, int(free))
	if debt := int64(n) - free; debt > 0 {
		for i, stamp := range w.log.live() {
			w.log.live()[i] = min(plus(stamp, int64(times(debt/w.n, w.per))), int64(Forever))
		}
		for range debt % w.n {
			oldest := w.log.live()[0]
			w.log.drop(1)
			w.log.push(min(oldest+int64(w.per), int64(Forever)), 1)
		}
	}
}

func (w *SlidingWindow) takeBy(at, now time.Time, n int) (time.Time, error) {
	return takeReady(w, at, now, n)
}

// giveBack removes the units' own stamps, unless their window has ended. If a race for the lock made
// the true stamps a little later than at, the oldest from at on are removed, which errs on the safe
// side: later ones stay in their place.
func (w *SlidingWindow) giveBack(at, now time.Time, n int) {
	now = w.c.lift(now)
	ended := int64(now.Sub(at) / w.per)
	if left := int64(n) - min(ended, w.windows(int64(n)))*w.n; left > 0 {
		debt := w.unbook(now)
		left -= w.log.cut(w.log.search(w.since(at)), left)
		w.consume(now, int(max(0, debt-left)))
	}
}

// periods is in how many windows' time a stamp is, rounded up.
func (w *SlidingWindow) periods(stamp, now int64) int64 {
	return (stamp - now + int64(w.per) - 1) / int64(w.per)
}

// unbook takes the debt off the log, the reverse of what consume did, and returns it. Places that are
// to fall free must not be given to new units before the units owed have had them.
func (w *SlidingWindow) unbook(at time.Time) (debt int64) {
	now := w.since(at)
	w.log.drop(w.expired(now))
	owed := w.log.live()[w.log.search(now+1):]
	for i, stamp := range owed {
		k := w.periods(stamp, now)
		owed[i] = stamp - k*int64(w.per)
		debt = plus(debt, k)
	}
	slices.Sort(w.log.live())
	return debt
}

// after: slot i of the window is free at first(i), and each unit in it frees it per later, so that
// unit number k of the backlog, from 0 on, starts at first(k mod n) + ⌊k/n⌋·per. A cost above n
// waits for all.
func (w *SlidingWindow) after(from time.Time, ahead int64, n int) time.Time {
	from = w.c.lift(from)
	switch {
	case n == 0 && (ahead == 0 || w.n == 0):
		return from
	case w.n == 0:
		return from.Add(Forever)
	}
	last, extra := plus(ahead, int64(n)), time.Duration(0)
	if int64(n) > w.n { // all ahead must have expired
		last, extra = ahead, w.per
	}
	gone := w.expired(w.since(from))
	free := w.n - int64(w.log.len()-gone)
	if last == 0 { // a cost above n with nobody ahead
		last, extra = w.n, 0
	}
	cycle, slot := (last-1)/w.n, (last-1)%w.n
	start := from
	if slot >= free {
		start = w.base.Add(time.Duration(w.log.live()[gone+int(slot-free)]) + w.per)
	}
	return start.Add(times(cycle, w.per) + extra)
}

// available counts a stamp in the future once for each window that it is ahead: that is the debt.
func (w *SlidingWindow) available(now time.Time) float64 {
	stamp := w.since(w.c.lift(now))
	units := float64(w.n) - float64(w.log.len()-w.expired(stamp))
	for _, owed := range w.log.live()[w.log.search(stamp+1):] {
		units -= float64(w.periods(owed, stamp))
	}
	return units
}

func (w *SlidingWindow) fresh(now time.Time) bool {
	return w.expired(w.since(w.c.lift(now))) == w.log.len()
}

// Adjust takes n units, as a debt if they do not fit; n < 0 lessens a debt and then gives the oldest
// units back, so that what remains is blocked the longest.
func (w *SlidingWindow) Adjust(n int) {
	w.c.change(func(now time.Time) {
		if w.n == 0 { // the zero one
			return
		}
		if n > 0 {
			w.consume(now, n)
			return
		}
		left := -int64(max(n, -math.MaxInt)) - w.unbook(now)
		w.log.cut(0, max(0, left))
		w.consume(now, int(max(0, -left)))
	})
}

// stamps is a queue of moments in order. It takes 8 to 16 bytes for each one in use.
type stamps struct {
	buf  []int64
	head int // buf[head:] are in use
}

func (s *stamps) live() []int64 { return s.buf[s.head:] }

func (s *stamps) len() int { return len(s.buf) - s.head }

// search returns the number of stamps below stamp.
func (s *stamps) search(stamp int64) int {
	i, _ := slices.BinarySearch(s.live(), stamp)
	return i
}

// push adds k equal stamps. When the memory is full it is compacted rather than grown if an eighth
// of it is free at the front: that moves at most 8 stamps for each one pushed.
func (s *stamps) push(stamp int64, k int) {
	if len(s.buf)+k > cap(s.buf) && s.head > max(k, len(s.buf)/8) {
		s.buf, s.head = s.buf[:copy(s.buf, s.live())], 0
	}
	for range k {
		s.buf = append(s.buf, stamp)
	}
}

// drop removes the k oldest; memory of which less than a quarter is in use goes with them.
func (s *stamps) drop(k int) {
	s.head += k
	if cap(s.buf) > 64 && s.len() < cap(s.buf)/4 {
		s.buf, s.head = append([]int64(nil), s.live()...), 0
	}
}

// cut removes up to k stamps from number i on and returns how many there were.
func (s *stamps) cut(i int, k int64) int64 {
	k = min(k, int64(s.len()-i))
	s.buf = slices.Delete(s.buf, s.head+i, s.head+i+int(k))
	return k
}
