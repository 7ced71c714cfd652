package client

import (
	"net/http"

	"go.uber.org/ratelimit"
)

// uberRatelimit calls Take before each request, as the README of go.uber.org/ratelimit shows. Slack is how it
// speaks of bursts: WithSlack(n) lets n + 1 go at once after a rest, and the first calls never do. Its
// limiter is a leaky bucket, so of several limits the slowest is all that counts.
//
// Take knows no context: a call that waits cannot be cancelled, and one that cannot make its deadline waits
// all the same. It does not retry and does not hear the upstream. Calls in flight are bounded by a channel.
func uberRatelimit() Client {
	return Client{
		Name:   "uber-go/ratelimit",
		Limits: true,
		Bubble: true,
		Start: func(job Job) (Doer, error) {
			rt := job.Base
			if len(job.Limits) > 0 {
				limit := job.slowest()
				slack := limit.Burst - 1
				if job.Even {
					slack = 0
				}
				rt = &taken{job.Base, ratelimit.New(limit.N, ratelimit.Per(limit.Per), ratelimit.WithSlack(slack))}
			}
			return over(withSlots(rt, job.InFlight), job), nil
		},
	}
}

type taken struct {
	base    http.RoundTripper
	limiter ratelimit.Limiter
}

func (t *taken) RoundTrip(req *http.Request) (*http.Response, error) {
	t.limiter.Take()
	if err := req.Context().Err(); err != nil {
		return nil, unsent(req, err)
	}
	return t.base.RoundTrip(req)
}
