package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttletest"
)

func TestHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type ours struct{} // a key of the request's ctx
		var got []string
		var tr *throttle.Transport
		note := func(name string) func(context.Context, throttle.Event) {
			return func(ctx context.Context, e throttle.Event) {
				for range tr.Stats() { // would deadlock under the lock
				}
				tr.Resume("no such key")
				if ctx.Value(ours{}) == nil {
					t.Error("not the request's ctx")
				}
				text := fmt.Sprintf("%s %s %s %s status=%d attempt=%d wait=%v", name, e.Key, e.Method, e.Host, e.Status, e.Attempt, e.Wait)
				if e.Err != nil {
					text += " err=" + e.Err.Error()
				}
				got = append(got, text)
			}
		}
		first := throttle.Hooks{Waited: note("Waited"), Refused: note("Refused"), Throttled: note("Throttled")}
		second := throttle.Hooks{Failed: note("Failed"), Retrying: note("Retrying"), Throttled: note("Throttled2")}
		up := newUpstream(0, nil)
		up.answer = func(n int, req *http.Request) (*http.Response, error) {
			switch n {
			case 1:
				return reply(req, 429, "Retry-After", "2"), nil
			case 2:
				return reply(req, 500), nil
			case 3:
				return nil, io.ErrUnexpectedEOF
			}
			return reply(req, 429, "Retry-After", "3600"), nil
		}
		tr = &throttle.Transport{Base: up, Hooks: first.Join(second), Retry: throttle.Retry{Backoff: func() throttle.Backoff { return constant(time.Second) }}}
		ctx := context.WithValue(t.Context(), ours{}, true)
		if code, err := status(tr, ctx, "http://X:80/"); code != 429 || err != nil {
			t.Error(code, err)
		}
		if _, err := status(tr, ctx, "http://X:80/"); !errors.Is(err, throttle.ErrPaused) {
			t.Error(err)
		}
		want := []string{
			"Throttled x GET X:80 status=429 attempt=1 wait=2s",
			"Throttled2 x GET X:80 status=429 attempt=1 wait=2s",
			"Retrying x GET X:80 status=429 attempt=1 wait=2.0*", // and jitter
			"Waited x GET X:80 status=0 attempt=1 wait=2.0*",
			"Failed x GET X:80 status=500 attempt=2 wait=0s",
			"Retrying x GET X:80 status=500 attempt=2 wait=1s",
			"Failed x GET X:80 status=0 attempt=3 wait=0s err=unexpected EOF", // 500 is the answer kept
			"Retrying x GET X:80 status=0 attempt=3 wait=1s err=unexpected EOF",
			"Throttled x GET X:80 status=429 attempt=4 wait=1h0m0s",
			"Throttled2 x GET X:80 status=429 attempt=4 wait=1h0m0s",
			"Refused x GET X:80 status=0 attempt=0 wait=1h0m0.*",
		}
		for i := range max(len(got), len(want)) {
			g, w := "nothing", "nothing"
			if i < len(got) {
				g = got[i]
			}
			if i < len(want) {
				w = want[i]
			}
			if pre, ok := strings.CutSuffix(w, "*"); g != w && !(ok && strings.HasPrefix(g, pre)) {
				t.Errorf("event %d: %s\n     want: %s", i, g, w)
			}
		}
	})
}

func TestJoinOfHooks(t *testing.T) {
	var got string
	add := func(s string) func(context.Context, throttle.Event) {
		return func(context.Context, throttle.Event) { got += s }
	}
	h := throttle.Hooks{Waited: add("a"), Refused: add("b")}.Join(throttle.Hooks{Waited: add("A"), Failed: add("C")}).Join(throttle.Hooks{})
	for _, f := range []func(context.Context, throttle.Event){h.Waited, h.Refused, h.Failed, h.Throttled, h.Retrying} {
		if f != nil {
			f(t.Context(), throttle.Event{})
		}
	}
	if got != "aAbC" || h.Throttled != nil || h.Retrying != nil {
		t.Error(got)
	}
}

