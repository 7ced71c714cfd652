package sdks

import (
	"context"
	"net/http"

	"golang.org/x/oauth2"
	"google.golang.org/api/customsearch/v1"
	"google.golang.org/api/keep/v1"
	"google.golang.org/api/option"

	"github.com/go-throttle/throttle/throttletest"
)

// WithHTTPClient turns the SDK's own authentication off, so the client brings the token.
func newGoogle(ctx context.Context, throttled *http.Client, tokens oauth2.TokenSource) (*customsearch.Service, error) {
	client := *throttled // with its timeout, if it has one
	client.Transport = &oauth2.Transport{Source: tokens, Base: throttled.Transport}
	return customsearch.NewService(ctx, option.WithHTTPClient(&client))
}

var google = api{
	name:   "google",
	stream: "{",
	fake: func() fake {
		s := throttletest.NewServer()
		s.Latency = way
		s.Handler = answer(func(*http.Request) string { return `{"items":[]}` })
		return fake{Server: s}
	},
	use: func(throttled *http.Client) caller {
		service, err := newGoogle(context.Background(), throttled, oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "token"}))
		return func(ctx context.Context, _ int) error {
			if err != nil {
				return err
			}
			_, err := service.Cse.List().Cx("cx").Q("throttle").Context(ctx).Do()
			return err
		}
	},
	drop: func(throttled *http.Client) dropper {
		service, err := keep.NewService(context.Background(), option.WithHTTPClient(throttled))
		return func(ctx context.Context) error {
			if err != nil {
				return err
			}
			resp, err := service.Media.Download("notes/n/attachments/a").Context(ctx).Download()
			if err != nil {
				return err
			}
			return first(resp.Body)
		}
	},
	silent: true,
}
