package lab

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/go-throttle/throttle/internal/account"
	"github.com/go-throttle/throttle/throttletest"
)

// A Model is a language model behind an API: it says what a request uses, limits that, and answers. Its Limits need a Server whose
// Handler it is, or which answers otherwise.
//
// An example: calls of 500 tokens of input, answers of 300 tokens in the middle that take 30 s, and OpenAI's law.
//
//	model := &lab.Model{Median: 300}
//	upstream := throttletest.NewServer(model.HoldsBound(100_000), throttletest.Limit{Name: "requests", N: 500, Per: time.Minute})
//	upstream.Handler, upstream.Stream = model, true
//	upstream.Work = throttletest.Span{Min: 30 * time.Second}
//	upstream.Advertise.Dialect = throttletest.OpenAI
//
// Requests are JSON. Their "max_tokens", "max_completion_tokens" or "max_output_tokens" is the bound of the output, and with
// "stream": true the answer is a stream of server-sent events. The fields must not change once it is in use.
type Model struct {
	Bytes   float64 // of a request's body for each token of its input; 0: 4
	Median  int     // of the output, in tokens; 0: 200
	Sigma   float64 // of the logarithm of the output, which is normal; 0: 1, so that one of 44 is above 7 medians
	Longest int     // the bound of requests that set none; 0: 4096
	Parts   int     // in which an answer streams; 0: 20
	Seed    uint64  // of the outputs
}

// Input is how many tokens a request brings, for a Hold or Cost that counts them.
func (m *Model) Input(r *http.Request) int { return m.read(r).input }

// Bound is the most tokens that the answer may have, for a Hold that takes them in advance.
func (m *Model) Bound(r *http.Request) int { return m.read(r).bound }

// Output is how many tokens the answer has: a random number, the same whenever it is asked about the request.
func (m *Model) Output(r *http.Request) int { return m.read(r).output }

// HoldsBound returns a limit of n tokens a minute as OpenAI's: it holds the bound of the output, or the input if that is more,
// and corrects that to what was used when the answer has ended.
func (m *Model) HoldsBound(n int) throttletest.Limit {
	l := tokens("tokens", n)
	l.Cost = func(r *http.Request) int { q := m.read(r); return max(q.input, q.bound) }
	l.Settle = func(r *http.Request) int { q := m.read(r); return q.input + q.output }
	return l
}

// HoldsSum returns a limit for a fake of Amazon Bedrock: it holds the input and the bound of the output, and in the end each token
// of the output counts burndown times.
func (m *Model) HoldsSum(n, burndown int) throttletest.Limit {
	l := tokens("tokens", n)
	l.Cost = func(r *http.Request) int { q := m.read(r); return q.input + q.bound }
	l.Settle = func(r *http.Request) int { q := m.read(r); return q.input + burndown*q.output }
	return l
}

// CountsAtEnd returns a limit that holds nothing, and counts input and output when the answer has ended.
func (m *Model) CountsAtEnd(n int) throttletest.Limit {
	l := m.HoldsBound(n)
	l.Cost = func(*http.Request) int { return 0 }
	return l
}

// CountsOutput returns a limit as Anthropic's of output tokens: they count while they stream, and the bound does not matter.
func (m *Model) CountsOutput(n int) throttletest.Limit {
	l := tokens("output-tokens", n)
	l.Cost, l.Settle, l.Streams = func(*http.Request) int { return 0 }, m.Output, true
	return l
}

// CountsInput returns a limit of the input alone, for a fake of Gemini, or of Anthropic's input tokens.
func (m *Model) CountsInput(n int) throttletest.Limit {
	l := tokens("input-tokens", n)
	l.Cost = m.Input
	return l
}

// tokens returns a limit of n tokens a minute: a bucket that begins full, as providers describe theirs. Change its Kind, Per and
// Burst for another one: Azure's counts in windows of a minute, and Bedrock has a limit of tokens a day beside this.
func tokens(name string, n int) throttletest.Limit {
	return throttletest.Limit{Name: name, Unit: "tokens", N: n, Per: time.Minute}
}

// A question is what the Model reads in a request.
//
// An example: {"max_tokens":500,"stream":true,"messages":[...]} of 2,000 bytes is 500 tokens of input, a bound of 500, and a
// stream without OpenAI's usage, because nothing asks for that. A client then cannot know what was used.
type question struct {
	input, bound, output int
	stream, usage        bool // it wants events, and OpenAI's usage in them
}

