package throttle

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// A call whose ctx ends while it waits for an in-flight slot says that slots were missing, and still
// matches what ended its ctx.
func TestWaitingForASlotSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{Base: newUpstream(0, always(200)), Queue: QueueOptions{MaxInFlight: 2}, LimiterFor: func(string) Limiter { return NewBucket(100, 10) }}
		client := &http.Client{Transport: tr}
		for range 2 {
			resp, err := client.Get("http://api/") // and its body stays open
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
		}
		const want = "2 of 2 calls in flight (bodies not closed?)"
		var wg sync.WaitGroup
		for _, how := range []error{context.DeadlineExceeded, context.Canceled, context.DeadlineExceeded} {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				if how == context.DeadlineExceeded {
					ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				} else {
					time.AfterFunc(2*time.Second, cancel)
				}
				defer cancel()
				_, err := client.Do(request(ctx, "GET", "http://api/"))
				var e *Error
				if !errors.As(err, &e) || e.Key != "api" || !errors.Is(err, how) || e.Timeout() != (how == context.DeadlineExceeded) {
					t.Errorf("error %v, want an Error of api that matches %v", err, how)
				}
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			})
		}
		wg.Wait()
	})
}

// Slots are named only if nothing else held the line up.
func TestOnlySlotsAreNamed(t *testing.T) {
	const inFlight = "1 of 1 calls in flight"
	free := func() Limiter { return NewBucket(rate.Inf, 0) }
	slow := func() Limiter { return NewBucket(0.01, 1) }
	hold := func(ctx context.Context) error { <-ctx.Done(); return nil }
	for _, c := range []struct {
		name string
		lim  func() Limiter
		opts QueueOptions
		do   func(q *Queue, ctx context.Context)       // before the call
		call func(q *Queue, ctx context.Context) error // nil: Do
		want bool
	}{
		{name: "a slot", lim: free, opts: QueueOptions{MaxInFlight: 1}, want: true},
		{name: "no slot wanted, behind one who wants it", lim: free, opts: QueueOptions{MaxInFlight: 1}, want: true,
			do: func(q *Queue, ctx context.Context) { go q.Do(WithPriority(ctx, 1), hold) }, call: (*Queue).Wait},
		{name: "no bound", lim: slow},
		{name: "units too", lim: slow, opts: QueueOptions{MaxInFlight: 1}},
		{name: "paused", lim: free, opts: QueueOptions{MaxInFlight: 1}, do: func(q *Queue, _ context.Context) { q.Pause(time.Hour) }},
		{name: "head that wants none", lim: slow, opts: QueueOptions{MaxInFlight: 1},
			do: func(q *Queue, ctx context.Context) { go q.Wait(WithPriority(ctx, 1)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, end := context.WithCancel(t.Context())
				defer end()
				q := NewQueue(c.lim(), c.opts)
				go q.Do(all, hold)
				synctest.Wait()
				if c.do != nil {
					c.do(q, all)
					synctest.Wait()
				}
				ctx, cancel := context.WithCancel(all)
				time.AfterFunc(time.Second, cancel)
				call := c.call
				if call == nil {
					call = func(q *Queue, ctx context.Context) error { return q.Do(ctx, hold) }
				}
				err := call(q, ctx)
				if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), inFlight) != c.want || strings.Contains(err.Error(), "bodies") {
					t.Errorf("error %q; names slots: want %v, and no bodies", err, c.want)
				}
			})
		})
	}
}

// So does a task of a group.
func TestGroupWaitingForASlotSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(NewBucket(rate.Inf, 0), QueueOptions{MaxInFlight: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		g, ctx := NewGroup(ctx, q)
		for range 2 {
			g.Go(ctx, func(context.Context) error { time.Sleep(time.Minute); return nil })
		}
		if err := g.Wait(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 of 1 calls in flight") {
			t.Errorf("error %v", err)
		}
	})
}
