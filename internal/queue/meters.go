package queue

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/meter"
)

// This file is the meters of a key: limits in units of their own, beside the one that is paid by cost. A call takes its cost
// and what it holds of each meter in one step, or nothing (limit.Set.AddPart), and the hold is corrected once its true cost
// is known.
//
// A key without meters has no Meters, and its calls no Holds: it costs them one comparison with nil. What a waiter wants of
// meters is in its extra. What becomes of a hold stands in holds.go.

// A Meter is one limit of a key in a unit of its own.
type Meter struct {
	Name     string
	Limits   *limit.Set // limiters of the library alone
	Failures bool       // an attempt without an answer, or with one that does not count, costs what it held
	Learn    bool       // what calls usually cost is held, and what Set says is the cap
	Streams  bool       // with Learn: the rest is charged while the body passes
}

// Meters are those of a key. They are made with it, and only what is counted in them changes. What the key's calls pay by cost is part of them, because all of it is paid in one step.
type Meters struct {
	each    []Meter
	reasons []string // what a call that waits for one of them is held by
	owner   any
	learns  bool       // one of them does
	all     *limit.Set // what a call pays: its cost, then each meter
	own     *limit.Set // the same without what all keys share
	mirrors []mirror   // of each meter, for the advertised quotas that mirror it
	base    time.Time  // when they were made

	// mu guards what was settled, and learned. It is taken after the queue's lock, or without it, and held for sums alone.
	mu       sync.Mutex
	learners []*meter.Learner // of each meter; nil: it does not learn
	ended    []ended          // of each meter, what holds that were settled come to
	done     int64            // attempts that have settled all
	unsent   int64            // those of them that were not sent

	// The queue's lock guards these. What is held is what was held in all, less what was settled: so a start takes no other lock.
	held    []int64   // of each meter, the units of holds in all
	begun   int64     // attempts that have held
	waiting []int64   // the holds of those that wait
	usual   []float64 // the smoothed holds of those that have gone, with 1/8 of each; 0: none has
}

// An ended is what the holds of one meter come to that were settled, in units. An example: 800 were held and have cost 300,
// 200 were held by a call that was not sent. held is 1,000, off −500, undone 200.
type ended struct {
	held   int64
	off    int64 // what they have cost beyond that; below 0: less than that
	undone int64 // held by attempts that were not sent
}

// sent is what was held by attempts that were sent, and cost what they have cost.
func (e ended) sent() int64 { return e.held - e.undone }
func (e ended) cost() int64 { return e.sent() + e.off }

