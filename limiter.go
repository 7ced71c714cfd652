package throttle

import (
	"context"
	"fmt"
	"time"

	"github.com/go-throttle/throttle/internal/account"
)

// A Limiter says when. It never makes anybody wait itself: a [Queue] or a [Transport] does.
//
// Take consumes n units and returns 0 if they may start now. Otherwise it consumes nothing and
// returns how long to wait before it is worth asking again. It does not block on that wait; one that
// talks to a server may block on the answer and then obeys ctx. The kinds of this package never look
// at ctx. A cost of 0 takes no units. A negative cost, or one that can never be paid, is an error.
//
// A line asks again after that wait, but after at most a second if the limiter is no [Notifier].
// A Limiter must be safe for use by several goroutines at once.
type Limiter interface {
	Take(ctx context.Context, n int) (wait time.Duration, err error)
}

// An Adjuster is a Limiter whose account can be corrected after the fact: n < 0 gives units back,
// n > 0 takes more and may leave a debt, which later units wait for.
type Adjuster interface{ Adjust(n int) }

// A Notifier is a Limiter that tells sleeping lines when what it said before no longer holds. It
// calls changed after its limit was set or its account adjusted, never under a lock that Take needs.
// stop ends that; it may be called twice. A call already on its way may still arrive after stop.
type Notifier interface {
	Notify(changed func()) (stop func())
}

// All returns a Limiter that takes from all of limiters or from none, and whose wait is the longest
// of theirs. It implements [Adjuster] and [Notifier] for those that do. A nil Limiter is skipped, but
// a nil pointer, such as a *Bucket that nobody made, panics. A nested All counts as its parts, and one
// limiter of this package named twice is paid once.
//
// Each takes the same number of units. Where a call is one for one limit and many for another, wrap
// the one in a Limiter of your own that takes 1: see the example of Transport with tokens.
//
// The kinds of this package are asked first, under their locks, so that nobody sees half a taking.
// Others follow in argument order; if one refuses, what was taken is given back through Adjuster.
// One limiter may lack it and is asked last; with a second one All panics.
// The result is as safe for concurrent use as its parts.
func All(limiters ...Limiter) Limiter {
	s := flatten(limiters...)
	if len(s.Accounts)+len(s.Foreign) == 1 {
		for _, l := range limiters {
			if _, nested := l.(*all); !nested && l != nil { // what is nested has two parts or none
				return l
			}
		}
	}
	return &all{s}
}

// all is what All returns.
type all struct{ set account.Set }

// Take implements [Limiter].
func (a *all) Take(ctx context.Context, n int) (time.Duration, error) { return a.set.Take(ctx, n) }

// Adjust implements [Adjuster] for those limiters that do.
func (a *all) Adjust(n int) {
	account.Adjust(a.set.Accounts, n)
	account.Adjust(a.set.Foreign, n)
}

// Notify implements [Notifier] for those limiters that do.
func (a *all) Notify(changed func()) (stop func()) {
	stopOwn, stopForeign := account.Watch(a.set.Accounts, changed), account.Watch(a.set.Foreign, changed)
	return func() { stopOwn(); stopForeign() }
}

// flatten is tryFlatten where nonsense is the programmer's: it panics.
func flatten(ls ...Limiter) account.Set {
	s, err := tryFlatten(ls...)
	if err != nil {
		panic("throttle: All: " + err.Error())
	}
	return s
}

// tryFlatten sorts limiters by kind, resolves nested Alls and merges duplicates of the own kinds.
// Nil is skipped. A nil pointer of those kinds is an error, and a second foreign limiter without Adjuster.
func tryFlatten(ls ...Limiter) (s account.Set, err error) {
	for i, l := range ls {
		if l == nil {
			continue
		}
		if isNil(l) {
			err = fmt.Errorf("limiters[%d] is a nil %T", i, l)
		} else if a, nested := l.(*all); nested {
			err = s.Merge(&a.set)
		} else if o, ours := asOwn(l); ours {
			s.Join(o)
		} else {
			err = s.JoinForeign(l)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// isNil reports whether l is a nil pointer of one of our kinds: somebody forgot to make it.
func isNil(l Limiter) bool {
	switch l := l.(type) {
	case *Bucket:
		return l == nil
	case *Leaky:
		return l == nil
	case *FixedWindow:
		return l == nil
	case *SlidingWindow:
		return l == nil
	}
	return false
}

// asOwn returns the account behind l, which must not be a nil pointer, if it is one of the library's own kinds.
// It asks for the very types: a struct of the user's that embeds a *Bucket has a Take of its own
// that must not be passed by.
func asOwn(l Limiter) (account.Account, bool) {
	switch l := l.(type) {
	case *Bucket:
		return &l.tank, true
	case *Leaky:
		return &l.tank, true
	case *FixedWindow:
		return &l.window, true
	case *SlidingWindow:
		return &l.window, true
	}
	return nil, false
}
