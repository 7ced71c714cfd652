package throttle

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/go-throttle/throttle/internal/gate"
)

// Retry says which calls are sent again, when, and how often. The zero value is
// useful. Every attempt waits its turn and pays as the first one did.
//
// The default rules: after a 429, and what else counts as a refusal (see
// hint.Hint.Throttled) but a 503, any method. After 500, 502, 503, 504 and errors of
// the network, GET, HEAD, OPTIONS, TRACE, PUT and DELETE, and any request with an
// Idempotency-Key or X-Idempotency-Key header; if the upstream could not be dialled,
// any method. Never after other answers, errors of certificates or URLs, hosts that
// do not exist, and what net/http refuses to send; never if the body cannot be sent
// again because GetBody is nil, or if the answer says that no wait cures it
// ([hint.Hint].Final): that answer is handed out at once, and stops nobody else.
// http.NewRequest sets that for a bytes.Reader, bytes.Buffer and strings.Reader; for
// a body of another kind set it yourself.
type Retry struct {
	// MaxAttempts bounds the attempts of a call, the first one included.
	// 0: 4; 1: never retry.
	MaxAttempts int
	// MaxPause bounds the time that one call spends behind closed gates, over all
	// its attempts. 0: 1 minute; negative: as long as its ctx lives.
	//
	// A minute suits callers of one upstream, who have nothing else to do. Workers
	// who serve many hosts would soon all stand before those that are down: there,
	// let MaxPause be about a second, and call again after Error.Wait.
	MaxPause time.Duration
	// Backoff makes the delays of one call's retries after failures. nil: uniform
	// in (0, c], c = 500 ms doubling to 30 s; a nil result is the same. After a
	// refusal the gate decides alone.
	Backoff func() Backoff
	// Budget bounds retries after failures, per key.
	Budget Budget
	// Check overrules the default rules for one answer or error; nil or Default: it
	// does not. It is asked after every attempt; the response is nil if there is
	// an error. It must not read the body. What it says is not said to the gate.
	Check func(*http.Request, *http.Response, error) Verdict
}

// A Backoff yields the delay before the next retry; a negative one means stop.
// The values of github.com/cenkalti/backoff v4 and v5 are Backoffs. It is used by
// one goroutine at a time.
type Backoff interface{ NextBackOff() time.Duration }

// A Budget bounds retries to a share of the calls: each call pays in PerCall,
// each retry for a failure while the gate is open takes out 1. So at a failure
// share up to PerCall/(1+PerCall) everything is retried, and above it a failing
// upstream gets at most 1+PerCall times the load.
type Budget struct {
	PerCall float64 // 0: 0.2; negative: no budget, everything may be retried
	Max     float64 // what can be saved up, and the start; 0: 10
}

// A Verdict is what Retry.Check thinks of an answer.
type Verdict int

const (
	Default Verdict = iota // as the default rules say
	Final                  // hand this answer, or error, to the caller
	Again                  // send the request again if that is possible
)

func (r *Retry) check() error {
	switch b := r.Budget; {
	case r.MaxAttempts < 0:
		return fmt.Errorf("throttle: Retry.MaxAttempts is %d, must not be negative", r.MaxAttempts)
	case math.IsNaN(b.PerCall) || math.IsInf(b.PerCall, 0):
		return fmt.Errorf("throttle: Budget.PerCall is %v, must be a number", b.PerCall)
	case !(b.Max >= 0) || math.IsInf(b.Max, 0):
		return fmt.Errorf("throttle: Budget.Max is %v, must not be negative", b.Max)
	}
	return nil
}

// withDefaults fills in what zero stands for.
func (r Retry) withDefaults() Retry {
	r.MaxAttempts = cmp.Or(r.MaxAttempts, 4)
	r.MaxPause = cmp.Or(r.MaxPause, time.Minute)
	r.Budget.PerCall = cmp.Or(r.Budget.PerCall, 0.2)
	r.Budget.Max = cmp.Or(r.Budget.Max, 10)
	if r.Backoff == nil {
		r.Backoff = defaultBackoff
	}
	return r
}

