// Package calls makes the calls of the examples: a pool of connections, workers, and a GET.
package calls

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// Pool is http.DefaultTransport with as many idle connections as there are workers: its own two
// for a host would make most calls dial anew.
func Pool(workers int) *http.Transport {
	pool := http.DefaultTransport.(*http.Transport).Clone()
	pool.MaxIdleConnsPerHost = workers
	pool.MaxIdleConns = workers
	return pool
}

// Each runs call n times on so many workers and waits for all. When ctx is done it starts no more.
func Each(ctx context.Context, n, workers int, call func()) {
	var next atomic.Int64
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for next.Add(1) <= int64(n) && ctx.Err() == nil {
				call()
			}
		})
	}
	running.Wait()
}

// Get makes one call, reads the answer to its end, and returns its status.
func Get(ctx context.Context, client *http.Client, url string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, err
	}
	return resp.StatusCode, nil
}
