package client

import (
	"net/http"

	"golang.org/x/time/rate"
)

// timeRate has golang.org/x/time/rate wait before each request, as its package documentation says: "Most
// callers should use Wait". Several limits are several limiters, one wait after the other.
//
// It does not retry and hears nothing of what the upstream answers. Calls in flight are bounded by a channel.
func timeRate() Client {
	return Client{
		Name:   "x/time/rate",
		Limits: true,
		Bubble: true,
		Start:  func(job Job) (Doer, error) { return over(rateLimited(job), job), nil },
	}
}

// limited waits for one limiter after the other.
type limited struct {
	base     http.RoundTripper
	limiters []*rate.Limiter
}

// rateLimited is also what go-retryablehttp sends through where it is given limits.
func rateLimited(job Job) http.RoundTripper {
	if len(job.Limits) == 0 {
		return withSlots(job.Base, job.InFlight)
	}
	l := &limited{base: job.Base}
	for _, limit := range job.Limits {
		burst := limit.Burst
		if job.Even {
			burst = 1
		}
		l.limiters = append(l.limiters, rate.NewLimiter(rate.Limit(limit.Rate()), burst))
	}
	return withSlots(l, job.InFlight)
}

func (l *limited) RoundTrip(req *http.Request) (*http.Response, error) {
	for _, limiter := range l.limiters {
		if err := limiter.Wait(req.Context()); err != nil {
			return nil, unsent(req, err)
		}
	}
	return l.base.RoundTrip(req)
}
