package throttletest_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttletest"
)

// A Server takes the place of http.DefaultTransport. The Ledger says what came to it.
func Example() {
	upstream := throttletest.NewServer(throttletest.Limit{N: 2, Per: time.Hour})
	upstream.RetryAfter = throttletest.Exact
	client := &http.Client{Transport: upstream}
	for range 3 {
		resp, err := client.Get(upstream.URL())
		if err != nil {
			panic(err)
		}
		resp.Body.Close()
		fmt.Println(resp.Status, resp.Header["Retry-After"])
	}
	fmt.Printf("%+v\n", upstream.Ledger().Tally())
	// Output:
	// 200 OK []
	// 200 OK []
	// 429 Too Many Requests [1800]
	// {Admitted:2 Throttled:1 Failed:0}
}

// In a testing/synctest bubble, half a minute with an outage takes no time at all, and comes out the same each time.
func Example_virtualTime() {
	test := func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			upstream := throttletest.NewServer(throttletest.Limit{N: 10, Burst: 1})
			upstream.Latency = throttletest.Span{Min: 20 * time.Millisecond}
			upstream.Faults = []throttletest.Fault{{From: 5 * time.Second, To: 15 * time.Second}}
			client := &http.Client{Transport: &throttle.Transport{Base: upstream, Limiter: throttle.NewBucket(10, 1),
				Retry: throttle.Retry{MaxAttempts: 8}}} // with 4 a call may spend all of them before the gate closes

			var calls sync.WaitGroup
			for range 200 {
				calls.Go(func() {
					resp, err := client.Get(upstream.URL())
					if err != nil {
						t.Error(err)
						return
					}
					resp.Body.Close()
				})
			}
			calls.Wait()

			ledger := upstream.Ledger()
			fmt.Println("admitted:", ledger.Tally().Admitted)
			fmt.Println("throttled:", ledger.Tally().Throttled)
			fmt.Println("at most in any second:", ledger.Peak(time.Second))
			fmt.Println("gave the outage a rest:", ledger.Tally().Failed < 50)
		})
	}
	run(test)
	// Output:
	// admitted: 200
	// throttled: 0
	// at most in any second: 10
	// gave the outage a rest: true
}

// Over a socket it serves in real time, to whatever speaks HTTP.
func ExampleServer_Start() {
	upstream := throttletest.NewServer(throttletest.Limit{Name: "api", N: 100, Per: time.Minute})
	upstream.Advertise.Dialect = throttletest.Draft08
	upstream.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello from %s", r.URL.Path)
	})
	if err := upstream.Start(); err != nil {
		panic(err)
	}
	defer upstream.Close()

	resp, err := http.Get(upstream.URL() + "/v1/things")
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	fmt.Println(resp.Header.Get("RateLimit-Policy"))
	fmt.Println(resp.Header.Get("RateLimit"))
	// Output:
	// 200 OK
	// "api";q=100;w=60
	// "api";r=99;t=1
}

// Limits hold together, each for some requests, for each key by itself, and in units of its own.
func ExampleLimit() {
	key := func(r *http.Request) string { return r.Header.Get("Authorization") }
	upstream := throttletest.NewServer(
		throttletest.Limit{Kind: throttletest.Fixed, N: 3, Per: time.Minute, Key: key},
		throttletest.Limit{Kind: throttletest.Sliding, N: 100, Per: time.Minute, Cost: func(r *http.Request) int { return int(r.ContentLength) }},
		throttletest.Limit{Kind: throttletest.InFlight, N: 1},
	)
	send := func(credential string) {
		req, err := http.NewRequest("GET", upstream.URL(), nil)
		if err != nil {
			panic(err)
		}
		req.Header.Set("Authorization", credential)
		resp, err := upstream.RoundTrip(req)
		if err != nil {
			panic(err)
		}
		fmt.Println(credential, resp.StatusCode)
	}
	for range 4 {
		send("a")
	}
	send("b")
	// Output:
	// a 200
	// a 200
	// a 200
	// a 429
	// b 200
}

// A pool of two connections answers the third request when one of them is free.
func ExampleService() {
	run(func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			upstream := throttletest.NewServer()
			upstream.Handler = &throttletest.Service{Workers: 2, Work: throttletest.Span{Min: time.Second}}
			client := &http.Client{Transport: upstream}
			var calls sync.WaitGroup
			for range 3 {
				calls.Go(func() {
					resp, err := client.Get(upstream.URL())
					if err != nil {
						t.Error(err)
						return
					}
					resp.Body.Close()
					fmt.Println(upstream.Elapsed())
				})
			}
			calls.Wait()
		})
	})
	// Output:
	// 1s
	// 1s
	// 2s
}
