package throttle

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/body"
	"github.com/go-throttle/throttle/internal/fault"
	"github.com/go-throttle/throttle/internal/queue"
	"github.com/go-throttle/throttle/usage"
)

// A call is one RoundTrip. It lives on its goroutine's stack.
//
// One response is kept at a time, in resp: that of the last attempt that got one. It is closed when
// another attempt gets one, when the call fails, or by the caller, to whom result or giveUp hands it out.
type call struct {
	t    *Transport
	turn queue.Call    // its place in the line, and what its attempts hold there
	req  *http.Request // the caller's
	next *http.Request // the one to send: req, or a copy with a new body
	sent bool          // next was handed to Base, which closes its body
	asks bool          // what was sent decides whether the call is sent again: it is unsafe, and its body can be had again
	saw  *fault.Sent   // what was sent in the last attempt; nil: it does not ask

	resp     *http.Response // the last response, not handed out yet; it may be older than err
	answered time.Time      // when the last attempt ended
	err      error          // the last attempt's error; nil: it got a response
	final    bool           // no retry will help, as the response or Retry.Check says
	failed   bool           // an attempt has failed, and the upstream may have acted on it
	backoff  Backoff        // nil until the first failure
	most     int            // attempts; 0: as many as fit, see Retry.MaxAttempts; negative: no bound
	says     *ctxOrder      // of its ctx
	tab      *body.Tab      // of the attempt, if there is a Bill
}

// begin checks the request, and finds its key, cost and priority.
func (c *call) begin() error {
	t, v := c.t, ctxValue(c.req.Context())
	v.last.Note(nil)
	t.once.Do(t.setup)
	switch {
	case t.err != nil:
		return t.err
	case c.req.URL == nil:
		return errors.New("throttle: Request.URL is nil")
	}
	cost := v.want.Cost
	if t.Cost != nil && !v.hasCost {
		cost = t.Cost(c.req)
	}
	if c.says, c.most = v, v.attempts; c.most == 0 {
		c.most = t.retry.MaxAttempts
	}
	key := t.Key
	if key == nil {
		key = ByHost
	}
	whole, safe := replayable(c.req), idempotent(c.req)
	c.asks = whole && !safe && c.most != 1
	c.turn.Init(t.table, bounded(key(c.req)), c.req.URL, &v.want, cost, whole && safe)
	return nil
}

// wait stands in line until the attempt may be sent, and notifies the hooks when that begins and when it is over.
func (c *call) wait() error {
	waits, err := c.turn.Arrive(c.req.Context(), c.hold)
	if !waits {
		return err
	}
	reason, predicted := c.turn.Held()
	c.notify(onWaiting, Event{Wait: predicted, Reason: reason})
	waited, err := c.turn.Sleep(c.req.Context())
	if err == nil {
		c.notify(onWaited, Event{Wait: waited, Reason: reason})
	}
	return err
}

// send makes one attempt. A new response replaces that of the attempt before, which is closed. After an error the older
// response stays: the caller gets it if no other attempt succeeds. One that comes with an error, against the contract, is closed.
func (c *call) send() {
	c.turn.Sending()
	if c.sent = true; c.tab != nil {
		c.says.bill.bill.Open(c.says.bill.ctx, c.tab)
	}
	base := c.t.base()
	c.next, c.saw = fault.Watch(c.next, c.asks)
	resp, err := base.RoundTrip(c.next)
	if resp == nil && err == nil {
		err = fmt.Errorf("throttle: Transport.Base (%T) returned neither a response nor an error", base)
	}
	if c.err = err; err == nil {
		if resp.Request == nil && (c.t.Hint != nil || !hint.Silent(&http.Response{StatusCode: resp.StatusCode, Header: resp.Header, Request: c.next})) {
			named := *resp // a fake that names no request may return one response to many calls
			named.Request, resp = c.next, &named
		}
		c.resp, resp = resp, c.resp
	}
	drop(resp)
}

