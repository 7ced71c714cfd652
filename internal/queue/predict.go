package queue

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/line"
)

// This file predicts when a call would start. A prediction supposes that nobody leaves the line and that no call of a
// higher priority comes. In-flight slots are not predicted: how long a call takes is not ours to know. So Predict says that
// it does not know while they are taken, and who arrives is not refused for them. All of it is called with the lock held.
//
// Each constraint says when it lets the call go behind a backlog, and the latest of those counts. Several limiters and
// costs in a window are run ahead as well, on copies (limit.Foresee). The lock is needed to count the line and to copy.
// Predict runs the copies ahead without it; an arrival, which is let in or refused by the result, runs them with it, in
// fewer steps.
//
// A prediction is a moment's view. Whatever changes afterwards (a limit, a pause, a caller who leaves) makes it wrong and
// does no other harm: nothing is booked by it.

const (
	// arrivalSteps bounds the work of a prediction that decides whether a call may wait: a step takes 20 to 100 ns. Lines
	// of mixed costs get four times as many, because a step for several calls does not see where their costs leave a rest
	// of a window.
	arrivalSteps = 256
	// predictSteps bounds that of one that somebody asks for, who does not hold the lock for it.
	predictSteps = 4096
)

// A prospect is a prediction, made under the lock and finished without it: not before at, nor before any of the runs says.
type prospect struct {
	at, latest time.Time // latest: as far as is known; never: nobody knows
	runs       []run
	slots      turnover      // if somebody asks for the prospect
	unit       time.Duration // how long one unit takes
}

// never is later than all that is foretold.
var never = time.Unix(1<<40, 0)

// known reports whether a call starts at that moment, but for 5 % or a unit.
func (p *prospect) known(at, now time.Time) bool {
	return !p.latest.After(at.Add(max(p.unit, at.Sub(now)/20)))
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
	at := p.start()
	wait = at.Sub(now)
	return max(0, wait), p.known(at, now) && wait < limit.Forever/2 && p.slots.suffices(wait)
}

// foresee is foreseeLocked, with the lock, of a call of one unit with so many more before it.
func (q *Queue) foresee(more int64) (p prospect, now time.Time) {
	q.common.mu.Lock()
	defer q.common.mu.Unlock()
	now = time.Now()
	q.sharedLocked() // what has not been a pool is one from now on, and its key stands there
	q.common.settle(now)
	o := order{want: new(Want)}
	o.Seq, o.Scope, o.Cost = math.MaxUint64, q.usualScopeLocked(), 1
	p = q.foreseeLocked(q.beforeLocked(&o, more), o.need(nil), predictSteps, now)
	p.slots, p.unit = q.turnoverLocked(more+1, now), limit.UnitTime(1, q.limits().Rate())
	return p, now
}

// usualScopeLocked is the scope that calls of unknown routes are supposed to fall under: that in which most units wait, or
// what was advertised last. An example: 40 calls of /search wait for its quota, 2 of /core for another one. A call of a
// route that is not named is taken for one more of /search.
func (q *Queue) usualScopeLocked() (scope uint8) {
	if q.line == nil {
		return q.up.LatestScope()
	}
	most := int64(-1)
	for s, units := range q.line.Scopes() {
		if units > most {
			scope, most = s, units
		}
	}
	return scope
}

// predictLocked returns how long a newcomer would wait.
func (q *Queue) predictLocked(o *order, now time.Time) time.Duration {
	p := q.foreseeLocked(q.beforeLocked(o, 0), o.need(o.holds), arrivalSteps, now)
	return p.start().Sub(now)
}

// soonLocked reports whether a newcomer waits for no longer than that even if all others go before it. Then it need not be
// counted who does: nearly all who have a deadline have it late enough.
func (q *Queue) soonLocked(o *order, most time.Duration, now time.Time) bool {
	if q.common.hosts != nil || !q.plainLocked() {
		return false
	}
	b := &backlog{holds: o.holds, key: q.key, last: true}
	if q.line != nil {
		b.all, b.scope = q.line.Units(), q.line.Units()
	}
	b.held = q.aheadLocked(b.all)
	p := q.foreseeLocked(b, o.need(o.holds), arrivalSteps, now)
	return p.at.Sub(now) <= most
}

// foretoldLocked is predictLocked for observers; 0: nobody knows.
func (q *Queue) foretoldLocked(o *order, now time.Time) time.Duration {
	p := q.foreseeLocked(q.beforeLocked(o, 0), o.need(o.holds), arrivalSteps, now)
	p.unit = limit.UnitTime(1, q.limits().Rate())
	if at := p.start(); p.known(at, now) && q.turnoverLocked(1, now).suffices(at.Sub(now)) {
		return max(0, at.Sub(now))
	}
	return 0
}

// A backlog is what goes before a call.
type backlog struct {
	all, scope int64         // units of those in its line who go before it, and of those of its scope
	more       int64         // then so many calls of one unit each
	old        bool          // it comes back to an older place
	last       bool          // all who wait go before it
	of         line.Newcomer // the call
	key        string
	held       []int64 // of each meter, what those before it hold; nil: nothing
	holds      *Holds  // what the call itself wants of the meters; nil: the usual
}

