package limit

import (
	"slices"
	"time"
)

// This file is the hand of a Dated: runs of units that have dates. There are few runs, because each request to
// a supply brings at most three, and they are spent within a second or so. All of it is called with the
// account's lock held.

// A Run is Count units. The k-th (from 0) may be used from First + k·Every on, and until
// Until + k·Every.
type Run struct {
	First, Until time.Time
	Every        time.Duration
	Count        int
}

// expire drops units whose time is over. now must be the present: a moment of a forecast would drop units that
// are still good.
func (s *dated) expire(now time.Time) {
	empty := false
	for i := range s.runs {
		r := &s.runs[i]
		if r.Until.After(now) {
			continue
		}
		gone := stale(r, now)
		s.expired += uint64(gone)
		s.cut(r, gone)
		empty = empty || r.Count == 0
	}
	if empty {
		s.sweep()
	}
}

// stale is how many of a run's units may not be used any more at that moment. A unit may not be used at the very
// moment at which its time is over: until 40, 70 and 100 ms, two are stale at 70 ms.
func stale(r *Run, at time.Time) int {
	return r.passed(at.Sub(r.Until))
}

// passed is how many of a run's units have reached a moment, the first of them that long ago.
func (r *Run) passed(since time.Duration) int {
	switch {
	case since < 0:
		return 0
	case r.Every <= 0:
		return r.Count
	default:
		return int(min(int64(since/r.Every)+1, int64(r.Count)))
	}
}

// cut takes the first n units of a run: those with the earliest dates. Example: of 10, 20 and 30 ms, cut by one,
// a run of 2 units from 20 ms on is left.
func (s *dated) cut(r *Run, n int) {
	skip := time.Duration(n) * r.Every
	r.First, r.Until = r.First.Add(skip), r.Until.Add(skip)
	r.Count -= n
	s.held -= n
}

// sweep removes empty runs, and keeps the memory, so that units come and go without an allocation. The order of
// the others stays: a run is put in by its first date, and later takes may leave one behind another whose dates
// are earlier. That costs a unit some of its time, never its date: each one is looked at by its own.
func (s *dated) sweep() { s.runs = slices.DeleteFunc(s.runs, func(r Run) bool { return r.Count == 0 }) }

// ripe is how many of a run's units may be used at that moment, if none has expired. A unit may be used at the very
// moment of its date: of 10, 20 and 30 ms, two are ripe at 20 ms.
func ripe(r *Run, at time.Time) int {
	return r.passed(at.Sub(r.First))
}

// add puts a run into its place. What was owed is taken from its beginning, and so is what is dated before the end
// of a pause. Example: 3 units come from 0 s on, each 10 ms; 1 is owed, and there is a pause until 15 ms. The
// first pays, the second is dropped, and one unit of 20 ms is in hand.
func (s *dated) add(r Run) {
	if r.Count <= 0 {
		return
	}
	s.held += r.Count
	paid := min(s.debt, r.Count)
	s.debt -= paid
	s.cut(&r, paid)
	if s.paused.After(r.First) { // it was granted before the pause was known
		s.cut(&r, ripe(&r, s.paused.Add(-1)))
	}
	if r.Count == 0 {
		return
	}
	i := len(s.runs)
	for i > 0 && r.First.Before(s.runs[i-1].First) {
		i--
	}
	s.runs = slices.Insert(s.runs, i, r)
}

// pause drops what is dated before until: those units belong to the time in which nobody sends.
func (s *dated) pause(until time.Time) (dropped int) {
	s.paused = Latest(s.paused, until)
	for i := range s.runs {
		r := &s.runs[i]
		if n := ripe(r, until.Add(-1)); n > 0 {
			s.cut(r, n)
			dropped += n
		}
	}
	s.sweep()
	return dropped
}

// ripeUnits counts what may be used at that moment.
func (s *dated) ripeUnits(at time.Time) (n int) {
	for i := range s.runs {
		n += ripe(&s.runs[i], at)
	}
	return n
}

// dateOf is when so many units of the hand are ripe, and how many are missing if they never are. If they have
// to be there together, what has expired by then does not count. Example: 2 units from 0 s to 200 ms, and 3
// from 300 ms on. Two are ripe at 0 s, three at 300 ms, and four never are there together.
func (s *dated) dateOf(from time.Time, units int64, together bool) (at time.Time, missing int64) {
	if s.debt > 0 { // what comes next pays it
		return from, units + int64(s.debt)
	}
	at = from
	for {
		next, missing := s.search(from, at, units)
		if missing > 0 || units == 1 || !together || !next.After(at) {
			return next, missing
		}
		at = next
	}
}

// search finds when so many units are ripe, no earlier than from, of those that have not expired at valid. Runs may
// overlap, so it searches by halves: of 0, 100 and 200 ms, and another one of 10 ms, three are there at 100
// ms. The first one alone is found directly.
func (s *dated) search(from, valid time.Time, units int64) (at time.Time, missing int64) {
	first, last, count := time.Time{}, from, int64(0)
	for i := range s.runs {
		r := &s.runs[i]
		gone := stale(r, valid)
		if left := r.Count - gone; left > 0 {
			count += int64(left)
			first = Soonest(first, r.First.Add(time.Duration(gone)*r.Every))
			last = Latest(last, r.First.Add(time.Duration(r.Count-1)*r.Every))
		}
	}
	switch {
	case count < units:
		return from, units - count
	case units <= 1:
		return Latest(from, first), 0
	}
	least, most := time.Duration(0), last.Sub(from) // ripe at from + most, perhaps before
	for least < most {
		half := least + (most-least)/2
		n := int64(0)
		for i := range s.runs {
			r := &s.runs[i]
			n += int64(max(0, ripe(r, from.Add(half))-stale(r, valid)))
		}
		if n >= units {
			most = half
		} else {
			least = half + 1
		}
	}
	return from.Add(most), 0
}

// awaits reports whether n units that are needed now wait for an answer to the supply: no date is known yet.
//
// Example: a call finds the hand empty at 0 s, and the supply sends for a unit: awaited. At 2 ms the answer brings one
// that is dated 80 ms: not awaited any more, though more may be sent for meanwhile.
func (s *dated) awaits(now time.Time, n int) bool { return s.misses(now, n) && s.supply.Awaited() }
