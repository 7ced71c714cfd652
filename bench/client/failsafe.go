package client

import (
	"net/http"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/adaptivethrottler"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
)

// The three setups of failsafe-go stand on https://failsafe-go.dev/http: NewRoundTripper over policies, the
// outermost named first, and NewRetryPolicyBuilder with the page's WithBackoff(1 s, 30 s). Retries are raised
// from 2 to without number, and ReturnLastFailure hands out the last response instead of an error.
//
// Each call waits by itself; Retry-After is obeyed as whole seconds, without jitter and without cap. A request
// body is read whole into memory and sent again whatever the method. The library does not close the body of an
// answer that it retries, which costs the connection; here OnRetryScheduled does.
type policies = []failsafe.Policy[*http.Response]

func failsafeOver(job Job, p ...failsafe.Policy[*http.Response]) (Doer, error) {
	return over(failsafehttp.NewRoundTripper(job.Base, p...), job), nil
}

func failsafeRetries(job Job) retrypolicy.RetryPolicy[*http.Response] {
	return failsafehttp.NewRetryPolicyBuilder().
		WithBackoff(time.Second, 30*time.Second).
		WithMaxRetries(-1).
		WithMaxDuration(job.patience()).
		ReturnLastFailure().
		OnRetryScheduled(func(e failsafe.ExecutionScheduledEvent[*http.Response]) {
			if resp := e.LastResult(); resp != nil {
				discard(resp)
			}
		}).
		Build()
}

// failsafeRetry only retries.
func failsafeRetry() Client {
	return Client{
		Name:    "failsafe-go: retry",
		Retries: true,
		Bubble:  true,
		Start: func(job Job) (Doer, error) {
			return failsafeOver(job, failsafeRetries(job))
		},
	}
}

// failsafeLimited has its smooth limiter below the retries, so that each attempt pays. The limiter spaces
// evenly and knows no bursts, so of several limits the slowest is all that counts. It books slots: what a
// cancelled call had booked is lost. Calls in flight are bounded by its bulkhead, outside the limiter, so
// that a call starts when its turn comes.
func failsafeLimited() Client {
	return Client{
		Name:    "failsafe-go: retry + limiter",
		Limits:  true,
		Retries: true,
		Bubble:  true,
		Told:    true,
		Start: func(job Job) (Doer, error) {
			p := policies{failsafeRetries(job)}
			if job.InFlight > 0 {
				p = append(p, bulkhead.NewBuilder[*http.Response](uint(job.InFlight)).
					WithMaxWaitTime(job.patience()).Build())
			}
			if len(job.Limits) > 0 {
				limit := job.slowest()
				p = append(p, ratelimiter.NewSmoothBuilder[*http.Response](uint(limit.N), limit.Per).
					WithMaxWaitTime(job.patience()).Build())
			}
			return failsafeOver(job, p...)
		},
	}
}

// failsafeThrottler has the adaptive throttler below the retries: once more than a tenth of the last minute's
// answers failed, it refuses calls by chance (Google's SRE book, "client-side throttling"), 90 % of them at
// most. Those are the values of https://failsafe-go.dev/adaptive-throttler; what counts as a failure is said by
// HandleIf, as the policy handles only errors otherwise. A refused call is retried after its backoff as a
// failed one is.
//
// The throttler sheds load from an upstream that is down; it holds no rate. The module's adaptivelimiter
// bounds calls in flight by round trips, which say nothing of a quota; it is compared in adaptive.go.
func failsafeThrottler() Client {
	return Client{
		Name:    "failsafe-go: retry + adaptive throttler",
		Retries: true,
		Bubble:  true,
		Start: func(job Job) (Doer, error) {
			throttler := adaptivethrottler.NewBuilder[*http.Response]().
				HandleIf(func(resp *http.Response, err error) bool {
					return err != nil || resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500
				}).
				WithFailureRateThreshold(0.1, 5, time.Minute).
				WithMaxRejectionRate(0.9).
				Build()
			return failsafeOver(job, failsafeRetries(job), throttler)
		},
	}
}
