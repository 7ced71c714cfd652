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
// Gemini's does not. A [Law] knows what its provider charges.
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

	// Final means that the provider's last word has come: the JSON document is complete, or the stream has sent
	// its closing usage. Without it the fields are what had been said by then, and the true cost may be higher.
	Final bool
}

// unknown is a Usage that says nothing.
var unknown = Usage{-1, -1, -1, -1, -1, -1, false}

// Parse returns what body says it has cost, as far as it has come, and false if nothing is known. contentType is
// the Content-Type of the response; if it is "" or text/plain, the body's first byte decides between JSON and an
// event stream. The body must not be encoded. Parse allocates nothing and is safe for concurrent use.
func Parse(contentType string, body []byte) (Usage, bool) {
	return builtIn().parse(contentType, body)
}

// Watch returns a Watcher for the body of a response with this header, as [Parser.Watch] of the zero Parser does.
func Watch(h http.Header) *Watcher { return builtIn().watch(h) }

// Parser reads bodies by rows of its own besides the built-in ones. The zero Parser is ready to use. A Parser is
// safe for concurrent use, and must not be copied after the first use; Dialects must not be changed then.
type Parser struct {
	// Dialects are your own rows. Where one names a place that a built-in row names too, yours counts. nil: the
	// built-in rows alone.
	Dialects []Dialect

	once sync.Once
	own  *tree // of Dialects and the built-in rows, made by the first use
}

// builtIn has the built-in rows alone.
var builtIn = sync.OnceValue(func() *tree { return grow(providers) })

// rows returns the tree of all rows.
func (p *Parser) rows() *tree {
	if len(p.Dialects) == 0 {
		return builtIn()
	}
	p.once.Do(func() { p.own = grow(p.Dialects, providers) })
	return p.own
}

// Parse is the function [Parse] with the rows of p.
func (p *Parser) Parse(contentType string, body []byte) (Usage, bool) {
	return p.rows().parse(contentType, body)
}

// Watch returns a Watcher for the body of a response with this header. For a body that cannot be read, because
// it is encoded or of another type, it returns nil: a nil *Watcher takes every byte and knows nothing.
func (p *Parser) Watch(h http.Header) *Watcher { return p.rows().watch(h) }

// parse reads a whole body by the rows of t.
func (t *tree) parse(contentType string, body []byte) (Usage, bool) {
	var w Watcher
	w.reset(t, kindOf(contentType))
	w.Write(body)
	return w.Usage()
}

// watch makes a Watcher with the rows of t; nil: the body cannot be read.
func (t *tree) watch(h http.Header) *Watcher {
	kind := kindOf(h.Get("Content-Type"))
	if e := h.Get("Content-Encoding"); kind == opaque || e != "" && !strings.EqualFold(e, "identity") {
		return nil
	}
	w := new(Watcher)
	w.reset(t, kind)
	return w
}

// A kind is how a body is read.
type kind uint8

const (
	opaque   kind = iota // nothing can be known
	document             // one JSON document
	stream               // lines; those that begin with "data:" have a document each
	guess                // the first byte decides
)

// kindOf returns how to read a body of that Content-Type. AWS has types of its own, and RFC 6839 lets types end
// in +json. Servers that set no type have text/plain from net/http.
func kindOf(contentType string) kind {
	media, _, _ := strings.Cut(contentType, ";")
	switch media = strings.ToLower(strings.Trim(media, " \t")); {
	case media == "application/json", strings.HasPrefix(media, "application/x-amz-json-"),
		strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json"):
		return document
	case media == "text/event-stream":
		return stream
	case media == "", media == "text/plain":
		return guess
	}
	return opaque
}
