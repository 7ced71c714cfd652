package throttle_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
)

func TestErrorText(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		e    throttle.Error
		want string
	}{
		{throttle.Error{Key: "x", Wait: 3 * time.Second, Attempts: 2, Err: throttle.ErrQueueFull}, `throttle: "x": queue full (predicted wait 3s, 2 attempts sent)`},
		{throttle.Error{Key: "x", Attempts: 1, Err: throttle.ErrRetryBudget}, `throttle: "x": retry budget spent (1 attempt sent)`},
		{throttle.Error{Wait: 90 * ms, Err: throttle.ErrWaitTooLong}, `throttle: wait too long (predicted wait 90ms)`},
		{throttle.Error{Key: "a\n", Err: throttle.ErrPaused}, `throttle: "a\n": upstream paused`},
		{throttle.Error{Key: "x", Err: context.Canceled}, `throttle: "x": context canceled`},
		{throttle.Error{Err: errors.New("store: down")}, `throttle: store: down`},
		{throttle.Error{Key: "x", Wait: time.Hour + 2*time.Second + 345*ms, Err: throttle.ErrPaused}, `throttle: "x": upstream paused (predicted wait 1h0m2s)`},
		{throttle.Error{}, `throttle: call ended`},
	} {
		if got := c.e.Error(); got != c.want {
			t.Errorf("%#v:\n got %s\nwant %s", c.e, got, c.want)
		}
	}
	for wait, want := range map[time.Duration]string{
		1: "1ns", 999: "999ns", 1234: "1.2µs", 123456: "123µs", 1234567: "1.2ms", 12345678: "12ms", 999999999: "1s",
		1234567890: "1.2s", 9999999999: "10s", 12345678901: "12s", -1: "", math.MaxInt64: "2562047h47m16.854775807s",
	} {
		e := throttle.Error{Wait: wait, Err: throttle.ErrWaitTooLong}
		text := "throttle: wait too long"
		if want != "" {
			text += fmt.Sprintf(" (predicted wait %s)", want)
		}
		if got := e.Error(); got != text {
			t.Errorf("%d ns: %s, want %s", wait, got, text)
		}
	}
}

// The sentinels match through an Error, and a deadline that cannot be met matches both of its names.
func TestErrorMatches(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	b := throttle.NewBucket(0.0001, 1)
	b.Allow()
	err := throttle.NewQueue(b, throttle.QueueOptions{}).Wait(ctx)
	var e *throttle.Error
	if !errors.As(err, &e) || !e.Timeout() || !errors.Is(err, throttle.ErrWaitTooLong) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if want := `throttle: too little time before the caller's deadline (predicted wait 2h46m40s)`; fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
	err = throttle.NewQueue(b, throttle.QueueOptions{MaxWait: time.Second}).Wait(t.Context())
	if !errors.As(err, &e) || e.Timeout() || !errors.Is(err, throttle.ErrWaitTooLong) {
		t.Errorf("got %v", err)
	}
}

func TestErrorWithoutReason(t *testing.T) {
	e := &throttle.Error{Key: "a.test"}
	if got, want := e.Error(), `throttle: "a.test": call ended`; got != want || e.Timeout() {
		t.Errorf("%s, timeout %v", got, e.Timeout())
	}
}

// The text of a refusal for want of time to answer names a wait of 100 ms and says that it would outlast a
// deadline that is a second away.
func TestHostileTextOfARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(throttle.NewBucket(10, 1), throttle.QueueOptions{})
		for range 20 {
			q.Do(t.Context(), func(context.Context) error { time.Sleep(3 * time.Second); return nil })
		}
		for range 5 { // somebody waits
			go q.Wait(t.Context())
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := q.Do(ctx, func(context.Context) error { return nil })
		if err == nil || strings.Contains(err.Error(), "the wait would outlast the caller's deadline") {
			t.Errorf("%v, a second before the deadline", err)
		}
	})
}

