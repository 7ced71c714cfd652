package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/examples/internal/calls"
)

// session is one run: a client that knows no limit, and what became of its calls.
type session struct {
	cfg       config
	pool      *http.Transport
	transport *throttle.Transport
	began     time.Time

	mu      sync.Mutex
	state   progress
	failure error // of the first call without a response
}

// progress is how far a session has come.
type progress struct {
	over     int         // calls that are over
	statuses map[int]int // how many of them got each status
}

func newSession(cfg config) *session {
	pool := calls.Pool(cfg.workers)
	pool.ResponseHeaderTimeout = 15 * time.Second
	return &session{
		cfg:       cfg,
		pool:      pool,
		transport: &throttle.Transport{Base: pool},
		began:     time.Now(),
		state:     progress{statuses: make(map[int]int)},
	}
}

// shownBy lets v see what is learned and what is throttled. It must be called before the transport is used.
func (s *session) shownBy(v view) {
	s.transport.Hooks = throttle.Hooks{
		Learned:   func(_ context.Context, e throttle.Event) { v.learned(e.Learned) },
		Throttled: func(_ context.Context, e throttle.Event) { v.throttled(e.Status, e.Wait) },
	}
}

// send makes the calls and shows them to v. It ends early if ctx ends, and with an error if a call gets no
// response.
func (s *session) send(ctx context.Context, v view) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	client := &http.Client{Transport: s.transport, CheckRedirect: doNotFollow}
	calls.Each(ctx, s.cfg.calls, s.cfg.workers, func() {
		status, err := calls.Get(ctx, client, s.cfg.url)
		switch {
		case err == nil:
			v.answered(s.answered(status))
		case ctx.Err() == nil:
			s.fail(err)
			stop()
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// redirect is where a response points to. Going there would be another call, maybe to another host.
type redirect string

func (r redirect) Error() string { return fmt.Sprintf("-url redirects to %q: aim at that", string(r)) }

func doNotFollow(req *http.Request, _ []*http.Request) error { return redirect(req.URL.String()) }

// answered notes a call's response, and returns how many there are.
func (s *session) answered(status int) (over int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.over++
	s.state.statuses[status]++
	return s.state.over
}

// fail notes why the run ends.
func (s *session) fail(err error) {
	var r redirect
	if errors.As(err, &r) {
		err = r // http.Client names the new URL as the one that failed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		s.failure = err
	}
}

func (s *session) progress() progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	return progress{s.state.over, maps.Clone(s.state.statuses)}
}
