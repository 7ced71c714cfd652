package throttletest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/throttletest"
)

// Both ways of serving give the same answers and the same ledger.
func TestBothWays(t *testing.T) {
	newServer := func() *throttletest.Server {
		s := throttletest.NewServer(throttletest.Limit{N: 3, Per: time.Hour})
		s.Advertise.Dialect, s.RetryAfter, s.Body = throttletest.Draft08, time.Second, "slow down\n"
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			w.(http.Flusher).Flush()
			io.WriteString(w, `{"path":"`+r.URL.Path+`","host":"`+r.Host+`"}`)
		})
		return s
	}
	check := func(t *testing.T, s *throttletest.Server, rt http.RoundTripper) {
		for i, call := range []string{"a", "a", "b", "c", "c"} {
			req, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL()+"/v1", strings.NewReader("hello"))
			req.Header.Set("Idempotency-Key", call)
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			status, text, retry := "201 Created", `{"path":"/v1","host":"`+req.URL.Host+`"}`, ""
			if i > 2 {
				status, text, retry = "429 Too Many Requests", "slow down\n", "1"
			}
			if resp.Status != status || string(body) != text || err != nil || resp.Header.Get("Retry-After") != retry ||
				resp.Header.Get("RateLimit") == "" || resp.Header.Get("Date") == "" || resp.ProtoMajor != 1 || resp.Request != req {
				t.Errorf("%d: %s %q %v %v", i, resp.Status, body, err, resp.Header)
			}
		}
		l := s.Ledger()
		if l.Tally() != (throttletest.Tally{Admitted: 3, Throttled: 2}) || l.Calls() != 3 || l[1].Attempt != 2 || l[4].RetryAfter != time.Second ||
			l[2].Status != 200 || l[4].Status != 429 || l[0].Size != 5 || l[0].Host == "" || l[0].Method != "POST" || l[4].Answered < l[4].At {
			t.Errorf("%+v", l)
		}
	}
	t.Run("RoundTrip", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			check(t, s, s)
		})
	})
	t.Run("Start", func(t *testing.T) {
		s := newServer()
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		base := new(http.Transport)
		check(t, s, base)
		s.Close()
		base.CloseIdleConnections()
		if err := s.Start(); err == nil {
			t.Error("started twice")
		}
	})
}

// In a bubble a round trip takes both ways and the work, to the nanosecond.
func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := throttletest.NewServer(throttletest.Limit{N: 1})
		s.Latency, s.Work = throttletest.Span{Min: 10 * ms}, throttletest.Span{Min: 5 * ms}
		for _, handler := range []http.Handler{nil, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(3 * ms) })} {
			s.Handler = handler
			wait := 25 * ms
			if handler != nil {
				wait += 3 * ms
			}
			for _, status := range []int{200, 429} {
				start := time.Now()
				if got, _ := get(t, s, s.URL()); got != status {
					t.Errorf("%d, want %d", got, status)
				}
				if took := time.Since(start); took != wait {
					t.Errorf("%d took %v, want %v", status, took, wait)
				}
				wait = 20 * ms // nothing is done for a throttled request
			}
			time.Sleep(time.Second)
		}
		if a := s.Ledger()[1]; a.Sent != 25*ms || a.At != 35*ms || a.Answered != 45*ms {
			t.Errorf("%+v", a)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := &throttletest.Server{Latency: throttletest.Span{Min: 10 * ms, Max: 20 * ms}, Seed: 7}
		start := time.Now()
		for range 1000 {
			get(t, s, s.URL())
		}
		if took := time.Since(start) / 1000; took < 29*ms || took > 31*ms {
			t.Errorf("a mean round trip of %v, want 30ms", took)
		}
		for _, a := range s.Ledger() {
			if there, back := a.At-a.Sent, a.Answered-a.At; min(there, back) < 10*ms || max(there, back) > 20*ms {
				t.Fatalf("%v there and %v back", there, back)
			}
		}
	})
}

// A request whose caller gives up arrives nevertheless, at its time, and is charged.
func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := throttletest.NewServer(throttletest.Limit{N: 1, Per: time.Hour})
		s.Latency = throttletest.Span{Min: 100 * ms}
		gone := errors.New("gone")
		for i, patience := range []time.Duration{50 * ms, 150 * ms} {
			ctx, cancel := context.WithTimeoutCause(t.Context(), patience, gone)
			defer cancel()
			start := time.Now()
			req, _ := http.NewRequestWithContext(ctx, "GET", s.URL(), nil)
			if resp, err := s.RoundTrip(req); resp != nil || err != gone || time.Since(start) != patience {
				t.Errorf("%v, %v after %v", resp, err, time.Since(start))
			}
			if n := len(s.Ledger()); n != 2*i {
				t.Errorf("%d have arrived after %v", n, patience)
			}
			if i == 0 {
				time.Sleep(50 * ms)
				if l := s.Ledger(); len(l) != 1 || l[0].At != 100*ms || l[0].Answered != 0 || l[0].Verdict != throttletest.Admitted {
					t.Errorf("%+v", l)
				}
				s.SetLimits()
			}
		}
	})
}