// A herd is jobs that call a Transport until they succeed, each again after the Wait of its error.
type herd struct {
	name    string
	jobs    int
	limiter func() throttle.Limiter // nil: none
	queue   throttle.QueueOptions
	retry   throttle.Retry
	down    time.Duration // the upstream fails before that
	answer  func(since time.Duration, req *http.Request) *http.Response
	ctx     func(ctx context.Context, job int) (context.Context, context.CancelFunc)
	url     func(job int) string
	apart   time.Duration // the jobs begin
	trip    time.Duration // 0: 10 ms

	calls int           // RoundTrips at most
	took  time.Duration // until the last has succeeded, at most
}

// run returns the calls of all jobs, and when the last one succeeded. After an answer without a Wait a job calls again at once.
func (h *herd) run(t *testing.T) (calls int, took time.Duration) {
	start := time.Now()
	base := newUpstream(cmp.Or(h.trip, 10*ms), func(_ int, req *http.Request) (*http.Response, error) {
		if h.answer != nil {
			return h.answer(time.Since(start), req), nil
		}
		if time.Since(start) < h.down {
			return reply(req, 503), nil
		}
		return reply(req, 200), nil
	})
	tr := &throttle.Transport{Base: base, Queue: h.queue, Retry: h.retry}
	if h.limiter != nil {
		tr.Limiter = h.limiter()
	}
	var n atomic.Int64
	var wg sync.WaitGroup
	for i := range h.jobs {
		wg.Go(func() {
			time.Sleep(time.Duration(i) * h.apart)
			url := "http://a/"
			if h.url != nil {
				url = h.url(i)
			}
			for {
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if h.ctx != nil {
					ctx, cancel = h.ctx(ctx, i)
				}
				n.Add(1)
				code, err := status(tr, ctx, url)
				cancel()
				var e *throttle.Error
				switch {
				case code == 200:
					return
				case errors.As(err, &e) && e.Wait > 0:
					time.Sleep(e.Wait)
				}
			}
		})
	}
	wg.Wait()
	return int(n.Load()), time.Since(start)
}

