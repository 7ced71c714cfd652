package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-throttle/throttle"
)

// api stands for an upstream: it refuses the requests whose numbers are given.
// Examples must not need a network.
func api(refuse ...int) http.RoundTripper {
	var mu sync.Mutex
	n := 0
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		n++
		resp := &http.Response{StatusCode: 200, Header: http.Header{}, Request: req, Body: io.NopCloser(strings.NewReader("hello"))}
		for _, r := range refuse {
			if r == n {
				resp.StatusCode = http.StatusTooManyRequests
				resp.Header.Set("Retry-After", "0.05")
			}
		}
		return resp, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A client whose calls share one limit. The second request is refused by the
// upstream; the Transport waits as long as it is told, and sends it again.
func ExampleTransport() {
	client := &http.Client{Transport: &throttle.Transport{
		Base:    api(2),
		Limiter: throttle.NewBucket(100, 10), // 100 a second, 10 at once
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

// One limit for each host, and one for all of them together.
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

// The wrong way, and the right one: a limiter that is made for each request
// has always its whole burst, and so limits nothing. The same holds for a
// Transport. Make both once, and share them.
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
	for range 5 { // wrong: one call in ten seconds?
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

// A Queue limits what is not HTTP.
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

// A closed gate stops everyone; a call that cannot wait so long is told so at once.
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

// A million tasks that wait need no million goroutines.
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

func ExampleBucket() {
	b := throttle.NewBucket(0.1, 3) // one unit in 10 seconds, 3 at once
	fmt.Println(b.Allow(), b.AllowN(2), b.Allow())
	wait, err := b.Take(context.Background(), 1)
	fmt.Println(wait.Round(time.Second), err)
	// Output:
	// true true false
	// 10s <nil>
}

// Units that were booked and are not needed go back, all of them.
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

// Two limits at once; nothing is taken from either while one refuses.
func ExampleAll() {
	perSecond, perDay := throttle.NewBucket(0.1, 1), throttle.NewSlidingWindow(1000, 24*time.Hour)
	both := throttle.All(perSecond, perDay)
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

// A call that cannot make its deadline fails at once, and says how long it would
// have waited.
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
			fmt.Println("ask again in", e.Wait.Round(time.Second), e.Timeout())
		}
	}
	// Output:
	// 200
	// ask again in 10s true
}

// Somebody waits for one task and not for the other.
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

// A call that counts for more than one unit.
func ExampleWithCost() {
	b := throttle.NewBucket(1, 10)
	q := throttle.NewQueue(b, throttle.QueueOptions{})
	fmt.Println(q.Wait(throttle.WithCost(context.Background(), 7)))
	fmt.Printf("%.0f left\n", b.Tokens())
	// Output:
	// <nil>
	// 3 left
}

// An upstream that says 200 and means "busy".
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

// The library never logs; Hooks say what it does. Two sets can be joined.
func ExampleHooks() {
	refused := 0
	count := throttle.Hooks{Throttled: func(context.Context, throttle.Event) { refused++ }}
	log := throttle.Hooks{
		Throttled: func(_ context.Context, e throttle.Event) {
			fmt.Printf("%q refused %s with %d, asks for %v\n", e.Key, e.Method, e.Status, e.Wait)
		},
		Retrying: func(_ context.Context, e throttle.Event) { fmt.Println("attempt", e.Attempt, "is not the last") },
	}
	client := &http.Client{Transport: &throttle.Transport{Base: api(1), Hooks: log.Join(count)}}
	resp, err := client.Get("http://api.example.com/")
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.StatusCode, refused)
	// Output:
	// "api.example.com" refused GET with 429, asks for 50ms
	// attempt 1 is not the last
	// 200 1
}
