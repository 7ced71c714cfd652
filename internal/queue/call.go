package queue

import (
	"context"
	"net/url"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/upstream"
)

// What upstream says of an attempt, for those above this package.
type (
	// An Outcome is what an attempt says of the upstream.
	Outcome = upstream.Outcome
	// A Known is one limit that was learned.
	Known = upstream.Known
)

// The outcomes of an attempt, see package upstream.
const (
	Success    = upstream.Success
	Cancelled  = upstream.Cancelled
	Neutral    = upstream.Neutral
	Failure    = upstream.Failure
	Overloaded = upstream.Overloaded
	Throttled  = upstream.Throttled
)

// ClassOf is the status that stands for another, see package upstream.
func ClassOf(status int) int { return upstream.ClassOf(status) }

// OutcomeOf is what an answer with that status and that hint says of the upstream, see there.
func OutcomeOf(status int, h *hint.Hint) Outcome { return upstream.OutcomeOf(status, h) }

// A Want is what calls want of the queue of their key. It must not be changed while they last.
type Want struct {
	Cost     int // units
	Priority int32
	Flow     string        // whose they are; "": nobody's
	MaxWait  time.Duration // they may wait in place of Options.MaxWait; 0: that one holds; negative: not at all
}

// A Route is what has answered an attempt, which advertised quotas may depend on.
type Route struct{ Host, Path string }

// A Call is one call of a Transport, from its arrival to its end: the attempts that it makes, and what
// each of them holds. Its states:
//
//	Arrive    in line, if it has to wait: then Sleep
//	Sleep     an attempt is under way, and may hold a slot
//	Report    the attempt has ended; KeepSlot hands its slot to a body that is still to be read
//	Retry     there will be another one
//	BackOff   until then it holds nothing; then Arrive
//	Done      from any of them: what is still held is given back
//
// It is used by one goroutine; only KeepSlot's result may be called by others.
//
// What it holds in each state, and who gives it back:
//
//	attempt under way   underway; held if there is MaxInFlight Report ends it
//	attempt reported    held as before                         Done, or KeepSlot's func when the body is closed
//	both                order.holds or asks, if it has meters  Done, or who has them by KeepHolds
//	retry decided       held; planned; paidFor after a failure BackOff ends held, the next Arrive the rest
//	resting             planned or paidFor alone               the next Arrive, or Done if the ctx ends first
//	in line             planned or paidFor alone               Sleep's error, then Done
//
// An example: attempt 1 fails with 503, Retry takes 1 from the budget, and BackOff frees the slot for
// 400 ms. The caller's ctx ends meanwhile. Done finds it paidFor, and puts the 1 back.
type Call struct {
	table  *Table
	entry  *entry  // nil until the first Arrive
	meters *Meters // of its key; nil: it has none
	waiter *waiter // while it waits
	key    string
	order  order
	srtt   time.Duration // the smoothed round trip when it arrived
	stage  stage
	held   bool          // the attempt, or its answer, has a slot
	paidAt uint32        // with paidFor: what Closing.Count was then
	tried  tried         // how long it has been sent again
	delay  time.Duration // of its own, before the retry that is planned
}

// A stage is how far a call is with its attempts.
type stage uint8

const (
	noAttempt stage = iota // it is new, or its last attempt has ended
	planned                // a retry has been decided and is not sent yet
	paidFor                // the same, and it was taken out of the budget
	underway               // an attempt is under way
)

// Init begins a call of key, whose request has that URL. It costs that many units, whatever w says, and may be sent
// again if resend: such a call is good for a probe.
func (c *Call) Init(t *Table, key string, url *url.URL, w *Want, cost int, resend bool) {
	c.table, c.key = t, key
	o := &c.order
	o.url, o.want = url, w
	wants := takesTime
	if t.common.slotted() {
		wants |= wantsSlot
	}
	if resend {
		wants |= canResend
	}
	o.Cost, o.Prio, o.wants = units(cost), w.Priority, wants
	o.weighFlow(&t.common.Options)
}

// Key is the call's.
func (c *Call) Key() string { return c.key }

// Attempts counts those sent.
func (c *Call) Attempts() int { return c.order.attempts }

// Sending counts the attempt that Arrive or Sleep has let go.
func (c *Call) Sending() { c.order.attempts++ }

// Started is when the last attempt was let go.
func (c *Call) Started() time.Time { return c.order.now }

// RoundTrip is the smoothed round trip when the call arrived; 0: not known.
func (c *Call) RoundTrip() time.Duration { return c.srtt }

// Under reports whether an attempt is under way.
func (c *Call) Under() bool { return c.stage == underway }

// Arrive takes the turn for the next attempt if it is there. Otherwise it puts the call into the line and
// reports that: then Sleep is due. Between the two its observers may run, without the lock. If they panic, Done
// takes the call out of the line.
//
// It is the one critical section of a call that need not wait: it finds the key, pays the budget's share, and takes
// slot and units. The lock is released only while the user's functions are asked, see comeLocked.
func (c *Call) Arrive(ctx context.Context, hold func(*Meters)) (waits bool, err error) {
	t := c.table
	if ctx.Err() != nil {
		return false, t.common.Error(c.key, 0, c.order.attempts, endOf(ctx))
	}
	if c.order.slot() {
		t.common.come()
	}
	t.common.mu.Lock()
	defer t.common.mu.Unlock()
	e, err := c.comeLocked(hold)
	if err != nil {
		return false, err
	}
	since := time.Since(t.common.base)
	if c.entry == nil {
		c.enterLocked(e, since)
		t.usedLocked(e, since)
	}
	q, now := &e.queue, t.common.base.Add(since)
	q.slotLocked(&c.order.waiter)
	trip := q.up.RoundTrip()
	c.srtt, c.order.sample = trip.Smoothed, trip.Measure
	c.order.Scope = q.up.Scope(c.order.url)
	if c.order.retry() {
		c.tried.held(q, c.order.Scope, now)
	}
	if t.common.hosts != nil {
		q.meetLocked(c.order.url.Host, now)
	}
	if c.waiter, err = q.admitLocked(ctx, &c.order, now); err != nil || c.waiter != nil {
		return err == nil, err
	}
	if c.stage != noAttempt {
		c.settleBudgetLocked(true)
	}
	c.begun()
	return false, nil
}

