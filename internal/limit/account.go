package limit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// An Account is what stands behind a limiter of the library. Notify takes its lock.
type Account interface {
	notifier
	// Parts returns the lock, and the state that may be used only while it is held.
	Parts() (*Guard, State)
}

// A State is what an account counts. It is reached only under the account's lock.
//
// Example: a bucket of 10 units a second and a burst of 3, which is empty at 0 s. TakeBy(0, 0, 1) answers
// 100 ms and takes nothing. TakeBy(100 ms, 102 ms, 1), by a timer that came 2 ms late, takes a unit as of
// 100 ms, so that the next one is ready at 200 ms and not at 202.
type State interface {
	// Lift returns at, or the state's own clock if that is ahead.
	Lift(at time.Time) time.Time
	// Advance moves the clock to now, which is not before it.
	Advance(now time.Time)
	// Check returns why n units can never be taken: n is negative, the limit is 0, or what n exceeds the
	// burst or the window by takes more than maxSurplus. nil: they can.
	Check(n int) error
	// Consume takes n units as of at, whether they are there or not: what is not there becomes a debt. A
	// caller whose units must be there has asked After first, under the same lock.
	Consume(at time.Time, n int)
	// TakeBy takes n units as of the first moment from at to now at which they are ready. It returns a
	// moment not after now if it took them. Otherwise nothing was taken, and it is the one to ask again.
	TakeBy(at, now time.Time, n int) (time.Time, error)
	// GiveBack undoes a take of n units as of at that was not used. A unit whose window has ended by now
	// has come back already and is not given twice.
	GiveBack(at, now time.Time, n int)
	// Refund gives n units back of a take of held units as of at that was used, and has cost less. A unit whose
	// window has ended stays used.
	Refund(at, now time.Time, held, n int)
	// After predicts when a call of n units, which has passed Check, starts if ahead units go before it,
	// from the moment from on. With nobody ahead that is the first moment at which n units may start; they
	// may at any later one too. What can never be paid starts after Forever, and does not delay a call
	// of no units.
	After(from time.Time, ahead int64, n int) time.Time
	// Rate is the long-run rate in units per second; rate.Inf: no limit.
	Rate() rate.Limit
	// Available is how many units could be taken at now: negative under a debt, float64(rate.Inf) without a limit.
	Available(now time.Time) float64
	// Size is how many units are there if none is used, and the length of the window in which they may be; 0: it has none,
	// and the units come back one by one.
	Size() (units float64, window time.Duration)
	// Fresh reports whether the limiter behaves as one just made, and no setter was ever called.
	Fresh(now time.Time) bool
	// Clone returns a copy, to be run ahead of the clock.
	Clone() State
	// Adjust takes n units whether they are there or not; a negative n gives units back.
	Adjust(now time.Time, n int)
	// Carry makes what old has counted count here too, at a moment not before the clock of this one. nil stands for a
	// limiter of another kind: then no units are there. See carry.go.
	Carry(now time.Time, old State)
}

// An Owned is what a limiter of another package of the library embeds, so that its account is found and nobody outside the
// library can ask for it.
type Owned struct{ account Account }

// Own returns what the limiter behind a embeds.
func Own(a Account) Owned { return Owned{a} }

// owned implements Owner.
func (o *Owned) owned() Account { return o.account }

// An Owner embeds an Owned.
type Owner interface{ owned() Account }

// AccountOf returns the account of an Owner. ok is false for a user's struct that embeds a limiter: it has a Take of its own.
func AccountOf(o Owner) (a Account, ok bool) {
	a = o.owned()
	return a, OwnerOf(a) == any(o)
}

// OwnerOf is the limiter that users know an account by, if the account knows it.
func OwnerOf(a Account) any {
	if a, ok := a.(interface{ Owner() any }); ok {
		return a.Owner()
	}
	return nil
}

// guardOf is the lock of an account and what is beside it.
func guardOf(a Account) *Guard {
	g, _ := a.Parts()
	return g
}

// stateOf is what an account counts. It may be called without the lock; what it returns may be used only
// under it.
func stateOf(a Account) State {
	_, s := a.Parts()
	return s
}

// What a limiter may be able to do. Users of the library know these as Limiter, Adjuster and Notifier.
type (
	taker interface {
		Take(ctx context.Context, n int) (wait time.Duration, err error)
	}
	adjuster interface{ Adjust(n int) }
	notifier interface {
		Notify(changed func()) (stop func())
	}
)

const (
	// maxSurplus bounds how long a single cost may block others beyond its burst or window; a cost that
	// would block longer is an error.
	maxSurplus = time.Hour
	// Forever stands for a wait without an end: 146 years, half of what a Duration holds, so that the sum
	// of two does not overflow.
	Forever = time.Duration(1 << 62)
)

// A clock is the latest moment that a State has seen. It never goes back: an interval that is counted
// twice would make units of nothing.
type clock struct{ last time.Time }

