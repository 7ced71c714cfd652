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

// One who shares a short window remembers no more starts than it holds.
func TestOldStartsAreForgotten(t *testing.T) {
	q := &toldQuota{perCall: 1, size: 100, window: time.Second}
	q.Window, q.Limit = time.Second, 100
	now := time.Unix(1e9, 0)
	q.shared = now.Add(time.Hour)
	for range 10_000 {
		now = now.Add(20 * time.Millisecond)
		q.take(1, now, 0)
		q.landed(1)
	}
	if len(q.log) > 60 || q.calls != 0 || q.units != 0 {
		t.Errorf("%d starts remembered, %d calls and %v units in flight; want 51, 0, 0", len(q.log), q.calls, q.units)
	}
}
