package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/examples/internal/calls"
	"github.com/go-throttle/throttle/examples/internal/upstream"
)

// result is one line of the table.
type result struct {
	name      string
	calls     int
	delivered int           // answered with 2xx, and the body read to its end
	refused   int           // 429s that the upstream has answered
	wall      time.Duration // from the first call to the end of the last
	ideal     time.Duration // the shortest time in which the limit admits all calls; negative: not known
	failure   error         // why the first undelivered call failed; nil if all were delivered
}

// measureThrottled sends the calls through a client that keeps cfg.limit.
func measureThrottled(ctx context.Context, cfg config, s shape, out io.Writer) (result, error) {
	limiter, err := throttle.ParseLimit(cfg.limit)
	if err != nil {
		return result{}, err
	}
	wrap := func(base http.RoundTripper) http.RoundTripper {
		return &throttle.Transport{Base: base, Limiter: limiter}
	}
	r, err := measure(ctx, "throttled", cfg, s, wrap, out)
	r.ideal = s.ideal(cfg.calls)
	return r, err
}

// measureBare sends the calls as fast as they go. Its ideal is that of a client which knows the
// upstream's own burst; nobody knows that of a foreign upstream.
func measureBare(ctx context.Context, cfg config, s shape, out io.Writer) (result, error) {
	wrap := func(base http.RoundTripper) http.RoundTripper { return base }
	r, err := measure(ctx, "bare", cfg, s, wrap, out)
	r.ideal = -1
	if cfg.url == "" {
		limit := embedded(s, cfg.slack)
		r.ideal = shape{units: 1, per: time.Duration(float64(time.Second) / limit.Rate), burst: limit.Burst}.ideal(cfg.calls)
	}
	return r, err
}

// measure sends the calls of one client, to an upstream of its own if cfg names none.
func measure(ctx context.Context, name string, cfg config, s shape, wrap func(http.RoundTripper) http.RoundTripper, out io.Writer) (result, error) {
	pool := calls.Pool(cfg.workers)
	defer pool.CloseIdleConnections()
	wire := &tally{base: pool}
	url, refused := cfg.url, func() int { return int(wire.refused.Load()) }
	if url == "" {
		server, err := upstream.Start(embedded(s, cfg.slack))
		if err != nil {
			return result{}, err
		}
		defer server.Close()
		url = server.URL
		refused = func() int { return upstream.Count(server.Ledger(), http.StatusTooManyRequests) }
	}
	progress := newProgress(name, cfg, out)
	r := sendAll(ctx, &http.Client{Transport: wrap(wire)}, url, cfg, progress.add)
	progress.finish()
	r.name, r.refused = name, refused()
	return r, ctx.Err()
}

// embedded is the limit of our own upstream: the client's rate, and a burst that exceeds the
// client's by slack, because what leaves the client evenly may arrive in a bunch. A slack of 0
// stands for the client's burst, or for what comes in 50 ms if that is more: the library promises
// limit + rate × 5 ms (a late timer is made up for), and the scheduler and the network add to it.
func embedded(s shape, slack int) upstream.Limit {
	if slack == 0 {
		slack = max(s.burst, int(s.rate()*0.05))
	}
	return upstream.Limit{Rate: s.rate(), Burst: s.burst + slack, RetryAfter: time.Second}
}

// sendAll makes cfg.calls calls with cfg.workers goroutines and waits for all of them.
// done is called after each.
func sendAll(ctx context.Context, client *http.Client, url string, cfg config, done func()) result {
	var (
		delivered atomic.Int64
		failed    sync.Once
		failure   error
	)
	start := time.Now()
	calls.Each(ctx, cfg.calls, cfg.workers, func() {
		if err := call(ctx, client, url); err == nil {
			delivered.Add(1)
		} else {
			failed.Do(func() { failure = err })
		}
		done()
	})
	return result{calls: cfg.calls, delivered: int(delivered.Load()), wall: time.Since(start), failure: failure}
}

// call makes one call. Whether there is a throttle in the client, it cannot tell.
func call(ctx context.Context, client *http.Client, url string) error {
	status, err := calls.Get(ctx, client, url)
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("answered %d %s", status, http.StatusText(status))
	}
	return err
}

// tally counts the 429s on the wire, below the retries. It stands in for the ledger of an upstream
// that is not ours.
type tally struct {
	base    http.RoundTripper
	refused atomic.Int64
}

func (t *tally) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusTooManyRequests {
		t.refused.Add(1)
	}
	return resp, err
}
