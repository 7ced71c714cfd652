package limit

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A foreign limiter is a Limiter of the user's own. It can be asked, and nothing else: it may talk to a
// server, so no lock is held meanwhile; it cannot predict; and what it gave can be taken back only if it
// has Adjust.

// JoinForeign adds a foreign limiter. One without Adjust goes to the end: when it is asked, all others have
// given, so nothing that it gives has to go back. A second one without Adjust is an error: if the later of
// the two refused, what the earlier one gave would be lost.
func (s *Set) JoinForeign(l taker) error {
	end := len(s.foreign)
	if end > 0 && !canAdjust(s.foreign[end-1]) {
		if end--; !canAdjust(l) {
			return fmt.Errorf("%T and %T both lack Adjust; at most one limiter may, because units that it took cannot be given back", s.foreign[end], l)
		}
	}
	s.foreign = slices.Insert(s.foreign, end, l)
	return nil
}

// canAdjust reports whether units can be given back to l.
func canAdjust(l taker) bool {
	_, ok := l.(adjuster)
	return ok
}

// Merge adds the limiters of another set.
func (s *Set) Merge(other *Set) error {
	for _, a := range other.inOrder() {
		s.Join(a)
	}
	for _, l := range other.foreign {
		if err := s.JoinForeign(l); err != nil {
			return err
		}
	}
	return nil
}

// Take takes n units from all limiters and returns 0, or takes from none and returns the longest of their
// waits. The accounts are asked first, in one step. The foreign limiters follow; if one refuses or
// panics, the units of the accounts go back.
func (s *Set) Take(ctx context.Context, n int) (time.Duration, error) {
	now := time.Now()
	m, err := s.TakeBy(now, now, n)
	if err != nil || m.After(now) {
		return max(0, m.Sub(now)), err
	}
	given := false
	defer func() {
		if !given {
			s.GiveBack(m, time.Now(), n)
		}
	}()
	wait, err := s.TakeForeign(ctx, n)
	given = err == nil && wait == 0
	return wait, err
}

// Each visits the limiters as users know them: those of other kinds, and the owners of accounts that know theirs. A
// Bucket's account does not: nobody has a question to a Bucket that its account could not answer. No lock is
// needed, because a Set in use does not change.
func (s *Set) Each(visit func(l any)) {
	for _, a := range s.accounts {
		if owner := OwnerOf(a); owner != nil {
			visit(owner)
		}
	}
	for _, l := range s.foreign {
		visit(l)
	}
}

// Silent reports whether one of the foreign limiters has no Notify. It cannot say that what it answered
// no longer holds, so it must be asked again from time to time.
func (s *Set) Silent() bool {
	return slices.ContainsFunc(s.foreign, func(l taker) bool { _, ok := l.(notifier); return !ok })
}

// TakeForeign asks the foreign limiters one after the other. If one refuses or panics, what those before it
// gave goes back. No lock may be held. A negative wait is an error that names the limiter's type.
func (s *Set) TakeForeign(ctx context.Context, n int) (wait time.Duration, err error) {
	paid := 0
	defer func() {
		if paid < len(s.foreign) {
			adjust(s.foreign[:paid], -n)
		}
	}()
	for _, l := range s.foreign {
		wait, err = l.Take(ctx, n)
		if err == nil && wait < 0 {
			err = fmt.Errorf("throttle: %T.Take returned the negative wait %v", l, wait)
		}
		if err != nil || wait > 0 {
			return max(0, wait), err
		}
		paid++
	}
	return 0, nil
}

// Adjust adjusts all that can be: n < 0 gives units back, n > 0 takes more. No lock may be held.
func (s *Set) Adjust(n int) {
	s.adjustOwn(n)
	adjust(s.foreign, n)
}

// adjustOwn adjusts the accounts, all in one step, and then calls their watchers. One that watches several of them, as
// that of a Var does, is called once.
func (s *Set) adjustOwn(n int) {
	for _, changed := range s.adjustLocked(n) {
		(*changed)()
	}
}

// adjustLocked is adjustOwn without calling the watchers, which it returns.
func (s *Set) adjustLocked(n int) (watchers []*func()) {
	s = s.locked()
	defer s.unlock()
	at := time.Now()
	for _, a := range s.accounts {
		g, its := a.Parts()
		now := its.Lift(at)
		its.Adjust(now, n)
		its.Advance(now)
		watchers = g.appendTo(watchers)
	}
	return watchers
}

// RefundForeign gives n units back to the foreign limiters. No lock may be held.
func (s *Set) RefundForeign(n int) { adjust(s.foreign, -n) }

// Wake notifies those who watch the accounts, after units have come back without a word (see GiveBack).
func (s *Set) Wake() { s.adjustOwn(0) }

// Watch has changed called after each change of an account, until stop.
func (s *Set) Watch(changed func()) (stop func()) { return watch(s.accounts, changed) }

// WatchForeign has changed called after each change of a foreign limiter that has Notify, until stop. No
// lock may be held.
func (s *Set) WatchForeign(changed func()) (stop func()) { return watch(s.foreign, changed) }

// adjust adjusts those of ls that can be.
func adjust(ls []taker, n int) {
	for _, l := range ls {
		if l, ok := l.(adjuster); ok {
			l.Adjust(n)
		}
	}
}

// watch has changed called after each change of those of ls that have Notify, until stop. It is generic so that it takes
// accounts and foreign limiters.
func watch[L any](ls []L, changed func()) (stop func()) {
	var stops []func()
	for _, l := range ls {
		if l, ok := any(l).(notifier); ok {
			if stop := l.Notify(changed); stop != nil {
				stops = append(stops, stop)
			}
		}
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}
