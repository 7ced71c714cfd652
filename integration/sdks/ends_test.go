package sdks

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
)

// explained makes one call of any SDK. If throttle has ended the call, or did not send it again, e says why.
func explained(ctx context.Context, call func(context.Context) error) (e *throttle.Error, err error) {
	ctx, explain := throttle.WithError(ctx)
	err = explain(call(ctx))
	errors.As(err, &e)
	return e, err
}

// An ending is one SDK in TestEnds.
type ending struct {
	*testing.T
	a         api
	tr        *throttle.Transport
	throttled *http.Client
	call      caller
	key       string // of its calls; a stream may come from another host
}

// TestEnds: under each SDK a call that waits ends with its ctx or its client's timeout, and its error says that it was throttle
// who let it wait; a stream that nobody reads to its end holds its slot until its ctx ends, and no longer.
func TestEnds(t *testing.T) {
	for _, a := range append(enforced, others...) {
		t.Run(a.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := new(throttle.Transport)
				if a.transport != nil {
					tr = a.transport()
				}
				tr.Base, tr.MaxInFlight = streaming(a.fake(), a.stream), 1
				e := &ending{T: t, a: a, tr: tr, throttled: &http.Client{Transport: tr}}
				e.call = a.use(e.throttled)
				if err := e.call(t.Context(), 1); err != nil {
					t.Fatalf("the first call: %v", err)
				}
				for s := range tr.Stats() {
					e.key = s.Key
				}
				tr.Pause("", 4*time.Minute) // less than what any SDK sets as its timeout
				e.ends("gate:paused")
				tr.Resume("")
				e.drop()
				if err := e.call(t.Context(), 5); err != nil {
					t.Errorf("the last call: %v", err)
				}
				if n := e.inFlight(); n != 0 {
					t.Errorf("%d slots are held at the end", n)
				}
			})
		})
	}
}

// ends lets calls that something holds end early: one has a deadline, one is cancelled, one has a client with a timeout.
func (e *ending) ends(reason string) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), time.Minute)
	defer cancel()
	e.check("a deadline", ctx, e.call, reason, context.DeadlineExceeded)

	ctx, cancel = context.WithCancel(e.Context())
	time.AfterFunc(time.Second, cancel)
	if raw := e.check("cancelled", ctx, e.call, reason, context.Canceled); named(raw) == e.a.silent {
		e.Errorf("cancelled: the SDK itself says %q", raw)
	}
	if !e.a.noTimeout {
		hasty := e.a.use(&http.Client{Transport: e.tr, Timeout: time.Minute})
		e.check("a client's timeout", e.Context(), hasty, reason, nil)
	}
}

// check makes a call that fails, and wants the error to name throttle, its key, and what has held the call. It returns what
// the SDK has made of the error.
func (e *ending) check(what string, ctx context.Context, call caller, reason string, is error) (raw error) {
	e.Helper()
	ours, err := explained(ctx, func(ctx context.Context) error {
		raw = call(ctx, 2)
		return raw
	})
	if ours == nil || ours.Key != e.key || ours.Reason != reason || ours.Attempts != 0 || !named(err) || !errors.Is(err, raw) {
		e.Errorf("%s, %s: %v, %+v", what, reason, err, ours)
	}
	if is != nil && !errors.Is(err, is) {
		e.Errorf("%s, %s: %v is not %v", what, reason, err, is)
	}
	return raw
}

// drop opens a stream, reads its beginning and forgets it, until its ctx ends, or its client's timeout is over. It holds the only
// slot meanwhile, so other calls wait, and their errors say for what.
func (e *ending) drop() {
	ctx, cancel := context.WithCancel(e.Context())
	e.open(ctx, e.throttled)
	e.ends("slot")
	cancel()
	synctest.Wait()
	if n := e.inFlight(); n != 0 {
		e.Errorf("%d slots are held after the ctx has ended", n)
	}
	if e.a.noTimeout || e.a.retries { // it would open the next one itself
		return
	}
	start := time.Now()
	e.open(e.Context(), &http.Client{Transport: e.tr, Timeout: time.Hour})
	time.Sleep(time.Until(start.Add(time.Hour + time.Second)))
	if n := e.inFlight(); n != 0 {
		e.Errorf("%d slots are held after the client's timeout", n)
	}
}

// open opens a stream that nobody closes. An SDK that has none reads each answer to its end, so it waits for the rest.
func (e *ending) open(ctx context.Context, client *http.Client) {
	e.Helper()
	ctx = withStream(ctx)
	if e.a.drop == nil {
		call := e.a.use(client)
		go call(ctx, 0)
	} else if err := e.a.drop(client)(ctx); err != nil {
		e.Errorf("a stream: %v", err)
	}
	time.Sleep(time.Second) // until there is an answer
	if n := e.inFlight(); n != 1 {
		e.Errorf("%d slots are held while a stream is open, want 1", n)
	}
}

// inFlight is how many slots are held.
func (e *ending) inFlight() int { return e.tr.Totals().InFlight }

// named reports whether an error says whose it is.
func named(err error) bool { return err != nil && strings.Contains(err.Error(), "throttle: ") }

// streaming lets a fake answer requests under a ctx withStream with the beginning of a stream, and keep it open until the ctx ends.
func streaming(base http.RoundTripper, beginning string) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		if err == nil && resp.StatusCode == http.StatusOK && isStream(req.Context()) {
			resp.Header.Set("Content-Type", "text/event-stream")
			resp.Body, resp.ContentLength = &stream{strings.NewReader(beginning), req.Context()}, -1
		}
		return resp, err
	})
}

// A stream is a body that goes on until the ctx of its request ends.
type stream struct {
	beginning *strings.Reader
	ctx       context.Context
}

func (s *stream) Read(p []byte) (int, error) {
	if s.beginning.Len() > 0 {
		return s.beginning.Read(p)
	}
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

func (s *stream) Close() error { return nil }

type streamKey struct{}

// withStream returns a ctx that makes a fake answer with a stream, and isStream reports whether one does.
func withStream(ctx context.Context) context.Context {
	return context.WithValue(ctx, streamKey{}, true)
}

func isStream(ctx context.Context) bool { return ctx.Value(streamKey{}) != nil }

// first reads the beginning of a body, and forgets the rest.
func first(body io.Reader) error {
	_, err := body.Read(make([]byte, 1))
	return err
}