// closedLocked is the error of a call that arrives after Shutdown.
func (c *Call) closedLocked() error {
	t := c.table
	if e := t.keys[c.key]; e != nil { // none is made any more
		e.queue.trouble().refused++
	}
	return t.common.Error(c.key, 0, c.order.attempts, t.common.Errors.Closed)
}

// A Result is what an attempt has shown.
type Result struct {
	Outcome Outcome
	Status  uint16 // of the answer; 0: there was none
	Cut     bool   // the caller's deadline has ended it
	Hint    hint.Hint
	Dated   bool  // it has a Date
	Route   Route // that has answered
	At      time.Time
	Late    time.Duration // how long after At it is reported: a Hint may have read a body meanwhile
}

// Report hands the result of an attempt to the key, and lets the line see what has changed. It returns
// the limits that are new, how long the upstream wants to be left alone, 0 if it has not said, and what the gate has done.
func (c *Call) Report(r *Result) (news []Known, wait time.Duration, gate Turned) {
	c.table.common.mu.Lock()
	defer c.table.common.mu.Unlock()
	q, o := &c.entry.queue, &c.order
	if c.stage == underway && !c.held {
		q.up.EndLoose()
	}
	c.stage = noAttempt
	a := upstream.Answer{
		Outcome: r.Outcome, Status: r.Status, Cut: r.Cut, Hint: r.Hint, Dated: r.Dated, Trip: r.At.Sub(o.now), Sent: o.now, Late: r.Late,
		Level: o.level, Slots: int(q.slots), Counted: o.wants&counted != 0, Scope: o.Scope, Epoch: o.epoch, Call: o.Seq, Cost: int(o.Cost),
		Host: r.Route.Host, Path: r.Route.Path, InFlight: q.underLocked(),
		Known: r.At.Sub(q.common.base) - q.met, WindowFactor: q.common.WindowFactor, Failures: q.common.Failures,
	}
	o.wants &^= counted
	q.noteOutcomeLocked(r.Outcome)
	q.timedLocked(o.now, r.At, answers(r.Outcome))
	c.tried.begin(q, r.At)
	// The order matters. First the gate learns of the answer, as of At, because the times in it count from there.
	// Then the waiters are put where it has moved them, by their routes. Then those leave for whom the closing
	// lasts too long, and only then may the head of those who are left go. Whoever waits does so now: a Hint that
	// takes 90 ms would put the line's timer off by as much, if the line were looked at as of At.
	if c.meters != nil {
		a.Counter = c.meters.counterOf
	}
	before := q.up.Closing(r.At)
	seen, now := q.up.Observe(&a, r.At), r.At.Add(r.Late)
	gate = turned(before, q.up.Closing(r.At))
	if seen.Moved && q.line != nil {
		q.line.moveTo(q.up.Scope)
	}
	c.tried.answered(q, r, &seen, now)
	if seen.Stopped {
		q.expelLocked(now)
	}
	if r.Hint.Global && r.Outcome == Throttled && r.Hint.RetryAfter > 0 {
		c.table.closeHostLocked(r.Route.Host, o.now, believed(r.Hint.RetryAfter, r.At), r.Status, now)
	}
	// While all is well an answer lets nobody go: units come with time, and slots by free.
	if r := q.common; !q.up.Calm() || len(r.dirty)+len(r.stirred) > 0 {
		q.advanceLocked(now)
	}
	return seen.News, seen.Wait, gate
}

// freeSlot gives the slot back, if the call holds one.
func (c *Call) freeSlot() {
	if c.held {
		c.held = false
		c.entry.queue.free()
	}
}

// Keeps reports whether the call's answer counts until its body is closed: it holds a slot, or calls drain.
func (c *Call) Keeps() bool { return c.held || c.table.common.drains.Load() }

// KeepSlot returns what says that the body is closed, to be called once, of a call that Keeps. The slot that it held
// is given back then.
func (c *Call) KeepSlot() (free func()) {
	if !c.held {
		return c.entry.queue.keepOpen()
	}
	c.held = false
	return c.entry.queue.free
}

// Done ends the call, and releases what it still holds, in a panic too.
func (c *Call) Done() {
	e := c.entry
	if e == nil {
		return
	}
	if c.stage == noAttempt && !c.held && c.waiter == nil && c.order.asks.attempt == 0 {
		if e.queue.ended.Add(1); !c.table.common.drains.Load() { // in this order, see shutdown.go
			return
		}
		e = nil // it has been counted
	}
	c.release(e)
}

// release gives back what the call holds, and counts its end in e.
func (c *Call) release(e *entry) {
	if c.waiter != nil { // an observer has panicked
		c.entry.queue.abandon(context.Background(), c.waiter)
		c.undoHolds()
	}
	switch c.stage {
	case underway: // what sent the request has panicked
		c.Report(&Result{Outcome: Cancelled, At: time.Now()})
	case planned, paidFor:
		c.settleBudget(false)
	}
	if c.order.asks.attempt > 0 {
		c.Holds().Fail()
	}
	c.freeSlot()
	if e != nil {
		e.queue.ended.Add(1)
	}
	if c.table.common.drains.Load() {
		c.entry.queue.look()
	}
}
