package throttle_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
)

// upstream is a Base that keeps net/http's law: it closes the request's body. It notes when each
// attempt arrived, since the upstream was made.
type upstream struct {
	answer func(n int, req *http.Request) (*http.Response, error) // n counts attempts from 1
	trip   time.Duration
	start  time.Time

	mu   sync.Mutex
	sent []time.Duration
}

func (u *upstream) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		io.Copy(io.Discard, req.Body)
		req.Body.Close()
	}
	u.mu.Lock()
	u.sent = append(u.sent, time.Since(u.start))
	n := len(u.sent)
	u.mu.Unlock()
	if u.trip > 0 {
		select {
		case <-time.After(u.trip):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	return u.answer(n, req)
}

func (u *upstream) now() time.Duration { return time.Since(u.start) }

func (u *upstream) times() []time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.sent)
}

// between counts the attempts in [from, to).
func (u *upstream) between(from, to time.Duration) (n int) {
	for _, at := range u.times() {
		if from <= at && at < to {
			n++
		}
	}
	return n
}

func newUpstream(trip time.Duration, answer func(n int, req *http.Request) (*http.Response, error)) *upstream {
	return &upstream{answer: answer, trip: trip, start: time.Now()}
}

// reply makes an answer; kv are header fields.
func reply(req *http.Request, code int, kv ...string) *http.Response {
	const text = "answer"
	resp := &http.Response{
		StatusCode: code, Status: fmt.Sprint(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Request: req, ContentLength: int64(len(text)), Body: io.NopCloser(strings.NewReader(text)),
	}
	for i := 0; i < len(kv); i += 2 {
		resp.Header.Add(kv[i], kv[i+1])
	}
	return resp
}

// always answers everything with code.
func always(code int, kv ...string) func(int, *http.Request) (*http.Response, error) {
	return func(_ int, req *http.Request) (*http.Response, error) { return reply(req, code, kv...), nil }
}

// script answers the n-th attempt with the n-th code, and with the last one ever after.
func script(codes ...int) func(int, *http.Request) (*http.Response, error) {
	return func(n int, req *http.Request) (*http.Response, error) {
		return reply(req, codes[min(n, len(codes))-1]), nil
	}
}

func request(ctx context.Context, method, url string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		panic(err)
	}
	return req
}

// status sends one GET, closes the answer and returns its code, 0 if there is none.
func status(tr *throttle.Transport, ctx context.Context, url string) (int, error) {
	resp, err := tr.RoundTrip(request(ctx, "GET", url))
	if err != nil {
		return 0, err
	}
	resp.Body.Close()
	return resp.StatusCode, nil
}

// keyStats returns what Stats tells of key.
func keyStats(tr *throttle.Transport, key string) (throttle.QueueStats, bool) {
	for s := range tr.Stats() {
		if s.Key == key {
			return s.QueueStats, true
		}
	}
	return throttle.QueueStats{}, false
}

func statsOf(t *testing.T, tr *throttle.Transport) (s throttle.KeyStats) {
	t.Helper()
	n := 0
	for s = range tr.Stats() {
		n++
	}
	if n != 1 {
		t.Fatalf("%d keys", n)
	}
	return s
}

type baseFunc func(*http.Request) (*http.Response, error)

func (f baseFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func answers(code int, kv ...string) baseFunc {
	return func(req *http.Request) (*http.Response, error) { return reply(req, code, kv...), nil }
}

func at(want time.Duration, start time.Time) error {
	if got := time.Since(start); got != want {
		return fmt.Errorf("after %v, want %v", got, want)
	}
	return nil
}

// One refusal stops everyone, for as long as it tells, and what follows is paced.
func TestOne429Among500Callers(t *testing.T) {
	for name, lim := range map[string]func() throttle.Limiter{
		"limit known": func() throttle.Limiter { return throttle.NewBucket(100, 10) },
		"leaky":       func() throttle.Limiter { return throttle.NewLeaky(100) },
		"no limit":    func() throttle.Limiter { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const trip = 20 * time.Millisecond
				var throttledAt atomic.Int64
				var throttled atomic.Int32
				var up *upstream
				up = newUpstream(trip, func(n int, req *http.Request) (*http.Response, error) {
					if n == 20 {
						throttledAt.Store(int64(up.now()))
					}
					// The event lasts until 1 ms after the first 429: those in flight meet it too.
					if since := throttledAt.Load(); since > 0 && int64(up.now()) <= since+int64(time.Millisecond) {
						throttled.Add(1)
						return reply(req, 429, "Retry-After", "5"), nil
					}
					return reply(req, 200), nil
				})
				tr := &throttle.Transport{Base: up, Limiter: lim()}
				var ok atomic.Int32
				var flying, most atomic.Int32
				var wg sync.WaitGroup
				for range 500 {
					wg.Go(func() {
						most.Store(max(most.Load(), flying.Add(1)))
						code, err := status(tr, t.Context(), "http://x/")
						flying.Add(-1)
						if code == 200 && err == nil {
							ok.Add(1)
						} else {
							t.Error(code, err)
						}
					})
				}
				wg.Wait()
				at := time.Duration(throttledAt.Load())
				if at == 0 {
					t.Fatal("no 429")
				}
				if n := up.between(at+1, at+5*time.Second); n != 0 {
					t.Errorf("%d attempts in the 5 s after the 429, want 0", n)
				}
				var inFlight int
				if name == "no limit" {
					inFlight = 500
				} else {
					inFlight = up.between(at-trip, at+1)
				}
				if n := int(throttled.Load()); n > inFlight {
					t.Errorf("%d throttled, %d were in flight", n, inFlight)
				}
				if ok.Load() != 500 {
					t.Errorf("%d of 500 succeeded", ok.Load())
				}
				if name == "no limit" {
					return
				}
				var first time.Duration
				for _, s := range up.times() {
					if s > at {
						first = s
						break
					}
				}
				if first > at+5*time.Second+time.Second {
					t.Errorf("first attempt %v after the 429, want 5 s and at most 250 ms of jitter", first-at)
				}
				if n := up.between(first, first+time.Second); n > 100 || n < 99 {
					t.Errorf("%d attempts in the first second, want the limit of 100", n)
				}
				if n := up.between(first, first+100*time.Millisecond); n > 11 {
					t.Errorf("%d attempts in the first 100 ms: a burst at the reopening", n)
				}
			})
		})
	}
}

// willing is a limiter of somebody else's: it always says yes, and nobody knows its rate.
type willing struct{}

func (willing) Take(context.Context, int) (time.Duration, error) { return 0, nil }

