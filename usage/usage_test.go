package usage

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	asJSON   = "application/json"
	asStream = "text/event-stream"
)

// sse makes a stream of documents: each is the data of an event.
func sse(docs ...string) string {
	return "data: " + strings.Join(docs, "\n\ndata: ") + "\n\n"
}

// of makes a Usage of what is known.
func of(known ...any) Usage {
	u := unknown
	for i := 0; i+1 < len(known); i += 2 {
		n, ok := known[i+1].(int64)
		if !ok {
			n = int64(known[i+1].(int))
		}
		switch known[i] {
		case "in":
			u.Input = n
		case "out":
			u.Output = n
		case "read":
			u.CacheRead = n
		case "write":
			u.CacheWrite = n
		case "think":
			u.Reasoning = n
		case "points":
			u.Points = n
		case "total":
			u.Total = n
		}
	}
	return u
}

// final makes a final Usage of what is known.
func final(known ...any) Usage {
	u := of(known...)
	u.Final = true
	return u
}

// Bodies of the providers, after their documentation.
var (
	chat = `{"id":"chatcmpl-1","object":"chat.completion","created":1741569952,"model":"gpt-4.1","choices":[{"index":0,
	"message":{"role":"assistant","content":"The \"usage\" is {\"prompt_tokens\": 99}.","refusal":null,"annotations":[]},
	"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,
	"prompt_tokens_details":{"cached_tokens":5,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":3}},"service_tier":"default"}`

	chunk     = `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-4o","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}],"usage":null}`
	lastChunk = `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-4o","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}`
	used      = `{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29}}`

	anthropicStart = `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"claude","stop_reason":null,` +
		`"usage":{"input_tokens":25,"cache_creation_input_tokens":7,"cache_read_input_tokens":100,"output_tokens":1}}}`
	anthropicText  = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}`
	anthropicTool  = `{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"usage\": {\"output_tokens\": 9000}}"}}`
	anthropicEarly = `{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":40}}`
	anthropicDelta = `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":55}}`
	anthropicStop  = `{"type":"message_stop"}`
	anthropic      = "event: message_start\n" + sse(anthropicStart, `{"type":"ping"}`, anthropicText, anthropicTool, anthropicEarly, anthropicDelta, anthropicStop)

	geminiChunk = `{"candidates":[{"content":{"parts":[{"text":"a"}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":12,"totalTokenCount":12},"modelVersion":"gemini"}`
	geminiLast  = `{"candidates":[{"content":{"parts":[{"text":"b"}],"role":"model"},"finishReason":"STOP","index":0}],` +
		`"usageMetadata":{"promptTokenCount":12,"candidatesTokenCount":30,"thoughtsTokenCount":8,"cachedContentTokenCount":4,"totalTokenCount":50}}`
)

// A body is a whole body, and what it has cost.
type body struct {
	name, typ, body string
	want            Usage
}

var bodies = slices.Concat(usual, forms)

