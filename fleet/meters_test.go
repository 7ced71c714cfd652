package fleet

import (
	"net/http"
	"testing"
	"time"

	"github.com/go-throttle/throttle"
)

// headers is an upstream whose answers have that status and header.
type headers struct {
	status int
	header http.Header
}

func (h headers) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: h.status, Header: h.header, Body: http.NoBody, Request: req}, nil
}

// TestMetersOfAFleet: what answers say of the tokens of one process tightens the meter of all, and a time not to send stops
// all. What they say of requests is not about tokens.
func TestMetersOfAFleet(t *testing.T) {
	for name, c := range map[string]struct {
		answer headers
		left   int           // of the other process's burst of 100, at most
		paused time.Duration // the other one, at least
	}{
		"tokens":   {headers{200, http.Header{"X-Ratelimit-Limit-Tokens": {"100"}, "X-Ratelimit-Remaining-Tokens": {"5"}}}, 10, 0},
		"requests": {headers{200, http.Header{"X-Ratelimit-Limit-Requests": {"100"}, "X-Ratelimit-Remaining-Requests": {"5"}}}, 100, 0},
		"a pause":  {headers{429, http.Header{"Retry-After": {"5"}}}, 100, 4 * time.Second},
	} {
		bubble(t, func(t *testing.T) {
			m := new(Memory)
			a, b := New(&link{m: m}, "x", 1, 100, Options{}), New(&link{m: m}, "x", 1, 100, Options{})
			rt := &throttle.Transport{Base: c.answer, Retry: throttle.Retry{MaxAttempts: 1}, Meters: func(string) []throttle.Meter {
				return []throttle.Meter{{Name: "tokens", Limiter: a}}
			}}
			for range 2 {
				req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://example.com/", nil)
				if _, err := rt.RoundTrip(req); err != nil && c.paused == 0 {
					t.Fatal(err)
				}
				time.Sleep(300 * time.Millisecond)
			}
			b.Take(t.Context(), 1)
			time.Sleep(300 * time.Millisecond)
			if s := b.Stats(); s.Paused < c.paused-2*time.Second || c.paused == 0 && s.Paused > 0 {
				t.Errorf("%s: the other process is paused for %v, want %v", name, s.Paused, c.paused)
			}
			taken := 0
			for range 100 {
				if wait, err := b.Take(t.Context(), 1); err == nil && wait == 0 {
					taken++
				}
				time.Sleep(10 * time.Millisecond)
			}
			if c.paused == 0 && (taken > c.left || c.left == 100 && taken < 30) {
				t.Errorf("%s: the other process takes %d units, want at most %d", name, taken, c.left)
			}
		})
	}
}
