package usage

import (
	"io"
	"net/http"
	"strings"
)

// This file reads what a request will cost at most, with the scanner that reads responses. It counts the bytes
// of the body without those of files, because a file's tokens do not depend on its length: an image of 2 MB is
// not 500,000 tokens.

// How requests are estimated.
const (
	bytesByToken = 4    // of text: what OpenAI's and Azure's documentation say of English
	tokensByFile = 1000 // between what providers charge for a small image and for a large one
)

// A request is what a request says of its cost.
type request struct {
	input   float64 // tokens of its input, by an estimate
	bound   int64   // tokens of each answer at most; -1: unknown
	answers float64 // how many it asks for
}

// read reads a copy of the body of req.
func (p *Parser) read(req *http.Request) request {
	r := request{bound: -1, answers: 1}
	if req == nil || kindOf(req.Header.Get("Content-Type")) != guess {
		return r
	}
	r.input = tokens(max(0, req.ContentLength))
	if e := req.Header.Get("Content-Encoding"); req.GetBody == nil || e != "" && !strings.EqualFold(e, "identity") {
		return r
	}
	body, err := req.GetBody()
	if err != nil || body == nil {
		return r
	}
	defer body.Close()
	var s sizer
	s.scanner.tree = p.trees().requests
	s.scanner.reset()
	io.Copy(&s, body) // what has been read before an error counts
	if r.input = tokens(s.size); s.scanner.state == broken {
		return r
	}
	ev := &s.scanner.event
	r.input = tokens(s.size-int64(ev.attached)) + tokensByFile*float64(ev.attachments)
	r.bound, r.answers = ev.bound, float64(max(1, ev.answers))*float64(max(1, ev.prompts))
	return r
}

// output is the most that all answers may have, if one has bound at most that sets no bound of its own.
func (r *request) output(unset int) float64 {
	if r.bound < 0 {
		return r.answers * float64(unset)
	}
	return r.answers * float64(r.bound)
}

// tokens estimates the tokens of that many bytes.
func tokens(size int64) float64 { return float64((size + bytesByToken - 1) / bytesByToken) }

// A sizer reads a request's body, and counts its bytes.
type sizer struct {
	scanner scanner
	size    int64
}

// Write implements io.Writer.
func (s *sizer) Write(p []byte) (int, error) {
	s.size += int64(len(p))
	if s.scanner.feed(p) < len(p) { // more than a document
		s.scanner.state = broken
	}
	return len(p), nil
}
