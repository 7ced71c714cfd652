//go:build throttle_invariants

package gate

import (
	"fmt"
	"time"
)

// This file checks that a Gate is sound. It is part of builds with the tag throttle_invariants alone,
// which are for tests; in all others invariants_off.go stands in its place.

func broken(format string, args ...any) {
	panic("throttle: invariant broken: " + fmt.Sprintf(format, args...))
}

// Check panics if what is counted does not agree with the number of attempts that are under way.
func (g *Gate) Check(inFlight int) {
	b := g.breaker
	if b == nil {
		return
	}
	if n := int(b.inFlight); b.mode >= slowStart && (n < 0 || n > inFlight || n > int(b.allowed) && b.mode == slowStart) {
		broken("the reopening counts %d attempts; it allows %d, and %d are under way", n, b.allowed, inFlight)
	}
	if b.cause != Open && b.probing && b.probeOut && inFlight == 0 {
		broken("the gate waits for the answer to a probe, and no attempt is under way: %+v", *b)
	}
}

// MayStart reports whether the gate lets a call go at now. It says in its own words what Ready computes, and must agree with it.
func (g *Gate) MayStart(now time.Time) bool {
	b := g.breaker
	switch {
	case b == nil:
		return true
	case b.cause != Open: // it is over, or a probe is due
		return !b.until.After(now)
	case b.mode == paced:
		return !b.next.After(now)
	case b.mode >= slowStart && b.inFlight >= b.allowed:
		return b.mode == meeting && !b.firstUntil.After(now)
	}
	return true
}

// checkStart is called when a call starts.
func (g *Gate) checkStart(now time.Time) {
	if b := g.breaker; b != nil && b.cause != Open && (!b.probing || b.until.After(now)) {
		broken("a call starts behind a closed gate and is not the probe, or another one is out: %+v", *b)
	}
}

// checkAnswer is called when an answer was taken in; before that the epoch was so and so. current: the
// attempt had started in it.
func (g *Gate) checkAnswer(before uint32, current bool) {
	if n := g.epoch - before; n > 1 || n == 1 && !current {
		broken("one answer takes the gate from epoch %d to %d; it is stale: %v", before, g.epoch, !current)
	}
}
