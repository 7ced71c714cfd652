package usage

import (
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/go-throttle/throttle/internal/race"
)

// ask makes a request with a JSON body.
func ask(body string) *http.Request {
	req, err := http.NewRequest("POST", "http://x.test/", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", asJSON)
	return req
}

// text is a prompt of n bytes in a request with other members.
func text(n int, others string) string {
	const around = `{"messages":[{"role":"user","content":""}]}`
	body := around[:len(around)-1] + others + "}"
	return strings.Replace(body, `content":"`, `content":"`+strings.Repeat("x", n-len(body)), 1)
}

func defaulted(l Law, n int) Law {
	l.Default = n
	return l
}

func TestHold(t *testing.T) {
	in, out := Anthropic()
	mantle, _ := Mantle()
	for _, c := range []struct {
		name string
		law  Law
		body string
		want int
	}{
		{"larger: the bound", OpenAI(), text(400, `,"max_tokens":500`), 500},
		{"larger: the input", OpenAI(), text(4000, `,"max_tokens":500`), 1000},
		{"larger: no bound", OpenAI(), text(401, ``), 101},
		{"larger: the default", defaulted(OpenAI(), 4096), text(400, ``), 4096},
		{"its own bound wins over the default", defaulted(OpenAI(), 4096), text(400, `,"max_completion_tokens":300`), 300},
		{"responses", OpenAI(), `{"input":"x","max_output_tokens":70}`, 70},
		{"sum", Azure(), text(400, `,"max_tokens":500`), 600},
		{"sum, default", defaulted(Azure(), 8192), text(400, ``), 8292},
		{"input", in, text(400, `,"max_tokens":500`), 100},
		{"nothing", out, text(400, `,"max_tokens":500`), 0},
		{"bedrock", Bedrock(5), `{"messages":[{"role":"user","content":[{"text":"hello"}]}],"inferenceConfig":{"maxTokens":512,"temperature":0.5}}`, 541},
		{"mantle", mantle, text(400, `,"max_tokens":500`), 600},
		{"gemini", Gemini(), `{"contents":[{"parts":[{"text":"hello"}]}],"generationConfig":{"maxOutputTokens":9}}`, 21},
		{"points", Shopify(), `{"query":"{shop{name}}"}`, 1},

		{"a bound deep in a tool", OpenAI(), text(400, `,"tools":[{"max_tokens":9999}],"n":"max_tokens"`), 100},
		{"a bound in a string", OpenAI(), text(400, `,"user":"{\"max_tokens\":9999}"`), 100},
		{"null", defaulted(OpenAI(), 77), `{"max_tokens":null}`, 77},
		{"negative", defaulted(OpenAI(), 77), `{"max_tokens":-1}`, 77},
		{"a string", defaulted(OpenAI(), 77), `{"max_tokens":"512"}`, 77},
		{"the largest of two", OpenAI(), `{"max_tokens":5,"max_completion_tokens":50,"max_tokens":20}`, 50},
		{"beyond all models", Azure(), `{"max_tokens":9e18}`, math.MaxInt32},
		{"beyond 64 bits", Azure(), `{"max_tokens":9e99}`, 5},
		{"no JSON", defaulted(Azure(), 77), `hello, world`, 80},
		{"no JSON behind the bound", defaulted(Azure(), 77), `{"max_tokens":5},`, 82},
		{"empty", OpenAI(), ``, 0},
	} {
		req := ask(c.body)
		if got := c.law.Hold(req); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
		if b, err := io.ReadAll(req.Body); err != nil || string(b) != c.body {
			t.Errorf("%s: the body has become %.100q, %v", c.name, b, err)
		}
	}
}

// A file counts as 1000 tokens, however long it is.
func TestHoldFiles(t *testing.T) {
	data := strings.Repeat("QUJD", 100_000)
	for name, body := range map[string]string{
		"chat":      `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,@"}}]}]}`,
		"responses": `{"input":[{"role":"user","content":[{"type":"input_image","image_url":"@"}]}]}`,
		"anthropic": `{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"@"}}]}]}`,
		"gemini":    `{"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":"@"}}]}]}`,
		"bedrock":   `{"messages":[{"role":"user","content":[{"image":{"format":"png","source":{"bytes":"@"}}}]}]}`,
	} {
		got := OpenAI().Hold(ask(strings.Replace(body, "@", data, 1)))
		if got < tokensByFile || got > tokensByFile+50 {
			t.Errorf("%s: %d", name, got)
		}
	}
}

// Nothing bounds the length of a request that is read.
func TestHoldLong(t *testing.T) {
	words := strings.Repeat("words ", race.Pick(1<<18, 6<<20)) // 36 MiB
	body := `{"messages":[{"content":"` + words + `"}],"max_tokens":500}`
	if got, want := Azure().Hold(ask(body)), (len(body)+3)/4+500; got != want {
		t.Errorf("%d, want %d", got, want)
	}
}

// What cannot be read is estimated by its length, and its bound is the default.
func TestHoldUnreadable(t *testing.T) {
	body := text(400, `,"max_tokens":500`)
	law := defaulted(Azure(), 50)
	for name, c := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"no copy":            {func(r *http.Request) { r.GetBody = nil }, 150},
		"no copy, no length": {func(r *http.Request) { r.GetBody, r.ContentLength = nil, -1 }, 50},
		"an error":           {func(r *http.Request) { r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("x") } }, 150},
		"no body":            {func(r *http.Request) { r.GetBody = func() (io.ReadCloser, error) { return nil, nil } }, 150},
		"gzip":               {func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, 150},
		"another type":       {func(r *http.Request) { r.Header.Set("Content-Type", "multipart/form-data; boundary=x") }, 50},
		"no type":            {func(r *http.Request) { r.Header.Del("Content-Type") }, 600},
	} {
		req := ask(body)
		c.change(req)
		if got := law.Hold(req); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if got := law.Hold(nil); got != 50 {
		t.Errorf("nil: %d", got)
	}
}

