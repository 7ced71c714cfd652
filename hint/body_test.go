package hint

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// body counts its reads and closes.
type body struct {
	io.Reader
	read, closed int
}

func (b *body) Read(p []byte) (int, error) {
	b.read++
	if b.closed > 0 {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.Reader.Read(p)
}

func (b *body) Close() error {
	b.closed++
	return nil
}

func jsonResponse(status int, r io.Reader) (*http.Response, *body) {
	b := &body{Reader: r}
	resp := from("api.example.com", response(status, headerOf("Content-Type: application/json; charset=utf-8")))
	resp.Body, resp.ContentLength = b, -1
	return resp, b
}

var looking = &Parser{Dialects: []Dialect{{Host: "*.example.com", Body: true}}}

func TestBodies(t *testing.T) { synctest.Test(t, lookBodies) }

func lookBodies(t *testing.T) {
	tests := []struct {
		status    int
		body      string
		throttled bool
		want      string // the quotas
	}{
		{200, `{"errors":[{"type":"RATE_LIMITED","message":"API rate limit exceeded"}]}`, true, ""},
		{200, `{"errors":[{"message":"x","type":"NOT_FOUND"}]}`, false, ""},
		{400, `{"errors":[{"extensions":{"code":"RATELIMITED"}}]}`, true, ""},
		{200, `{"data":{},"extensions":{"cost":{"throttleStatus":{"maximumAvailable":1000.0,"currentlyAvailable":954,"restoreRate":50}}}}`,
			false, "1000/954 rate 50 of points"},
		{200, `{"extensions":{"cost":{"throttleStatus":{"maximumAvailable":1e300,"currentlyAvailable":-5,"restoreRate":-1}}}}`,
			false, "?/0 of points"},
		{200, `{"extensions":{"cost":{"throttleStatus":{"maximumAvailable":1e999,"currentlyAvailable":5}}}}`, false, ""},
		{400, `{"__type":"com.amazonaws#ProvisionedThroughputExceededException"}`, true, ""},
		{400, `{"__type":"ValidationException"}`, false, ""},
		{200, `{"__type":"SlowDown"}`, false, ""},
		{200, `{"error":["EOrder:Rate limit exceeded"]}`, true, ""},
		{200, `{"error":["EService:Throttled: 1768046410"]}`, true, ""},
		{200, `{"error":["EQuery:Unknown asset pair"],"result":{}}`, false, ""},
		{200, `{"error":[],"result":{}}`, false, ""},
		{200, `{"error":"text","errors":"text","extensions":[],"__type":5}`, false, ""},
		{200, `{"errors":{"a":1},"error":{"details":"none"}}`, false, ""},
		{404, `{"errors":[{"type":"RATE_LIMITED"}]}`, false, ""},
		{200, `[{"type":"RATE_LIMITED"}]`, false, ""},
		{200, `{"errors":[{"type":"RATE_LIMITED"}]`, false, ""},
		{200, ``, false, ""},
	}
	for _, tt := range tests {
		resp, b := jsonResponse(tt.status, iotest.OneByteReader(strings.NewReader(tt.body)))
		h := looking.Parse(resp, noon)
		if got := quotasOf(h); h.Throttled != tt.throttled || got != tt.want {
			t.Errorf("%d %s: got %+v", tt.status, tt.body, h)
		}
		if got, err := io.ReadAll(resp.Body); string(got) != tt.body || err != nil {
			t.Errorf("%s: the body became %q, %v", tt.body, got, err)
		}
		resp.Body.Close()
		if b.closed != 1 {
			t.Errorf("closed %d times, want 1", b.closed)
		}
		if _, err := resp.Body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("reading after Close: %v", err)
		}
	}
}

// Errors that no wait cures are recognised by the built-in rows, each for its host, and by rows of one's own.
func TestFinalCodes(t *testing.T) { synctest.Test(t, lookFinalCodes) }

