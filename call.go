package throttle

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/gate"
	"github.com/go-throttle/throttle/internal/learn"
	"github.com/go-throttle/throttle/internal/queue"
)

// A call is one RoundTrip. It lives on its goroutine's stack.
type call struct {
	queue.Order
	t    *Transport
	key  string
	k    *keyState
	req  *http.Request // the caller's
	next *http.Request // to be sent: req, or a copy with a new body
	sent bool          // next has been handed to Base, which closes its body
	out  bool          // an attempt is under way
	held bool          // and has an in-flight slot

	resp    *http.Response // the last answer, not handed out yet
	err     error          // the last attempt's error; nil: it had an answer
	srtt    time.Duration
	final   bool // Check, or the answer itself, has said so
	backoff Backoff
	planned bool   // a retry has been decided and is not sent yet
	charged bool   // a retry was taken out of the budget, when closings was
	paidAt  uint32 // this
}

// begin checks the request and finds its key and cost.
func (c *call) begin() error {
	t := c.t
	t.once.Do(t.setup)
	switch {
	case t.err != nil:
		return t.err
	case c.req.URL == nil:
		return errors.New("throttle: Request.URL is nil")
	}
	v := ctxValue(c.req.Context())
	c.Prio, c.Cost = v.prio, v.cost
	if t.Cost != nil && !v.hasCost {
		c.Cost = t.Cost(c.req)
	}
	if t.Key == nil {
		c.key = bounded(ByHost(c.req))
	} else {
		c.key = bounded(t.Key(c.req))
	}
	c.Wants |= queue.TakesTime
	if t.Queue.MaxInFlight > 0 {
		c.Wants |= queue.WantsSlot
	}
	if replayable(c.req) && idempotent(c.req) {
		c.Wants |= queue.CanResend
	}
	return nil
}

// wait stands in line until the attempt may be sent.
func (c *call) wait() error {
	ctx := c.req.Context()
	if err := ctx.Err(); err != nil {
		return &Error{Key: c.key, Attempts: c.Attempts, Err: err}
	}
	l, w, err := c.arrive(ctx)
	if err != nil {
		return err
	}
	waited := time.Duration(0)
	if w != nil {
		start := time.Now()
		if err := l.Sleep(ctx, w); err != nil {
			return err
		}
		c.Fill(w)
		c.Sample = true // it has paid for the lock already, and those who wait are judged by what it takes
		waited = c.Now.Sub(start)
	}
	c.out, c.held = true, c.Slot()
	if c.planned {
		c.settleBudget()
	}
	if c.Waited {
		c.tell(c.t.Hooks.Waited, Event{Wait: waited})
	}
	return nil
}

// arrive is the one critical section of a call that need not wait: it finds the
// key, pays the budget's share, and takes slot and units.
func (c *call) arrive(ctx context.Context) (*queue.Line, *queue.Waiter, error) {
	t := c.t.table
	t.Mu.Lock()
	defer t.Mu.Unlock()
	since := time.Since(t.Base)
	now := t.Base.Add(since) // as Room.Now
	if c.k == nil {
		k := t.find(c.key, since)
		if k == nil {
			made, err := c.limits()
			if err != nil {
				return nil, nil, err
			}
			now = t.Now()
			if k = t.find(c.key, now.Sub(t.Base)); k == nil { // else another caller was faster
				k = t.add(c.key, made, now)
			}
		}
		c.k = k
		k.Begun++
		k.spent = t.budget.deposit(k.spent)
	}
	c.srtt = c.k.Gate.Srtt
	c.findLane()
	c.Sample = c.k.Gate.Sample(c.k.Counters.Sent)
	return c.k.Admit(ctx, &c.Order, now, nil)
}

// findLane tells under which told quotas the call falls, by what is known now.
func (c *call) findLane() {
	if l := c.k.Learned; l != nil {
		c.Lane = l.LaneOf(c.req.URL.Host, c.req.URL.Path)
	}
}

// limits asks LimiterFor, which is not ours: without the lock that the caller holds.
func (c *call) limits() (*keyLimits, error) {
	c.t.table.Mu.Unlock()
	defer c.t.table.Mu.Lock()
	var lim Limiter
	if c.t.LimiterFor != nil {
		lim = c.t.LimiterFor(c.key)
	}
	return c.t.table.join(c.key, lim)
}

// send makes one attempt.
func (c *call) send() {
	c.Attempts++
	c.sent = true
	base := c.t.base()
	resp, err := base.RoundTrip(c.next)
	if resp == nil && err == nil {
		err = fmt.Errorf("throttle: Transport.Base (%T) returned neither a response nor an error", base)
	}
	if c.err = err; err == nil {
		c.resp, resp = resp, c.resp
	}
	drop(resp) // the one before, or one that came with an error
}

// drop closes an answer that nobody gets.
func drop(resp *http.Response) {
	if resp != nil && resp.Body != nil {
		resp.Body.Close()
	}
}

