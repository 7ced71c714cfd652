package hint_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-throttle/throttle/hint"
)

var now = time.Date(2026, time.January, 10, 12, 0, 0, 0, time.UTC)

func ExampleParse() {
	resp := &http.Response{
		StatusCode: http.StatusTooManyRequests,
		Header:     http.Header{"Retry-After": {"120"}},
	}
	h := hint.Parse(resp, now)
	fmt.Println(h.Throttled, h.RetryAfter)
	// Output: true 2m0s
}

// The server's clock is an hour behind. So are both of its dates, so the wait is right.
func ExampleParse_clockSkew() {
	resp := &http.Response{
		StatusCode: http.StatusServiceUnavailable,
		Header: http.Header{
			"Date":        {"Sat, 10 Jan 2026 11:00:00 GMT"},
			"Retry-After": {"Sat, 10 Jan 2026 11:00:30 GMT"},
		},
	}
	fmt.Println(hint.Parse(resp, now).RetryAfter)
	// Output: 30s
}

// GitHub says by a 403 that nothing is left until the end of the hour, and asks for no other wait. A loop that waits for
// what a Hint says altogether sends two requests here.
func ExampleHint_Wait() {
	reset := now.Add(time.Minute)
	clock := now
	send := func() *http.Response {
		if clock.Before(reset) {
			return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{
				"X-Ratelimit-Limit":     {"5000"},
				"X-Ratelimit-Remaining": {"0"},
				"X-Ratelimit-Reset":     {fmt.Sprint(reset.Unix())},
			}}
		}
		return &http.Response{StatusCode: http.StatusOK}
	}
	for {
		h := hint.Parse(send(), clock)
		fmt.Println(h.Throttled, h.RetryAfter, h.Wait())
		if !h.Throttled {
			break
		}
		clock = clock.Add(max(h.Wait(), time.Second)) // in a program: time.Sleep
	}
	// Output:
	// true 0s 1m0s
	// false 0s 0s
}

// Ordinary responses say what is left, so a client need not run into the limit to find it.
func ExampleParse_quotas() {
	header := http.Header{}
	header.Add("RateLimit-Policy", `"burst";q=10;w=1, "daily";q=1000;w=86400`)
	header.Add("RateLimit", `"daily";r=12;t=3600`)
	resp := &http.Response{StatusCode: http.StatusOK, Header: header}
	for _, q := range hint.Parse(resp, now).Quotas {
		fmt.Println(q.Name, q.Limit, q.Unit, "in", q.Window, "left:", q.Remaining)
	}
	// Output:
	// daily 1000 requests in 24h0m0s left: 12
	// burst 10 requests in 1s left: -1
}

// Fields whose names follow the pattern need no row in a table.
func ExampleParse_pattern() {
	header := http.Header{}
	header.Add("x-ratelimit-limit-requests", "60")
	header.Add("x-ratelimit-remaining-requests", "59")
	header.Add("x-ratelimit-reset-requests", "1s")
	header.Add("x-ratelimit-limit-tokens", "150000")
	header.Add("x-ratelimit-remaining-tokens", "149984")
	header.Add("x-ratelimit-reset-tokens", "6m0s")
	resp := &http.Response{StatusCode: http.StatusOK, Header: header}
	for _, q := range hint.Parse(resp, now).Quotas {
		fmt.Println(q.Remaining, "of", q.Limit, q.Unit, "until", q.Reset)
	}
	// Output:
	// 59 of 60 requests until 1s
	// 149984 of 150000 tokens until 6m0s
}

// This API says only what is used. Its limit is in its documentation.
func ExampleParser() {
	parser := &hint.Parser{Dialects: []hint.Dialect{{
		Host: "api.example.com",
		Used: "X-Used-Weight-1m",
		Max:  6000, Unit: "weight", Window: time.Minute,
	}}}
	resp := &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"X-Used-Weight-1m": {"5120"}},
		Request:    &http.Request{URL: &url.URL{Scheme: "https", Host: "api.example.com"}},
	}
	q := parser.Parse(resp, now).Quotas[0]
	fmt.Println(q.Remaining, q.Unit, "left of", q.Limit, "in", q.Window)
	// Output: 880 weight left of 6000 in 1m0s
}

// This API throttles with a 200 and says so in the body. The caller can still read the body afterwards.
func ExampleParser_body() {
	parser := &hint.Parser{Dialects: []hint.Dialect{{Host: "api.kraken.com", Body: true}}}
	resp := &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(strings.NewReader(`{"error":["EAPI:Rate limit exceeded"]}`)),
		Request:    &http.Request{URL: &url.URL{Scheme: "https", Host: "api.kraken.com"}},
	}
	fmt.Println(parser.Parse(resp, now).Throttled)
	body, err := io.ReadAll(resp.Body)
	fmt.Println(string(body), err)
	// Output:
	// true
	// {"error":["EAPI:Rate limit exceeded"]} <nil>
}

// A spent account is a 429 too, but no wait cures it. OpenAI, Anthropic and Moonshot say so in the body, so
// Body is enough for their hosts. For other hosts, Final lists the codes. A
// throttle.Transport{Hint: parser.Parse} returns such a response at once, and pauses nobody.
func ExampleParser_spentAccount() {
	parser := &hint.Parser{Dialects: []hint.Dialect{
		{Host: "api.openai.com", Body: true},
		{Host: "llm.example.com", Final: []string{"budget_exceeded"}},
	}}
	for host, body := range map[string]string{
		"api.openai.com":  `{"error":{"type":"insufficient_quota","code":"credit_balance_exhausted"}}`,
		"llm.example.com": `{"error":{"code":"budget_exceeded"}}`,
	} {
		h := parser.Parse(&http.Response{
			StatusCode: http.StatusTooManyRequests,
			Header:     http.Header{"Content-Type": {"application/json"}},
			Body:       io.NopCloser(strings.NewReader(body)),
			Request:    &http.Request{URL: &url.URL{Scheme: "https", Host: host}},
		}, now)
		fmt.Println(h.Throttled, h.Final)
	}
	// Output:
	// true true
	// true true
}
