package fleet

import (
	"slices"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// A hand is the units that a limiter has, in runs that have dates, and what they are owed to. There are few runs, because
// each request to a store brings at most three, and they are spent within a second or so. It has no lock and reads no
// clock.
type hand struct {
	runs    []run     // sorted by first; few
	held    int       // the units of all runs, ripe ones and those whose date is still to come
	debt    int       // units that were used before they were there; the next ones in hand pay it
	paused  time.Time // until then nothing goes, whatever is in hand
	expired uint64    // units whose time was over
	latest  struct {  // the latest take: what giveBack may put back
		at time.Time
		run
	}
}

// A run is count units. The k-th (from 0) may be used from first + k·every on, and until
// until + k·every.
type run struct {
	first, until time.Time
	every        time.Duration
	count        int
}

// expire drops units whose time is over. now must be the present: a moment of a forecast would drop units that
// are still good.
func (h *hand) expire(now time.Time) {
	empty := false
	for i := range h.runs {
		r := &h.runs[i]
		if r.until.After(now) {
			continue
		}
		gone := stale(r, now)
		h.expired += uint64(gone)
		h.cut(r, gone)
		empty = empty || r.count == 0
	}
	if empty {
		h.sweep()
	}
}

// stale is how many of a run's units may not be used any more at that moment. A unit may not be used at the very
// moment at which its time is over: until 40, 70 and 100 ms, two are stale at 70 ms.
func stale(r *run, at time.Time) int {
	return r.passed(at.Sub(r.until))
}

// passed is how many of a run's units have reached a moment, the first of them that long ago.
func (r *run) passed(since time.Duration) int {
	switch {
	case since < 0:
		return 0
	case r.every <= 0:
		return r.count
	default:
		return int(min(int64(since/r.every)+1, int64(r.count)))
	}
}

// cut takes the first n units of a run: those with the earliest dates. Example: of 10, 20 and 30 ms, cut by one,
// a run of 2 units from 20 ms on is left.
func (h *hand) cut(r *run, n int) {
	skip := time.Duration(n) * r.every
	r.first, r.until = r.first.Add(skip), r.until.Add(skip)
	r.count -= n
	h.held -= n
}

// sweep removes empty runs, and keeps the memory, so that units come and go without an allocation. The order of
// the others stays: a run is put in by its first date, and later takes may leave one behind another whose dates
// are earlier. That costs a unit some of its time, never its date: each one is looked at by its own.
func (h *hand) sweep() { h.runs = slices.DeleteFunc(h.runs, func(r run) bool { return r.count == 0 }) }

// ripe is how many of a run's units may be used at that moment, if none has expired. A unit may be used at the very
// moment of its date: of 10, 20 and 30 ms, two are ripe at 20 ms.
func ripe(r *run, at time.Time) int {
	return r.passed(at.Sub(r.first))
}

// add puts a run into its place. What was owed is taken from its beginning, and so is what is dated before the end
// of a pause. Example: 3 units come from 0 s on, each 10 ms; 1 is owed, and there is a pause until 15 ms. The
// first pays, the second is dropped, and one unit of 20 ms is in hand.
func (h *hand) add(r run) {
	if r.count <= 0 {
		return
	}
	h.held += r.count
	paid := min(h.debt, r.count)
	h.debt -= paid
	h.cut(&r, paid)
	if h.paused.After(r.first) { // it was granted before the pause was known
		h.cut(&r, ripe(&r, h.paused.Add(-1)))
	}
	if r.count == 0 {
		return
	}
	i := len(h.runs)
	for i > 0 && r.first.Before(h.runs[i-1].first) {
		i--
	}
	h.runs = slices.Insert(h.runs, i, r)
}

// pause drops what is dated before until: those units belong to the time in which nobody sends.
func (h *hand) pause(until time.Time) (dropped int) {
	h.paused = limit.Latest(h.paused, until)
	for i := range h.runs {
		r := &h.runs[i]
		if n := ripe(r, until.Add(-1)); n > 0 {
			h.cut(r, n)
			dropped += n
		}
	}
	h.sweep()
	return dropped
}

// payOne takes a unit, if the first run has one that is ripe: the whole cost of a take that need not wait. In all other
// cases it says no, and take finds out: several units, a debt, a pause, a run behind the first that is ripe
// earlier. Example: of a run of 3 units from 10 ms on, each 5 ms, a call at 12 ms takes the first, and the run is
// one of 2 units from 15 ms on.
func (h *hand) payOne(at time.Time) bool {
	if h.held == 0 || h.debt > 0 || !h.paused.IsZero() {
		return false
	}
	r := &h.runs[0]
	if r.first.After(at) || !r.until.After(at) {
		return false
	}
	h.latest.at, h.latest.first, h.latest.until, h.latest.count = at, r.first, r.until, 1
	if h.cut(r, 1); r.count == 0 {
		h.sweep()
	}
	return true
}

// take takes n ripe units. What is not there is a debt. Example: 2 of 5 units are in hand: both go, and 3 are owed. The
// next 3 that come pay that, and are used by nobody.
func (h *hand) take(at time.Time, n int) {
	left, empty := n, false
	h.latest.at, h.latest.run = at, run{}
	for i := 0; i < len(h.runs) && left > 0; i++ {
		r := &h.runs[i]
		took := min(ripe(r, at), left)
		if took == 0 {
			continue
		}
		if h.latest.count == 0 {
			h.latest.first, h.latest.until = r.first, r.until
		}
		h.latest.until = limit.Earliest(h.latest.until, r.until)
		h.latest.count += took
		h.cut(r, took)
		left -= took
		empty = empty || r.count == 0
	}
	h.debt += left
	if empty {
		h.sweep()
	}
}

// giveBack puts up to n units of the latest take back with the date that they had, and returns how many. Units taken earlier
// are lost: their dates are not kept, and a unit that is used long after its date would break the limit.
func (h *hand) giveBack(at, now time.Time, n int) (kept int) {
	if h.latest.at.Equal(at) && h.latest.until.After(now) {
		kept = min(n, h.latest.count)
		h.latest.count -= kept
		h.add(run{first: h.latest.first, until: h.latest.until, count: kept})
	}
	return kept
}

// empty takes all units out of the hand, and returns how many there were.
func (h *hand) empty() (n int) {
	n, h.held, h.runs = h.held, 0, nil
	return n
}

// ripeUnits counts what may be used at that moment.
func (h *hand) ripeUnits(at time.Time) (n int) {
	for i := range h.runs {
		n += ripe(&h.runs[i], at)
	}
	return n
}

// dateOf is when so many units of the hand are ripe, and how many are missing if they never are. If they have
// to be there together, what has expired by then does not count. Example: 2 units from 0 s to 200 ms, and 3
// from 300 ms on. Two are ripe at 0 s, three at 300 ms, and four never are there together.
func (h *hand) dateOf(from time.Time, units int64, together bool) (at time.Time, missing int64) {
	if h.debt > 0 { // what comes next pays it
		return from, units + int64(h.debt)
	}
	at = from
	for {
		next, missing := h.search(from, at, units)
		if missing > 0 || units == 1 || !together || !next.After(at) {
			return next, missing
		}
		at = next
	}
}

// search finds when so many units are ripe, no earlier than from, of those that have not expired at valid. Runs may
// overlap, so it searches by halves: of 0, 100 and 200 ms, and another one of 10 ms, three are there at 100
// ms. The first one alone is found directly.
func (h *hand) search(from, valid time.Time, units int64) (at time.Time, missing int64) {
	first, last, count := time.Time{}, from, int64(0)
	for i := range h.runs {
		r := &h.runs[i]
		gone := stale(r, valid)
		if left := r.count - gone; left > 0 {
			count += int64(left)
			first = limit.Soonest(first, r.first.Add(time.Duration(gone)*r.every))
			last = limit.Latest(last, r.first.Add(time.Duration(r.count-1)*r.every))
		}
	}
	switch {
	case count < units:
		return from, units - count
	case units <= 1:
		return limit.Latest(from, first), 0
	}
	least, most := time.Duration(0), last.Sub(from) // ripe at from + most, perhaps before
	for least < most {
		half := least + (most-least)/2
		n := int64(0)
		for i := range h.runs {
			r := &h.runs[i]
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
