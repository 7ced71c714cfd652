package main

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-throttle/throttle/examples/internal/leak"
	"github.com/go-throttle/throttle/inbound"
)

// TestRun: each client has what the limit allows over both servers, with the store in memory.
func TestRun(t *testing.T) {
	leak.Check(t)
	var out bytes.Buffer
	if err := run(t.Context(), config{length: 1200 * time.Millisecond, inMemory: true}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"reader", "page", "polite", "script", "round trips"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > 81 {
			t.Errorf("a line of %d: %s", len(line), line)
		}
	}
}

// TestServers: links work on both servers, and one limit holds for both.
func TestServers(t *testing.T) {
	leak.Check(t)
	memory := new(inbound.Memory)
	var servers []*server
	for range 2 {
		s, err := newServer("test", memory)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		servers = append(servers, s)
	}
	pool := &http.Client{Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer pool.CloseIdleConnections()
	ask := func(method, url, body string) (status int, text string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Forwarded-For", "198.51.100.7")
		resp, err := pool.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	status, link := ask("POST", servers[0].url, "https://example.com/x")
	if status != http.StatusCreated {
		t.Fatal(status, link)
	}
	if status, _ := ask("GET", servers[1].url+strings.TrimSpace(link), ""); status != http.StatusFound {
		t.Error(status)
	}
	if status, _ := ask("POST", servers[1].url, "javascript:alert(1)"); status != http.StatusBadRequest {
		t.Error(status)
	}
	refused := 0
	for i := range 100 {
		if status, _ := ask("GET", servers[i%2].url+"/zzzz", ""); status == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused == 0 {
		t.Error("nobody is refused")
	}
	if status, page := ask("GET", servers[0].url+"/tokens", ""); status != http.StatusOK || !strings.Contains(page, "192.0.2.4") {
		t.Error(status, page)
	}
}