// learn takes in what the attempt has shown. A success that says nothing takes no
// lock and reads no clock.
func (c *call) learn() gate.Outcome {
	if c.err == nil && c.resp.StatusCode < 300 && c.t.Hint == nil && !c.Sample && !c.k.Gate.Alert.Load() {
		if len(c.resp.Header) == 0 || silent(c.resp, c.Now) {
			c.out = false
			return gate.Success
		}
	}
	now := time.Now()
	r := gate.Report{Epoch: c.Epoch, Call: c.Seq, Trip: now.Sub(c.Now)}
	var h hint.Hint
	if resp := c.answer(); resp != nil {
		r.Status = uint16(min(max(0, resp.StatusCode), math.MaxUint16))
	}
	switch {
	case c.err != nil:
	case c.t.Hint != nil:
		h = c.t.Hint(c.resp, now)
	default:
		h = hint.Parse(c.resp, now)
	}
	what := judge(c.req.Context(), c.resp, c.err, h.Throttled, r.Trip, c.srtt)
	r.Outcome, h.Throttled = what, what == gate.Refusal
	r.Cut = c.err != nil && c.req.Context().Err() == context.DeadlineExceeded
	switch c.final = h.Final && what != gate.Success; {
	case c.final: // no wait cures it, so nobody else needs to wait
		r.Outcome = gate.Cancelled
	case h.Throttled:
		r.Told = max(0, h.RetryAfter)
	}
	if what > gate.Neutral || len(h.Quotas) > 0 || c.Sample || c.k.Gate.Alert.Load() {
		for _, news := range c.report(&r, &h, now) {
			c.out = false
			c.tell(c.t.Hooks.Learned, Event{Learned: Learned(news)})
		}
	}
	c.out = false
	switch {
	case what == gate.Refusal:
		c.tell(c.t.Hooks.Throttled, Event{Wait: r.Told})
	case c.err != nil, what == gate.Failure, c.resp.StatusCode == http.StatusInternalServerError:
		c.tell(c.t.Hooks.Failed, Event{})
	}
	return r.Outcome
}

// silent reports whether an answer that was served tells of no limit.
func silent(resp *http.Response, now time.Time) bool {
	h := hint.Parse(resp, now)
	return h.Quotas == nil && !h.Throttled
}

// report hands r and h to the key, lets the line see what has changed, and returns
// the limits that are new.
func (c *call) report(r *gate.Report, h *hint.Hint, now time.Time) (news []learn.Known) {
	t, k := c.t.table, c.k
	t.Mu.Lock()
	defer t.Mu.Unlock()
	where := learn.Place{Paid: c.Paid(), Cost: c.Cost, Host: c.req.URL.Host, Path: c.req.URL.Path, Sent: c.Now}
	if resp := c.answer(); resp != nil && resp.Request != nil && resp.Request.URL != nil {
		where.Host = resp.Request.URL.Host
	}
	c.Wants &^= queue.PaidLane
	news = k.Heard(r, h, where, now)
	if k.Gate.Trouble != nil || k.Learned != nil {
		k.Advance(now)
	}
	return news
}

// result hands out what there is: the answer, or the error if there is none.
func (c *call) result() (*http.Response, error) {
	resp, err := c.resp, c.err
	if resp == nil || err != nil && (c.final || c.gone()) {
		return nil, err
	}
	c.resp = nil
	if c.held {
		c.freeAtEnd(resp)
	}
	return resp, nil
}

// gone reports whether the caller has cancelled and wants no answer any more.
func (c *call) gone() bool { return c.req.Context().Err() == context.Canceled }

// freeAtEnd gives the slot back when the body of resp has ended, was closed, or
// the request's ctx is over; now, if there is none to read.
func (c *call) freeAtEnd(resp *http.Response) {
	c.held = false
	if resp.Body == nil || resp.Body == http.NoBody || resp.ContentLength == 0 ||
		c.req.Method == http.MethodHead || resp.StatusCode == http.StatusSwitchingProtocols {
		c.k.Free()
		return
	}
	free := sync.OnceFunc(c.k.Free)
	stop := context.AfterFunc(c.req.Context(), free)
	resp.Body = &slotBody{resp.Body, func() { stop(); free() }}
}

// without ends a call that may not be sent, or sent again, because of reason:
// with the last answer if there was one.
func (c *call) without(reason error) (*http.Response, error) {
	var e *Error
	ours := errors.As(reason, &e)
	told := Event{Err: reason}
	if ours {
		told.Wait = e.Wait
	}
	c.tell(c.t.Hooks.Refused, told)
	if c.resp != nil && !c.gone() {
		resp := c.resp
		c.resp = nil
		return resp, nil
	}
	if ours && c.err != nil {
		with := *e
		with.Err = fmt.Errorf("%w; the last attempt: %w", e.Err, c.err)
		return nil, &with
	}
	return nil, reason
}

// end releases what the call still holds, in a panic too.
func (c *call) end() {
	if !c.sent && c.next.Body != nil {
		c.next.Body.Close()
	}
	drop(c.resp)
	if c.k == nil {
		return
	}
	if c.out { // Base or Hint has panicked
		c.report(&gate.Report{Outcome: gate.Cancelled, Epoch: c.Epoch}, new(hint.Hint), time.Now())
	}
	if c.planned {
		c.settleBudget()
	}
	if c.held {
		c.k.Free()
	}
	c.k.Ended.Add(1)
}

// tell calls a hook.
func (c *call) tell(hook func(context.Context, Event), e Event) {
	if hook == nil {
		return
	}
	e.Key, e.Method, e.Host, e.Attempt = c.key, c.req.Method, c.req.URL.Host, c.Attempts
	if resp := c.answer(); resp != nil && !c.out { // else it is that of the attempt before
		e.Status = resp.StatusCode
	}
	if e.Err == nil && !c.out {
		e.Err = c.err
	}
	hook(c.req.Context(), e)
}
