package recipes

import (
	"context"
	"iter"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
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

// CrawlAll is Crawl for a list that does not fit into memory: a thousand goroutines, whatever its length. A page of a host
// that is down fails within a second or so; keep it for later. Mix the hosts: a thousand pages of one in a row wait for
// it alone.
func CrawlAll(base http.RoundTripper, pages iter.Seq[*http.Request], visit func(*http.Request, *http.Response, error)) {
	client := &http.Client{Transport: &throttle.Transport{
		Base:        base,
		LimiterFor:  func(host string) throttle.Limiter { return throttle.NewLeaky(rate.Every(2 * time.Second)) },
		MaxInFlight: 50,
		Retry:       throttle.Retry{MaxAttempts: 1, MaxPause: time.Second},
	}}
	var fetches errgroup.Group
	fetches.SetLimit(1000) // Go waits for a place, and with it the list
	for page := range pages {
		fetches.Go(func() error { resp, err := client.Do(page); visit(page, resp, err); return nil })
	}
	fetches.Wait()
}
