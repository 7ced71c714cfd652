package client

import (
	"net/http"

	"github.com/hashicorp/go-retryablehttp"
)

// retryable is hashicorp/go-retryablehttp by its StandardClient, with the defaults of its README: 1 s
// doubling to 30 s, and Retry-After where a 429 or 503 has one. RetryMax is raised from 4, the logger is off
// (the default writes each request to stderr), and an ErrorHandler hands out the last response.
//
// Each call waits by itself: a 429 of one does not hold back the others, and all that got the same Retry-After
// wake together. It has no limiter and no jitter, caps no Retry-After, and reads a body whole into
// memory to send it again; it resends whatever the method.
func retryable() Client {
	return Client{
		Name:    "go-retryablehttp",
		Retries: true,
		Bubble:  true,
		Start: func(job Job) (Doer, error) {
			return over(newRetryable(job.Base), job), nil
		},
	}
}

// retryableRate has x/time/rate below the retries, so that each attempt pays.
func retryableRate() Client {
	return Client{
		Name:    "go-retryablehttp + x/time/rate",
		Limits:  true,
		Retries: true,
		Bubble:  true,
		Told:    true,
		Start: func(job Job) (Doer, error) {
			return over(newRetryable(rateLimited(job)), job), nil
		},
	}
}

func newRetryable(base http.RoundTripper) http.RoundTripper {
	c := retryablehttp.NewClient()
	c.HTTPClient = &http.Client{Transport: base}
	c.Logger = nil
	c.RetryMax = manyRetries
	c.ErrorHandler = func(resp *http.Response, err error, _ int) (*http.Response, error) {
		if err != nil && resp != nil {
			discard(resp)
			resp = nil
		}
		return resp, err
	}
	return c.StandardClient().Transport
}