// A quota for a day has a long-run rate of one call in seconds. It must not become the pace.
func TestADaysQuotaDoesNotSlowTheReopening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, func(n int, req *http.Request) (*http.Response, error) {
			if n == 3 {
				return reply(req, 429), nil
			}
			return reply(req, 200), nil
		})
		tr := &throttle.Transport{Base: up, Limiter: throttle.All(throttle.NewBucket(10, 1), throttle.NewSlidingWindow(10_000, 24*time.Hour))}
		for range 50 {
			resp, err := tr.RoundTrip(request(t.Context(), "GET", "http://a.test/"))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		if took := up.now(); took > 5200*time.Millisecond {
			t.Errorf("50 calls at 10/s took %v", took)
		}
	})
}

// Where the rate is not known the reopening starts with one call, and each success lets one more be in
// flight.
func TestReopeningWithoutARateGrowsByOneForEachSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(time.Second, func(n int, req *http.Request) (*http.Response, error) {
			if n <= 100 {
				return reply(req, 503, "Retry-After", "5"), nil
			}
			return reply(req, 200), nil
		})
		tr := &throttle.Transport{Base: up, Limiter: willing{}}
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if code, err := status(tr, t.Context(), "http://x/"); code != 200 {
					t.Error(code, err)
				}
			})
		}
		wg.Wait()
		sent := up.times()[100:]
		if sent[0] < 6*time.Second || sent[0] > 6*time.Second+250*time.Millisecond {
			t.Fatalf("reopened at %v, want 5 s after the 503s at 1 s, and at most 250 ms of jitter", sent[0])
		}
		// One event, so one closing: rounds of 1, 2, 4, ... calls follow each other.
		var rounds []int
		for i, s := range sent {
			if i == 0 || s != sent[i-1] {
				rounds = append(rounds, 0)
			}
			rounds[len(rounds)-1]++
		}
		if want := []int{1, 2, 4, 8, 16, 32, 37}; !slices.Equal(rounds, want) {
			t.Errorf("rounds of %v, want %v", rounds, want)
		}
		if s, _ := keyStats(tr, "x"); s.Throttled != 100 || s.Sent != 200 || s.Retried != 100 || s.InFlight != 0 || s.Waiting != 0 {
			t.Errorf("Stats: %+v", s)
		}
	})
}

// A hundred 429s of one event are one closing: the later ones extend it, no more.
func TestHundred429sAreOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, func(n int, req *http.Request) (*http.Response, error) {
			if n <= 100 { // they come back over 1 s, each with a Retry-After of 5 s
				time.Sleep(time.Duration(n) * 10 * time.Millisecond)
				return reply(req, 429, "Retry-After", "5"), nil
			}
			return reply(req, 200), nil
		})
		tr := &throttle.Transport{Base: up, Limiter: throttle.NewBucket(100, 100)}
		var wg sync.WaitGroup
		for range 300 {
			wg.Go(func() {
				if code, err := status(tr, t.Context(), "http://x/"); code != 200 {
					t.Error(code, err)
				}
			})
		}
		wg.Wait()
		// The last of the first hundred comes back at 1 s; it asks for nothing before 6 s.
		if n := up.between(11*time.Millisecond, 6*time.Second); n > 0 {
			t.Errorf("%d attempts before 6 s: %v", n, up.times()[98:110])
		}
		if n := up.between(6*time.Second, 6*time.Second+260*time.Millisecond); n == 0 {
			t.Error("not reopened by 6.26 s: stale answers must not add up")
		}
	})
}

// The same where no 429 names a time: the gate closes for one unit's time, once, and all others go on while
// the rest of the 429s come in.
func TestHundred429sWithoutATimeAreOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, func(n int, req *http.Request) (*http.Response, error) {
			if n <= 100 {
				time.Sleep(time.Duration(n) * 10 * time.Millisecond)
				return reply(req, 429), nil
			}
			return reply(req, 200), nil
		})
		tr := &throttle.Transport{Base: up, Limiter: throttle.NewBucket(100, 100)}
		var wg sync.WaitGroup
		for range 300 {
			wg.Go(func() {
				if code, err := status(tr, t.Context(), "http://x/"); code != 200 {
					t.Error(code, err)
				}
			})
		}
		wg.Wait()
		if n := up.between(20*time.Millisecond, time.Second); n < 95 {
			t.Errorf("%d attempts in the first second, want the limit of 100", n)
		}
		if took := up.now(); took > 3100*time.Millisecond {
			t.Errorf("200 calls and 100 retries at 100/s took %v", took)
		}
	})
}

// outage sends 60 calls a second for 60 s by 200 senders through an upstream that is down from 5 s on.
type outage struct {
	length time.Duration
	down   func(req *http.Request) (*http.Response, error)
	method string
	retry  throttle.Retry
}

func (o outage) run(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 100
		end := 5*time.Second + o.length
		up := newUpstream(0, nil)
		var firstBack time.Duration
		up.answer = func(n int, req *http.Request) (*http.Response, error) {
			now := up.now()
			time.Sleep(20 * time.Millisecond)
			if 5*time.Second <= now && now < end {
				return o.down(req)
			}
			return reply(req, 200), nil
		}
		tr := &throttle.Transport{Base: up, Limiter: throttle.NewBucket(limit, 1), Retry: o.retry}
		work := make(chan int, 3600)
		var delivered [3600]bool
		var wg sync.WaitGroup
		var caughtUp time.Duration
		for range 200 {
			wg.Go(func() {
				for i := range work {
					req := request(t.Context(), o.method, "http://x/")
					if o.method == "POST" {
						req.Header.Set("Idempotency-Key", fmt.Sprint(i))
						req.Body, req.GetBody = io.NopCloser(strings.NewReader("x")), func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil }
					}
					resp, err := tr.RoundTrip(req)
					if err != nil || resp.StatusCode != 200 {
						t.Errorf("call %d at %v: %v %v", i, up.now(), resp, err)
						continue
					}
					resp.Body.Close()
					delivered[i] = true
				}
			})
		}
		for i := range 3600 {
			time.Sleep(time.Duration(i)*time.Second/60 - up.now())
			work <- i
		}
		close(work)
		wg.Wait()
		for i, ok := range delivered {
			if !ok {
				t.Errorf("call %d is lost", i)
				break
			}
		}
		if n := len(up.times()); float64(n) > 1.05*3600 {
			t.Errorf("%d attempts for 3600 calls: %.3f a call, want at most 1.05", n, float64(n)/3600)
		}
		sent := up.times()
		for _, s := range sent {
			if s >= end {
				firstBack = s
				break
			}
		}
		if n := up.between(firstBack, firstBack+time.Second); n > limit {
			t.Errorf("%d attempts in the first second after the return, the limit is %d", n, limit)
		}
		// Ideal: what has arrived but not gone by the end of the outage goes at 100/s while 60/s arrive.
		arrived := min(3600, int(60*end.Seconds()))
		before := up.between(0, 5*time.Second)
		ideal := time.Duration(float64(arrived-before) / float64(limit-60) * float64(time.Second))
		if end+ideal > 60*time.Second { // arrivals end before the backlog does
			ideal = max(60*time.Second, end+time.Duration(float64(3600-before)/limit*float64(time.Second))) - end
		}
		// Caught up: the first moment at which a call went with nobody waiting, that is, 100/s no longer needed.
		gone := 0
		for _, s := range sent {
			if s < 5*time.Second || s >= end {
				gone++
			}
			if s > end && gone >= min(3600, int(60*s.Seconds())) {
				caughtUp = s
				break
			}
		}
		if caughtUp == 0 {
			caughtUp = sent[len(sent)-1]
		}
		late := 100 * time.Millisecond
		if o.length < 10*time.Second { // probes are at least 250 ms apart, which is much of so short an outage
			late = 250 * time.Millisecond * limit / (limit - 60)
		}
		if took := caughtUp - end; took > time.Duration(1.05*float64(ideal))+late {
			t.Errorf("backlog drained in %v, ideal %v (back at %v)", took, ideal, firstBack-end)
		}
	})
}

