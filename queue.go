package throttle

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// QueueOptions bounds a waiting line. The zero value bounds nothing.
type QueueOptions struct {
	// MaxWaiting bounds how many wait, per key of a Transport: those beyond are
	// refused with ErrQueueFull. 0: no bound.
	MaxWaiting int
	// MaxWait is the longest wait to begin: a call whose predicted one is longer is
	// refused at once with ErrWaitTooLong. 0: only its ctx bounds it. What cannot be
	// foreseen may make a wait longer: in-flight slots, later calls of a higher
	// priority, when an upstream that is down comes back (see Retry.MaxPause), and
	// what a foreign limiter has not told yet.
	MaxWait time.Duration
	// MaxInFlight bounds the calls that are sent and not finished, per key of a
	// Transport. There a call has finished when its response's body was closed or
	// read to the end, or its ctx is over. 0: no bound.
	MaxInFlight int
}

func (o *QueueOptions) check() error {
	switch {
	case o.MaxWaiting < 0:
		return fmt.Errorf("throttle: QueueOptions.MaxWaiting is %d, must not be negative", o.MaxWaiting)
	case o.MaxWait < 0:
		return fmt.Errorf("throttle: QueueOptions.MaxWait is %v, must not be negative", o.MaxWait)
	case o.MaxInFlight < 0:
		return fmt.Errorf("throttle: QueueOptions.MaxInFlight is %d, must not be negative", o.MaxInFlight)
	}
	return nil
}

// A Queue is a waiting line before a limiter, with a gate that can stop
// everyone. It is what a [Transport] keeps for each key, and can be used
// without HTTP.
//
// Calls go in the order of their priority ([WithPriority]), then of their
// arrival; every eighth goes to the one that has waited longest. Only the head
// of the line asks the limiter, so a call that leaves costs the others nothing,
// and a changed limit is felt at once.
//
// After a refusal or a pause, calls start at the long-run rate of the limiter, or of the slowest of an
// [All], without bursts, until one comes when the last is paid for and nobody waits. A limiter with
// much left, a quota for a day say, counts with what spends that in ten minutes.
//
// The methods are safe for concurrent use. A Queue starts no goroutine and
// needs no closing.
type Queue struct {
	room     *room
	limits   *set         // all that a call pays: the key's and the shared ones
	sole     *tank        // the only one of them, if it is one: it needs no detour; else nil
	own      *set         // the key's alone
	line     *line        // nil while nobody waits
	foreign  *foreignView // nil without foreign limiters
	learned  *learned     // nil while nothing is
	gate     gate
	calls    uint64  // begun
	spent    float64 // of the retry budget
	counters counters
	key      string        // as observers see it; "" for a bare Queue
	resting  atomic.Int64  // in their own backoff
	slots    int           // in-flight slots held
	ended    atomic.Uint64 // of calls. Counted without the lock, so kept away from what is written under it
}

type counters struct{ sent, throttled, retried, refused uint64 }

// A room is what queues that share a lock have in common.
type room struct {
	mu       sync.Mutex // guards all queues of the room
	opts     QueueOptions
	maxPause time.Duration // see Retry.MaxPause; negative: no bound
	budget   Budget
	base     time.Time // offsets of waiters count from here
	arrivals uint64
	shared   *sharedLine // nil if no limiter is shared by all queues
}

// now is time.Now for half its cost: it reads only the monotonic clock. So it
// must not be held against moments that others have made, such as a deadline.
func (r *room) now() time.Time { return r.base.Add(time.Since(r.base)) }

// NewQueue returns a Queue before lim; a nil lim sets no limit. It panics if an
// option is negative.
func NewQueue(lim Limiter, opts QueueOptions) *Queue {
	if err := opts.check(); err != nil {
		panic(err)
	}
	r := &room{opts: opts, maxPause: -1, base: time.Now()}
	q := new(Queue)
	l := flatten(lim)
	q.init(r, &l, &l)
	return q
}

func (q *Queue) init(r *room, l, own *set) {
	q.room, q.limits, q.own = r, l, own
	if len(l.own) == 1 {
		q.sole, _ = l.own[0].(*tank)
	}
	if len(l.foreign) > 0 {
		q.foreign = new(foreignView)
	}
}

// Wait blocks until the caller may go. It takes as many units as ctx says
// ([WithCost], 1 if it says nothing) and no in-flight slot. The error is an
// [*Error]; ErrQueueFull and ErrWaitTooLong come at once.
func (q *Queue) Wait(ctx context.Context) error {
	v := ctxValue(ctx)
	if ctx.Err() == nil {
		switch l, w, ok := q.dash(ctx, v); {
		case ok:
			return nil
		case w != nil:
			err := l.sleep(ctx, w)
			if err == nil && q.gate.alert.Load() {
				q.finish(false, w.epoch)
			}
			return err
		}
	}
	return q.waitFor(ctx)
}

// dash is Wait in the two common cases: nobody waits and the units are there;
// or all is well, the deadline far enough, and the call goes to the end of its line. It is kept flat: a
// goroutine that waits here needs no more stack than it was born with, which is
// half the cost of a waiter.
func (q *Queue) dash(ctx context.Context, v ctxOrder) (l *line, w *waiter, ok bool) {
	q.room.mu.Lock()
	defer q.room.mu.Unlock()
	if q.clear() {
		return nil, nil, q.pay(v.cost, q.room.now())
	}
	opts := &q.room.opts
	if l = q.line; l == nil || q.gate.trouble != nil || v.cost != 1 || v.prio > l.levels[0].prio ||
		opts.MaxWait > 0 || opts.MaxWaiting > 0 {
		return nil, nil, false // enter knows
	}
	q.room.arrivals++
	w = &waiter{seq: q.room.arrivals, cost: v.cost, prio: v.prio}
	if d, ok := ctx.Deadline(); ok {
		ahead, _ := l.ahead(w.prio, w.seq, 0)
		if q.foreign != nil || q.own.after(time.Now(), ahead, w.cost).After(d) {
			return nil, nil, false
		}
		w.moment = max(1, d.Sub(q.room.base))
	}
	w.wake = make(chan struct{}, 1)
	l.push(w)
	return l, w, false
}

