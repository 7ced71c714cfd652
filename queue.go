package throttle

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/queue"
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
type Queue struct{ q queue.Queue }

// NewQueue returns a Queue before lim; a nil lim sets no limit. It panics if an
// option is negative, or lim is a nil pointer to a limiter of this package.
func NewQueue(lim Limiter, opts QueueOptions) *Queue {
	if err := opts.check(); err != nil {
		panic(err)
	}
	if isNil(lim) {
		panic(fmt.Sprintf("throttle: NewQueue: the limiter is a nil %T", lim))
	}
	q := new(Queue)
	l := flatten(lim)
	q.q.Init(&queue.Room{Opts: queue.Options(opts), MaxPause: -1, Base: time.Now(), NewError: newError}, &l, &l)
	return q
}

// Wait blocks until the caller may go. It takes as many units as ctx says
// ([WithCost], 1 if it says nothing) and no in-flight slot. The error is an
// [*Error]; ErrQueueFull and ErrWaitTooLong come at once.
func (q *Queue) Wait(ctx context.Context) error {
	v := ctxValue(ctx)
	return q.q.Wait(ctx, v.cost, v.prio)
}

// Do waits as Wait does, then calls fn and returns its error. fn holds one of
// MaxInFlight slots while it runs. Where Wait asks only that the start is before ctx's deadline,
// Do refuses a call that has to wait if fn would end after it, by how long the calls before took.
func (q *Queue) Do(ctx context.Context, fn func(context.Context) error) error {
	v := ctxValue(ctx)
	return q.q.Do(ctx, v.cost, v.prio, fn)
}

// Pause closes the gate for at least d: nobody starts before. A pause that
// runs longer already stays.
func (q *Queue) Pause(d time.Duration) { q.q.Pause(d) }

// Resume opens a closed gate now. The first calls are spaced at the limit.
func (q *Queue) Resume() { q.q.Resume() }

// QueueStats is a snapshot of a Queue. All of its numbers are finite, so JSON can hold it.
type QueueStats struct {
	Waiting   int           // calls in line
	InFlight  int           // calls sent and not answered; in a bare Queue and with MaxInFlight, slots held
	Tokens    float64       // units that could go now, negative under a debt; as rate.Inf, math.MaxFloat64, without own limiters
	Limit     rate.Limit    // units per second, of the slowest limiter; rate.Inf without
	ClosedFor time.Duration // how long the gate will still be closed, as far as that is known
	Cause     string        // why: "told", "throttled", "failing" or "paused"; "" if it is open
	Sent      uint64        // attempts that went
	Throttled uint64        // attempts that the upstream refused for a limit
	Retried   uint64        // attempts after the first
	Refused   uint64        // calls turned away on this side: full, paused, too long
}

// Stats returns a snapshot.
func (q *Queue) Stats() QueueStats { return QueueStats(q.q.Stats()) }
