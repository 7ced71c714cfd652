package inbound_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/inbound"
	"github.com/go-throttle/throttle/internal/race"
)

// A wire is a handler as a RoundTripper, with a round trip, in virtual time.
type wire struct {
	h    http.Handler
	trip time.Duration
}

func (w wire) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(w.trip / 2)
	in := r.Clone(r.Context())
	in.RemoteAddr, in.RequestURI = alice, r.URL.RequestURI()
	rec := httptest.NewRecorder()
	w.h.ServeHTTP(rec, in)
	time.Sleep(w.trip / 2)
	resp := rec.Result()
	resp.Request = r
	return resp, nil
}

// TestOurTransport: a Transport that nobody has configured keeps within what the middleware says of itself, and uses
// it. 32 workers call for as long as they can.
func TestOurTransport(t *testing.T) {
	for _, c := range []struct {
		limit  string
		units  float64 // what is allowed in a second, in the long run
		burst  float64
		length time.Duration
		least  float64 // of the limit that is used
	}{
		{"100/s window", 100, 0, time.Minute, 0.95},
		{"100/s sliding", 100, 0, time.Minute, 0.95},
		{"100/s burst 100", 100, 100, time.Minute, 0.95},
		{"1000/10s window", 100, 0, 5 * time.Minute, 0.97},
		{"1000/10s sliding", 100, 0, 5 * time.Minute, 0.97},
		{"1000/10s burst 1000", 100, 1000, 5 * time.Minute, 0.97},
		{"3000/1m window", 50, 0, 20 * time.Minute, 0.97},
		{"3000/1m sliding", 50, 0, 20 * time.Minute, 0.97},
		{"3000/1m burst 600", 50, 600, 20 * time.Minute, 0.97},
	} {
		t.Run(strings.ReplaceAll(c.limit, "/", " per "), func(t *testing.T) {
			if c.length > time.Minute {
				race.Long(t)
			}
			synctest.Test(t, func(t *testing.T) {
				l := inbound.Limit{Limits: []string{c.limit}}
				client := &http.Client{Transport: &throttle.Transport{Base: wire{l.Handler(ok), 20 * time.Millisecond}}}
				end := time.Now().Add(c.length)
				var all sync.WaitGroup
				for range 32 {
					all.Go(func() {
						for time.Now().Before(end) {
							resp, err := client.Get("http://api.test/")
							if err != nil {
								t.Error(err)
								return
							}
							resp.Body.Close()
						}
					})
				}
				all.Wait()
				s := l.Stats()
				used := float64(s.Admitted) / (c.burst + c.units*c.length.Seconds())
				refused := float64(s.Refused) / float64(s.Admitted+s.Refused)
				text := fmt.Sprintf("%.2f %% used, %.2f %% refused", 100*used, 100*refused)
				t.Log(text)
				if used < c.least || refused > 0.01 {
					t.Errorf("%s; want %.0f %% and at most 1 %%", text, 100*c.least)
				}
			})
		})
	}
}
