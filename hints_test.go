package throttle

import (
	"net/http"
	"strconv"
	"sync"
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

// A 429 that tells only when its window ends stops every caller until then.
func TestResetAloneIsWaitedFor(t *testing.T) {
	for name, field := range map[string]func() (string, string){
		"span":   func() (string, string) { return "X-RateLimit-Reset", "20" },
		"moment": func() (string, string) { return "X-RateLimit-Reset", strconv.FormatInt(time.Now().Unix()+20, 10) },
		"date": func() (string, string) {
			return "X-RateLimit-Reset", time.Now().Add(20 * time.Second).UTC().Format(http.TimeFormat)
		},
		"Contentful": func() (string, string) { return "X-Contentful-RateLimit-Reset", "20" },
	} {
		for _, lim := range []Limiter{nil, NewBucket(100, 10)} {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(20 * 365 * 24 * time.Hour) // a bubble begins in 2000, before a second count is seen to be one
				up := newUpstream(time.Millisecond, nil)
				up.answer = func(n int, req *http.Request) (*http.Response, error) {
					if n == 1 {
						name, value := field()
						return reply(req, 429, name, value), nil
					}
					return reply(req, 200), nil
				}
				tr := &Transport{Base: up, Limiter: lim}
				var wg sync.WaitGroup
				for i := range 10 {
					wg.Go(func() {
						time.Sleep(time.Duration(i) * 10 * time.Millisecond)
						if code, err := status(tr, t.Context(), "http://x/"); code != 200 || err != nil {
							t.Error(code, err)
						}
					})
				}
				wg.Wait()
				if again := up.times()[1]; again < 20*time.Second || again > 21100*time.Millisecond {
					t.Errorf("%s, %v: sent again after %v, want 20 s", name, lim, again)
				}
			})
		}
	}
}
