// Package queue is the waiting line before the limiters: who goes, when, and who is refused.
//
//	table.go                   the queues of a Transport's keys
//	hosts.go                   hosts that are closed as a whole, for the calls of all keys
//	call.go, turn.go, rest.go  one call of a Transport, with its attempts and retries
//	budget.go, retry.go        how often, and for how long, it is sent again
//	pause.go, shutdown.go      pauses by hand; the end: who still goes, and who is refused
//	tasks.go                   calls of a Group, which wait without a goroutine each
//	queue.go, line.go          a Queue: limiters, line and upstream, under one lock; its line, which has a timer
//	waiter.go                  one call that waits
//	admit.go, pass.go          a call arrives: it goes, is refused, or joins the line; whether the next one may go
//	constraint.go              the one list of what a call must pass
//	pool.go, stake.go          what several keys share: whose turn it is, and what a key has to do with it
//	slots.go, asker.go         calls in flight; limiters of other kinds
//	follow.go                  a bound of calls in flight that follows a load
//	meters.go, holds.go        limits in units of their own, and what an attempt holds of them
//	learn.go, mirror.go        what is learned, and charged meanwhile; advertised quotas that mirror a meter
//	predict.go, expel.go       when a call would start, and who waits for too long
//	errors.go, again.go        the errors of calls that are ended on this side, and when those are worth calling again
//	reason.go, stats.go        what holds a call that waits, and the rest that observers see of a queue:
//	totals.go                  sums over all keys, dropped ones included
//	brake.go, quiet.go         what slows a loop around refusals; attempts that need no report
//
// Units belong to nobody until the moment that their call goes. So leaving the line, pausing it and
// changing a limit lose nothing.
//
// One lock guards all queues of a Transport. Nothing calls out while it is held: hooks, functions of
// the user's and foreign limiters run without it.
package queue

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/go-throttle/throttle/internal/aimd"
	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/line"
	"github.com/go-throttle/throttle/internal/upstream"
)

// A Queue is a waiting line before limiters, with a gate that can stop everyone.
//
// Its lock, common.mu, guards all that changes but ended, marks and some of troubles, which are atomic. Methods
// whose names end in Locked are called with the lock held; the others take it themselves if they need it.
type Queue struct {
	common   *common
	own      *limit.Set // the key's alone; in a bare Queue the same
	line     *lineup    // nil while nobody waits
	asker    *asker     // of foreign limiters; nil: there are none
	meters   *Meters    // what calls hold beside that; nil: nothing
	up       upstream.State
	key      string                   // as observers see it; "" for a bare Queue
	begun    uint64                   // calls
	beyond   int64                    // units that attempts have taken beyond one each
	met      time.Duration            // when its first call came, counted from common.base
	troubles atomic.Pointer[troubles] // nil: it has had none
	slots    int32                    // in-flight slots held
	marks    marks                    // what is known of its attempts, see slots.go
	ended    atomic.Uint64            // calls. Counted without the lock, so kept away from what is written under it
}

// troubles are what only a queue has some of whose calls did not go or had to be sent again: most keys of a million have not.
type troubles struct {
	retried uint64       // attempts
	refused uint64       // calls
	resting atomic.Int64 // calls in their own backoff
	brake   brake        // of refused calls
	bound   *aimd.Bound  // of calls in flight, see follow.go; nil: none is set, or none has gone yet
}

// trouble are the queue's troubles, made if they are missing, and troubled those to be read.
func (q *Queue) trouble() *troubles {
	if t := q.troubles.Load(); t != nil {
		return t
	}
	q.troubles.CompareAndSwap(nil, new(troubles))
	return q.troubles.Load()
}

func (q *Queue) troubled() *troubles { return cmp.Or(q.troubles.Load(), &untroubled) }

var untroubled troubles

// limits are what a call pays by its cost: the key's limiters, and those that all keys share. The State of the upstream has
// them anyway, and there may be many keys, so they are kept there alone.
func (q *Queue) limits() *limit.Set { return q.up.Limits() }

// Options bounds a waiting line; throttle.QueueOptions has the words.
type Options struct {
	MaxWaiting  int
	MaxWait     time.Duration
	MaxInFlight int
	InFlight    *Following // nil: none
	Weight      func(flow string) float64
}

