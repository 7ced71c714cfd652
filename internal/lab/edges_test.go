package lab_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/throttletest"
)

// A refusal that names its quota stops the routes of that quota alone, for as long as it tells.
func TestNamedRefusalStopsItsRoutesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var searches atomic.Int64
		tr := &throttle.Transport{Base: roundTrip(func(req *http.Request) (*http.Response, error) {
			time.Sleep(10 * time.Millisecond)
			if !strings.HasPrefix(req.URL.Path, "/search") {
				return answer(req, 200, "X-Ratelimit-Bucket", "core", "X-Ratelimit-Limit", "100", "X-Ratelimit-Remaining", "90", "X-Ratelimit-Reset-After", "60"), nil
			}
			if searches.Add(1) == 2 {
				return answer(req, 429, "X-Ratelimit-Bucket", "search", "X-Ratelimit-Limit", "10", "X-Ratelimit-Remaining", "0",
					"X-Ratelimit-Reset-After", "20", "Retry-After", "20"), nil
			}
			return answer(req, 200, "X-Ratelimit-Bucket", "search", "X-Ratelimit-Limit", "10", "X-Ratelimit-Remaining", "9", "X-Ratelimit-Reset-After", "60"), nil
		})}
		for _, path := range []string{"core", "search", "core", "core"} {
			if _, err := get(t.Context(), tr, "http://a.test/"+path); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
		}
		start := time.Now()
		done := make(chan time.Duration)
		go func() {
			get(t.Context(), tr, "http://a.test/search")
			done <- time.Since(start)
		}()
		time.Sleep(time.Second)
		for range 3 {
			if _, err := get(t.Context(), tr, "http://a.test/core"); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(start); d > 4*time.Second {
			t.Errorf("search has held core up for %v", d)
		}
		if d := <-done; d < 20*time.Second || d > 22*time.Second {
			t.Errorf("advertised 20 s, the search came through after %v", d)
		}
	})
}

// A refusal that the quota that is advertised knows nothing is no reason to wait for that one's end.
func TestRefusalWithSomethingRemaining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		tr := &throttle.Transport{Base: roundTrip(func(req *http.Request) (*http.Response, error) {
			time.Sleep(10 * time.Millisecond)
			code := 200
			if n.Add(1) == 3 {
				code = 429
			}
			return answer(req, code, "Ratelimit-Policy", `"a";q=100;w=60`, "Ratelimit", `"a";r=50;t=40`), nil
		})}
		for range 3 {
			start := time.Now()
			if code, err := get(t.Context(), tr, "http://a.test/"); code != 200 || err != nil || time.Since(start) > 5*time.Second {
				t.Errorf("%d, %v after %v", code, err, time.Since(start))
			}
			time.Sleep(5 * time.Second)
		}
	})
}

// One with nothing remaining and no other time advertised waits for the end of the window.
func TestRefusalWithNothingRemaining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, n := time.Now(), 0
		tr := &throttle.Transport{Base: roundTrip(func(req *http.Request) (*http.Response, error) {
			time.Sleep(10 * time.Millisecond)
			if n++; n == 1 {
				return answer(req, 429, "Ratelimit-Policy", `"a";q=100;w=60`, "Ratelimit", `"a";r=0;t=40`), nil
			}
			return answer(req, 200, "Ratelimit-Policy", `"a";q=100;w=60`, "Ratelimit", `"a";r=99;t=60`), nil
		})}
		if _, err := get(context.Background(), tr, "http://a.test/"); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d < 40*time.Second || d > 42*time.Second {
			t.Errorf("came through after %v", d)
		}
		for _, l := range statsOf(tr).Learned {
			if l.Source == "throttled" {
				t.Errorf("a refusal that a quota explains began a search: %+v", l)
			}
		}
	})
}

// Routes are advertised apart by their segments, not by their letters, each host by itself.
func TestSpentQuotaStopsItsRouteAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{
			Key: func(*http.Request) string { return "one" },
			Base: roundTrip(func(req *http.Request) (*http.Response, error) {
				time.Sleep(10 * time.Millisecond)
				left := "50"
				if req.URL.Host == "a.test" && req.URL.Path == "/a/bc" {
					left = "0"
				}
				name := strings.ReplaceAll(req.URL.Host+req.URL.Path, "/", "-")
				return answer(req, 200, "Ratelimit-Policy", `"`+name+`";q=100;w=3600`, "Ratelimit", `"`+name+`";r=`+left+`;t=1800`), nil
			}),
			Retry: throttle.Retry{MaxPause: time.Minute},
		}
		urls := []string{"http://a.test/ab/c", "http://a.test/abc", "http://b.test/a/bc", "http://a.test/a/b/c", "http://a.test/a/bc"}
		for _, url := range urls {
			if _, err := get(t.Context(), tr, url); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		for _, url := range urls {
			_, err := get(t.Context(), tr, url)
			if spent := url == "http://a.test/a/bc"; spent != errors.Is(err, throttle.ErrPaused) || !spent && err != nil {
				t.Errorf("%s: %v", url, err)
			}
			time.Sleep(time.Minute)
		}
		if l := statsOf(tr).Learned; len(l) != len(urls) {
			t.Errorf("%+v", l)
		}
	})
}

