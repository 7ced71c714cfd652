package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"golang.org/x/time/rate"
)

// Cost and priority in one ctx do not disturb each other, and the latest of each counts.
func TestCostAndPriorityInOneContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var costs []int
		far := &remote{take: func(_ context.Context, n int) (time.Duration, error) {
			costs = append(costs, n)
			return 0, nil
		}}
		q := throttle.NewQueue(throttle.All(throttle.NewLeaky(1), far), throttle.QueueOptions{})
		q.Wait(t.Context())
		costs = nil
		var log journal
		ctx := throttle.WithPriority(throttle.WithCost(t.Context(), 7), 9)
		ctx = throttle.WithCost(throttle.WithPriority(ctx, -3), 5)
		log.wait(q, throttle.WithPriority(t.Context(), -4), 0)
		log.wait(q, ctx, 1)
		log.wait(q, throttle.WithPriority(t.Context(), -2), 2)
		log.wg.Wait()
		if got := log.ids(); !slices.Equal(got, []int{2, 1, 0}) || !slices.Equal(costs, []int{1, 5, 1}) {
			t.Errorf("%v went with costs %v, want the second one to have priority -3 and cost 5", got, costs)
		}
	})
}

// Priorities beyond 32 bits count as the nearest that fits: they do not wrap around.
func TestPrioritiesBeyond32Bits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.NewLeaky(1), throttle.QueueOptions{})
		q.Wait(t.Context())
		var log journal
		for i, p := range []int{math.MinInt, math.MinInt32, 0, math.MaxInt32, math.MaxInt, math.MinInt32 + 1, math.MaxInt32 - 1} {
			log.wait(q, throttle.WithPriority(t.Context(), p), i)
		}
		log.wg.Wait()
		if got, want := log.ids(), []int{3, 4, 6, 2, 5, 0, 1}; !slices.Equal(got, want) {
			t.Errorf("order %v, want %v", got, want)
		}
	})
}

// One call makes as many attempts as its ctx says, whatever Retry says.
func TestWithMaxAttempts(t *testing.T) {
	for name, c := range map[string]struct {
		retry, call int // MaxAttempts of each
		timeout     time.Duration
		want        int
	}{
		"as Retry says":            {retry: 3, want: 3},
		"fewer":                    {retry: 3, call: 1, want: 1},
		"more":                     {retry: 3, call: 6, want: 6},
		"until the ctx ends":       {retry: 3, call: -1, timeout: 595 * time.Second, want: 60},
		"all until their ctx ends": {retry: -1, timeout: 595 * time.Second, want: 60},
		"all but one":              {retry: -1, call: 2, timeout: 595 * time.Second, want: 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(10*time.Second, always(500))
			tr := &throttle.Transport{Base: up, Retry: throttle.Retry{
				MaxAttempts: c.retry, Budget: throttle.Budget{PerCall: -1}, Backoff: func() throttle.Backoff { return constant(0) },
			}}
			ctx := throttle.WithMaxAttempts(throttle.WithPriority(t.Context(), 3), c.call)
			if c.timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.timeout)
				defer cancel()
			}
			code, err := status(tr, ctx, "http://x/")
			if n := len(up.times()); n != c.want || code != 500 || err != nil {
				t.Errorf("%s: %d attempts end with %d, %v; want %d", name, n, code, err, c.want)
			}
		})
	}
}

// Attempt counts where somebody may ask: in Check and hooks the attempt that was sent last, in Base the one under
// way, from the second on.
func TestAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent, checked, retrying []int
		up := newUpstream(0, func(n int, req *http.Request) (*http.Response, error) {
			sent = append(sent, throttle.Attempt(req.Context()))
			return reply(req, 503), nil
		})
		tr := &throttle.Transport{
			Base: up,
			Retry: throttle.Retry{MaxAttempts: 3, Check: func(req *http.Request, _ *http.Response, _ error) throttle.Verdict {
				checked = append(checked, throttle.Attempt(req.Context()))
				return throttle.Default
			}},
			Hooks: throttle.Hooks{Retrying: func(ctx context.Context, e throttle.Event) {
				retrying = append(retrying, throttle.Attempt(ctx))
			}},
		}
		status(tr, t.Context(), "http://x/")
		if !slices.Equal(sent, []int{0, 2, 3}) || !slices.Equal(checked, []int{1, 2, 3}) || !slices.Equal(retrying, []int{1, 2}) {
			t.Errorf("in Base %v, in Check %v, in Retrying %v", sent, checked, retrying)
		}
		if n := throttle.Attempt(t.Context()); n != 0 {
			t.Errorf("%d outside of any call", n)
		}
	})
}