// read reads a request, whose body it uses up.
//
// An example: 2,000 bytes with "max_tokens": 500 are 500 tokens of input, and the answer has the random number of
// tokens of this request, but at most 500.
func (m *Model) read(r *http.Request) (q question) {
	text, _ := io.ReadAll(r.Body) // of RoundTrip and ServeHTTP, which have read it
	var said struct {
		Chat    int  `json:"max_tokens"`
		Newer   int  `json:"max_completion_tokens"`
		Answers int  `json:"max_output_tokens"`
		Stream  bool `json:"stream"`
		Options struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	_ = json.Unmarshal(text, &said) // what is no JSON has no bound
	q.input = int(math.Ceil(float64(len(text)) / cmp.Or(m.Bytes, 4)))
	q.bound = cmp.Or(max(0, said.Chat, said.Newer, said.Answers), m.Longest, 4096)
	q.output = min(q.bound, m.draw(r))
	q.stream, q.usage = said.Stream, said.Options.Usage
	return q
}

// draw returns the random length of the answer to a request: the n-th of a Server has the n-th of them. The generator is one of its
// own. So a retry, which is another request, has another length, and all that a Server draws besides
// stays as it is.
//
// An example with a Median of 200 and a Sigma of 1: a normal number of 0 gives 200 tokens, 1 gives 544, -1 gives 74 and 3, which
// is one of 740, gives 4,017. So 16 of 100 answers are longer than 544, and the mean is e^½ medians, 330.
func (m *Model) draw(r *http.Request) int {
	n := uint64(0)
	if number, ok := r.Context().Value(account.Number{}).(*uint64); ok {
		n = *number
	}
	normal := rand.New(rand.NewPCG(m.Seed, n)).NormFloat64()
	return max(1, int(math.Round(float64(cmp.Or(m.Median, 200))*math.Exp(normal*cmp.Or(m.Sigma, 1)))))
}

// ServeHTTP answers: paths with /messages as Anthropic's API does, others as OpenAI's chat completions. A token is four bytes of text.
// It answers whatever it is asked, and knows no models, tools or images.
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := m.read(r)
	d := dialogue{w: w, question: q, parts: min(cmp.Or(m.Parts, 20), q.output)}
	w.Header().Set("Content-Type", "application/json")
	if q.stream {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	if strings.Contains(r.URL.Path, "/messages") {
		d.anthropic()
	} else {
		d.openAI()
	}
}

// A dialogue is an answer that is being written. Its times are the Server's: without Server.Stream the answer comes as a whole,
// and with it each part of the text comes at its moment of the Work, followed by what was used.
type dialogue struct {
	w http.ResponseWriter
	question
	parts int
}

// each calls say with the text of each part, and flushes. An example: 7 tokens in 3 parts are 2, 2 and 3.
func (d *dialogue) each(say func(text string)) {
	for i := range d.parts {
		say(strings.Repeat("word", (i+1)*d.output/d.parts-i*d.output/d.parts))
		_ = http.NewResponseController(d.w).Flush() // not every writer can
	}
}

func (d *dialogue) printf(format string, args ...any) {
	fmt.Fprintf(d.w, format, args...) // fails only if the client has left
}

// openAI writes a chat completion, and its usage in a stream if that is asked for.
//
//	data: {...,"choices":[{"index":0,"delta":{"role":"assistant","content":"wordword"},"finish_reason":null}]}
//	data: {...,"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}
//	data: {...,"choices":[],"usage":{"prompt_tokens":500,"completion_tokens":2,"total_tokens":502}}
//	data: [DONE]
func (d *dialogue) openAI() {
	const head = `{"id":"chatcmpl-1","created":1700000000,"model":"simulated",`
	usage := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, d.input, d.output, d.input+d.output)
	reason := "stop"
	if d.output == d.bound {
		reason = "length"
	}
	if !d.stream {
		d.printf(`%s"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":%q}],%s}`,
			head, strings.Repeat("word", d.output), reason, usage)
		return
	}
	const event = "data: " + head + `"object":"chat.completion.chunk",`
	d.each(func(text string) {
		d.printf(event+`"choices":[{"index":0,"delta":{"role":"assistant","content":%q},"finish_reason":null}]}`+"\n\n", text)
	})
	d.printf(event+`"choices":[{"index":0,"delta":{},"finish_reason":%q}]}`+"\n\n", reason)
	if d.usage {
		d.printf(event+`"choices":[],%s}`+"\n\n", usage)
	}
	d.printf("data: [DONE]\n\n")
}

// anthropic writes a message. In a stream its beginning says the input, and its end the output.
//
//	event: message_start
//	data: {"type":"message_start","message":{...,"usage":{"input_tokens":500,"output_tokens":1}}}
//	event: content_block_delta
//	data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"wordword"}}
//	event: message_delta
//	data: {"type":"message_delta","delta":{"stop_reason":"end_turn",...},"usage":{"output_tokens":2}}
func (d *dialogue) anthropic() {
	const head = `"id":"msg_1","type":"message","role":"assistant","model":"simulated",`
	reason := "end_turn"
	if d.output == d.bound {
		reason = "max_tokens"
	}
	if !d.stream {
		d.printf(`{%s"content":[{"type":"text","text":%q}],"stop_reason":%q,"stop_sequence":null,"usage":{"input_tokens":%d,"output_tokens":%d}}`,
			head, strings.Repeat("word", d.output), reason, d.input, d.output)
		return
	}
	event := func(kind, format string, args ...any) {
		d.printf("event: %s\ndata: {\"type\":%q%s}\n\n", kind, kind, fmt.Sprintf(format, args...))
	}
	event("message_start", `,"message":{%s"content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":%d,"output_tokens":1}}`, head, d.input)
	event("content_block_start", `,"index":0,"content_block":{"type":"text","text":""}`)
	d.each(func(text string) {
		event("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":%q}`, text)
	})
	event("content_block_stop", `,"index":0`)
	event("message_delta", `,"delta":{"stop_reason":%q,"stop_sequence":null},"usage":{"output_tokens":%d}`, reason, d.output)
	event("message_stop", "")
}
