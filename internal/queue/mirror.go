package queue

import (
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/upstream"
)

// This file is about advertised quotas that mirror a meter, as what remains of "tokens" does the meter "tokens". A quota counts calls
// since it was advertised last, and others who draw on the same limit, but does not know what a call costs. The meter does.
//
// # What is counted where
//
//	held by calls in flight    in the meter; in the quota only what has started after the attempt whose answer advertised it, because
//	                           what others hold, and we before, is in what remains
//	taken by others            in the quota alone
//	the cost of the next call  in the meter what it holds; in the quota what calls have cost in the end, so that it is not spaced
//	                           as if nothing came back
//	what comes back            in both, if the upstream holds what the meter does, see meter.go of package quota. A meter
//	                           that learns holds something else, so its quota does not count that
//
// Example: 60,000 a minute, and calls that hold 1,000 and cost 600. An answer says that 20,000 remain, and 3 calls have started since:
// 20,000 − 3·600 are 18,200. Another 25 are in flight that started before; theirs has been subtracted by the upstream.
//
// # Races
//
// An answer is observed under the queue's lock. What was settled is read without a step that settles: a call that ends at the same
// moment counts in the next answer.

// settledCalls is how many attempts must be settled before what they cost says more than what they held.
const settledCalls = 8

// How a meter fits a quota.
const (
	byPart = 1 + iota // it counts a part of what the quota does: Anthropic's "tokens" stands for the tighter one of "input-tokens" and "output-tokens"
	byUnit            // its name is the quota's unit
	byName
)

// counterOf is the meter that an advertised quota mirrors; nil: none. It is not allocated.
func (m *Meters) counterOf(quota *hint.Quota) upstream.Counter {
	switch i, fit := m.mirrorOf(quota); fit {
	case 0:
		return nil
	case byPart:
		return partMirror{&m.mirrors[i]}
	default:
		return &m.mirrors[i]
	}
}

// A mirror is a meter as an advertised quota sees it. Its methods but come are called under the queue's lock.
type mirror struct {
	m    *Meters
	i    int          // of the meter
	turn atomic.Int64 // when a window of the quota began last, since Meters.base
	late atomic.Int64 // units that came back although they were held before that: the upstream has not given them back
}

// Cost is what an attempt that was sent costs on average. Before any has ended it is what attempts hold.
func (m *mirror) Cost() float64 { return m.m.meanLocked(m.i) }

// Hold is what attempts hold, smoothed: those that hold more may go a little early, and the meter itself holds them back.
func (m *mirror) Hold() float64 { return m.m.usual[m.i] }

// Holds: a meter that learns holds less than the upstream counts later, or more.
func (m *mirror) Holds() bool { return !m.m.each[m.i].Learn }

// Units counts all that was held, also by attempts that were not sent: theirs has come back.
func (m *mirror) Units() (held, back float64) {
	e, _ := m.m.settled(m.i)
	return float64(m.m.held[m.i]), float64(e.undone - e.off - m.late.Load())
}

// Turn is called with the beginning of each window. Where several quotas mirror the meter the latest window counts, so that less comes
// back in the longer ones until an answer says otherwise.
func (m *mirror) Turn(t time.Time) { m.turn.Store(int64(t.Sub(m.m.base))) }

// come notes that an attempt has cost so much less than it held since taken.
func (m *mirror) come(less int, taken time.Time) {
	if less > 0 && int64(taken.Sub(m.m.base)) < m.turn.Load() {
		m.late.Add(int64(less))
	}
}

// A partMirror is a meter that counts a part of what a quota does, so it does not know when the quota is charged.
type partMirror struct{ *mirror }

func (partMirror) Holds() bool { return false }

// mirrorOf is the meter that fits a quota best, of several the first; fit 0: none does. A quota of requests is counted by calls, whatever
// meters there are.
//
// An example: the meters are "input-tokens" and "output-tokens". A quota of the unit "output-tokens" fits the second by its unit, and
// one of "tokens" the first as a part. A quota named "output-tokens" of the unit "tokens" fits the second by its name.
func (m *Meters) mirrorOf(quota *hint.Quota) (best, fit int) {
	if quota.Unit == "" || quota.Unit == "requests" || quota.Unit == "request" {
		return 0, 0
	}
	for i := range m.each {
		its := 0
		switch name := m.each[i].Name; {
		case m.each[i].Limits.Rate() == rate.Inf: // it holds nothing back
		case name == quota.Name:
			its = byName
		case name == quota.Unit:
			its = byUnit
		case strings.HasSuffix(name, "-"+quota.Unit):
			its = byPart
		}
		if its > fit {
			best, fit = i, its
		}
	}
	return best, fit
}

// Limiters visits those that the call pays and that users know by more than their account, the shared ones of a fleet and
// those of other kinds, with what they may hear of what an answer has said. Those of a meter hear of the quotas that mirror it, whose unit
// is their own and so not named, and of times not to send. No lock is held: what a queue's calls pay never changes.
//
// Example: an answer advertises 40 requests and 9,000 tokens. The limiter of the requests hears of both, that of the meter "tokens" of
// 9,000 units.
func (c *Call) Limiters(said hint.Hint, visit func(l any, said hint.Hint)) {
	c.entry.queue.limits().Each(func(l any) { visit(l, said) })
	if c.meters == nil {
		return
	}
	for i, one := range c.meters.each {
		own := said
		own.Quotas = nil
		for _, quota := range said.Quotas {
			if k, fit := c.meters.mirrorOf(&quota); k == i && fit >= byUnit {
				quota.Unit = ""
				own.Quotas = append(own.Quotas, quota)
			}
		}
		if own.Throttled || own.RetryAfter > 0 || own.Quotas != nil {
			one.Limits.Each(func(l any) { visit(l, own) })
		}
	}
}

// meanLocked is what an attempt that was sent has cost of meter i on average.
func (m *Meters) meanLocked(i int) float64 {
	if e, n := m.settled(i); n >= settledCalls {
		return float64(e.cost()) / float64(n)
	}
	return m.usual[i]
}