func lookFinalCodes(t *testing.T) {
	const openai = "api.openai.com"
	p := &Parser{Dialects: []Dialect{
		{Host: openai, Body: true},
		{Host: "api.anthropic.com", Body: true},
		{Host: "api.moonshot.*", Body: true},
		{Host: "dashscope.aliyuncs.com", Body: true},
		{Host: "llm.example.com", Final: []string{"insufficient_quota", "budget_exceeded"}},
	}}
	for _, tt := range []struct {
		status     int
		host, body string
		want       bool
	}{
		{429, openai, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, true},
		{429, openai, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":null}}`, true},
		{429, openai, `{"error":{"type":"insufficient_quota","code":"credit_balance_exhausted"}}`, true},
		{429, openai, `{"error":{"code":"credit_balance_exhausted"}}`, true},
		{429, openai, `{"error":{"code":"organization_usage_limit_exceeded"}}`, true},
		{429, openai, `{"error":{"code":"organization_spend_limit_exceeded"}}`, true},
		{429, openai, `{"error":{"code":"project_spend_limit_exceeded"}}`, true},
		{400, openai, `{"error":{"code":"billing_hard_limit_reached","type":"invalid_request_error"}}`, true},
		{403, openai, `{"error":{"code":"insufficient_quota"}}`, true},
		{503, openai, `{"error":{"code":"insufficient_quota"}}`, true},
		{429, openai, `{"error":{"type":"requests","code":"rate_limit_exceeded"}}`, false},
		{429, openai, `{"error":{"type":"rate_limit_error","code":"slow_down"}}`, false},
		{429, openai, `{"error":{"message":"insufficient_quota"}}`, false},
		{429, openai, `{"error":"insufficient_quota"}`, false},
		{429, openai, `{"error":{"code":["insufficient_quota"]}}`, false},
		{429, openai, `{"error":{"code":""},"code":"","type":""}`, false},
		{429, openai, `{"error":{"code":"insufficient_quota"}`, false},
		{200, openai, `{"error":{"code":"insufficient_quota"}}`, false},
		{429, "api.anthropic.com", `{"type":"error","error":{"type":"rate_limit_error","message":"x","details":{"error_code":"enforced_spend_limit_reached"}}}`, true},
		{402, "api.anthropic.com", `{"type":"error","error":{"type":"billing_error","message":"x"}}`, true},
		{429, "api.anthropic.com", `{"type":"error","error":{"type":"rate_limit_error","message":"x","details":null}}`, false},
		{429, "api.moonshot.ai", `{"error":{"message":"suspended","type":"exceeded_current_quota_error"}}`, true},
		{429, "api.moonshot.cn", `{"error":{"message":"x","type":"rate_limit_reached_error"}}`, false},
		{429, "dashscope.aliyuncs.com", `{"error":{"code":"insufficient_quota","type":"insufficient_quota"}}`, false}, // tokens a minute
		{429, "llm.example.com", `{"error":{"code":"insufficient_quota"}}`, true},
		{429, "llm.example.com", `{"error":{"code":429,"type":"budget_exceeded"}}`, true},
		{429, "llm.example.com", `{"type":"https://example.com/e","title":"t","status":429,"code":"budget_exceeded"}`, true},
		{429, "llm.example.com", `{"type":"budget_exceeded"}`, true},
		{429, "llm.example.com", `{"code":30001,"type":7,"error":{"code":"insufficient_quota"}}`, true},
		{429, "llm.example.com", `{"error":{"code":"other"}}`, false},
		{429, "other.example.com", `{"error":{"code":"insufficient_quota"}}`, false},
	} {
		resp, _ := jsonResponse(tt.status, strings.NewReader(tt.body))
		from(tt.host, resp)
		if h := p.Parse(resp, noon); h.Final != tt.want || h.Throttled != (tt.status == 429) {
			t.Errorf("%s %d %s: got %+v, want Final %v", tt.host, tt.status, tt.body, h, tt.want)
		}
		if got, err := io.ReadAll(resp.Body); string(got) != tt.body || err != nil {
			t.Errorf("%s: the body became %q, %v", tt.body, got, err)
		}
		resp, _ = jsonResponse(tt.status, strings.NewReader(tt.body))
		known := tt.host != "llm.example.com" && tt.status != 402 // nothing waits for a 402
		if h := Parse(from(tt.host, resp), noon); h.Final != (tt.want && known) {
			t.Errorf("%s %d %s: without a row %+v", tt.host, tt.status, tt.body, h)
		}
	}
}

func TestRetryInfo(t *testing.T) { synctest.Test(t, lookRetryInfo) }

func lookRetryInfo(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo"},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"39s"}]}}`: "39s",
		`{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"0.25s"}]}}`:                                                    "250ms",
		`{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"-39s"}]}}`:                                                     "0s",
		`{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":{"seconds":39}}]}}`:                                             "39s",
		`{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"9999999999999999999s"}]}}`:                                     "0s",
	} {
		resp, _ := jsonResponse(429, strings.NewReader(body))
		if got := looking.Parse(resp, noon).RetryAfter.String(); got != want {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
	resp, _ := jsonResponse(429, strings.NewReader(`{"error":{"details":[{"@type":"x/google.rpc.RetryInfo","retryDelay":"39s"}]}}`))
	resp.Header.Set("Retry-After", "5")
	if got := looking.Parse(resp, noon).RetryAfter.String(); got != "5s" {
		t.Errorf("beside a Retry-After: got %s, want 5s", got)
	}
}

// A body is not read if no row asks for it, or if nothing can be in it that is understood.
func TestBodyLeftAlone(t *testing.T) { synctest.Test(t, lookBodyLeftAlone) }

func lookBodyLeftAlone(t *testing.T) {
	const refusal = `{"errors":[{"type":"RATE_LIMITED"}]}`
	change := map[string]func(*http.Response){
		"not asked for": func(r *http.Response) { r.Request.URL.Host = "other.com" },
		"no host":       func(r *http.Response) { r.Request = nil },
		"text":          func(r *http.Response) { r.Header.Set("Content-Type", "text/html") },
		"no type":       func(r *http.Response) { r.Header.Del("Content-Type") },
		"br":            func(r *http.Response) { r.Header.Set("Content-Encoding", "br") },
		"packed twice":  func(r *http.Response) { r.Header["Content-Encoding"] = []string{"gzip", "gzip"} },
		"too long":      func(r *http.Response) { r.ContentLength = maxBody + 1 },
		"201":           func(r *http.Response) { r.StatusCode = 201 },
		"500":           func(r *http.Response) { r.StatusCode = 500 },
		"cached":        func(r *http.Response) { r.Header.Set("Age", "5") },
		"AWS's header":  func(r *http.Response) { r.Header.Set("X-Amzn-ErrorType", "AccessDenied:http://x") },
	}
	for name, f := range change {
		resp, b := jsonResponse(200, strings.NewReader(refusal))
		f(resp)
		if h := looking.Parse(resp, noon); h.Throttled || b.read > 0 || resp.Body != io.ReadCloser(b) {
			t.Errorf("%s: %+v, %d reads", name, h, b.read)
		}
	}
	resp, b := jsonResponse(200, strings.NewReader(refusal))
	if h := Parse(resp, noon); h.Throttled || b.read > 0 {
		t.Errorf("the zero Parser: %+v, %d reads", h, b.read)
	}
	// A refusal whose header says how long to wait decides nothing more in its body.
	known, b := jsonResponse(429, strings.NewReader(`{"retry_after":50}`))
	known.Header.Set("Retry-After", "5")
	if h := Parse(known, noon); h.RetryAfter != 5*time.Second || b.read > 0 {
		t.Errorf("with a Retry-After: %+v, %d reads", h, b.read)
	}
	for _, none := range []io.ReadCloser{nil, http.NoBody} {
		resp.Body = none
		if h := looking.Parse(resp, noon); h.Throttled || resp.Body != none {
			t.Errorf("body %v: %+v, then %v", none, h, resp.Body)
		}
	}
}

// Like the bodies of net/http, a replaced body may be closed while another goroutine reads it (run with -race).
func TestBodyClosedWhileRead(t *testing.T) {
	for range 100 {
		resp, _ := jsonResponse(429, nil)
		resp.Body = io.NopCloser(strings.NewReader(strings.Repeat(" ", 100)))
		looking.Parse(resp, noon)
		done := make(chan bool)
		go func() {
			io.Copy(io.Discard, iotest.OneByteReader(resp.Body))
			close(done)
		}()
		resp.Body.Close()
		<-done
	}
}

func TestBodyBounds(t *testing.T) { synctest.Test(t, lookBodyBounds) }

func lookBodyBounds(t *testing.T) {
	long := `{"errors":[{"type":"RATE_LIMITED"}],"x":"` + strings.Repeat("x", 3*maxBody) + `"}`
	r := strings.NewReader(long)
	resp, _ := jsonResponse(200, r)
	if h := looking.Parse(resp, noon); h.Throttled || r.Len() < len(long)-maxBody-1 {
		t.Errorf("%+v, read %d bytes", h, len(long)-r.Len())
	}
	if got, err := io.ReadAll(resp.Body); string(got) != long || err != nil {
		t.Errorf("%d bytes of body, %v; want %d", len(got), err, len(long))
	}
	long = `{"errors":[{"type":"RATE_LIMITED"}]}` + strings.Repeat(" ", maxBody)
	resp, _ = jsonResponse(200, strings.NewReader(long))
	if h := looking.Parse(resp, noon); h.Throttled {
		t.Errorf("too long: %+v", h)
	}
	// A body that breaks off does so for the caller too, after the same bytes.
	broken := errors.New("broken")
	resp, _ = jsonResponse(200, io.MultiReader(strings.NewReader(`{"errors"`), iotest.ErrReader(broken)))
	if h := looking.Parse(resp, noon); h.Throttled {
		t.Errorf("broken off: %+v", h)
	}
	if got, err := io.ReadAll(resp.Body); string(got) != `{"errors"` || !errors.Is(err, broken) {
		t.Errorf("body %q, %v", got, err)
	}
}

func TestAWSHeader(t *testing.T) {
	for code, want := range map[string]bool{
		"ThrottlingException": true, "com.amazonaws#Throttling": true, "SlowDown:http://internal.amazon.com/": true,
		"AccessDeniedException": false, "": false, "#": false,
	} {
		resp := from("a.example.com", response(400, headerOf("X-Amzn-ErrorType: "+code)))
		if got := looking.Parse(resp, noon).Throttled; got != want {
			t.Errorf("%q: throttled %v, want %v", code, got, want)
		}
		if got := Parse(resp, noon).Throttled; got != want {
			t.Errorf("%q: throttled %v without a row, want %v", code, got, want)
		}
	}
}

// The answers of two GraphQL APIs are read unasked: they throttle with a 200, and their headers say nothing. Other
// paths of their hosts are left alone.
func TestGraphQL(t *testing.T) { synctest.Test(t, lookGraphQL) }

func lookGraphQL(t *testing.T) {
	cost := func(now, rate string) string {
		return `{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}],"extensions":{"cost":{"requestedQueryCost":101,` +
			`"throttleStatus":{"maximumAvailable":1000,"currentlyAvailable":` + now + `,"restoreRate":` + rate + `}}}}`
	}
	const shop, path = "a.myshopify.com", "/admin/api/2026-07/graphql.json"
	for _, tt := range []struct {
		host, path, body string
		throttled        bool
		wait             time.Duration
	}{
		{shop, path, cost("81", "50"), true, 400 * time.Millisecond},
		{shop, path, cost("-99", "50"), true, 4 * time.Second},
		{shop, path, cost("101", "50"), true, 0},
		{shop, path, cost("0", "0"), true, 0},
		{shop, path, cost("-1e308", "1e-308"), true, 0},
		{shop, path, `{"data":{"shop":{}},"extensions":{"cost":{"requestedQueryCost":101,"throttleStatus":{"maximumAvailable":1000,"currentlyAvailable":1,"restoreRate":50}}}}`, false, 0},
		{shop, "/admin/api/2026-07/products.json", cost("81", "50"), false, 0},
		{"shop.example", path, cost("81", "50"), false, 0},
		{"api.github.com", "/graphql", `{"errors":[{"type":"RATE_LIMITED","message":"API rate limit exceeded"}]}`, true, 0},
		{"api.github.com", "/graphql", `{"data":{"viewer":{}}}`, false, 0},
		{"api.github.com", "/repos", `{"errors":[{"type":"RATE_LIMITED"}]}`, false, 0},
	} {
		resp, b := jsonResponse(200, strings.NewReader(tt.body))
		from(tt.host, resp).Request.URL.Path = tt.path
		if h := Parse(resp, noon); h.Throttled != tt.throttled || h.RetryAfter != tt.wait {
			t.Errorf("%s%s: %s: got %+v, want %v, %v", tt.host, tt.path, tt.body, h, tt.throttled, tt.wait)
		}
		if Silent(resp) && tt.throttled {
			t.Errorf("%s%s: a refusal counts as silent", tt.host, tt.path)
		}
		if unasked := b.read > 0; unasked != (tt.host != "shop.example" && strings.Contains(tt.path, "/graphql")) {
			t.Errorf("%s%s: the body was read: %v", tt.host, tt.path, unasked)
		}
		if got, err := io.ReadAll(resp.Body); string(got) != tt.body || err != nil {
			t.Errorf("%s: the body became %q, %v", tt.body, got, err)
		}
	}
}
