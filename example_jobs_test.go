package throttle_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/hint"
)

// Workers share an API that documents 10 requests a second and 300 a minute. It counts requests when they
// arrive, and they may arrive closer together than they were sent. So both windows are a little longer than
// documented.
func ExampleTransport_documentedLimits() {
	client := &http.Client{Transport: &throttle.Transport{
		Base: api(),
		Limiter: throttle.All(
			throttle.NewSlidingWindow(10, 1100*time.Millisecond),
			throttle.NewSlidingWindow(300, 61*time.Second),
		),
	}}
	start := time.Now()
	jobs := make(chan int)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for job := range jobs {
				resp, err := client.Get(fmt.Sprintf("http://api.example.com/%d", job))
				if err != nil {
					fmt.Println(err)
					continue
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	for job := range 15 {
		jobs <- job
	}
	close(jobs)
	workers.Wait()
	fmt.Println("the 11th request waited for its window:", time.Since(start) >= 1100*time.Millisecond)
	// Output: the 11th request waited for its window: true
}

// A few workers deliver to many hosts, and some of the hosts are down. No worker may wait long for one of
// those: a delivery that cannot go soon comes back with the time after which to try it again, for a queue
// that the program keeps.
func ExampleTransport_manyHosts() {
	client := &http.Client{Transport: &throttle.Transport{
		Base:       hooks(),
		LimiterFor: func(host string) throttle.Limiter { return throttle.NewBucket(20, 5) },
		Queue:      throttle.QueueOptions{MaxWait: time.Second, MaxWaiting: 4, MaxInFlight: 4}, // for each host
		Retry:      throttle.Retry{MaxAttempts: 1, MaxPause: time.Second},
	}}
	deliver := func(host, event string) (again time.Duration, err error) {
		req, err := http.NewRequest("POST", "http://"+host+"/", strings.NewReader(event))
		if err != nil {
			return 0, err
		}
		const unknown = 10 * time.Second // if nothing says how long; let it grow with the attempts
		resp, err := client.Do(req)
		var e *throttle.Error
		switch {
		case errors.As(err, &e): // this side has refused it
			return cmp.Or(e.Wait, unknown), err
		case err != nil:
			return unknown, err
		}
		defer resp.Body.Close()
		if resp.StatusCode >= 300 {
			return cmp.Or(hint.Parse(resp, time.Now()).RetryAfter, unknown), errors.New(resp.Status)
		}
		return 0, nil
	}
	for _, host := range []string{"busy.example.com", "busy.example.com", "idle.example.com"} {
		again, err := deliver(host, "{}")
		switch {
		case errors.Is(err, throttle.ErrPaused):
			fmt.Println(host, "is left alone for", again.Round(time.Minute))
		case err != nil:
			fmt.Println(host, "says", err, "and asks for", again)
		default:
			fmt.Println(host, "has it")
		}
	}
	// Output:
	// busy.example.com says 429 Too Many Requests and asks for 2m0s
	// busy.example.com is left alone for 2m0s
	// idle.example.com has it
}

// hooks returns many simulated hosts. One of them wants nothing for two minutes.
func hooks() http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.URL.Host != "busy.example.com" {
			return &http.Response{StatusCode: 204, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
		}
		header := http.Header{"Retry-After": {"120"}}
		return &http.Response{StatusCode: 429, Status: "429 Too Many Requests", Header: header, Body: http.NoBody, Request: req}, nil
	})
}

// perCall is a Bucket that counts calls: a call takes one unit, whatever its cost.
type perCall struct{ *throttle.Bucket }

func (p perCall) Take(ctx context.Context, n int) (time.Duration, error) {
	return p.Bucket.Take(ctx, min(n, 1))
}

func (p perCall) Adjust(n int) { p.Bucket.Adjust(max(-1, min(n, 1))) }

// estimate is the key of what a call is expected to cost.
type estimate struct{}

// Each API key has a limit of 60 requests and of 90,000 tokens a minute. How many tokens a call uses is known
// only from its response. So each attempt takes an estimate. What the upstream has throttled or failed to answer costs
// nothing there, so the hooks give the estimate back; the attempt that succeeds is corrected by its response.
func ExampleTransport_tokens() {
	inVirtualTime(func() {
		var mu sync.Mutex
		buckets := map[string]*throttle.Bucket{} // one for each API key
		tokens := func(key string) *throttle.Bucket {
			mu.Lock()
			defer mu.Unlock()
			if buckets[key] == nil {
				buckets[key] = throttle.NewBucket(90_000.0/60, 9_000)
			}
			return buckets[key]
		}
		giveBack := func(ctx context.Context, e throttle.Event) {
			tokens(e.Key).Adjust(-ctx.Value(estimate{}).(int))
		}
		client := &http.Client{Transport: &throttle.Transport{
			Base: api(2), // throttles the first attempt of sk-2
			Key:  throttle.ByCredential,
			LimiterFor: func(key string) throttle.Limiter {
				return throttle.All(perCall{throttle.NewBucket(1, 6)}, tokens(key))
			},
			Hooks: throttle.Hooks{Throttled: giveBack, Failed: giveBack},
		}}
		ask := func(apiKey, prompt string) error {
			expected := len(prompt)/4 + 500
			ctx := context.WithValue(context.Background(), estimate{}, expected)
			req, err := http.NewRequestWithContext(throttle.WithCost(ctx, expected), "POST", "http://llm.example.com/", strings.NewReader(prompt))
			if err != nil {
				return err
			}
			req.Header.Set("Authorization", "Bearer "+apiKey)
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			used := 2_000 // as the response says
			tokens(throttle.ByCredential(req)).Adjust(used - expected)
			return nil
		}
		fmt.Println(ask("sk-1", "Why is the sky blue?"), ask("sk-2", "And at night?"))
		for _, b := range buckets { // 7,000, and what was gained since
			fmt.Println("paid what it used:", 7_000 <= b.Tokens() && b.Tokens() < 7_200)
		}
	})
	// Output:
	// <nil> <nil>
	// paid what it used: true
	// paid what it used: true
}

