package limit

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// A Var is the account of a throttle.LimiterVar: it stands for the accounts that it holds, which may be replaced while
// lines wait. The zero Var holds none, and limits nothing.
//
// A Var has a guard of its own, and counts nothing. A Set that has a Var among its accounts pays the Var and all that it
// holds as one flat list, under all their locks, in the order of their ranks (Set.locked). Whoever replaces what is held
// has the same locks. So each take is either before a replacement, and what it took is carried over, or after it.
//
// # States
//
//	held        what limits now. It changes under the guard of the Var, and of all that it held and will hold
//	Set.dyn     the flat list of a Set, and the held that it was made from. It is made anew when those are not the
//	            same any more; that is known for certain only under the locks, so it is asked once more there
//	watchers    who watches the Var watches its guard and those of all that it holds; replace moves them along
//
// # Races
//
//	take, replace      the locks decide; a take that resolved the old list finds out under the locks, and begins again
//	two replacements   one comes first; the other sees that held has changed, and begins again with the new one
//	give back, replace units that were taken under the old go back to the new, which counts them as used
//	notify, replace    the watcher is on the old guards and moved, or on the new ones from the beginning
type Var struct {
	g    Guard
	s    unlimited
	held atomic.Pointer[Set] // nil: nothing yet. It has accounts alone, and no Var among them
	self atomic.Pointer[Set] // the Set of v alone, made when first needed
}

// Parts implements Account.
func (v *Var) Parts() (*Guard, State) { return &v.g, &v.s }

// alone is the Set of v and what it holds. The methods of v go through it as those of any Set do. It is made when it is
// needed, because a zero Var has no constructor; of two that are made at once the first stays.
func (v *Var) alone() *Set {
	if s := v.self.Load(); s != nil {
		return s
	}
	s := new(Set)
	s.Join(v)
	v.self.CompareAndSwap(nil, s)
	return v.self.Load()
}

// Take takes n units from all that v holds, or from none, and returns how long to wait.
func (v *Var) Take(n int) (wait time.Duration, err error) {
	now := time.Now()
	m, err := v.alone().TakeBy(now, now, n)
	return max(0, m.Sub(now)), err
}

// Set makes v hold the accounts of held from now on. What was counted is carried over within a kind, see carry.go. It returns
// an error, and changes nothing, if held has a limiter that is not an account, or another Var.
func (v *Var) Set(held *Set) error {
	switch {
	case len(held.foreign) > 0:
		return fmt.Errorf("%T is not a limiter of this package; put it beside the LimiterVar with All", held.foreign[0])
	case held.dyn != nil:
		return errors.New("a LimiterVar cannot hold a LimiterVar; put both beside each other with All")
	}
	for {
		if watchers, ok := v.replace(v.held.Load(), held); ok {
			for _, changed := range watchers {
				(*changed)()
			}
			return nil
		}
	}
}

// replace makes v hold the accounts of held in place of those of old, and returns the watchers. It is not ok if somebody
// else has replaced old.
//
// Accounts that v holds before and after stay as they are, with what they have counted. An example: 1,000 per hour joined
// with 10/s, then the same window joined with 20/s. The window goes on, and the 20/s begin where the 10/s were.
func (v *Var) replace(old, held *Set) (watchers []*func(), ok bool) {
	all := new(Set)
	all.add(v)
	all.addAll(old)
	all.addAll(held)
	all.lock()
	defer all.unlock()
	if v.held.Load() != old {
		return nil, false
	}
	now := time.Now()
	for _, a := range all.accounts {
		switch was, is := old.has(a), held.has(a); {
		case is && !was:
			old.carryTo(stateOf(a), now)
			v.g.copyTo(guardOf(a))
		case was && !is:
			v.g.takeFrom(guardOf(a))
		}
	}
	// The first one is what v was made for. Later ones are somebody's wish, which a limiter made anew would not know.
	v.s.changed = v.s.changed || old != nil
	v.held.Store(held)
	return v.g.appendTo(nil), true
}

// has reports whether a is one of the accounts of s, which may be nil.
func (s *Set) has(a Account) bool { return s != nil && slices.Contains(s.accounts, a) }

// Adjust adjusts all that v holds, under all their locks: a replacement is before it or after it, as for a take.
func (v *Var) Adjust(n int) { v.alone().Adjust(n) }

