package queue

import (
	"context"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/upstream"
)

// patience is how long a call without a bound on its attempts is sent again, from the end of its first attempt that went
// badly. It covers the restart of an upstream, or a deploy.
const patience = 15 * time.Second

// A tried says for how long a call has been sent again. Time behind a closed gate, or for an advertised quota, does not
// count, because MaxPause bounds it. Only where the call's own answer has closed the gate without naming a time, and there is no
// other call, it does: otherwise a call that is alone would try for as long as MaxPause.
//
// Example: a call fails at 0 s, rests until 0.3 s and fails again, and others close the gate from 0.4 s to 10 s. At
// 10.1 s it fails for the third time, of 15 s has spent 0.5, and may be sent again for 14.5 s more.
//
// The zero value has not begun. It belongs to the call's goroutine, and needs the lock only for what it asks the queue.
type tried struct {
	since  time.Duration // when the first attempt that went badly ended, counted from common.base; 0: none has
	exempt time.Duration // what of the time since does not count, less what the clock of closed time showed then
	silent int           // throttled answers without a Retry-After, but for those at random

	// The latest span of time that counts otherwise than that clock says.
	from, until time.Duration
	is          spanKind
	clock       time.Duration // what that clock showed when it began
}

type spanKind time.Duration

const (
	quotaSpan spanKind = 1  // for a quota: it does not count, although the gate is open
	ownSpan   spanKind = -1 // the call's own: it counts, although the gate is closed
)

// begin notes the end of an attempt at that moment, which may be the first that went badly.
func (t *tried) begin(q *Queue, at time.Time) {
	if t.since == 0 {
		t.since, t.exempt = max(1, at.Sub(q.common.base)), -q.up.ClosedTime(at)
	}
}

// exemptAt is exempt with what has passed of the latest span; closed is what the clock of closed time shows. Somebody may
// have opened the gate by hand before its own closing was over.
func (t *tried) exemptAt(at, closed time.Duration) time.Duration {
	passed := max(0, min(at, t.until)-t.from)
	if t.is == ownSpan {
		passed = min(passed, closed-t.clock)
	}
	return t.exempt + time.Duration(t.is)*passed
}

// span begins a span at that moment, from from on, in place of the latest.
func (t *tried) span(is spanKind, at, from, until, closed time.Duration) {
	t.exempt = t.exemptAt(at, closed)
	t.is, t.from, t.until, t.clock = is, from, until, closed
}

// answered notes what the end of an attempt has shown, if it went badly: that the call's own answer holds it back, behind a
// gate, from when a pause or an advertised time is over, or for a quota.
func (t *tried) answered(q *Queue, r *Result, seen *upstream.Observation, now time.Time) {
	if r.Outcome == Throttled && r.Hint.RetryAfter <= 0 && !seen.Random {
		t.silent++
	}
	gate, at, closed := q.up.Closing(now), now.Sub(q.common.base), q.up.ClosedTime(now)
	switch {
	case r.Outcome <= Cancelled:
	case r.Outcome == Throttled && !seen.Stopped:
	case r.Outcome == Throttled && (gate.Cause == upstream.Open || gate.Brief):
		t.span(quotaSpan, at, at, at+seen.Wait, closed)
	case r.Outcome != Throttled && !gate.Probing && !gate.Brief: // its answer has closed nothing
	case seen.Wait == 0 && gate.Cause != upstream.Open && q.begun-q.ended.Load() == 1: // there is no other call
		t.span(ownSpan, at, at+gate.Floor, at+gate.Left, closed)
	}
}

// held notes that a quota of its scope is spent, if one is, before the next attempt.
func (t *tried) held(q *Queue, scope uint8, now time.Time) {
	gate, at := q.up.Closing(now), now.Sub(q.common.base)
	if d := q.up.SpentUntil(scope, now).Sub(now); d > 0 && (gate.Cause == upstream.Open || gate.Brief) {
		t.span(quotaSpan, at, at, at+d, q.up.ClosedTime(now))
	}
}

// rests notes that the call rests for d from at before its next attempt. While the gate waits for a probe, and nobody is
// there, it is closed for as long.
func (t *tried) rests(at, d time.Duration, probing bool) {
	if t.is == ownSpan && probing && at <= t.until {
		t.until = max(t.until, at+d)
	}
}

