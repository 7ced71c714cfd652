package recipes

import (
	"context"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
)

// Crawl fetches pages of many hosts: one call per two seconds of each host, and five in flight in all. It calls
// visit with each answer, whose body visit closes.
func Crawl(ctx context.Context, base http.RoundTripper, pages []*http.Request, visit func(*http.Request, *http.Response, error)) {
	client := &http.Client{Transport: &throttle.Transport{
		Base:        base,
		LimiterFor:  func(host string) throttle.Limiter { return throttle.NewLeaky(rate.Every(2 * time.Second)) },
		MaxInFlight: 5,
	}}
	var fetches sync.WaitGroup
	for _, page := range pages {
		fetches.Go(func() {
			resp, err := client.Do(page.WithContext(ctx))
			visit(page, resp, err)
		})
	}
	fetches.Wait()
}
