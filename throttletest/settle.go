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
			c.of(at, c.key).settle(at, x.At, more)
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
		c.done(x.Done, c.key, c.units)
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

// settle is take, of units that may be negative: a bucket is never fuller than its burst.
func (b *bucket) settle(at, _ time.Duration, n int) { b.take(at, n) }

// settle gives back to the window that has been charged. If that is over nobody asks about it any more. More is charged to
// the window of now.
//
// An example of a Fixed limit of a minute: 500 units were held at 50 s, and 200 were used at 70 s. The window of 0 to 60 s is over,
// so nothing changes. If 700 were used, 200 are charged to the window of 60 to 120 s.
func (w *window) settle(at, charged time.Duration, n int) {
	w.turn(at)
	switch {
	case n > 0:
		w.take(at, n)
	case charged >= w.began:
		w.now = max(0, w.now+n)
	case charged >= w.began-w.per && w.slides:
		w.before = max(0, w.before+n)
	}
}

// settle gives back what still counts of the moment of the charge. More counts from now on.
//
// An example: 500 units stand in the log at 50 s. At 70 s 200 were used: the entry becomes 200 and leaves the log at 110 s, as
// before.
func (s *sliding) settle(at, charged time.Duration, n int) {
	if n > 0 {
		s.take(at, n)
		return
	}
	s.turn(at)
	for i := range s.log {
		if e := &s.log[i]; e.at == charged && n < 0 {
			back := min(e.n, -n)
			e.n, s.used, n = e.n-back, s.used-back, n+back
		}
	}
}

// settle does nothing: what is at work is counted by itself.
func (f *flight) settle(_, _ time.Duration, _ int) {}

// Charged is how many units a Limit with an index has charged for the requests whose work was done at from and later, and before
// to. Divided by what the limit allows in that time it is the limit's use, if the calls are as long all the time.
//
// An example: 1,000 calls of 30 s were done within 10 minutes, at 120 tokens each. Charged is 120,000; of a limit of
// 15,000 a minute that is 80 %.
func (l Ledger) Charged(limit int, from, to time.Duration) (units int) {
	for i := range l {
		if a := &l[i]; a.Verdict == Admitted && from <= a.Done && a.Done < to {
			units += a.Units[limit]
		}
	}
	return units
}