func (q *Queue) waitFor(ctx context.Context) error {
	o := orderFrom(ctx, 0)
	err := q.enter(ctx, &o)
	if err == nil && q.gate.alert.Load() {
		q.finish(false, o.epoch)
	}
	return err
}

// Do waits as Wait does, then calls fn and returns its error. fn holds one of
// MaxInFlight slots while it runs.
func (q *Queue) Do(ctx context.Context, fn func(context.Context) error) error {
	o := orderFrom(ctx, wantsSlot)
	if err := q.enter(ctx, &o); err != nil {
		return err
	}
	defer q.finish(true, o.epoch)
	return fn(ctx)
}

// Pause closes the gate for at least d: nobody starts before. A pause that
// runs longer already stays.
func (q *Queue) Pause(d time.Duration) {
	q.change(func(now time.Time) {
		q.gate.pause(d, now, q.pace())
		q.expel(now)
	})
}

// Resume opens a closed gate now. The first calls are spaced at the limit.
func (q *Queue) Resume() {
	q.change(func(now time.Time) {
		q.gate.resume(now, q.pace())
		if q.learned != nil {
			q.learned.resume(now)
		}
	})
}

// finish ends a call whose result says nothing of an upstream: its start, in that
// epoch, stands for its answer.
func (q *Queue) finish(slot bool, epoch uint32) {
	q.change(func(now time.Time) {
		if slot {
			q.slots--
		}
		q.gate.learn(report{outcome: success, epoch: epoch}, now, q.pace())
	})
}

// free gives an in-flight slot back.
func (q *Queue) free() {
	q.change(func(time.Time) { q.slots-- })
}

// change does what f does under the lock, then lets go who may go because of it.
func (q *Queue) change(f func(now time.Time)) {
	q.room.mu.Lock()
	defer q.room.mu.Unlock()
	now := time.Now()
	f(now)
	q.advance(now)
}

// QueueStats is a snapshot of a Queue.
type QueueStats struct {
	Waiting   int           // calls in line
	InFlight  int           // calls sent and not answered; in a bare Queue and with MaxInFlight, slots held
	Tokens    float64       // units that could go now, negative under a debt; as rate.Inf without own limiters
	Limit     rate.Limit    // units per second, of the slowest limiter; rate.Inf without
	ClosedFor time.Duration // how long the gate will still be closed, as far as that is known
	Cause     string        // why: "told", "throttled", "failing" or "paused"; "" if it is open
	Sent      uint64        // attempts that went
	Throttled uint64        // attempts that the upstream refused for a limit
	Retried   uint64        // attempts after the first
	Refused   uint64        // calls turned away on this side: full, paused, too long
}

// Stats returns a snapshot.
func (q *Queue) Stats() QueueStats {
	q.room.mu.Lock()
	defer q.room.mu.Unlock()
	now := time.Now()
	s := QueueStats{
		InFlight: q.slots,
		Tokens:   min(q.limits.available(now), math.MaxFloat64), Limit: q.limits.rate(),
		Sent: q.counters.sent, Throttled: q.counters.throttled, Retried: q.counters.retried, Refused: q.counters.refused,
	}
	if q.line != nil {
		s.Waiting = q.line.count
	}
	if under := int(q.calls-q.ended.Load()) - s.Waiting - int(q.resting.Load()); q.room.opts.MaxInFlight == 0 && under > 0 {
		s.InFlight = under
	}
	if q.gate.closed(now, q.pace()) {
		s.Cause, s.ClosedFor = string(q.gate.cause), max(0, q.gate.until.Sub(now))
	}
	return s
}

// An order is what a caller wants of a queue: the waiter that will stand in line,
// if it must, and what need not be kept there.
type order struct {
	waiter
	attempts int       // sent before
	retry    bool      // not its first attempt: never refused by MaxWaiting
	now      time.Time // when it was granted
	sample   bool      // its round trip is to be measured
	waited   bool
}

func orderFrom(ctx context.Context, wants wish) order {
	v := ctxValue(ctx)
	return order{waiter: waiter{cost: v.cost, prio: v.prio, wants: wants}}
}

// enter waits for a start. When it returns an error, nothing is held.
func (q *Queue) enter(ctx context.Context, o *order) (err error) {
	if err := ctx.Err(); err != nil {
		return q.errorOf(o.attempts, 0, err)
	}
	l, w, err := q.arrive(ctx, o)
	if err != nil || w == nil {
		return err
	}
	if err := l.sleep(ctx, w); err != nil {
		return err
	}
	o.fill(w)
	return nil
}

func (q *Queue) arrive(ctx context.Context, o *order) (*line, *waiter, error) {
	q.room.mu.Lock()
	defer q.room.mu.Unlock()
	return q.admit(ctx, o, q.room.now(), nil)
}

// fill copies what w was granted.
func (o *order) fill(w *waiter) {
	o.waiter, o.now, o.waited = *w, time.Now(), true
}
