package throttle

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/limit"
)

// A Limiter says when calls may start. It never makes a caller wait: a [Queue] or a [Transport] does that.
//
// Take consumes n units and returns 0 if they may be used now. Otherwise it consumes nothing and returns
// how long to wait before it is worth asking again. It does not block for that wait. A Limiter that asks a
// server may block for the answer, and must then obey ctx; those of this package do not use ctx. A cost of 0
// consumes nothing; a negative cost, or one that can never be satisfied, is an error.
//
// A Limiter of another package is asked by the line, one question at a time, for the call whose turn it is. The ctx of Take
// is the line's: it ends when nobody waits for it, and has no values of a call. Units serve the call whose turn it is when
// they come, if it costs as much, and go back otherwise. An error, or a panic, ends that call alone.
//
// A line asks again after the wait, or after one second if the wait is longer and the Limiter is not a
// [Notifier]. A Limiter must be safe for concurrent use.
//
// # Several limiters
//
// A call that pays several limiters, of an [All] or of a Transport's two fields, takes from all of them or
// from none. Those of this package are asked first, together and under their locks, so nobody sees a
// half-done Take. Others follow in the order of the arguments; if one of them asks for a wait, the units
// taken until then are given back through Adjust. At most one limiter may lack Adjust; it is asked last.
type Limiter interface {
	Take(ctx context.Context, n int) (wait time.Duration, err error)
}

// An Adjuster is a Limiter whose account can be corrected afterwards. n < 0 gives units back; n > 0 takes
// more, and may leave a debt that later calls wait for. Units that a line has no use for are lost without it. It gives them
// back shortly after the last call has left; a panic then reaches nobody.
type Adjuster interface{ Adjust(n int) }

// A Notifier is a Limiter that wakes sleeping lines when an earlier Take's wait no longer holds. It calls
// changed after its limit or its account has changed, and never while it holds a lock that Take needs. stop
// ends that and may be called twice; a call that is already on its way may still arrive after stop. A line listens
// while somebody waits. A panic in Notify is an error of a call; one in stop reaches nobody.
type Notifier interface {
	Notify(changed func()) (stop func())
}

// An Observer is a Limiter that wants to know what the upstream says about limits in answers to calls that it has
// paid for; sent is when the call was sent. A limit that many processes share passes it on to the others. Observe
// is called by several goroutines at once, without locks, after every answer of a [Transport] that is throttled
// or advertises a quota, also for the parts of an [All]. It must not block.
type Observer interface {
	Observe(h hint.Hint, sent time.Time)
}

// All returns a Limiter that takes n units from each of limiters or from none; its wait is the longest of
// theirs. It is an [Adjuster] and a [Notifier] for the limiters that are. Nil limiters are skipped, a
// nested All counts as its parts, and a limiter of this package that is named twice is paid once. All
// panics for a nil pointer to a type of this package, and for two limiters of other packages without
// Adjust. If a call counts as one unit of one limit and as many of another, see Transport.Meters.
func All(limiters ...Limiter) Limiter {
	s := flatten(limiters...)
	if s.Own()+s.Foreign() == 1 {
		for _, l := range limiters {
			if _, nested := l.(*all); !nested && l != nil { // a nested All has two parts or none, so it is not the one
				return l
			}
		}
	}
	return &all{s}
}

// all is the Limiter that All returns, if it is not the only one of its arguments.
type all struct{ set *limit.Set }

// Take implements [Limiter] for all parts at once.
func (a *all) Take(ctx context.Context, n int) (time.Duration, error) { return a.set.Take(ctx, n) }

// Adjust implements [Adjuster] for the parts that are Adjusters.
func (a *all) Adjust(n int) { a.set.Adjust(n) }

// Notify implements [Notifier] for the parts that are Notifiers.
func (a *all) Notify(changed func()) (stop func()) {
	stopOwn, stopForeign := a.set.Watch(changed), a.set.WatchForeign(changed)
	return func() { stopOwn(); stopForeign() }
}

// String returns the limits of all parts, separated by commas, in the order of the arguments.
func (a *all) String() string { return a.set.String() }

