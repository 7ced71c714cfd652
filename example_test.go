package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
)

// api returns a simulated upstream, because examples must not need a network. It throttles the requests
// whose numbers are given, counted from 1.
func api(throttle ...int) http.RoundTripper {
	var mu sync.Mutex
	n := 0
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		n++
		resp := &http.Response{StatusCode: 200, Header: http.Header{}, Request: req, Body: io.NopCloser(strings.NewReader("hello"))}
		for _, t := range throttle {
			if t == n {
				resp.StatusCode = http.StatusTooManyRequests
				resp.Header.Set("Retry-After", "0.05")
			}
		}
		return resp, nil
	})
}

// inVirtualTime runs an example in a bubble of testing/synctest, where hours take no time.
func inVirtualTime(example func()) {
	synctest.Test(new(testing.T), func(*testing.T) { example() })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// All calls of a client share one limit. The upstream throttles the second request. The Transport waits for
// its Retry-After and sends it again.
func ExampleTransport() {
	client := &http.Client{Transport: &throttle.Transport{
		Base:    api(2),
		Limiter: throttle.NewBucket(100, 10), // 100 a second, and 10 more in a burst
	}}
	for range 3 {
		resp, err := client.Get("http://api.example.com/")
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Println(resp.StatusCode, string(body))
	}
	// Output:
	// 200 hello
	// 200 hello
	// 200 hello
}

// Each host has a limit of its own, and all of them together have another one.
func ExampleTransport_perHost() {
	t := &throttle.Transport{
		Base:    api(),
		Limiter: throttle.NewBucket(1000, 100),
		LimiterFor: func(host string) throttle.Limiter {
			if host == "slow.example.com" {
				return throttle.NewLeaky(1)
			}
			return throttle.NewBucket(100, 10)
		},
	}
	client := &http.Client{Transport: t}
	for _, url := range []string{"http://fast.example.com/", "http://slow.example.com/"} {
		resp, err := client.Get(url)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
	}
	limits := map[string]any{}
	for s := range t.Stats() {
		limits[s.Key] = s.Limit
	}
	fmt.Println(limits)
	// Output: map[fast.example.com:100 slow.example.com:1]
}

// The wrong way first: a Transport and a Limiter that are made for each request always have their whole
// burst, and so limit nothing. Make both once and share them.
func ExampleTransport_wrong() {
	send := func(tr http.RoundTripper) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://api.example.com/", nil)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	base := api()

	sent := 0
	for range 5 { // wrong: the limit is one call in ten seconds
		t := &throttle.Transport{Base: base, Limiter: throttle.NewBucket(0.1, 1)}
		if send(t) == nil {
			sent++
		}
	}
	fmt.Println("a Transport per request lets", sent, "through")

	sent = 0
	t := &throttle.Transport{Base: base, Limiter: throttle.NewBucket(0.1, 1)}
	for range 5 {
		if send(t) == nil {
			sent++
		}
	}
	fmt.Println("a shared one lets", sent, "through")
	// Output:
	// a Transport per request lets 5 through
	// a shared one lets 1 through
}

// Why does a call wait, until when, and how full are the limits? Ten calls come at once: the bucket has four units, the day
// has 100.
func ExampleTransport_Explain() {
	inVirtualTime(func() {
		t := &throttle.Transport{
			Base:       api(),
			Limiter:    throttle.NewFixedWindow(100, 24*time.Hour),
			LimiterFor: func(host string) throttle.Limiter { return throttle.NewBucket(1, 4) },
		}
		client := &http.Client{Transport: t}
		var calls sync.WaitGroup
		for range 10 {
			calls.Go(func() { client.Get("http://api.example.com/") })
		}
		time.Sleep(2500 * time.Millisecond)
		s, _ := t.Explain("api.example.com")
		fmt.Printf("%d calls wait for %q, the first one for %v more\n", s.Waiting, s.Reason, time.Until(s.Until))
		for _, l := range s.Limits {
			fmt.Printf("%s: %.1f of %.0f are ready, %d taken\n", l.Reason, l.Available, l.Size, l.Taken)
		}
		calls.Wait()
	})
	// Output:
	// 4 calls wait for "limit", the first one for 500ms more
	// limit: 0.5 of 4 are ready, 6 taken
	// limit:shared: 94.0 of 100 are ready, 6 taken
}

// A call that cannot start before its deadline fails at once. Its error says how long it would have waited.
func ExampleError() {
	client := &http.Client{
		Timeout:   time.Second, // includes the wait
		Transport: &throttle.Transport{Base: api(), Limiter: throttle.NewBucket(0.1, 1)},
	}
	for range 2 {
		resp, err := client.Get("http://api.example.com/")
		var e *throttle.Error
		switch {
		case err == nil:
			resp.Body.Close()
			fmt.Println(resp.StatusCode)
		case errors.Is(err, throttle.ErrQueueFull):
			fmt.Println("shed load")
		case errors.As(err, &e):
			fmt.Println("call again in", e.Wait.Round(time.Second), e.Timeout())
		}
	}
	// Output:
	// 200
	// call again in 10s true
}

// This upstream sends a 200 when it is busy. Check asks for another attempt then.
func ExampleRetry_check() {
	base := roundTripper(func() func(*http.Request) (*http.Response, error) {
		n := 0
		return func(req *http.Request) (*http.Response, error) {
			n++
			resp := &http.Response{StatusCode: 200, Header: http.Header{}, Request: req, Body: http.NoBody}
			if n == 1 {
				resp.Header.Set("X-Status", "busy")
			}
			fmt.Println("attempt", n)
			return resp, nil
		}
	}())
	client := &http.Client{Transport: &throttle.Transport{Base: base, Retry: throttle.Retry{
		Backoff: func() throttle.Backoff { return every(time.Millisecond) },
		Check: func(_ *http.Request, resp *http.Response, _ error) throttle.Verdict {
			if resp != nil && resp.Header.Get("X-Status") == "busy" {
				return throttle.Again
			}
			return throttle.Default
		},
	}}}
	resp, err := client.Get("http://api.example.com/")
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.StatusCode, resp.Header.Get("X-Status"))
	// Output:
	// attempt 1
	// attempt 2
	// 200
}