// defaultBackoff is full jitter: the interval ± all of itself.
func defaultBackoff() Backoff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(250*time.Millisecond),
		backoff.WithRandomizationFactor(1),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(15*time.Second),
		backoff.WithMaxElapsedTime(0),
	)
}

// deposit pays a call's share in.
func (b Budget) deposit(spent float64) float64 {
	if spent > 0 {
		return max(0, spent-b.PerCall)
	}
	return spent
}

// withdraw takes one retry out, if there is one.
func (b Budget) withdraw(spent float64) (after float64, ok bool) {
	switch {
	case b.PerCall < 0:
		return spent, true
	case spent+1 > b.Max+1e-9: // shares are not exact in binary
		return spent, false
	}
	return spent + 1, true
}

// judge sorts an attempt's result by what it says of the upstream. after is how
// long the attempt took.
func judge(ctx context.Context, resp *http.Response, err error, throttled bool, after, srtt time.Duration) gate.Outcome {
	switch {
	case err != nil:
		return judgeError(ctx, err, after, srtt)
	case throttled:
		return gate.Refusal
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		return gate.Refusal
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return gate.Failure
	case http.StatusInternalServerError:
		return gate.Neutral
	}
	return gate.Success
}

func judgeError(ctx context.Context, err error, after, srtt time.Duration) gate.Outcome {
	var dns *net.DNSError
	var ours *Error
	switch {
	case ctx.Err() != nil:
		if ctx.Err() == context.DeadlineExceeded && after >= max(time.Second, 4*srtt) {
			return gate.Failure
		}
		return gate.Cancelled
	case errors.As(err, &ours): // of a Transport below this one: it has not sent it, or tried enough
		return gate.Neutral
	case isCertificate(err), isMistake(err), errors.As(err, &dns) && dns.IsNotFound:
		return gate.Neutral
	}
	return gate.Failure
}

func isCertificate(err error) bool {
	var (
		verify    *tls.CertificateVerificationError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
	)
	return errors.As(err, &verify) || errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid)
}

// isMistake knows net/http's errors for requests that it cannot send; most have no type.
func isMistake(err error) bool {
	var address *net.AddrError
	if errors.As(err, &address) {
		return true
	}
	s := err.Error()
	return slices.ContainsFunc([]string{
		"unsupported protocol scheme", "no Host in request URL", "nil Request.Header", "ContentLength=",
		"net/http: invalid ", // method, header field, trailer field
	}, func(part string) bool { return strings.Contains(s, part) })
}

// mayResend is the default rule: what may be sent again without harm. A refusal
// was not acted upon; what failed may have been, unless it was never sent.
func mayResend(req *http.Request, resp *http.Response, err error, o gate.Outcome) bool {
	switch {
	case err != nil:
		return o == gate.Failure && (idempotent(req) || neverSent(err))
	case o == gate.Refusal && resp.StatusCode != http.StatusServiceUnavailable:
		return true
	case o == gate.Refusal, o == gate.Failure, resp.StatusCode == http.StatusInternalServerError:
		return idempotent(req)
	}
	return false
}

func idempotent(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return len(req.Header["Idempotency-Key"]) > 0 || len(req.Header["X-Idempotency-Key"]) > 0
}

func neverSent(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns)
}

// replayable reports whether the request can be sent a second time.
func replayable(req *http.Request) bool {
	return req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
}

// again returns a copy of req with a new body.
func again(req *http.Request) (*http.Request, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return req, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, fmt.Errorf("throttle: GetBody for a retry: %w", err)
	}
	c := *req // as http.Request.WithContext copies; nothing below it is changed
	c.Body = body
	return &c, nil
}

// keep reads the body of a response that will be handed out only if nothing
// better comes, to free its connection. A body that is longer or slower stays
// open, with what has been read put before the rest.
func keep(resp *http.Response) {
	if resp.Body == nil || resp.Body == http.NoBody {
		return
	}
	k := &keptBody{body: resp.Body, ahead: make(chan struct{})}
	resp.Body = k
	go k.read()
	timer := time.NewTimer(keepTime)
	defer timer.Stop()
	select {
	case <-k.ahead:
		if k.err == io.EOF {
			k.Close()
		}
	case <-timer.C:
	}
}
