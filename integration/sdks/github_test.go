package sdks

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/go-github/v75/github"

	"github.com/go-throttle/throttle/throttletest"
)

func newGitHub(throttled *http.Client, token string) *github.Client {
	client := github.NewClient(throttled).WithAuthToken(token)
	client.DisableRateLimitCheck = true // otherwise it refuses calls itself that would only have to wait
	return client
}

var gitHub = api{
	name:   "github",
	stream: "{",
	// 1,000 calls in each window of an hour; a refusal is a 403.
	fake: func() fake {
		s := throttletest.NewServer(throttletest.Limit{Name: "core", Kind: throttletest.Fixed, N: 1000, Per: time.Hour})
		s.Latency, s.Identify, s.Status = way, byPath, http.StatusForbidden
		s.Body = `{"message":"API rate limit exceeded","documentation_url":"https://docs.github.com/rest/rate-limit"}`
		s.Advertise.Dialect = asJSON(throttletest.GitHub)
		s.Handler = answer(func(*http.Request) string { return `{"full_name":"o/r"}` })
		return fake{Server: s}
	},
	use: func(throttled *http.Client) caller {
		client := newGitHub(throttled, "token")
		return func(ctx context.Context, i int) error {
			_, _, err := client.Repositories.Get(ctx, "o", fmt.Sprint("r", i))
			return err
		}
	},
	drop: func(throttled *http.Client) dropper {
		client := newGitHub(throttled, "token")
		return func(ctx context.Context) error {
			req, err := client.NewRequest("GET", "repos/o/r/tarball", nil)
			if err != nil {
				return err
			}
			resp, err := client.BareDo(ctx, req)
			if err != nil {
				return err
			}
			return first(resp.Body)
		}
	},
	calls: 5500, workers: 16, ideal: 5 * time.Hour, slack: 1.3,
	silent: true,
}
