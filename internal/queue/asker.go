package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// An asker is a supply of one call's units from limiters that are not the library's own. Those may block, on a server's
// answer for instance, so a goroutine of its own asks them, without the lock, and only while somebody waits for them. Its
// ctx is the asker's: it ends when nobody waits any more, and carries no values of a call.
//
// # States, all under the lock
//
//	idle     nothing is asked for
//	asking   a goroutine asks for n units, or gives some back; there is one at a time. Whose they will be is not decided: if
//	         that call leaves, the answer serves the next one of the same cost
//	full     hand units are there, for the next call of that cost. If that one costs something else, they go back
//	waiting  they said to wait; next is when they are asked again. A cheaper call is asked for at once
//	failed   they returned err, which ends the call whose turn it is
//
// # Races
//
//	the answer, and nobody waits     close is first: the goroutine gives the units back. Who has come since is asked for then
//	the answer, and the gate closes  the units stay in hand until the call may go
//	they change while they are asked the answer is stale: they are asked again at once, then after 1, 2, 4 ... ms while
//	                                 they refuse
type asker struct {
	common *common
	limits *limit.Set
	tell   func(now time.Time) // has those looked at who wait; under the lock

	ctx    context.Context
	cancel context.CancelFunc // nil: nobody has waited since it was closed
	unlook func()             // ends the watch on them; nil: there is none
	asking bool
	hand   int      // units; -1: none
	err    *failure // for the call whose turn it is; nil: none
	stale  bool     // one of them has changed since they were asked last

	next      time.Time // they are not asked before
	until     time.Time // they said to wait until then
	dear      int       // for so many units
	last      time.Time // when they said so
	early     uint8     // how often in a row they were asked before until, and still said to wait
	lastGrant time.Time // when a call last got units; zero: not since somebody began to wait
	gap       float64   // smoothed seconds per unit granted, for predictions; 0: not known
}

// maxAskGap is how long a limiter that cannot report a change is left unasked.
const maxAskGap = time.Second

func (r *common) newAsker(limits *limit.Set, tell func(time.Time)) *asker {
	return &asker{common: r, limits: limits, tell: tell, hand: -1}
}

// ready says whether a call of n units, whose turn it is and which nothing else holds, has them; it has them asked for
// otherwise.
func (a *asker) ready(n int, now time.Time) decision {
	switch {
	case a.err != nil:
		return decision{verdict: deny, err: a.err}
	case a.hand == n:
		return decision{}
	case a.asking:
		return decision{verdict: block}
	case a.hand < 0 && n >= a.dear && a.next.After(now):
		return decision{verdict: later, until: a.next}
	}
	if a.cancel == nil {
		a.ctx, a.cancel = context.WithCancel(context.Background())
	}
	back := a.hand
	a.hand, a.asking, a.stale = -1, true, false
	go a.ask(a.ctx, n, back, a.unlook == nil)
	return decision{verdict: block}
}

// ask asks for n units, after giving some back, and first begins to listen to changes, if that is due.
func (a *asker) ask(ctx context.Context, n, back int, listen bool) {
	var unlook func()
	var wait time.Duration
	err := guarded(func() (err error) {
		if back > 0 {
			a.limits.RefundForeign(back)
		}
		if listen {
			unlook = a.limits.WatchForeign(a.changed)
		}
		wait, err = a.limits.TakeForeign(ctx, n)
		return err
	})
	if watch, late := a.answer(ctx, n, wait, err, unlook); late {
		if err != nil || wait > 0 {
			n = 0
		}
		a.giveBack(n, watch)
	}
}

// A failure is an error of theirs, until it has reached a call.
type failure struct {
	error
	of *asker
}

// reached returns the error that reason stands for, which ends a call.
func reached(reason error) error {
	if f, ok := reason.(*failure); ok {
		f.of.err = nil
		return f.error
	}
	return reason
}

// guarded calls functions of a limiter's. There is no caller of ours whom a panic could reach, so it is an error.
func guarded(f func() error) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case error:
			err = fmt.Errorf("throttle: the limiter panicked: %w", v)
		default:
			err = fmt.Errorf("throttle: the limiter panicked: %v", v)
		}
	}()
	return f()
}

// giveBack gives n units back, and ends the watch. No lock is held.
func (a *asker) giveBack(n int, unlook func()) {
	guarded(func() error {
		if n > 0 {
			a.limits.RefundForeign(n)
		}
		return nil
	})
	guarded(func() error {
		if unlook != nil {
			unlook()
		}
		return nil
	})
	a.common.mu.Lock()
	defer a.common.mu.Unlock()
	a.asking = false
	now := time.Now()
	a.tell(now)
	a.common.settle(now)
}

