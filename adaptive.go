package throttle

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/aimd"
	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/load"
	"github.com/go-throttle/throttle/internal/queue"
)

// An Adaptive is a limit that follows a signal of yours: a bound of the calls in flight, a rate ([Adaptive.Rate]), or the size of
// a pool of your own ([Adaptive.Bound]). It begins at Most, so the other side has to bear that for some seconds. While Load is
// above 1.1 times Target the limit goes down by a fifth each second. While Load is below 0.9 times Target, and 80 % of the limit
// are used, it goes up by a tenth each second. It moves by 1 at least, and never beyond Least and Most.
//
//	db := throttle.NewQueue(nil, throttle.QueueOptions{
//		InFlight: &throttle.Adaptive{Target: 0.2, Least: 4, Most: 64}, // nine of ten within 0.2 s
//	})
//	err := db.Do(ctx, query) // or the tasks of a Group; Wait takes no slot, so nothing bounds it
//
// Whoever arrives asks Load, and so does the timer of a line in which calls wait: there is no goroutine. The fields must not be
// changed after the first use, and an Adaptive must not be copied. It is safe for concurrent use, and several queues may have the
// same one: each of them, and each key of a Transport, has a limit of its own that follows the one signal.
type Adaptive struct {
	// Load says how high the load is, in any unit. nil: nine of ten calls are to be answered within Target, in seconds, and the
	// limit moves each second, or each 2.2 times Target if that is longer. Load is asked at most once a second, by one goroutine
	// at a time and without a lock. One that blocks holds the call that asks, and the limit stays: let it return a number that a
	// goroutine of yours keeps up to date. NaN, a negative or infinite load, and a panic say nothing, and the limit stays.
	Load func() float64

	// Target is the load that is wanted, in the unit of Load; above 0. For response times name what your callers need, and not
	// what the other side takes when it is well.
	Target float64

	// Least and Most are the ends between which the limit moves: calls in flight, or units a second. Least 0: 1.
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

// Bound returns how many may be in flight now, for a limit of your own, such as the size of a pool. Call it whenever something
// begins or ends, without a lock, because it may ask Load. inFlight is how many are in flight, the caller's own included; took is
// how long that has taken which ends now, 1 ns at least; 0: it begins. All callers of Bound share one limit. Bound panics if a field has an
// impossible value.
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
	switch now := time.Now(); {
	case a.Load != nil:
		a.bound.Follow(r.Load, r.N, inFlight, now)
	case took > 0:
		a.bound.End(now.Add(-took), now, true)
		a.bound.FollowTimes(inFlight, now)
	default:
		a.bound.FollowTimes(inFlight, now)
		a.bound.Begin(now)
	}
	return a.bound.Now()
}

// limits are what the law wants to know. Half of the largest int is bound enough, and the next step above it is an int, too.
func (a *Adaptive) limits() *aimd.Law {
	const most = math.MaxInt / 2
	return &aimd.Law{Target: a.Target, Least: min(max(1, a.Least), most), Most: min(a.Most, most)}
}

// look asks Load if it is due.
func (a *Adaptive) look() load.Reading {
	if a.Load == nil {
		return load.Reading{}
	}
	return a.source.Look(a.Load, aimd.Every)
}

// follow is what a line makes its bounds of.
func (a *Adaptive) follow() *queue.Following {
	switch {
	case a == nil || a.check("") != nil: // which Transport.setup reports
		return nil
	case a.Load == nil:
		return queue.Follow(a.limits(), nil)
	}
	return queue.Follow(a.limits(), func() (load float64, n uint64) {
		r := a.look()
		return r.Load, r.N
	})
}

// Rate returns a token bucket of that burst whose rate, in units a second, follows Load between Least and Most, for use wherever a
// [Limiter] is needed. Load is asked in a timer's goroutine while units are taken or waited for, so it delays nobody. Each call of
// Rate returns a bucket with a rate of its own. It panics if Load is nil, because a limiter sees no response times, if a field has
// an impossible value, or if burst is below 1.
func (a *Adaptive) Rate(burst int) Limiter {
	if err := a.check("Adaptive"); err != nil {
		panic(err)
	}
	if a.Load == nil {
		panic("throttle: Adaptive.Rate: Load is nil, and a limiter sees no response times")
	}
	r := &adaptiveRate{of: a, law: a.limits()}
	r.bucket.Init(rate.Limit(r.law.Most), burst, aimd.Every, r.look)
	return r
}

// adaptiveRate is the Limiter that Rate returns.
type adaptiveRate struct {
	of     *Adaptive
	law    *aimd.Law
	bucket limit.Moving
	n      uint64 // of the last reading; of the one look that is under way
}

// look moves the rate. The bucket makes one call at a time.
func (r *adaptiveRate) look() {
	var now load.Reading
	defer func() { // also if Load has ended the goroutine
		r.bucket.Step(func(is rate.Limit, used float64) (rate.Limit, bool) {
			if now.N == r.n {
				return is, false
			}
			r.n = now.N
			return rate.Limit(aimd.Next(r.law, int(is), used, now.Load)), true
		})
	}()
	now = r.of.look()
}

// Take implements [Limiter]; ctx is not used.
func (r *adaptiveRate) Take(_ context.Context, n int) (wait time.Duration, err error) {
	return limit.TakeNow(&r.bucket, n)
}

// Adjust implements [Adjuster], as [Bucket.Adjust] does.
func (r *adaptiveRate) Adjust(n int) { r.bucket.Adjust(n) }

// Notify implements [Notifier].
func (r *adaptiveRate) Notify(changed func()) (stop func()) { return r.bucket.Notify(changed) }

// String returns the limit of now as [ParseLimit] reads it.
func (r *adaptiveRate) String() string { return r.bucket.String() }

// CPU returns a Load: the CPU time that this process uses, as a share of its quota or, without one, of all its cores (GOMAXPROCS),
// since it was last asked or for at least 0.1 s, before which it is NaN. A Target of 0.7 leaves the rest for others. High use is not
// overload: a server that sheds requests by it sheds those that it could have served. NaN, which says nothing, where the system
// does not tell.
func CPU() func() float64 {
	var mu sync.Mutex
	reader, asked, last := load.New(), time.Now(), math.NaN()
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); now.Sub(asked) >= 100*time.Millisecond {
			asked, last = now, reader.Use(now).CPU
		}
		return last
	}
}
