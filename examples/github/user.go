package main

import (
	"context"
	"net/http"

	"github.com/google/go-github/v75/github"

	"github.com/go-throttle/throttle/examples/internal/sides"
)

// newClient is all that changes for a user of go-github: the client that is handed in, and that the SDK leaves the limit to it.
func newClient(client *http.Client, throttled bool) *github.Client {
	hub := github.NewClient(client).WithAuthToken("token")
	hub.DisableRateLimitCheck = throttled
	return hub
}

// stars returns a call that looks up one of many repositories.
func stars(client *http.Client, name string) sides.Call {
	hub := newClient(client, name == sides.With)
	return func(ctx context.Context, i int) error {
		_, _, err := hub.Repositories.Get(ctx, "octocat", repository(i))
		return err
	}
}