// A call waits for as long as its ctx allows: it fails at once if more is predicted, and when the time is over if
// that could not be predicted.
func TestWithMaxWait(t *testing.T) {
	const s = time.Second
	ways := map[string]func(ctx context.Context, q *throttle.Queue, fn func()) error{
		"Wait": func(ctx context.Context, q *throttle.Queue, fn func()) error {
			err := q.Wait(ctx)
			if err == nil {
				fn()
			}
			return err
		},
		"Do": func(ctx context.Context, q *throttle.Queue, fn func()) error {
			return q.Do(ctx, func(context.Context) error { fn(); return nil })
		},
		"Group": func(ctx context.Context, q *throttle.Queue, fn func()) error {
			g, _ := throttle.NewGroup(context.WithoutCancel(ctx), q)
			g.Go(ctx, func(context.Context) error { fn(); return nil })
			return g.Wait()
		},
	}
	for name, c := range map[string]struct {
		opts    throttle.QueueOptions
		ahead   int // calls in line at 1/s
		holders int // of in-flight slots, for an hour
		most    time.Duration
		err     error
		after   time.Duration
	}{
		"enough":                    {ahead: 2, most: 3 * s, after: 3 * s},
		"predicted to be longer":    {ahead: 2, most: 3*s - 1, err: throttle.ErrWaitTooLong},
		"more than MaxWait":         {opts: throttle.QueueOptions{MaxWait: s}, ahead: 1, most: 5 * s, after: 2 * s},
		"less than MaxWait":         {opts: throttle.QueueOptions{MaxWait: 9 * s}, ahead: 1, most: s, err: throttle.ErrWaitTooLong},
		"as long as can be":         {ahead: 0, most: math.MaxInt64, after: s},
		"none, and at once":         {ahead: -1, most: 0},
		"none, and not at once":     {ahead: 0, most: -5, err: throttle.ErrWaitTooLong},
		"not to be predicted":       {opts: throttle.QueueOptions{MaxInFlight: 1}, ahead: -2, holders: 1, most: 7 * s, err: throttle.ErrWaitTooLong, after: 7 * s},
		"none, not to be predicted": {opts: throttle.QueueOptions{MaxInFlight: 1}, ahead: -2, holders: 1, most: 0, err: throttle.ErrWaitTooLong},
	} {
		for way, call := range ways {
			if way == "Wait" && c.holders > 0 {
				continue // it takes no slot
			}
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				b := throttle.NewBucket(1, 1)
				if c.ahead == -2 {
					b = throttle.NewBucket(rate.Inf, 0)
				}
				q := throttle.NewQueue(b, c.opts)
				for range c.holders {
					go q.Do(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
				}
				for range c.ahead + 1 {
					go q.Wait(throttle.WithMaxWait(ctx, time.Hour))
					synctest.Wait()
				}
				synctest.Wait()
				start, ran := time.Now(), false
				err := call(throttle.WithMaxWait(ctx, c.most), q, func() { ran = true })
				if took := time.Since(start); !errors.Is(err, c.err) || ran != (c.err == nil) || took.Round(time.Microsecond) != c.after {
					t.Errorf("%s, %s: %v after %v, ran: %v; want %v after %v", name, way, err, took, ran, c.err, c.after)
				}
				if errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
					t.Errorf("%s, %s: %v is taken for the end of the ctx, %v", name, way, err, ctx.Err())
				}
				cancel()
				synctest.Wait()
			})
		}
	}
}

// Whoever cancels with a cause finds it in the errors of the calls that wait.
func TestCauseOfTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopping := errors.New("stopping")
		q := throttle.NewQueue(throttle.NewBucket(1, 1), throttle.QueueOptions{})
		q.Wait(t.Context())
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Millisecond, func() { cancel(stopping) })
		for _, when := range []string{"while it waits", "before"} {
			if err := q.Wait(ctx); !errors.Is(err, stopping) || !errors.Is(err, context.Canceled) {
				t.Errorf("canceled %s: %v", when, err)
			}
		}
	})
}

