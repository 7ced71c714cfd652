package sdks

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/getsentry/sentry-go"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttletest"
)

// Sentry limits by category and drops by itself what it may not send, so this Transport sends nothing again. It bounds a
// flood: two events a second, and 20 at once.
func newSentryTransport() *throttle.Transport {
	return &throttle.Transport{
		Limiter: throttle.NewBucket(2, 20),
		Queue:   throttle.QueueOptions{MaxWait: 10 * time.Second}, // the SDK has one worker and places for 1,000 events
		Retry:   throttle.Retry{MaxAttempts: 1, MaxPause: time.Second},
	}
}

func newSentry(dsn string, throttled http.RoundTripper) (*sentry.Client, error) {
	return sentry.NewClient(sentry.ClientOptions{Dsn: dsn, HTTPTransport: throttled})
}

// TestSentry: events come at the pace of the limit. A refusal for a while is obeyed by throttle, and the SDK drops what comes then.
func TestSentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := throttletest.NewServer(throttletest.Limit{Kind: throttletest.Fixed, N: 30, Per: time.Minute})
		s.Latency, s.RetryAfter, s.Advertise.Dialect = way, throttletest.Exact, func(h http.Header, _ []throttletest.State, _ time.Time) {
			if wait := h.Get("Retry-After"); wait != "" {
				h.Set("X-Sentry-Rate-Limits", wait+":error:organization")
			}
		}
		tr := newSentryTransport()
		tr.Base = s
		client, err := newSentry("https://key@o1.ingest.sentry.io/1", tr)
		if err != nil {
			t.Fatal(err)
		}
		for range 60 {
			client.CaptureMessage("it broke", nil, nil)
			time.Sleep(500 * time.Millisecond)
		}
		client.Close()
		n := s.Ledger().Tally()
		if n.Admitted != 30 || n.Throttled == 0 || n.Throttled > 2 {
			t.Errorf("%+v, want 30 events and a refusal or two", n)
		}
		if path := s.Ledger()[0].Path; !strings.HasSuffix(path, "/envelope/") {
			t.Errorf("an event came to %s", path)
		}
	})
}
