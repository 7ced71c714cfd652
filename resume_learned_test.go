package throttle

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// Resume lets calls go also where a told quota, or the search for a limit, holds them back.
func TestResumeLetsALearnedLimitBeAskedAgain(t *testing.T) {
	for name, header := range map[string][]string{
		"told pause":  {"Retry-After", "3600"},
		"spent quota": {"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "3600"},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			tr := &Transport{Retry: Retry{MaxAttempts: 1, MaxPause: -1}, Base: baseFunc(func(req *http.Request) (*http.Response, error) {
				if n++; n == 1 {
					return reply(req, 429, header...), nil
				}
				return reply(req, 200), nil
			})}
			status(tr, t.Context(), "http://a/")
			tr.Resume("a")
			start := time.Now()
			if code, err := status(tr, t.Context(), "http://a/"); code != 200 || err != nil || time.Since(start) > time.Second {
				t.Errorf("%s: %d, %v after %v, want 200 at once", name, code, err, time.Since(start))
			}
		})
	}
}