func TestOutage(t *testing.T) {
	unavailable := func(req *http.Request) (*http.Response, error) { return reply(req, 503), nil }
	reset := func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }
	overloaded := func(req *http.Request) (*http.Response, error) { return reply(req, 529), nil }
	patient := throttle.Retry{MaxPause: -1}
	runs := race.Pick(1, 5) // the jitter differs
	for _, c := range []struct {
		name string
		o    outage
	}{
		{"30 s", outage{30 * time.Second, unavailable, "GET", throttle.Retry{}}},
		{"5 s", outage{5 * time.Second, unavailable, "GET", throttle.Retry{}}},
		{"10 s", outage{10 * time.Second, unavailable, "GET", throttle.Retry{}}},
		{"60 s", outage{60 * time.Second, unavailable, "GET", patient}},
		{"529", outage{30 * time.Second, overloaded, "GET", throttle.Retry{}}},
		{"529 to a POST", outage{30 * time.Second, overloaded, "POST", throttle.Retry{}}},
		{"connection errors", outage{30 * time.Second, reset, "GET", throttle.Retry{}}},
		{"POST with Idempotency-Key", outage{30 * time.Second, unavailable, "POST", throttle.Retry{}}},
	} {
		for run := range runs {
			t.Run(fmt.Sprint(c.name, "/", run), c.o.run)
		}
	}
}

// An upstream that nothing is known of, and that does not answer, holds others up for a second.
func TestFirstContactWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		tr := &throttle.Transport{Base: baseFunc(func(req *http.Request) (*http.Response, error) {
			sent.Add(1)
			time.Sleep(10 * time.Second)
			return reply(req, 200), nil
		})}
		for range 20 {
			go status(tr, t.Context(), "http://a.test/")
		}
		time.Sleep(time.Second - 1)
		synctest.Wait()
		if n := sent.Load(); n != 4 {
			t.Errorf("%d sent before the first answer", n)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if n := sent.Load(); n != 20 {
			t.Errorf("%d sent after a second", n)
		}
		time.Sleep(time.Minute)
	})
}

// Calls that wait for one quota are not ahead of those that fall under another: a deadline that the other
// allows is no reason to refuse.
func TestSpentQuotaHoldsUpNoOtherRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tr := &throttle.Transport{Retry: throttle.Retry{MaxPause: -1}, Base: baseFunc(func(req *http.Request) (*http.Response, error) {
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

func TestResumeOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, nil)
		up.answer = func(n int, req *http.Request) (*http.Response, error) {
			if n == 1 {
				return reply(req, 429, "Retry-After", "30"), nil
			}
			return reply(req, 200), nil
		}
		tr := &throttle.Transport{Base: up, Limiter: throttle.NewBucket(10, 10)}
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				if code, err := status(tr, t.Context(), "http://x/"); code != 200 {
					t.Error(i, code, err)
				}
			})
			synctest.Wait()
		}
		time.Sleep(10*time.Second - time.Since(start))
		s, _ := keyStats(tr, "x")
		if s.Reason != "gate:retry-after" || s.ClosedFor < 20*time.Second || s.ClosedFor > 21*time.Second || s.Waiting != 3 || s.InFlight != 0 || s.Throttled != 1 || s.Limit != 10 {
			t.Errorf("Stats: %+v", s)
		}
		tr.Resume("y")
		tr.Resume("x")
		wg.Wait()
		if got, want := up.times()[1:], []time.Duration{10 * time.Second, 10*time.Second + 100*time.Millisecond, 10*time.Second + 200*time.Millisecond}; !slices.Equal(got, want) {
			t.Errorf("sent at %v, want %v", got, want)
		}
		tr.Resume("x") // of an open gate: nothing
		if s, _ := keyStats(tr, "x"); s.ClosedFor != 0 || s.Waiting != 0 || s.Sent != 4 {
			t.Errorf("Stats: %+v", s)
		}
	})
}

// calls sends one call to each host, each from a goroutine of its own, and notes when it was answered or failed.
type calls struct {
	wg    sync.WaitGroup
	start time.Time
	mu    sync.Mutex
	went  map[string]time.Duration
	errs  map[string]error
}

func (c *calls) send(ctx context.Context, tr *throttle.Transport, hosts ...string) {
	if c.went == nil {
		c.start, c.went, c.errs = time.Now(), map[string]time.Duration{}, map[string]error{}
	}
	for _, host := range hosts {
		c.wg.Go(func() {
			code, err := status(tr, ctx, "http://"+host+"/")
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.went[host], c.errs[host] = time.Since(c.start), err; err == nil && code != 200 {
				c.errs[host] = fmt.Errorf("status %d", code)
			}
		})
	}
	synctest.Wait()
}

// at is when the latest call to host that has ended did, and with which error.
func (c *calls) at(host string) (time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.went[host], c.errs[host]
}

// check fails unless the call to each of hosts was answered with 200 at that moment.
func (c *calls) check(t *testing.T, want time.Duration, hosts ...string) {
	t.Helper()
	for _, host := range hosts {
		if got, err := c.at(host); got != want || err != nil {
			t.Errorf("%s: at %v, %v, want %v", host, got, err, want)
		}
	}
}

