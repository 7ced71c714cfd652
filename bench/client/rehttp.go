package client

import (
	"net/http"
	"time"

	"github.com/PuerkitoBio/rehttp"
)

// rehttpRetry is PuerkitoBio/rehttp as its package documentation composes it: RetryMaxRetries and conditions
// by RetryAll, ExpJitterDelay for the waits. The documentation leaves conditions and delays to the user;
// these are temporary errors and statuses, 500 ms to 30 s with full jitter. RetryTemporaryErr catches no
// connection reset, RetryIsErr does. The number of retries is raised until patience is over.
//
// It has no limiter, does not read Retry-After, and each call waits by itself. A body is copied into memory
// and sent again whatever the method. At the end of ctx its error says "request canceled", not why.
func rehttpRetry() Client {
	return Client{
		Name:    "rehttp",
		Retries: true,
		Bubble:  true,
		Start: func(job Job) (Doer, error) {
			return over(rehttp.NewTransport(job.Base,
				rehttp.RetryAll(
					rehttp.RetryMaxRetries(manyRetries),
					rehttp.RetryAny(
						rehttp.RetryIsErr(func(err error) bool { return err != nil }),
						rehttp.RetryStatuses(http.StatusTooManyRequests, http.StatusBadGateway,
							http.StatusServiceUnavailable, http.StatusGatewayTimeout),
					),
				),
				rehttp.ExpJitterDelay(500*time.Millisecond, 30*time.Second),
			), job), nil
		},
	}
}