// TestEachIsAskedBackAtATimeOfItsOwn: jobs that are refused and call again after Error.Wait make few calls, and are served
// about as fast as the limit allows.
func TestEachIsAskedBackAtATimeOfItsOwn(t *testing.T) {
	tenASecond := func() throttle.Limiter { return throttle.NewBucket(10, 1) }
	timeout := func(d time.Duration) func(context.Context, int) (context.Context, context.CancelFunc) {
		return func(ctx context.Context, _ int) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, d)
		}
	}
	maxWait := throttle.QueueOptions{MaxWait: 5 * sec}
	outage := throttle.Retry{MaxPause: sec, MaxAttempts: 1}
	for _, h := range []herd{
		{name: "10 a second", jobs: 1000, limiter: tenASecond, queue: maxWait, calls: 2000, took: 105 * sec},
		{name: "begun in 2 s", jobs: 1000, limiter: tenASecond, queue: maxWait, apart: 2 * ms, calls: 3000, took: 110 * sec},
		{name: "begun in 20 s", jobs: 1000, limiter: tenASecond, queue: maxWait, apart: 20 * ms, calls: 3000, took: 110 * sec},
		{name: "1 job", jobs: 1, limiter: tenASecond, queue: maxWait, calls: 1, took: sec},
		{name: "4 jobs", jobs: 4, limiter: tenASecond, queue: throttle.QueueOptions{MaxWait: 50 * ms}, calls: 8, took: sec},
		{name: "a window", jobs: 1000, limiter: func() throttle.Limiter { return throttle.NewFixedWindow(10, sec) }, queue: maxWait, calls: 3000, took: 110 * sec},
		{name: "a sliding window", jobs: 1000, limiter: func() throttle.Limiter { return throttle.NewSlidingWindow(10, sec) }, queue: maxWait, calls: 3000, took: 110 * sec},
		{name: "100 a minute", jobs: 1000, limiter: func() throttle.Limiter { return throttle.NewFixedWindow(100, time.Minute) }, queue: maxWait, calls: 4000, took: 660 * sec},
		{name: "a burst", jobs: 1000, limiter: func() throttle.Limiter { return throttle.NewBucket(10, 100) }, queue: maxWait, calls: 3000, took: 110 * sec},
		{name: "two limits", jobs: 1000, limiter: func() throttle.Limiter {
			return throttle.All(throttle.NewBucket(20, 5), throttle.NewFixedWindow(100, 10*sec))
		}, queue: maxWait, calls: 3000, took: 110 * sec},
		{name: "costs", jobs: 1000, limiter: tenASecond, queue: maxWait, calls: 3000, took: 330 * sec,
			ctx: func(ctx context.Context, job int) (context.Context, context.CancelFunc) {
				return throttle.WithCost(ctx, 1+job%5), func() {}
			}},
		{name: "3 flows", jobs: 1000, limiter: tenASecond, queue: maxWait, calls: 3000, took: 110 * sec,
			ctx: func(ctx context.Context, job int) (context.Context, context.CancelFunc) {
				return throttle.WithFlow(ctx, fmt.Sprint(job%3)), func() {}
			}},
		{name: "20 flows, one after the other", jobs: 1000, limiter: tenASecond, queue: throttle.QueueOptions{MaxWaiting: 50}, calls: 4000, took: 140 * sec,
			ctx: func(ctx context.Context, job int) (context.Context, context.CancelFunc) {
				return throttle.WithFlow(ctx, fmt.Sprint(job/50)), func() {}
			}},
		{name: "priorities", jobs: 1000, limiter: tenASecond, queue: maxWait, calls: 3000, took: 125 * sec,
			ctx: func(ctx context.Context, job int) (context.Context, context.CancelFunc) {
				return throttle.WithPriority(ctx, job%2), func() {}
			}},
		{name: "10 keys", jobs: 1000, limiter: tenASecond, queue: maxWait, calls: 3000, took: 110 * sec,
			url: func(job int) string { return fmt.Sprintf("http://h%d/", job%10) }},
		{name: "a full queue", jobs: 1000, limiter: tenASecond, queue: throttle.QueueOptions{MaxWaiting: 50}, calls: 3000, took: 110 * sec},
		{name: "deadlines", jobs: 1000, limiter: tenASecond, calls: 3000, took: 110 * sec, ctx: timeout(5 * sec)},
		{name: "WithMaxWait", jobs: 1000, limiter: tenASecond, calls: 3000, took: 110 * sec,
			ctx: func(ctx context.Context, job int) (context.Context, context.CancelFunc) {
				return throttle.WithMaxWait(ctx, -1), func() {}
			}},
		{name: "slots", jobs: 1000, queue: throttle.QueueOptions{MaxInFlight: 4, MaxWaiting: 50}, trip: 400 * ms, calls: 4000, took: 110 * sec},
		{name: "slots, WithMaxWait", jobs: 100, queue: throttle.QueueOptions{MaxInFlight: 4}, trip: 400 * ms, calls: 400, took: 18 * sec,
			ctx: func(ctx context.Context, job int) (context.Context, context.CancelFunc) {
				return throttle.WithMaxWait(ctx, sec), func() {}
			}},
		{name: "an outage, 10 a second", jobs: 1000, limiter: tenASecond, retry: outage, down: 600 * sec, calls: 20000, took: 770 * sec},
		{name: "an outage", jobs: 1000, retry: outage, down: 600 * sec, calls: 60000, took: 680 * sec},
		// No limit is known, so what waits goes in a ramp that begins at 20/s and doubles each half second: 3.3 s.
		{name: "an outage of 5 s", jobs: 1000, retry: outage, down: 5 * sec, calls: 8000, took: 9 * sec},
		{name: "an outage of 60 s", jobs: 1000, retry: outage, down: 60 * sec, calls: 40000, took: 70 * sec},
		{name: "an outage, 1 job", jobs: 1, retry: outage, down: 600 * sec, calls: 1000, took: 680 * sec},
		{name: "an outage, 4 jobs", jobs: 4, retry: outage, down: 600 * sec, calls: 4000, took: 680 * sec},
		{name: "an advertised time, 10 a second", jobs: 1000, limiter: tenASecond, retry: outage, calls: 4000, took: 210 * sec, answer: until(100 * sec)},
		{name: "an advertised time", jobs: 1000, retry: outage, calls: 4000, took: 120 * sec, answer: until(100 * sec)},
	} {
		t.Run(h.name, func(t *testing.T) {
			if h.calls > 4000 {
				race.Long(t)
			}
			synctest.Test(t, func(t *testing.T) {
				calls, took := h.run(t)
				t.Logf("%6d calls, %7v", calls, took.Round(ms))
				if calls > h.calls || took > h.took {
					t.Errorf("%d calls in %v, want at most %d in %v", calls, took, h.calls, h.took)
				}
			})
		})
	}
}

