package throttle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/fault"
	"github.com/go-throttle/throttle/internal/queue"
)

// Retry says which calls are sent again, when, and how often. The zero value is useful. Every attempt
// waits its turn and pays like the first.
//
// # Default rules
//
// A throttled request is sent again whatever its method; after a 503 only if that is safe. A 529 or 418
// says that the upstream is overloaded: without a Retry-After the delay and the budget are those of a
// failure. After a 500, 502, 503, 504, 408 or a network error, a request is sent again only if that is safe:
// GET, HEAD, OPTIONS, TRACE, PUT and DELETE, and requests with an Idempotency-Key or X-Idempotency-Key
// header. If nothing was sent, because the dial, the TLS handshake or the proxy failed, any request is safe.
//
// A 5xx that is not registered stands for a 500; 520 to 524, 527, 530, 598 and 599, of gateways that do not reach their
// origin, stand for a 502. A Retry-After of a failure delays its call alone, which has its answer at once if it has no
// time for that (of its 15 s, or of MaxPause with a bound on attempts). A 409 is sent again after a failed attempt with
// such a key: the upstream still works on that one.
//
// Nothing is sent again after other responses, refused certificates, unknown hosts, a proxy's 4xx, and requests that
// net/http rejects. A response that no wait cures (see Final in [hint.Hint]) goes to the caller at once and pauses nobody.
//
// A request with a body is sent again only if its GetBody is set. http.NewRequest sets it for a
// bytes.Buffer, bytes.Reader and strings.Reader; for other bodies set it yourself.
type Retry struct {
	// MaxAttempts bounds the attempts of a call, the first included. 0: as many as fit into the 15 s after the first one
	// ended badly, and one at their end; while other calls' answers or an advertised time have closed the gate they stand
	// still. 1: never retry; negative: until the request's ctx ends, whatever the budget. MaxPause holds too.
	// WithMaxAttempts takes precedence for one call.
	MaxAttempts int

	// MaxPause bounds how long the upstream may serve nobody, from the first closing of the gate after its last success:
	// then calls that wait are given up, and new ones fail at once, but for probes. So they do if it is advertised to take
	// longer. Transport.Pause does not count. 0: 2 minutes; negative: until the call's ctx ends. Workers that serve many hosts
	// would soon all wait for those that are down: use about a second there, and call again after Error.Wait.
	MaxPause time.Duration

	// Failures is how many failures in a row, of two calls at least, close the gate; 0: 8, or six times as many as in a row
	// that a success has ended lately, because an upstream that turns most calls away is not out. 1: any failure does. A
	// failure is a 502, 503 or 504, or no answer; a 500 is one if nothing but 500 has come for 32 answers. After
	// that one call at a time probes the upstream. A negative number is an error.
	Failures int

	// Backoff makes the delays of one call's retries after failures and overloads. nil, or a nil result:
	// uniform in (0, c], with c = 500 ms doubling to 30 s. After throttling the gate alone says when, until a call was
	// throttled twice without a time.
	Backoff func() Backoff

	// Budget bounds the retries after failures and overloads, for each key.
	Budget Budget

	// Check overrules the default rules for one attempt; nil, or Default as its result: it does not. It
	// is called after every attempt, with a nil response if there is an error, and possibly by several
	// goroutines at once. It must not read the body. Check does not affect the gate.
	Check func(*http.Request, *http.Response, error) Verdict
}

// A Backoff returns the delay before each retry of one call; a negative one stops the retries. The
// values of github.com/cenkalti/backoff v4 and v5 are Backoffs. One goroutine at a time uses a Backoff.
type Backoff interface{ NextBackOff() time.Duration }

// A Budget bounds retries to a share of the calls: each call deposits PerCall, and each retry for a
// failure withdraws 1. Retries behind a closed gate are free, because the gate bounds them. As long as at
// most PerCall/(1+PerCall) of the attempts fail, a sixth by default, every failure is retried. Above that,
// a failing upstream gets at most 1+PerCall times the load, and PerSecond retries a second, which come back by themselves:
// otherwise a client that calls once a minute would soon have no retries. From the eighth 500 in a row on, up to 32 more
// are lent, because the gate closes after 40, unless PerSecond is negative or Max less than 1.
type Budget struct {
	PerCall   float64 // retries that each call deposits; 0: 0.2; negative: no budget, every failure is retried
	Max       float64 // the balance at the start, and the most that can be saved up; 0: 10
	PerSecond float64 // retries that come back each second, up to Max; 0: 0.2, one every 5 s; negative: none
}

// A Verdict is the result of Retry.Check.
type Verdict int

const (
	Default Verdict = iota // apply the default rules, as if there were no Check
	Final                  // return the response or error to the caller, for answers that no retry mends
	Again                  // send the request again if attempts, body, time and budget allow
)

