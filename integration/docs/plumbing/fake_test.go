package plumbing

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// A fake is an upstream. It prints each request that it gets, with the status of the answer. Safe for concurrent use.
type fake struct {
	mu      sync.Mutex
	refuse  int                 // so many requests for the API are throttled first
	headers http.Header         // of the other answers
	seen    func(*http.Request) // may be nil
}

func (f *fake) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	resp := &http.Response{StatusCode: http.StatusOK, Header: f.headers.Clone(), Request: req, Body: io.NopCloser(strings.NewReader("ok\n"))}
	switch {
	case req.URL.Path == "/token":
		resp.Header = http.Header{"Content-Type": {"application/json"}}
		resp.Body = io.NopCloser(strings.NewReader(`{"access_token": "secret", "token_type": "Bearer", "expires_in": 3600}`))
	case f.refuse > 0:
		f.refuse--
		resp.StatusCode, resp.Header = http.StatusTooManyRequests, http.Header{"Retry-After-Ms": {"1"}}
	}
	fmt.Printf("upstream: %s %s%s: %d\n", req.Method, req.URL.Host, req.URL.Path, resp.StatusCode)
	if f.seen != nil {
		f.seen(req)
	}
	return resp, nil
}

// get prints the status of the answer that client gets, or the error, and reads the body to its end.
func get(client *http.Client, url string) {
	resp, err := client.Get(url)
	if err != nil {
		fmt.Println("caller:", err)
		return
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		fmt.Println("caller:", err)
		return
	}
	fmt.Println("caller:", resp.StatusCode)
}