// beforeLocked counts what goes before a newcomer.
func (q *Queue) beforeLocked(o *order, more int64) *backlog {
	b := &backlog{more: more, old: o.retry(), holds: o.holds, key: q.key}
	b.of = line.Newcomer{Flow: o.want.Flow, Weight: o.weight, Prio: o.Prio, Seq: o.Seq, Scope: o.Scope, More: more}
	if q.line != nil {
		b.all, b.scope = q.line.Ahead(&b.of)
	}
	b.held = q.aheadLocked(b.all)
	return b
}

// foreseeLocked returns when a call that needs n would start behind b: the latest of what the constraints say, counted from
// when the gate opens.
//
// An example: a Bucket of 10/s with 3 units left, 20 units ahead, a call of 1 unit: (20 + 1 − 3)/10 = 1.8 s after the gate
// opens.
func (q *Queue) foreseeLocked(b *backlog, n need, steps int, now time.Time) (p prospect) {
	from := now.Add(q.up.Closing(now).Left)
	p.at, p.latest = from, from
	ask := func(c constraint) {
		at, latest := c.after(b, n, from, now)
		p.at, p.latest = limit.Latest(p.at, at), limit.Latest(p.latest, latest)
	}
	for _, c := range q.constraints() {
		ask(c)
	}
	for _, c := range q.sharedLocked() {
		ask(c)
	}
	if !q.plainLocked() {
		q.runsLocked(&p, b, int(n.cost), steps, from)
	}
	return p
}

// sharedLocked are the constraints that several keys share. A key in whose line nobody waits has none but stakesLocked, until
// somebody waits for what it pays.
func (q *Queue) sharedLocked() (all []constraint) {
	r := q.common
	if q.line != nil {
		for i := range q.line.stakes {
			all = append(all, &q.line.stakes[i])
		}
		return all
	}
	stakes := q.stakesLocked()
	for i := range stakes {
		all = append(all, &stakes[i])
	}
	if len(r.payers) > 0 {
		for a, s := range q.accounts() {
			if of, waited := r.payers[a]; waited {
				s.pool = r.poolOf(a, of)
				all = append(all, &s)
			}
		}
	}
	return all
}

// plainLocked reports whether one formula is all: nothing but a single limiter holds calls back.
//
// Examples: a Bucket alone is plain whatever the calls cost, and a window if all cost one unit.
func (q *Queue) plainLocked() bool {
	ones := q.line == nil || q.line.Ones()
	all := q.common.all
	switch {
	case all == nil:
		return q.own.Plain(ones)
	case q.own.Own() == 0:
		return all.limits.Plain(ones)
	}
	return all.limits.Own() == 0 && q.own.Plain(ones)
}

// runsLocked is foreseeLocked on copies of the limiters. What the same calls pay is run together; the calls of other keys at
// what all share make a run of their own, and the later of the two counts.
func (q *Queue) runsLocked(p *prospect, b *backlog, n, steps int, from time.Time) {
	own, shared, ahead := q.own.Copies(), []limit.Part(nil), b.all
	if all := q.common.all; all != nil {
		shared = all.limits.Copies()
		ahead, _ = all.Ahead(b.key, &b.of, b.more, b.old)
		ahead -= b.more
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
	if ahead <= b.all {
		add(b.all, slices.Concat(own, shared))
	} else {
		add(b.all, own)
		add(ahead, shared)
	}
}

// costs returns what the first so many waiters cost; nil: one unit each. Their order matters little: what a window has left
// when the next call does not fit depends on how the costs are mixed.
func (l *lineup) costs(most int) (costs []int32) {
	if l == nil || l.Ones() {
		return nil
	}
	for c := range l.All() {
		if costs = append(costs, c.Cost); len(costs) == most {
			break
		}
	}
	return costs
}

// noteDeadline notes the deadline of a call that arrives at now, and how much of its time is kept for its answer at most.
//
// An example: a call with 80 ms to live keeps 70 ms of them at most. If answers take 400 ms of late, it may still start if
// it waits for no more than 10 ms.
func (q *Queue) noteDeadline(ctx context.Context, o *order, now time.Time) {
	o.deadline, o.reserve = 0, 0
	if d, ok := ctx.Deadline(); ok {
		o.deadline = max(1, d.Sub(q.common.base))
		o.reserve = uint32(min(max(0, d.Sub(now))/8*7/time.Microsecond, math.MaxUint32))
	}
}

// answerTimeLocked is how long after its start a call of those wishes is expected to have its answer; 0 if nothing follows its
// start, as in Queue.Wait, or if it has no deadline. At most 7/8 of the time that it had on arrival is kept for that. A caller who gives a call
// so little knows that this call is quicker than others. And if all such calls were refused, none could show that the
// upstream is quicker again.
func (q *Queue) answerTimeLocked(w wish, reserve uint32) time.Duration {
	if w&takesTime == 0 {
		return 0
	}
	return min(q.up.AnswerTime(), time.Duration(reserve)*time.Microsecond)
}

// lateLocked reports whether w, whose turn it is, cannot have its answer before its deadline any more. Then its units are
// of use to the next in line. Without this, callers with equal timeouts under overload would all start just before their
// deadlines and die in flight.
//
// An example with timeouts of 1 s and answers that take 200 ms: a call whose turn comes after 0.85 s has 150 ms left. It is
// refused, and the next one, which came later and has more time left, goes with its unit.
func (q *Queue) lateLocked(w *waiter, now time.Time) bool {
	answer := q.answerTimeLocked(w.wants, w.also().reserve)
	return w.deadline != 0 && answer > 0 && now.Sub(q.common.base)+answer > w.deadline
}