// The operator pauses one key, whether it is there yet or not. Others are not held up, and MaxPause is for what the
// upstream causes.
func TestPauseOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{Base: newUpstream(0, always(200)), LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(10, 10) }}
		tr.Pause("new", 10*time.Minute)
		tr.Pause("new", time.Second) // ends sooner: nothing
		tr.Pause("old", 0)
		tr.Pause("old", -time.Second)
		if n := keys(tr); n != 1 {
			t.Errorf("%d keys, want the one that is paused", n)
		}
		var c calls
		c.send(t.Context(), tr, "old", "new")
		tr.Pause("old", math.MaxInt64)
		c.send(t.Context(), tr, "old")
		s, _ := keyStats(tr, "new")
		if s.Reason != "gate:paused" || s.ClosedFor != 10*time.Minute || s.Waiting != 1 {
			t.Errorf("Stats: %+v", s)
		}
		if s, _ = keyStats(tr, "old"); s.Reason != "gate:paused" || s.Waiting != 1 || s.Sent != 1 {
			t.Errorf("Stats: %+v", s)
		}
		time.Sleep(20 * time.Minute)
		tr.Resume("old")
		c.wg.Wait()
		c.check(t, 10*time.Minute, "new")
		c.check(t, 20*time.Minute, "old")
	})
}

// With the key "" all are paused, those made later too, and a key that is resumed stays so although it is dropped
// and made again.
func TestPauseOfAllKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{Base: newUpstream(0, always(200)), Limiter: throttle.NewBucket(1000, 100)}
		var c calls
		c.send(t.Context(), tr, "used", "urgent")
		tr.Pause("", time.Hour)
		c.send(t.Context(), tr, "used", "urgent", "later")
		for s := range tr.Stats() {
			if s.Reason != "gate:paused" || s.ClosedFor != time.Hour || s.Waiting != 1 {
				t.Errorf("Stats: %+v", s)
			}
		}
		tr.Resume("urgent")
		tr.Resume("unborn")
		synctest.Wait()
		c.check(t, 0, "urgent", "used")
		time.Sleep(30 * time.Minute)
		for i := range 40 { // which drop the key of urgent
			tr.Resume(fmt.Sprint(i))
			c.send(t.Context(), tr, fmt.Sprint(i))
		}
		if _, there := keyStats(tr, "urgent"); there {
			t.Error("an idle key is not dropped")
		}
		c.send(t.Context(), tr, "urgent", "unborn", "latest")
		c.check(t, 30*time.Minute, "urgent", "unborn")
		c.check(t, 0, "used")
		c.wg.Wait()
		for _, host := range []string{"used", "later", "latest"} {
			if at, err := c.at(host); at < time.Hour || at > time.Hour+10*time.Millisecond || err != nil {
				t.Errorf("%s went at %v, want 1h: %v", host, at, err)
			}
		}
		c.send(t.Context(), tr, "new")
		c.check(t, time.Since(c.start), "new") // the pause is over
	})
}

// Resume of "" ends all closings: pauses of one key, of all, and those of the upstream.
func TestResumeOfAllKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, nil)
		up.answer = func(n int, req *http.Request) (*http.Response, error) {
			if n == 1 {
				return reply(req, 429, "Retry-After", "30"), nil
			}
			return reply(req, 200), nil
		}
		tr := &throttle.Transport{Base: up}
		var c calls
		c.send(t.Context(), tr, "throttled")
		tr.Pause("one", time.Hour)
		tr.Pause("", time.Minute)
		tr.Pause("", time.Second)
		c.send(t.Context(), tr, "one", "other")
		time.Sleep(2 * time.Second)
		tr.Resume("")
		c.send(t.Context(), tr, "new")
		c.wg.Wait()
		c.check(t, 2*time.Second, "throttled", "one", "other", "new")
	})
}

// Who may not wait for the end of a pause leaves at once, or comes back at once; what the upstream causes is bounded
// as ever.
func TestPauseAndPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, nil)
		up.answer = func(n int, req *http.Request) (*http.Response, error) {
			if n <= 2 {
				return reply(req, 429, "Retry-After", "50"), nil
			}
			return reply(req, 200), nil
		}
		tr := &throttle.Transport{Base: up, Retry: throttle.Retry{MaxPause: time.Minute}}
		soon, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var c calls
		c.send(t.Context(), tr, "a") // throttled: it waits until 50 s, with jitter up to 51
		time.Sleep(20 * time.Second)
		tr.Pause("a", 10*time.Minute)
		c.send(soon, tr, "a")
		tr.Pause("a", 2*time.Hour)
		synctest.Wait()
		if at, err := c.at("a"); !errors.Is(err, throttle.ErrWaitTooLong) || at != 20*time.Second {
			t.Errorf("a call with a deadline in 1h and a pause of 2h: %v at %v", err, at)
		}
		if _, err := status(tr, throttle.WithMaxWait(t.Context(), time.Hour), "http://a/"); !errors.Is(err, throttle.ErrWaitTooLong) {
			t.Error("a call that may wait for 1h:", err)
		}
		c.wg.Wait() // after the pause it is throttled again, and 20 s before the pause and 50 s are more than MaxPause
		if at, err := c.at("a"); err == nil || err.Error() != "status 429" || at != 2*time.Hour+20*time.Second {
			t.Errorf("%v at %v, want the second 429 after 2h20s", err, at)
		}
	})
}

// Resume lets calls go also where a advertised quota, or the search for a limit, holds them back.
func TestResumeLetsALearnedLimitBeAskedAgain(t *testing.T) {
	for name, header := range map[string][]string{
		"advertised pause": {"Retry-After", "3600"},
		"spent quota":      {"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "3600"},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			tr := &throttle.Transport{Retry: throttle.Retry{MaxAttempts: 1, MaxPause: -1}, Base: baseFunc(func(req *http.Request) (*http.Response, error) {
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

func TestStatsStopsWhenAskedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{Base: newUpstream(0, always(200))}
		for range tr.Stats() {
			t.Error("a key before the first request")
		}
		for i := range 5 {
			status(tr, t.Context(), fmt.Sprintf("http://h%d/", i))
		}
		n := 0
		for range tr.Stats() {
			if n++; n == 2 {
				break
			}
		}
		if n != 2 {
			t.Error(n)
		}
		bad := &throttle.Transport{Retry: throttle.Retry{Budget: throttle.Budget{Max: -1}}}
		bad.Pause("x", time.Hour)
		bad.Resume("x")
		for range bad.Stats() {
			t.Error("a key of a Transport that cannot work")
		}
	})
}

func TestStatsAsJSON(t *testing.T) {
	tr := &throttle.Transport{Base: baseFunc(func(req *http.Request) (*http.Response, error) {
		resp := reply(req, 200)
		resp.Header.Set("RateLimit", `"a";r=10;t=1`)
		return resp, nil
	})}
	status(tr, t.Context(), "http://a.test/")
	for s := range tr.Stats() {
		if b, err := json.Marshal(s); err != nil {
			t.Errorf("%s %v", b, err)
		}
	}
}