// spent is how much of patience the call has used.
func (t *tried) spent(q *Queue, now time.Time) time.Duration {
	at, closed := now.Sub(q.common.base), q.up.ClosedTime(now)
	return at - t.since - t.exemptAt(at, closed) - closed
}

// BacksOff reports whether the call's own backoff counts for its next attempt, after that outcome of the last. What is
// throttled waits for the gate, which closes for all. But if a call is throttled twice without a Retry-After, each attempt of
// one that is alone would come as soon as its round trip. Where calls are throttled at random, that says nothing.
func (c *Call) BacksOff(last Outcome) bool { return last != Throttled || c.tried.silent > 1 }

// restsFor is how long the call rests before the retry of p: for its own delay, which the end of its patience cuts short, and no
// less than the upstream asks for. Negative: the time for retries is over, or will be by then. MaxPause is that of a call
// with a bound of its own on its attempts.
//
// Example: after 4 s of retries a 502 asks for 9 s, so the call rests for 9 to 9.45 s. It does not rest for 12 s.
func (c *Call) restsFor(p *Plan, now time.Time) time.Duration {
	q, rest := &c.entry.queue, p.Delay
	if p.Failed && p.Most <= 0 { // without a bound on attempts each must take time
		rest = max(rest, time.Millisecond)
	}
	c.tried.begin(q, now)
	left := q.common.MaxPause
	if p.Most == 0 {
		if left = patience - c.tried.spent(q, now); left <= 0 {
			return -1
		}
		rest = min(rest, left)
	}
	if left >= 0 && p.After > left {
		return -1
	}
	return max(rest, limit.Jittered(p.After))
}

// A Plan is what is known of a retry before the line is asked.
type Plan struct {
	Delay  time.Duration // of the call's own, before the attempt
	After  time.Duration // that the upstream wants this call alone to stay away; 0: it does not say
	Failed bool          // for a failure: a closing does not bound it
	Most   int           // attempts that the call may make; 0: as many as patience allows; negative: no bound
}

// Retry decides whether the line would take the call again after its own delay, and whether the budget
// covers it: the budget is asked only after a failure while the gate is open or closed briefly, because a
// closing bounds the attempts by itself, and not of a call without a bound. Then BackOff is due, and another Arrive; wait is
// until when the next attempt is expected. The error is Errors.Attempts if the time for retries is over, and Errors.Budget if
// the budget is spent.
//
// The budget comes last, so that a retry that is not made for another reason takes nothing from it. An
// example with a deadline in 2 s, a delay of 1.5 s, and answers that take 0.8 s: if somebody waits, 1.5
// + 0.8 > 2 and the call ends now, because another can use the units. If nobody waits it may try.
func (c *Call) Retry(ctx context.Context, p Plan) (wait time.Duration, err error) {
	c.table.common.mu.Lock()
	defer c.table.common.mu.Unlock()
	now := time.Now()
	q := &c.entry.queue
	defer q.common.settle(now) // a prediction may have made pools
	c.order.Scope = q.up.Scope(c.order.url)
	if q.common.hosts != nil {
		q.meetLocked(c.order.url.Host, now)
	}
	o := &c.order
	if !q.common.staysLocked(o) {
		return 0, q.errorOf(o.attempts, 0, q.common.Errors.Closed)
	}
	q.noteDeadline(ctx, o, now)
	if err := q.turnAwayLocked(o, now); err != nil {
		return 0, err
	}
	if p.Delay = c.restsFor(&p, now); p.Delay < 0 {
		return 0, q.common.Errors.Attempts
	}
	needs := p.Delay
	if q.line != nil { // somebody else has a use for its units
		needs += q.answerTimeLocked(o.wants, o.reserve)
	}
	if o.deadline != 0 && now.Sub(q.common.base)+needs > o.deadline {
		return 0, q.common.Errors.Deadline
	}
	gate, at := q.up.Closing(now), now.Sub(q.common.base)
	c.tried.held(q, o.Scope, now)
	as := planned
	if p.Failed && p.Most >= 0 && (gate.Cause == upstream.Open || gate.Over || gate.Brief) {
		if !c.entry.balance.withdraw(&q.common.Budget, at, gate.Erring) {
			return 0, q.common.Errors.Budget
		}
		as, c.paidAt = paidFor, gate.Count
	}
	c.stage, c.delay = as, p.Delay
	c.tried.rests(at, p.Delay, gate.Probing)
	return max(p.Delay, q.predictLocked(o, now)), nil
}
