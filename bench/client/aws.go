package client

import (
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
)

// awsAdaptive is the adaptive mode of the AWS SDK's retryer (aws-sdk-go-v2/aws/retry) around plain HTTP. The
// loop takes the steps of the SDK's own attempt middleware through aws.RetryerV2: attempt token, attempt,
// retry token, delay. A 429 becomes the error code that the SDK's deserializers make of it, so that the
// package's own lists recognize it. Attempts are raised from 3; the retry quota (500 units, 5 a retry) would
// end them, so it is off by ratelimit.None as the documentation of StandardOptions says.
//
// Its limiter is off until the first 429; then it is shared by all calls and found by CUBIC. A known limit
// cannot be set. It cuts the rate for each of several 429s of the same moment, reads no Retry-After, and sends
// again whatever the method. The mode is documented as experimental. AWS_NEW_RETRIES_2026 is not set.
//
// It cannot live in a bubble: it sleeps for what is missing of a token, cut to whole nanoseconds. When less
// than one is missing it sleeps for none and asks again; the time of a bubble then never goes on.
func awsAdaptive() Client {
	return Client{
		Name:    "AWS SDK adaptive",
		Retries: true,
		Start: func(job Job) (Doer, error) {
			return over(&awsTripper{job.Base, retry.NewAdaptiveMode(func(o *retry.AdaptiveModeOptions) {
				o.StandardOptions = append(o.StandardOptions, func(o *retry.StandardOptions) {
					o.MaxAttempts = manyRetries
					o.RateLimiter = ratelimit.None
				})
			})}, job), nil
		},
	}
}

type awsTripper struct {
	base    http.RoundTripper
	retryer aws.RetryerV2
}

func (t *awsTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	for n := 1; ; n++ {
		resp, err := t.attempt(req)
		if err == nil {
			return resp, nil
		}
		next := t.again(req, n, err)
		if next == nil && resp != nil {
			return resp, nil // the SDK would hand out the error
		}
		if next == nil {
			return nil, err
		}
		if resp != nil {
			discard(resp)
		}
		req = next
	}
}

// attempt returns an error beside the response if the SDK would make one of it.
func (t *awsTripper) attempt(req *http.Request) (*http.Response, error) {
	release, err := t.retryer.GetAttemptToken(req.Context())
	if err != nil {
		return nil, unsent(req, err)
	}
	resp, err := t.base.RoundTrip(req)
	if err == nil && (resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500) {
		err = awsError(resp.StatusCode)
	}
	_ = release(err)
	return resp, err
}

// again sleeps and returns the request to send next, or nil if err is the end.
func (t *awsTripper) again(req *http.Request, n int, err error) *http.Request {
	ctx := req.Context()
	if ctx.Err() != nil || n >= t.retryer.MaxAttempts() || !t.retryer.IsErrorRetryable(err) {
		return nil
	}
	if req.Body != nil && req.Body != http.NoBody {
		if req.GetBody == nil {
			return nil
		}
		body, err := req.GetBody()
		if err != nil {
			return nil
		}
		req = req.Clone(ctx)
		req.Body = body
	}
	release, tokenErr := t.retryer.GetRetryToken(ctx, err)
	if tokenErr != nil {
		return nil
	}
	_ = release(nil) // of a quota that is off
	delay, delayErr := t.retryer.RetryDelay(n, err)
	if delayErr != nil {
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return req
	case <-ctx.Done():
		return nil
	}
}

// awsError is an answer as the SDK's retryer looks at it.
type awsError int

func (e awsError) Error() string       { return http.StatusText(int(e)) }
func (e awsError) HTTPStatusCode() int { return int(e) }

func (e awsError) ErrorCode() string {
	if e == http.StatusTooManyRequests {
		return "TooManyRequestsException"
	}
	return ""
}