// limited is a Transport whose keys have 2/s with a burst of 4 and 50 tokens a second with a burst of 500, and share 100 a minute.
// Each call holds 100 tokens.
func limited(code int) *throttle.Transport {
	return &throttle.Transport{
		Base: answers(code), Limiter: throttle.NewFixedWindow(100, time.Minute),
		LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(2, 4) },
		Meters: func(string) []throttle.Meter {
			return []throttle.Meter{{Name: "tokens", Limiter: throttle.NewBucket(50, 500), Hold: func(*http.Request) int { return 100 }}}
		},
	}
}

// Explain says what the first call waits for, until when, since when the oldest has waited, and how full each limit is.
func TestExplain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := limited(200)
		if s, ok := tr.Explain("a.test"); ok || s.Key != "" {
			t.Errorf("before the first call: %+v", s)
		}
		var calls sync.WaitGroup
		for range 5 {
			calls.Go(func() { status(tr, t.Context(), "http://a.test/") })
		}
		status(tr, t.Context(), "http://b.test/")
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		s, ok := tr.Explain("a.test")
		if now := time.Now(); !ok || s.Waiting != 1 || s.Reason != "limit" || s.Until.Sub(now) != 400*time.Millisecond || now.Sub(s.Oldest) != 100*time.Millisecond {
			t.Errorf("%v %+v", ok, s)
		}
		want := []throttle.LimitStats{
			{Reason: "limit", Limit: 2, Size: 4, Available: 0.2, Taken: 4},
			{Reason: "limit:shared", Limit: 100. / 60, Size: 100, Window: time.Minute, Available: 95, Taken: 5},
			{Reason: "meter:tokens", Limit: 50, Size: 500, Available: 105, Taken: 400},
		}
		if got := rounded(s.Limits); !slices.Equal(got, rounded(want)) {
			t.Errorf("the limits are\n%+v, want\n%+v", got, want)
		}
		calls.Wait()
	})
}

// rounded makes floats that were added up equal to those that were written down.
func rounded(all []throttle.LimitStats) []throttle.LimitStats {
	all = slices.Clone(all)
	for i := range all {
		for _, x := range []*float64{&all[i].Available, (*float64)(&all[i].Limit)} {
			*x = math.Round(*x*1e6) / 1e6
		}
	}
	return all
}

// Two looks show how much of a limit calls take: a call each second of 5 units is a quarter of 20/s, and one of two keys takes half of
// what both share.
func TestUtilization(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{
			Base: answers(200), Limiter: throttle.NewBucket(20, 20),
			LimiterFor: func(string) throttle.Limiter {
				return throttle.All(throttle.NewBucket(20, 20), throttle.NewLeaky(50), throttle.NewFixedWindow(200, time.Hour))
			},
			Cost: func(*http.Request) int { return 5 },
		}
		var before throttle.KeyStats
		for second := range 30 {
			if second%10 == 0 {
				before, _ = tr.Explain("a")
			}
			status(tr, t.Context(), "http://a/")
			status(tr, t.Context(), "http://b/")
			time.Sleep(time.Second)
		}
		now, _ := tr.Explain("a")
		var got []string
		for i, l := range now.Limits {
			got = append(got, fmt.Sprintf("%.2f", l.Utilization(before.Limits[i].Taken, 10*time.Second)))
		}
		if want := []string{"0.75", "0.25", "0.10", "0.50"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if l := now.Limits[1]; l.Utilization(l.Taken, time.Second) != 0 || l.Utilization(0, 0) != 0 || l.Utilization(l.Taken+1, time.Second) != 0 {
			t.Errorf("%+v: nothing was taken since", l)
		}
	})
}

// Totals count what keys have done that were dropped.
func TestTotals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hosts = 200
		var sent atomic.Uint64
		tr := &throttle.Transport{Base: baseFunc(func(req *http.Request) (*http.Response, error) {
			if sent.Add(1); req.URL.Path == "/429" && throttle.Attempt(req.Context()) < 2 {
				return reply(req, 429, "Retry-After", "1"), nil
			}
			return reply(req, 200), nil
		}), Limiter: throttle.NewBucket(10, 10)}
		for i := range hosts {
			status(tr, t.Context(), fmt.Sprintf("http://h%d/429", i))
		}
		time.Sleep(time.Second)
		late, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		var calls sync.WaitGroup
		for range 12 {
			calls.Go(func() { status(tr, late, "http://h0/") }) // two of them come too late
		}
		calls.Wait()
		time.Sleep(time.Hour)
		for range 4000 {
			status(tr, t.Context(), "http://h0/")
		}
		var kept throttle.QueueStats
		n := 0
		for s := range tr.Stats() {
			n, kept.Sent, kept.Refused = n+1, kept.Sent+s.Sent, kept.Refused+s.Refused
		}
		all := tr.Totals()
		if n > hosts/2 || kept.Sent >= all.Sent {
			t.Errorf("%d keys are left, with %d of %d attempts", n, kept.Sent, all.Sent)
		}
		if all.Sent != sent.Load() || all.Throttled != hosts || all.Retried != hosts || all.Refused != 2 || all.Limit != 10 || all.Waiting+all.InFlight != 0 {
			t.Errorf("%d were sent, and the totals are %+v", sent.Load(), all)
		}
		tr.Pause("", time.Minute)
		for range 2 {
			calls.Go(func() { status(tr, t.Context(), "http://new/") })
		}
		synctest.Wait()
		start := time.Now()
		time.Sleep(time.Second)
		if all = tr.Totals(); all.Waiting != 2 || all.Reason != "gate:paused" || all.ClosedFor != 59*time.Second || !all.Oldest.Equal(start) {
			t.Errorf("paused: %+v", all)
		}
		calls.Wait()
	})
}

// The zero Transport has no limit and obeys what it is advertised.
func TestZeroTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, nil)
		up.answer = func(n int, req *http.Request) (*http.Response, error) {
			if n == 1 {
				return reply(req, 503, "Retry-After", up.start.Add(10*time.Second).UTC().Format(http.TimeFormat)), nil
			}
			return reply(req, 200), nil
		}
		tr := &throttle.Transport{Base: up}
		if code, err := status(tr, t.Context(), "http://x/"); code != 200 || err != nil {
			t.Fatal(code, err)
		}
		if got := up.times()[1]; got < 10*time.Second || got > 12*time.Second {
			t.Errorf("sent again after %v", got)
		}
		defer func(before http.RoundTripper) { http.DefaultTransport = before }(http.DefaultTransport)
		http.DefaultTransport = newUpstream(0, always(204))
		if code, err := status(&throttle.Transport{}, t.Context(), "http://x/"); code != 204 || err != nil {
			t.Error("nil Base is not http.DefaultTransport:", code, err)
		}
	})
}

