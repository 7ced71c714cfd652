package client

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// manyRetries stands for "until Job.Patience is over" where a library wants a number.
const manyRetries = 10_000

// over makes a Doer of a RoundTripper that gives a call up when its patience is over, body included. That is
// what http.Client.Timeout does, which for a RoundTripper that is not net/http's own starts a goroutine for
// each call; a deadline does not.
func over(rt http.RoundTripper, job Job) Doer {
	c := &http.Client{Transport: rt}
	if job.Patience <= 0 {
		return c
	}
	return patient{c, job.Patience}
}

type patient struct {
	*http.Client
	patience time.Duration
}

func (p patient) Do(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), p.patience)
	resp, err := p.Client.Do(req.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &endBody{resp.Body, cancel}
	return resp, nil
}

// patience is Job.Patience for builders that take zero for no wait.
func (j Job) patience() time.Duration {
	if j.Patience > 0 {
		return j.Patience
	}
	return time.Hour
}

// slowest is the limit with the lowest rate, the one that counts over time. It is what a client gets that can
// hold one limit only, with the smallest of the bursts.
func (j Job) slowest() Limit {
	slow := slices.MinFunc(j.Limits, func(a, b Limit) int {
		if a.Rate() < b.Rate() {
			return -1
		}
		return 1
	})
	for _, l := range j.Limits {
		slow.Burst = min(slow.Burst, l.Burst)
	}
	return slow
}

// slots bounds the calls in flight, from before the wait for a turn to the close of the body. It is the
// buffered channel that a program puts around a limiter that knows nothing of calls in flight.
type slots struct {
	base http.RoundTripper
	free chan struct{}
}

// withSlots is base itself if no bound is known.
func withSlots(base http.RoundTripper, n int) http.RoundTripper {
	if n <= 0 {
		return base
	}
	return &slots{base, make(chan struct{}, n)}
}

func (s *slots) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case s.free <- struct{}{}:
	case <-req.Context().Done():
		return nil, unsent(req, req.Context().Err())
	}
	release := sync.OnceFunc(func() { <-s.free })
	resp, err := s.base.RoundTrip(req)
	if err != nil {
		release()
		return nil, err
	}
	resp.Body = &endBody{resp.Body, release}
	return resp, nil
}

// unsent closes the body of a request that is not sent, as RoundTripper asks for.
func unsent(req *http.Request, err error) error {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return err
}

// endBody calls end when it is closed.
type endBody struct {
	io.ReadCloser
	end func()
}

func (b *endBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// discard ends an answer that nobody wants, so that its connection can be used again.
func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	_ = resp.Body.Close()
}
