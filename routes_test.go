package throttle

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Calls that wait for one quota are not ahead of those that fall under another: a deadline that the other
// allows is no reason to refuse.
func TestSpentQuotaDoomsNoOtherRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tr := &Transport{Retry: Retry{MaxPause: -1}, Base: baseFunc(func(req *http.Request) (*http.Response, error) {
			time.Sleep(20 * time.Millisecond)
			resp := reply(req, 200)
			name, left := "core", 500
			if strings.HasPrefix(req.URL.Path, "/search") {
				name, left = "search", 0
			}
			resp.Header.Set("RateLimit-Policy", fmt.Sprintf(`"%s";q=1000;w=3600`, name))
			resp.Header.Set("RateLimit", fmt.Sprintf(`"%s";r=%d;t=%d`, name, left, 3600-int(time.Since(start).Seconds())))
			return resp, nil
		})}
		for _, path := range []string{"/core", "/search", "/core"} {
			if code, err := status(tr, t.Context(), "http://a.test"+path); err != nil || code != 200 {
				t.Fatal(code, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range 600 {
			go status(tr, ctx, "http://a.test/search")
		}
		time.Sleep(time.Minute)
		soon, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if code, err := status(tr, soon, "http://a.test/core"); err != nil || code != 200 {
			t.Errorf("a call that falls under another quota: %d, %v", code, err)
		}
		cancel()
		synctest.Wait()
	})
}

// A first refusal that tells a quota's reset beyond the call's MaxPause is handed out at once and untouched.
func TestFirstRefusalBeyondMaxPauseIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retried := 0
		tr := &Transport{
			Base: baseFunc(func(req *http.Request) (*http.Response, error) {
				return reply(req, 429, "RateLimit-Policy", `"q";q=100;w=3600`, "RateLimit", `"q";r=0;t=300`), nil
			}),
			Hooks: Hooks{Retrying: func(context.Context, Event) { retried++ }},
		}
		resp, err := tr.RoundTrip(request(t.Context(), "GET", "http://a.test/x"))
		if err != nil {
			t.Fatal(err)
		}
		if _, kept := resp.Body.(*keptBody); kept || retried > 0 || resp.StatusCode != 429 {
			t.Errorf("status %d, %d retries announced, body read ahead: %v; want 429, none, false", resp.StatusCode, retried, kept)
		}
		resp.Body.Close()
	})
}