// Notify has changed called after each change of v and of what it holds, until stop. A watcher is known by the address of
// its function: a guard has it once however often it is added, and another Notify of the same function is another
// watcher. It is on the guard of v and on those of all that v holds, and each of them calls it by itself: so a
// SetLimit of a Bucket that v holds needs to know nothing of v.
func (v *Var) Notify(changed func()) (stop func()) {
	v.guards(func(g *Guard) { g.watch(&changed) })
	return func() { v.guards(func(g *Guard) { g.unwatch(&changed) }) }
}

// guards visits the guards of v and of all that it holds, under their locks.
func (v *Var) guards(visit func(*Guard)) {
	s := v.alone().locked()
	defer s.unlock()
	for _, a := range s.accounts {
		visit(guardOf(a))
	}
}

// String is what v holds as text.
func (v *Var) String() string {
	if text := v.alone().String(); text != "" {
		return text
	}
	return noLimit
}

// A dynamic is what a Set needs that has Vars among its accounts.
//
// Example: All(&v, &w, hourly), where v holds 10/s and hourly, and w nothing. The Set has three accounts, v, w and
// hourly. Its flat list has v, w, hourly and 10/s: four locks, and hourly is paid once.
type dynamic struct {
	vars []*Var
	flat atomic.Pointer[flat]
}

// A flat is the accounts of a Set and of what its Vars hold, which was of.
type flat struct {
	set *Set
	of  []*Set
}

// current reports whether the Vars still hold the same. Each replacement brings another Set, also of the same accounts, so
// the addresses tell. Under the locks of the list the answer holds until they are released.
func (f *flat) current(vars []*Var) bool {
	for i, v := range vars {
		if v.held.Load() != f.of[i] {
			return false
		}
	}
	return true
}

// resolve is the flat list of s, which has a Var, as things stand now. It is made once after each replacement; all other
// takes compare one pointer for each Var, and allocate nothing. Two callers may make it at once: both lists are right.
func (s *Set) resolve() *flat {
	if f := s.dyn.flat.Load(); f != nil && f.current(s.dyn.vars) {
		return f
	}
	f := &flat{set: new(Set)}
	f.set.addAll(s)
	for _, v := range s.dyn.vars {
		held := v.held.Load()
		f.of = append(f.of, held)
		f.set.addAll(held)
	}
	s.dyn.flat.Store(f)
	return f
}

// locked locks all that is to be paid now, and returns the Set of that: s, unless it has a Var. The caller unlocks what
// it returns. Example: a Var holds 10/s and is set to 20/s between resolve and lock. The list has the old one, current
// says so, and the next round has the new one.
func (s *Set) locked() *Set {
	if s.dyn == nil {
		s.lock()
		return s
	}
	for {
		f := s.resolve()
		f.set.lock()
		if f.current(s.dyn.vars) {
			return f.set
		}
		f.set.unlock()
	}
}

// An unlimited is the state of a Var, which counts nothing. It is ready at any moment, so of the moments that a Set finds
// those of the others decide. Its clock moves with theirs, so that a Var which holds nothing yet is paid at the same
// moment as the limiters beside it.
//
// It is as new until what the Var holds has been replaced once: a key that is dropped and made again would otherwise
// begin with the first limit, and not with the one that somebody has set since.
type unlimited struct {
	clock
	changed bool // what is held has been replaced
}

func (s *unlimited) Check(n int) error {
	if n < 0 {
		return errNegative(n)
	}
	return nil
}

func (s *unlimited) TakeBy(at, now time.Time, n int) (time.Time, error) {
	return Earliest(at, now), s.Check(n)
}

func (s *unlimited) Consume(time.Time, int)                         {}
func (s *unlimited) Adjust(time.Time, int)                          {}
func (s *unlimited) GiveBack(_, _ time.Time, _ int)                 {}
func (s *unlimited) Refund(_, _ time.Time, _, _ int)                {}
func (s *unlimited) After(from time.Time, _ int64, _ int) time.Time { return from }
func (s *unlimited) Rate() rate.Limit                               { return rate.Inf }
func (s *unlimited) Available(time.Time) float64                    { return float64(rate.Inf) }
func (s *unlimited) Size() (float64, time.Duration)                 { return 0, 0 }
func (s *unlimited) Fresh(time.Time) bool                           { return !s.changed }
func (s *unlimited) Carry(time.Time, State)                         {}
func (s *unlimited) Clone() State                                   { c := *s; return &c }