// every is the simplest Backoff.
type every time.Duration

func (e every) NextBackOff() time.Duration { return time.Duration(e) }

// The library never logs. Hooks see what it does, and Join combines two sets of them.
func ExampleHooks() {
	throttled := 0
	count := throttle.Hooks{Throttled: func(context.Context, throttle.Event) { throttled++ }}
	log := throttle.Hooks{
		Throttled: func(_ context.Context, e throttle.Event) {
			fmt.Printf("%q throttled a %s with a %d and asks for %v\n", e.Key, e.Method, e.Status, e.Wait)
		},
		Retrying: func(_ context.Context, e throttle.Event) { fmt.Println("another attempt follows attempt", e.Attempt) },
	}
	client := &http.Client{Transport: &throttle.Transport{Base: api(1), Hooks: log.Join(count)}}
	resp, err := client.Get("http://api.example.com/")
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.StatusCode, throttled)
	// Output:
	// "api.example.com" throttled a GET with a 429 and asks for 50ms
	// another attempt follows attempt 1
	// 200 1
}

func ExampleBucket() {
	b := throttle.NewBucket(0.1, 3) // one unit in 10 seconds, and 3 at the start
	fmt.Println(b.Allow(), b.AllowN(2), b.Allow())
	wait, err := b.Take(context.Background(), 1)
	fmt.Println(wait.Round(time.Second), err)
	// Output:
	// true true false
	// 10s <nil>
}

// Wait takes the place of rate.Limiter's. Callers go in order, and one who leaves costs nothing. A caller who
// cannot start before the deadline learns at once how long it would take.
func ExampleBucket_Wait() {
	b := throttle.NewBucket(0.1, 2)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for range 3 {
		err := b.Wait(ctx)
		var e *throttle.Error
		if errors.As(err, &e) {
			fmt.Println("would take", e.Wait.Round(time.Second))
			continue
		}
		fmt.Println("go", err)
	}
	// Output:
	// go <nil>
	// go <nil>
	// would take 10s
}

// Cancel gives back all units of a reservation that is not needed.
func ExampleBucket_Reserve() {
	b := throttle.NewBucket(1, 1)
	first, second := b.Reserve(1), b.Reserve(5)
	fmt.Println(first.Delay(), second.Delay().Round(time.Second))
	second.Cancel()
	fmt.Println(b.Reserve(1).Delay().Round(time.Second))
	// Output:
	// 0s 1s
	// 1s
}

// A Leaky has no burst: units start one interval apart.
func ExampleLeaky() {
	l := throttle.NewLeaky(0.1)
	for range 2 {
		wait, _ := l.Take(context.Background(), 1)
		fmt.Println(wait.Round(time.Second))
	}
	// Output:
	// 0s
	// 10s
}

func ExampleFixedWindow() {
	w := throttle.NewFixedWindow(2, time.Hour) // the hour starts with the first unit
	for range 3 {
		wait, _ := w.Take(context.Background(), 1)
		fmt.Println(wait.Round(time.Minute))
	}
	// Output:
	// 0s
	// 0s
	// 1h0m0s
}

