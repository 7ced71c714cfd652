package queue

import (
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// This file says how full the limits of a queue are, and how much of them its calls use. A limiter does not remember what
// it has given, so what calls have taken until now is compared with what they had taken at an earlier look. No call counts
// anything for that, but one of another cost than 1: how much it takes beyond one unit.
//
// # States, under the lock
//
//	Queue.uses, pool.uses  what had been taken at two earlier looks; only looks change it
//	nil                          nobody has looked yet, so a key takes no memory for it
//
// # Races
//
//	two observers    each look is one critical section. One that comes less than leastSpan after a mark leaves the marks
//	                 as they are, so who looks each second does not shorten the time that another one sees
//	a look, a start  one comes first
//	a settlement     takes no lock: this look sees it, or the next one does
//	two Totals       their sums are made without the lock, and the one made last may be noted first: what is used of a shared
//	                 limit is off by what was sent in between, and right again with the next look
//
// Example: observers look each second from 0 s on, and a call a second starts before a Bucket of 2/s. The marks are those of 0
// and 10 s at 15 s: since the older one 15 units were taken in 15 s, which is half of the limit. At 20 s the mark of 10 s
// is old enough: it is compared with, and gives way to that of 20 s.

// leastSpan is the least time over which use is measured.
const leastSpan = 10 * time.Second

// A reading is what calls had taken by a moment, counted from common.base.
type reading struct {
	at    time.Duration
	units int64   // by cost
	held  []int64 // of each meter; nil: nothing of any
}

// uses are two readings, the newer one less than leastSpan old when the last look was made.
type uses struct{ older, newer reading }

// newUses begins with a moment at which nothing had been taken.
func newUses(at time.Duration) *uses { return &uses{reading{at: at}, reading{at: at}} }

// since is what a reading is to be compared with: at least leastSpan old, or from before the first call.
func (u *uses) since(now reading) (from reading) {
	from = u.older
	if now.at-u.newer.at >= leastSpan {
		from = u.newer
		u.older, u.newer = u.newer, now
	}
	return from
}

// pace is how many units a second were taken from one reading to another. Less than nothing, when settlements have given
// more back than was held, is nothing. Before the first call of a key, too, nothing was taken: 5 units in its first second
// are half a unit a second.
func pace(from, to time.Duration, before, after int64) float64 {
	return max(0, float64(after-before)) / max(leastSpan, to-from).Seconds()
}

// tookLocked counts what a call has taken that goes. Most take one unit, and then it is a comparison.
func (q *Queue) tookLocked(cost int) {
	if cost != 1 {
		q.beyond += int64(cost) - 1
	}
}

// readLocked is what has been taken until now.
func (q *Queue) readLocked(now time.Time) reading {
	r := reading{at: now.Sub(q.common.base), units: q.countsLocked().units}
	if q.meters != nil {
		r.held = make([]int64, len(q.meters.each))
		for i := range r.held {
			r.held[i] = q.meters.takenLocked(i)
		}
	}
	return r
}

// appendLimitsLocked adds what observers see of the limits that the queue's calls pay: its own, those that all keys share, and
// those of its meters. What is used of the shared ones is known as of the last Table.Totals.
func (q *Queue) appendLimitsLocked(all []limit.Stats, now time.Time) []limit.Stats {
	var from, r reading
	if q.own.Own() > 0 || q.meters != nil {
		r = q.readLocked(now)
		from = q.usesLocked().since(r)
		all = q.own.AppendStats(all, heldByLimit, pace(from.at, r.at, from.units, r.units), now)
	}
	if s := q.common.all; s != nil {
		all = s.limits.AppendStats(all, heldByShared, s.used, now)
	}
	for i, taken := range r.held {
		before := int64(0)
		if from.held != nil {
			before = from.held[i]
		}
		all = q.meters.each[i].Limits.AppendStats(all, q.meters.reasons[i], pace(from.at, r.at, before, taken), now)
	}
	return all
}

// usesLocked is q.uses, made at the first look: it begins when the first call came.
func (q *Queue) usesLocked() *uses {
	if q.uses == nil {
		q.uses = newUses(q.met)
	}
	return q.uses
}
