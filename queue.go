package throttle

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/queue"
)

// QueueOptions bounds a waiting line. The zero value bounds nothing. In a Transport the bounds hold for each key.
type QueueOptions struct {
	// MaxWaiting bounds the calls that wait; one more is refused at once with ErrQueueFull. 0: no bound.
	MaxWaiting int

	// MaxWait bounds the predicted wait: a call with a longer one is refused at once with ErrWaitTooLong. 0: only its ctx
	// bounds it. A wait can turn out longer than predicted, because in-flight slots, later calls of a higher priority,
	// the end of an outage (see Retry.MaxPause) and limiters of other packages cannot be predicted.
	MaxWait time.Duration

	// MaxInFlight bounds the calls that are sent and not finished. 0: no bound. A Transport's call has
	// finished when the response's body is closed or read to its end, or its ctx ends.
	MaxInFlight int

	// InFlight bounds the same calls by a load that it follows; nil: none is followed. Each key has a bound of its own, and calls
	// of Wait have none. With MaxInFlight too the lower bound holds. An error of Do's or a Group's fn, and an answer that says
	// that an attempt failed or was throttled, is not a response time.
	InFlight *Adaptive

	// Weight is the share of a flow (WithFlow) of the line: one of weight 2 gets twice as much as one of weight 1
	// while both wait. nil: all have 1. It is asked once for each call that names a flow, possibly by several
	// goroutines at once. Weights are clamped to [0.001, 1000]; NaN, 0, a negative weight and a panic count as 1.
	Weight func(flow string) float64
}

// check returns an error for the first field with an impossible value.
func (o *QueueOptions) check() error {
	switch {
	case o.MaxWaiting < 0:
		return fmt.Errorf("throttle: QueueOptions.MaxWaiting is %d, must not be negative", o.MaxWaiting)
	case o.MaxWait < 0:
		return fmt.Errorf("throttle: QueueOptions.MaxWait is %v, must not be negative", o.MaxWait)
	case o.MaxInFlight < 0:
		return fmt.Errorf("throttle: QueueOptions.MaxInFlight is %d, must not be negative", o.MaxInFlight)
	}
	return o.InFlight.check("QueueOptions.InFlight")
}

// A Queue is a waiting line before a limiter, with a gate that can stop all calls. A [Transport] keeps
// one for each key; without HTTP, make one with [NewQueue]: the zero Queue panics. All methods are safe for
// concurrent use. A Queue starts no goroutine and needs no closing.
//
// Calls go in the order of their priority ([WithPriority]), then of their arrival; every eighth call is
// the one that has waited longest. Only the head of the line asks the limiter, so a caller that leaves
// costs the others nothing, and a changed limit takes effect at once.
//
// After a pause, or after the upstream has throttled, calls are spaced at the limiter's rate until the
// backlog is gone: no burst follows the wait. Of an [All] the slowest rate counts. A limiter with many
// units left, such as a daily quota, counts with the rate that would use them up in ten minutes.
type Queue struct{ q *queue.Queue }

// NewQueue returns a Queue before lim; a nil lim sets no limit. It panics if an
// option is negative, or lim is a nil pointer to a limiter of this package.
func NewQueue(lim Limiter, opts QueueOptions) *Queue {
	if err := opts.check(); err != nil {
		panic(err)
	}
	if isNil(lim) {
		panic(fmt.Sprintf("throttle: NewQueue: the limiter is a nil %T", lim))
	}
	return &Queue{queue.New(config(opts, -1), flatten(lim))}
}

// config is what all lines of this package have in common. The errors are declared here, in the root, and handed down.
func config(opts QueueOptions, maxPause time.Duration) queue.Config {
	return queue.Config{
		Options: queue.Options{
			MaxWaiting: opts.MaxWaiting, MaxWait: opts.MaxWait, MaxInFlight: opts.MaxInFlight, InFlight: opts.InFlight.follow(), Weight: opts.Weight,
		},
		MaxPause: maxPause, Error: newError,
		Errors: queue.Errors{Full: ErrQueueFull, Paused: ErrPaused, TooLong: ErrWaitTooLong, Deadline: errDeadline, Budget: ErrRetryBudget, Attempts: ErrMaxAttempts, Closed: ErrClosed},
	}
}

