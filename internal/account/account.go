// Package account counts what has been used of a limit, as an upstream does that has it. It is for a simulated upstream,
// and for those who know all about one.
package account

import (
	"cmp"
	"math"
	"time"
)

// Number is the key of a request's number, a *uint64, in the context of the request that a simulated upstream asks its functions
// about. The n-th that has come has number n.
type Number struct{}

// A Kind is how a Limit counts.
type Kind string

// The kinds of limits.
const (
	Bucket         Kind = "bucket"          // N units per Per, evenly, and up to Burst at once
	Fixed          Kind = "fixed"           // N units in each window; windows begin at Phase, Phase + Per and so on
	FixedFirst     Kind = "fixed-first"     // N units in each window; one begins with the first unit after the last one
	Sliding        Kind = "sliding"         // N units in any stretch of Per
	SlidingCounter Kind = "sliding-counter" // an estimate of Sliding by two counts
	InFlight       Kind = "in-flight"       // N units at work at once
)

// A Limit is what an Account is of. Its fields must not be negative.
type Limit struct {
	Kind    Kind          // "": Bucket
	N       int           // units per Per; 0 admits nothing
	Per     time.Duration // 0: one second; unused by InFlight
	Burst   int           // of a Bucket, units at once; 0: N
	Phase   time.Duration // of Fixed and SlidingCounter, when a window begins
	Changes []Change      // of N, in order of time
}

// A Change gives a Limit another N from a moment on.
type Change struct {
	At time.Duration
	N  int
}

// A State is what a limit knows of itself at a moment.
type State struct {
	Limit, Remaining int           // units; Limit is a Bucket's Burst
	Window           time.Duration // of a Bucket: in which its Burst comes back; 0: there is none
	Reset            time.Duration // until the window ends, a Bucket is full, or the oldest unit of a Sliding limit leaves
}

// Never is a moment that does not come: when units are free that never will be.
const Never = time.Duration(math.MaxInt64)

// An Account is what has been used of a Limit. Its moments must come in order of time. It is not safe for concurrent use.
//
// An example: Limit{N: 10} begins with 10 units, so ten calls of Take(0, 1) leave none, and Ready(0, 1) is
// 100 ms. A scheduler that knows the limit waits until Ready, and takes. What it needs for 100 units, 9
// s, is the time that no client can beat.
type Account struct {
	limit Limit
	laws  map[string]Law // by key
}

// A Law is how one key of a Limit is counted.
type Law interface {
	// Ready is the first moment, at or later, at which n units are free if nobody else comes and the limit does not change;
	// Never if there is none. An InFlight limit says at or Never, because it cannot know when work will be done.
	Ready(at time.Duration, n int) time.Duration
	Take(at time.Duration, n int)            // charges n units, whether they are free or not
	Settle(at, charged time.Duration, n int) // charges n units more, or -n less, for what was charged at that moment
	State(at time.Duration) State

	set(at time.Duration, n int) // from now on the limit is n
}

// New returns an account that has not been used.
func New(l Limit) *Account {
	l.Per, l.Burst = cmp.Or(l.Per, time.Second), cmp.Or(l.Burst, l.N)
	return &Account{l, make(map[string]Law)}
}

// Done ends the work on n units of a key of an InFlight limit, which are free from then on. Other limits have no use for it.
func (a *Account) Done(at time.Duration, key string, n int) {
	if f, ok := a.Of(at, key).(*flight); ok {
		f.flying -= n
	}
}

// Of returns the law of a key, after the changes that are due.
//
// Changes take effect at their own moment, even if nobody comes until much later. An example: N is 10
// and becomes 5 at 60 s. Somebody who comes at 62 s finds the 2 s since then counted at 5/s.
func (a *Account) Of(at time.Duration, key string) Law {
	for c := &a.limit.Changes; len(*c) > 0 && (*c)[0].At <= at; *c = (*c)[1:] {
		a.limit.N = (*c)[0].N
		for _, l := range a.laws {
			l.set((*c)[0].At, a.limit.N)
		}
	}
	l, ok := a.laws[key]
	if !ok {
		l = a.limit.law()
		a.laws[key] = l
	}
	return l
}

// law returns a fresh law. The limit must have its defaults.
func (l Limit) law() Law {
	switch l.Kind {
	case Fixed, FixedFirst, SlidingCounter:
		// A window ago, so that turn finds the first one: with Phase 70 s and Per 60 s, windows begin
		// at -50 s, 10 s, 70 s and so on. A FixedFirst window is over at once, and the first request
		// begins the next.
		began := l.Phase%l.Per - l.Per
		return &window{n: l.N, per: l.Per, began: began, first: l.Kind == FixedFirst, slides: l.Kind == SlidingCounter}
	case Sliding:
		return &sliding{n: l.N, per: l.Per}
	case InFlight:
		return &flight{n: l.N}
	}
	b := &bucket{per: l.Per, burst: l.Burst}
	b.set(0, l.N)
	return b
}
