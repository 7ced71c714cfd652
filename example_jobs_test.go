package throttle_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
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

// Workers share an API that documents 10 requests a second and 300 a minute. It
// counts when requests arrive, and they come closer to each other on their way: so
// both windows are a little longer than documented.
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
	fmt.Println("the 11th waited for its window:", time.Since(start) >= 1100*time.Millisecond)
	// Output: the 11th waited for its window: true
}

// Few workers deliver to many hosts, and some of those are down. No worker may
// stand before such a host for long: a delivery that cannot go soon comes back with
// the time after which to try it again, for a queue that the program keeps.
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
		const unknown = 10 * time.Second // where no wait is told; let it grow with the attempts
		resp, err := client.Do(req)
		var e *throttle.Error
		switch {
		case errors.As(err, &e): // on this side
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
	for _, host := range []string{"busy.example.com", "busy.example.com", "well.example.com"} {
		again, err := deliver(host, "{}")
		switch {
		case errors.Is(err, throttle.ErrPaused):
			fmt.Println(host, "is not asked again for", again.Round(time.Minute))
		case err != nil:
			fmt.Println(host, "said", err, "and to wait", again)
		default:
			fmt.Println(host, "has it")
		}
	}
	// Output:
	// busy.example.com said 429 Too Many Requests and to wait 2m0s
	// busy.example.com is not asked again for 2m0s
	// well.example.com has it
}

// hooks stands for many hosts, one of which does not want anything for two minutes.
func hooks() http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.URL.Host != "busy.example.com" {
			return &http.Response{StatusCode: 204, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
		}
		header := http.Header{"Retry-After": {"120"}}
		return &http.Response{StatusCode: 429, Status: "429 Too Many Requests", Header: header, Body: http.NoBody, Request: req}, nil
	})
}

// perCall makes a Bucket that counts calls: whatever a call costs, it takes one.
type perCall struct{ *throttle.Bucket }

func (p perCall) Take(ctx context.Context, n int) (time.Duration, error) {
	return p.Bucket.Take(ctx, min(n, 1))
}

func (p perCall) Adjust(n int) { p.Bucket.Adjust(max(-1, min(n, 1))) }

// A limit for each API key, of requests and of tokens: 60 requests and 90,000
// tokens a minute. How many tokens a call takes is known when its answer has come,
// so it pays an estimate, and the account is corrected. Attempts that the
// upstream throttles, or that fail, pay the estimate too, and only the last one's is
// corrected here: a call that comes through at its third attempt has paid two
// estimates besides what it used.
func ExampleTransport_tokens() {
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
	client := &http.Client{Transport: &throttle.Transport{
		Base: api(),
		Key:  throttle.ByCredential,
		LimiterFor: func(key string) throttle.Limiter {
			return throttle.All(perCall{throttle.NewBucket(1, 6)}, tokens(key))
		},
	}}
	ask := func(apiKey, prompt string) error {
		estimate := len(prompt)/4 + 500
		ctx := throttle.WithCost(context.Background(), estimate)
		req, err := http.NewRequestWithContext(ctx, "POST", "http://llm.example.com/", strings.NewReader(prompt))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+apiKey)
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		used := 2_000 // as the answer says
		tokens(throttle.ByCredential(req)).Adjust(used - estimate)
		return nil
	}
	fmt.Println(ask("sk-1", "Why is the sky blue?"), ask("sk-2", "And at night?"))
	for _, b := range buckets { // 7,000, and what has come in since
		fmt.Println("paid what was used:", b.Tokens() < 8_000)
	}
	// Output:
	// <nil> <nil>
	// paid what was used: true
	// paid what was used: true
}

// Where the credential is not in the Authorization header, the key is a function of
// yours. Keys stand in errors, Events and Stats, so this one has a hash.
func ExampleTransport_apiKeyHeader() {
	t := &throttle.Transport{
		Base: api(),
		Key: func(req *http.Request) string {
			sum := sha256.Sum256([]byte(req.Header.Get("X-Api-Key")))
			return fmt.Sprintf("%s#%x", throttle.ByHost(req), sum[:4])
		},
		LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(10, 5) },
	}
	req, _ := http.NewRequest("GET", "http://api.example.com/", nil)
	req.Header.Set("X-Api-Key", "secret")
	resp, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	for s := range t.Stats() {
		fmt.Println(s.Key)
	}
	// Output: api.example.com#2bb80d53
}

// signed sets a credential, as oauth2.Transport does.
type signed struct{ base http.RoundTripper }

func (s signed) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer token")
	return s.base.RoundTrip(req)
}

// The Transport sees the request as those above it have made it: one that sets the
// credential belongs above it.
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

// A body that can be read only once goes only once: the caller gets the 429.
func ExampleRetry_body() {
	for _, body := range []io.Reader{
		io.MultiReader(strings.NewReader("once")), // http.NewRequest knows no GetBody for it
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

// Hooks that log, and the counters of Stats.
func ExampleHooks_slog() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{} // else the output would differ each time
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
		Throttled: say(slog.LevelWarn, "refused by the upstream"),
		Failed:    say(slog.LevelWarn, "failed"),
		Refused:   say(slog.LevelError, "not sent"),
		Retrying:  say(slog.LevelDebug, "again"),
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
		fmt.Printf("%s: sent %d, refused %d, sent again %d, %d wait, closed: %q\n", s.Key, s.Sent, s.Throttled, s.Retried, s.Waiting, s.Cause)
	}
	// Output:
	// level=WARN msg="refused by the upstream" key=api.example.com status=429 attempt=1 err=<nil>
	// api.example.com: sent 3, refused 1, sent again 1, 0 wait, closed: ""
}
