package lab_test

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/go-throttle/throttle"
)

// A roundTrip is a Base in one function.
type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// answer is a response with a short body; kv are header fields and their values.
func answer(req *http.Request, code int, kv ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(kv); i += 2 {
		h.Add(kv[i], kv[i+1])
	}
	if req.Body != nil {
		req.Body.Close()
	}
	return &http.Response{
		StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader("hello")), Request: req,
		ContentLength: 5, ProtoMajor: 1, ProtoMinor: 1,
	}
}

// get sends one request, reads the answer and returns its status.
func get(ctx context.Context, rt http.RoundTripper, url string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// statsOf returns the statistics of a Transport's only key.
func statsOf(tr *throttle.Transport) (s throttle.KeyStats) {
	for s = range tr.Stats() {
	}
	return s
}

// answers is a Base that gives that answer to every request.
func answers(code int, kv ...string) roundTrip {
	return func(req *http.Request) (*http.Response, error) { return answer(req, code, kv...), nil }
}
