package throttle

import (
	"fmt"
	"net/http"
	"time"

	"github.com/go-throttle/throttle/internal/queue"
)

// retry decides whether the call is sent again, and after which delay of its own. If so, the next
// request is ready and its turn is planned; otherwise nothing has changed, and the response is still
// unread.
//
// The checks go from cheap to binding: the verdict of Check and the default rules, the call's backoff,
// the body, and last the line, which refuses a retry that cannot end well and charges the budget.
func (c *call) retry(outcome queue.Outcome) (delay time.Duration, ok bool) {
	r := &c.t.retry
	verdict := Default
	if r.Check != nil {
		verdict = r.Check(c.req, c.response(), c.err)
	}
	if c.final && verdict == Default {
		verdict = Final
	}
	c.final = verdict == Final
	switch {
	case verdict == Final, verdict == Default && outcome == queue.Success,
		c.turn.Attempts() >= r.MaxAttempts, !replayable(c.req), c.req.Context().Err() != nil,
		verdict != Again && !resendable(c.req, c.resp, c.err, outcome):
		return 0, false
	}
	if outcome != queue.Throttled { // otherwise the gate alone says when
		if c.backoff == nil {
			if c.backoff = r.Backoff(); c.backoff == nil {
				c.backoff = defaultBackoff()
			}
		}
		if delay = c.backoff.NextBackOff(); delay < 0 {
			return 0, false
		}
	}
	next, err := withNewBody(c.req)
	if err != nil {
		if c.err != nil {
			c.err = fmt.Errorf("%w; the last attempt: %w", err, c.err)
		}
		return 0, false
	}
	c.next, c.sent = next, false // end closes its body if it is not sent
	wait, err := c.turn.Retry(c.req.Context(), c.route(), delay, outcome != queue.Throttled)
	if err != nil {
		if err == ErrRetryBudget && c.err != nil {
			err = fmt.Errorf("%w; the last attempt: %w", err, c.err)
			c.err = newError(c.turn.Key(), 0, c.turn.Attempts(), err)
		}
		return 0, false
	}
	c.notify(onRetrying, Event{Wait: wait})
	return delay, true
}

// response is the last attempt's response, or nil if the attempt failed without one.
func (c *call) response() *http.Response {
	if c.err != nil {
		return nil
	}
	return c.resp
}

// backOff gives back the slot, reads the response ahead, and sleeps for the call's own delay.
func (c *call) backOff(delay time.Duration) error {
	return c.turn.BackOff(c.req.Context(), delay, c.keepResponse)
}

// keepResponse reads the last attempt's response ahead, as it may be handed out later.
func (c *call) keepResponse() {
	if c.err == nil {
		keep(c.resp)
	}
}
