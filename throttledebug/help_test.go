package throttledebug_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/go-throttle/throttle"
)

// upstream answers at once, with a status and header fields that a test can change.
type upstream struct {
	mu     sync.Mutex
	status int // 0: 200
	header http.Header
}

func (u *upstream) set(status int, header http.Header) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.status, u.header = status, header
}

func (u *upstream) RoundTrip(req *http.Request) (*http.Response, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	status := u.status
	if status == 0 {
		status = http.StatusOK
	}
	return &http.Response{StatusCode: status, Header: u.header.Clone(), Body: http.NoBody, Request: req}, nil
}

// byField is a Transport.Key: whatever stands in a header field, also what no host could be called.
func byField(req *http.Request) string { return req.Header.Get("Key") }

// newTransport returns a Transport over a fresh upstream, with a key in each request.
func newTransport() *throttle.Transport {
	return &throttle.Transport{Base: new(upstream), Key: byField}
}

// call makes calls of a key, one after the other.
func call(t testing.TB, tr *throttle.Transport, key string, n int) {
	t.Helper()
	for range n {
		if err := try(context.Background(), tr, key); err != nil {
			t.Fatal(err)
		}
	}
}

// try makes one call.
func try(ctx context.Context, tr *throttle.Transport, key string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/", nil)
	if err != nil {
		return err
	}
	req.Header["Key"] = []string{key}
	resp, err := tr.RoundTrip(req)
	if err == nil {
		resp.Body.Close()
	}
	return err
}

// many calls so many keys once.
func many(t testing.TB, tr *throttle.Transport, keys int) {
	t.Helper()
	for i := range keys {
		call(t, tr, fmt.Sprintf("host-%05d.example.com", i), 1)
	}
}

// one is a map with one Transport.
func one(tr *throttle.Transport) map[string]*throttle.Transport {
	return map[string]*throttle.Transport{"api": tr}
}

// get asks a handler.
func get(h http.Handler, target string, header ...string) *httptest.ResponseRecorder {
	return ask(h, http.MethodGet, target, header...)
}

// ask asks with any method; header is names and values in turn.
func ask(h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}
