package usage_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/go-throttle/throttle/usage"
)

func ExampleParse() {
	body := `{"choices": [{"message": {"content": "Hi!"}}], "usage": {"prompt_tokens": 19, "completion_tokens": 10}}`
	if u, ok := usage.Parse("application/json", []byte(body)); ok {
		fmt.Println(u.Input, "in,", u.Output, "out, final:", u.Final)
	}
	// Output: 19 in, 10 out, final: true
}

// A Watcher sees a stream as it passes. The caller reads it as usual.
func ExampleWatch() {
	resp := &http.Response{
		Header: http.Header{"Content-Type": {"text/event-stream"}},
		Body: io.NopCloser(strings.NewReader(`data: {"choices":[{"delta":{"content":"Hi!"},"finish_reason":null}],"usage":null}

data: {"choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10}}

data: [DONE]

`)),
	}
	w := usage.Watch(resp.Header)
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(resp.Body, w), resp.Body}

	b, _ := io.ReadAll(resp.Body)
	u, _ := w.Usage()
	fmt.Println(len(b), "bytes:", u.Input, "in,", u.Output, "out")
	// Output: 171 bytes: 19 in, 10 out
}

// Some APIs answer 200 and refuse in the body. How long to wait follows from what they say: here 100 points are
// missing, and 50 come back in a second.
func ExampleWatcher_Refusal() {
	w := usage.Watch(http.Header{"Content-Type": {"application/json"}})
	io.WriteString(w, `{
		"errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}],
		"extensions": {"cost": {"requestedQueryCost": 120, "actualQueryCost": null,
			"throttleStatus": {"maximumAvailable": 1000, "currentlyAvailable": 20, "restoreRate": 50}}}
	}`)
	if r, ok := w.Refusal(); ok {
		fmt.Println(r.Code, r.RetryAfter)
	}
	// Output: THROTTLED 2s
}

// An API of one's own needs a row: where its answers say what they have cost, and where its requests bound that. For a
// Transport, p goes into the field Usage too.
func ExampleParser() {
	p := &usage.Parser{Dialects: []usage.Dialect{{Input: "meta.billed.in", Output: "meta.billed.out", Bound: "limits.tokens"}}}
	u, _ := p.Parse("application/json", []byte(`{"meta": {"billed": {"in": 12, "out": 5}}}`))

	law := usage.Law{Name: "tokens", Holds: usage.HoldsLarger, Counts: usage.Weights{Input: 1, Output: 1}, Parser: p}
	req, _ := http.NewRequest("POST", "https://x.test/", strings.NewReader(`{"ask": "Hello!", "limits": {"tokens": 500}}`))
	fmt.Println(law.Hold(req), "held,", law.Settle(500, u), "charged")
	// Output: 500 held, 17 charged
}

// A law says what to take before a request, and what to give back after it: here 500 tokens were held, because the
// provider holds max_tokens, and 29 were used.
func ExampleLaw() {
	body := `{"model": "gpt-4.1", "max_tokens": 500, "messages": [{"role": "user", "content": "Hello!"}]}`
	req, _ := http.NewRequest("POST", "https://api.openai.com/v1/chat/completions", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")

	law := usage.OpenAI()
	held := law.Hold(req)
	cost := law.Settle(held, usage.Usage{Input: 19, Output: 10, Final: true})
	fmt.Println(held, cost)
	// Output: 500 29
}
