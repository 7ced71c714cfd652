package throttle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/body"
	"github.com/go-throttle/throttle/internal/queue"
)

// retry decides whether the call is sent again. If so, the next request is ready and its turn is planned; otherwise the
// response is still unread.
//
// The checks go from cheap to binding: the verdict of Check and the default rules, the attempts, the call's backoff, the line,
// which refuses a retry that cannot end well and charges the budget, and last the body.
func (c *call) retry(outcome queue.Outcome) (ok bool) {
	verdict := Default
	if check := c.t.retry.Check; check != nil {
		verdict = check(c.req.WithContext(withAttempt(c.req.Context(), c.turn.Attempts())), c.response(), c.err)
	}
	c.final = verdict == Final || verdict == Default && c.final
	switch {
	case !c.fit(verdict, outcome):
		return false
	case c.most > 0 && c.turn.Attempts() >= c.most:
		c.noteReason(ErrMaxAttempts)
		return false
	case c.req.Context().Err() != nil:
		c.noteReason(c.req.Context().Err())
		return false
	}
	plan := queue.Plan{Failed: outcome != queue.Throttled, Most: c.most}
	if c.failed = c.failed || plan.Failed; plan.Failed && c.err == nil { // all others wait for a Retry-After too, or for none
		plan.After = hint.Parse(&http.Response{StatusCode: http.StatusServiceUnavailable, Header: c.resp.Header}, time.Now()).RetryAfter
	}
	if c.turn.BacksOff(outcome) {
		if plan.Delay = c.nextBackOff(); plan.Delay < 0 {
			c.noteReason(ErrMaxAttempts)
			return false
		}
	}
	wait, err := c.turn.Retry(c.req.Context(), plan)
	if err != nil {
		c.noteReason(err)
		if err == ErrRetryBudget && c.err != nil {
			err = fmt.Errorf("%w; the last attempt: %w", err, c.err)
			c.err = newError(c.turn.Key(), 0, c.turn.Attempts(), err)
		}
		return false
	}
	next, err := again(c.req, c.turn.Attempts()+1)
	if err != nil {
		if c.err != nil {
			c.err = fmt.Errorf("%w; the last attempt: %w", err, c.err)
		}
		c.noteReason(err)
		return false
	}
	c.next, c.sent = next, false // end closes its body if it is not sent
	c.notify(onRetrying, Event{Wait: wait})
	return true
}

// fit reports whether a retry may mend the outcome, and the request may be sent again. If only that is missing, Reason
// says why; both reasons may hold.
func (c *call) fit(verdict Verdict, outcome queue.Outcome) bool {
	switch safe, whole := verdict == Again || resendable(c.req, c.resp, c.err, c.saw, outcome), replayable(c.req); {
	case c.err != nil && c.req.Context().Err() != nil: // an answer of an earlier attempt may be handed out
		c.noteReason(c.req.Context().Err())
	case c.final, verdict != Again && !c.mendable(outcome):
	case !safe && !whole:
		c.noteReason(fmt.Errorf("%w; %w", ErrNotIdempotent, ErrNoGetBody))
	case !safe:
		c.noteReason(ErrNotIdempotent)
	case !whole:
		c.noteReason(ErrNoGetBody)
	default:
		return true
	}
	return false
}

// nextBackOff is the call's own delay before its next attempt; negative: there is none.
func (c *call) nextBackOff() time.Duration {
	if c.backoff == nil {
		if c.backoff = c.t.retry.Backoff(); c.backoff == nil {
			c.backoff = defaultBackoff()
		}
	}
	return c.backoff.NextBackOff()
}

// noteReason puts the reason why there is no other attempt where Reason finds it: into the ctx of the request
// that the last response, if there is one, names as its own; if it names none, that is the caller's.
func (c *call) noteReason(reason error) {
	if c.resp == nil {
		return
	}
	if !errors.As(reason, new(*Error)) {
		reason = newError(c.turn.Key(), 0, c.turn.Attempts(), reason)
	}
	c.says.last.Note(reason)
	req := cmp.Or(c.resp.Request, c.req)
	c.resp.Request = req.WithContext(context.WithValue(req.Context(), reasonKey{}, reason))
}

// response is the last attempt's response, or nil if the attempt failed without one.
func (c *call) response() *http.Response {
	if c.err != nil {
		return nil
	}
	return c.resp
}

// keepResponse keeps the beginning of the last attempt's response, as it may be handed out later, and ends what it holds.
func (c *call) keepResponse() {
	if c.err == nil && c.resp.Body != nil && c.resp.Body != http.NoBody {
		c.resp.Body = body.Keep(c.resp.Body, time.Since(c.answered))
	}
	c.tab.Release()
}

// reasonKey is the key of what Reason returns, in the ctx of a response's request.
type reasonKey struct{}

// Reason returns why a response was handed out although a retry might have cured it: an [*Error] around ErrNoGetBody,
// ErrNotIdempotent (both may match), ErrMaxAttempts, ErrRetryBudget, ErrWaitTooLong, ErrPaused, ErrClosed, ctx.Err(), or what
// GetBody returned. It returns nil for any other response, such as a success, or one that Retry.Check calls Final, and for
// one that did not come from a [Transport]. The response itself is the upstream's, untouched.
func Reason(resp *http.Response) error {
	if resp == nil || resp.Request == nil {
		return nil
	}
	err, _ := resp.Request.Context().Value(reasonKey{}).(error)
	return err
}
