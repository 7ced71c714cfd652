package usage

import (
	"net/http"
	"strings"
	"sync"
)

// Usage is what a response says it has cost. -1 in a field means that the response does not say it.
//
// Fields are as the provider counts them, so they do not add up in the same way everywhere: OpenAI's and
// Gemini's Input contains CacheRead, Anthropic's and Bedrock's does not; OpenAI's Output contains Reasoning,
// xAI's and Gemini's does not. [Law.Settle] finds out by Total.
type Usage struct {
	// Input is the number of tokens in the request.
	Input int64

	// Output is the number of tokens in the answer.
	Output int64

	// CacheRead and CacheWrite are the numbers of input tokens that came from the provider's cache, and that
	// went into it.
	CacheRead, CacheWrite int64

	// Reasoning is the number of tokens that the model has spent on thinking.
	Reasoning int64

	// Points is the cost in the API's own unit: points of GraphQL APIs, capacity units of DynamoDB (rounded up,
	// and added up over tables).
	Points int64

	// Total is the number of all tokens together. Some APIs say nothing else.
	Total int64

	// Final means that the provider's last word has come: the JSON document is complete, or the stream has sent
	// its closing usage. Without it the fields are what had been said by then, and the true cost may be higher.
	Final bool
}

// unknown is a Usage that says nothing.
var unknown = Usage{-1, -1, -1, -1, -1, -1, -1, false}

// Parse returns what body says it has cost, as far as it has come, and false if nothing is known. contentType is
// the Content-Type of the response, "" if it has none. The body must not be encoded. Parse allocates nothing, unless
// the body has an error, and is safe for concurrent use.
func Parse(contentType string, body []byte) (Usage, bool) {
	return (*Parser)(nil).Parse(contentType, body)
}

// Watch returns a Watcher for the body of a response with this header, as [Parser.Watch] of the zero Parser does.
func Watch(h http.Header) *Watcher { return (*Parser)(nil).Watch(h) }

// Parser reads bodies by rows of its own besides the built-in ones. The zero Parser is ready to use, and so is a nil
// one. A Parser is safe for concurrent use, and must not be copied after the first use; Dialects must not be changed
// then. Field Usage of throttle.Transport takes one for the answers of all meters, and field Parser of [Law] one for
// requests.
type Parser struct {
	// Dialects are your own rows. Where one names a place that a built-in row names too, yours counts. nil: the
	// built-in rows alone.
	Dialects []Dialect

	once sync.Once
	own  trees // of Dialects and the built-in rows, made by the first use
}

// trees are the places of answers and those of requests.
type trees struct{ answers, requests *tree }

// builtIn has the built-in rows alone.
var builtIn = sync.OnceValue(func() trees { return plant(nil) })

// plant makes both trees of rows and the built-in ones.
func plant(rows []Dialect) trees {
	return trees{grow(rows), growRequests(rows)}
}

// trees returns those of all rows.
func (p *Parser) trees() trees {
	if p == nil || len(p.Dialects) == 0 {
		return builtIn()
	}
	p.once.Do(func() { p.own = plant(p.Dialects) })
	return p.own
}

// Parse is the function [Parse] with the rows of p.
func (p *Parser) Parse(contentType string, body []byte) (Usage, bool) {
	var w Watcher
	w.reset(p.trees().answers, kindOf(contentType))
	w.Write(body)
	return w.Usage()
}

// Watch returns a Watcher for the body of a response with this header. For a body that cannot be read, because
// it is encoded or of another type, and whose header says nothing either, it returns nil: a nil *Watcher takes every
// byte and knows nothing.
func (p *Parser) Watch(h http.Header) *Watcher {
	kind := kindOf(h.Get("Content-Type"))
	if e := h.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		kind = opaque
	}
	said, known := inHeader(h)
	if kind == opaque && !known {
		return nil
	}
	w := new(Watcher)
	w.reset(p.trees().answers, kind)
	w.usage = said
	w.usage.Final = known && kind == opaque
	return w
}

// inHeader returns what the header of Bedrock's InvokeModel says, whatever the model writes into the body, and
// whether that is anything (docs.aws.amazon.com/bedrock/latest/userguide/inference-invoke.html, cohere-python#531).
func inHeader(h http.Header) (u Usage, known bool) {
	u = unknown
	for _, f := range [...]struct {
		name string
		to   *int64
	}{
		{"X-Amzn-Bedrock-Input-Token-Count", &u.Input},
		{"X-Amzn-Bedrock-Output-Token-Count", &u.Output},
		{"X-Amzn-Bedrock-Cache-Read-Input-Token-Count", &u.CacheRead},
		{"X-Amzn-Bedrock-Cache-Write-Input-Token-Count", &u.CacheWrite},
	} {
		if v := h[f.name]; len(v) > 0 {
			*f.to = whole([]byte(v[0]))
			known = known || *f.to >= 0
		}
	}
	return u, known
}

// A kind is how a body is read.
type kind uint8

const (
	opaque   kind = iota // nothing can be known
	guess                // the first byte decides between the next two
	document             // one JSON document
	several              // JSON documents, one after the other
	stream               // lines; those that begin with "data:" have documents
	frames               // AWS's binary messages with a document each
)

// kindOf returns how to read a body of that Content-Type. AWS has types of its own, and RFC 6839 lets types end in
// +json. Servers that set no type have text/plain from net/http, and gateways call streams JSON and JSON streams, so of
// what is text the first byte says what it is.
func kindOf(contentType string) kind {
	media, _, _ := strings.Cut(contentType, ";")
	switch media = strings.ToLower(strings.Trim(media, " \t")); media {
	case "application/vnd.amazon.eventstream":
		return frames
	case "", "text/plain", "text/event-stream", "text/json",
		"application/x-ndjson", "application/ndjson", "application/jsonl", "application/jsonlines", "application/x-jsonlines", "application/json-seq":
		return guess
	}
	if media == "application/json" || strings.HasPrefix(media, "application/x-amz-json-") ||
		strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json") {
		return guess
	}
	return opaque
}