// Failed's Status.
func TestFailedHookHasItsOwnAttemptsStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		tr := &throttle.Transport{Base: baseFunc(func(req *http.Request) (*http.Response, error) {
			n++
			switch n {
			case 1:
				return reply(req, 503), nil
			case 2:
				return nil, context.DeadlineExceeded
			}
			return reply(req, 200), nil
		}), Hooks: throttle.Hooks{Failed: func(_ context.Context, e throttle.Event) {
			if e.Attempt == 2 && e.Status != 0 {
				t.Error("Status of another attempt:", e.Status, e.Err)
			}
		}}}
		status(tr, t.Context(), "http://a/")
	})
}

// A quota that is not spaced has rate.Inf, which is no real infinity.
func TestLearnedRateIsRateInf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{Base: answers(200, "Ratelimit-Policy", `"a";q=10;w=1`, "Ratelimit", `"a";r=9;t=1`)}
		for range 2 {
			if _, err := status(tr, t.Context(), "http://a.test/"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if l := statsOf(t, tr).Learned; len(l) != 1 || l[0].Rate != rate.Inf {
			t.Errorf("%+v", l)
		}
	})
}

// found makes calls one after the other for so long, to an upstream that accepts what limit says, and returns what Hooks.Learned was
// told of rates that were found. look sees Stats after each call, and ends the calls by true.
func found(t *testing.T, tr *throttle.Transport, limit throttletest.Limit, long time.Duration, look func(throttle.KeyStats) bool) (told []throttle.Learned) {
	t.Helper()
	up := throttletest.NewServer(limit)
	up.Latency = throttletest.Span{Min: 10 * time.Millisecond, Max: 10 * time.Millisecond}
	tr.Base = up
	tr.Hooks.Learned = func(_ context.Context, e throttle.Event) {
		if e.Learned.Source != "throttled" {
			t.Errorf("learned from %q", e.Learned.Source)
		}
		told = append(told, e.Learned)
	}
	for start, end := time.Now(), false; !end && time.Since(start) < long; end = look(statsOf(t, tr)) {
		if _, err := status(tr, t.Context(), up.URL()); err != nil {
			t.Fatal(err)
		}
	}
	return told
}

// free is a limiter of another package that holds nobody.
type free struct{}

func (free) Take(context.Context, int) (time.Duration, error) { return 0, nil }

// What is said of a rate that was found names the configured limit that is too high. The upstream accepts 10/s.
func TestLearnedSaysWhatWasConfigured(t *testing.T) {
	own := func(r rate.Limit) func(string) throttle.Limiter {
		return func(string) throttle.Limiter { return throttle.NewBucket(r, 1) }
	}
	for name, c := range map[string]struct {
		transport *throttle.Transport
		want      rate.Limit
	}{
		"one limit":                    {&throttle.Transport{LimiterFor: own(20)}, 20},
		"5 % too high":                 {&throttle.Transport{LimiterFor: own(10.5)}, 10.5},
		"one for all keys":             {&throttle.Transport{Limiter: throttle.NewBucket(20, 1)}, 20},
		"two: the slowest":             {&throttle.Transport{Limiter: throttle.NewBucket(40, 1), LimiterFor: own(20)}, 20},
		"none":                         {&throttle.Transport{}, 0},
		"an infinite one":              {&throttle.Transport{Limiter: throttle.NewBucket(rate.Inf, 1)}, 0},
		"one of another package":       {&throttle.Transport{Limiter: free{}}, 0},
		"that, and one of this one":    {&throttle.Transport{Limiter: throttle.All(free{}, throttle.NewBucket(20, 1))}, 20},
		"a long window that has burst": {&throttle.Transport{Limiter: throttle.NewFixedWindow(18_000, time.Hour)}, 0}, // 5/s in the long run
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shown := 0
				told := found(t, c.transport, throttletest.Limit{N: 10, Burst: 5}, 2*time.Minute, func(s throttle.KeyStats) bool {
					for _, l := range s.Learned {
						shown++
						if l.Configured != c.want {
							t.Fatalf("Stats says %+v, want %v configured", l, c.want)
						}
					}
					return false
				})
				if shown == 0 || len(told) == 0 || c.want > 0 && len(told) > 3 {
					t.Errorf("Stats showed it %d times, the hook was called %d times", shown, len(told))
				}
				for _, l := range told {
					if l.Configured != c.want || l.Rate <= 0 || c.want > 0 && l.Rate >= c.want {
						t.Errorf("the hook was told %+v, want %v configured", l, c.want)
					}
				}
			})
		})
	}
}

