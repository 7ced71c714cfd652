package queue

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/upstream"
)

// This file predicts when a call would start. A prediction supposes that nobody leaves the line and that no
// call of a higher priority comes. In-flight slots are not predicted: how long a call takes is not ours
// to know. So Predict says that it does not know while they are taken, and who arrives is not refused for them. All of it is called with the lock held.
//
// What the calls before it do to a single limiter is a formula (limit.Set.After), and so is what gate, quotas and finder
// make of them (upstream.State.Predict). Several limiters and costs in a window are run ahead instead, on copies
// (limit.Foresee). The lock is needed to
// count the line and to copy. Predict runs the copies ahead without it; an arrival, which is let in or refused
// by the result, runs them with it, in fewer steps.
//
// A prediction is a moment's view. Whatever changes afterwards (a limit, a pause, a caller who leaves) makes it wrong
// and does no other harm: nothing is booked by it.

const (
	// arrivalSteps bounds the work of a prediction that decides whether a call may wait: a step takes 20 to 100 ns.
	// Lines of mixed costs get four times as many, because a step for several calls does not see where their
	// costs leave a rest of a window.
	arrivalSteps = 256
	// predictSteps bounds that of one that somebody asks for, who does not hold the lock for it.
	predictSteps = 4096
)

// A backlog is what goes before a call: the units of those who wait, then more calls of one unit each.
type backlog struct {
	upstream.Before
	more  int64
	held  []int64 // of each meter, what those before it hold; nil: nothing
	holds *Holds  // what the call itself wants of the meters; nil: the usual
}

// flowID is that of a call. Where several keys share a line, the calls of a key that name no flow are the key's. A name
// cannot be mistaken for a key, because the two differ in isKey.
func (q *Queue) flowID(o *order) flowID {
	if o.want.Flow == "" && q.common.shared != nil {
		return flowID{q.key, true}
	}
	return flowID{name: o.want.Flow}
}

// classLocked is the class of a call that arrives; nil: no flow matters to it. The first one to name a flow finds all
// others in the unnamed one.
func (q *Queue) classLocked(o *order) *class {
	c := q.line.flows[o.prio]
	if c == nil && o.want.Flow != "" {
		c = new(class)
	}
	return c
}

// A prospect is a prediction, made under the lock and finished without it: not before at, nor before any of the runs says.
type prospect struct {
	at    time.Time
	known bool // otherwise the start is the earliest that may be
	runs  []run
	slots turnover // if somebody asks for the prospect
}

// A run is a part of a prospect that takes some work, and needs no lock.
type run struct {
	forecast    limit.Forecast
	ahead, more int64
	n           int
}

// start is when the call starts.
func (p *prospect) start() time.Time {
	at := p.at
	for i := range p.runs {
		r := &p.runs[i]
		at = limit.Latest(at, limit.Foresee(r.forecast, r.ahead, r.more, r.n))
	}
	return at
}

// Predict returns how long until the last of n more calls of one unit, of priority 0, would start; known is false if
// nobody can say.
func (q *Queue) Predict(n int) (wait time.Duration, known bool) {
	if n <= 0 {
		return 0, true
	}
	p, now := q.foresee(min(int64(n), 1<<40) - 1)
	wait = p.start().Sub(now)
	return max(0, wait), p.known && wait < limit.Forever/2 && p.slots.suffices(wait)
}

// newFlow is the flow of calls that may come, where those who wait have named theirs: no name of a flow has a NUL.
const newFlow = "\x00new"

// foresee is foreseeLocked, with the lock, of a call of one unit with so many more before it.
func (q *Queue) foresee(more int64) (p prospect, now time.Time) {
	q.common.mu.Lock()
	defer q.common.mu.Unlock()
	now = time.Now()
	scope := q.usualScopeLocked()
	o := order{waiter: waiter{seq: math.MaxUint64, scope: scope}, want: new(Want)}
	if q.line != nil && q.line.flows[0] != nil && q.common.shared == nil {
		o.want = &Want{Flow: newFlow}
	}
	p = q.foreseeLocked(q.beforeLocked(&o, more), 1, scope, predictSteps, now)
	p.slots = q.turnoverLocked(more+1, now)
	return p, now
}

