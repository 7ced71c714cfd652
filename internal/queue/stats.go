package queue

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/upstream"
)

// This file is what observers see of a queue.

// Stats is a snapshot of a Queue; throttle.QueueStats has the words.
type Stats struct {
	Waiting     int
	Flows       map[string]int
	InFlight    int
	MaxInFlight int
	Load        float64
	Tokens      float64
	Limit       rate.Limit
	ClosedFor   time.Duration
	Sent        uint64
	Throttled   uint64
	Retried     uint64
	Refused     uint64
	Reason      string
	Until       time.Time
	Oldest      time.Time
}

// Stats returns a snapshot.
func (q *Queue) Stats() Stats {
	q.common.mu.Lock()
	defer q.common.mu.Unlock()
	return q.statsLocked(time.Now())
}

// Look returns a snapshot, what was learned (nil: nothing was), and the limits that the queue's calls pay, all of one moment. The
// limits are appended to few, so that a caller who looks at many keys has one place for them.
func (q *Queue) Look(few []limit.Stats) (s Stats, known []upstream.Known, limits []limit.Stats) {
	q.common.mu.Lock()
	defer q.common.mu.Unlock()
	now := time.Now()
	return q.statsLocked(now), q.up.Learned(now), q.appendLimitsLocked(few, now)
}

// statsLocked is Stats with the lock.
func (q *Queue) statsLocked(now time.Time) Stats {
	sent, throttled := q.up.Counts()
	most, _ := q.mostLocked(now)
	s := Stats{
		InFlight: q.inFlightLocked(), MaxInFlight: most, Load: q.signalLocked(),
		Tokens: q.limits().Available(now), Limit: q.limits().Rate(),
		Sent: sent, Throttled: throttled, Retried: q.troubled().retried, Refused: q.troubled().refused,
	}
	if q.line != nil {
		s.Waiting, s.Flows = q.line.Len(), q.flowsLocked()
		s.Reason, s.Until = q.headHeldLocked(now)
		s.Oldest = q.oldestLocked()
	}
	if c := q.up.Closing(now); c.Cause != upstream.Open && !c.Over {
		s.ClosedFor = c.Left
		if s.Reason == "" {
			s.Reason = upstream.HeldByGate + string(c.Cause)
		}
	}
	return s
}

// mostNamed is how many flows Stats shows apart.
const mostNamed = 100

// flowsLocked counts the waiters of each flow, the smaller ones of many together as "_other"; nil: none is named.
func (q *Queue) flowsLocked() map[string]int {
	all := q.line.Flows()
	if len(all) <= mostNamed {
		return all
	}
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(all[b], all[a]), cmp.Compare(a, b))
	})
	others := 0
	for _, name := range names[mostNamed:] {
		others += all[name]
		delete(all, name)
	}
	all["_other"] += others
	return all
}

// oldestLocked is when the eldest of those that wait came; zero: nobody waits.
func (q *Queue) oldestLocked() time.Time {
	if q.line == nil || q.line.Len() == 0 {
		return time.Time{}
	}
	return q.common.base.Add(q.line.Oldest().Of.moment)
}

// Age is for how long the eldest has waited.
func (q *Queue) Age() time.Duration {
	q.common.mu.Lock()
	defer q.common.mu.Unlock()
	if came := q.oldestLocked(); !came.IsZero() {
		return max(0, q.common.now().Sub(came))
	}
	return 0
}

// appendLimitsLocked adds what observers see of the limits that the queue's calls pay: its own, those that all keys share, and
// those of its meters. What was taken of the shared ones is known as of the last Table.Totals.
func (q *Queue) appendLimitsLocked(all []limit.Stats, now time.Time) []limit.Stats {
	all = q.own.AppendStats(all, heldByLimit, q.countsLocked().units, now)
	if s := q.common.all; s != nil {
		all = s.limits.AppendStats(all, heldByShared, s.taken, now)
	}
	if q.meters != nil {
		for i, one := range q.meters.each {
			all = one.Limits.AppendStats(all, q.meters.reasons[i], q.meters.takenLocked(i), now)
		}
	}
	return all
}

// tookLocked counts what a call has taken that goes. Most take one unit, and then it is a comparison.
func (q *Queue) tookLocked(cost int) {
	if cost != 1 {
		q.beyond += int64(cost) - 1
	}
}

// inFlightLocked counts the slots held, or without a bound the attempts that are under way.
func (q *Queue) inFlightLocked() int {
	under := q.underLocked()
	if !q.common.slotted() && (under > 0 || q.up.Slotted()) { // a slot for a number that was found is held to the body's end, too
		return max(0, under)
	}
	return int(q.slots)
}

// underLocked counts the attempts that are under way.
// An example: 10 have begun and 4 have ended, 1 rests before its retry, 2 stand in line: 3 are under
// way.
func (q *Queue) underLocked() int {
	n := int(q.begun - q.ended.Load())
	if t := q.troubles.Load(); t != nil {
		n -= int(t.resting.Load())
	}
	if q.line != nil {
		n -= q.line.Len()
	}
	return n
}

// Turned is what an answer has done to the gate of its key, in the words of reason.go.
type Turned struct {
	Reason string        // why the gate is closed, or was; "": the answer has neither closed nor opened it
	Open   bool          // it has opened the gate
	For    time.Duration // closed: until it opens or the next probe is due; opened: how long it was closed
}

// turned compares what was known of the gate before an answer with what is known after it. A closing that has grown
// is not a new one, a brief one is too short to speak of, and one whose time is over is none any more.
//
// An example: at 0 s a 429 with Retry-After: 2 closes the gate, For 2 s; at 0.1 s a second one makes that 2.1 s, which is
// nothing; at 3 s a third one closes it again. Nobody has opened it in between: no answer did.
func turned(before, after upstream.Closing) (t Turned) {
	shut := func(c upstream.Closing) bool { return c.Cause != upstream.Open && !c.Over && !c.Brief }
	switch was, is := shut(before), shut(after); {
	case !was && is:
		return Turned{Reason: upstream.HeldByGate + string(after.Cause), For: after.Left}
	case was && !is:
		return Turned{Reason: upstream.HeldByGate + string(before.Cause), Open: true, For: before.Age}
	}
	return t
}

// MeterStats is a snapshot of a meter; throttle.MeterStats has the words.
type MeterStats struct {
	Name      string
	Available float64
	Limit     rate.Limit
	Held      int64
	Estimate  int64
	Settled   int64
}

// Meters returns a snapshot of each meter. What is held and what is there are not read in one step, because settlements take
// no lock of the queue's.
func (q *Queue) Meters() (all []MeterStats) {
	if q.meters == nil {
		return nil
	}
	now := time.Now()
	for i, one := range q.meters.each {
		s := MeterStats{Name: one.Name, Available: one.Limits.Available(now), Limit: one.Limits.Rate()}
		s.Held, s.Estimate, s.Settled = q.meters.countsOf(i, &q.common.mu)
		all = append(all, s)
	}
	return all
}

// countsOf is how much is held of meter i, how much was held that is settled, and what that has cost.
func (m *Meters) countsOf(i int, mu sync.Locker) (held, estimate, settled int64) {
	mu.Lock()
	defer mu.Unlock()
	e, _ := m.settled(i)
	return m.held[i] - e.held, e.sent(), e.cost()
}