// A call that a Transport below turns away is not a failure of the upstream.
func TestTransportOverTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := &throttle.Transport{
			Base: answers(200), Limiter: throttle.NewBucket(0.01, 1), Queue: throttle.QueueOptions{MaxWait: time.Second},
		}
		tr := &throttle.Transport{Base: below}
		start := time.Now()
		for i := range 20 {
			if _, err := status(tr, t.Context(), "http://a.test/"); i > 0 != errors.Is(err, throttle.ErrWaitTooLong) {
				t.Error(err)
			}
		}
		if s := statsOf(t, tr); s.Retried > 0 || s.Reason != "" || time.Since(start) > 0 {
			t.Errorf("after %v: %+v", time.Since(start), s)
		}
	})
}

type closesIdle struct {
	http.RoundTripper
	closed int
}

func (c *closesIdle) CloseIdleConnections() { c.closed++ }

func TestCloseIdleConnections(t *testing.T) {
	base := &closesIdle{}
	(&http.Client{Transport: &throttle.Transport{Base: base}}).CloseIdleConnections()
	if base.closed != 1 {
		t.Error(base.closed)
	}
	(&throttle.Transport{Base: newUpstream(0, nil)}).CloseIdleConnections() // has none
}

// Errors that name the field and the value, from every request and before anything is sent.
func TestBadFields(t *testing.T) {
	for want, tr := range map[string]*throttle.Transport{
		"QueueOptions.MaxWaiting is -1":  {Queue: throttle.QueueOptions{MaxWaiting: -1}},
		"QueueOptions.MaxWait is -1s":    {Queue: throttle.QueueOptions{MaxWait: -time.Second}},
		"QueueOptions.MaxInFlight is -3": {Queue: throttle.QueueOptions{MaxInFlight: -3}},
		"Budget.PerCall is NaN":          {Retry: throttle.Retry{Budget: throttle.Budget{PerCall: math.NaN()}}},
		"Budget.PerCall is +Inf":         {Retry: throttle.Retry{Budget: throttle.Budget{PerCall: math.Inf(1)}}},
		"Budget.Max is -1":               {Retry: throttle.Retry{Budget: throttle.Budget{Max: -1}}},
		"Budget.Max is NaN":              {Retry: throttle.Retry{Budget: throttle.Budget{Max: math.NaN()}}},
		"Budget.Max is +Inf":             {Retry: throttle.Retry{Budget: throttle.Budget{Max: math.Inf(1)}}},
		"Transport.WindowFactor is -1":   {WindowFactor: -1},
		"Transport.WindowFactor is NaN":  {WindowFactor: math.NaN()},
		"cost -4 is negative":            {Cost: func(*http.Request) int { return -4 }},
		"-1s":                            {Limiter: bare{wait: -time.Second}},
		"-1ms":                           {LimiterFor: func(string) throttle.Limiter { return bare{wait: -time.Millisecond} }},
		"test limiter":                   {LimiterFor: func(string) throttle.Limiter { return bare{err: errors.New("test limiter")} }},
		"the limit is 0":                 {Limiter: throttle.NewBucket(0, 1)},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(0, always(200))
			tr.Base = up
			if want == "cost -4 is negative" {
				tr.Limiter = throttle.NewBucket(1, 1)
			}
			if want == "the limit is 0" {
				tr.Limiter = throttle.NewBucket(0, 1)
				tr.Cost = func(*http.Request) int { return 2 }
			}
			for range 2 {
				b := &bodies{}
				_, err := tr.RoundTrip(b.request(t.Context(), "PUT"))
				if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "throttle: ") {
					t.Errorf("%v, want …%s…", err, want)
				}
				if b.made[0].closed.Load() != 1 {
					t.Error("body not closed")
				}
			}
			if len(up.times()) != 0 {
				t.Error("it was sent")
			}
		})
	}
	tr := &throttle.Transport{Queue: throttle.QueueOptions{MaxWaiting: -1}, Retry: throttle.Retry{Budget: throttle.Budget{Max: -1}}}
	_, err := status(tr, t.Context(), "http://x/")
	if !strings.Contains(err.Error(), "MaxWaiting") || !strings.Contains(err.Error(), "Budget.Max") {
		t.Error("not all that is wrong is named:", err)
	}
	tr = &throttle.Transport{Base: newUpstream(0, nil), Cost: func(*http.Request) int { return -1 }}
	if _, err := status(tr, t.Context(), "http://x/"); err == nil || !strings.Contains(err.Error(), "-1") {
		t.Error("negative cost without a limiter:", err)
	}
}

type stubBase struct{ resp *http.Response }

func (s *stubBase) RoundTrip(*http.Request) (*http.Response, error) { return s.resp, nil }

// AllocsPerRun rounds down, and only one attempt in 16 is measured. So a run is many calls: one
// allocation in the path of a measured attempt shows.
func TestRoundTripDoesNotAllocate(t *testing.T) {
	const calls = 64
	stub := &stubBase{&http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}}
	for name, tr := range map[string]*throttle.Transport{
		"zero":          {},
		"limiter":       {Limiter: throttle.NewBucket(1e9, 1e6)},
		"key's limiter": {LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(1e9, 1e6) }},
		"both":          {Limiter: throttle.NewLeaky(1e9), LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(1e9, 1e6) }},
		"queue":         {Limiter: throttle.NewBucket(1e9, 1e6), Queue: throttle.QueueOptions{MaxWaiting: 100, MaxWait: time.Second}},
		"two meters": {Meters: func(string) []throttle.Meter {
			return []throttle.Meter{{Name: "requests", Limiter: throttle.NewBucket(1e9, 1e6)}, {Name: "tokens", Limiter: throttle.NewBucket(1e9, 1e6)}}
		}},
	} {
		tr.Base = stub
		post := request(throttle.WithMaxAttempts(t.Context(), 1), "POST", "http://api.example.com:8443/v1/things") // it is not sent again
		keyed := request(t.Context(), "POST", "http://api.example.com:8443/v1/things")
		keyed.Header.Set("Idempotency-Key", "1")
		for _, req := range []*http.Request{request(t.Context(), "GET", "http://api.example.com:8443/v1/things"), post, keyed} {
			if n := testing.AllocsPerRun(100, func() {
				for range calls {
					if _, err := tr.RoundTrip(req); err != nil {
						t.Fatal(err)
					}
				}
			}); n != 0 {
				t.Errorf("%s, %s: %v allocations in %d calls", name, req.Method, n, calls)
			}
		}
	}
}

