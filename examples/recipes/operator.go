package recipes

import (
	"context"
	"net/http"
	"time"

	"github.com/go-throttle/throttle"
)

// Work makes calls until ctx ends, say because of a signal. Those in line then have ten seconds; what is left
// after that fails with ErrClosed.
func Work(ctx context.Context, base http.RoundTripper, calls []*http.Request, done func(*http.Response, error)) error {
	t := &throttle.Transport{Base: base, Limiter: throttle.NewBucket(10, 1)}
	client := &http.Client{Transport: t}
	for _, req := range calls {
		go func() { done(client.Do(req)) }()
	}
	<-ctx.Done()
	end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return t.Shutdown(end)
}
