package throttletest

import (
	"slices"
	"time"
)

// This file is about limits with a Settle: what a request costs them is known only when its Work is done.
//
// An example, calls of 10 s that hold 500 units and cost 200 in the end:
//
//	Settle             500 at the arrival, and 300 come back 10 s later
//	Settle, Cost 0     nothing at the arrival, and 200 at 10 s, whether they are there or not
//	the same, Streams  20 in each second of the 10
//
// What is charged above the limit is a debt: nothing more is admitted until it has been worked off.

// streamStep is the longest that is streamed without being charged.
const streamStep = time.Second / 4

// settles reports whether the charge is corrected when the work is done.
func (c charge) settles() bool { return c.limit.Settle != nil && c.limit.Kind != InFlight }

// wants is how many units must be free for the request to be admitted. A limit that holds nothing of what it will
// charge later admits a request while one unit is free.
func (c charge) wants() int {
	if c.settles() {
		return max(1, c.units)
	}
	return c.units
}

// due is by how much the charge is to be corrected in all until a moment of the work. An example: 300 units in 10 s, after
// 2.5 s: 75.
func (c charge) due(at time.Duration, a *Arrival) int {
	switch more := c.final - c.units; {
	case at >= a.Done:
		return more
	case c.limit.Streams:
		return int(float64(more) * float64(at-a.At) / float64(a.Done-a.At))
	}
	return 0
}

// correctLocked brings what x has been charged up to a moment. The Ledger's copies share Units, so what changes is a new
// slice.
func (x *exchange) correctLocked(at time.Duration) {
	for i := range x.charges {
		c := &x.charges[i]
		if !c.settles() {
			continue
		}
		if more := c.due(at, x.Arrival) - c.corrected; more != 0 {
			c.corrected += more
			c.Of(at, c.key).Settle(at, x.At, more)
			x.Units = slices.Clone(x.Units)
			x.Units[c.index] += more
		}
	}
}

// workLocked notes that x is at work, if the end of its work changes something. Only what is charged meanwhile is looked at
// with each event, so limits without Streams cost nothing here.
func (s *Server) workLocked(x *exchange) {
	x.atWork = true
	s.pushLocked(x, x.Done)
	if slices.ContainsFunc(x.charges, func(c charge) bool { return c.settles() && c.limit.Streams }) {
		s.streams = append(s.streams, x)
	}
}

// doneLocked ends the work of x. All of its charges are right from here on.
//
// An example: of 200 tokens in 3 parts of a stream 133 were charged at the last event. The 67 that are missing are charged now.
func (s *Server) doneLocked(x *exchange) {
	x.correctLocked(x.Done)
	s.streams = slices.DeleteFunc(s.streams, func(y *exchange) bool { return x == y })
	for _, c := range x.charges {
		c.Done(x.Done, c.key, c.units)
	}
}

// streamLocked charges what has been streamed until a moment. It comes before each event, so whoever is judged then finds the
// limits as they are.
//
// An example: 64 streams of 30 tokens a second each, and a request that arrives half a second after the last event: 960 tokens
// are charged first.
//
// If nothing has happened for long it goes in steps, because a bucket that is charged late has been full meanwhile and has earned
// nothing.
func (s *Server) streamLocked(at time.Duration) {
	if len(s.streams) == 0 {
		s.streamed = at
	}
	for s.streamed < at {
		s.streamed = min(at, s.streamed+streamStep)
		for _, x := range s.streams {
			x.correctLocked(s.streamed)
		}
	}
}