// A Config is what the queues that share a lock have in common.
type Config struct {
	Options     Options
	MaxPause    time.Duration                    // for how long the upstream may serve nobody while calls wait for it; negative: no bound
	Budget      Budget                           // of each key
	Limits      func(key string) (Limits, error) // makes what the calls of a new key pay; called without the lock
	Shared      *limit.Set                       // paid by the calls of all keys; nil: none
	MaxInFlight int                              // as Options.MaxInFlight, but of all keys together; 0: no bound
	Errors      Errors
	Failures    int  // in a row, that close a gate; 0: as many as the gate says
	Tell        Tell // what Call.Held says of waits; a bare queue has no observers
	// WindowFactor is how much faster than evenly an advertised long window is used.
	WindowFactor float64
	// Error makes the error of a call of key that is ended on this side because of reason.
	Error func(key string, wait time.Duration, attempts int, reason error) error
}

// Errors are the reasons to end a call on this side.
type Errors struct {
	Full     error // MaxWaiting calls wait
	Paused   error // the upstream serves nobody for longer than MaxPause
	TooLong  error // the wait is longer than MaxWait
	Deadline error // or than the caller's deadline allows
	Budget   error // the retry budget is spent
	Attempts error // all attempts are made
	Closed   error // Shutdown was called
}

// common is what queues that share a lock have in common: all those of a Table, or a bare Queue alone.
type common struct {
	drain  *drain      // nil: nobody has called Shutdown
	drains atomic.Bool // drain is not nil; for those who have no lock. In front, beside what is only read
	Config
	mu       mutex                    // guards all the queues
	base     time.Time                // offsets count from here
	arrivals uint64                   // of calls so far, the source of Call.Seq
	keyed    bool                     // they are those of a Table
	all      *pool                    // what all of them share; nil: nothing
	stakes   []stake                  // theirs in it
	payers   map[limit.Account]payer  // who waits for what else keys may share
	dirty    []*pool                  // to be looked at, see settle
	stirred  []*lineup                // the same
	settling bool                     // settle is at work
	hosts    map[string]*hostClosing  // by hostName; nil while no host is closed as a whole
	pause    *everyPause              // of all keys; nil: none
	brake    brake                    // of refused calls without a key
	resters  map[chan struct{}]*Queue // the calls in their own backoff, see rest
	asked    map[*Queue]*comebacks    // the refused calls of keys that were asked to come back; nil: there are none
}

// New returns a Queue of its own before l.
func New(c Config, l *limit.Set) *Queue {
	q := new(Queue)
	q.init(&common{Config: c, base: time.Now()}, Limits{All: l, Own: l}, 0)
	guardQueue(q)
	return q
}

// now is time.Now for half its cost: it reads the monotonic clock only. So it must not be compared with
// moments that others have made, such as a deadline.
func (r *common) now() time.Time { return r.base.Add(time.Since(r.base)) }

// Limits are what the calls of a queue pay: All by their cost, Own being the part of it that no other queue's calls pay, and
// Meters, nil for none, by what they hold.
type Limits struct {
	All, Own *limit.Set
	Meters   *Meters
}

// init makes q one of those that have r in common, whose calls pay l. met is when its first call comes, counted from
// r.base.
func (q *Queue) init(r *common, l Limits, met time.Duration) {
	q.common, q.own, q.meters = r, l.Own, l.Meters
	q.up.Init(l.All)
	q.met = met
	if l.Own.Foreign() > 0 {
		q.asker = r.newAsker(l.Own, func(now time.Time) {
			if q.line != nil {
				q.line.advance(now)
			}
		})
	}
}

// Wait waits for a start that takes no slot.
func (q *Queue) Wait(ctx context.Context, want *Want) error {
	if ctx.Err() == nil && want.MaxWait == 0 {
		var w *waiter
		var now time.Time
		if want.Flow == "" && q.marks.has(crowded) {
			w = &waiter{wake: make(chan struct{}, 1)}
			w.Of, w.Cost, w.Prio = w, units(want.Cost), want.Priority
			now = time.Now()
		}
		switch waits, ok := q.quick(ctx, w, want.Cost, now); {
		case ok:
			return nil
		case waits:
			err := q.sleep(ctx, w)
			if err == nil && q.up.Alert() {
				q.finish(w.epoch)
			}
			return err
		}
	}
	return q.waitInLine(ctx, want)
}