// Each API key has a limit of its own. Keys appear in errors, Events and Stats, so ByHeader takes a hash of the
// header, never its value.
func ExampleByHeader() {
	t := &throttle.Transport{
		Base:       api(),
		Key:        throttle.ByHeader("X-Api-Key"),
		LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(10, 5) },
	}
	for _, key := range []string{"secret", "other", "secret"} {
		req, _ := http.NewRequest("GET", "http://api.example.com/", nil)
		req.Header.Set("X-Api-Key", key)
		resp, err := (&http.Client{Transport: t}).Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
	}
	for s := range t.Stats() {
		host, hash, _ := strings.Cut(s.Key, "#")
		fmt.Println(host, len(hash), strings.Contains(s.Key, "secret"), s.Sent)
	}
	// Unordered output:
	// api.example.com 16 false 2
	// api.example.com 16 false 1
}

// signed sets a credential, as oauth2.Transport does.
type signed struct{ base http.RoundTripper }

func (s signed) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer token")
	return s.base.RoundTrip(req)
}

// A Transport sees a request as those above it have made it. So whatever sets the credential belongs above
// the Transport.
func ExampleByCredential() {
	key := func(req *http.Request) string {
		k := throttle.ByCredential(req)
		_, hash, ok := strings.Cut(k, "#")
		fmt.Println("with credential:", ok, len(hash))
		return k
	}
	right := signed{&throttle.Transport{Base: api(), Key: key}}
	wrong := &throttle.Transport{Base: signed{api()}, Key: key}
	for _, t := range []http.RoundTripper{right, wrong} {
		resp, err := (&http.Client{Transport: t}).Get("http://api.example.com/")
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
	}
	// Output:
	// with credential: true 16
	// with credential: false 0
}

// A body that can be read only once is sent only once, and the caller gets the 429.
func ExampleRetry_body() {
	for _, body := range []io.Reader{
		io.MultiReader(strings.NewReader("once")), // http.NewRequest cannot set GetBody for it
		bytes.NewReader([]byte("again")),
	} {
		client := &http.Client{Transport: &throttle.Transport{Base: api(1)}}
		resp, err := client.Post("http://api.example.com/", "text/plain", body)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(resp.StatusCode)
	}
	// Output:
	// 429
	// 200
}

// Hooks write a log, and Stats has the counters.
func ExampleHooks_slog() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{} // otherwise the output would differ each time
			}
			return a
		},
	}))
	say := func(level slog.Level, msg string) func(context.Context, throttle.Event) {
		return func(ctx context.Context, e throttle.Event) {
			log.Log(ctx, level, msg, "key", e.Key, "status", e.Status, "attempt", e.Attempt, "err", e.Err)
		}
	}
	t := &throttle.Transport{Base: api(2), Hooks: throttle.Hooks{
		Throttled: say(slog.LevelWarn, "throttled by the upstream"),
		Failed:    say(slog.LevelWarn, "failed"),
		Refused:   say(slog.LevelError, "not sent"),
		Retrying:  say(slog.LevelDebug, "will be sent again"),
	}}
	client := &http.Client{Transport: t}
	for range 2 {
		resp, err := client.Get("http://api.example.com/")
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
	}
	for s := range t.Stats() {
		fmt.Printf("%s: sent %d, throttled %d, retried %d, waiting %d, closed: %q\n", s.Key, s.Sent, s.Throttled, s.Retried, s.Waiting, s.Cause)
	}
	// Output:
	// level=WARN msg="throttled by the upstream" key=api.example.com status=429 attempt=1 err=<nil>
	// api.example.com: sent 3, throttled 1, retried 1, waiting 0, closed: ""
}

// A limit is replaced while the program runs. Who waits is timed anew at once, and what was used stays used.
func ExampleLimiterVar() {
	inVirtualTime(func() {
		var limit throttle.LimiterVar
		limit.Set(throttle.NewFixedWindow(10, time.Hour))
		q := throttle.NewQueue(&limit, throttle.QueueOptions{})
		for range 10 {
			if err := q.Wait(context.Background()); err != nil {
				fmt.Println(err)
			}
		}
		fmt.Println("the eleventh waits for", q.Predict(1), "at", &limit)
		limit.Set(throttle.NewFixedWindow(10, time.Minute))
		fmt.Println("the eleventh waits for", q.Predict(1), "at", &limit)
	})
	// Output:
	// the eleventh waits for 1h0m0s at 10/h window
	// the eleventh waits for 1m0s at 10/m window
}
