package limit

import (
	"math"
	"reflect"
	"time"

	"golang.org/x/time/rate"
)

// This file carries what one limiter has counted over to another that takes its place.
//
//   - A limiter of the same kind goes on as if setters had changed the old one. All buckets are of one kind, even ones too.
//   - One of another kind begins without units: a bucket earns its first one, a window is used up until its end. So no
//     replacement admits more than its own limit.
//   - A limiter that was in use before, and comes back, keeps what it has counted itself. Of both the larger counts.
//   - Of several old limiters of the same kind the one whose rate is nearest is asked. So to set the same limits again
//     changes nothing.
//
// Example: 100 per minute, sliding; 30 were used 50 s ago and 20 just now.
//
//	80 per minute, sliding     the 50 stay used until they are a minute old: 30 units are left
//	5 per 10 s, sliding        only the 20 of now are younger than 10 s: it is used up
//	1/s burst 40               no units; the next one is there in 1 s
//	80 per minute, window      no units; all 80 are there in a minute

// carryTo carries what the accounts of s, which may be nil, have counted over to another state. Where nothing has
// limited so far there is nothing to carry.
func (s *Set) carryTo(to State, now time.Time) {
	if s == nil || len(s.accounts) == 0 {
		return
	}
	var next State
	for _, a := range s.accounts {
		if its := stateOf(a); reflect.TypeOf(its) == reflect.TypeOf(to) && (next == nil || distance(its, to) < distance(next, to)) {
			next = its
		}
	}
	to.Carry(to.Lift(now), next)
}

// distance is how far their rates are apart: 2/s and 1/s as far as 2/s and 4/s. Example: 10/s and 1,000/h are replaced
// by 20/s and 500/h, all buckets. 20/s goes on where 10/s was, and 500/h where 1,000/h was.
func distance(a, b State) float64 { return math.Abs(math.Log(float64(a.Rate()) / float64(b.Rate()))) }

// Carry implements State. A bucket has what the old one had, up to its own burst; the rest is earned.
func (s *tokens) Carry(now time.Time, old State) {
	left := 0.0
	if o, same := old.(*tokens); same {
		if o.limit == rate.Inf {
			return
		}
		_, left = o.at(now)
	}
	if _, count := s.at(now); s.limit != rate.Inf && left < count {
		s.count, s.last = left, now
	}
}

// Carry implements State. The open window goes on from its start, and what does not fit is a debt. It counts if it ends later
// than one that this limiter had open itself.
func (s *fixedCount) Carry(now time.Time, old State) {
	if s.n == 0 {
		return
	}
	start, used := now, s.n
	if o, same := old.(*fixedCount); same {
		start, used = o.at(now)
	}
	ownStart, own := s.at(now)
	used = max(used, own)
	if end := start.Add(times(s.windows(used), s.per)); end.After(ownStart.Add(times(s.windows(own), s.per))) {
		s.start, s.used, s.last = start, used, now
	}
}

// Carry implements State. Of the old log and its own it takes the later stamp of each place, the newest first. Nobody starts
// earlier then than by either of them, and what both remember is not counted twice. Example: 3 per minute, and its
// own log has 1 and 2 s. That of the old one has 2, 5 and 6 s, the first of them its own: 2, 5, 6.
func (s *slidingLog) Carry(now time.Time, old State) {
	o, same := old.(*slidingLog)
	switch {
	case s.n == 0:
		return
	case !same:
		s.Consume(now, int(max(0, s.Available(now))))
		return
	}
	c := o.Clone().(*slidingLog)
	c.setLimit(c.Lift(now), int(s.n), s.per)
	c.log.drop(c.expired(c.stamp(now)))
	s.log.drop(s.expired(s.stamp(now)))
	if s.log.len() == 0 {
		s.base, s.log, s.last = c.base, c.log, now
		return
	}
	longer, shorter := s.log.live(), c.log.live()
	for i := range shorter {
		shorter[i] += int64(c.base.Sub(s.base))
	}
	if len(longer) < len(shorter) {
		longer, shorter = shorter, longer
	}
	more := len(longer) - len(shorter)
	for i, stamp := range shorter {
		longer[more+i] = max(longer[more+i], stamp)
	}
	s.log, s.last = stamps{buf: longer}, now
}
