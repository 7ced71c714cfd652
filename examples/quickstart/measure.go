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
	"github.com/go-throttle/throttle/throttletest"
)

// result is one line of the table.
type result struct {
	name      string
	calls     int
	delivered int           // calls with a 2xx and a body that was read to its end
	refused   int           // 429s that the upstream has sent
	wall      time.Duration // from the first call to the end of the last
	ideal     time.Duration // the shortest time in which the limit admits all calls; negative: unknown
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

// measureBare sends the calls as fast as they go. Its ideal time is that of a client that knows the upstream's
// burst; that of an upstream which is not ours is unknown.
func measureBare(ctx context.Context, cfg config, s shape, out io.Writer) (result, error) {
	wrap := func(base http.RoundTripper) http.RoundTripper { return base }
	r, err := measure(ctx, "bare", cfg, s, wrap, out)
	r.ideal = -1
	if cfg.url == "" {
		limit := embedded(s, cfg.slack)
		r.ideal = shape{units: 1, per: limit.Per, burst: limit.Burst}.ideal(cfg.calls)
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
		server := throttletest.NewServer(embedded(s, cfg.slack))
		server.RetryAfter = time.Second
		if cfg.bubble {
			wire.base = server
		} else {
			if err := server.Start(); err != nil {
				return result{}, err
			}
			defer server.Close()
		}
		url = server.URL()
		refused = func() int { return server.Ledger().Tally().Throttled }
	}
	progress := newProgress(name, cfg, out)
	r := sendAll(ctx, &http.Client{Transport: wrap(wire)}, url, cfg, progress.add)
	progress.finish()
	r.name, r.refused = name, refused()
	return r, nil
}

// embedded is the limit of our own upstream: the client's rate, and the client's burst plus slack, because
// calls that are sent evenly may arrive in a bunch. A slack of 0 stands for the client's burst, or for the
// units of 50 ms if those are more: the library promises limit + rate × 5 ms under late timers, and the
// scheduler and the network add to that.
func embedded(s shape, slack int) throttletest.Limit {
	if slack == 0 {
		slack = max(s.burst, int(s.rate()*0.05))
	}
	return throttletest.Limit{N: 1, Per: max(1, time.Duration(float64(time.Second)/s.rate())), Burst: s.burst + slack}
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
		err := call(ctx, client, url)
		switch {
		case err == nil:
			delivered.Add(1)
		case ctx.Err() == nil: // an interrupt is not a failure
			failed.Do(func() { failure = err })
		}
		done()
	})
	return result{calls: cfg.calls, delivered: int(delivered.Load()), wall: time.Since(start), failure: failure}
}

// call makes one call. It is the same for both clients.
func call(ctx context.Context, client *http.Client, url string) error {
	status, err := calls.Get(ctx, client, url)
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("answered %d %s", status, http.StatusText(status))
	}
	return err
}

// tally counts the 429s below the retries. It takes the place of the ledger if the upstream is not ours.
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