// While nobody calls, Stats goes on showing the rate that is held.
func TestLearnedOfAnIdleKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{Limiter: throttle.NewBucket(20, 1)}
		var held []throttle.Learned
		found(t, tr, throttletest.Limit{N: 10, Burst: 5}, time.Minute, func(s throttle.KeyStats) bool {
			held = s.Learned
			return len(held) > 0
		})
		for range 30 {
			time.Sleep(time.Minute)
			if now := statsOf(t, tr).Learned; len(now) != 1 || now[0].Configured != 20 || math.Abs(float64(now[0].Rate/held[0].Rate-1)) > 0.05 {
				t.Fatalf("%+v was learned, and while nobody calls it becomes %+v", held, now)
			}
		}
	})
}

// When the upstream accepts what is configured again, the hook is told ten minutes later, once.
func TestLearnedSaysThatTheLimitHoldsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const back = 2 * time.Minute
		start, last := time.Now(), time.Duration(0) // last: when Stats showed a found rate
		tr := &throttle.Transport{Limiter: throttle.NewBucket(10, 1)}
		limit := throttletest.Limit{N: 5, Burst: 5, Changes: []throttletest.Change{{At: back, N: 100}}}
		told := found(t, tr, limit, 30*time.Minute, func(s throttle.KeyStats) bool {
			if len(s.Learned) > 0 {
				last = time.Since(start)
			}
			return false
		})
		if n := len(told); n < 2 || n > 4 || last > 20*time.Minute {
			t.Fatalf("the hook was told %d times, and the rate held until %v", n, last)
		}
		for i, l := range told {
			if end := i == len(told)-1; l.Configured != 10 || end != (l.Rate == rate.Inf) {
				t.Errorf("%d: %+v", i, l)
			}
		}
	})
}

// waitsFor notes what Waiting says, as "reason wait".
func waitsFor(said *[]string) throttle.Hooks {
	var mu sync.Mutex
	return throttle.Hooks{Waiting: func(_ context.Context, e throttle.Event) {
		mu.Lock()
		defer mu.Unlock()
		*said = append(*said, fmt.Sprintf("%s %v", e.Reason, e.Wait.Round(time.Millisecond)))
	}}
}

// A call that begins to wait says what it waits for, and how long. Each script makes one call wait, and the rest of
// the words come from errors and Stats.
func TestWaitingNamesWhatHoldsTheCall(t *testing.T) {
	quota := []string{"Ratelimit-Policy", `"a";q=10;w=60`, "Ratelimit", `"a";r=0;t=30`}
	one := func(string) throttle.Limiter { return throttle.NewBucket(1, 1) }
	for _, c := range []struct {
		want   string
		tr     *throttle.Transport
		calls  []string // URLs, one after the other; the last but one and the last at the same time
		answer func(int, *http.Request) (*http.Response, error)
	}{
		{want: "limit 1s", tr: &throttle.Transport{LimiterFor: one}, calls: []string{"http://a/", "http://a/"}},
		{want: "limit:shared 1s", tr: &throttle.Transport{Limiter: one("")}, calls: []string{"http://a/", "http://b/"}},
		{want: "limit:advertised 29.1s", tr: &throttle.Transport{}, calls: []string{"http://a/", "http://a/"}, answer: always(200, quota...)},
		{want: "slot 0s", tr: &throttle.Transport{Queue: throttle.QueueOptions{MaxInFlight: 1}}, calls: []string{"http://a/", "http://a/"}},
		{want: "gate:first-contact 0s", tr: &throttle.Transport{}, calls: []string{"http://a/", "http://a/", "http://a/", "http://a/", "http://a/"}},
		{want: "limit:shared 10s", tr: &throttle.Transport{Limiter: throttle.NewBucket(0.1, 1), LimiterFor: one}, calls: []string{"http://a/", "http://a/"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var said []string
			up := newUpstream(100*time.Millisecond, always(200))
			if c.answer != nil {
				up.answer = c.answer
			}
			tr := c.tr
			tr.Base, tr.Hooks = up, waitsFor(&said)
			var calls sync.WaitGroup
			for _, url := range c.calls {
				calls.Go(func() { status(tr, t.Context(), url) })
				synctest.Wait()
				if c.answer != nil {
					time.Sleep(time.Second) // the answer has come
				}
			}
			calls.Wait()
			if len(said) != 1 || said[0] != c.want {
				t.Errorf("Waiting said %q, want %q", said, c.want)
			}
		})
	}
}