// Lift implements State. Example: a caller reads 1.000 s, another one reads 1.001 s, wins the lock and takes.
// The first one, next, is treated as if it came at 1.001 s: the millisecond is counted already.
func (c *clock) Lift(at time.Time) time.Time { return Latest(at, c.last) }

// Advance implements State.
func (c *clock) Advance(now time.Time) { c.last = now }

// A Guard is the lock of an account, and what else is not counted. It has 24 bytes, so that a Bucket has
// 80.
type Guard struct {
	mu       sync.Mutex
	rank     [6]byte          // the one order in which Sets lock their accounts; zero until it first joins one
	dated    bool             // the state is a Dated; known with the rank
	watchers map[*func()]bool // called after each change; nil while there are none
}

// enroll gives an account a rank unless it has one. The rank never changes again, so whoever has called this may
// read it without the lock. It is random because a counter would be mutable state of the package, and addresses have no
// order in Go; it is drawn here because zero values have no constructor.
func enroll(a Account) {
	g, s := a.Parts()
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.rank == [6]byte{} {
		_, g.dated = s.(Dated)
		for i, bits := 0, rand.Uint64(); i < len(g.rank); i, bits = i+1, bits>>8 {
			g.rank[i] = byte(bits)
		}
	}
}

// Lock and Unlock are those of the account.
func (g *Guard) Lock()   { g.mu.Lock() }
func (g *Guard) Unlock() { g.mu.Unlock() }

// Watched reports whether somebody waits for a change, as a line does. It is called under the lock.
func (g *Guard) Watched() bool { return len(g.watchers) > 0 }

// Notify has changed called after each change until stop. It stands behind every account's Notify.
func (g *Guard) Notify(changed func()) (stop func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watch(&changed)
	return func() { g.forget(&changed) }
}

// forget ends what Notify began. It may be called twice.
func (g *Guard) forget(changed *func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unwatch(changed)
}

// watch adds a watcher. The methods from here on are called under the lock, because a Var moves its watchers while it has
// the locks of all the guards that they are on: no change can fall between two of them, and none is missed.
func (g *Guard) watch(changed *func()) {
	if g.watchers == nil {
		g.watchers = map[*func()]bool{}
	}
	g.watchers[changed] = true
}

// unwatch takes a watcher out, if it is in.
func (g *Guard) unwatch(changed *func()) {
	if delete(g.watchers, changed); len(g.watchers) == 0 {
		g.watchers = nil
	}
}

// copyTo adds the watchers to those of another guard, and takeFrom takes them out there. Watchers that the other guard
// has of its own stay: a line may watch a Bucket by itself and by a Var that holds it.
func (g *Guard) copyTo(other *Guard) {
	for changed := range g.watchers {
		other.watch(changed)
	}
}

func (g *Guard) takeFrom(other *Guard) {
	for changed := range g.watchers {
		other.unwatch(changed)
	}
}

// appendTo adds to list those watchers that are not in it.
func (g *Guard) appendTo(list []*func()) []*func() {
	for changed := range g.watchers {
		if !slices.Contains(list, changed) {
			list = append(list, changed)
		}
	}
	return list
}

// Change calls f under the lock, then the watchers without it: a watcher takes the lock of its line, and
// that line asks this account under it.
func Change(a Account, f func(now time.Time)) {
	for _, changed := range apply(a, f) {
		changed()
	}
}

// apply calls f under the lock and returns the watchers.
func apply(a Account, f func(now time.Time)) (watchers []func()) {
	g, s := a.Parts()
	g.mu.Lock()
	defer g.mu.Unlock()
	now := s.Lift(time.Now())
	f(now)
	s.Advance(now)
	for changed := range g.watchers {
		watchers = append(watchers, *changed)
	}
	return watchers
}

// TakeNow takes n units from one account, or returns how long to wait before asking again. It is the
// Take of each kind of limiter. The clock is read inside the lock.
func TakeNow(a Account, n int) (wait time.Duration, err error) {
	g, s := a.Parts()
	g.mu.Lock()
	defer g.mu.Unlock()
	now := s.Lift(time.Now())
	m, err := s.TakeBy(now, now, n)
	if err != nil {
		return 0, err
	}
	return m.Sub(now), nil
}

// TakeReady is TakeBy by way of Check, After and Consume. A now behind the state's clock is lifted:
// otherwise a caller who lost the race for the lock would wait for the nanoseconds by which its clock is
// behind. The answer is cut to the caller's now, which stands for "taken".
func TakeReady(s State, at, now time.Time, n int) (time.Time, error) {
	if err := s.Check(n); err != nil {
		return at, err
	}
	m := s.After(at, 0, n)
	if m.After(s.Lift(now)) {
		return m, nil
	}
	s.Consume(m, n)
	return Earliest(m, now), nil
}

// errNegative is every limiter's answer to a negative cost.
func errNegative(n int) error { return fmt.Errorf("throttle: cost %d is negative", n) }