// quick is Wait in the two common cases: nobody waits and the units are there; or all is well, the deadline is
// far enough, and the call goes to the end of the line as w.
//
// Two things keep a waiter cheap. w and now were made before the lock was taken: an allocation may have to
// do a share of the garbage collector's work, and all others would wait for it. And quick is kept flat:
// a goroutine that sleeps in a call chain this short needs no more stack than it was born with, which is
// half the cost of a waiter.
func (q *Queue) quick(ctx context.Context, w *waiter, cost int, now time.Time) (waits, ok bool) {
	q.common.mu.Lock()
	defer q.common.mu.Unlock()
	if q.common.drain != nil {
		return false, false // waitInLine says so
	}
	if q.soleLocked() || q.unhinderedLocked() {
		return false, q.payLocked(cost, q.common.now())
	}
	opts := &q.common.Options
	l := q.line
	if w == nil || l == nil || q.common.hosts != nil || !q.up.Calm() || cost != 1 || w.Prio > l.Top() || !l.Plain() ||
		opts.MaxWait > 0 || opts.MaxWaiting > 0 {
		return false, false // the long way: waitInLine
	}
	q.common.arrivals++
	w.Seq, w.moment = q.common.arrivals, now.Sub(q.common.base)
	if d, ok := ctx.Deadline(); ok {
		ahead, _ := l.Ahead(&line.Newcomer{Prio: w.Prio, Seq: w.Seq})
		if q.asker != nil || !q.own.Plain(ahead == int64(l.Len())) || q.own.After(now, ahead, cost).After(d) {
			return false, false
		}
		w.deadline = max(1, d.Sub(q.common.base))
		l.noteDeadline(w)
	}
	l.Push(&w.Call, "", 1)
	q.joinedLocked(w)
	return true, false
}

// waitInLine is Wait in all other cases.
func (q *Queue) waitInLine(ctx context.Context, want *Want) error {
	o := q.order(want, 0)
	err := q.enter(ctx, &o)
	if err != nil {
		q.trouble().brake.slow(ctx, q.common.base, o.now)
	} else if q.up.Alert() {
		q.finish(o.epoch)
	}
	return err
}

// Do waits for a start, then calls fn with an in-flight slot.
func (q *Queue) Do(ctx context.Context, want *Want, fn func(context.Context) error) error {
	o := q.order(want, wantsSlot|takesTime)
	q.common.come()
	if err := q.enter(ctx, &o); err != nil {
		q.trouble().brake.slow(ctx, q.common.base, o.now)
		return err
	}
	return q.runTask(ctx, ctx, &o, fn)
}

// Pause closes the gate for at least d.
func (q *Queue) Pause(d time.Duration) {
	q.change(func(now time.Time) { q.pauseLocked(d, now) })
}

// Resume opens a closed gate now.
func (q *Queue) Resume() { q.change(q.resumeLocked) }

// finish ends a call whose result says nothing of an upstream.
func (q *Queue) finish(epoch uint32) {
	q.change(func(now time.Time) { q.up.Finish(epoch, 0, false, now) })
}

// free gives an in-flight slot back.
func (q *Queue) free() { q.change(q.releaseLocked) }

// busyLocked reports whether calls wait, are under way or rest, or a body is open that counts.
func (q *Queue) busyLocked() bool {
	return q.line != nil || q.slots > 0 || q.begun != q.ended.Load() || q.common.drain != nil && q.common.drain.busy[q] > 0
}

// asNewLocked reports whether a queue made anew would behave the same.
//
// That is when it may be forgotten: a Bucket is full again, a window is over, and nothing that the
// upstream has shown still counts.
func (q *Queue) asNewLocked(now time.Time) bool {
	return !q.busyLocked() && q.up.Idle(now) && q.freshLocked(now) && q.boundIdleLocked(now)
}

// change does what f does under the lock, then lets go who may go because of it.
//
// Every event from outside comes through here: a freed slot, a pause, a finished task, a changed
// foreign limiter. So none can forget to look at the line after it.
func (q *Queue) change(f func(now time.Time)) {
	q.common.mu.Lock()
	defer q.common.mu.Unlock()
	now := time.Now()
	f(now)
	q.advanceLocked(now)
	q.leftLocked()
}

// Key is the key of the queue; "" if it is a bare one.
func (q *Queue) Key() string { return q.key }

// enter waits for a start. If it returns an error, the call holds nothing.
func (q *Queue) enter(ctx context.Context, o *order) (err error) {
	if ctx.Err() != nil {
		return q.errorOf(o.attempts, 0, endOf(ctx))
	}
	w, err := q.arrive(ctx, o)
	if err != nil || w == nil {
		return err
	}
	if err := o.sleep(ctx, q, w); err != nil {
		return err
	}
	o.fill(w)
	return nil
}

// arrive is arriveLocked with the lock.
func (q *Queue) arrive(ctx context.Context, o *order) (*waiter, error) {
	q.common.mu.Lock()
	defer q.common.mu.Unlock()
	return q.arriveLocked(ctx, o)
}
