package sdks

import (
	"context"
	"net/http"
	"net/url"

	"github.com/elastic/elastic-transport-go/v8/elastictransport"

	"github.com/go-throttle/throttle/throttletest"
)

// elasticsearch.Config has the fields Transport and DisableRetry, and hands them down to this.
func newElastic(throttled *http.Client, node *url.URL) (*elastictransport.Client, error) {
	return elastictransport.NewClient(
		elastictransport.WithURLs(node),
		elastictransport.WithTransport(throttled.Transport),
		elastictransport.WithDisableRetry(), // it would send a 502, 503 or 504 again at once
	)
}

var elastic = api{
	name:   "elastic",
	stream: "{",
	fake: func() fake {
		s := throttletest.NewServer()
		s.Latency = way
		s.Handler = answer(func(*http.Request) string { return `{"took":1}` })
		return fake{Server: s}
	},
	use: func(throttled *http.Client) caller {
		client, err := newElastic(throttled, &url.URL{Scheme: "https", Host: "es.example:9200"})
		return func(ctx context.Context, _ int) error {
			if err != nil {
				return err
			}
			resp, err := searchElastic(ctx, client)
			if err != nil {
				return err
			}
			return resp.Body.Close()
		}
	},
	drop: func(throttled *http.Client) dropper {
		client, err := newElastic(throttled, &url.URL{Scheme: "https", Host: "es.example:9200"})
		return func(ctx context.Context) error {
			if err != nil {
				return err
			}
			resp, err := searchElastic(ctx, client)
			if err != nil {
				return err
			}
			return first(resp.Body)
		}
	},
	noTimeout: true,
}

func searchElastic(ctx context.Context, client *elastictransport.Client) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "/items/_search", nil)
	if err != nil {
		return nil, err
	}
	return client.Perform(req)
}
