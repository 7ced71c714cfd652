package usage

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
)

// This file reads what a request will cost at most, with the scanner that reads responses. It counts the bytes
// of the body without those of files, because a file's tokens do not depend on its length: an image of 2 MB is
// not 500,000 tokens.

// How requests are estimated.
const (
	maxRequest   = 32 << 20 // bytes of a body that are read
	bytesByToken = 4        // of text: what OpenAI's and Azure's documentation say of English
	tokensByFile = 1000     // between what providers charge for a small image and for a large one
)

// bounds are the places where requests bound their output. Of several the largest counts.
var bounds = []string{
	"max_completion_tokens", "max_tokens", // OpenAI's chat, Anthropic's messages and their kin
	"max_output_tokens",                   // OpenAI's responses
	"max_tokens_to_sample",                // Anthropic's text completions
	"generationConfig.maxOutputTokens",    // Gemini
	"generation_config.max_output_tokens", // Gemini, as protobuf's JSON may have it
	"inferenceConfig.maxTokens",           // Bedrock's Converse
	"textGenerationConfig.maxTokenCount",  // Amazon Titan on Bedrock
	"max_gen_len",                         // Meta's models on Bedrock
}

// files are the places where requests have files in strings.
var files = []string{
	"messages.content.image_url.url", "messages.content.file.file_data", "messages.content.input_audio.data", // OpenAI's chat
	"input.content.image_url", "input.content.file_data", // OpenAI's responses
	"messages.content.source.data", "messages.content.content.source.data", // Anthropic; the second in a tool's result
	"contents.parts.inlineData.data", "contents.parts.inline_data.data", // Gemini
	"messages.content.image.source.bytes", "messages.content.document.source.bytes", "messages.content.video.source.bytes", // Bedrock
}

// requests is the tree of these places.
var requests = sync.OnceValue(func() *tree {
	t := &tree{nodes: make([]node, 1)}
	for _, path := range bounds {
		t.place(path, capacity)
	}
	for _, path := range files {
		t.place(path, attachment)
	}
	return t
})

// A request is what a request says of its cost.
type request struct {
	input float64 // tokens of its input, by an estimate
	bound int64   // tokens of its output at most; -1: unknown
}

// readRequest reads the body of req, or a copy of it.
func readRequest(req *http.Request) request {
	if req == nil || kindOf(req.Header.Get("Content-Type")) != document && req.Header.Get("Content-Type") != "" {
		return request{bound: -1}
	}
	e := req.Header.Get("Content-Encoding")
	if req.GetBody == nil || e != "" && !strings.EqualFold(e, "identity") {
		return request{input: tokens(max(0, req.ContentLength)), bound: -1}
	}
	body, err := req.GetBody()
	if err != nil || body == nil {
		return request{input: tokens(max(0, req.ContentLength)), bound: -1}
	}
	defer body.Close()
	var s sizer
	s.scanner.tree = requests()
	s.scanner.reset()
	io.Copy(&s, body) // what has been read before an error counts
	ev := &s.scanner.event
	r := request{input: tokens(s.size-int64(ev.attached)) + tokensByFile*float64(ev.attachments), bound: ev.capacity}
	if s.scanner.state == broken {
		r = request{input: tokens(s.size), bound: -1}
	}
	return r
}

// tokens estimates the tokens of that many bytes.
func tokens(size int64) float64 { return float64((size + bytesByToken - 1) / bytesByToken) }

// A sizer reads a request's body, and counts its bytes.
type sizer struct {
	scanner scanner
	size    int64
}

// errLong ends the reading of a body.
var errLong = errors.New("usage: body is too long")

// Write implements io.Writer.
func (s *sizer) Write(p []byte) (int, error) {
	if s.size += int64(len(p)); s.size > maxRequest {
		return 0, errLong
	}
	s.scanner.feed(p)
	return len(p), nil
}
