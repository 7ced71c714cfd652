package client

import (
	"errors"
	"io"
	"net/http"
	"time"

	"resty.dev/v3"
)

// restyClient is resty v3 with its rate limiter and its own retry conditions, as the README's features and the
// documentation of SetRateLimiter and SetRetryCount show: 100 ms doubling to 2 s with jitter, or Retry-After.
// The retry count is raised from 0. The answer is handed out unparsed, because a Doer's caller reads it.
//
// Each call waits by itself and asks its limiter again when it wakes, so who goes next is chance, and under a
// backlog many wake for one unit. It holds one limiter, here the token bucket or, for a window, the sliding
// window: of several limits it gets the lowest rate and the smallest burst. Only idempotent methods are sent again. It bounds no calls in flight: a channel below does.
func restyClient() Client {
	return Client{
		Name:    "resty",
		Limits:  true,
		Retries: true,
		Bubble:  true,
		Start: func(job Job) (Doer, error) {
			c := resty.NewWithClient(&http.Client{Transport: withSlots(job.Base, job.InFlight)}).
				SetResponseDoNotParse(true).
				SetRetryCount(manyRetries).
				SetRetryWaitTime(100*time.Millisecond).
				SetRetryMaxWaitTime(2*time.Second).
				AddRetryConditions(resty.RetryConditionStatusTooManyRequests, resty.RetryConditionStatus5XX,
					resty.RetryConditionStatusZero)
			if len(job.Limits) > 0 {
				c.SetRateLimiter(restyLimiter(job))
			}
			return over(restyTripper{c}, job), nil
		},
	}
}

func restyLimiter(job Job) resty.RateLimiter {
	limit := job.slowest()
	switch {
	case job.Even:
		return resty.NewRateLimitTokenBucket(limit.Rate(), 1)
	case limit.Window && len(job.Limits) == 1:
		return resty.NewRateLimitSlidingWindow(limit.N, limit.Per)
	}
	return resty.NewRateLimitTokenBucket(limit.Rate(), limit.Burst)
}

// restyTripper speaks resty's words. A body is read here, because resty sends again only what it can seek in.
type restyTripper struct{ client *resty.Client }

func (t restyTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	r := t.client.R().SetContext(req.Context())
	if req.Header != nil {
		r.Header = req.Header.Clone()
	}
	if req.Body != nil && req.Body != http.NoBody {
		body, err := io.ReadAll(req.Body)
		if err := errors.Join(err, req.Body.Close()); err != nil {
			return nil, err
		}
		r.SetBody(body)
	}
	resp, err := r.Execute(req.Method, req.URL.String())
	if err != nil {
		return nil, err
	}
	resp.RawResponse.Body = resp.Body
	return resp.RawResponse, nil
}
