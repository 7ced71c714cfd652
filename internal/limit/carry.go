package limit

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"time"

	"golang.org/x/time/rate"
)

// This file carries what one limiter has counted over to another that takes its place. Each kind says what it remembers,
// in one form (past), and each kind takes that form in (carry):
//
//   - A sliding window knows the moment of each unit, a fixed one when its window began and when the last unit came.
//     A bucket knows only how many units it lacks: they count as used now.
//   - The new limiter counts a unit if it would still count had it admitted the unit itself. But it is at most used
//     up: units beyond its burst or n do not make anybody wait for longer.
//   - A debt is carried over in full, and paid at the new rate.
//   - A limiter that was in use before, and comes back, keeps what it has counted itself. Of both the larger counts.
//   - Of several old limiters, which all have counted the same units, the next of kin is asked: one of the same kind, or
//     else a window, and of those the one whose rate is nearest. So to set the same limits again changes nothing.
//
// Example: 100 per minute, sliding; 30 were used 50 s ago and 20 just now.
//
//	80 per minute, sliding     the 50 stay used until they are a minute old: 30 units are left
//	5 per 10 s, sliding        only the 20 of now are younger than 10 s: it is used up
//	1/s burst 40               the 30 have flowed off in 50 s at 1/s, so the 20 are missing: 20 units are left
//	10/s burst 10              it is used up; the next unit is there in 100 ms
//
// So an interval in which a limiter was replaced sees at most what both of them say, each for its own part. If both are
// sliding windows, or both are buckets, it sees no more than the new one says, unless the old one had allowed that before.

// A past is what a limiter remembers of the units that it has admitted.
type past struct {
	uses []use   // the oldest first
	debt float64 // units beyond them that were admitted, and have to be paid for
}

// A use is units that were admitted at some moments between from and to. To be safe they count as used at to; where that
// would shift a window that goes on, from is its start.
type use struct {
	from, to time.Time
	units    float64
}

// carryTo carries what the accounts of s, which may be nil, have counted over to another state.
func (s *Set) carryTo(to state, now time.Time) {
	if s == nil || len(s.accounts) == 0 {
		return
	}
	next := slices.MinFunc(s.accounts, func(a, b Account) int {
		return cmp.Or(cmp.Compare(kin(stateOf(a), to), kin(stateOf(b), to)), cmp.Compare(distance(stateOf(a), to), distance(stateOf(b), to)))
	})
	to.carry(to.lift(now), stateOf(next).past(now))
}

// kin is how well what a remembers suits b: 0 is best. Its own kind remembers just what it needs. A window knows moments,
// which any kind can use. A bucket knows none: what it lacks may have been used now or long ago.
func kin(a, b state) int {
	_, bucket := a.(*tokens)
	switch {
	case reflect.TypeOf(a) == reflect.TypeOf(b):
		return 0
	case !bucket:
		return 1
	}
	return 2
}

// distance is how far their rates are apart: 2/s and 1/s as far as 2/s and 4/s. Example: 10/s and 1,000/h are replaced
// by 20/s and 500/h, all buckets. 20/s goes on where 10/s was, and 500/h where 1,000/h was.
func distance(a, b state) float64 { return math.Abs(math.Log(float64(a.rate()) / float64(b.rate()))) }

// whole is units as a whole number, rounded up: part of a unit is not there. Buckets count parts of units, windows do not.
// A billionth is a rounding error, and does not make a unit.
func whole(units float64) int64 { return int64(min(math.Ceil(units-1e-9), 1<<53)) }

// past implements state. What is missing beyond the burst is a debt. Example: a burst of 10 and 4 units left is 6 used;
// 15 units in debt is 10 used, and 15 to be paid for.
func (s *tokens) past(now time.Time) (p past) {
	if s.limit == rate.Inf {
		return p
	}
	now, count := s.at(now)
	missing := float64(s.burst) - count
	p.debt = max(0, missing-float64(s.burst))
	if used := missing - p.debt; used > 0 {
		p.uses = []use{{now, now, used}}
	}
	return p
}

