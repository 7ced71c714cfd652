package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/examples/internal/calls"
	"github.com/go-throttle/throttle/examples/internal/leak"
)

// TestRun: nobody gets more than the limits allow.
func TestRun(t *testing.T) {
	leak.Check(t)
	s, err := newServer("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	pool := calls.Pool(64)
	defer pool.CloseIdleConnections()
	crowd := newCrowd(s.url, pool)
	start := time.Now()
	crowd.send(t.Context(), 500*time.Millisecond)
	took := time.Since(start)
	var out bytes.Buffer
	if err := crowd.print(&out, 80, took, s.limit.Stats()); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &out)
	for _, c := range crowd.clients {
		if sent, served := c.sent.Load(), c.served.Load(); served > int64(c.atMost(took)) {
			t.Errorf("%s: %d of %d were served, want at most %d", c.name, served, sent, c.atMost(took))
		}
	}
}

// TestPoint: in full and in brief, the hasty, the flood and the spoofer get all that their limits allow and no more, though
// they send ten times as much. Those with throttle send no more than they may, and are never refused.
func TestPoint(t *testing.T) {
	for _, brief := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			limit := newLimit()
			crowd := newCrowd("http://server.test/", offline{limit.Handler(http.HandlerFunc(hello))})
			crowd.send(t.Context(), length(brief))
			var out bytes.Buffer
			if err := crowd.print(&out, 80, length(brief), limit.Stats()); err != nil {
				t.Fatal(err)
			}
			t.Logf("\n%s", &out)
			for _, c := range crowd.clients {
				sent, served, most := c.sent.Load(), c.served.Load(), int64(c.atMost(length(brief)))
				switch {
				case c.polite && (sent > most || sent-served > int64(c.workers)): // the end cuts some off
					t.Errorf("%s: %d of %d served, want all and at most %d", c.name, served, sent, most)
				case c.polite && served < most/3:
					t.Errorf("%s: %d served, want most of %d", c.name, served, most)
				case !c.polite && (served > most || served < most*9/10 || sent < most):
					t.Errorf("%s: %d of %d served, want %d", c.name, served, sent, most)
				}
			}
		})
	}
}

// offline calls a handler without a network; each request takes 200 µs.
type offline struct{ http.Handler }

func (o offline) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(200 * time.Microsecond)
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	req.RemoteAddr = "127.0.0.1:1" // the caller has cloned it
	w := httptest.NewRecorder()
	o.ServeHTTP(w, req)
	resp := w.Result()
	resp.Request = req
	return resp, nil
}

func TestOutput(t *testing.T) {
	leak.Check(t)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	var out bytes.Buffer
	if err := run(ctx, config{addr: "127.0.0.1:0", length: time.Hour, columns: 60}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"curl", "pro", "spoofer", "100/s burst 100", "has let"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output does not say %q:\n%s", want, &out)
		}
	}
}

func TestNonsense(t *testing.T) {
	for _, cfg := range []config{{addr: "127.0.0.1:0", length: -1}, {addr: "nowhere", length: time.Second}} {
		if err := run(t.Context(), cfg, &bytes.Buffer{}); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
