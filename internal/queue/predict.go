package queue

import (
	"context"
	"math"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/upstream"
)

// This file predicts when a call would start. A prediction supposes that nobody leaves the line and that no
// call of a higher priority comes. In-flight slots are not predicted: how long a call takes is not ours
// to know. All of it is called with the lock held.

// predictLocked returns how long a newcomer would wait.
//
// It counts what goes before the newcomer three times: in its own line, in its scope, and at the shared
// limiter, where calls of other keys are before it too. startAtLocked takes the latest of the three.
func (q *Queue) predictLocked(o *order, now time.Time) time.Duration {
	var before upstream.Before
	if l := q.line; l != nil {
		if c := q.classLocked(o); c == nil {
			before.All, before.Scope = l.ahead(o.prio, o.seq, o.scope)
		} else {
			before.All, before.Scope = l.aheadIn(c, c.flows[q.flowID(o)], o)
		}
	}
	if s := q.common.shared; s != nil {
		before.Shared = s.ahead(o, q.flowID(o))
	}
	return q.startAtLocked(before, int(o.cost), o.scope, now).Sub(now)
}

// flowID is that of a call. Where several keys share a line, the calls of a key that name no flow are the key's. A name
// cannot be mistaken for a key, because the two differ in isKey.
func (q *Queue) flowID(o *order) flowID {
	if o.flowName == "" && q.common.shared != nil {
		return flowID{q.key, true}
	}
	return flowID{name: o.flowName}
}

// classLocked is the class of a call that arrives; nil: no flow matters to it. The first one to name a flow finds all
// others in the unnamed one.
func (q *Queue) classLocked(o *order) *class {
	c := q.line.flows[o.prio]
	if c == nil && o.flowName != "" {
		c = new(class)
	}
	return c
}

// startAtLocked returns when a call of n units would start that has so many units before it: the latest of what
// the own limiters, the shared ones, the upstream and the foreign limiters say, counted from when the gate
// opens. An example: a Bucket of 10/s with 3 units left, 20 units ahead, a call of 1 unit: (20 + 1 − 3)/10 =
// 1.8 s after the gate opens.
func (q *Queue) startAtLocked(before upstream.Before, n int, scope uint8, now time.Time) time.Time {
	from := now.Add(q.up.Closing(now).Left)
	at := q.own.After(from, before.All, n)
	if s := q.common.shared; s != nil {
		at = limit.Latest(at, s.limits.After(from, before.Shared, n))
	}
	at = limit.Latest(at, q.up.Predict(scope, before, n, now))
	if f := q.foreign; f != nil {
		// gap is in seconds per unit: with 0.2, five units ahead are 1 s after the next asking.
		at = limit.Latest(at, limit.Latest(from, f.next).Add(time.Duration(float64(before.All)*f.gap*1e9)))
	}
	return at
}

// noteDeadline notes the deadline of a call that arrives at now, and how much of its time is kept for its
// answer at most.
//
// An example: a call with 80 ms to live keeps 70 ms of them at most. If answers take 400 ms of late, it
// may still start if it waits for no more than 10 ms.
func (q *Queue) noteDeadline(ctx context.Context, o *order, now time.Time) {
	o.deadline, o.reserve = 0, 0
	if d, ok := ctx.Deadline(); ok {
		o.deadline = max(1, d.Sub(q.common.base))
		o.reserve = uint32(min(max(0, d.Sub(now))/8*7/time.Microsecond, math.MaxUint32))
	}
}

// answerTimeLocked is how long after its start w is expected to have its answer; 0 if nothing follows its start,
// as in Queue.Wait, or if w has no deadline. At most 7/8 of the time that w had on arrival is kept for
// that. A caller who gives a call so little knows that this call is quicker than others. And if all such
// calls were refused, none could show that the upstream is quicker again.
func (q *Queue) answerTimeLocked(w *waiter) time.Duration {
	if w.wants&takesTime == 0 {
		return 0
	}
	return min(q.up.AnswerTime(), time.Duration(w.reserve)*time.Microsecond)
}

// lateLocked reports whether w, whose turn it is, cannot have its answer before its deadline any more. Then its
// units are of use to the next in line. Without this, callers with equal timeouts under overload would all
// start just before their deadlines and die in flight.
//
// An example with timeouts of 1 s and answers that take 200 ms: a call whose turn comes after 0.85 s
// has 150 ms left. It is refused, and the next one, which came later and has more time left, goes with
// its unit.
func (q *Queue) lateLocked(w *waiter, now time.Time) bool {
	answer := q.answerTimeLocked(w)
	return w.deadline != 0 && answer > 0 && now.Sub(q.common.base)+answer > w.deadline
}
