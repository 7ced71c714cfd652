package inbound_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-throttle/throttle/inbound"
)

// These tests use sockets, since they are about connections. They count, and measure no time.

// TestHijack: a handler can take the connection over.
func TestHijack(t *testing.T) {
	l := inbound.Limit{Limits: []string{"1/h burst 1"}}
	s := httptest.NewServer(l.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "mine\n")
	}))
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "mine\n" {
		t.Errorf("%q %v", line, err)
	}
}

// http2 serves a handler over HTTP/2.
func http2(t *testing.T, h http.Handler) (*httptest.Server, *http.Client) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, s.Client()
}

// TestHTTP2: trailers and flushed parts pass, and all streams of a connection are one client.
func TestHTTP2(t *testing.T) {
	l := inbound.Limit{Limits: []string{"3/h window"}}
	s, client := http2(t, l.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		io.WriteString(w, r.Proto)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Sum", "42")
	}))
	for i := range 5 {
		resp, err := client.Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		served := resp.StatusCode == 200 && string(body) == "HTTP/2.0" && resp.Trailer.Get("X-Sum") == "42"
		if refused := resp.StatusCode == 429 && resp.Header.Get("Retry-After") != ""; i < 3 && !served || i >= 3 && !refused {
			t.Errorf("request %d: %s %s %v %v", i, resp.Status, body, resp.Header, resp.Trailer)
		}
	}
}

// TestClientsLeave: a client that goes away while it is held gives its place up, with HTTP/1 and HTTP/2, with a body or
// without.
func TestClientsLeave(t *testing.T) {
	for _, name := range []string{"HTTP/1", "HTTP/2"} {
		t.Run(name, func(t *testing.T) {
			l := inbound.Limit{Limits: []string{"1/h window"}, Wait: 2 * time.Hour, Cost: func(r *http.Request) int { io.Copy(io.Discard, r.Body); return 1 }}
			s, client := http2(t, l.Handler(ok))
			if name == "HTTP/1" {
				s = httptest.NewServer(l.Handler(ok))
				defer s.Close()
				client = s.Client()
			}
			for i := range 3 {
				ctx, cancel := context.WithCancel(t.Context())
				answered := make(chan error, 1)
				go func() {
					req, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, strings.NewReader("body"))
					resp, err := client.Do(req)
					if err == nil {
						resp.Body.Close()
					}
					answered <- err
				}()
				if i == 0 {
					if err := <-answered; err != nil {
						t.Fatal(err)
					}
				} else {
					until(t, func() bool { return l.Stats().Waiting == 1 })
				}
				cancel()
				if i > 0 {
					if err := <-answered; err == nil {
						t.Error("a request that was to be held was answered")
					}
				}
				until(t, func() bool { return l.Stats().Waiting == 0 })
			}
			if s := l.Stats(); s.Admitted != 1 {
				t.Errorf("%+v, want one let in", s)
			}
		})
	}
}

// until waits for something that has to happen, however slow the machine is.
func until(t *testing.T, done func() bool) {
	t.Helper()
	for !done() {
		if t.Context().Err() != nil {
			t.Fatal("it has not happened")
		}
		time.Sleep(time.Millisecond)
	}
}

// TestUnixSocket: peers without an address are one client.
func TestUnixSocket(t *testing.T) {
	l := inbound.Limit{Limits: []string{"2/h window"}}
	h := l.Handler(ok)
	for i, remote := range []string{"", "@", "/run/a.sock"} {
		if w := get(h, remote, xff, "1.2.3."+itoa(i)); (w.Code == 204) != (i < 2) {
			t.Errorf("%q: %d", remote, w.Code)
		}
	}
}
