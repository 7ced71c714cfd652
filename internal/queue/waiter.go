package queue

import (
	"context"
	"math"
	"net/url"
	"time"

	"github.com/go-throttle/throttle/internal/line"
	"github.com/go-throttle/throttle/internal/upstream"
)

type waitState uint8

// The states of a waiter. Only code that holds the lock changes them:
//
//	waiting -> granted   its turn came, and it has its units
//	waiting -> refused   the gate or a quota holds it back for longer than it may wait, or it can never go
//
// A waiter whose ctx ends leaves from any of them, see Queue.abandon.
const (
	waiting waitState = iota // in the line
	granted                  // left the line: it may start
	refused                  // left the line: extra.err says why
)

// A waiter is one call in a line. The queue's lock guards its fields. Once woken, its own goroutine may read them without
// the lock, because nobody changes a waiter that has left the line.
//
// 100,000 callers may wait at once, so it is kept within 96 bytes: moments are offsets from the base that all queues of a
// lock share instead of a time.Time of 24 bytes, and what those lack that wait in a Queue's Wait is in extra.
type waiter struct {
	line.Call[waiter]
	wake     chan struct{} // buffered by one; nil: a task waits, see extra.task
	extra    *extra        // nil: nothing of it
	moment   time.Duration // when its call came, as that of Seq; once granted: that for which its units were taken
	deadline time.Duration // its ctx's; 0: none
	epoch    uint32        // of the gate, when it was granted
	tries    uint8         // attempts sent before, at most 255
	state    waitState
	wants    wish
	level    upstream.Level // of the attempts in flight when it was granted
}

// An extra is what not all waiters have.
type extra struct {
	holds   *Holds   // of meters
	task    *task    // that waits; nil: a goroutine does
	err     error    // why it was refused
	owed    *pool    // where it goes before all others, because its turn has come; nil: nowhere
	url     *url.URL // its request's, see order
	reserve uint32   // see order
}

// more is w.extra, made if it is missing.
func (w *waiter) more() *extra {
	if w.extra == nil {
		w.extra = new(extra)
	}
	return w.extra
}

// queue is the one in whose line w stands.
func (w *waiter) queue() *Queue { return line.OwnerOf(&w.Call).(*Queue) }

// holds are what w wants of meters; nil: nothing.
func (w *waiter) holds() *Holds { return w.also().holds }

// also is w.extra, or one without anything, to be read.
func (w *waiter) also() *extra {
	if w.extra == nil {
		return &none
	}
	return w.extra
}

var none extra

// A wish is what a waiter wants beside its units, and what is to be known of it, in bits.
type wish uint8

const (
	wantsSlot wish = 1 << iota // it takes an in-flight slot
	canResend                  // its request can be sent again, so it makes a good probe
	counted                    // its start was counted by the quotas of its scope
	takesTime                  // work follows its start, which must be done before its deadline
)

// slot reports whether w takes an in-flight slot.
func (w *waiter) slot() bool { return w.wants&wantsSlot != 0 }

// resend reports whether w's request can be sent again.
func (w *waiter) resend() bool { return w.wants&canResend != 0 }

// An order is what a caller wants of a queue: the waiter that will stand in line if it must, and what need
// not be kept there. It lives on the caller's stack; a waiter is allocated only if the call has to wait.
type order struct {
	waiter
	want     *Want     // shared with other calls
	weight   float64   // of want.Flow; 0: it has none
	url      *url.URL  // its request's, for its route; nil: it has none
	now      time.Time // when it was granted
	holds    *Holds    // of the meters of its key; nil: it has none, or asks are all that there is
	asks     asks      // of the same
	task     *task     // whose it is; nil: a goroutine waits for it
	begins   *begins   // of its wait, if Config.Tell asks for that; nil: it has not waited
	attempts int       // sent before
	reserve  uint32    // the most of its time that is kept for its answer, in microseconds, see answerTimeLocked
	sample   bool      // its round trip is to be measured
}

// A begins is how a wait begins: what holds the call, and for how long.
type begins struct {
	by   string
	wait time.Duration
}

// retry reports whether it is not the first attempt, so MaxWaiting does not refuse it.
func (o *order) retry() bool { return o.attempts > 0 }

// order is what a caller wants that has that and wishes. It asks for the flow's weight.
func (q *Queue) order(w *Want, wishes wish) order {
	o := order{waiter: waiter{wants: wishes}, want: w}
	o.Cost, o.Prio = units(w.Cost), w.Priority
	o.weighFlow(&q.common.Options)
	return o
}

// newWaiter is what stands in line for o.
func (o *order) newWaiter() *waiter {
	both := new(struct {
		waiter
		more extra
	})
	w := &both.waiter
	*w, both.more = o.waiter, extra{holds: o.holds, task: o.task, url: o.url, reserve: o.reserve}
	w.Of, w.extra = w, &both.more
	w.state, w.tries = waiting, uint8(min(o.attempts, 255))
	if o.task == nil {
		w.wake = make(chan struct{}, 1)
	}
	return w
}

// weighFlow asks for the weight of a call's flow, once a call and without the lock: it is the user's function.
func (o *order) weighFlow(opts *Options) {
	if o.want.Flow != "" {
		o.weight = opts.weigh(o.want.Flow)
	}
}

// weigh is the weight of a flow: from 0.001 to 1000, and 1 where Weight says nothing that can be used. A panic must not
// end the call: others of the same program may not know of the tenant that it is about.
func (opts *Options) weigh(flow string) (weight float64) {
	if opts.Weight == nil {
		return 1
	}
	defer func() {
		if recover() != nil {
			weight = 1
		}
	}()
	if weight = opts.Weight(flow); !(weight > 0) { // NaN too
		return 1
	}
	return min(max(weight, 0.001), 1000)
}

// units is a cost as a waiter keeps it.
func units(cost int) int32 { return int32(min(max(cost, math.MinInt32), math.MaxInt32)) }

// fill copies what w was granted.
// The moment of the grant is read here, once the goroutine runs: a round trip is counted from there.
func (o *order) fill(w *waiter) {
	came := o.moment
	o.waiter, o.now = *w, time.Now()
	o.moment = came
}

// sleep is Queue.sleep of w, which o wants. It ends with Errors.TooLong if w has waited for as long as it may, although
// less was predicted.
func (o *order) sleep(ctx context.Context, q *Queue, w *waiter) error {
	if o.want.MaxWait == 0 {
		return q.sleep(ctx, w)
	}
	ctx, cancel := o.bound(ctx, q)
	defer cancel()
	return q.sleep(ctx, w)
}

// bound returns ctx, which ends also when the call has waited for as long as it may. One nanosecond more lets a grant
// at the last moment win.
func (o *order) bound(ctx context.Context, q *Queue) (context.Context, context.CancelFunc) {
	if o.want.MaxWait == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, max(0, min(o.want.MaxWait, 1<<62))+1, tooLate{q.common.Errors.TooLong})
}

// A decision is what a queue says about the head of its line.
//
// Examples: a Bucket of 10/s that is empty says later, in 100 ms, exact. A gate that is closed for 30 s
// says later, in 30 s. All slots taken: block. A cost of 20 before a burst of 10: deny.
type decision struct {
	verdict verdict
	until   time.Time // later: when it is worth looking again; block: the same if nothing happens until then, zero: never
	exact   bool      // later: until follows from a rate, so a late timer may be made up for
	err     error     // deny: why
}

type verdict uint8

const (
	grant verdict = iota // it has its units and may start
	later                // not before decision.until
	block                // not before something happens that calls advance: a slot, an answer
	deny                 // never; decision.err says why
)
