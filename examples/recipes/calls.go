package recipes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/go-throttle/throttle"
)

// Webhooks returns a function that delivers an event to an endpoint. Each endpoint has a line of its own, so
// one that is slow or down holds up nobody else's deliveries. An error means that the event has to be kept
// for later; while an endpoint is down that is known at once or within three minutes.
func Webhooks(base http.RoundTripper) (deliver func(url, id string, event []byte) error) {
	client := &http.Client{Transport: &throttle.Transport{
		Base:       base,
		LimiterFor: func(host string) throttle.Limiter { return throttle.NewBucket(10, 10) },
		Queue:      throttle.QueueOptions{MaxInFlight: 4, MaxWaiting: 100}, // of each endpoint
	}}
	return func(url, id string, event []byte) error {
		req, err := http.NewRequest("POST", url, bytes.NewReader(event))
		if err != nil {
			return err
		}
		req.Header.Set("Idempotency-Key", id) // it may be sent again
		resp, err := client.Do(req)
		return status(resp, err)
	}
}

// status makes an error of an answer that is not 2xx. It reads what an answer should have at most, so that the connection
// can be used again.
func status(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.CopyN(io.Discard, resp.Body, 64<<10); err != nil && err != io.EOF {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return errors.New(resp.Status)
	}
	return nil
}

// OfOneCall returns three ways to make a call with one client: without a retry, with up to ten attempts, and
// only if it need not wait in line for longer than 200 ms.
func OfOneCall(base http.RoundTripper) (once, ten, soon func(*http.Request) (*http.Response, error)) {
	client := &http.Client{Transport: &throttle.Transport{Base: base, Limiter: throttle.NewBucket(10, 1)}}
	once = func(req *http.Request) (*http.Response, error) {
		return client.Do(req.WithContext(throttle.WithMaxAttempts(req.Context(), 1)))
	}
	ten = func(req *http.Request) (*http.Response, error) {
		return client.Do(req.WithContext(throttle.WithMaxAttempts(req.Context(), 10)))
	}
	soon = func(req *http.Request) (*http.Response, error) {
		return client.Do(req.WithContext(throttle.WithMaxWait(req.Context(), 200*time.Millisecond)))
	}
	return once, ten, soon
}

// LongWaits logs each call that will wait for more than a second, at the moment when it begins to wait.
func LongWaits(base http.RoundTripper, log *slog.Logger) *http.Client {
	waiting := func(ctx context.Context, e throttle.Event) {
		if e.Wait > time.Second {
			log.WarnContext(ctx, "long wait", "key", e.Key, "wait", e.Wait, "reason", e.Reason)
		}
	}
	return &http.Client{Transport: &throttle.Transport{
		Base:    base,
		Limiter: throttle.NewBucket(10, 1),
		Hooks:   throttle.Hooks{Waiting: waiting},
	}}
}

// Mail sends mails at 14 a second, four at a time. One that cannot be sent does not stop the others, as its error would if
// the task returned it: Mail returns the errors of all that failed. Only the end of ctx ends it early.
func Mail(ctx context.Context, mails []string, send func(ctx context.Context, mail string) error) error {
	queue := throttle.NewQueue(throttle.NewBucket(14, 1), throttle.QueueOptions{MaxInFlight: 4})
	group, ctx := throttle.NewGroup(ctx, queue)
	var failed failures
	for _, mail := range mails {
		group.Go(ctx, func(ctx context.Context) error { return failed.add(mail, send(ctx, mail)) })
	}
	return errors.Join(group.Wait(), failed.err())
}

// failures collects the errors of jobs, which may end at the same time.
type failures struct {
	mu   sync.Mutex
	errs []error
}

// add notes how a job has ended. It returns nil, whatever err is, so that a group goes on.
func (f *failures) add(job string, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.errs = append(f.errs, fmt.Errorf("%s: %w", job, err))
	}
	return nil
}

// err joins the errors; nil: there are none.
func (f *failures) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.errs...)
}

// InteractiveFirst returns two ways to call one API: what a user waits for goes before what runs at night.
func InteractiveFirst(base http.RoundTripper) (interactive, batch func(*http.Request) (*http.Response, error)) {
	client := TenASecond(base)
	interactive = func(req *http.Request) (*http.Response, error) {
		return client.Do(req.WithContext(throttle.WithPriority(req.Context(), 1)))
	}
	return interactive, client.Do
}