// Wait blocks until the caller may start, and takes as many units as [WithCost] says, 1 by default. It takes no in-flight
// slot. The error is an [*Error]: at once if the line refuses the call, later if ctx ends or the limiter fails.
func (q *Queue) Wait(ctx context.Context) error {
	return q.q.Wait(ctx, &ctxValue(ctx).want)
}

// Do waits as Wait does, then calls fn and returns its error. fn holds one of MaxInFlight slots while it runs. A call
// that has to wait is refused if fn is expected to end after ctx's deadline, by how long the calls before it took.
func (q *Queue) Do(ctx context.Context, fn func(context.Context) error) error {
	return q.q.Do(ctx, &ctxValue(ctx).want, fn)
}

// Pause closes the gate for at least d: no call starts before that. It does not shorten a closing that
// lasts longer, and d ≤ 0 does nothing.
func (q *Queue) Pause(d time.Duration) { q.q.Pause(d) }

// Resume opens a closed gate now. The calls that were held back are spaced at the limiter's rate.
func (q *Queue) Resume() { q.q.Resume() }

// Predict returns how long it would take until the last of n more calls of one unit, priority 0, has started, behind
// all that wait now; 0 for n ≤ 0. It supposes that nobody else comes or leaves. -1: that is not known, because the
// end of an outage, a limit that is searched for, answers that show what an advertised quota is, or a limiter of another
// package decides, or it never does; or all in-flight slots are taken, or will be before the last one's turn as far as is
// known. It takes up to a millisecond if thousands of calls wait.
func (q *Queue) Predict(n int) time.Duration { return foreseen(q.q.Predict(n)) }

// foreseen is wait, or -1 if it is not known.
func foreseen(wait time.Duration, known bool) time.Duration {
	if !known {
		return -1
	}
	return wait
}

// Age returns for how long the call has waited that has waited longest, in seconds; 0: nobody waits. It is a Load for
// what fills the line, an Adaptive of another Queue: one that follows its own line makes it longer.
func (q *Queue) Age() float64 { return q.q.Age().Seconds() }

// QueueStats is a snapshot of a Queue: who waits, what holds them, and what was sent since it was made. Use it to
// see why calls wait; the counters are for a monitor, which looks twice.
type QueueStats struct {
	Waiting     int            // calls in line
	Flows       map[string]int // of these, those of each flow; above 100 flows the smaller ones together as "_other"; nil: none is named
	InFlight    int            // attempts without a response yet; for a Queue, or with a bound of them, slots held
	MaxInFlight int            // that may be in flight now: QueueOptions.MaxInFlight, or what InFlight has made of it if that is lower; 0: no bound
	Load        float64        // that QueueOptions.InFlight follows, as last read, or the smoothed response time in seconds; 0: none, or unknown
	Tokens      float64        // units ready now; negative: a debt; math.MaxFloat64: no limiter of this package
	Limit       rate.Limit     // units per second of the slowest limiter of this package; rate.Inf: none
	ClosedFor   time.Duration  // how much longer the gate is closed, as far as is known; 0: not at all
	Sent        uint64         // attempts sent
	Throttled   uint64         // attempts that the upstream throttled
	Retried     uint64         // attempts after a call's first
	Refused     uint64         // calls that this side refused: queue full, paused, wait too long
	Reason      string         // what holds the first call in line, see Event; if nobody waits the closed gate; "": nothing
	Until       time.Time      // until when it does, as far as is known; zero: unknown, or nobody waits
	Oldest      time.Time      // when the eldest of these came, for its first attempt; zero: nobody waits
}

// Stats returns a snapshot of the line, its gate and its limiter, for dashboards and logs.
func (q *Queue) Stats() QueueStats { return QueueStats(q.q.Stats()) }