// check returns an error for the first field with an impossible value.
func (r *Retry) check() error {
	switch b := r.Budget; {
	case math.IsNaN(b.PerCall) || math.IsInf(b.PerCall, 0):
		return fmt.Errorf("throttle: Budget.PerCall is %v, must be a number", b.PerCall)
	case math.IsNaN(b.PerSecond) || math.IsInf(b.PerSecond, 0):
		return fmt.Errorf("throttle: Budget.PerSecond is %v, must be a number", b.PerSecond)
	case r.Failures < 0:
		return fmt.Errorf("throttle: Retry.Failures is %d, must not be negative", r.Failures)
	case !(b.Max >= 0) || math.IsInf(b.Max, 0):
		return fmt.Errorf("throttle: Budget.Max is %v, must not be negative", b.Max)
	}
	return nil
}

// withDefaults replaces each zero by what it stands for.
func (r Retry) withDefaults() Retry {
	r.MaxPause = cmp.Or(r.MaxPause, 2*time.Minute)
	r.Budget.PerCall = cmp.Or(r.Budget.PerCall, 0.2)
	r.Budget.Max = cmp.Or(r.Budget.Max, 10)
	r.Budget.PerSecond = cmp.Or(r.Budget.PerSecond, 0.2)
	if r.Backoff == nil {
		r.Backoff = defaultBackoff
	}
	return r
}

// defaultBackoff is "full jitter" (Marc Brooker, Exponential Backoff And Jitter, AWS Architecture Blog, 2015): uniform
// from 0 to twice the interval, because RandomizationFactor 1 means the interval ± all of it.
func defaultBackoff() Backoff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(250*time.Millisecond),
		backoff.WithRandomizationFactor(1),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(15*time.Second),
		backoff.WithMaxElapsedTime(0),
	)
}

// judge says what an attempt shows of the upstream. h is what the response says of limits, after is how long the attempt
// took, and srtt is the smoothed round trip.
func judge(ctx context.Context, resp *http.Response, err error, h *hint.Hint, after, srtt time.Duration) queue.Outcome {
	if err != nil {
		return judgeError(ctx, err, after, srtt)
	}
	return queue.OutcomeOf(resp.StatusCode, h)
}

// judgeError is judge for an attempt without a response. A call that ended because of its own deadline counts as a failure
// only if the upstream had ample time: a second and four round trips. What no retry mends says nothing of the upstream.
func judgeError(ctx context.Context, err error, after, srtt time.Duration) queue.Outcome {
	switch {
	case ctx.Err() != nil:
		if ctx.Err() == context.DeadlineExceeded && after >= max(time.Second, 4*srtt) {
			return queue.Failure
		}
		return queue.Cancelled
	case fault.NotTheirs(err), errors.As(err, new(*Error)): // of a Transport below this one: the upstream has not failed
		return queue.Neutral
	}
	return queue.Failure
}

// mendable is the first default rule: whether a retry may mend what came of the last attempt. It mends no 409, unless an attempt
// with an idempotency key has failed before: most likely the upstream still works on that one.
func (c *call) mendable(o queue.Outcome) bool {
	if o >= queue.Failure || c.err != nil {
		return o >= queue.Failure
	}
	status := queue.ClassOf(c.resp.StatusCode)
	return status == http.StatusInternalServerError || status == http.StatusRequestTimeout ||
		status == http.StatusConflict && c.failed && keyed(c.req)
}

// resendable is the second one: whether the request may be sent again without harm. The upstream has not acted on a
// request that it throttled. It may have acted on one that failed, unless nothing was sent. A 503 may be either.
func resendable(req *http.Request, resp *http.Response, err error, saw *fault.Sent, o queue.Outcome) bool {
	switch {
	case err != nil:
		return idempotent(req) || saw.Nothing(err)
	case o == queue.Overloaded, o == queue.Throttled && resp.StatusCode != http.StatusServiceUnavailable:
		return true
	}
	return idempotent(req)
}

// idempotent reports whether sending the request twice does what sending it once does: RFC 9110 §9.2.2,
// or the caller's promise by an idempotency key. CONNECT is not among the methods.
func idempotent(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return keyed(req)
}

// keyed reports whether the request has an idempotency key.
func keyed(req *http.Request) bool {
	return len(req.Header["Idempotency-Key"]) > 0 || len(req.Header["X-Idempotency-Key"]) > 0
}

// replayable reports whether the request's body, if any, can be sent a second time.
func replayable(req *http.Request) bool {
	return req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
}

// again returns a copy of req for that attempt, with a body from GetBody if it has one. It is a deep copy, so what Base adds
// to the header or the URL of one attempt is not in the next one's. The first attempt is sent as req itself.
func again(req *http.Request, attempt int) (*http.Request, error) {
	next := req.Clone(withAttempt(req.Context(), attempt))
	next.Trailer = req.Trailer // the caller may fill it in while the body is read
	if req.Body == nil || req.Body == http.NoBody {
		return next, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, fmt.Errorf("throttle: GetBody for a retry: %w", err)
	}
	next.Body = body
	return next, nil
}