// flatten is tryFlatten for limiters that a program names itself: a mistake panics.
func flatten(ls ...Limiter) *limit.Set {
	s, err := tryFlatten(ls...)
	if err != nil {
		panic("throttle: All: " + err.Error())
	}
	return s
}

// tryFlatten makes one set of limiters. It sorts them by kind, replaces each All by its parts, and drops
// nil and the second mention of a limiter of this package. A nil pointer of a type of this package is an
// error, and so is a second limiter of another package without Adjust.
func tryFlatten(ls ...Limiter) (s *limit.Set, err error) {
	s = new(limit.Set)
	for i, l := range ls {
		if l == nil {
			continue
		}
		if isNil(l) {
			err = fmt.Errorf("limiters[%d] is a nil %T", i, l)
		} else if a, nested := l.(*all); nested {
			err = s.Merge(a.set)
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

// isNil reports whether l is a nil pointer of a type of this package, one that was declared and never made.
func isNil(l Limiter) bool {
	switch l.(type) {
	case *Bucket, *Leaky, *FixedWindow, *SlidingWindow, *LimiterVar, *adaptiveRate, limit.Owner:
		v := reflect.ValueOf(l)
		return v.Kind() == reflect.Pointer && v.IsNil()
	}
	return false
}

// asOwn returns the account behind l if l is a limiter of the library; l must not be a nil pointer. It compares the exact
// types: a user's struct that embeds a *Bucket has a Take of its own, which must be asked.
func asOwn(l Limiter) (limit.Account, bool) {
	switch l := l.(type) {
	case *Bucket:
		return &l.bucket, true
	case *Leaky:
		return &l.bucket, true
	case *FixedWindow:
		return &l.window, true
	case *SlidingWindow:
		return &l.window, true
	case *LimiterVar:
		return &l.limiter, true
	case *adaptiveRate:
		return &l.bucket, true
	case limit.Owner: // of another package of the library, such as fleet.Limiter
		return limit.AccountOf(l)
	}
	return nil, false
}

// A LimiterVar is a Limiter that can be replaced while calls wait, by one of any kind, as a slog.LevelVar is a level that
// can. The zero LimiterVar sets no limit. Use it wherever a limiter is needed: in a [Queue], a [Transport], an [All]. It
// is safe for concurrent use and must not be copied.
//
// A limiter of the same kind goes on as if setters had changed the old one: what was used stays used, and a debt stays. Buckets
// and Leakys are of one kind. A limiter of another kind begins without units, so that it admits no more than its own limit: a
// bucket earns its first unit, a window is used up for its length. To change a limit in use, stay with its kind. Example:
// 60 of 100 per hour by fixed window are used. Under 80 per hour 20 are left until that hour is over; under 80
// per hour by sliding window none are for an hour; under a bucket of 1/s the next one is there in a second.
type LimiterVar struct{ limiter limit.Var }

// Set replaces the limiter, and re-times sleeping callers at once. nil sets no limit, and whatever
// follows begins as it is. A limiter that comes back, or that others use too, keeps what it has counted itself. Of several
// in an [All] those that stay are not touched; each other one takes over from the old one of its kind whose rate is
// nearest. Set panics, and changes nothing, for a nil pointer to a limiter of this package, for a LimiterVar, and for
// a limiter of another package, alone or in an All: join it to the LimiterVar with All instead.
func (v *LimiterVar) Set(l Limiter) {
	set, err := tryFlatten(l)
	if err == nil {
		err = v.limiter.Set(set)
	}
	if err != nil {
		panic("throttle: LimiterVar.Set: " + err.Error())
	}
}

// Take implements [Limiter] by the limiter that is set; ctx is not used.
func (v *LimiterVar) Take(_ context.Context, n int) (wait time.Duration, err error) {
	return v.limiter.Take(n)
}

// Adjust implements [Adjuster] by the limiter that is set, also for units that another one has granted.
func (v *LimiterVar) Adjust(n int) { v.limiter.Adjust(n) }

// Notify implements [Notifier]. changed is called also after changes of the limiter that is set.
func (v *LimiterVar) Notify(changed func()) (stop func()) { return v.limiter.Notify(changed) }

// String returns the limit that is set as [ParseLimit] reads it; "unlimited" if there is none.
func (v *LimiterVar) String() string { return v.limiter.String() }