// answer notes what they have said. late: nobody has waited for that since, and the watch is to be ended.
func (a *asker) answer(ctx context.Context, n int, wait time.Duration, err error, unlook func()) (watch func(), late bool) {
	a.common.mu.Lock()
	defer a.common.mu.Unlock()
	if unlook != nil {
		a.unlook = unlook
	}
	if ctx.Err() != nil {
		watch, a.unlook = a.unlook, nil
		return watch, true
	}
	now := time.Now()
	a.asking = false
	switch {
	case err != nil:
		a.err = &failure{err, a}
	case wait == 0:
		a.hand, a.next, a.until, a.early = n, time.Time{}, time.Time{}, 0
	default:
		a.refused(n, now, wait)
	}
	a.tell(now)
	a.common.settle(now)
	return nil, false
}

// use takes what is in hand for a call that goes. Their smoothed seconds per unit, with 1/8 of each new sample, serve
// predictions. An example: 0.2 s per unit were known, and a call of 2 units comes 0.56 s after the last one: 0.28 s per
// unit. The new figure is 0.2 + (0.28 − 0.2)/8 = 0.21.
func (a *asker) use(n int, now time.Time) {
	a.hand = -1
	gap := now.Sub(a.lastGrant).Seconds() / float64(max(1, n))
	switch {
	case a.lastGrant.IsZero():
	case a.gap == 0:
		a.gap = gap
	default:
		a.gap += (gap - a.gap) / 8
	}
	a.lastGrant = now
}

// refused notes that they said to wait for n units.
//
// An example: at 0 ms they say to wait for 500 ms. At 20 ms one of them reports a change, is asked, and says 480 ms:
// early is 1. The next change counts from 21 ms on, then one from 2 ms after that answer, and at most a second after it.
func (a *asker) refused(n int, now time.Time, wait time.Duration) {
	if a.limits.Silent() { // one of them may change without a word
		wait = min(wait, maxAskGap)
	}
	if n >= a.dear && now.Before(a.until) {
		a.early = min(a.early+1, 20)
	} else {
		a.early = 0
	}
	a.dear, a.last, a.until = n, now, now.Add(wait)
	if a.next = a.until; a.stale {
		a.next = a.again()
	}
}

// again is when they may be asked after a change: at once, or after 1, 2, 4 ... ms if they were asked early before and
// still said to wait. Without that, two limiters could keep a processor busy: the first gives its units, the second says
// to wait, the first gets its units back and reports that as a change.
func (a *asker) again() time.Time {
	if a.early == 0 {
		return time.Time{}
	}
	return limit.Earliest(a.until, a.last.Add(min(time.Millisecond<<(a.early-1), maxAskGap)))
}

// changed forgets what they answered: one of them has changed.
func (a *asker) changed() {
	a.common.mu.Lock()
	defer a.common.mu.Unlock()
	now := time.Now()
	a.next, a.stale = a.again(), true
	a.tell(now)
	a.common.settle(now)
}

// close ends the asking: nobody waits any more. What is in hand goes back.
func (a *asker) close() {
	a.lastGrant, a.err = time.Time{}, nil // the time until the next call is not their doing
	if a.cancel == nil {
		return
	}
	a.cancel()
	a.cancel, a.next = nil, a.again() // from now on a change goes unheard
	if hand, unlook := a.hand, a.unlook; !a.asking && (hand > 0 || unlook != nil) {
		a.hand, a.unlook, a.asking = -1, nil, true
		go a.giveBack(hand, unlook) // they may not be called under the lock
	}
}

// held is what holds a call that they have not given its units.
func (a *asker) held(by string, now time.Time) (string, time.Time) {
	switch {
	case a == nil:
		return "", now
	case a.asking:
		return by, time.Time{}
	}
	return by, a.next
}

// after is when a call starts with so many units before it. gap is in seconds per unit: with 0.2, five units ahead are
// 1 s after the next asking.
func (a *asker) after(ahead int64, from time.Time) (at, latest time.Time) {
	if a == nil {
		return from, from
	}
	gaps := time.Duration(min(float64(ahead)*a.gap*1e9, float64(limit.Forever)))
	if at = limit.Latest(from, a.next).Add(gaps); a.gap == 0 {
		return at, never
	}
	return at, at
}
