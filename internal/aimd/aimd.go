// Package aimd is the law by which a bound follows a load: down by a fifth while the load is above its target, up by a tenth
// while it is below and the bound is used. The bound is of calls in flight, or of units a second.
//
// An example: 10 to 100 calls in flight, and a target of 0.5 s. Answers take 0.8 s: the bound is 80 a second later, 64 after
// two, 51 after three. Answers take 0.4 s now, and 48 calls are in flight at once: 56. If only 20 are in flight it stays 51,
// because nobody has tried whether more would do.
package aimd

import (
	"math"
	"time"
)

// Every is the least time between two steps.
const Every = time.Second

// A Law is between which bounds one moves, and which load it wants.
type Law struct {
	Target      float64 // above 0
	Least, Most int     // 1 ≤ Least ≤ Most
}

// The law's figures.
const (
	above = 1.1 // × Target: too much
	below = 0.9 // × Target: there is room
	down  = 1. / 5
	up    = 1. / 10
	full  = 0.8 // of the bound: it is used
)

// Next is the bound after one step. used is how much of the bound was, at most or in the mean. A load that is NaN, negative or
// infinite says nothing.
func Next(l *Law, bound int, used, load float64) int {
	switch by := float64(bound); {
	case !Known(load):
	case load > above*l.Target:
		bound -= max(1, int(math.Round(by*down)))
	case load < below*l.Target && used >= full*by:
		bound += max(1, int(math.Round(by*up)))
	}
	return min(max(bound, l.Least), l.Most)
}

// Known reports whether a load says something.
func Known(load float64) bool { return load >= 0 && !math.IsInf(load, 1) }
