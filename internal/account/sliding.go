package account

import (
	"math"
	"slices"
	"time"
)

// A SlidingWindow is the account of a throttle.SlidingWindow: the moment of every unit until Per has
// passed.
type SlidingWindow struct {
	quota
	base time.Time // the moment 0 of the stamps: that of the first unit ever
	Log  stamps    // when the units in use started, in order; at most N; future ones are a debt
}

// since is the stamp of a moment.
func (w *SlidingWindow) since(at time.Time) int64 {
	if w.base.IsZero() {
		return 0
	}
	return int64(at.Sub(w.base))
}

// expired counts the stamps that no longer matter at the given one.
func (w *SlidingWindow) expired(stamp int64) int { return w.Log.search(stamp - int64(w.Per) + 1) }

// Consume also books what does not fit, as a debt: such a unit has the place of the oldest one from the
// moment on that this expires. So N stamps hold any debt, and a cost of (k−1)·N + r of an empty
// window leaves r stamps at at + (k−1)·Per, with those before them expiring just then.
func (w *SlidingWindow) Consume(at time.Time, n int) {
	at = w.c.lift(at)
	w.c.last = at
	if n == 0 {
		return
	}
	if w.base.IsZero() {
		w.base = at
	}
	stamp := w.since(at)
	w.Log.drop(w.expired(stamp))
	free := min(int64(n), w.N-int64(w.Log.len()))
	w.Log.push(stamp, int(free))
	if debt := int64(n) - free; debt > 0 {
		for i, stamp := range w.Log.live() {
			w.Log.live()[i] = min(plus(stamp, int64(times(debt/w.N, w.Per))), int64(Forever))
		}
		for range debt % w.N {
			oldest := w.Log.live()[0]
			w.Log.drop(1)
			w.Log.push(min(oldest+int64(w.Per), int64(Forever)), 1)
		}
	}
}

// TakeBy implements [Account].
func (w *SlidingWindow) TakeBy(at, now time.Time, n int) (time.Time, error) {
	return takeReady(w, at, now, n)
}

// GiveBack removes the units' own stamps, unless their window has ended. If a race for the lock made
// the true stamps a little later than at, the oldest from at on are removed, which errs on the safe
// side: later ones stay in their place.
func (w *SlidingWindow) GiveBack(at, now time.Time, n int) {
	now = w.c.lift(now)
	ended := int64(max(0, now.Sub(at)) / w.Per)
	if left := int64(n) - min(ended, w.windows(int64(n)))*w.N; left > 0 {
		debt := w.unbook(now)
		left -= w.Log.cut(w.Log.search(w.since(at)), left)
		w.Consume(now, int(max(0, debt-left)))
	}
}

// periods is in how many windows' time a stamp is, rounded up.
func (w *SlidingWindow) periods(stamp, now int64) int64 {
	return (stamp - now + int64(w.Per) - 1) / int64(w.Per)
}

// unbook takes the debt off the log, the reverse of what Consume did, and returns it. Places that are
// to fall free must not be given to new units before the units owed have had them.
func (w *SlidingWindow) unbook(at time.Time) (debt int64) {
	now := w.since(at)
	w.Log.drop(w.expired(now))
	owed := w.Log.live()[w.Log.search(now+1):]
	for i, stamp := range owed {
		k := w.periods(stamp, now)
		owed[i] = stamp - k*int64(w.Per)
		debt = plus(debt, k)
	}
	slices.Sort(w.Log.live())
	return debt
}

// After: slot i of the window is free at first(i), and each unit in it frees it Per later, so that
// unit number k of the backlog, from 0 on, starts at first(k mod N) + ⌊k/N⌋·Per. A cost above N
// waits for all.
func (w *SlidingWindow) After(from time.Time, ahead int64, n int) time.Time {
	from = w.c.lift(from)
	last, extra := plus(ahead, int64(n)), time.Duration(0)
	if int64(n) > w.N { // all ahead must have expired
		last, extra = ahead, w.Per
	}
	if last == 0 && n == 0 {
		return from
	}
	gone := w.expired(w.since(from))
	free := w.N - int64(w.Log.len()-gone)
	if last == 0 { // a cost above N with nobody ahead
		if last, extra = w.N, 0; free == w.N {
			return from
		}
	}
	cycle, slot := (last-1)/w.N, (last-1)%w.N
	start := from
	if slot >= free {
		start = w.base.Add(time.Duration(w.Log.live()[gone+int(slot-free)]) + w.Per)
	}
	return start.Add(times(cycle, w.Per) + extra)
}

// Available counts a stamp in the future once for each window that it is ahead: that is the debt.
func (w *SlidingWindow) Available(now time.Time) float64 {
	stamp := w.since(w.c.lift(now))
	units := float64(w.N) - float64(w.Log.len()-w.expired(stamp))
	for _, owed := range w.Log.live()[w.Log.search(stamp+1):] {
		units -= float64(w.periods(owed, stamp))
	}
	return units
}

// Fresh implements [Account].
func (w *SlidingWindow) Fresh(now time.Time) bool {
	return w.expired(w.since(w.c.lift(now))) == w.Log.len()
}

// Adjust takes n units, as a debt if they do not fit; n < 0 lessens a debt and then gives the oldest
// units back, so that what remains is blocked the longest.
func (w *SlidingWindow) Adjust(n int) {
	w.c.change(func(now time.Time) {
		if w.N == 0 { // the zero one
			return
		}
		if n > 0 {
			w.Consume(now, n)
			return
		}
		left := -int64(max(n, -math.MaxInt)) - w.unbook(now)
		w.Log.cut(0, max(0, left))
		w.Consume(now, int(max(0, -left)))
	})
}

// stamps is a queue of moments in order. It takes 8 to 16 bytes for each one in use.
type stamps struct {
	Buf  []int64
	head int // Buf[head:] are in use
}

func (s *stamps) live() []int64 { return s.Buf[s.head:] }

func (s *stamps) len() int { return len(s.Buf) - s.head }

// search returns the number of stamps below stamp.
func (s *stamps) search(stamp int64) int {
	i, _ := slices.BinarySearch(s.live(), stamp)
	return i
}

// push adds k equal stamps. When the memory is full it is compacted rather than grown if an eighth
// of it is free at the front: that moves at most 8 stamps for each one pushed.
func (s *stamps) push(stamp int64, k int) {
	if len(s.Buf)+k > cap(s.Buf) && s.head > max(k, len(s.Buf)/8) {
		s.Buf, s.head = s.Buf[:copy(s.Buf, s.live())], 0
	}
	for range k {
		s.Buf = append(s.Buf, stamp)
	}
}

// drop removes the k oldest; memory of which less than a quarter is in use goes with them.
func (s *stamps) drop(k int) {
	s.head += k
	if cap(s.Buf) > 64 && s.len() < cap(s.Buf)/4 {
		s.Buf, s.head = append([]int64(nil), s.live()...), 0
	}
}

// cut removes up to k stamps from number i on and returns how many there were.
func (s *stamps) cut(i int, k int64) int64 {
	k = min(k, int64(s.len()-i))
	s.Buf = slices.Delete(s.Buf, s.head+i, s.head+i+int(k))
	return k
}