// A Transport over a zero limiter refuses every request that costs something.
func TestTransportOverAZeroLimiter(t *testing.T) {
	for name, zero := range zeroLimiters() {
		synctest.Test(t, func(t *testing.T) {
			base := answers(200)
			soon, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for _, tr := range []*throttle.Transport{
				{Base: base, Limiter: zero()},
				{Base: base, LimiterFor: func(string) throttle.Limiter { return zero() }},
				{Base: base, Limiter: throttle.NewLeaky(100), LimiterFor: func(string) throttle.Limiter { return zero() }},
			} {
				for _, ctx := range []context.Context{soon, t.Context()} {
					for cost := range 3 {
						if _, err := status(tr, throttle.WithCost(ctx, cost), "http://x/"); (err == nil) != (cost == 0) || errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("%s: cost %d: %v", name, cost, err)
						}
					}
				}
				for range tr.Stats() {
				}
			}
		})
	}
}

// Random callers of several keys, some of whom leave, against an upstream that throttles now and then:
// the shared limit and the keys' own hold in every window, nothing is lost, and nothing is left.
func TestRandomTrafficKeepsAllLimits(t *testing.T) {
	for seed := range race.Pick(uint64(5), 20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 14))
			var mu sync.Mutex
			sent := map[string][]time.Duration{}
			up := newUpstream(0, nil)
			roll := func(n int) int { mu.Lock(); defer mu.Unlock(); return r.IntN(n) }
			up.answer = func(n int, req *http.Request) (*http.Response, error) {
				mu.Lock()
				sent[req.URL.Host] = append(sent[req.URL.Host], up.now())
				mu.Unlock()
				time.Sleep(time.Duration(roll(50)) * time.Millisecond)
				switch roll(60) {
				case 0:
					return reply(req, 429, "Retry-After", fmt.Sprint(roll(3))), nil
				case 1:
					return reply(req, 429), nil
				case 2:
					return reply(req, 503), nil
				case 3:
					return nil, io.ErrUnexpectedEOF
				}
				return reply(req, 200), nil
			}
			const shared, own, burst = 50, 20, 5
			slots := roll(2) * 3
			tr := &throttle.Transport{
				Base: up, Limiter: throttle.NewBucket(shared, burst), LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(own, burst) },
				Queue: throttle.QueueOptions{MaxInFlight: slots},
			}
			var wg sync.WaitGroup
			var answered, left atomic.Int32
			for i := range 600 {
				host := fmt.Sprint("h", roll(4))
				prio := roll(3)
				leave := time.Duration(roll(10000)) * time.Millisecond
				leaves := i%4 == 0
				wg.Go(func() {
					ctx := throttle.WithPriority(t.Context(), prio)
					if leaves {
						c, cancel := context.WithCancel(ctx)
						defer time.AfterFunc(leave, cancel).Stop()
						defer cancel()
						ctx = c
					}
					_, err := status(tr, ctx, "http://"+host+"/")
					switch {
					case err == nil || errors.Is(err, io.ErrUnexpectedEOF):
						answered.Add(1)
					case leaves && errors.Is(err, context.Canceled):
						left.Add(1)
					default:
						t.Errorf("seed %d: %v", seed, err)
					}
				})
				if roll(4) == 0 {
					time.Sleep(time.Duration(roll(20)) * time.Millisecond)
				}
			}
			wg.Wait()
			synctest.Wait()
			if left := leftBehind(); left != "" {
				t.Errorf("seed %d: goroutines are left:\n%s", seed, left)
			}
			var all []time.Duration
			for host, s := range sent {
				checkRate(t, fmt.Sprint("seed ", seed, " ", host), s, own, burst)
				all = append(all, s...)
			}
			slices.Sort(all)
			checkRate(t, fmt.Sprint("seed ", seed, " all"), all, shared, burst)
			total := 0
			for s := range tr.Stats() {
				total += int(s.Sent)
				if s.InFlight != 0 || s.Waiting != 0 {
					t.Errorf("seed %d: left behind: %+v", seed, s)
				}
			}
			if total != len(all) {
				t.Errorf("seed %d: Stats count %d attempts, the upstream %d", seed, total, len(all))
			}
		})
	}
}

// checkRate checks that no window of s (sorted) holds more than burst + rate × its length.
func checkRate(t *testing.T, what string, s []time.Duration, rate, burst float64) {
	t.Helper()
	// tokens needed so far, as a bucket that starts full would have them
	tokens, last := burst, time.Duration(0)
	for i, at := range s {
		tokens = min(burst, tokens+rate*(at-last).Seconds()) - 1
		last = at
		if tokens < -1e-6 {
			t.Errorf("%s: attempt %d at %v breaks %v/s burst %v by %.3g", what, i, at, rate, burst, -tokens)
			return
		}
	}
}

// leftBehind returns the stacks of this bubble's goroutines beside the test's own.
func leftBehind() string {
	buf := make([]byte, 1<<20)
	stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	bubble, _, _ := strings.Cut(stacks[0][strings.Index(stacks[0], "synctest bubble"):], "\n")
	var left []string
	for _, s := range stacks[1:] {
		if strings.Contains(s, bubble) && !strings.Contains(s, "testing/synctest.") && !strings.Contains(s, "testing.tRunner") {
			left = append(left, s)
		}
	}
	return strings.Join(left, "\n\n")
}

// Transport.Predict looks at one key and makes none.
func TestTransportPredict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		tr := &throttle.Transport{
			Base: newUpstream(0, always(200)), Limiter: throttle.NewBucket(100, 1),
			LimiterFor: func(key string) throttle.Limiter {
				made++
				if key == "nil" {
					return (*throttle.Bucket)(nil)
				}
				return throttle.NewFixedWindow(10, time.Second)
			},
		}
		want := func(key string, n int, want time.Duration) {
			t.Helper()
			if got := tr.Predict(key, n); got != want {
				t.Errorf("%d calls of %q: %v, want %v", n, key, got, want)
			}
		}
		want("a", 0, 0)
		want("a", 10, 90*time.Millisecond) // the shared limiter
		want("a", 21, 2*time.Second)       // both
		want("nil", 1, -1)
		for range tr.Stats() {
			t.Error("Predict has made a key")
		}
		if made != 3 {
			t.Errorf("LimiterFor was asked %d times", made)
		}
		var calls sync.WaitGroup
		for range 30 {
			calls.Go(func() { status(tr, t.Context(), "http://a/") })
		}
		synctest.Wait()
		want("a", 1, 3*time.Second)       // 29 wait: 9 now, 10 after a second, 10 after two
		want("b", 1, 20*time.Millisecond) // the second at the shared limiter, whose flows are the keys
		calls.Wait()

		up := newUpstream(time.Second, always(200))
		zero := &throttle.Transport{Base: up}
		if got := zero.Predict("a", 4); got != 0 {
			t.Errorf("four calls of an upstream that nothing is known of: %v, want 0s", got)
		}
		if got := zero.Predict("a", 5); got != -1 {
			t.Errorf("five calls of it: %v, want -1", got)
		}
		status(zero, t.Context(), "http://a/")
		if got := zero.Predict("a", 5000); got != 0 {
			t.Errorf("5,000 calls after its first answer: %v, want 0s", got)
		}
		up.answer = always(503)
		for range 4 {
			status(zero, t.Context(), "http://a/")
		}
		if got := zero.Predict("a", 1); got != -1 {
			t.Errorf("in an outage: %v, want -1", got)
		}
		wrong := &throttle.Transport{WindowFactor: -1}
		if got := wrong.Predict("a", 1); got != -1 {
			t.Errorf("of a Transport that cannot be used: %v, want -1", got)
		}
	})
}

