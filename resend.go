package throttle

import (
	"fmt"
	"net/http"
	"time"

	"github.com/go-throttle/throttle/internal/gate"
	"github.com/go-throttle/throttle/internal/queue"
)

// retry decides whether the call is sent again, and after which delay of its
// own; if so, the next request stands ready. Otherwise nothing has been touched.
func (c *call) retry(what gate.Outcome) (delay time.Duration, ok bool) {
	r := &c.t.retry
	verdict := Default
	if r.Check != nil {
		verdict = r.Check(c.req, c.answer(), c.err)
	}
	if c.final && verdict == Default {
		verdict = Final
	}
	c.final = verdict == Final
	switch {
	case verdict == Final, verdict == Default && what == gate.Success,
		c.Attempts >= r.MaxAttempts, !replayable(c.req), c.req.Context().Err() != nil,
		verdict != Again && !mayResend(c.req, c.resp, c.err, what):
		return 0, false
	}
	if what != gate.Refusal {
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
func (c *call) plan(what gate.Outcome, delay time.Duration) (wait time.Duration, ok bool) {
	c.room().Mu.Lock()
	defer c.room().Mu.Unlock()
	now := time.Now()
	ctx, k := c.req.Context(), c.k
	c.findLane()
	again := c.Order
	again.Retry = true
	if k.TurnAway(ctx, &again, now) != nil {
		return 0, false
	}
	answer := time.Duration(0)
	if k.Line != nil { // else nobody else has a use for its units
		answer = k.AnswerTime(&again.Waiter)
	}
	if d, has := ctx.Deadline(); has && now.Add(delay+answer).After(d) {
		return 0, false
	}
	if what != gate.Refusal && !k.Gate.Closed(now, k.Pace()) {
		if k.spent, ok = c.t.table.budget.withdraw(k.spent); !ok {
			if c.err != nil {
				c.err = &Error{Key: c.key, Attempts: c.Attempts, Err: fmt.Errorf("%w; the last attempt: %w", ErrRetryBudget, c.err)}
			}
			return 0, false
		}
		c.charged, c.paidAt = true, k.Gate.Closings
	}
	c.Order.Retry = true
	c.planned = true
	return max(delay, k.Predict(&again, now)), true
}

func (c *call) room() *queue.Room { return &c.t.table.Room }

// rest gives back what a retry does not need, keeps the answer so far, and
// sleeps for the call's own delay.
func (c *call) rest(delay time.Duration) error {
	c.k.Resting.Add(1)
	defer c.k.Resting.Add(-1)
	if c.held {
		c.held = false
		c.k.Free()
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
		return &Error{Key: c.key, Attempts: c.Attempts, Err: ctx.Err()}
	}
}

// settleBudget counts a planned retry that goes. It gives a paid one back if it was
// not sent, or if the gate has closed since it was decided: then it was the gate
// that bounded it.
func (c *call) settleBudget() {
	c.room().Mu.Lock()
	defer c.room().Mu.Unlock()
	if c.out {
		c.k.Counters.Retried++
	}
	if c.charged && (!c.out || c.k.Gate.Closings != c.paidAt) {
		c.k.spent = max(0, c.k.spent-1)
	}
	c.charged, c.planned = false, false
}