// drop closes the body of a response that nobody gets.
func drop(resp *http.Response) {
	if resp != nil && resp.Body != nil {
		resp.Body.Close()
	}
}

// observe finds out what the attempt says about the upstream, and reports it to the key. Nearly every
// attempt is a success without a word about limits: for that one it takes no lock and reads no clock.
func (c *call) observe() queue.Outcome {
	if c.err == nil && c.resp.StatusCode < 300 && c.t.Hint == nil && hint.Silent(c.resp) && c.turn.EndWell() {
		return queue.Success
	}
	quiet := c.turn.Quiet()
	r := queue.Result{Route: queue.Route{Host: c.req.URL.Host, Path: c.req.URL.Path}, At: time.Now()}
	c.answered = r.At
	if c.err == nil {
		parse := c.t.Hint
		if parse == nil {
			parse = hint.Parse
		}
		r.Hint, r.Dated = parse(c.resp, r.At), len(c.resp.Header["Date"]) > 0
		r.Late = time.Since(r.At) // it may have read a body
	}
	ctx := c.req.Context()
	outcome := judge(ctx, c.resp, c.err, &r.Hint, r.At.Sub(c.turn.Started()), c.turn.RoundTrip())
	r.Outcome, r.Hint.Throttled = outcome, outcome >= queue.Overloaded // a 429 is, even if Hint does not say so
	r.Cut = c.err != nil && ctx.Err() == context.DeadlineExceeded
	if c.final = r.Hint.Final && outcome != queue.Success; c.final {
		r.Outcome = queue.Cancelled // no wait cures it, so nobody else needs to wait
	}
	if resp := c.response(); resp != nil {
		r.Status = uint16(min(max(0, resp.StatusCode), math.MaxUint16))
		if resp.Request != nil && resp.Request.URL != nil { // Base may have asked another host
			r.Route.Host = resp.Request.URL.Host
		}
	}
	silent := outcome <= queue.Neutral && len(r.Hint.Quotas) == 0
	wait := c.report(&r, quiet && silent && r.Status < http.StatusInternalServerError)
	if !silent {
		c.tell(r.Hint)
	}
	switch {
	case outcome >= queue.Overloaded:
		c.notify(onThrottled, Event{Wait: wait})
	case c.err != nil, c.mendable(outcome):
		c.notify(onFailed, Event{})
	}
	return r.Outcome
}

// tell passes on what an answer says of limits to those of the call's limiters, and of its meters', that want to know.
func (c *call) tell(h hint.Hint) {
	c.turn.Limiters(h, func(l any, h hint.Hint) {
		if o, ok := l.(Observer); ok {
			o.Observe(h, c.turn.Started())
		}
	})
}

// refusedIn is observe of what the body of a success says: that the upstream refuses after all. c is a copy of the call, which
// has ended. Nothing is sent again, because part of the answer may have been used.
func (c *call) refusedIn(refusal usage.Refusal) {
	r := queue.Result{
		Outcome: queue.Throttled, Status: uint16(c.resp.StatusCode), At: time.Now(),
		Route: queue.Route{Host: c.req.URL.Host, Path: c.req.URL.Path},
		Hint:  hint.Hint{Throttled: true, RetryAfter: refusal.RetryAfter},
	}
	if refusal.Overloaded {
		if r.Status = 529; refusal.RetryAfter == 0 {
			r.Outcome = queue.Overloaded
		}
	}
	wait := c.report(&r, false)
	c.tell(r.Hint)
	c.notify(onThrottled, Event{Wait: wait})
}