// usual are bodies of the large providers, and odd ones.
var usual = []body{
	{"chat", asJSON, chat, final("in", 19, "out", 10, "read", 5, "think", 3, "total", 29)},
	{"chat stream with usage", asStream, sse(chunk, lastChunk, used, "[DONE]"), final("in", 19, "out", 10, "total", 29)},
	{"chat stream without usage", asStream, sse(chunk, lastChunk, "[DONE]"), unknown},
	{"chat stream, usage in each chunk", asStream, sse(strings.Replace(chunk, `"usage":null`, `"usage":{"prompt_tokens":19,"completion_tokens":1}`, 1), chunk), of("in", 19, "out", 1)},
	{"the same to its end", asStream, sse(strings.Replace(chunk, `"usage":null`, `"usage":{"prompt_tokens":19,"completion_tokens":1}`, 1), "[DONE]"), final("in", 19, "out", 1)},
	{"chat stream, cut", asStream, sse(chunk, lastChunk) + "data: " + used[:len(used)-20], unknown},
	{"chat stream, no line end", asStream, "data:" + used, final("in", 19, "out", 10, "total", 29)},
	{"lines end in CR LF", asStream + "; charset=UTF-8", strings.ReplaceAll(sse(chunk, used, "[DONE]"), "\n", "\r\n"), final("in", 19, "out", 10, "total", 29)},
	{"embeddings", asJSON, `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.0023,-0.0093,1.5e-05]}],"model":"m","usage":{"prompt_tokens":8,"total_tokens":8}}`, final("in", 8, "total", 8)},
	{"responses", asJSON, `{"id":"resp_1","status":"completed","error":null,"output":[{"type":"message","content":[{"type":"output_text","text":"x"}]}],
		"usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":2},"output_tokens":87,"output_tokens_details":{"reasoning_tokens":4},"total_tokens":123}}`,
		final("in", 36, "out", 87, "read", 2, "think", 4, "total", 123)},
	{"responses stream", asStream, "event: response.created\n" + sse(`{"type":"response.created","response":{"id":"r","usage":null}}`,
		`{"type":"response.output_text.delta","delta":"Hi"}`,
		`{"type":"response.completed","response":{"id":"r","usage":{"input_tokens":37,"input_tokens_details":{"cached_tokens":0},"output_tokens":11,"output_tokens_details":{"reasoning_tokens":0}}}}`),
		final("in", 37, "out", 11, "read", 0, "think", 0)},
	{"transcript stream", asStream, sse(`{"type":"transcript.text.delta","delta":"I"}`,
		`{"type":"transcript.text.done","text":"I see","usage":{"type":"tokens","input_tokens":14,"output_tokens":45}}`), final("in", 14, "out", 45)},
	{"azure stream", asStream, sse(`{"choices":[],"prompt_filter_results":[{"prompt_index":0}]}`, chunk, used, "[DONE]"), final("in", 19, "out", 10, "total", 29)},
	{"groq stream", asStream, sse(chunk, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"x_groq":{"id":"req_1","usage":{"queue_time":0.01,"prompt_tokens":41,"completion_tokens":62,"total_time":0.07}}}`), final("in", 41, "out", 62)},
	{"mistral stream", asStream, sse(`{"id":"c","choices":[{"index":0,"delta":{"content":""},"finish_reason":"length"}],"usage":{"prompt_tokens":7,"total_tokens":9,"completion_tokens":2}}`), final("in", 7, "out", 2, "total", 9)},
	{"anthropic", asJSON, `{"id":"msg_1","type":"message","content":[{"type":"tool_use","id":"t","name":"f","input":{"usage":{"input_tokens":900,"output_tokens":900}}}],
		"stop_reason":"tool_use","usage":{"input_tokens":2095,"cache_creation_input_tokens":null,"cache_read_input_tokens":0,"output_tokens":503,"service_tier":"standard"}}`,
		final("in", 2095, "out", 503, "read", 0)},
	{"anthropic stream", asStream, anthropic, final("in", 25, "out", 55, "read", 100, "write", 7)},
	{"anthropic stream, cut", asStream, anthropic[:strings.Index(anthropic, `{"type":"message_delta","delta":{"stop_reason":"e`)], of("in", 25, "out", 40, "read", 100, "write", 7)},
	{"gemini", asJSON + "; charset=UTF-8", geminiLast, final("in", 12, "out", 30, "read", 4, "think", 8, "total", 50)},
	{"gemini stream", asStream, sse(geminiChunk, geminiLast), final("in", 12, "out", 30, "read", 4, "think", 8, "total", 50)},
	{"gemini stream, cut", asStream, sse(geminiChunk), of("in", 12, "total", 12)},
	{"gemini stream, a space behind each colon", asStream, spaced(sse(geminiChunk, geminiLast)), final("in", 12, "out", 30, "read", 4, "think", 8, "total", 50)},
	{"gemini array with indents", asJSON, indented("[" + geminiChunk + "," + geminiLast + "]"), final("in", 12, "out", 30, "read", 4, "think", 8, "total", 50)},
	{"gemini array", asJSON, "[" + geminiChunk + "\n,\r\n" + geminiLast + "]", final("in", 12, "out", 30, "read", 4, "think", 8, "total", 50)},
	{"bedrock", asJSON, `{"metrics":{"latencyMs":1},"output":{},"stopReason":"end_turn","usage":{"inputTokens":30,"outputTokens":628,"totalTokens":658,"cacheReadInputTokens":10,"cacheWriteInputTokens":20}}`,
		final("in", 30, "out", 628, "read", 10, "write", 20, "total", 658)},
	{"bedrock stream", "application/vnd.amazon.eventstream", `{"usage":{"inputTokens":30}}`, unknown},
	{"shopify", asJSON, `{"data":{"usage":{"input_tokens":1}},"extensions":{"cost":{"requestedQueryCost":101,"actualQueryCost":46,"throttleStatus":{"maximumAvailable":1000.0,"currentlyAvailable":954,"restoreRate":50.0}}}}`, final("points", 46)},
	{"github", asJSON, `{"data":{"viewer":{"login":"x","rateLimit":{"cost":9}},"rateLimit":{"limit":5000,"cost":1,"remaining":4999,"resetAt":"2026-01-01T00:00:00Z"}}}`, final("points", 1)},
	{"dynamodb", "application/x-amz-json-1.0", `{"Item":{"ConsumedCapacity":{"S":"x"}},"ConsumedCapacity":{"CapacityUnits":0.5,"TableName":"t"}}`, final("points", 1)},
	{"dynamodb batch", "application/x-amz-json-1.0", `{"ConsumedCapacity":[{"CapacityUnits":3.0,"TableName":"t"},{"CapacityUnits":4,"TableName":"u","Table":{"CapacityUnits":4}}]}`, final("points", 7)},

	// What is odd.
	{"empty", asJSON, ``, unknown},
	{"a type in capitals", "Application/JSON ;charset=utf-8", chat, final("in", 19, "out", 10, "read", 5, "think", 3, "total", 29)},
	{"no type", "", "\n " + chat, final("in", 19, "out", 10, "read", 5, "think", 3, "total", 29)},
	{"no type, a stream", "text/plain; charset=utf-8", sse(chunk, used), final("in", 19, "out", 10, "total", 29)},
	{"a wrong type", "text/html", chat, unknown},
	{"problem", "application/problem+json", `{"type":"about:blank","status":500}`, unknown},
	{"cut after the numbers", asJSON, `{"usage":{"prompt_tokens":19,"completion_tokens":10}`, of("in", 19, "out", 10)},
	{"cut in a number", asJSON, `{"usage":{"prompt_tokens":19,"completion_tokens":10`, of("in", 19)},
	{"not JSON any more", asJSON, `{"usage":{"prompt_tokens":19}} and more`, unknown},
	{"brackets that do not match", asJSON, `{"usage":{"prompt_tokens":19]}`, unknown},
	{"elsewhere", asJSON, `{"data":{"usage":{"prompt_tokens":19}},"a":[{"usage":{"prompt_tokens":19}}]}`, unknown},
	{"a name in a value", asJSON, `{"a":"usage","b":{"prompt_tokens":19}}`, unknown},
	{"a number", asJSON, `19 `, unknown},
	{"usage is a number", asJSON, `{"usage":19,"x_groq":[1,2]}`, unknown},
	{"null", asJSON, `{"usage":{"prompt_tokens":null,"completion_tokens":3}}`, final("out", 3)},
	{"null after a number", asStream, sse(used, `{"usage":{"prompt_tokens":null,"completion_tokens":11}}`), final("in", 19, "out", 11, "total", 29)},
	{"github in a stream", asStream, sse(`{"data":{"rateLimit":{"cost":2}}}`), final("points", 2)},
	{"shopify in a stream", asStream, sse(`{"extensions":{"cost":{"actualQueryCost":2}}}`), final("points", 2)},
	{"bedrock in a stream", asStream, sse(`{"usage":{"inputTokens":1}}`, `{"usage":{"cacheWriteInputTokens":2}}`), final("in", 1, "write", 2)},
	{"strings", asJSON, `{"usage":{"prompt_tokens":"12","completion_tokens":true}}`, unknown},
	{"negative", asJSON, `{"usage":{"prompt_tokens":-12,"completion_tokens":3}}`, final("out", 3)},
	{"a little negative", asJSON, `{"usage":{"prompt_tokens":-0.5,"completion_tokens":3}}`, final("out", 3)},
	{"minus zero", asJSON, `{"usage":{"prompt_tokens":-0,"completion_tokens":3}}`, final("in", 0, "out", 3)},
	{"fractions", asJSON, `{"usage":{"prompt_tokens":12.0,"completion_tokens":3.2,"input_tokens":1}}`, final("in", 1, "out", 4)},
	{"exponents", asJSON, `{"usage":{"prompt_tokens":1.2e3,"completion_tokens":1e400}}`, final("in", 1200)},
	{"the largest", asJSON, `{"usage":{"prompt_tokens":9223372036854775807,"completion_tokens":9223372036854775808}}`, final("in", int64(math.MaxInt64))},
	{"600 digits", asJSON, `{"usage":{"prompt_tokens":1` + strings.Repeat("0", 600) + `,"completion_tokens":3}}`, final("out", 3)},
	{"no number of JSON", asJSON, `{"usage":{"prompt_tokens":0x10,"completion_tokens":Inf,"input_tokens":+1,"output_tokens":1_0}}`, unknown},
	{"sums beyond 64 bits", asJSON, `{"ConsumedCapacity":[{"CapacityUnits":9e18},{"CapacityUnits":9e18},{"CapacityUnits":1}]}`, unknown},
	{"twice in a document", asJSON, `{"usage":{"prompt_tokens":1,"prompt_tokens":2},"usage":{"prompt_tokens":3}}`, final("in", 3)},
	{"twice in a stream", asStream, sse(used, strings.Replace(used, ":10", ":11", 1)), final("in", 19, "out", 11, "total", 29)},
	{"nonsense after sense", asStream, sse(used, strings.Replace(used, ":10", ":-5", 1)), final("in", 19, "total", 29)},
	{"a stream of nonsense", asStream, "data\ndata:\n\n:x\nusage: 1\n" + sse("{", "]", `"usage"`, `{"usage":{}}`, "[DONE] ", " [DONE]") + "\xef\xbb\xbfdata: " + used, unknown},
	{"a broken line between", asStream, sse(used[:40], "{}}", used), final("in", 19, "out", 10, "total", 29)},
	{"deep", asJSON, `{"data":` + strings.Repeat(`[`, 300) + `{"rateLimit":{"cost":5}}` + strings.Repeat(`]`, 300) + `}`, unknown},
	{"escapes in names and in what is skipped", asJSON, `{"a\"b":"\"","c\\":{"d":"\"}","e":"a long text, and a quote \"","f":[1,"]"]},"usage":{"prompt_tokens":4}}`, final("in", 4)},
	{"escapes in strings", asJSON, `{"a":"\\","b":"\"","c":"\u005c\"usage\":{","usage":{"prompt_tokens":4}}`, final("in", 4)},
	{"a name with escapes", asJSON, `{"us\u0061ge":{"prompt_tokens":4}}`, unknown},
	{"a long name", asJSON, `{"` + strings.Repeat("x", 600) + `":1,"usage":{"prompt_tokens":4}}`, final("in", 4)},
	{"a long line", asStream, sse(pad(used, 100_000)), final("in", 19, "out", 10, "total", 29)},
	{"a long line between", asStream, sse(used, pad(strings.Replace(used, ":10", ":11", 1), 100_000), anthropicText), final("in", 19, "out", 11, "total", 29)},
	{"a body of 3 MiB", asJSON, pad(chat, 3<<20), final("in", 19, "out", 10, "read", 5, "think", 3, "total", 29)},
}

// spaced writes documents as Gemini does.
func spaced(docs string) string { return strings.ReplaceAll(docs, `":`, `": `) }

// indented writes a document on many lines.
func indented(doc string) string {
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(doc), "", "  "); err != nil {
		panic(err)
	}
	return b.String()
}

// pad makes a document longer by a member in front.
func pad(doc string, size int) string {
	rest := size - len(doc) - len(`"pad":"",`)
	return `{"pad":"` + strings.Repeat("a", rest) + `",` + doc[1:]
}

func TestParse(t *testing.T) {
	for _, b := range bodies {
		got, ok := Parse(b.typ, []byte(b.body))
		if got != b.want || ok != (b.want != unknown) {
			t.Errorf("%s: %+v, %v; want %+v", b.name, got, ok, b.want)
		}
	}
}

// Every place at which a body can be cut gives what a whole body that ends there gives, whatever pieces it came
// in, and never more than the whole body says.
func TestPieces(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, b := range bodies {
		body := []byte(b.body)
		for _, size := range []int{1, 2, 3, 7, 64, 4096} {
			if len(body) > 50_000 && size < 64 {
				continue
			}
			if got := inPieces(b.typ, body, func() int { return size }); got != b.want {
				t.Fatalf("%s, pieces of %d: %+v, want %+v", b.name, size, got, b.want)
			}
		}
		for range min(20, 1+100_000/(len(body)+1)) {
			if got := inPieces(b.typ, body, func() int { return 1 + rnd.IntN(1+rnd.IntN(300)) }); got != b.want {
				t.Fatalf("%s, pieces at random: %+v, want %+v", b.name, got, b.want)
			}
		}
	}
}

// inPieces reads a body in pieces of the sizes that next returns.
func inPieces(typ string, body []byte, next func() int) Usage {
	w := Watch(http.Header{"Content-Type": {typ}})
	for len(body) > 0 {
		n := min(len(body), next())
		w.Write(body[:n])
		body = body[n:]
		w.Usage() // asking changes nothing
		w.Refusal()
	}
	u, _ := w.Usage()
	return u
}

func TestCuts(t *testing.T) {
	for _, b := range bodies {
		if len(b.body) > 10_000 {
			continue
		}
		w := Watch(http.Header{"Content-Type": {b.typ}})
		for i := range len(b.body) {
			w.Write([]byte{b.body[i]})
			got, _ := w.Usage()
			if want, _ := Parse(b.typ, []byte(b.body[:i+1])); got != want {
				t.Fatalf("%s, cut after %q: %+v in pieces, %+v at once", b.name, b.body[:i+1], got, want)
			}
		}
	}
}

func TestWatchEncoded(t *testing.T) {
	for encoding, want := range map[string]bool{"": true, "identity": true, "gzip": false, "br": false, "gzip, identity": false} {
		w := Watch(http.Header{"Content-Type": {asJSON}, "Content-Encoding": {encoding}})
		if n, err := w.Write([]byte(chat)); n != len(chat) || err != nil {
			t.Errorf("%q: Write returned %d, %v", encoding, n, err)
		}
		if u, ok := w.Usage(); ok != want || !ok && u != unknown {
			t.Errorf("%q: %+v, %v; want %v", encoding, u, ok, want)
		}
		if r, ok := w.Refusal(); ok || r != (Refusal{}) {
			t.Errorf("%q: %+v", encoding, r)
		}
	}
}

// However long a line or a document is, no memory is kept of it, and what stands behind it counts.
func TestLongLines(t *testing.T) {
	size := 50 << 20
	piece := bytes.Repeat([]byte("words "), 1<<16)
	for _, c := range []struct{ typ, begin, end string }{
		{asJSON, `{"a":"`, `","usage":{"prompt_tokens":5}}`},
		{asJSON, `{"a":["`, `"],"usage":{"prompt_tokens":5}}`},
		{asStream, `data: {"response":{"a":"`, `","usage":{"prompt_tokens":5}}}` + "\n\n"},
		{asStream, `: `, "\ndata: " + `{"usage":{"prompt_tokens":5}}` + "\n\n"},
		{"", `data: {"usage":{"prompt_tokens":5},"a":"`, `"}`},
		{"application/x-ndjson", `{"a":"`, `"}` + "\n" + `{"prompt_eval_count":5}`},
	} {
		var u Usage
		allocs := testing.AllocsPerRun(1, func() { // twice in all
			w := Watch(http.Header{"Content-Type": {c.typ}})
			w.Write([]byte(c.begin))
			for range size / len(piece) {
				w.Write(piece)
			}
			w.Write([]byte(c.end))
			u, _ = w.Usage()
		})
		if u.Input != 5 || !u.Final || allocs > 20 { // the runtime allocates now and then
			t.Errorf("%q, %s: %+v, %v allocations", c.typ, c.begin, u, allocs)
		}
		size = 2 << 20
	}
}

func TestRefusals(t *testing.T) {
	const openAI = `Rate limit reached for gpt-4o in organization org-1 on tokens per min (TPM): Limit 250000, Used 250000, Requested 58487. Please try again in 14.036s. Visit https://platform.openai.com/account/rate-limits to learn more.`
	cost := func(available, rate string) string {
		return `{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED","documentation":"https://shopify.dev"}}],"extensions":{"cost":{"requestedQueryCost":202,` +
			`"actualQueryCost":null,"throttleStatus":{"maximumAvailable":1000.0,"currentlyAvailable":` + available + `,"restoreRate":` + rate + `}}}}`
	}
	for _, c := range []struct {
		name, typ, body string
		want            Refusal
	}{
		{"chat", asStream, sse(chunk, `{"error":{"message":"`+openAI+`","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`), Refusal{"rate_limit_exceeded", 14036 * time.Millisecond, false}},
		{"responses, flat", asStream, "event: error\n" + sse(`{"type":"error","code":"rate_limit_exceeded","message":"Try again in 6m0s.","param":null,"sequence_number":3}`), Refusal{"rate_limit_exceeded", 6 * time.Minute, false}},
		{"responses, nested", asStream, sse(`{"type":"error","error":{"type":"tokens","code":"rate_limit_exceeded","message":"try again in 120ms"}}`), Refusal{"rate_limit_exceeded", 120 * time.Millisecond, false}},
		{"responses, failed", asStream, sse(`{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"exceeded token rate limit. Please retry after 20 seconds."},"usage":null}}`), Refusal{"rate_limit_exceeded", 20 * time.Second, false}},
		{"the first counts", asStream, sse(`{"error":{"code":"rate_limit_exceeded","message":"try again in 2s"}}`, `{"response":{"error":{"code":"rate_limit_exceeded","message":"try again in 1s"}}}`), Refusal{"rate_limit_exceeded", 2 * time.Second, false}},
		{"anthropic", asStream, anthropic + "event: error\n" + sse(`{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit"}}`), Refusal{"rate_limit_error", 0, false}},
		{"anthropic, overloaded", asStream, sse(`{"type":"error","error":{"details":null,"type":"overloaded_error","message":"Overloaded"}}`), Refusal{"overloaded_error", 0, true}},
		{"openai, overloaded", asStream, sse(`{"type":"response.failed","response":{"error":{"code":"server_is_overloaded","message":"at capacity"}}}`), Refusal{"server_is_overloaded", 0, true}},
		{"gemini", asJSON, `[{"error":{"code":429,"message":"Quota exceeded","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"39s"}]}}]`, Refusal{"RESOURCE_EXHAUSTED", 39 * time.Second, false}},
		{"shopify", asJSON, cost("118", "50.0"), Refusal{"THROTTLED", 1680 * time.Millisecond, false}},
		{"shopify in debt", asJSON, cost("-48", "100"), Refusal{"THROTTLED", 2020 * time.Millisecond, false}},
		{"shopify, enough left", asJSON, cost("500", "50"), Refusal{"THROTTLED", 0, false}},
		{"shopify, no rate", asJSON, cost("0", "0"), Refusal{"THROTTLED", 0, false}},
		{"shopify, hostile", asJSON, cost("0", "1e-300"), Refusal{"THROTTLED", 1 << 62, false}},
		{"github", asJSON, `{"errors":[{"type":"RATE_LIMITED","message":"API rate limit exceeded"}]}`, Refusal{"RATE_LIMITED", 0, false}},
		{"linear", asJSON, `{"errors":[{"message":"x","extensions":{"code":"RATELIMITED","type":"ratelimited"}}]}`, Refusal{"RATELIMITED", 0, false}},

		{"a spent account", asStream, sse(`{"error":{"message":"You exceeded your current quota, try again in 5s","type":"insufficient_quota","code":"insufficient_quota"}}`), Refusal{}},
		{"another error", asJSON, `{"error":{"type":"server_error","message":"rate_limit_exceeded"}}`, Refusal{}},
		{"text of a model", asStream, sse(`{"choices":[{"delta":{"content":"{\"error\":{\"code\":\"rate_limit_exceeded\"}}"}}]}`), Refusal{}},
		{"arguments of a tool", asJSON, `{"content":[{"input":{"error":{"code":"rate_limit_exceeded"}}}],"a":"rate_limit_exceeded"}`, Refusal{}},
		{"negative", asStream, sse(`{"error":{"code":"rate_limit_exceeded","message":"try again in -5s"}}`), Refusal{"rate_limit_exceeded", 0, false}},
		{"beyond all time", asStream, sse(`{"error":{"code":"rate_limit_exceeded","message":"try again in 99999999999h"}}`), Refusal{"rate_limit_exceeded", 0, false}},
		{"cut", asStream, sse(chunk) + `data: {"error":{"code":"rate_limit_exceeded"}`, Refusal{}},
	} {
		w := Watch(http.Header{"Content-Type": {c.typ}})
		w.Write([]byte(c.body))
		if got, ok := w.Refusal(); got != c.want || ok != (c.want.Code != "") {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, ok, c.want)
		}
		w = Watch(http.Header{"Content-Type": {c.typ}})
		for i := range len(c.body) {
			w.Write([]byte{c.body[i]})
		}
		if got, _ := w.Refusal(); got != c.want {
			t.Errorf("%s, byte by byte: %+v; want %+v", c.name, got, c.want)
		}
	}
}

// A row of one's own is read besides the built-in ones, and before them.
func TestOwnRows(t *testing.T) {
	p := &Parser{Dialects: []Dialect{
		{Input: "m.in", Output: "m.out", Last: "fin", Code: "m.err", Throttled: []string{"slow", ""}, Message: "m.say"},
		{Output: "usage.prompt_tokens", Points: "n", Sum: true},
		{Points: "n"},
		{Input: "..", CacheRead: "a.b.c.d.e.f.g.h.i.j", Code: "m.in", Throttled: []string{"x"}},
	}}
	for body, want := range map[string]Usage{
		`{"m":{"in":1,"out":2}}`:            final("in", 1, "out", 2),
		`{"usage":{"prompt_tokens":3}}`:     final("out", 3),
		`{"n":1,"usage":{"inputTokens":5}}`: final("points", 1, "in", 5),
		`[{"n":1},{"n":2.5}]`:               final("points", 4),
		`{"":{"":{"":7}}}`:                  final("in", 7),
	} {
		if got, _ := p.Parse(asJSON, []byte(body)); got != want {
			t.Errorf("%s: %+v, want %+v", body, got, want)
		}
	}
	if got, _ := p.Parse(asStream, []byte(sse(`{"m":{"in":1}}`, `{"m":{"out":2}}`))); got != of("in", 1, "out", 2) {
		t.Errorf("without an end: %+v", got)
	}
	if got, _ := p.Parse(asStream, []byte(sse(`{"m":{"in":1}}`, `{"fin":1,"m":{"out":2}}`))); got != final("in", 1, "out", 2) {
		t.Errorf("with an end: %+v", got)
	}
	w := p.Watch(http.Header{"Content-Type": {asStream}})
	w.Write([]byte(sse(`{"m":{"err":"slow","say":"retry in 3 minutes"}}`)))
	if r, _ := w.Refusal(); r != (Refusal{"slow", 3 * time.Minute, false}) {
		t.Errorf("%+v", r)
	}
}

func TestAllocations(t *testing.T) {
	stream, header := []byte(sse(chunk, chunk, used)), http.Header{"Content-Type": {asStream + "; charset=UTF-8"}}
	if n := testing.AllocsPerRun(100, func() { Parse(asStream, stream) }); n > 0 {
		t.Errorf("Parse allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		w := Watch(header)
		w.Write(stream)
		w.Usage()
		w.Refusal()
	}); n > 1 {
		t.Errorf("a Watcher allocates %v times, want 1", n)
	}
}