// Three tenants share a Queue, and a Group's tasks theirs: a flood delays only itself.
func TestFlows(t *testing.T) {
	for name, start := range map[string]func(q *throttle.Queue, ctx context.Context, log *journal, id int) (wait func()){
		"Queue": func(q *throttle.Queue, ctx context.Context, log *journal, id int) func() {
			log.wait(q, ctx, id)
			return func() {}
		},
		"Group": func(q *throttle.Queue, ctx context.Context, log *journal, id int) func() {
			g, _ := throttle.NewGroup(ctx, q)
			g.Go(ctx, func(context.Context) error { log.add(id); return nil })
			return func() { g.Wait() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				weights := map[string]float64{"b": 2}
				q := throttle.NewQueue(throttle.NewLeaky(10), throttle.QueueOptions{Weight: func(flow string) float64 { return weights[flow] }})
				q.Wait(t.Context())
				var log journal
				for i := range 12 { // four of each
					flow := string("abc"[i/4])
					defer start(q, throttle.WithFlow(t.Context(), flow), &log, i)()
					synctest.Wait()
				}
				if got := q.Stats().Flows; !maps.Equal(got, map[string]int{"a": 4, "b": 4, "c": 4}) {
					t.Errorf("%v wait", got)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				// b gets two of four turns until its calls have gone. The eighth is not that of a, whose call is the
				// oldest: a has had its two.
				if got := log.ids(); !slices.Equal(got, []int{0, 4, 8, 5, 1, 6, 9, 7, 2, 10, 3, 11}) {
					t.Errorf("went in the order %v", got)
				}
				if got := q.Stats(); got.Flows != nil || got.Waiting != 0 {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// A flow's name is cut as keys are, and Stats joins the flows with the fewest calls.
func TestFlowNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.NewLeaky(0.001), throttle.QueueOptions{})
		q.Wait(t.Context())
		var log journal
		ctx, cancel := context.WithCancel(t.Context())
		long := strings.Repeat("x", 1<<20)
		for i := range 150 {
			log.wait(q, throttle.WithFlow(ctx, fmt.Sprint("flow ", i)), i)
		}
		for _, flow := range []string{"", long + "a", long + "b", long + "b"} {
			log.wait(q, throttle.WithFlow(ctx, flow), 0)
		}
		got, sum := q.Stats().Flows, 0
		for name, n := range got {
			if sum += n; len(name) > 256 {
				t.Errorf("a name of %d bytes", len(name))
			}
		}
		if len(got) != 101 || sum != 154 || got[""] != 1 || got["_other"] != 53 || slices.Max(slices.Collect(maps.Values(got))) != 53 {
			t.Errorf("%d flows with %d calls in all: %v", len(got), sum, got)
		}
		cancel()
		log.wg.Wait()
		conserved(t, q)
	})
}

// muteSDK makes a call as SDKs do that lose errors: when its ctx has ended it returns ctx.Err() alone, and otherwise words of its own.
func muteSDK(ctx context.Context, client *http.Client, url string) error {
	resp, err := client.Do(request(ctx, "GET", url))
	if err == nil {
		err = resp.Body.Close()
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return errors.New("sdk: no answer")
	case resp.StatusCode != 200:
		return fmt.Errorf("sdk: %s", resp.Status)
	}
	return nil
}

// Whatever an SDK returns, the error names this package if it was this package that let the call wait, refused it, or did not
// retry it; otherwise it stays as it is.
func TestWithError(t *testing.T) {
	const paused = "gate:paused"
	backoff := func() throttle.Backoff { return constant(0) }
	for name, c := range map[string]struct {
		answer  func(n int, req *http.Request) (*http.Response, error) // nil: 200
		pause   string                                                 // this host
		before  bool                                                   // another call is under way
		retry   throttle.Retry
		queue   throttle.QueueOptions
		timeout time.Duration // of http.Client
		ends    time.Duration // of ctx, cancelled
		want    throttle.Error
		is      error // of the SDK
	}{
		"all is well":        {},
		"cancelled in line":  {pause: "x", ends: time.Second, want: throttle.Error{Key: "x", Reason: paused, Err: context.Canceled}, is: context.Canceled},
		"a client's timeout": {pause: "x", timeout: time.Second, want: throttle.Error{Key: "x", Reason: paused, Err: throttle.ErrWaitTooLong}},
		"a client's timeout in line": {answer: hangs, before: true, queue: throttle.QueueOptions{MaxInFlight: 1}, timeout: time.Second,
			want: throttle.Error{Key: "x", Reason: "slot", Err: context.DeadlineExceeded}},
		"refused": {pause: "x", queue: throttle.QueueOptions{MaxWait: 1}, want: throttle.Error{Key: "x", Reason: paused, Err: throttle.ErrWaitTooLong}},
		"a redirect waits": {pause: "y", ends: time.Second, answer: always(302, "Location", "http://y/"),
			want: throttle.Error{Key: "y", Reason: paused, Err: context.Canceled}, is: context.Canceled},
		"a retry waits": {answer: always(429, "Retry-After", "50"), ends: time.Second,
			want: throttle.Error{Key: "x", Reason: "gate:retry-after", Attempts: 1, Err: context.Canceled}, is: context.Canceled},
		"no budget": {answer: func(int, *http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
			retry: throttle.Retry{Backoff: backoff, Budget: throttle.Budget{PerCall: 0.1, Max: 0.1}},
			want:  throttle.Error{Key: "x", Attempts: 1, Err: throttle.ErrRetryBudget}},
		"all attempts made": {answer: always(503), retry: throttle.Retry{Backoff: backoff, MaxAttempts: 2},
			want: throttle.Error{Key: "x", Attempts: 2, Err: throttle.ErrMaxAttempts}},
		"not found":             {answer: always(404)},
		"no answer":             {answer: func(int, *http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }, retry: throttle.Retry{MaxAttempts: 1}},
		"cancelled under way":   {answer: hangs, ends: time.Second, is: context.Canceled},
		"a timeout under way":   {answer: hangs, timeout: time.Second},
		"under way once more":   {answer: hangsLater, ends: time.Minute, retry: throttle.Retry{Backoff: backoff}, is: context.Canceled},
		"an earlier one waited": {pause: "earlier", answer: always(404)},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(0, always(200))
			if c.answer != nil {
				up.answer = c.answer
			}
			tr := &throttle.Transport{Base: up, Retry: c.retry, Queue: c.queue}
			tr.Pause(c.pause, time.Hour*time.Duration(min(1, len(c.pause))))
			ctx, explain := throttle.WithError(t.Context())
			if c.pause == "earlier" {
				early, cancel := context.WithTimeout(ctx, time.Second)
				muteSDK(early, &http.Client{Transport: tr}, "http://earlier/")
				cancel()
			}
			if c.before {
				go muteSDK(t.Context(), &http.Client{Transport: tr, Timeout: time.Hour}, "http://x/")
				synctest.Wait()
			}
			if c.ends > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithCancel(ctx)
				time.AfterFunc(c.ends, cancel)
			}
			plain := muteSDK(ctx, &http.Client{Transport: tr, Timeout: c.timeout}, "http://x/")
			err := explain(plain)
			if c.want.Key == "" {
				if err != plain || (err != nil) != (name != "all is well") {
					t.Errorf("%s: %v, want it as it was, %v", name, err, plain)
				}
				return
			}
			var e *throttle.Error
			if !errors.As(err, &e) || e.Key != c.want.Key || e.Reason != c.want.Reason || e.Attempts != c.want.Attempts || !errors.Is(e, c.want.Err) {
				t.Errorf("%s: %v, %+v, want %+v", name, err, e, c.want)
			}
			if !errors.Is(err, plain) || c.is != nil && !errors.Is(plain, c.is) || !strings.HasPrefix(err.Error(), plain.Error()+": throttle: ") {
				t.Errorf("%s: %v, of %v", name, err, plain)
			}
			if again := explain(err); again != err {
				t.Errorf("%s: explained twice: %v", name, again)
			}
			if err := explain(nil); err != nil {
				t.Errorf("%s: nil is explained by %v", name, err)
			}
		})
	}
}

// hangs is an upstream that does not answer, and hangsLater one that fails at first.
func hangs(_ int, req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

func hangsLater(n int, req *http.Request) (*http.Response, error) {
	if n == 1 {
		return nil, io.ErrUnexpectedEOF
	}
	return hangs(n, req)
}

// An SDK may make several requests of one call at once.
func TestWithErrorOfSeveralRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{Base: newUpstream(0, always(200))}
		tr.Pause("x", time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		ctx, explain := throttle.WithError(ctx)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := explain(muteSDK(ctx, &http.Client{Transport: tr}, "http://x/")); !errors.As(err, new(*throttle.Error)) {
					t.Errorf("%v", err)
				}
			})
		}
		synctest.Wait()
		cancel()
		all.Wait()
	})
}