// A closed gate is named by its cause, in the order in which this upstream closes it.
func TestWaitingNamesTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		up := newUpstream(10*time.Millisecond, nil)
		up.answer = func(n int, req *http.Request) (*http.Response, error) {
			switch {
			case n == 1:
				return reply(req, 429, "Retry-After", "100"), nil
			case n <= 9:
				return reply(req, 503), nil
			}
			return reply(req, 200), nil
		}
		tr := &throttle.Transport{
			Base: up, LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(2, 100) },
			Retry: throttle.Retry{MaxAttempts: 1, MaxPause: -1}, Hooks: waitsFor(&said),
		}
		var calls sync.WaitGroup
		for range 2 { // the second one waits for the 100 s, and in the row of failures for its turn
			calls.Go(func() { status(tr, t.Context(), "http://a/") })
			time.Sleep(20 * time.Millisecond)
		}
		if s := statsOf(t, tr); s.Reason != "gate:retry-after" || s.Until.Before(time.Now().Add(90*time.Second)) {
			t.Errorf("Stats say %q until in %v", s.Reason, time.Until(s.Until))
		}
		calls.Wait()
		for range 7 {
			calls.Go(func() { status(tr, t.Context(), "http://a/") })
		}
		calls.Wait()
		status(tr, t.Context(), "http://a/")
		if s := statsOf(t, tr); s.Reason != "" || !s.Until.IsZero() {
			t.Errorf("nobody waits, and Stats say %q until %v", s.Reason, s.Until)
		}
		kinds := map[string]int{}
		for _, s := range said {
			reason, _, _ := strings.Cut(s, " ")
			kinds[reason]++
		}
		if kinds["gate:retry-after"] != 1 || kinds["gate:reopening"] == 0 || kinds["gate:failing"] == 0 {
			t.Errorf("Waiting said %q", said)
		}
	})
}

// A call behind a costly one could go if it were alone: only the order holds it.
func TestOrderHoldsACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		tr := &throttle.Transport{Base: answers(200), LimiterFor: func(string) throttle.Limiter {
			b := throttle.NewBucket(1, 10)
			b.AllowN(5)
			return b
		}, Hooks: waitsFor(&said)}
		var calls sync.WaitGroup
		for _, cost := range []int{10, 1} {
			calls.Go(func() { status(tr, throttle.WithCost(t.Context(), cost), "http://a/") })
			synctest.Wait()
		}
		if s := statsOf(t, tr); s.Reason != "limit" || time.Until(s.Until) != 5*time.Second {
			t.Errorf("Stats say %q until in %v, want limit, 5s", s.Reason, time.Until(s.Until))
		}
		calls.Wait()
		if want := []string{"limit 5s", "order 6s"}; !slices.Equal(said, want) {
			t.Errorf("Waiting said %q, want %q", said, want)
		}
	})
}