// usualScopeLocked is the scope that calls of unknown routes are supposed to fall under: that in which most units wait,
// or what was advertised last. An example: 40 calls of /search wait for its quota, 2 of /core for another one. A call of
// a route that is not named is taken for one more of /search.
func (q *Queue) usualScopeLocked() (scope uint8) {
	if q.line == nil {
		return q.up.LatestScope()
	}
	most := int64(-1)
	for i := range q.line.scopes {
		if s := &q.line.scopes[i]; s.root.treeUnits() > most {
			scope, most = s.number, s.root.treeUnits()
		}
	}
	return scope
}

// predictLocked returns how long a newcomer would wait.
func (q *Queue) predictLocked(o *order, now time.Time) time.Duration {
	p := q.foreseeLocked(q.beforeLocked(o, 0), int(o.cost), o.scope, arrivalSteps, now)
	return p.start().Sub(now)
}

// beforeLocked counts what goes before a newcomer three times: in its own line, in its scope, and at the shared
// limiter, where calls of other keys are before it too.
//
// Those of lower priorities get up to every fairEvery-th turn. An example: 70 units go before a call of priority 1,
// and 100 of priority 0 wait too. While the 70 go, up to 10 of the 100 do.
func (q *Queue) beforeLocked(o *order, more int64) (b backlog) {
	b.more = more
	if q.line != nil {
		if c := q.classLocked(o); c == nil {
			b.All, b.Scope = q.line.ahead(o.prio, o.seq, o.scope)
		} else {
			b.All, b.Scope = q.line.aheadIn(c, c.flows[q.flowID(o)], o, more)
		}
		all, scope := q.line.ahead(math.MinInt32, math.MaxUint64, o.scope)
		higher, theirs := q.line.ahead(o.prio, math.MaxUint64, o.scope)
		b.All += min(all-higher, b.All/(fairEvery-1))
		b.Scope += min(scope-theirs, b.Scope/(fairEvery-1))
	}
	if s := q.common.shared; s != nil {
		b.Shared = s.ahead(o, q.flowID(o), more)
	}
	b.holds, b.held = o.holds, q.aheadLocked(b.All)
	return b
}

// A lookAhead predicts for the waiters of a line, one after the other. Each lookEvery-th part of the line is run ahead
// once for each scope: those who follow start no earlier, so whom that dooms is doomed for certain.
type lookAhead struct {
	q    *Queue
	now  time.Time
	last map[uint8]looked
	held []int64 // what those before it hold of each meter; nil: nothing
}

// passLocked notes that a call stays which holds h, so that those behind it wait for that too. Here the calls are looked at in
// their order, so what is before each of them is known exactly, and not guessed as for one that arrives.
func (l *lookAhead) passLocked(h *Holds) {
	if h == nil {
		return
	}
	if l.held == nil {
		l.held = make([]int64, len(h.meters.each))
	}
	for i := range l.held {
		l.held[i] += int64(h.Held(i))
	}
}

// A looked is a prediction, and what was before it.
type looked struct {
	units int64
	at    time.Time
}

const lookEvery = 64

// startLocked returns when a call of n units, which holds h, would start that has so many units before it.
func (l *lookAhead) startLocked(before upstream.Before, n int, h *Holds, scope uint8) time.Time {
	plain := l.q.plainLocked(backlog{Before: before})
	if last, ok := l.last[scope]; ok && !plain && before.All-last.units < int64(l.q.line.count/lookEvery) {
		return last.at
	}
	p := l.q.foreseeLocked(backlog{Before: before, held: l.held, holds: h}, n, scope, arrivalSteps, l.now)
	at := p.start()
	if !plain {
		if l.last == nil {
			l.last = map[uint8]looked{}
		}
		l.last[scope] = looked{before.All, at}
	}
	return at
}

