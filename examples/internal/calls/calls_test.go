package calls

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

func TestCheckURL(t *testing.T) {
	for _, text := range []string{"http://a", "https://a.test:8443/b?c=d", "HTTP://127.0.0.1:1/", "http://[::1]:65535/", "http://user:word@a/"} {
		if err := CheckURL(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"", "nonsense", "a.test", "a.test:80", "localhost:8080/x", "ftp://a", "//a", "http:", "http://", "http:///a",
		"http://:80", "http://a:0", "http://a:65536", "http://a:b", "http://a b", "http://%zz", "http://a/\x00"} {
		if err := CheckURL(text); err == nil || !strings.HasPrefix(err.Error(), "-url") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestReach: a port where nobody listens is an error; nothing is asked.
func TestReach(t *testing.T) {
	t.Setenv("HTTP_PROXY", "")
	t.Setenv("http_proxy", "")
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	if err := Reach(t.Context(), server.URL); err != nil {
		t.Error(err)
	}
	server.Close()
	if err := Reach(t.Context(), server.URL); err == nil || !strings.HasPrefix(err.Error(), "-url") || !strings.Contains(err.Error(), server.URL) {
		t.Errorf("%s: %v", server.URL, err)
	}
	if asked > 0 {
		t.Errorf("%d requests were sent, want none", asked)
	}
}

func TestEach(t *testing.T) {
	var calls atomic.Int64
	Each(t.Context(), 100, 7, func() { calls.Add(1) })
	if got := calls.Load(); got != 100 {
		t.Errorf("%d calls, want 100", got)
	}
}

func TestEachEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	Each(ctx, 100, 1, func() {
		if calls++; calls == 3 {
			cancel()
		}
	})
	if calls != 3 {
		t.Errorf("%d calls, want none after the third, which ended it", calls)
	}
}
