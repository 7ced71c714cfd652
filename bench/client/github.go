package client

import "github.com/gofri/go-github-ratelimit/v2/github_ratelimit"

// githubRatelimit is gofri/go-github-ratelimit v2 as its README shows: github_ratelimit.New over the base.
//
// It is made for one API. GitHub's secondary limit (a 403 or 429 whose JSON body says so) makes it wait for
// Retry-After and send again, and holds all other calls until then: it is the one peer that does. GitHub's
// primary limit (X-RateLimit-Remaining: 0, a reset and a known X-RateLimit-Resource) makes it fail all calls
// until the reset, with an error. An ordinary 429 or 503 it hands to the caller, so it counts here as one that
// does not retry. It has no limiter, and it sends a POST again without its body.
//
// It cannot live in a bubble: for each primary limit it starts a goroutine that sleeps until the reset,
// whatever becomes of the client.
func githubRatelimit() Client {
	return Client{
		Name:  "go-github-ratelimit",
		Start: func(job Job) (Doer, error) { return over(github_ratelimit.New(job.Base), job), nil },
	}
}