// An upstream goes down in each way and comes back.
func TestFaults(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errors.New("refused")}
	for name, c := range map[string]struct {
		fault   throttletest.Fault
		status  int
		verdict throttletest.Verdict
		retry   string
	}{
		"zero":     {throttletest.Fault{}, 503, throttletest.Failed, ""},
		"502":      {throttletest.Fault{Status: 502}, 502, throttletest.Failed, ""},
		"503 with": {throttletest.Fault{RetryAfter: 1500 * ms}, 503, throttletest.Failed, "2"},
		"529":      {throttletest.Fault{Status: 529}, 529, throttletest.Failed, ""},
		"429":      {throttletest.Fault{Status: 429, RetryAfter: time.Second}, 429, throttletest.Throttled, "1"},
		"error":    {throttletest.Fault{Err: refused, Status: 502}, 0, throttletest.Failed, ""},
		"hang":     {throttletest.Fault{Hang: true}, 0, throttletest.Failed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.fault.From, c.fault.To = time.Second, 5*time.Second
				s := throttletest.NewServer(throttletest.Limit{N: 2, Per: time.Hour})
				s.Faults, s.Advertise.Dialect = []throttletest.Fault{c.fault, {From: 4 * time.Second, To: 6 * time.Second, Status: 500}}, throttletest.XDelta
				s.Latency = throttletest.Span{Min: 10 * ms}
				for i, wantStatus := range []int{200, c.status, c.status, 500, 200, 429} {
					at := []time.Duration{0, 990, 2990, 4990, 5990, 6990}[i] * ms // it arrives 10 ms later
					time.Sleep(at - s.Elapsed())
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					req, _ := http.NewRequestWithContext(ctx, "GET", s.URL(), nil)
					resp, err := s.RoundTrip(req)
					switch {
					case wantStatus == 0 && c.fault.Hang:
						if err != context.DeadlineExceeded || s.Elapsed() != at+time.Second {
							t.Errorf("%d: %v, %v at %v", i, resp, err, s.Elapsed())
						}
					case wantStatus == 0:
						if err != error(refused) {
							t.Errorf("%d: %v, %v", i, resp, err)
						}
					case err != nil || resp.StatusCode != wantStatus:
						t.Errorf("%d: %v, %v, want %d", i, resp, err, wantStatus)
					case (i == 1 || i == 2) && (resp.Header.Get("Retry-After") != c.retry || resp.Header.Get("X-RateLimit-Limit") != ""):
						t.Errorf("%d: %v", i, resp.Header)
					}
					cancel()
				}
				l := s.Ledger()
				if l[1].Verdict != c.verdict || l[1].Status != c.status || l[1].Limit != -1 || l[1].Units[0] != 0 || l[4].Verdict != throttletest.Admitted || l[5].Limit != 0 {
					t.Errorf("%+v", l)
				}
			})
		})
	}
}

// A brown-out strikes a share of the requests, and can strike some routes only.
func TestBrownOut(t *testing.T) {
	s := &throttletest.Server{Faults: []throttletest.Fault{{Share: 0.3, Match: func(r *http.Request) bool { return r.URL.Path == "/a" }}}}
	for _, path := range []string{"/a", "/b"} {
		for range 1000 {
			get(t, s, s.URL()+path)
		}
	}
	failed := s.Ledger().Only(throttletest.Failed)
	if n := len(failed); n < 260 || n > 340 {
		t.Errorf("%d of 1,000 failed, want 300", n)
	}
	for _, a := range failed {
		if a.Path != "/a" {
			t.Fatalf("%+v", a)
		}
	}
}

// What a throttled answer says of the time to wait.
func TestRetryAfter(t *testing.T) {
	for name, c := range map[string]struct {
		limit throttletest.Limit
		set   func(*throttletest.Server)
		want  string
		note  time.Duration // in the ledger
	}{
		"nothing":     {throttletest.Limit{N: 1}, func(*throttletest.Server) {}, "", 0},
		"fixed":       {throttletest.Limit{N: 1}, func(s *throttletest.Server) { s.RetryAfter = 7 * time.Second }, "7", 7 * time.Second},
		"rounded up":  {throttletest.Limit{N: 1}, func(s *throttletest.Server) { s.RetryAfter = 1 }, "1", 1},
		"exact":       {throttletest.Limit{N: 1, Per: 90 * time.Second}, func(s *throttletest.Server) { s.RetryAfter = throttletest.Exact }, "90", 90 * time.Second},
		"exact 10/s":  {throttletest.Limit{N: 10, Burst: 1}, func(s *throttletest.Server) { s.RetryAfter = throttletest.Exact }, "1", 100 * ms},
		"never":       {throttletest.Limit{}, func(s *throttletest.Server) { s.RetryAfter = throttletest.Exact }, "1", time.Second},
		"date":        {throttletest.Limit{N: 1}, func(s *throttletest.Server) { s.RetryAfter, s.RetryDate = 1500*ms, true }, "Sat, 01 Jan 2000 00:00:02 GMT", 1500 * ms},
		"skewed date": {throttletest.Limit{N: 1}, func(s *throttletest.Server) { s.RetryAfter, s.RetryDate, s.Skew = time.Second, true, time.Hour }, "Sat, 01 Jan 2000 01:00:01 GMT", time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := throttletest.NewServer(c.limit)
			c.set(s)
			if c.limit.N > 0 {
				if _, h := get(t, s, s.URL()); h.Get("Retry-After") != "" {
					t.Errorf("%s: %v", name, h)
				}
			}
			if status, h := get(t, s, s.URL()); status != 429 || h.Get("Retry-After") != c.want {
				t.Errorf("%s: %d %v, want %q", name, status, h, c.want)
			}
			if l := s.Ledger(); l[len(l)-1].RetryAfter != c.note {
				t.Errorf("%s: %+v", name, l)
			}
		})
	}
}

func TestStatusAndDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &throttletest.Server{Limits: []throttletest.Limit{{}}, Status: 403, Skew: -time.Minute}
		if status, h := get(t, s, s.URL()); status != 403 || h.Get("Date") != "Fri, 31 Dec 1999 23:59:00 GMT" {
			t.Error(status, h)
		}
		s.NoDate = true
		if _, h := get(t, s, s.URL()); len(h["Date"]) != 0 {
			t.Error(h)
		}
	})
	s := &throttletest.Server{NoDate: true}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	base := new(http.Transport)
	defer base.CloseIdleConnections()
	if _, h := get(t, base, s.URL()); h.Get("Date") != "" {
		t.Error(h)
	}
}

// The answer to a HEAD has no body, and a body that was closed cannot be read.
func TestResponseBody(t *testing.T) {
	s := &throttletest.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.Write(bytes.Repeat([]byte("x"), 3000))
		w.WriteHeader(http.StatusTeapot) // too late
	})}
	for _, method := range []string{"GET", "HEAD", ""} {
		req, _ := http.NewRequestWithContext(t.Context(), method, s.URL(), nil)
		req.Method = method
		resp, err := s.RoundTrip(req)
		if err != nil || resp.StatusCode != 200 || resp.ContentLength != 3000 || resp.Header.Get("Content-Length") != "3000" {
			t.Fatal(resp, err)
		}
		n, err := io.ReadFull(resp.Body, make([]byte, 2000))
		if method == "HEAD" {
			if n != 0 || err != io.EOF {
				t.Error("HEAD:", n, err)
			}
			continue
		}
		resp.Body.Close()
		if n, err := resp.Body.Read(make([]byte, 10)); n != 0 || err != http.ErrBodyReadAfterClose {
			t.Error("after Close:", n, err)
		}
	}
}

// Over a socket faults break connections, and Close ends what hangs.
func TestSocketFaults(t *testing.T) {
	s := &throttletest.Server{Faults: []throttletest.Fault{
		{Err: io.ErrUnexpectedEOF, Match: func(r *http.Request) bool { return r.URL.Path == "/break" }},
		{Hang: true, Match: func(r *http.Request) bool { return r.URL.Path == "/hang" }},
		{Status: 418, Match: func(r *http.Request) bool { return r.URL.Path == "/tea" }},
	}}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	base := new(http.Transport)
	if status, _ := get(t, base, s.URL()+"/tea"); status != 418 {
		t.Error(status)
	}
	if status, _ := get(t, base, s.URL()+"/break"); status != 0 {
		t.Error(status)
	}
	hung := make(chan int)
	go func() {
		status, _ := get(t, base, s.URL()+"/hang")
		hung <- status
	}()
	for len(s.Ledger()) < 3 {
		time.Sleep(ms)
	}
	s.Close()
	if status := <-hung; status != 0 {
		t.Error(status)
	}
	s.Close()
	base.CloseIdleConnections()
	if got := s.Ledger().Tally(); got.Failed < 3 || got.Admitted != 0 {
		t.Errorf("%+v", got)
	}
}

// Close waits for the Handler.
func TestCloseWaits(t *testing.T) {
	var began, ended atomic.Bool
	s := &throttletest.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		began.Store(true)
		<-r.Context().Done()
		time.Sleep(20 * ms)
		ended.Store(true)
	})}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	go get(t, new(http.Transport), s.URL())
	for !began.Load() {
		time.Sleep(ms)
	}
	if s.Close(); !ended.Load() {
		t.Error("it is still at work")
	}
}

// A client that leaves in the middle of its request has not arrived.
func TestLeavesInTheMiddle(t *testing.T) {
	s := new(throttletest.Server)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
	conn.Close()
	base := new(http.Transport)
	defer base.CloseIdleConnections()
	if status, _ := get(t, base, s.URL()); status != 200 {
		t.Error(status)
	}
	s.Close()
	if l := s.Ledger(); len(l) != 1 {
		t.Errorf("%+v", l)
	}
}