// The errors of calls that this side ends say what held them.
func TestErrorsNameWhatHeldTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := func(err error, is error, reason string) {
			t.Helper()
			var e *throttle.Error
			if !errors.As(err, &e) || !errors.Is(err, is) || e.Reason != reason {
				t.Errorf("%v, reason %q; want %v, %q", err, e.Reason, is, reason)
			}
		}
		q := throttle.NewQueue(throttle.NewBucket(1, 1), throttle.QueueOptions{MaxWaiting: 2})
		q.Wait(t.Context())
		waits, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		for range 2 {
			go func() { left <- q.Wait(waits) }()
		}
		synctest.Wait()
		want(q.Wait(t.Context()), throttle.ErrQueueFull, "limit")
		q.Pause(time.Minute)
		want(q.Wait(t.Context()), throttle.ErrQueueFull, "gate:paused")
		cancel()
		want(<-left, context.Canceled, "gate:paused")
		want(<-left, context.Canceled, "gate:paused")
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		want(q.Wait(soon), throttle.ErrWaitTooLong, "gate:paused")
		want(q.Wait(waits), context.Canceled, "") // it did not even begin to wait
		var refused throttle.Event
		tr := &throttle.Transport{Base: answers(429, "Retry-After", "3600"), Hooks: throttle.Hooks{
			Refused: func(_ context.Context, e throttle.Event) { refused = e },
		}}
		status(tr, t.Context(), "http://a/")
		_, err := status(tr, t.Context(), "http://a/")
		want(err, throttle.ErrPaused, "gate:retry-after")
		if refused.Reason != "gate:retry-after" {
			t.Errorf("Refused has the reason %q", refused.Reason)
		}
	})
}

// A hook that panics leaves the line as it was.
func TestWaitingPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		panics := true
		tr := &throttle.Transport{Base: answers(200), LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(1, 1) }, Queue: throttle.QueueOptions{MaxInFlight: 1}}
		tr.Hooks.Waiting = func(context.Context, throttle.Event) {
			if panics {
				time.Sleep(2 * time.Second) // its turn comes meanwhile
				panic("hook")
			}
		}
		status(tr, t.Context(), "http://a/")
		func() {
			defer func() {
				if recover() != "hook" {
					t.Error("the panic is lost")
				}
			}()
			status(tr, t.Context(), "http://a/")
		}()
		if s := statsOf(t, tr); s.Waiting != 0 || s.InFlight != 0 || s.Tokens != 1 {
			t.Errorf("after the panic: %+v", s)
		}
		panics = false
		start := time.Now()
		for range 3 {
			status(tr, t.Context(), "http://a/")
		}
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("three calls took %v after the panic, want 2s", took)
		}
	})
}

// A closing is announced once, whatever comes after it, and so is the probe that ends it. A closing that time ends, and
// a pause by hand, are not an answer's doing.
func TestHooksOfTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []string
		note := func(name string) func(context.Context, throttle.Event) {
			return func(_ context.Context, e throttle.Event) {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, fmt.Sprintf("%s %s %s %d %v", name, e.Key, e.Reason, e.Status, e.Wait.Truncate(time.Second/4)))
			}
		}
		code, up := 429, newUpstream(10*time.Millisecond, nil)
		up.answer = func(_ int, req *http.Request) (*http.Response, error) {
			if code == 429 {
				return reply(req, 429, "Retry-After", "3"), nil
			}
			return reply(req, code), nil
		}
		tr := &throttle.Transport{
			Base: up, Retry: throttle.Retry{MaxAttempts: 1, MaxPause: -1},
			Hooks: throttle.Hooks{Closed: note("closed"), Opened: note("opened")},
		}
		send := func(n int) {
			var calls sync.WaitGroup
			for range n {
				calls.Go(func() { status(tr, t.Context(), "http://a/") })
			}
			calls.Wait()
		}
		send(3) // one event
		code = 200
		send(1)
		tr.Pause("a", time.Second)
		send(1)
		code = 503
		send(8)
		time.Sleep(20 * time.Second)
		send(1) // a probe that fails
		code = 200
		time.Sleep(40 * time.Second)
		send(2)
		want := []string{"closed a gate:retry-after 429 3s", "closed a gate:failing 503 250ms", "opened a gate:failing 200 1m0s"}
		if !slices.Equal(got, want) {
			t.Errorf("the hooks saw\n%q, want\n%q", got, want)
		}
	})
}