// report hands the result to the key, and notifies the hooks of what was learned from it, and of the gate. A quiet result
// changes nothing there and is not handed over. wait is how long the upstream asks for; 0: it does not.
func (c *call) report(r *queue.Result, quiet bool) (wait time.Duration) {
	if quiet {
		c.turn.End()
		return 0
	}
	news, wait, gate := c.turn.Report(r)
	for _, known := range news {
		c.notify(onLearned, Event{Learned: Learned(known)})
	}
	switch {
	case gate.Open:
		c.notify(onOpened, Event{Wait: gate.For, Reason: gate.Reason})
	case gate.Reason != "":
		c.notify(onClosed, Event{Wait: gate.For, Reason: gate.Reason})
	}
	return wait
}

// result ends a call that is not retried: with the last response if there is one, otherwise with the last attempt's
// error. The error also wins over an older response if the caller has cancelled, or if Retry.Check calls the error final.
func (c *call) result() (*http.Response, error) {
	resp, err := c.resp, c.err
	if resp == nil || err != nil && (c.final || c.gone()) {
		return nil, c.says.last.Note(err)
	}
	c.resp = nil
	if err == nil && c.turn.Keeps() { // an older response was kept, and holds nothing
		c.freeAtEnd(resp, c.turn.KeepSlot())
	}
	return resp, nil
}

// gone reports whether the caller has cancelled and no longer wants a response.
func (c *call) gone() bool { return c.req.Context().Err() == context.Canceled }

// freeAtEnd calls free, which gives an in-flight slot back, when the body of resp is closed or read to
// its end, or the request's ctx ends. If there is no body to read, that is now.
func (c *call) freeAtEnd(resp *http.Response, free func()) {
	if c.bodiless(resp) {
		free()
		return
	}
	resp.Body = body.Until(c.req.Context(), resp.Body, free)
}

// bodiless reports whether resp has no body to read. A length of 0 alone does not say so, because a response made by hand
// has no other; with HTTP/2 net/http means it, and has a body of its own in place of http.NoBody.
func (c *call) bodiless(resp *http.Response) bool {
	return resp.Body == nil || resp.Body == http.NoBody || resp.ContentLength == 0 && resp.ProtoMajor > 1 ||
		c.req.Method == http.MethodHead || resp.StatusCode/100 == 1 || resp.StatusCode == 204 || resp.StatusCode == 304
}

// giveUp ends a call that may not be sent, or not again, because of reason. If an earlier attempt has got a response, the caller
// gets that, unless the caller has cancelled. Otherwise the error names the reason, and what the last attempt failed with.
func (c *call) giveUp(reason error) (*http.Response, error) {
	var e *Error
	ours := errors.As(reason, &e)
	refused := Event{Err: reason}
	if ours {
		refused.Wait, refused.Reason = e.Wait-e.later, e.Reason // as predicted
	}
	c.notify(onRefused, refused)
	if c.resp != nil && !c.gone() {
		c.noteReason(reason)
		resp := c.resp
		c.resp = nil
		return resp, nil
	}
	if ours && c.err != nil {
		with := *e
		with.Err = fmt.Errorf("%w; the last attempt: %w", e.Err, c.err)
		reason = &with
	}
	c.turn.Refused(c.req.Context())
	return nil, c.says.last.Note(reason)
}

// end releases what the call still holds. It is deferred, so a panic in Base, Check or a hook leaks nothing.
func (c *call) end() {
	if !c.sent && c.next.Body != nil {
		c.next.Body.Close()
	}
	drop(c.resp)
	c.turn.Done()
}

// notify calls the hook at that place, if it is set, and fills in what all events have. While an attempt is under way,
// the last response and error are those of the attempt before, so they are left out.
func (c *call) notify(place int, e Event) {
	hook := c.t.Hooks.at(place)
	if hook == nil {
		return
	}
	e.Key, e.Method, e.Host, e.Attempt = c.turn.Key(), c.req.Method, c.req.URL.Host, c.turn.Attempts()
	if !c.turn.Under() {
		if resp := c.response(); resp != nil {
			e.Status = resp.StatusCode
		}
		if e.Err == nil {
			e.Err = c.err
		}
	}
	hook(withAttempt(c.req.Context(), e.Attempt), e)
}
