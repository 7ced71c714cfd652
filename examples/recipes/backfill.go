package recipes

import (
	"errors"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/go-throttle/throttle"
)

// Backfill makes many calls of one host, twenty at a time, and shows now and then how many it has begun and how
// long it will take to begin the rest. The prediction knows both limits, and how far the minute is used up. A call that
// fails does not stop the others: Backfill returns the errors of all that did.
func Backfill(base http.RoundTripper, calls []*http.Request, show func(begun int, left time.Duration)) error {
	limit := throttle.All(throttle.NewBucket(50, 1), throttle.NewSlidingWindow(1000, time.Minute))
	t := &throttle.Transport{Base: base, Limiter: limit}
	client := &http.Client{Transport: t}
	var failed failures
	var group errgroup.Group // for its limit: its Wait would return the first error alone
	group.SetLimit(20)
	for i, req := range calls {
		if i%100 == 0 {
			show(i, t.Predict(throttle.ByHost(req), len(calls)-i))
		}
		group.Go(func() error { return failed.add(req.URL.String(), status(client.Do(req))) })
	}
	return errors.Join(group.Wait(), failed.err())
}
