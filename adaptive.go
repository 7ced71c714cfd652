package throttle

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/go-throttle/throttle/internal/aimd"
	"github.com/go-throttle/throttle/internal/load"
)

// An Adaptive is a limit that follows a signal of yours: a bound of the calls in flight, or a rate. It begins at Most. While
// Load is above 1.1 times Target the limit goes down by a fifth each second, and while Load is below 0.9 times Target it goes up by a
// tenth each second, as long as 80 % of it are used; by 1 at least, and never outside Least and Most.
//
//	db := throttle.NewQueue(nil, throttle.QueueOptions{
//		InFlight: &throttle.Adaptive{Target: 0.2, Least: 4, Most: 64}, // seconds
//	})
//
// Whoever arrives or ends comes by and asks Load: there is no goroutine. The fields must not be changed after the first use, and an
// Adaptive must not be copied. It is safe for concurrent use, and several queues may have the same one: each of them, and
// each key of a Transport, has a limit of its own that follows the one signal.
type Adaptive struct {
	// Load says how high the load is, in any unit; nil: response times of the calls, in seconds, of which nine of ten are to be
	// within Target: then a step is taken each second, or after 2.2 times Target if that is longer. Load is
	// asked at most once a second, by one goroutine at a time and without a lock. One that blocks holds the call that asks,
	// and the limit; so let it read what is known already. NaN, an infinite or negative load, and a panic say nothing: the
	// limit stays as it is.
	Load func() float64

	// Target is the load that is wanted, in the unit of Load; above 0. For a response time name what your callers need, with a
	// margin, and not what the other side needs when it is well.
	Target float64

	// Least and Most are between which bounds the limit moves: calls in flight, or units a second. Least 0: 1.
	Least, Most int

	source load.Source
	mu     sync.Mutex
	bound  *aimd.Bound // of Bound, guarded by mu
}

// check returns an error for the first field with an impossible value. name is what a is of.
func (a *Adaptive) check(name string) error {
	switch {
	case a == nil:
		return nil
	case !(a.Target > 0) || math.IsInf(a.Target, 1):
		return fmt.Errorf("throttle: %s.Target is %v, must be above 0 and finite", name, a.Target)
	case a.Least < 0:
		return fmt.Errorf("throttle: %s.Least is %d, must not be negative", name, a.Least)
	case a.Most < max(1, a.Least):
		return fmt.Errorf("throttle: %s.Most is %d, must be at least 1 and Least, which is %d", name, a.Most, a.Least)
	}
	return nil
}

// Bound returns how many may be in flight now, for a limit of your own, such as a pool's size: call it whenever something begins
// or ends. inFlight is how many are in flight, the caller's included; took is how long it was that has ended now, 0: it begins.
// Such an Adaptive has one bound for all who call Bound. It may ask Load, so hold no lock. Bound panics if a
// field has an impossible value.
func (a *Adaptive) Bound(inFlight int, took time.Duration) int {
	if err := a.check("Adaptive"); err != nil {
		panic(err)
	}
	r := a.look()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bound == nil {
		a.bound = new(aimd.Bound)
		a.bound.Init(a.limits())
	}
	now := time.Now()
	switch {
	case a.Load != nil:
		a.bound.Follow(r.Load, r.N, inFlight, now)
		return a.bound.Now()
	case took > 0:
		a.bound.End(now.Add(-took), now, true)
	default:
		a.bound.Begin(now)
	}
	a.bound.FollowTimes(inFlight, now)
	return a.bound.Now()
}

// limits are what the law wants to know.
func (a *Adaptive) limits() *aimd.Law {
	return &aimd.Law{Target: a.Target, Least: max(1, a.Least), Most: a.Most}
}

// look asks Load if it is due.
func (a *Adaptive) look() load.Reading {
	if a.Load == nil {
		return load.Reading{}
	}
	return a.source.Look(a.Load, aimd.Every)
}
