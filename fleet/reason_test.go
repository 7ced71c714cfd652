package fleet

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
)

// TestReason: a line waits for the store as long as no date is known, and otherwise for its limit.
func TestReason(t *testing.T) {
	for _, c := range []struct {
		name  string
		mode  Mode
		hang  time.Duration
		after time.Duration // from the call's arrival
		want  string
		until time.Duration // from then on, about
	}{
		{"the request is out", Alone, 0, 0, "store", 100 * time.Millisecond},
		{"it has brought a date", Alone, 0, 3 * time.Millisecond, "limit", time.Second},
		{"the store hangs", Alone, time.Minute, 10 * time.Millisecond, "store", 90 * time.Millisecond},
		{"the share decides", Alone, time.Minute, 200 * time.Millisecond, "limit", 250 * time.Millisecond},
		{"there is no share", Closed, time.Minute, 5 * time.Second, "store", time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := new(Memory)
				m.Exchange(t.Context(), "x", ask("other", 1, 1, 1, 1, 0)) // the burst,
				m.Exchange(t.Context(), "x", ask("third", 1, 1, 1, 1, 0)) // and what may be on loan
				link := &link{m: m, hang: time.Now().Add(c.hang)}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				q := throttle.NewQueue(New(link, "x", 1, 1, Options{Mode: c.mode}), throttle.QueueOptions{})
				go q.Wait(ctx)
				synctest.Wait()
				time.Sleep(c.after)
				synctest.Wait()
				s := q.Stats()
				if until := time.Until(s.Until); s.Reason != c.want || until <= 0 || until > 2*c.until {
					t.Errorf("%q for %v, want %q for %v", s.Reason, until, c.want, c.until)
				}
			})
		})
	}
}

// TestReasonOfLocal: behind a slower limit of its own, a call does not wait for the store. Observers see the word too.
func TestReasonOfLocal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lim := New(&link{m: new(Memory)}, "x", 1000, 1, Options{})
		local := throttle.NewBucket(1, 1)
		q := throttle.NewQueue(throttle.All(local, lim), throttle.QueueOptions{})
		q.Wait(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		go q.Wait(ctx)
		synctest.Wait()
		if s := q.Stats(); s.Reason != "limit" {
			t.Errorf("%q behind a local limit", s.Reason)
		}
		cancel()
	})
	bubble(t, func(t *testing.T) {
		reason := ""
		tr := &throttle.Transport{
			Base:    roundTripper(func(*http.Request) (*http.Response, error) { return nil, errLost }),
			Limiter: New(&link{m: new(Memory)}, "x", 1000, 1, Options{}),
			Hooks:   throttle.Hooks{Waiting: func(_ context.Context, e throttle.Event) { reason = e.Reason }},
			Retry:   throttle.Retry{MaxAttempts: 1},
		}
		r, _ := http.NewRequest("GET", "http://x/", nil)
		if tr.RoundTrip(r); reason != "store" {
			t.Errorf("the hook sees %q", reason)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