// carry lets each use flow off at the limit from its moment on, as if it were water: what remains is missing now. Example:
// 1/s, and 10 units each at 0, 2 and 5 s. At 5 s there are 10 − 2 + 10 − 3 + 10 = 25.
func (s *tokens) carry(now time.Time, p past) {
	missing := 0.0
	for i, u := range p.uses {
		next := now
		if i+1 < len(p.uses) {
			next = p.uses[i+1].to
		}
		missing = max(0, missing+u.units-next.Sub(u.to).Seconds()*float64(s.limit))
	}
	left := float64(s.burst) - min(missing, float64(s.burst)) - p.debt
	if _, count := s.at(now); s.limit != rate.Inf && left < count {
		s.count, s.last = left, now
	}
}

// past implements state. The window says when its units may have been used: from its start to the latest take. What
// fills windows after it is a debt.
func (s *fixedCount) past(now time.Time) (p past) {
	now = s.lift(now)
	start, used := s.at(now)
	if used == 0 {
		return p
	}
	in := min(used, s.n)
	return past{[]use{{start, Latest(start, Earliest(s.last, now)), float64(in)}}, float64(used - in)}
}

// carry opens a window with the first use that still counts. If it is not known when units were used, and their window
// would be over by now, it begins with the last of them. Example: 30 units in a window that began 50 s ago, the last of
// them 1 s ago. A window of 1 min begins 50 s ago, too; one of 10 s begins 1 s ago, because all 30 may be that young.
func (s *fixedCount) carry(now time.Time, p past) {
	start, units := now, 0.0
	for _, u := range p.uses {
		switch {
		case s.n == 0 || now.Sub(u.to) >= s.per:
			continue
		case units > 0:
		case now.Sub(u.from) < s.per:
			start = u.from
		default:
			start = u.to
		}
		units += u.units
	}
	if used := min(whole(units), s.n) + whole(p.debt); used > 0 && s.n > 0 {
		s.spend(now, Spent{used, start.Add(times(s.windows(used), s.per))})
	}
}

// past implements state, on a copy: to find the debt, the stamps in the future have to go back to where they were.
func (s *slidingLog) past(now time.Time) (p past) {
	if s.log.len() == 0 {
		return p
	}
	now = s.lift(now)
	log := *s
	log.log = stamps{buf: slices.Clone(s.log.live())}
	p.debt = float64(log.settle(now))
	for _, stamp := range log.log.live() {
		at := s.base.Add(time.Duration(stamp))
		if last := len(p.uses) - 1; last >= 0 && p.uses[last].to.Equal(at) {
			p.uses[last].units++
		} else {
			p.uses = append(p.uses, use{at, at, 1})
		}
	}
	return p
}

// carry makes a log of the newest uses, and takes of that one and its own the later stamp of each place, the newest
// first. Nobody starts earlier then than by either of them, and what both remember is not counted twice. Example: 3 per
// minute, and its own log has 1 and 2 s. Uses at 2, 5 and 6 s, the first of them its own: 2, 5, 6.
func (s *slidingLog) carry(now time.Time, p past) {
	if s.n == 0 {
		return
	}
	if s.base.IsZero() {
		s.base = now
	}
	old := slidingLog{window: s.window, base: s.base}
	for _, u := range p.uses {
		units := int(min(whole(u.units), s.n))
		old.log.drop(max(0, old.log.len()+units-int(s.n)))
		old.log.push(s.stamp(u.to), units)
	}
	old.consume(now, int(whole(p.debt)))
	old.log.drop(old.expired(old.stamp(now)))
	s.log.drop(s.expired(s.stamp(now)))
	longer, shorter := old.log.live(), s.log.live()
	if len(longer) < len(shorter) {
		longer, shorter = shorter, longer
	}
	more := len(longer) - len(shorter)
	for i, stamp := range shorter {
		longer[more+i] = max(longer[more+i], stamp)
	}
	s.log = stamps{buf: longer}
	s.last = now
}
