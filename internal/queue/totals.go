package queue

import (
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/upstream"
)

// This file sums up all keys, those included that the table has dropped. A key's counts are added to Table.gone in the
// critical section that drops it, and nobody counts in a dropped queue any more but a late report of a body. So a sum
// that is begun with gone and the list of the keys, read in one step, has each call once, even if keys are dropped before
// the sum has come to them: their queues still have their last counts.
//
// Example: 10,000 keys, and one is dropped in between. It was on the list, and not yet in gone.

// together is how many keys are read in one critical section: some microseconds, so that calls pass in between.
const together = 64

// counts are what only grows, but for starts that are undone.
type counts struct {
	sent, throttled, retried, refused uint64
	units                             int64 // that attempts have taken by their cost
}

// countsLocked are those of a queue.
func (q *Queue) countsLocked() counts {
	sent, throttled := q.up.Counts()
	had := q.troubled()
	return counts{sent, throttled, had.retried, had.refused, int64(sent) + q.beyond}
}

// add adds those of another queue.
func (c *counts) add(other counts) {
	c.sent, c.throttled = c.sent+other.sent, c.throttled+other.throttled
	c.retried, c.refused = c.retried+other.retried, c.refused+other.refused
	c.units += other.units
}

// Totals are the sums of all keys. Tokens and Limit are those of the limiters that all keys share, and the closing is a
// pause of all keys.
func (t *Table) Totals() Stats {
	s := Stats{Tokens: float64(rate.Inf), Limit: rate.Inf}
	all, sum := t.listed()
	for some := range slices.Chunk(all, together) {
		t.sumUp(some, &sum, &s)
	}
	s.Sent, s.Throttled, s.Retried, s.Refused = sum.sent, sum.throttled, sum.retried, sum.refused
	t.common.mu.Lock()
	defer t.common.mu.Unlock()
	now := time.Now()
	if shared := t.common.all; shared != nil {
		s.Tokens, s.Limit = shared.limits.Available(now), shared.limits.Rate()
		shared.taken = sum.units
	}
	if p := t.common.pause; p != nil && p.until.After(now) {
		s.Reason, s.ClosedFor = upstream.HeldByGate+string(upstream.ForPause), p.until.Sub(now)
	}
	return s
}

// listed returns the queues of all keys, and the counts of those that were dropped.
func (t *Table) listed() (all []*Queue, gone counts) {
	t.common.mu.Lock()
	defer t.common.mu.Unlock()
	all = make([]*Queue, len(t.order))
	for i, e := range t.order {
		all[i] = &e.queue
	}
	return all, t.gone
}

// sumUp adds some queues.
func (t *Table) sumUp(some []*Queue, sum *counts, s *Stats) {
	t.common.mu.Lock()
	defer t.common.mu.Unlock()
	for _, q := range some {
		sum.add(q.countsLocked())
		s.InFlight += q.inFlightLocked()
		if q.line == nil {
			continue
		}
		s.Waiting += q.line.Len()
		if oldest := q.oldestLocked(); s.Oldest.IsZero() || oldest.Before(s.Oldest) {
			s.Oldest = oldest
		}
	}
}

// Shown returns the queue of key as observers want it, or nil: what was taken of the limits that all keys share is summed up
// first.
func (t *Table) Shown(key string) *Queue {
	t.noteShared()
	return t.Get(key)
}

// All returns the queues of all keys, as Shown does.
func (t *Table) All() []*Queue {
	t.noteShared()
	all, _ := t.listed()
	return all
}

// noteShared sums up what was taken of the limits that all keys share, if there are any.
func (t *Table) noteShared() {
	if s := t.common.all; s != nil && s.limits.Own() > 0 {
		t.Totals()
	}
}
