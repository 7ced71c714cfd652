// Package calls makes the calls of the examples: a pool of connections, workers, a GET, and a look at
// the URL before all that.
package calls

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// CheckURL says why the URL that a flag -url gives cannot be called.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return fmt.Errorf("-url: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return fmt.Errorf("-url %q must begin with http:// or https:// and name a host", text)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("-url %q: port %s is not from 1 to 65535", text, port)
		}
	}
	return nil
}

// Reach says why nobody can be called at a URL that CheckURL accepts: there is no such host, or nobody
// listens. It dials once, and asks nothing. With a proxy only that one knows.
func Reach(ctx context.Context, text string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, text, nil)
	if err != nil {
		return fmt.Errorf("-url: %w", err)
	}
	if proxy, err := http.ProxyFromEnvironment(req); proxy != nil || err != nil {
		return err
	}
	dialer := net.Dialer{Timeout: 10 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(req.URL.Hostname(), cmp.Or(req.URL.Port(), req.URL.Scheme)))
	if err != nil {
		return fmt.Errorf("-url %q cannot be called: %w", text, err)
	}
	return conn.Close()
}

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