// until answers with 429 and a Retry-After up to then.
func until(end time.Duration) func(time.Duration, *http.Request) *http.Response {
	return func(since time.Duration, req *http.Request) *http.Response {
		if since < end {
			return reply(req, 429, "Retry-After", fmt.Sprint(int(math.Ceil((end - since).Seconds()))))
		}
		return reply(req, 200)
	}
}

// TestPredictionOfARefusal: hooks and the text see the prediction, which is the same for all, and Wait is each call's own.
func TestPredictionOfARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var predicted []time.Duration
		tr := &throttle.Transport{Base: answers(200), Limiter: throttle.NewBucket(10, 1), Hooks: throttle.Hooks{
			Refused: func(_ context.Context, e throttle.Event) { predicted = append(predicted, e.Wait) },
		}}
		status(tr, t.Context(), "http://a/")
		for i := range 3 {
			_, err := status(tr, throttle.WithMaxWait(t.Context(), -1), "http://a/")
			var e *throttle.Error
			if want := time.Duration(i+1) * 100 * ms; !errors.As(err, &e) || e.Wait != want || !strings.Contains(err.Error(), "(predicted wait 100ms)") {
				t.Errorf("%v, want a Wait of %v", err, want)
			}
		}
		if fmt.Sprint(predicted) != "[100ms 100ms 100ms]" || tr.Predict("a", 1) != 100*ms {
			t.Errorf("the hook saw %v, Predict says %v", predicted, tr.Predict("a", 1))
		}
	})
}

// TestHerdBesideOthers: jobs that call again after Error.Wait are served in time beside those that do not: they give up, or
// call again at once.
func TestHerdBesideOthers(t *testing.T) {
	for name, other := range map[string]func(ctx context.Context, tr *throttle.Transport){
		"900 that give up": func(ctx context.Context, tr *throttle.Transport) {
			for range 900 {
				status(tr, throttle.WithMaxWait(ctx, -1), "http://a/")
			}
		},
		"a loop that calls at once": func(ctx context.Context, tr *throttle.Transport) {
			for ctx.Err() == nil {
				status(tr, throttle.WithMaxWait(ctx, -1), "http://a/")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				tr := &throttle.Transport{Base: answers(200), Limiter: throttle.NewBucket(10, 1), Queue: throttle.QueueOptions{MaxWait: 5 * sec}}
				ctx, cancel := context.WithTimeout(t.Context(), 3*sec)
				defer cancel()
				other(ctx, tr)
				var wg sync.WaitGroup
				var calls atomic.Int64
				for range 100 {
					wg.Go(func() {
						for {
							calls.Add(1)
							_, err := status(tr, t.Context(), "http://a/")
							var e *throttle.Error
							if !errors.As(err, &e) {
								return
							}
							time.Sleep(e.Wait)
						}
					})
				}
				wg.Wait()
				t.Logf("%d calls, %v", calls.Load(), time.Since(start))
				// as if those others were to come too, as far as they are not seen to be a loop
				if d := time.Since(start); d > 2*time.Minute || calls.Load() > 300 {
					t.Errorf("%d calls of 100 jobs, %v", calls.Load(), d)
				}
			})
		})
	}
}
