package inbound

import (
	"fmt"
	"math"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// This file counts. A law is one limit, the same for all keys; a cell is what one key has used of it, two words of 8 bytes.
// Moments are nanoseconds since the table's first use. A cell of zeros has used nothing, whatever the law.
//
//	kind     first word               second word
//	bucket   moment of the last unit  units that are missing then, a float64
//	window   start of the window      units used since
//	sliding  start of the window      units used in the window before, and since: 32 bits each
//	dated    start of the period       units used since
//	atOnce   requests in flight
//	logged   a word for each unit of the limit: the moment at which it comes back, see sliding.go
//
// Examples, all with two units used at 0 s:
//
//	10/s burst 5     2 are missing, 1 at 100 ms, none from 200 ms on
//	5/s window       2 are used until 1 s
//	5/s sliding      2 are used until 1 s, then a share of them that shrinks: 1 at 1.5 s, none from 2 s on
//
// Sliding is the estimate by two counters that gateways use. It is right if the units of the window before came
// evenly, and serves a client that keeps exactly to a limit of n units n − 1 of them. So small limits are logged.
//
// Costs above the burst or the window go when nothing is used, and leave a debt, as in package throttle.

// A cell is what one key has used of one law: law.words words, mostly two.
type cell []uint64

// A mark is what a law has to know to undo a take. It is the cell right after it, or what logged says.
type mark [2]uint64

// A kind is how a law counts.
type kind uint8

const (
	bucket  kind = iota // also even, which is a bucket of burst 1
	window              // the next one begins with the first unit after the last one has ended
	sliding             // two counters
	logged              // sliding, with a moment for each unit
	atOnce              // requests in flight, see atonce.go
	dated               // a window of the calendar, see calendar.go
)

// A law is one limit.
type law struct {
	kind  kind
	name  string  // in the fields
	words int     // of a cell
	at    int     // where its cell begins in a slot, in words
	most  int64   // burst, or units of a window
	perNs float64 // of a bucket: units per nanosecond
	per   int64   // of a window: its length, ns
	born  uint32  // of atOnce: the gen of the table from which on it has counted
	cal   *calendar
	span  int64 // what the fields advertise as w, s: the time in which most come back; 0: below a second
}

const (
	// tiny is a rounding error of floats, in units: a bucket that lacks less than that of a unit has it.
	tiny = 1e-9
	// never is the wait of a cost that can never be paid.
	never = int64(math.MaxInt64)
	// maxSurplus is the longest time for which one cost may block its key beyond what the burst or window holds.
	maxSurplus = float64(time.Hour)
	// longest is the longest window: twice as much still fits 64 bits of nanoseconds, beside a long uptime.
	longest = 100 * 365 * 24 * time.Hour
	// maxCost is the highest cost: what a counter of 32 bits holds beside a window.
	maxCost = math.MaxInt32
)

// newLaw makes a law of a limit's text, or says why it cannot. Examples:
//
//	100/1m burst 20   perNs 1.67e-9, most 20; it fills in 12 s, so the fields say q=20, w=12
//	5/s even          most 1, full in 200 ms: the fields cannot say that
//	100/1500ms window most 100; 1.5 s are not whole seconds, so the fields leave it out
func newLaw(s limit.Spec) (law, error) {
	l := law{most: int64(s.Burst), per: int64(s.Per), name: limit.FormatPer(s.Per), words: 2}
	switch s.Kind {
	case "window", "sliding":
		if l.kind, l.most = window, int64(s.N); s.Kind == "sliding" {
			l.kind = sliding
		}
		if l.kind == sliding && l.most <= maxLogged {
			l.kind, l.words = logged, int(l.most)
		}
		switch {
		case l.kind == sliding && l.most > maxCost:
			return l, fmt.Errorf("%d units are more than a sliding window can count here, %d", l.most, maxCost)
		case s.Per > longest:
			return l, fmt.Errorf("a window of %v is longer than can be counted here, %v", s.Per, longest)
		}
		if l.per%int64(time.Second) == 0 {
			l.span = l.per / int64(time.Second)
		}
	default:
		l.perNs = s.Units / float64(s.Per)
		if fill := float64(l.most) / l.perNs / 1e9; fill >= 1-tiny {
			l.span = int64(math.Min(math.Ceil(fill-tiny), 1e15-1))
		}
	}
	return l, nil
}

// wait is how long, in ns, until n units fit. 0: they do now. It changes nothing.
func (l *law) wait(c cell, now, n int64) int64 {
	switch {
	case n == 0:
		return 0
	case n > maxCost:
		return never
	case l.kind == bucket:
		return l.waitBucket(c, now, n)
	case l.kind == window:
		return l.waitWindow(c, now, n)
	case l.kind == logged:
		return l.waitLogged(c, now, n)
	case l.kind == dated:
		return l.waitDated(c, now, n)
	case l.kind == atOnce:
		if int64(c[0]) < l.most {
			return 0
		}
		return 1
	default:
		return l.waitSliding(c, now, n)
	}
}

// take uses n units, whether they fit or not. Example: a bucket of 10/s, burst 5, that lacks 1 unit at 0 s. A take of 3 at
// 50 ms finds half a unit missing and leaves 3.5, as of 50 ms.
func (l *law) take(c cell, now, n int64, m *mark) {
	switch l.kind {
	case bucket:
		missing := l.missing(c, now) + float64(n)
		set(c, max(now, int64(c[0])), missing)
	case window:
		start, used := l.open(c, now)
		c[0], c[1] = uint64(start), uint64(used+n)
	case dated:
		start, used, _ := l.dated(c, now)
		c[0], c[1] = uint64(start), uint64(used+n)
	case logged:
		*m = l.takeLogged(c, now, n)
		return
	case atOnce:
		if *m = (mark{}); n > 0 {
			c[0]++
			*m = mark{airborne}
		}
		return
	default:
		start, before, since := l.turn(c, now)
		c[0], c[1] = uint64(start), uint64(before)<<32|uint64(min(since+n, math.MaxUint32))
	}
	m[0], m[1] = c[0], c[1]
}

// back undoes a take of held units as far as n of them were not used. then is what the take has noted in m: what the cell would
// lack by now, had nobody else come, is what has not come back by itself. No more is given. Example: 5/s window, 5 taken at 0 s,
// 5 by somebody else at 1 s. If the first take is undone at 1.1 s nothing is given, as its window is over.
func (l *law) back(c, then cell, now, held, n int64) {
	switch l.kind {
	case bucket:
		missing := max(0, l.missing(c, now)-min(float64(n), l.missing(then, now)))
		set(c, max(now, int64(c[0])), missing)
	case window:
		_, left := l.open(then, now)
		start, used := l.open(c, now)
		c[0], c[1] = uint64(start), uint64(max(0, used-min(n, left)))
	case logged:
		l.backLogged(c, then, held, n)
	case dated:
		_, left, _ := l.dated(then, now)
		start, used, _ := l.dated(c, now)
		c[0], c[1] = uint64(start), uint64(max(0, used-min(n, left)))
	case atOnce: // see land
	default:
		_, _, left := l.turn(then, now)
		start, before, since := l.turn(c, now)
		c[0], c[1] = uint64(start), uint64(before)<<32|uint64(max(0, since-min(n, left)))
	}
}

// set writes the cell of a bucket.
func set(c cell, at int64, missing float64) { c[0], c[1] = uint64(at), math.Float64bits(missing) }

// behind is about how long, in ns, so many units take that go before a request, once the first of them fits. At 2/s three
// units take 1.5 s. Of a window of 100/m fifty take no time, because they go together when it begins, and 250 take two
// more windows.
func (l *law) behind(units int64) int64 {
	if l.kind == bucket {
		return l.spanOf(float64(units))
	}
	return int64(min(float64(units/l.most)*float64(l.per), float64(limit.Forever)))
}

// rest is how many units fit now, and how long until all of them are back (bucket) or the window ends, in ns. Units are
// rounded down, so whoever reads 3 gets 3. In the example above, right after the take: 1 unit of 5, and 350 ms.
func (l *law) rest(c cell, now int64) (units, reset int64) {
	switch l.kind {
	case bucket:
		missing := l.missing(c, now)
		return max(0, int64(math.Floor(float64(l.most)-missing+l.slack()))), l.spanOf(missing)
	case window:
		start, used := l.open(c, now)
		if used == 0 {
			return l.most, 0
		}
		return l.left(c, now, l.most-used, start+l.per-now)
	case logged:
		return l.restLogged(c, now)
	case dated:
		_, used, left := l.dated(c, now)
		return l.left(c, now, l.most-used, left)
	case atOnce:
		return max(0, l.most-int64(c[0])), 0
	default:
		start, before, since := l.turn(c, now)
		if before+since == 0 {
			return l.most, 0
		}
		left := min(l.per, max(0, start+l.per-now))
		return l.left(c, now, l.most-since-share(before, left, l.per), left)
	}
}

// left is what a window shows. If no unit is left its end is no news unless one comes back with it, which is not so after a
// debt, nor in a sliding window that was used up at once: then the reset is the moment at which one does.
func (l *law) left(c cell, now, units, reset int64) (int64, int64) {
	if units <= 0 {
		return 0, max(reset, l.wait(c, now, 1))
	}
	return units, max(0, reset)
}

// fresh reports whether nothing is used, so that the cell may be forgotten: a cell of zeros would say the same at this
// moment and at any later one.
func (l *law) fresh(c cell, now int64) bool {
	switch l.kind {
	case bucket:
		return l.missing(c, now) <= l.slack()
	case window:
		_, used := l.open(c, now)
		return used == 0
	case logged:
		return int64(c[l.most-1]) <= now
	case dated:
		_, used, _ := l.dated(c, now)
		return used == 0
	case atOnce:
		return c[0] == 0
	default:
		_, before, since := l.turn(c, now)
		return before+since == 0
	}
}

// slack is the rounding error that a bucket's units may have, and what spanOf does not round up.
func (l *law) slack() float64 { return tiny + 1e-12*float64(l.most) + l.perNs/1024 }

// missing is how many units a bucket lacks. More than its burst is a debt. A moment before the cell's own counts as that
// one: an interval counted twice would make units of nothing.
func (l *law) missing(c cell, now int64) float64 {
	missing := math.Float64frombits(c[1])
	if gone := now - int64(c[0]); gone > 0 {
		missing -= float64(gone) * l.perNs
	}
	return max(0, missing)
}

// spanOf is the time in which so many units come back to a bucket, rounded up. As in package limit, less than
// 1/1024 ns is a rounding error and is not rounded up.
func (l *law) spanOf(units float64) int64 {
	ns := math.Ceil(units/l.perNs - 1.0/1024)
	if ns >= float64(limit.Forever) {
		return int64(limit.Forever)
	}
	return max(0, int64(ns))
}

// waitBucket: n units fit while no more are missing than burst − n. At 10/s, burst 5, and 4.5 missing, two fit
// once 3 are missing, in 150 ms.
func (l *law) waitBucket(c cell, now, n int64) int64 {
	if surplus := float64(n - l.most); surplus/l.perNs > maxSurplus {
		return never
	}
	over := l.missing(c, now) - float64(l.most-min(n, l.most))
	if over <= l.slack() {
		return 0
	}
	return max(1, l.spanOf(over)) + max(0, int64(c[0])-now) // a clock that went back stands still until then
}

// open is the window that is open: its start, and the units used since. A surplus fills the windows that follow
// without a gap, so at 1.5 s a window of 5/s that took 12 at 0 s is the one from 1 s on, with 7 used.
func (l *law) open(c cell, now int64) (start, used int64) {
	start, used = int64(c[0]), int64(c[1])
	if used == 0 {
		return now, 0
	}
	ended := max(0, now-start) / l.per
	if ended >= ceilDiv(used, l.most) {
		return now, 0
	}
	return start + ended*l.per, used - ended*l.most
}

// waitWindow: n units wait for the end of as many windows as are full. At 5/s, with 4 used since 0 s, one unit fits at
// once and two fit at 1 s. A cost of 7 needs a window with nothing used: 1 s as well. Then 7 are used, and the window
// after that one begins with 2.
func (l *law) waitWindow(c cell, now, n int64) int64 {
	if l.tooLong(n) {
		return never
	}
	start, used := l.open(c, now)
	full := ceilDiv(max(0, used+min(n, l.most)-l.most), l.most)
	return max(0, start+full*l.per-now)
}

// tooLong reports whether a cost would fill windows for more than an hour beyond the first. At 10/m that is a cost of
// more than 610.
func (l *law) tooLong(n int64) bool {
	return float64(ceilDiv(n, l.most)-1)*float64(l.per) > maxSurplus
}

// ceilDiv is a/b, rounded up.
func ceilDiv(a, b int64) int64 {
	if a <= 0 {
		return 0
	}
	return (a-1)/b + 1
}
