package throttledebug_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttledebug"
)

// The page shows how full each limit is, and how much of a window is used; state.json what was taken, with the totals of keys that are gone.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport()
		tr.Limiter = throttle.NewSlidingWindow(100, time.Minute)
		tr.LimiterFor = func(key string) throttle.Limiter {
			if key == "free.test" {
				return nil
			}
			return throttle.NewBucket(2, 20)
		}
		tr.Meters = func(key string) []throttle.Meter {
			if key != "api.test" {
				return nil
			}
			return []throttle.Meter{{Name: "tokens", Limiter: throttle.NewBucket(1000, 5000), Hold: func(*http.Request) int { return 0 }}}
		}
		if err := try(throttle.WithHold(t.Context(), "tokens", 5500), tr, "api.test"); err != nil {
			t.Fatal(err)
		}
		call(t, tr, "api.test", 3)
		call(t, tr, "free.test", 1)
		h := throttledebug.Handler(one(tr))
		page := get(h, "/?name=api&key=api.test").Body.String()
		for _, want := range []string{
			"<tr><td>limit</td><td>2/s, 20 at once</td><td>16 of 20</td><td>–</td><td>–</td><td>–</td></tr>",
			"<tr><td>limit:shared</td><td>100 in 1 min</td><td>95 of 100</td><td>5 %</td><td>–</td><td>–</td></tr>",
			"<tr><td>meter:tokens</td><td>1,000/s, 5,000 at once</td><td>−500 of 5,000</td><td>–</td><td>0</td><td>100 %</td></tr>",
			"<dt>Used</dt><dd>5 %</dd>",
		} {
			if !strings.Contains(page, want) {
				t.Errorf("the page lacks %s", want)
			}
		}
		state := get(h, "/state.json").Body.String()
		for _, want := range []string{
			`"limits":[{"reason":"limit","limit":2,"size":20,"available":16,"taken":4},`,
			`,"size":100,"window":60,"available":95,"taken":5},`,
			`"meters":[{"name":"tokens","held":0,"estimate":5500,"settled":5500}]`,
			`"total":{"sent":5,"throttled":0,"retried":0,"refused":0}`,
		} {
			if !strings.Contains(state, want) {
				t.Errorf("state.json lacks %s: %s", want, state)
			}
		}
	})
}

// A reader of state.json that does not read is left after ten seconds, whatever the server's own timeout is, and each
// Transport has ten seconds of its own.
func TestSlowReaderOfState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport()
		many(t, tr, 1000)
		h := throttledebug.Handler(map[string]*throttle.Transport{"a": tr, "b": tr})
		s, start := &stuck{ResponseRecorder: *httptest.NewRecorder()}, time.Now()
		h.ServeHTTP(s, httptest.NewRequest("GET", "/state.json", nil))
		if took := time.Since(start); took != 10*time.Second || s.writes > 3 {
			t.Errorf("left after %v and %d writes, want 10s and an end at the second", took, s.writes)
		}
		slow := &sluggish{ResponseRecorder: *httptest.NewRecorder()}
		start = time.Now()
		h.ServeHTTP(slow, httptest.NewRequest("GET", "/state.json", nil))
		if took := time.Since(start); took < 12*time.Second || slow.late || !strings.HasSuffix(slow.Body.String(), "]}\n") {
			t.Errorf("a reader that takes 6 s for each Transport: %v, after its deadline: %v", took, slow.late)
		}
	})
}

// sluggish takes 6 s for each large write.
type sluggish struct {
	httptest.ResponseRecorder
	deadline time.Time
	late     bool
}

func (s *sluggish) SetWriteDeadline(t time.Time) error { s.deadline = t; return nil }
func (s *sluggish) Write(b []byte) (int, error) {
	if len(b) > 10_000 {
		time.Sleep(6 * time.Second)
		s.late = s.late || time.Now().After(s.deadline)
	}
	return s.ResponseRecorder.Write(b)
}