// foreseeLocked returns when a call of n units would start behind b: the latest of what the own limiters, the shared
// ones, the upstream and the foreign limiters say, counted from when the gate opens.
//
// An example: a Bucket of 10/s with 3 units left, 20 units ahead, a call of 1 unit: (20 + 1 − 3)/10 = 1.8 s after the
// gate opens.
func (q *Queue) foreseeLocked(b backlog, n int, scope uint8, steps int, now time.Time) (p prospect) {
	from := now.Add(q.up.Closing(now).Left)
	switch {
	case !q.plainLocked(b):
		p = q.runsLocked(b, n, steps, from)
	case q.common.shared != nil && q.own.Own() == 0:
		p.at = q.common.shared.limits.After(from, b.Shared+b.more, n)
	default:
		p.at = q.own.After(from, b.All+b.more, n)
	}
	b.All, b.Scope = b.All+b.more, b.Scope+b.more
	if q.meters != nil {
		p.at = limit.Latest(p.at, q.meters.afterLocked(from, b.holds, b.held, b.more))
	}
	p.at = limit.Latest(p.at, q.up.Predict(scope, b.Before, n, now))
	p.known = q.up.Foreseeable(scope, b.All+1, now)
	if f := q.foreign; f != nil {
		// gap is in seconds per unit: with 0.2, five units ahead are 1 s after the next asking.
		gaps := time.Duration(min(float64(b.All)*f.gap*1e9, float64(limit.Forever)))
		p.at = limit.Latest(p.at, limit.Latest(from, f.next).Add(gaps))
		p.known = p.known && f.gap > 0
	}
	return p
}

// plainLocked reports whether one formula is all: nothing but a single own limiter holds calls back.
//
// Examples: a Bucket alone is plain whatever the calls cost, and a window if all cost one unit.
func (q *Queue) plainLocked(b backlog) bool {
	ones := q.line == nil || q.line.ones()
	s := q.common.shared
	switch {
	case s == nil:
		return q.own.Plain(ones)
	case q.own.Own() == 0:
		return s.limits.Plain(ones && b.Shared == b.All)
	}
	return s.limits.Own() == 0 && q.own.Plain(ones)
}

// runsLocked is foreseeLocked on copies of the limiters. What the same calls pay is run together; the calls of other keys
// at the shared limiter make a run of their own, and the later of the two counts.
func (q *Queue) runsLocked(b backlog, n, steps int, from time.Time) (p prospect) {
	own, shared := q.own.Copies(), []limit.Part(nil)
	if s := q.common.shared; s != nil {
		shared = s.limits.Copies()
	}
	var costs []int32
	if steps >= arrivalSteps {
		if costs = q.line.costs(4 * steps); costs != nil {
			steps *= 4
		}
	}
	add := func(ahead int64, parts []limit.Part) {
		p.runs = append(p.runs, run{limit.Forecast{From: from, Parts: parts, Steps: steps, Costs: costs}, ahead, b.more, n})
	}
	if b.Shared <= b.All {
		add(b.All, slices.Concat(own, shared))
	} else {
		add(b.All, own)
		add(b.Shared, shared)
	}
	return p
}

// ones reports whether all who wait cost one unit, as far as their sum shows: calls of 1, 1 and 4 units are 6 units, and
// three calls. Calls of 0 and 2 units pass for two of 1, which is near enough.
func (l *line) ones() bool {
	units, _ := l.ahead(math.MinInt32, math.MaxUint64, 0)
	return units == int64(l.count)
}

// costs returns what the first so many waiters cost; nil: one unit each. Their order matters little: what a window has left
// when the next call does not fit depends on how the costs are mixed.
func (l *line) costs(most int) (costs []int32) {
	if l == nil || l.ones() {
		return nil
	}
	l.each(func(w *waiter) {
		if len(costs) < most {
			costs = append(costs, int32(min(w.cost, math.MaxInt32)))
		}
	})
	return costs
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
