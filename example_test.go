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