func ExampleSlidingWindow() {
	w := throttle.NewSlidingWindow(2, time.Hour) // at most 2 in any hour
	for range 3 {
		wait, _ := w.Take(context.Background(), 1)
		fmt.Println(wait.Round(time.Minute))
	}
	// Output:
	// 0s
	// 0s
	// 1h0m0s
}

// Two limits hold at once. Nothing is taken from either while one of them asks for a wait.
func ExampleAll() {
	even, perHour := throttle.NewBucket(0.1, 1), throttle.NewSlidingWindow(300, time.Hour)
	both := throttle.All(even, perHour)
	for range 2 {
		wait, err := both.Take(context.Background(), 1)
		fmt.Println(wait.Round(time.Second), err)
	}
	// Output:
	// 0s <nil>
	// 10s <nil>
}

func ExampleParseLimit() {
	for _, s := range []string{"10/s", "100/1m burst 20", "5000/h sliding", "100/s window", "5/s even", "ten/s"} {
		l, err := throttle.ParseLimit(s)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%T\n", l)
	}
	// Output:
	// *throttle.Bucket
	// *throttle.Bucket
	// *throttle.SlidingWindow
	// *throttle.FixedWindow
	// *throttle.Leaky
	// throttle: ParseLimit("ten/s"): units "ten" is not a plain number above 0
}

// A Queue limits jobs that are not HTTP.
func ExampleQueue() {
	q := throttle.NewQueue(throttle.NewBucket(100, 1), throttle.QueueOptions{MaxInFlight: 2})
	for i := range 3 {
		err := q.Do(context.Background(), func(context.Context) error {
			fmt.Println("job", i)
			return nil
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// job 0
	// job 1
	// job 2
}

// A closed gate stops all calls. One that may not wait so long fails at once.
func ExampleQueue_Pause() {
	q := throttle.NewQueue(throttle.NewBucket(100, 1), throttle.QueueOptions{MaxWait: time.Second})
	q.Pause(time.Hour)
	fmt.Println(errors.Is(q.Wait(context.Background()), throttle.ErrWaitTooLong))
	q.Resume()
	fmt.Println(q.Wait(context.Background()))
	// Output:
	// true
	// <nil>
}

// A task has a goroutine only while it runs, so a million waiting tasks need no million goroutines.
func ExampleGroup() {
	ctx := context.Background()
	g, ctx := throttle.NewGroup(ctx, throttle.NewQueue(throttle.NewLeaky(1000), throttle.QueueOptions{MaxInFlight: 1}))
	sum := 0
	for i := range 10 {
		g.Go(ctx, func(context.Context) error {
			sum += i // MaxInFlight is 1
			return nil
		})
	}
	fmt.Println(g.Wait(), sum)
	// Output: <nil> 45
}

// A user waits for the page and nobody for the report. So the page goes first, though it was added second.
func ExampleWithPriority() {
	q := throttle.NewQueue(throttle.NewBucket(1000, 1), throttle.QueueOptions{MaxInFlight: 1})
	q.Pause(time.Hour) // so that both are in line
	g, ctx := throttle.NewGroup(context.Background(), q)
	task := func(name string) func(context.Context) error {
		return func(context.Context) error {
			fmt.Println(name)
			return nil
		}
	}
	g.Go(ctx, task("nightly report"))
	g.Go(throttle.WithPriority(ctx, 1), task("a user's page"))
	q.Resume()
	fmt.Println(g.Wait())
	// Output:
	// a user's page
	// nightly report
	// <nil>
}

// This call costs seven units.
func ExampleWithCost() {
	b := throttle.NewBucket(1, 10)
	q := throttle.NewQueue(b, throttle.QueueOptions{})
	fmt.Println(q.Wait(throttle.WithCost(context.Background(), 7)))
	fmt.Printf("%.0f left\n", b.Tokens())
	// Output:
	// <nil>
	// 3 left
}

// Many SDKs return the error of a ctx that has ended, and nothing of why the call has waited. WithError finds that.
func ExampleWithError() {
	inVirtualTime(func() {
		t := &throttle.Transport{Base: api()}
		client := &http.Client{Transport: t}
		sdk := func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, "GET", "http://api.example.com/", nil)
			if err != nil {
				return err
			}
			if _, err = client.Do(req); ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
		t.Pause("api.example.com", time.Hour)
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, cancel)

		ctx, explain := throttle.WithError(ctx)
		err := explain(sdk(ctx))
		fmt.Println(err)
		var e *throttle.Error
		if errors.As(err, &e) {
			fmt.Println(e.Key, "held by", e.Reason)
		}
	})
	// Output:
	// context canceled: throttle: "api.example.com": context canceled
	// api.example.com held by gate:paused
}
