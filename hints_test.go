package throttle

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// A Retry-After date 2 to 3 s ahead is waited for until that date, not a second longer. Jitter adds up to 5 %.
func TestRetryAfterDateIsWaitedForAndNoLonger(t *testing.T) {
	for _, dated := range []bool{true, false} {
		for part := time.Duration(0); part < time.Second; part += 100 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(part) // into the second
				var until time.Time
				up := newUpstream(0, nil)
				up.answer = func(n int, req *http.Request) (*http.Response, error) {
					if n > 1 {
						return reply(req, 200), nil
					}
					until = time.Now().Add(3 * time.Second).Truncate(time.Second)
					resp := reply(req, 429, "Retry-After", until.UTC().Format(http.TimeFormat))
					if dated {
						resp.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
					}
					return resp, nil
				}
				if code, err := status(&Transport{Base: up}, t.Context(), "http://x/"); code != 200 || err != nil {
					t.Fatal(code, err)
				}
				if late := time.Since(until); late < 0 || late > part+150*time.Millisecond {
					t.Errorf("%v into a second, Date %v: sent again %v after the date", part, dated, late)
				}
			})
		}
	}
}
