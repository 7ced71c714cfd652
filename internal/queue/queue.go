// Package queue is the waiting line before the limiters: who goes, when, and who is told no.
//
//	line.go, ask.go            the bare line: a timer, the race of grant and ctx
//	ranks.go, levels.go        the order of its waiters
//	queue.go                   a Queue: limiters, line, gate and what is learned, under the lock of a Room
//	admit.go, refuse.go        its rule: who may start, when, and who is turned away
//	foreign.go, shared.go      limiters of other kinds, and one that many queues pay
//	heard.go, doubt.go         what an answer changes, and whether the upstream bears what is configured
//	undo.go                    what a leaving undoes
//	keep.go, dropped.go        when a queue may be dropped, and what is remembered of it
//	reasons.go                 the errors that say why a call was ended on this side
//
// Units belong to nobody until the moment their call goes, so to leave, to pause and to change a rate
// lose nothing.
package queue

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/account"
	"github.com/go-throttle/throttle/internal/gate"
	"github.com/go-throttle/throttle/internal/learn"
)

// A Queue is a waiting line before limiters, with a gate that can stop everyone.
// All that changes but Resting, Ended, crowded and Gate.Alert is guarded by Room.Mu. Wait, Do, Pause, Resume,
// Finish, Free, Stats, AllLearned and AskAnew take it themselves; the others want it held, but for those
// that a foreign limiter may make wait (see rule).
type Queue struct {
	Room     *Room
	Limits   *account.Set   // all that a call pays: the key's and the shared ones
	Own      *account.Set   // the key's alone; in a bare Queue the same
	Line     *Line          // nil while nobody waits
	Foreign  *ForeignView   // nil without foreign limiters
	Learned  *learn.Learner // nil while nothing is
	doubt    *doubt         // nil unless refusals come beside a configured limit
	Gate     gate.Gate
	Begun    uint64 // begun
	Counters Counters
	Key      string        // as observers see it; "" for a bare Queue
	Resting  atomic.Int64  // in their own backoff
	Slots    int           // in-flight slots held
	crowded  atomic.Bool   // there is a line, and dash may be the way into it; only a hint
	Ended    atomic.Uint64 // of calls. Counted without the lock, so kept away from what is written under it
}

// Counters count attempts, and calls that were turned away.
type Counters struct{ Sent, throttled, Retried, refused uint64 }

// Options bounds a waiting line; throttle.QueueOptions has the words.
type Options struct {
	MaxWaiting  int
	MaxWait     time.Duration
	MaxInFlight int
}

// A Room is what queues that share a lock have in common.
type Room struct {
	Mu       sync.Mutex // guards all queues of the room
	Opts     Options
	MaxPause time.Duration // that a call spends behind closed gates; negative: no bound
	Base     time.Time     // offsets of waiters count from here
	Arrivals uint64
	Shared   *SharedLine // nil if no limiter is shared by all queues

	// NewError makes the error of a call that is ended on this side because of reason.
	NewError func(key string, wait time.Duration, attempts int, reason error) error
}

// Now is time.Now for half its cost: it reads only the monotonic clock. So it
// must not be held against moments that others have made, such as a deadline.
func (r *Room) Now() time.Time { return r.Base.Add(time.Since(r.Base)) }

// Init puts the queue into a room. Its calls pay l, of which own is theirs alone.
func (q *Queue) Init(r *Room, l, own *account.Set) {
	q.Room, q.Limits, q.Own = r, l, own
	if len(l.Foreign) > 0 {
		q.Foreign = new(ForeignView)
	}
}

// Wait waits for a start that takes no slot.
func (q *Queue) Wait(ctx context.Context, cost int, prio int32) error {
	if ctx.Err() == nil {
		var w *Waiter
		var now time.Time
		if q.crowded.Load() {
			w = &Waiter{wake: make(chan struct{}, 1), Cost: cost, Prio: prio}
			now = time.Now()
		}
		switch l, ok := q.dash(ctx, w, cost, now); {
		case ok:
			return nil
		case l != nil:
			err := l.Sleep(ctx, w)
			if err == nil && q.Gate.Alert.Load() {
				q.Finish(w.Epoch)
			}
			return err
		}
	}
	return q.waitInLine(ctx, cost, prio)
}

// dash is Wait in the two common cases: nobody waits and the units are there; or all is well, the
// deadline far enough, and the call goes to the end of its line as w. That was made before, as was
// now: whoever allocates may have to do a share of the garbage collector's work, and all others would
// wait for the lock meanwhile. dash is kept flat: a goroutine that waits here needs no more stack than
// it was born with, which is half the cost of a waiter.
func (q *Queue) dash(ctx context.Context, w *Waiter, cost int, now time.Time) (l *Line, ok bool) {
	q.Room.Mu.Lock()
	defer q.Room.Mu.Unlock()
	if q.unhindered() {
		return nil, q.pay(cost, q.Room.Now())
	}
	opts := &q.Room.Opts
	if l = q.Line; w == nil || l == nil || q.Gate.Trouble != nil || cost != 1 || w.Prio > l.top() ||
		opts.MaxWait > 0 || opts.MaxWaiting > 0 {
		return nil, false // enter knows
	}
	q.Room.Arrivals++
	w.Seq = q.Room.Arrivals
	if d, ok := ctx.Deadline(); ok {
		ahead, _ := l.ahead(w.Prio, w.Seq, 0)
		if q.Foreign != nil || q.Own.After(now, ahead, cost).After(d) {
			return nil, false
		}
		w.moment = max(1, d.Sub(q.Room.Base))
	}
	l.push(w)
	return l, false
}

