package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/examples/internal/calls"
	"github.com/go-throttle/throttle/throttletest"
)

// burst is how many deliveries the endpoint promises to take at once. It takes twice as many, because
// deliveries that are sent evenly may arrive in a bunch.
const burst = 10

// deliverer makes one delivery. It returns nil when the endpoint has taken it.
type deliverer func(ctx context.Context, url, key string, body []byte) error

// side is one client and its endpoint.
type side struct {
	name    string
	pool    *http.Transport // nil: without sockets
	server  *throttletest.Server
	deliver deliverer
	backlog backlog
	back    time.Duration // when the server came back, by its own clock
}

func newSide(name string, cfg config, client func(config, http.RoundTripper) deliverer) (*side, error) {
	server := throttletest.NewServer(limit(5*cfg.capacity, 5*2*burst))
	server.RetryAfter = time.Second
	s := &side{name: name, server: server}
	s.backlog.cfg = cfg
	if cfg.bubble {
		s.deliver = client(cfg, server)
		return s, nil
	}
	if err := server.Start(); err != nil {
		return nil, err
	}
	s.pool = calls.Pool(cfg.senders)
	s.deliver = client(cfg, s.pool)
	return s, nil
}

// limit is a token bucket of so many deliveries a second.
func limit(rate float64, burst int) throttletest.Limit {
	return throttletest.Limit{N: 1, Per: max(1, time.Duration(float64(time.Second)/rate)), Burst: burst}
}

func (s *side) close() {
	if s.pool != nil {
		s.pool.CloseIdleConnections()
		s.server.Close()
	}
}

// throttledClient delivers with a single Do: waiting, pausing and retrying happen inside.
func throttledClient(cfg config, base http.RoundTripper) deliverer {
	client := &http.Client{Transport: &throttle.Transport{
		Base:    base,
		Limiter: throttle.NewBucket(rate.Limit(cfg.capacity), burst),
	}}
	return func(ctx context.Context, url, key string, body []byte) error {
		return post(ctx, client, url, key, body)
	}
}

// plainClient delivers with the usual loop around Do.
func plainClient(_ config, base http.RoundTripper) deliverer {
	client := &http.Client{Transport: base}
	return func(ctx context.Context, url, key string, body []byte) error {
		try := func() error { return post(ctx, client, url, key, body) }
		return backoff.Retry(try, backoff.WithContext(backoff.NewExponentialBackOff(), ctx))
	}
}

// post sends one delivery. The request has a GetBody, because its body is a bytes.Reader: so it can be sent
// again. The Idempotency-Key says to the endpoint and to throttle that it may be.
func post(ctx context.Context, client *http.Client, url, key string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("answered %s", resp.Status)
	}
	return nil
}

// backlog counts what is due and not yet delivered.
type backlog struct {
	cfg   config
	start time.Time // set before the first delivery, then only read

	mu        sync.Mutex
	delivered int
	failed    int
	failure   error     // why the first of them failed
	returned  time.Time // when the endpoint came back; zero: not yet
	atReturn  int       // the backlog at that moment
	deferred  int       // what was to be delivered from then on: the backlog, and all that fell due later
	drained   time.Time // when nothing was overdue for the first time since; zero: not yet
}

// count notes the outcome of a delivery.
func (b *backlog) count(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		if b.failed++; b.failure == nil {
			b.failure = err
		}
		return
	}
	b.delivered++
	now := time.Now()
	if b.drained.IsZero() && !b.returned.IsZero() && b.delivered >= b.dueBy(now) {
		b.drained = now
	}
}

// back notes the return of the endpoint.
func (b *backlog) back(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.returned, b.atReturn, b.deferred = now, b.dueBy(now)-b.delivered, b.cfg.deliveries()-b.delivered
}

// dueBy is how many deliveries have fallen due by now.
func (b *backlog) dueBy(now time.Time) int {
	return min(b.cfg.deliveries(), int(now.Sub(b.start).Seconds()*b.cfg.rate)+1)
}

// ideal is the shortest time in which the endpoint, taking capacity deliveries a second, can drain
// the backlog: while new ones fall due it shrinks by capacity − rate a second.
func (b *backlog) ideal() time.Duration {
	whileDue := float64(b.atReturn) / (b.cfg.capacity - b.cfg.rate)
	rest := b.cfg.due - b.returned.Sub(b.start)
	if whileDue > rest.Seconds() {
		whileDue = float64(b.deferred) / b.cfg.capacity
	}
	return time.Duration(whileDue * float64(time.Second))
}