// What is learned of a host with very many routes and quotas stays small, and its calls go on.
func TestManyRoutesAndQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{Base: roundTrip(func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Millisecond)
			name := strings.Trim(req.URL.Path, "/")
			return answer(req, 200, "Ratelimit-Policy", `"`+name+`";q=100;w=60`, "Ratelimit", `"`+name+`";r=50;t=30`), nil
		})}
		start := time.Now()
		for i := range 2000 {
			if _, err := get(t.Context(), tr, fmt.Sprintf("http://a.test/%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		if l := statsOf(tr).Learned; len(l) > 64 {
			t.Errorf("%d quotas are kept", len(l))
		}
		if d := time.Since(start); d > time.Minute {
			t.Errorf("2,000 calls took %v", d)
		}
	})
}

// A call that costs more than the whole of a advertised quota goes when all of it is there.
func TestCostAboveToldQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, window := range []string{"1", "60"} {
			tr := &throttle.Transport{Base: answers(200, "Ratelimit-Policy", `10;w=`+window, "Ratelimit-Limit", "10", "Ratelimit-Remaining", "10", "Ratelimit-Reset", window)}
			start := time.Now()
			for range 3 {
				if _, err := get(throttle.WithCost(t.Context(), 50), tr, "http://a.test/"); err != nil {
					t.Error(err)
				}
			}
			if d := time.Since(start); d > time.Hour {
				t.Errorf("window of %s s: three calls took %v", window, d)
			}
		}
	})
}

// Where a policy is advertised and never what remains, calls go at once within it, instead of waiting for its window.
func TestPolicyAloneStopsNobody(t *testing.T) {
	for policy, most := range map[string]time.Duration{`"a";q=100;w=60`: 26 * time.Second /* what goes at once is missing at the window's end */, `"a";q=100;w=1`: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			tr := &throttle.Transport{Base: roundTrip(func(req *http.Request) (*http.Response, error) {
				time.Sleep(10 * time.Millisecond)
				return answer(req, 200, "Ratelimit-Policy", policy), nil
			})}
			begun := time.Now()
			defer func() {
				if d := time.Since(begun); d > 20*(18*time.Second+3*time.Second) {
					t.Errorf("%s: 600 calls took %v, want 7m at most, as if evenly spaced", policy, d)
				} else {
					t.Log(d)
				}
			}()
			for range 20 {
				start := time.Now()
				for range 30 {
					if _, err := get(t.Context(), tr, "http://a.test/"); err != nil {
						t.Fatal(err)
					}
				}
				if d := time.Since(start); d > most {
					t.Errorf("%s: thirty calls took %v, want at most %v", policy, d, most)
				}
				time.Sleep(3 * time.Second)
			}
		})
	}
}

// A limit that estimates a sliding window by two counters says less than own starts in the last window explain, because a
// burst weighs on for two windows. It is not taken for other clients.
func TestEstimateByTwoCounters(t *testing.T) {
	for _, c := range []struct {
		n    int
		per  time.Duration
		trip trip
		used float64
	}{
		{60, time.Second, shortTrip, 0.9}, {100, 2 * time.Second, advertisedTrip, 0.9},
		{1000, 10 * time.Second, wildTrip, 0.97}, {300, time.Minute, advertisedTrip, 0.97},
	} {
		t.Run(fmt.Sprintf("%d per %v", c.n, c.per), func(t *testing.T) {
			if c.n > 100 {
				race.Long(t)
			}
			overSeeds(t, 1, func(t *testing.T, seed uint64) result {
				s := newSim(c.trip, seed, throttletest.Limit{Kind: throttletest.SlidingCounter, N: c.n, Per: c.per, Phase: c.per / 3})
				s.Advertise.Dialect, s.RetryAfter = throttletest.Draft08, throttletest.Exact
				from, d := 2*c.per, max(30*time.Second, 5*c.per) // the first window has to be seen
				s.run(t, from+d, simWorkers, s.client(0))
				return s.result(from, from+d)
			}).want(t, c.used, 0.01)
		})
	}
}

// An estimate that only every third answer advertises is waited for as well: calls whose answers have said nothing of it
// count.
func TestEstimateThatIsSeldomSaid(t *testing.T) {
	for _, workers := range []int{1, 4, 16} {
		overSeeds(t, race.Pick(2, 5), func(t *testing.T, seed uint64) result {
			s := newSim(shortTrip, seed, throttletest.Limit{Kind: throttletest.SlidingCounter, N: 10, Phase: time.Second / 3})
			s.Advertise.Dialect, s.Advertise.Every, s.RetryAfter = throttletest.Draft08, 3, throttletest.Exact
			s.run(t, time.Minute, workers, s.client(0))
			return s.result(0, time.Minute)
		}).want(t, 0.74, 0.033)
	}
}

// Calls that follow each other more closely than own starts are remembered apart are counted once each: a limit of our
// own below an advertised one is all that holds them.
func TestManyCallsBelowAQuota(t *testing.T) {
	for _, perSecond := range []float64{1200, 3000} {
		u := &randomUpstream{limit: throttletest.Limit{Kind: throttletest.Sliding, N: 4000, Per: time.Second}, kind: "sliding", rate: 4000,
			way: throttletest.Span{Min: 10 * time.Millisecond}, advert: "always", dialect: "draft-08", own: "below", ownRate: perSecond,
			workers: 64, until: race.Pick(time.Second, 5*time.Second), calls: 1 << 30}
		if v := u.run(t, u.ours); v.share < 0.99 || v.refused > 0 {
			t.Errorf("%v/s below 4,000 advertised: %v", perSecond, v)
		}
	}
}