func (q *Queue) waitInLine(ctx context.Context, cost int, prio int32) error {
	o := Order{Waiter: Waiter{Cost: cost, Prio: prio}}
	err := q.enter(ctx, &o)
	if err == nil && q.Gate.Alert.Load() {
		q.Finish(o.Epoch)
	}
	return err
}

// Do waits for a start, then calls fn with an in-flight slot.
func (q *Queue) Do(ctx context.Context, cost int, prio int32, fn func(context.Context) error) error {
	o := Order{Waiter: Waiter{Cost: cost, Prio: prio, Wants: WantsSlot | TakesTime}}
	if err := q.enter(ctx, &o); err != nil {
		return err
	}
	defer q.FinishTask(ctx, &o)
	return fn(ctx)
}

// Pause closes the gate for at least d.
func (q *Queue) Pause(d time.Duration) {
	q.change(func(now time.Time) {
		q.Gate.Pause(d, now, q.Pace())
		q.Expel(now)
	})
}

// Resume opens a closed gate now, and lets one call ask a quota that is spent.
func (q *Queue) Resume() {
	q.change(func(now time.Time) {
		q.Gate.Resume(now, q.Pace())
		if q.Learned != nil {
			q.Learned.Resume(now)
		}
	})
}

// Finish ends a call whose result says nothing of an upstream: its start, in that
// epoch, stands for its answer.
func (q *Queue) Finish(epoch uint32) {
	q.change(func(now time.Time) {
		q.Gate.Learn(gate.Report{Outcome: gate.Success, Epoch: epoch}, now, q.Pace())
	})
}

// FinishTask is Finish of a call that held a slot while its task ran, and measures how long that took.
func (q *Queue) FinishTask(ctx context.Context, o *Order) {
	q.change(func(now time.Time) {
		q.Slots--
		r := gate.Report{Outcome: gate.Success, Epoch: o.Epoch}
		if err := ctx.Err(); err == nil || err == context.DeadlineExceeded {
			r.Trip, r.Cut = now.Sub(o.Now), err != nil
		}
		q.Gate.Learn(r, now, q.Pace())
	})
}

// Free gives an in-flight slot back.
func (q *Queue) Free() {
	q.change(func(time.Time) { q.Slots-- })
}

// change does what f does under the lock, then lets go who may go because of it.
func (q *Queue) change(f func(now time.Time)) {
	q.Room.Mu.Lock()
	defer q.Room.Mu.Unlock()
	now := time.Now()
	f(now)
	q.Advance(now)
}

// Stats is a snapshot of a Queue; throttle.QueueStats has the words.
type Stats struct {
	Waiting   int
	InFlight  int
	Tokens    float64
	Limit     rate.Limit
	ClosedFor time.Duration
	Cause     string
	Sent      uint64
	Throttled uint64
	Retried   uint64
	Refused   uint64
}

// Stats returns a snapshot.
func (q *Queue) Stats() Stats {
	q.Room.Mu.Lock()
	defer q.Room.Mu.Unlock()
	now := time.Now()
	s := Stats{
		InFlight: q.Slots,
		Tokens:   q.Limits.Available(now), Limit: q.Limits.Rate(),
		Sent: q.Counters.Sent, Throttled: q.Counters.throttled, Retried: q.Counters.Retried, Refused: q.Counters.refused,
	}
	if q.Line != nil {
		s.Waiting = q.Line.Count
	}
	if under := int(q.Begun-q.Ended.Load()) - s.Waiting - int(q.Resting.Load()); q.Room.Opts.MaxInFlight == 0 && under > 0 {
		s.InFlight = under
	}
	if q.Gate.Closed(now, q.Pace()) {
		s.Cause, s.ClosedFor = string(q.Gate.Cause), max(0, q.Gate.Until.Sub(now))
	}
	return s
}

// An Order is what a caller wants of a queue: the waiter that will stand in line,
// if it must, and what need not be kept there.
type Order struct {
	Waiter
	Attempts int       // sent before
	Retry    bool      // not its first attempt: never refused by MaxWaiting
	Now      time.Time // when it was granted
	Sample   bool      // its round trip is to be measured
	Waited   bool      // it has stood in the line
}

// Fill copies what w was granted.
func (o *Order) Fill(w *Waiter) {
	o.Waiter, o.Now, o.Waited = *w, time.Now(), true
}

// enter waits for a start. When it returns an error, nothing is held.
func (q *Queue) enter(ctx context.Context, o *Order) (err error) {
	if err := ctx.Err(); err != nil {
		return q.ErrorOf(o.Attempts, 0, err)
	}
	l, w, err := q.arrive(ctx, o)
	if err != nil || w == nil {
		return err
	}
	if err := l.Sleep(ctx, w); err != nil {
		return err
	}
	o.Fill(w)
	return nil
}

func (q *Queue) arrive(ctx context.Context, o *Order) (*Line, *Waiter, error) {
	q.Room.Mu.Lock()
	defer q.Room.Mu.Unlock()
	return q.Admit(ctx, o, q.Room.Now(), nil)
}