// count calls f under mu, which changes or reads what was settled: in one step, so that no observer sees a part of it.
func (m *Meters) count(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// settled is what holds of meter i that were settled come to, and how many attempts were sent that have settled all. Both are of one
// moment: a mean of sums and counts of different moments would be off by a call.
func (m *Meters) settled(i int) (e ended, calls int64) {
	m.count(func() { e, calls = m.ended[i], m.done-m.unsent })
	return e, calls
}

// NewMeters makes the meters of a key, whose calls pay all by cost, own being the part that no other key's calls do. owner is
// whatever their user wants to find them by.
func NewMeters(each []Meter, owner any, all, own *limit.Set) *Meters {
	m := &Meters{each: each, owner: owner, ended: make([]ended, len(each)), base: time.Now()}
	m.learners = make([]*meter.Learner, len(each))
	m.mirrors = make([]mirror, len(each))
	for i := range m.mirrors {
		m.mirrors[i].m, m.mirrors[i].i = m, i
	}
	m.held, m.waiting, m.usual = make([]int64, len(each)), make([]int64, len(each)), make([]float64, len(each))
	if m.all = partsOf(all, each); all == own {
		m.own = m.all
	} else {
		m.own = partsOf(own, each)
	}
	for i, one := range each {
		if m.reasons = append(m.reasons, heldByMeter+one.Name); one.Learn {
			m.learners[i], m.learns = new(meter.Learner), true
		}
	}
	return m
}

// partsOf is what a call pays by its cost, and then by each meter.
func partsOf(cost *limit.Set, each []Meter) *limit.Set {
	s := new(limit.Set)
	s.AddPart("", cost)
	for _, one := range each {
		s.AddPart(one.Name, one.Limits)
	}
	return s
}

// Owner is what NewMeters got.
func (m *Meters) Owner() any { return m.owner }

// Find is the place of the meter of that name; -1: there is none. A key has a few of them, so a map would be slower.
func (m *Meters) Find(name string) int {
	return slices.IndexFunc(m.each, func(one Meter) bool { return one.Name == name })
}

// payHoldsLocked is payLocked of a call that asks something of meters, and as that the whole cost of a call that need not wait.
//
// An example: a call asks for 1 request and 300 tokens, and 250 are there. Nothing is taken, a Holds is made of what it asks, and the call
// joins the line with it. If 300 are there, it holds them without one.
func (q *Queue) payHoldsLocked(o *order, now time.Time) bool {
	m, amounts := q.meters, o.asks.amounts[:]
	if h := o.holds; h == nil {
		amounts = amounts[:1+len(m.each)]
	} else if amounts = h.amounts; h.claims != nil {
		h.renewLocked(now)
	}
	if !m.all.PayBy(now, amounts...) {
		return false
	}
	if h := o.holds; h != nil {
		h.startLocked(now)
	} else {
		o.asks.held = true
		m.startLocked(amounts)
	}
	q.up.Start(0, amounts[0], now, now)
	q.tookLocked(amounts[0])
	return true
}

// refund gives n units back to the foreign limiters. The own limiters got theirs under the lock, where other lines that wait for them
// cannot be woken: Set.Wake does that now. No lock is held.
func (q *Queue) refund(n int) {
	q.wake()
	if n > 0 {
		q.limits().RefundForeign(n)
	}
}

// wake notifies those who watch the limiters, after units have come back without a word. No lock is held, because they take
// the lock of their line.
func (q *Queue) wake() {
	q.limits().Wake()
	if q.meters != nil {
		for _, one := range q.meters.each {
			one.Limits.Wake()
		}
	}
}

// freshLocked reports whether all limiters are as new, and no hold is open. A stream may last for longer than it takes a
// bucket to fill: what it turns out to have cost would be lost with the key.
func (q *Queue) freshLocked(now time.Time) bool {
	if q.meters != nil {
		for _, one := range q.meters.each {
			if !one.Limits.Fresh(now) {
				return false
			}
		}
	}
	return q.own.Fresh(now) && (q.meters == nil || q.meters.openLocked() == 0)
}

// openLocked counts the attempts that have not settled all.
func (m *Meters) openLocked() (open int64) {
	m.count(func() { open = m.begun - m.done })
	return open
}

// waitLocked keeps the sums that predictions need: it counts the holds of a call that waits, or, if by is -1, no longer does.
func (m *Meters) waitLocked(h *Holds, by int64) {
	for i, n := range h.amounts[1:] {
		m.waiting[i] += by * int64(n)
	}
	h.waits = by > 0
}

// aheadLocked guesses how much of each meter those hold that go before a call: of all who wait the part that their costs
// are. Example: calls of 10 units and 5,000 tokens in all wait, and 4 of the units go before: 2,000 tokens.
func (q *Queue) aheadLocked(before int64) (held []int64) {
	m := q.meters
	if m == nil || q.line == nil {
		return nil
	}
	share := 1.0
	if all := q.line.Units(); all > 0 {
		share = min(1, float64(before)/float64(all))
	}
	for _, n := range m.waiting {
		held = append(held, int64(math.Ceil(share*float64(n))))
	}
	return held
}

// even reports whether so many calls that wait hold the same of each meter, and as much as h, as far as their sums show.
func (m *Meters) even(h *Holds, calls int) bool {
	for i, n := range m.waiting {
		if each := n / int64(calls); each*int64(calls) != n || h != nil && each != int64(h.Held(i)) {
			return false
		}
	}
	return true
}

// afterLocked is when the meters let a call start that wants h, or the usual if that is nil, behind calls that hold so much
// of each (nil: nobody), and more calls of the usual. It takes each meter to be busy all the time, so the call may start
// later, and never sooner, than it says.
//
// An example: 100 tokens a second with 50 there, 2,000 ahead, and a call that holds 300: (2,000 + 300 − 50)/100 = 22.5 s.
func (m *Meters) afterLocked(from time.Time, h *Holds, held []int64, more int64) time.Time {
	at := from
	for i, one := range m.each {
		n, ahead := int(m.usual[i]), int64(min(float64(more)*m.usual[i], 1<<62))
		if h != nil {
			n = h.Held(i)
		}
		if held != nil {
			ahead += held[i]
		}
		at = limit.Latest(at, one.Limits.After(from, ahead, n))
	}
	return at
}

// takenLocked is how much has been taken of meter i in all: what is held, and what settled holds have cost.
func (m *Meters) takenLocked(i int) int64 {
	e, _ := m.settled(i)
	return m.held[i] - e.held + e.cost()
}