// The most that a request may be charged, and whether less is held of it.
func TestMost(t *testing.T) {
	in, out := Anthropic()
	for _, c := range []struct {
		name   string
		law    Law
		body   string
		want   int
		learns bool
	}{
		{"anthropic in", in, text(400, `,"max_tokens":500`), 100, false},
		{"anthropic out", out, text(400, `,"max_tokens":500`), 500, true},
		{"no bound", out, text(400, ``), 0, true},
		{"the default", defaulted(out, 4096), text(400, ``), 4096, true},
		{"groq", Groq(), text(400, `,"max_tokens":500`), 600, true},
		{"openai", OpenAI(), text(400, `,"max_tokens":500`), 600, false},
		{"bedrock", Bedrock(5), text(400, `,"max_tokens":500`), 2600, false},
		{"gemini", Gemini(), text(400, `,"max_tokens":500`), 100, false},
		{"points", Shopify(), `{"query":"{shop{name}}"}`, 1, false},
		{"beyond all models", out, `{"max_tokens":9e18}`, math.MaxInt32, true},
	} {
		if got := c.law.Most(ask(c.body)); got != c.want || c.law.Learns() != c.learns {
			t.Errorf("%s: %d, %v, want %d, %v", c.name, got, c.law.Learns(), c.want, c.learns)
		}
	}
	if got := out.Most(nil); got != 0 {
		t.Errorf("nil: %d", got)
	}
}

func TestBound(t *testing.T) {
	if n, ok := Bound(ask(`{"max_tokens":12}`)); n != 12 || !ok {
		t.Errorf("%d, %v", n, ok)
	}
	if n, ok := Bound(ask(`{}`)); n != 0 || ok {
		t.Errorf("%d, %v", n, ok)
	}
}

func TestSettle(t *testing.T) {
	in, out := Anthropic()
	mantle, _ := Mantle()
	total, uncached, _ := Telnyx()
	openAI := final("in", 100, "out", 40, "read", 60, "think", 10)
	claude := final("in", 100, "out", 40, "read", 1000, "write", 50)
	for _, c := range []struct {
		name string
		law  Law
		u    Usage
		want int
	}{
		{"openai", OpenAI(), openAI, 140},
		{"embeddings", OpenAI(), final("in", 8), 8},
		{"azure keeps", Azure(), openAI, 7},
		{"anthropic in", in, claude, 150},
		{"anthropic out", out, claude, 40},
		{"bedrock", Bedrock(5), claude, 350},
		{"bedrock, fraction", Bedrock(1.5), final("in", 1, "out", 1), 3},
		{"bedrock, nonsense", Bedrock(math.Inf(-1)), claude, 190},
		{"mantle", mantle, openAI, 40},
		{"gemini", Gemini(), openAI, 100},
		{"groq", Groq(), openAI, 80},
		{"telnyx", total, openAI, 100},
		{"telnyx, uncached", uncached, openAI, 40},
		{"shopify", Shopify(), final("points", 46), 46},
		{"nothing known", OpenAI(), unknown, 7},
		{"nothing of the law's", Shopify(), openAI, 7},
		{"only what lessens", Groq(), final("read", 60), 7},
		{"more from the cache than in all", Groq(), final("in", 10, "read", 60), 0},
		{"nothing at all", OpenAI(), final("in", 0, "out", 0), 0},
		{"enormous", OpenAI(), final("in", int64(math.MaxInt64), "out", int64(math.MaxInt64)), math.MaxInt32},
		{"no weights", Law{}, openAI, 7},
		{"weights that are no numbers", Law{Counts: Weights{Input: math.NaN()}}, openAI, 7},
		{"one weight that is no number", Law{Counts: Weights{Input: 1, Output: math.NaN()}}, openAI, 0},
		{"cut", out, of("out", 3), 3},
	} {
		if got := c.law.Settle(7, c.u); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// FuzzHold: whatever a request is, its hold makes sense and its body is whole.
func FuzzHold(f *testing.F) {
	f.Add(text(400, `,"max_tokens":500`), 3, 77)
	f.Add(`{"contents":[{"parts":[{"inlineData":{"data":"QUJD"}}]}],"generationConfig":{"maxOutputTokens":1e400}}`, 2, -5)
	f.Add(`{"messages":[{"content":[{"toolResult":{"content":[{"image":{"source":{"bytes":"QUJD"}}}]}}]}],"n":5,"max_tokens":7}`, 2, 5)
	f.Add(`{"file_id":["a","b",""],"image_url":"data:image/png;base64,QUJD","prompt":["a","b"]}`, 1, 0)
	f.Fuzz(func(t *testing.T, body string, holds, unset int) {
		l := Law{Holds: Holding(holds), Default: unset}
		if n := l.Hold(ask(body)); n < 0 || n > math.MaxInt32 || l.Holds == HoldsInput && n > len(body)/4+1+tokensByFile*len(body)/4 {
			t.Fatalf("%d for %q", n, body)
		}
		if n, ok := Bound(ask(body)); n < 0 || n > math.MaxInt32 || n > 0 && !ok {
			t.Fatalf("bound %d, %v for %q", n, ok, body)
		}
	})
}
