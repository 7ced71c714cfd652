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

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/throttletest"
	"github.com/go-throttle/throttle/usage"
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
			return cmp.Or(hint.Parse(resp, time.Now()).Wait(), unknown), errors.New(resp.Status)
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

// llm answers each request as a language model does that has used 2,000 tokens, and throttles the second one.
func llm() http.RoundTripper {
	throttles := api(2)
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := throttles.RoundTrip(req)
		resp.Header.Set("Content-Type", "application/json")
		resp.Body = io.NopCloser(strings.NewReader(`{"choices":[],"usage":{"prompt_tokens":1500,"completion_tokens":500}}`))
		return resp, err
	})
}

// Each API key has a limit of 60 requests and of 90,000 tokens a minute. How many tokens a call uses is known only from its
// response. So each attempt holds as many as the provider will, and the body settles what it has used while it is
// read. The law of package usage says both, and that OpenAI charges what it throttles: the second call is throttled once,
// which costs 4,000.
func ExampleTransport_tokens() {
	inVirtualTime(func() {
		law := usage.OpenAI()
		t := &throttle.Transport{
			Base: llm(),
			Key:  throttle.ByCredential,
			Meters: func(string) []throttle.Meter {
				return []throttle.Meter{
					{Name: "requests", Limiter: throttle.NewBucket(1, 60)},
					{Name: law.Name, Limiter: throttle.NewBucket(90_000.0/60, 9_000), Hold: law.Hold, Settle: law.Settle, Failures: law.Failures},
				}
			},
		}
		client := &http.Client{Transport: t}
		for _, prompt := range []string{"Why is the sky blue?", "And at night?"} {
			body := fmt.Sprintf(`{"max_tokens":4000,"messages":[{"role":"user","content":%q}]}`, prompt)
			req, err := http.NewRequest("POST", "http://llm.example.com/v1/chat/completions", strings.NewReader(body))
			if err != nil {
				fmt.Println(err)
				return
			}
			req.Header.Set("Authorization", "Bearer sk-1")
			resp, err := client.Do(req)
			if err != nil {
				fmt.Println(err)
				return
			}
			for s := range t.Stats() {
				fmt.Println("held while its answer is read:", s.Meters[1].Held)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		for s := range t.Stats() { // and what was gained while the second call was paused
			fmt.Printf("%.0f,000 of 9,000 tokens are left, %d are held\n", s.Meters[1].Available/1000, s.Meters[1].Held)
		}
	})
	// Output:
	// held while its answer is read: 4000
	// held while its answer is read: 4000
	// 2,000 of 9,000 tokens are left, 0 are held
}

// An SDK often says what a call has cost, where its body cannot be read or does not say it. A Bill takes that down.
func ExampleWithBill() {
	t := &throttle.Transport{
		Base: api(),
		Meters: func(string) []throttle.Meter {
			return []throttle.Meter{{Name: "tokens", Limiter: throttle.NewFixedWindow(100_000, time.Minute)}}
		},
	}
	client := &http.Client{Transport: t}
	ctx, bill := throttle.WithBill(throttle.WithHold(context.Background(), "tokens", 8_000))
	req, err := http.NewRequestWithContext(ctx, "GET", "http://api.example.com/", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	for range 2 {
		for s := range t.Stats() {
			fmt.Println(s.Meters[0].Available, "are left,", s.Meters[0].Held, "are held")
		}
		bill.Settle("tokens", 5_000)
	}
	// Output:
	// 92000 are left, 8000 are held
	// 95000 are left, 0 are held
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
		fmt.Printf("%s: sent %d, throttled %d, retried %d, waiting %d, held by: %q\n", s.Key, s.Sent, s.Throttled, s.Retried, s.Waiting, s.Reason)
	}
	// Output:
	// level=WARN msg="throttled by the upstream" key=api.example.com status=429 attempt=1 err=<nil>
	// api.example.com: sent 3, throttled 1, retried 1, waiting 0, held by: ""
}

// The limit that somebody configured is 5 % above what the upstream accepts. Hooks.Learned says how much is accepted.
func ExampleHooks_learned() {
	inVirtualTime(func() {
		upstream := throttletest.NewServer(throttletest.Limit{N: 10, Burst: 5}) // 10 a second
		upstream.Latency = throttletest.Span{Min: 10 * time.Millisecond, Max: 10 * time.Millisecond}
		said := false
		client := &http.Client{Transport: &throttle.Transport{
			Base:    upstream,
			Limiter: throttle.NewBucket(10.5, 1),
			Hooks: throttle.Hooks{Learned: func(_ context.Context, e throttle.Event) {
				if l := e.Learned; l.Configured > 0 && l.Rate < rate.Inf {
					fmt.Printf("you configured %v/s; %.0f/s are accepted\n", l.Configured, l.Rate)
					said = true
				}
			}},
		}}
		for start := time.Now(); !said && time.Since(start) < time.Hour; {
			resp, err := client.Get(upstream.URL())
			if err != nil {
				fmt.Println(err)
				return
			}
			resp.Body.Close()
		}
	})
	// Output: you configured 10.5/s; 10/s are accepted
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
