package fault

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"testing"
)

// What a trace shows: g is a connection asked for, G one that was got. What an error says counts if the trace cannot know better.
func TestSent(t *testing.T) {
	eof, dial := errors.New("EOF"), error(&net.OpError{Op: "dial", Err: errors.New("connection refused")})
	refused, idle := errors.New("stream error: stream ID 1; REFUSED_STREAM; received from peer"), errors.New("http: server closed idle connection")
	for name, c := range map[string]struct {
		events string
		err    error
		want   bool
	}{
		"the handshake fails":                                 {"g", eof, true},
		"the dial fails":                                      {"g", dial, true},
		"the dial of HTTP/2, and of HTTP/1 after it":          {"gg", eof, true},
		"a connection ends":                                   {"gG", eof, false},
		"a stream is refused":                                 {"gG", refused, true},
		"a connection ends before it is used":                 {"gG", idle, true},
		"a custom pool of HTTP/2, which asks for nothing":     {"G", refused, true},
		"the token's request is sent, then the dial fails":    {"gGg", dial, false},
		"Base has tried again, and the dial fails":            {"gGg", dial, false},
		"Base has tried again, and the stream is refused":     {"gGgG", refused, false},
		"Base has tried again, on two that were closed":       {"gGgG", idle, false},
		"Base ignores the trace, the dial fails":              {"", dial, true},
		"Base ignores the trace, a stream is refused":         {"", refused, true},
		"Base ignores the trace, a connection ends":           {"", eof, false},
		"Base looks at the trace when a connection was there": {"G", eof, false},
	} {
		req, s := Watch(httpRequest(t.Context()), true)
		trace := httptrace.ContextClientTrace(req.Context())
		for _, event := range c.events {
			if event == 'g' {
				trace.GetConn("api.test:443")
			} else {
				trace.GotConn(httptrace.GotConnInfo{})
			}
		}
		if got := s.Nothing(c.err); got != c.want {
			t.Errorf("%s: nothing was sent: %v", name, got)
		}
	}
}

// The hooks of the caller's own trace are called as before, and the request is not the caller's.
func TestCallersTrace(t *testing.T) {
	var asked, got, wrote int
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GetConn: func(string) { asked++ }, GotConn: func(httptrace.GotConnInfo) { got++ }, WroteHeaders: func() { wrote++ },
	})
	req := httpRequest(ctx)
	for range 2 {
		next, _ := Watch(req, true)
		trace := httptrace.ContextClientTrace(next.Context())
		trace.GetConn("")
		trace.GotConn(httptrace.GotConnInfo{})
		trace.WroteHeaders()
		if next == req || httptrace.ContextClientTrace(req.Context()) == trace {
			t.Error("the caller's request has changed")
		}
	}
	if asked != 2 || got != 2 || wrote != 2 {
		t.Errorf("the caller's hooks were called %d, %d and %d times", asked, got, wrote)
	}
}

// Who is not asked pays nothing. The others pay for a trace, its two hooks, a ctx and a request.
func TestWatchAllocates(t *testing.T) {
	req := httpRequest(t.Context())
	for asked, want := range map[bool]float64{false: 0, true: 5} {
		if n := testing.AllocsPerRun(100, func() { Watch(req, asked) }); n > want {
			t.Errorf("asked %v: %v allocations, want %v", asked, n, want)
		}
	}
}

func httpRequest(ctx context.Context) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://api.test", nil)
	if err != nil {
		panic(err)
	}
	return req
}
