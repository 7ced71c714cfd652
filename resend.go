package throttle

import (
	"fmt"
	"net/http"
	"time"
)

// retry decides whether the call is sent again, and after which delay of its
// own; if so, the next request stands ready. Otherwise nothing has been touched.
func (c *call) retry(what outcome) (delay time.Duration, ok bool) {
	r := &c.t.retry
	verdict := Default
	if r.Check != nil {
		verdict = r.Check(c.req, c.answer(), c.err)
		c.final = verdict == Final
	}
	switch {
	case verdict == Final, verdict == Default && what == success,
		c.attempts >= r.MaxAttempts, !replayable(c.req), c.req.Context().Err() != nil,
		verdict != Again && !mayResend(c.req, c.resp, c.err, what):
		return 0, false
	}
	if what != refusal {
		if c.backoff == nil {
			if c.backoff = r.Backoff(); c.backoff == nil {
				c.backoff = defaultBackoff()
			}
		}
		if delay = c.backoff.NextBackOff(); delay < 0 {
			return 0, false
		}
	}
	next, err := again(c.req)
	if err != nil {
		if c.err != nil {
			c.err = fmt.Errorf("%w; the last attempt: %w", err, c.err)
		}
		return 0, false
	}
	c.next, c.sent = next, false // end closes its body if it is not sent
	wait, ok := c.plan(what, delay)
	if !ok {
		return 0, false
	}
	c.tell(c.t.Hooks.Retrying, Event{Wait: wait})
	return delay, true
}

// answer is the last attempt's response, nil if it had none.
func (c *call) answer() *http.Response {
	if c.err != nil {
		return nil
	}
	return c.resp
}

// plan reports whether the line would take the call again, and whether the
// budget covers the retry: it is asked only after a failure while the gate is
// open, because a closed gate bounds the attempts by itself. wait is until when
// the next attempt is expected.
func (c *call) plan(what outcome, delay time.Duration) (wait time.Duration, ok bool) {
	c.room().mu.Lock()
	defer c.room().mu.Unlock()
	now := time.Now()
	ctx, k := c.req.Context(), c.k
	c.findLane()
	again := c.order
	again.retry = true
	if d, ok := ctx.Deadline(); ok && now.Add(delay).After(d) || k.turnAway(ctx, &again, now) != nil {
		return 0, false
	}
	if what != refusal && !k.gate.closed(now, k.pace()) {
		if !k.withdraw() {
			if c.err != nil {
				c.err = &Error{Key: c.key, Attempts: c.attempts, Err: fmt.Errorf("%w; the last attempt: %w", ErrRetryBudget, c.err)}
			}
			return 0, false
		}
		c.charged, c.paidAt = true, k.gate.closings
	}
	c.order.retry = true
	c.planned = true
	return max(delay, k.predict(&again, now)), true
}

func (c *call) room() *room { return &c.t.table.room }

// rest gives back what a retry does not need, keeps the answer so far, and
// sleeps for the call's own delay.
func (c *call) rest(delay time.Duration) error {
	c.k.resting.Add(1)
	defer c.k.resting.Add(-1)
	if c.held {
		c.held = false
		c.k.free()
	}
	if c.err == nil {
		keep(c.resp)
	}
	if delay <= 0 {
		return nil
	}
	ctx := c.req.Context()
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return &Error{Key: c.key, Attempts: c.attempts, Err: ctx.Err()}
	}
}

// settleBudget counts a planned retry that goes. It gives a paid one back if it was
// not sent, or if the gate has closed since it was decided: then it was the gate
// that bounded it.
func (c *call) settleBudget() {
	c.room().mu.Lock()
	defer c.room().mu.Unlock()
	if c.out {
		c.k.counters.retried++
	}
	if c.charged && (!c.out || c.k.gate.closings != c.paidAt) {
		c.k.spent = max(0, c.k.spent-1)
	}
	c.charged, c.planned = false, false
}
