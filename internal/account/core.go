// Package account keeps the accounts of the limiters: when units may be taken, and what happens to
// those that are given back. An account says when and never waits; the root's Bucket, Leaky,
// FixedWindow and SlidingWindow are each a thin cover of one.
//
// A [Set] is several accounts, and limiters of other kinds, that a call pays together: all or none.
//
// Each account has one lock, in its core. Where several are needed they are locked in the order of
// a random rank. Moments are given by the caller, and a clock that is behind an account's is lifted.
package account

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/moment"
)

// An Account is what stands behind a limiter of the library: it says what may start, and when.
// Everything below core is called with that core's lock held; Adjust and Notify take it themselves.
type Account interface {
	adjusts
	notifies
	core() *core
	// check returns why n units can never be taken: n is negative, the limit 0, or the surplus over
	// burst or window takes more than maxSurplus. nil: they can.
	check(n int) error
	// consume takes n units as of at, there or not. A caller whose units must be there has asked
	// after under the same lock; what is not there becomes a debt.
	consume(at time.Time, n int)
	// takeBy is check, after and consume in one: if n units were ready at a moment from at to now it takes
	// them as of that moment. It returns a moment not after now if it took, else the one to ask again.
	takeBy(at, now time.Time, n int) (time.Time, error)
	// giveBack undoes an unused take of n units as of at; a unit whose window has ended by now is not given again.
	giveBack(at, now time.Time, n int)
	// after predicts when a call of n units, which check has passed, starts if, from the moment from
	// on, ahead units go first. A clock ahead of from lifts it. With nobody ahead it is the earliest
	// moment at which n units may start; they may at any later one too. What can never be paid starts
	// after Forever, and delays nobody who wants no units: it is refused as soon as it is the head.
	after(from time.Time, ahead int64, n int) time.Time
	// rate is the long-run rate, rate.Inf if there is none.
	rate() rate.Limit
	// available returns the units that could be taken at now: negative under a debt, float64(rate.Inf) without limit.
	available(now time.Time) float64
	// fresh reports whether the limiter behaves as one just made, and no setter was ever called.
	fresh(now time.Time) bool
	// spent is what must be earned back before the account is as new; spend makes that no less than s.
	spent(now time.Time) Spent
	spend(now time.Time, s Spent)
}

// What a limiter may be able to do; the library's users know these as Limiter, Adjuster and Notifier.
type (
	takes interface {
		Take(ctx context.Context, n int) (wait time.Duration, err error)
	}
	adjusts  interface{ Adjust(n int) }
	notifies interface {
		Notify(changed func()) (stop func())
	}
)

const (
	// maxSurplus bounds what a single cost may block beyond its burst or window; more is an error.
	maxSurplus = time.Hour
	// Forever stands for waits that cannot be told: 146 years, so that sums do not overflow.
	Forever = time.Duration(1 << 62)
)

// core is the part that every account has: 48 bytes, so that a Bucket has 80.
type core struct {
	mu       sync.Mutex
	rank     [6]byte          // the one order in which Sets lock their accounts; zero until it first joins one
	changed  bool             // a setter was called: not fresh any more
	last     time.Time        // the latest moment seen; never goes back
	watchers map[*func()]bool // who is told of changes; nil while nobody sleeps
}

// drawRank sees to it that there is a rank. It never changes again, so whoever has called this may read
// the rank without the lock. Random instead of counted, because a counter would be package state; drawn
// here instead of by a constructor, because zero values need one too.
func (c *core) drawRank() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.rank == [6]byte{} {
		for i, bits := 0, rand.Uint64(); i < len(c.rank); i, bits = i+1, bits>>8 {
			c.rank[i] = byte(bits)
		}
	}
}

// lift returns at, or the limiter's own clock if that is ahead. Clocks are read before locks are
// won, so moments can arrive out of order; an interval counted twice would be units made of nothing.
func (c *core) lift(at time.Time) time.Time { return moment.Latest(at, c.last) }

// notify adds changed to those who are told; it stands behind every account's Notify.
func (c *core) notify(changed func()) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers == nil {
		c.watchers = map[*func()]bool{}
	}
	c.watchers[&changed] = true
	return func() { c.forget(&changed) }
}

func (c *core) forget(changed *func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.watchers, changed); len(c.watchers) == 0 {
		c.watchers = nil
	}
}

// change does what f does under the lock, then tells the sleeping lines without it.
func (c *core) change(f func(now time.Time)) {
	for _, changed := range c.changeLocked(f) {
		changed()
	}
}

// changeLocked returns whom to tell.
func (c *core) changeLocked(f func(now time.Time)) (tell []func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.lift(time.Now())
	f(now)
	c.last = now
	for changed := range c.watchers {
		tell = append(tell, *changed)
	}
	return tell
}

// TakeNow is Take of each kind: the clock is read inside the lock.
func TakeNow(o Account, n int) (wait time.Duration, err error) {
	c := o.core()
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.lift(time.Now())
	m, err := o.takeBy(now, now, n)
	if err != nil {
		return 0, err
	}
	return m.Sub(now), nil
}

// takeReady is takeBy by way of check, after and consume. A now behind the limiter's clock is lifted, else a
// caller who lost the race for the lock would wait for nanoseconds; the answer is cut to its now.
func takeReady(o Account, at, now time.Time, n int) (time.Time, error) {
	if err := o.check(n); err != nil {
		return at, err
	}
	m := o.after(at, 0, n)
	if m.After(o.core().lift(now)) {
		return m, nil
	}
	o.consume(m, n)
	return moment.Earliest(m, now), nil
}

// errNegative is every limiter's answer to a negative cost.
func errNegative(n int) error { return fmt.Errorf("throttle: cost %d is negative", n) }