// MaxInFlight bounds the calls of all keys, until their bodies are closed. An error that waits for a slot says so.
func TestMaxInFlightOverKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("body")), ContentLength: -1, Request: r}, nil
		})
		tr := &throttle.Transport{Base: base, MaxInFlight: 2}
		get := func(ctx context.Context, url string) (*http.Response, error) {
			req, _ := http.NewRequestWithContext(ctx, "GET", url, nil)
			return tr.RoundTrip(req)
		}
		var open []*http.Response
		for _, url := range []string{"http://a/", "http://b/"} {
			resp, err := get(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, resp)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := get(ctx, "http://c/")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "2 of 2 calls in flight (bodies not closed?)") {
			t.Error(err)
		}
		time.AfterFunc(time.Second, func() { open[0].Body.Close() })
		start := time.Now()
		resp, err := get(t.Context(), "http://c/")
		if err != nil || time.Since(start) != time.Second {
			t.Errorf("went after %v, %v; want 1s, when a body is closed", time.Since(start), err)
		}
		open[1].Body.Close()
		resp.Body.Close()
		if _, err := (&throttle.Transport{MaxInFlight: -1}).RoundTrip(resp.Request); err == nil || !strings.Contains(err.Error(), "Transport.MaxInFlight is -1") {
			t.Error(err)
		}
	})
}

// However a 429 writes that it wants no calls for nine seconds, or that its window ends then, the next attempt comes at that
// moment, and nothing is held for longer.
func TestEveryFormOfATimeIsObeyed(t *testing.T) {
	forms := map[string]func(time.Time) string{
		"span":         func(time.Time) string { return "9" },
		"fraction":     func(time.Time) string { return "9.0" },
		"duration":     func(time.Time) string { return "9s" },
		"words":        func(time.Time) string { return "9 seconds" },
		"ISO duration": func(time.Time) string { return "PT9S" },
		"TimeSpan":     func(time.Time) string { return "00:00:09" },
		"list":         func(time.Time) string { return "9, 9" },
		"seconds":      func(at time.Time) string { return fmt.Sprint(at.Unix()) },
		"milliseconds": func(at time.Time) string { return fmt.Sprint(at.UnixMilli()) },
		"microseconds": func(at time.Time) string { return fmt.Sprint(at.UnixMicro()) },
		"nanoseconds":  func(at time.Time) string { return fmt.Sprint(at.UnixNano()) },
	}
	for _, layout := range []string{
		time.RFC3339, "2006-01-02T15:04:05.000-07:00", "2006-01-02T15:04:05", "2006-01-02T15:04:05-0700", "2006-01-02 15:04:05 -0000",
		"2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05 UTC", "2006-01-02 15:04:05", time.RFC1123Z, http.TimeFormat, time.ANSIC,
		"Mon Jan _2 2006 15:04:05 GMT-0700 (Central European Standard Time)",
	} {
		zone := time.UTC
		if strings.Contains(layout, "07") {
			zone = time.FixedZone("", 3600)
		}
		forms[layout] = func(at time.Time) string { return at.In(zone).Format(layout) }
	}
	fields := [][]string{
		{"Retry-After"}, {"X-RateLimit-Retry-After"}, {"Retry-After-Long"}, {"X-Retry-After"},
		{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset"}, {"X-RateLimit-Reset"},
	}
	for name, form := range forms {
		for _, kv := range fields {
			synctest.Test(t, func(t *testing.T) {
				value := form(time.Now().Add(9 * time.Second))
				up := newUpstream(20*time.Millisecond, func(n int, req *http.Request) (*http.Response, error) {
					if n == 1 {
						return reply(req, 429, append(slices.Concat([]string{"Date", time.Now().UTC().Format(http.TimeFormat)}, kv), value)...), nil
					}
					return reply(req, 200), nil
				})
				tr := &throttle.Transport{Base: up}
				for range 3 {
					if code, err := status(tr, t.Context(), "http://api.test/"); code != 200 || err != nil {
						t.Fatalf("%s: %v %s: %d, %v", name, kv, value, code, err)
					}
				}
				switch at := up.times(); {
				case len(at) != 4, at[1] < 9*time.Second, at[1] > 10100*time.Millisecond, at[3]-at[1] > 2*time.Second: // ten in nine seconds
					t.Errorf("%s: %v %s: attempts at %v", name, kv, value, at)
				}
			})
		}
	}
}

// A quota without a limit holds nothing, and a whole quota in one field holds calls until its end.
func TestQuotasInOtherWords(t *testing.T) {
	for _, tt := range []struct {
		status int
		kv     []string
		want   time.Duration
	}{
		{200, []string{"X-RateLimit-Limit", "-1", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "3600"}, 20 * time.Millisecond},
		{200, []string{"X-RateLimit-Remaining", "-1", "X-RateLimit-Reset", "3600"}, 20 * time.Millisecond},
		{200, []string{"X-RateLimit-Limit", "unlimited", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "3600"}, 20 * time.Millisecond},
		{200, []string{"X-RateLimit", `{"period":10,"limit":50,"remaining":0,"until":"2000-01-01T00:00:09Z"}`}, 9 * time.Second},
		{429, []string{"X-RateLimit", `{"period":10,"limit":50,"remaining":0,"until":"2000-01-01T00:00:09Z"}`}, 9 * time.Second},
		{429, []string{"Date", "Sat, 01 Jan 2000 00:00:00 GMT", "X-RateLimit-Limit", "50", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "946684800"}, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(20*time.Millisecond, func(n int, req *http.Request) (*http.Response, error) {
				if n == 1 {
					return reply(req, tt.status, tt.kv...), nil
				}
				return reply(req, 200), nil
			})
			tr := &throttle.Transport{Base: up}
			for range 2 {
				if code, err := status(tr, t.Context(), "http://api.test/"); code != 200 || err != nil {
					t.Fatalf("%d %v: %d, %v", tt.status, tt.kv, code, err)
				}
			}
			if at := up.times()[1]; at < tt.want || at > tt.want+tt.want/10 {
				t.Errorf("%d %v: the second attempt comes at %v, want %v", tt.status, tt.kv, at, tt.want)
			}
		})
	}
}
