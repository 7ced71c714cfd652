package throttle_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/race"
)

// How much of a body is read ahead while its call waits, and for how long.
const (
	keepBytes = 16 << 10
	keepTime  = 100 * time.Millisecond
)

// sentBody is a request body that counts its Close calls.
type sentBody struct {
	io.Reader
	closed atomic.Int32
}

func (b *sentBody) Close() error { b.closed.Add(1); return nil }

// bodies makes the bodies of one request and remembers them.
type bodies struct {
	made []*sentBody
	fail error // of GetBody
}

func (b *bodies) next() *sentBody {
	s := &sentBody{Reader: strings.NewReader("payload")}
	b.made = append(b.made, s)
	return s
}

func (b *bodies) request(ctx context.Context, method string) *http.Request {
	req := request(ctx, method, "http://x/path?q=1")
	req.Header.Set("X-Test", "1")
	req.Body, req.ContentLength = b.next(), 7
	req.GetBody = func() (io.ReadCloser, error) {
		if b.fail != nil {
			return nil, b.fail
		}
		return b.next(), nil
	}
	return req
}

// answerBody is the body of an answer: how much of it was read, and was it closed?
type answerBody struct {
	r      io.Reader
	read   atomic.Int64
	eof    atomic.Bool
	closed atomic.Int32
}

func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.read.Add(int64(n))
	if err == io.EOF {
		b.eof.Store(true)
	}
	return n, err
}

func (b *answerBody) Close() error { b.closed.Add(1); return nil }

// bodyLog makes answers with bodies of n bytes and remembers the bodies.
type bodyLog struct {
	mu   sync.Mutex
	made []*answerBody
}

func (a *bodyLog) reply(req *http.Request, code, n int, kv ...string) *http.Response {
	resp := reply(req, code, kv...)
	b := &answerBody{r: strings.NewReader(strings.Repeat("b", n))}
	resp.Body, resp.ContentLength = b, int64(n)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.made = append(a.made, b)
	return resp
}

// An answer that is handed out is whole, unless it was kept through waits and attempts and is longer or slower than that.
func TestAnswersAreHandedOutWhole(t *testing.T) {
	for _, size := range []int{0, 1, keepBytes - 1, keepBytes, keepBytes + 1, 5 * keepBytes} {
		for _, pace := range []time.Duration{0, time.Millisecond, time.Second} { // from one read to the next
			for _, kept := range []string{"at once", "out of attempts", "paused later", "deadline later"} {
				synctest.Test(t, func(t *testing.T) {
					var ans bodyLog
					text := bytes.Repeat([]byte("0123456789abcdef"), 5*keepBytes/16)[:size]
					up := newUpstream(0, nil)
					up.answer = func(n int, req *http.Request) (*http.Response, error) {
						if kept == "out of attempts" && n > 1 {
							return nil, io.ErrUnexpectedEOF
						}
						seconds := "1"
						if req.URL.Path == "/other" { // was sent before the gate closed, and closes it for long
							time.Sleep(500 * time.Millisecond)
							seconds = "600"
						}
						resp := ans.reply(req, 429, 0, "Retry-After", seconds)
						resp.Body.(*answerBody).r = &slowReader{text, pace}
						resp.ContentLength = -1
						return resp, nil
					}
					tr := &throttle.Transport{Base: up, Retry: throttle.Retry{MaxAttempts: 2, Backoff: func() throttle.Backoff { return constant(1) }}}
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					defer cancel()
					switch kept {
					case "at once":
						tr.Retry.MaxAttempts = 1
					case "paused later":
						go status(tr, ctx, "http://x/other")
						synctest.Wait()
					case "deadline later":
						tr.Limiter = throttle.NewBucket(1, 1)
						c, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
						defer cancel()
						ctx = c
						go func() { // takes what the retry would go with
							time.Sleep(500 * time.Millisecond)
							tr.Limiter.(*throttle.Bucket).Adjust(5)
						}()
					}
					resp, err := tr.RoundTrip(request(ctx, "GET", "http://x/"))
					if err != nil || resp.StatusCode != 429 {
						t.Fatalf("%d bytes, %v, %s: %v %v", size, pace, kept, resp, err)
					}
					if n := len(up.times()); kept == "paused later" && n != 2 {
						t.Errorf("%d bytes, %v, %s: %d attempts, want one of each call", size, pace, kept, n)
					}
					want, end := text, io.EOF
					if cut := kept != "at once" && (size > keepBytes || pace == time.Second); cut {
						want, end = text[:min(size, keepBytes)], throttle.ErrBodyCut
						if pace == time.Second {
							want = nil
						}
					}
					got, err := io.ReadAll(resp.Body)
					if end == io.EOF && err != nil || end != io.EOF && err != end || !bytes.Equal(got, want) {
						t.Errorf("%d bytes, %v, %s: got %d bytes, %v", size, pace, kept, len(got), err)
					}
					if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || err != end {
						t.Error("after the end:", n, err)
					}
					if err := resp.Body.Close(); err != nil {
						t.Error(err)
					}
					time.Sleep(pace) // a Read of slowReader does not end with Close
					synctest.Wait()
					for i, b := range ans.made {
						if n := b.closed.Load(); n != 1 {
							t.Errorf("answer %d closed %d times", i, n)
						}
					}
					if left := leftBehind(); left != "" {
						t.Error("goroutines are left:\n", left)
					}
				})
			}
		}
	}
}

// slowReader yields 4 KiB at a time.
type slowReader struct {
	left []byte
	pace time.Duration
}

func (r *slowReader) Read(p []byte) (int, error) {
	time.Sleep(r.pace)
	if len(r.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.left[:min(len(r.left), 4<<10)])
	r.left = r.left[n:]
	return n, nil
}

// An answer that is handed out at once has not been touched: it is the very one, unread.
func TestAnswersHandedOutAtOnceAreUntouched(t *testing.T) {
	for _, code := range []int{200, 404, 429, 503, 500} {
		synctest.Test(t, func(t *testing.T) {
			var ans bodyLog
			var sent *http.Response
			up := newUpstream(0, func(_ int, req *http.Request) (*http.Response, error) {
				sent = ans.reply(req, code, 100, "Retry-After", "3600")
				return sent, nil
			})
			resp, err := (&throttle.Transport{Base: up}).RoundTrip(request(t.Context(), "POST", "http://x/"))
			if err != nil || resp != sent || resp.Body != io.ReadCloser(ans.made[0]) || ans.made[0].read.Load() != 0 || ans.made[0].closed.Load() != 0 {
				t.Errorf("%d: touched: %v %v", code, resp, err)
			}
		})
	}
}

// A kept body that is read while Close comes from elsewhere, and one that fails.
func TestKeptBodyThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errBody := errors.New("body")
		up := newUpstream(0, nil)
		up.answer = func(n int, req *http.Request) (*http.Response, error) {
			if n > 1 {
				return nil, io.ErrUnexpectedEOF
			}
			resp := reply(req, 503)
			resp.Body = io.NopCloser(io.MultiReader(strings.NewReader("half"), brokenReader{errBody}))
			return resp, nil
		}
		resp, err := (&throttle.Transport{Base: up}).RoundTrip(request(t.Context(), "GET", "http://x/"))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if string(text) != "half" || err != errBody {
			t.Errorf("%q, %v", text, err)
		}
		resp.Body.Close()
	})
}

type brokenReader struct{ err error }

func (f brokenReader) Read([]byte) (int, error) { return 0, f.err }

// A body that blocks until it is closed does not hold a retry up for longer than 100 ms, and its
// reader ends with the call.
func TestBodyThatNeverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, nil)
		up.answer = func(n int, req *http.Request) (*http.Response, error) {
			if n > 1 {
				return reply(req, 200), nil
			}
			resp := reply(req, 429)
			pr, pw := io.Pipe()
			go pw.Write([]byte("some"))
			resp.Body = pr
			return resp, nil
		}
		code, err := status(&throttle.Transport{Base: up}, t.Context(), "http://x/")
		if code != 200 || err != nil || up.times()[1] > 110*time.Millisecond {
			t.Error(code, err, up.times())
		}
		synctest.Wait()
		if left := leftBehind(); left != "" {
			t.Error("goroutines are left:\n", left)
		}
	})
}

// Answers of net/http that have no body hold no slot, by either protocol: who forgets to close them waits for nothing.
func TestEmptyAnswersOfServersHoldNoSlot(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/empty":
				w.Header().Set("Content-Length", "0")
			case "/204":
				w.WriteHeader(204)
			case "/304":
				w.WriteHeader(304)
			}
		}))
		srv.EnableHTTP2 = h2
		srv.StartTLS()
		defer srv.Close()
		tr := &throttle.Transport{Base: srv.Client().Transport, Queue: throttle.QueueOptions{MaxInFlight: 1}}
		for _, call := range []string{"GET /", "GET /empty", "POST /empty", "GET /204", "DELETE /204", "GET /304", "HEAD /"} {
			method, path, _ := strings.Cut(call, " ")
			resp, err := tr.RoundTrip(request(t.Context(), method, srv.URL+path))
			if err != nil {
				t.Fatalf("%s: %v", call, err)
			}
			if s := statsOf(t, tr); s.InFlight != 0 || (resp.ProtoMajor == 2) != h2 {
				t.Fatalf("%s by %s: %d slots are held", call, resp.Proto, s.InFlight)
			}
		}
	}
}

// However an answer ends, its slot is free then.
func TestSlotsAreFreed(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		answer func(*http.Response)
		end    func(resp *http.Response, cancel func()) // nil: free at the headers
	}{
		"close":          {end: func(r *http.Response, _ func()) { r.Body.Close() }},
		"EOF":            {end: func(r *http.Response, _ func()) { io.Copy(io.Discard, r.Body) }},
		"EOF then close": {end: func(r *http.Response, _ func()) { io.Copy(io.Discard, r.Body); r.Body.Close(); r.Body.Close() }},
		"read error": {
			answer: func(r *http.Response) { r.Body = io.NopCloser(brokenReader{io.ErrUnexpectedEOF}) },
			end:    func(r *http.Response, _ func()) { r.Body.Read(make([]byte, 1)) },
		},
		"ctx end":      {end: func(_ *http.Response, cancel func()) { cancel() }},
		"no body":      {answer: func(r *http.Response) { r.Body, r.ContentLength = http.NoBody, 0 }},
		"length 0":     {answer: func(r *http.Response) { r.ContentLength = 0 }, end: func(r *http.Response, _ func()) { r.Body.Close() }},
		"made by hand": {answer: func(r *http.Response) { *r = http.Response{Body: r.Body} }, end: func(r *http.Response, _ func()) { io.Copy(io.Discard, r.Body) }},
		"HTTP/2, none": {answer: func(r *http.Response) { r.ContentLength, r.ProtoMajor = 0, 2 }},
		"nil body":     {answer: func(r *http.Response) { r.Body = nil }},
		"HEAD":         {method: "HEAD"},
		"switched":     {answer: func(r *http.Response) { r.StatusCode = 101; r.Body = duplex{r.Body} }},
		"close of 500": {method: "POST", answer: func(r *http.Response) { r.StatusCode = 500 }, end: func(r *http.Response, _ func()) { r.Body.Close() }},
		"102":          {answer: func(r *http.Response) { r.StatusCode = 102 }},
		"204":          {answer: func(r *http.Response) { r.StatusCode = 204 }},
		"304":          {answer: func(r *http.Response) { r.StatusCode = 304 }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := newUpstream(time.Second, func(n int, req *http.Request) (*http.Response, error) {
					resp := reply(req, 200)
					if c.answer != nil && n == 1 {
						c.answer(resp)
					}
					return resp, nil
				})
				tr := &throttle.Transport{Base: up, Queue: throttle.QueueOptions{MaxInFlight: 1}}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.method == "" {
					c.method = "GET"
				}
				resp, err := tr.RoundTrip(request(ctx, c.method, "http://x/"))
				if err != nil {
					t.Fatal(err)
				}
				if _, ok := resp.Body.(io.ReadWriteCloser); name == "switched" && !ok {
					t.Error("the body of a 101 cannot be written to any more")
				}
				done := make(chan bool)
				go func() {
					status(tr, t.Context(), "http://x/")
					close(done)
				}()
				if c.end != nil {
					time.Sleep(9 * time.Second)
					if s, _ := keyStats(tr, "x"); s.InFlight != 1 || s.Waiting != 1 {
						t.Errorf("the slot is not held: %+v", s)
					}
					c.end(resp, cancel)
				}
				<-done
				want := time.Second
				if c.end != nil {
					want = 10 * time.Second
				}
				if got := up.times()[1]; got != want {
					t.Errorf("the second call went at %v, want %v", got, want)
				}
				if resp.Body != nil {
					resp.Body.Close()
				}
				cancel()
				synctest.Wait()
				if s, _ := keyStats(tr, "x"); s.InFlight != 0 {
					t.Errorf("%d slots held after the end", s.InFlight)
				}
			})
		})
	}
}

type duplex struct{ io.ReadCloser }

func (duplex) Write(p []byte) (int, error) { return len(p), nil }

// A call whose ctx ends while it waits for an in-flight slot says that slots were missing, and still
// matches what ended its ctx.
func TestWaitingForASlotSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{Base: newUpstream(0, always(200)), Queue: throttle.QueueOptions{MaxInFlight: 2}, LimiterFor: func(string) throttle.Limiter { return throttle.NewBucket(100, 10) }}
		client := &http.Client{Transport: tr}
		for range 2 {
			resp, err := client.Get("http://api/") // and its body stays open
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
		}
		const want = "2 of 2 calls in flight (bodies not closed?)"
		var wg sync.WaitGroup
		for _, how := range []error{context.DeadlineExceeded, context.Canceled, context.DeadlineExceeded} {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				if how == context.DeadlineExceeded {
					ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				} else {
					time.AfterFunc(2*time.Second, cancel)
				}
				defer cancel()
				_, err := client.Do(request(ctx, "GET", "http://api/"))
				var e *throttle.Error
				if !errors.As(err, &e) || e.Key != "api" || !errors.Is(err, how) || e.Timeout() != (how == context.DeadlineExceeded) {
					t.Errorf("error %v, want an Error of api that matches %v", err, how)
				}
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			})
		}
		wg.Wait()
	})
}

// On a real server: whether a connection is used again after an attempt that was throttled.
func TestConnectionsAreReusedAcrossRetries(t *testing.T) {
	for _, c := range []struct {
		name        string
		size        int
		flush       bool // headers first, the rest of the body never
		connections int
	}{
		{"small body", 100, false, 1},
		{"16 KiB", 16 << 10, false, 1},
		{"long body", 4 << 20, false, 2}, // is closed, and its connection with it
		{"slow body", 0, true, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			var n atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if n.Add(1) > 1 {
					return
				}
				w.WriteHeader(429)
				w.Write(make([]byte, c.size))
				if c.flush {
					w.(http.Flusher).Flush()
					<-r.Context().Done()
				}
			}))
			defer server.Close()
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			var conns []net.Conn
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
				if !slices.Contains(conns, i.Conn) {
					conns = append(conns, i.Conn)
				}
			}})
			if code, err := status(&throttle.Transport{Base: base}, ctx, server.URL); code != 200 || err != nil {
				t.Error(code, err)
			}
			if len(conns) != c.connections {
				t.Errorf("%d connections, want %d", len(conns), c.connections)
			}
		})
	}
}

// Redirects through http.Client replay the body for each hop; every copy is closed once.
func TestBodiesOfRedirects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, nil)
		up.answer = func(n int, req *http.Request) (*http.Response, error) {
			switch n {
			case 1, 3:
				return reply(req, 429), nil
			case 2:
				return reply(req, 307, "Location", "http://y/"), nil
			}
			return reply(req, 200), nil
		}
		b := &bodies{}
		resp, err := (&http.Client{Transport: &throttle.Transport{Base: up}}).Do(b.request(t.Context(), "POST"))
		if err != nil || resp.StatusCode != 200 || len(up.times()) != 4 {
			t.Fatal(resp, err)
		}
		resp.Body.Close()
		if len(b.made) != 4 {
			t.Fatalf("%d bodies, want 4", len(b.made))
		}
		for i, want := range []int32{2, 1, 1, 1} { // http.Client closes that of a redirected request too
			if n := b.made[i].closed.Load(); n != want {
				t.Errorf("body %d closed %d times, want %d", i, n, want)
			}
		}
	})
}

// A Base that reads the request in a goroutine of its own after it has answered, as net/http's may: each
// attempt has a body of its own, so that there is no race (run with -race).
func TestBaseThatReadsTheBodyLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var read sync.WaitGroup
		var n atomic.Int32
		base := baseFunc(func(req *http.Request) (*http.Response, error) {
			read.Go(func() {
				time.Sleep(time.Millisecond)
				if text, err := io.ReadAll(req.Body); string(text) != "payload" || err != nil {
					t.Errorf("%q %v", text, err)
				}
				req.Body.Close()
			})
			if n.Add(1) < 3 {
				return reply(req, 429), nil
			}
			return reply(req, 200), nil
		})
		b := &bodies{}
		resp, err := (&throttle.Transport{Base: base}).RoundTrip(b.request(t.Context(), "POST"))
		if err != nil || resp.StatusCode != 200 {
			t.Error(resp, err)
		}
		read.Wait()
		for i, s := range b.made {
			if n := s.closed.Load(); n != 1 {
				t.Errorf("body %d closed %d times", i, n)
			}
		}
	})
}

// strictBody is the body of an answer on a connection: it yields left bytes, pace apart, then end, or blocks for ever if that is
// nil, until it is closed. It counts how often it is.
type strictBody struct {
	what   string
	left   int
	pace   time.Duration
	end    error
	closed atomic.Int32
	done   chan struct{}   // closed with it
	ctx    context.Context // of its request: a connection ends with it
}

func (b *strictBody) Read(p []byte) (int, error) {
	if b.pace > 0 {
		select {
		case <-time.After(b.pace):
		case <-b.done:
		case <-b.ctx.Done():
		}
	}
	switch {
	case b.closed.Load() > 0:
		return 0, http.ErrBodyReadAfterClose
	case b.ctx.Err() != nil:
		return 0, b.ctx.Err()
	case b.left > 0:
		n := min(len(p), b.left, 4<<10)
		b.left -= n
		return n, nil
	case b.end != nil:
		return 0, b.end
	}
	select {
	case <-b.done:
		return 0, http.ErrBodyReadAfterClose
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}

func (b *strictBody) Close() error {
	if b.closed.Add(1) == 1 {
		close(b.done)
	}
	return nil
}

// strictWorld is an upstream whose answers, callers and observers are drawn from a seed.
type strictWorld struct {
	mu   sync.Mutex
	rnd  *rand.Rand
	made []*strictBody
}

func (w *strictWorld) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rnd.IntN(n)
}

// body is one of the kinds that are kept, left open, read by nobody, or broken.
func (w *strictWorld) body(ctx context.Context) *strictBody {
	b := &strictBody{end: io.EOF, done: make(chan struct{}), ctx: ctx}
	switch b.what = []string{"empty", "short", "just kept", "long", "slow", "slower than it is kept", "endless", "broken"}[w.draw(8)]; b.what {
	case "short":
		b.left = 100
	case "just kept":
		b.left = keepBytes - 1 + w.draw(3)
	case "long":
		b.left = 5 * keepBytes
	case "slow":
		b.left, b.pace = 10_000, time.Duration(w.draw(60))*time.Millisecond
	case "slower than it is kept":
		b.left, b.pace = 100, keepTime+time.Duration(w.draw(3)-1)*time.Millisecond
	case "endless":
		b.left, b.end = 100, nil
	case "broken":
		b.left, b.end = 100, io.ErrUnexpectedEOF
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made = append(w.made, b)
	return b
}

func (w *strictWorld) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		req.Body.Close()
	}
	select {
	case <-time.After(time.Duration(w.draw(50)) * time.Millisecond):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	var resp *http.Response
	switch w.draw(12) {
	case 0:
		panic("Base")
	case 1, 2:
		return nil, io.ErrUnexpectedEOF
	case 3, 4:
		resp = reply(req, 200)
	case 5:
		resp = reply(req, 429, "Retry-After", "1")
	case 6:
		resp = reply(req, 429, "Retry-After", "3600")
	case 7:
		resp = reply(req, 429, "X-Should-Retry", "false")
	case 8, 9:
		resp = reply(req, 503)
	case 10:
		resp = reply(req, 500)
	default:
		resp = reply(req, 429)
	}
	resp.Body, resp.ContentLength = w.body(req.Context()), -1
	if w.draw(2) == 0 {
		resp.Header.Set("Content-Type", "application/json") // a Parser looks into it
	}
	return resp, nil
}

// call makes one call, reads what it likes of the answer, and closes it, as a caller has to, once.
func (w *strictWorld) call(ctx context.Context, tr *throttle.Transport, req *http.Request) {
	defer func() {
		switch p := recover(); p {
		case nil, "Base", "a hook", "Check":
		default:
			panic(p) // not one of ours
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if w.draw(4) == 0 {
		time.AfterFunc(time.Duration(w.draw(2000))*time.Millisecond, cancel)
	}
	resp, err := tr.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return
	}
	switch body := resp.Body; w.draw(4) {
	case 0:
	case 1:
		body.Read(make([]byte, 10))
	case 2: // read until another goroutine closes it
		var wg sync.WaitGroup
		wg.Go(func() { io.Copy(io.Discard, body) })
		time.Sleep(time.Duration(w.draw(200)) * time.Millisecond)
		defer wg.Wait()
	case 3:
		io.CopyN(io.Discard, body, 50)
	}
	resp.Body.Close()
}

func (w *strictWorld) transport() *throttle.Transport {
	observe := func(context.Context, throttle.Event) {
		if w.draw(30) == 0 {
			panic("a hook")
		}
	}
	tr := &throttle.Transport{
		Base:  w,
		Queue: throttle.QueueOptions{MaxInFlight: w.draw(3)},
		Retry: throttle.Retry{MaxAttempts: 1 + w.draw(5), Budget: throttle.Budget{PerCall: -1}, MaxPause: 5 * time.Second},
		Hooks: throttle.Hooks{Waited: observe, Refused: observe, Throttled: observe, Failed: observe, Retrying: observe},
	}
	if w.draw(2) == 0 {
		tr.Limiter = throttle.NewBucket(20, 2)
	}
	if w.draw(2) == 0 {
		tr.Hint = (&hint.Parser{Dialects: []hint.Dialect{{Body: true}}}).Parse
	}
	if w.draw(3) == 0 {
		tr.Retry.Check = func(*http.Request, *http.Response, error) throttle.Verdict {
			switch w.draw(20) {
			case 0:
				panic("Check")
			case 1:
				return throttle.Final
			case 2:
				return throttle.Again
			}
			return throttle.Default
		}
	}
	return tr
}

// Whatever becomes of a call, and whoever panics: each body of an answer is closed once, by the Transport or by the caller
// who got it, and each body of a request is closed once, too.
func TestEveryBodyIsClosedOnce(t *testing.T) {
	seeds := race.Pick(100, 400)
	kinds := map[string]int{}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			w := &strictWorld{rnd: rand.New(rand.NewPCG(uint64(seed), 7))}
			tr := w.transport()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			var sent []*bodies
			var wg sync.WaitGroup
			for i := range 5 {
				b := &bodies{}
				sent = append(sent, b)
				req := b.request(ctx, []string{"PUT", "POST"}[i%2])
				wg.Go(func() {
					for range 2 {
						w.call(ctx, tr, req)
						time.Sleep(time.Duration(w.draw(1000)) * time.Millisecond)
						b2 := &bodies{}
						w.mu.Lock()
						sent = append(sent, b2)
						w.mu.Unlock()
						req = b2.request(ctx, "PUT")
					}
					req.Body.Close() // of the one that was not sent
				})
			}
			wg.Wait()
			synctest.Wait()
			for _, b := range w.made {
				kinds[b.what]++
				if n := b.closed.Load(); n != 1 {
					t.Errorf("seed %d: a body (%s) was closed %d times", seed, b.what, n)
				}
			}
			for _, s := range sent {
				for i, b := range s.made {
					if n := b.closed.Load(); n != 1 {
						t.Errorf("seed %d: body %d of a request was closed %d times", seed, i+1, n)
					}
				}
			}
			if left := leftBehind(); left != "" {
				t.Errorf("seed %d: goroutines are left:\n%s", seed, left)
			}
		})
		if t.Failed() {
			return
		}
	}
	if testing.Verbose() {
		t.Log(fmt.Sprint(kinds))
	}
}

// said is a Base whose first answer has that status, body and fields, and whose later ones are 200. at is when requests arrived.
type said struct {
	status int
	body   func() io.ReadCloser
	fields []string
	silent bool // answers name no request
	begun  time.Time
	at     []time.Duration
	first  *http.Response
}

func (s *said) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.at = append(s.at, time.Since(s.begun)); len(s.at) > 1 {
		return reply(req, 200, "Content-Type", "application/json"), nil
	}
	s.first = reply(req, s.status, s.fields...)
	s.first.Body, s.first.ContentLength = s.body(), -1
	if s.silent {
		s.first.Request = nil
	}
	return s.first, nil
}

func text(s string) func() io.ReadCloser {
	return func() io.ReadCloser { return io.NopCloser(strings.NewReader(s)) }
}

// What the body of a refusal says is obeyed by a Transport without settings: how long to wait, whether a 403 is a refusal at all, and
// that a 200 is one. A permission that is missing stays a 403.
func TestBodiesOfRefusals(t *testing.T) {
	const github = `{"message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}`
	const throttled = `{"errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}]}`
	const shop = "https://a.myshopify.com/admin/api/2026-07/graphql.json"
	const wiki = "https://en.wikipedia.org/w/api.php"
	quota := []string{"X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "4821", "X-RateLimit-Reset", "946686600", "X-RateLimit-Resource", "search"}
	for _, tt := range []struct {
		url    string
		status int
		body   string
		fields []string
		again  bool
		wait   time.Duration
	}{
		{"https://api.github.com/search/issues", 403, github, quota, true, time.Minute},
		{"https://api.github.com/search/issues", 403, github, append(quota, "Retry-After", "30"), true, 30 * time.Second},
		{"https://api.github.com/repos/a/b", 403, `{"message":"Resource not accessible by integration"}`, quota, false, 0},
		{"http://api.test/", 429, `{"retry_after": 9.5}`, nil, true, 9500 * time.Millisecond},
		{"http://api.test/", 429, `{"retry_after": 9.5}`, []string{"Retry-After", "3"}, true, 3 * time.Second},
		{"http://api.test/", 429, `{"error":{"message":"Please try again in 9.5s."}}`, nil, true, 9500 * time.Millisecond},
		{"http://api.test/", 429, `{"detail":"Request was throttled. Expected available in 53 seconds."}`, nil, true, 53 * time.Second},
		{"http://api.test/", 429, `not json`, nil, true, 0},
		{"http://api.test/", 503, `{"retryAfterSeconds": 4}`, nil, true, 4 * time.Second},
		{"https://www.googleapis.com/drive/v3/files", 403, `{"error":{"code":403,"errors":[{"domain":"usageLimits","reason":"userRateLimitExceeded"}]}}`, nil, true, 0},
		{"https://www.googleapis.com/drive/v3/files", 403, `{"error":{"code":403,"errors":[{"domain":"global","reason":"insufficientPermissions"}]}}`, nil, false, 0},
		{"https://graph.facebook.com/v20.0/me", 400, `{"error":{"message":"(#17) User request limit reached","code":17,"fbtrace_id":"E"}}`, nil, true, 0},
		{"https://dynamodb.eu-west-1.amazonaws.com/", 400, `{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException"}`, nil, true, 0},
		{"https://dynamodb.eu-west-1.amazonaws.com/", 400, `{}`, []string{"X-Amzn-Errortype", "ThrottlingException:http://internal.amazon.com/coral/"}, true, 0},
		{"https://dynamodb.eu-west-1.amazonaws.com/", 400, `{"__type":"ValidationException"}`, nil, false, 0},
		{"https://iam.amazonaws.com/", 400, `<ErrorResponse><Error><Type>Sender</Type><Code>Throttling</Code><Message>Rate exceeded</Message></Error></ErrorResponse>`, []string{"Content-Type", "text/xml"}, true, 0},
		{"https://iam.amazonaws.com/", 400, `<ErrorResponse><Error><Code>NoSuchEntity</Code></Error></ErrorResponse>`, []string{"Content-Type", "text/xml"}, false, 0},
		{"https://openrouter.ai/api/v1/chat/completions", 200, `{"error":{"message":"Rate limit exceeded","code":429},"user_id":"u"}`, nil, true, 0},
		{"https://openrouter.ai/api/v1/chat/completions", 200, `{"error":{"message":"Insufficient credits","code":402},"user_id":"u"}`, nil, false, 0},
		{"https://api.test/v1/chat/completions", 200, `{"error":{"message":"Rate limit exceeded","code":429}}`, nil, false, 0},
		{shop, 200, throttled, nil, true, 0},
		{wiki, 200, `{"error": {"code": "maxlag", "lag": 6}}`, []string{"Retry-After", "5", "MediaWiki-API-Error", "maxlag"}, true, 5 * time.Second},
		{wiki, 200, `{"error": {"code": "ratelimited"}}`, []string{"MediaWiki-API-Error", "ratelimited"}, true, 0},
		{wiki, 200, `{"error": {"code": "badtoken"}}`, []string{"Retry-After", "5", "MediaWiki-API-Error", "badtoken"}, false, 0},
		{wiki, 200, `{"query": {}}`, []string{"Retry-After", "5"}, false, 0},
		{"http://api.test/jobs/7", 202, `{"retry_after": 5}`, []string{"Retry-After", "5"}, false, 0},
		{"http://api.test/", 200, `{"error":{"code":429}}`, nil, false, 0},
		{"http://api.test/", 404, `{"error":{"code":429},"retry_after":5}`, nil, false, 0},
	} {
		for _, silent := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				fields := tt.fields
				if !slices.Contains(fields, "Content-Type") {
					fields = append(fields[:len(fields):len(fields)], "Content-Type", "application/json; charset=utf-8")
				}
				up := &said{status: tt.status, body: text(tt.body), fields: fields, silent: silent, begun: time.Now()}
				resp, err := (&throttle.Transport{Base: up}).RoundTrip(request(t.Context(), "POST", tt.url))
				if tt.status == 503 { // may have been acted on
					up = &said{status: tt.status, body: text(tt.body), fields: fields, silent: silent, begun: time.Now()}
					resp, err = (&throttle.Transport{Base: up}).RoundTrip(request(t.Context(), "GET", tt.url))
				}
				if err != nil {
					t.Fatal(err)
				}
				got, _ := io.ReadAll(resp.Body)
				switch {
				case !tt.again && (len(up.at) != 1 || resp.StatusCode != tt.status || string(got) != tt.body):
					t.Errorf("%s %d %s: sent %d times, got %d %q", tt.url, tt.status, tt.body, len(up.at), resp.StatusCode, got)
				case tt.again && (len(up.at) != 2 || resp.StatusCode != 200):
					t.Errorf("%s %d %s: sent %d times, got %d", tt.url, tt.status, tt.body, len(up.at), resp.StatusCode)
				case tt.again && (up.at[1] < tt.wait || up.at[1] > tt.wait+max(tt.wait/20, time.Second)):
					t.Errorf("%s %d %s: sent again after %v, want %v", tt.url, tt.status, tt.body, up.at[1], tt.wait)
				}
			})
		}
	}
}

// A refusal is seen whatever the program has asked it to be compressed by, and handed out as it came. What is packed
// into more than is read says nothing, and costs no more.
func TestCompressedRefusals(t *testing.T) {
	const refusal = `{"retry_after": 9}`
	pack := func(s string, to func(io.Writer) io.WriteCloser) string {
		var b bytes.Buffer
		w := to(&b)
		io.WriteString(w, s)
		w.Close()
		return b.String()
	}
	zip := func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }
	frame := func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }
	raw := func(w io.Writer) io.WriteCloser { f, _ := flate.NewWriter(w, 9); return f }
	bomb := `{"x":"` + strings.Repeat("x", 10<<20) + `","retry_after": 9}`
	for _, tt := range []struct {
		encoding, body string
		seen           bool
	}{
		{"", refusal, true},
		{"identity", refusal, true},
		{"gzip", pack(refusal, zip), true},
		{"x-gzip", pack(refusal, zip), true},
		{"GZIP", pack(refusal, zip), true},
		{"deflate", pack(refusal, frame), true},
		{"deflate", pack(refusal, raw), true},
		{"gzip", pack(bomb, zip), false},
		{"deflate", pack(bomb, raw), false},
		{"gzip", pack(refusal, zip)[:30], false},
		{"gzip", refusal, false},
		{"gzip, gzip", pack(pack(refusal, zip), zip), false},
		{"br", refusal, false},
		{"zstd", refusal, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := &said{status: 429, body: text(tt.body), begun: time.Now(), fields: []string{"Content-Type", "application/json"}}
			if tt.encoding != "" {
				up.fields = append(up.fields, "Content-Encoding", tt.encoding)
			}
			code, err := status(&throttle.Transport{Base: up}, t.Context(), "http://x/")
			if code != 200 || err != nil || len(up.at) != 2 || (up.at[1] >= 9*time.Second) != tt.seen {
				t.Errorf("%s, %d bytes: %d, %v, sent at %v; want it seen: %v", tt.encoding, len(tt.body), code, err, up.at, tt.seen)
			}
			up = &said{status: 429, body: text(tt.body), begun: time.Now(), fields: up.fields}
			resp, err := (&throttle.Transport{Base: up, Retry: throttle.Retry{MaxAttempts: 1}}).RoundTrip(request(t.Context(), "GET", "http://x/"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			if string(got) != tt.body || err != nil || resp.Header.Get("Content-Encoding") != tt.encoding || resp.Uncompressed {
				t.Errorf("%s: handed out %d bytes of %d, %v, %v", tt.encoding, len(got), len(tt.body), err, resp.Header)
			}
		})
	}
}

// An answer whose body was looked into and that is handed out at once is whole: each byte comes, no later than it did, and the error
// at its place. Looking takes at most 90 ms, for an API that is known to refuse with a 200 a second.
func TestLookingIntoBodiesChangesNothing(t *testing.T) {
	broken := errors.New("broken")
	for _, size := range []int{0, 1, 300, 64<<10 - 1, 64 << 10, 64<<10 + 1, 200 << 10} {
		for _, pace := range []time.Duration{0, time.Millisecond, 30 * time.Millisecond, 3 * time.Second} {
			for _, end := range []error{io.EOF, broken} {
				for url, status := range map[string]int{"http://x/": 403, "https://api.github.com/graphql": 200} {
					synctest.Test(t, func(t *testing.T) {
						want := strings.Repeat("0123456789abcdef", size/16+1)[:size]
						ans := &answerBody{r: io.MultiReader(&slowReader{[]byte(want), pace}, brokenReader{end})}
						up := &said{status: status, body: func() io.ReadCloser { return ans }, fields: []string{"Content-Type", "application/json"}}
						begun := time.Now()
						resp, err := (&throttle.Transport{Base: up}).RoundTrip(request(t.Context(), "GET", url))
						if err != nil || resp != up.first || resp.ContentLength != -1 || resp.Uncompressed || resp.Close || len(resp.Header) != 1 {
							t.Fatalf("%d, %v: %+v, %v", size, pace, resp, err)
						}
						if took, most := time.Since(begun), map[int]time.Duration{403: 90 * time.Millisecond, 200: time.Second}[status]; took > most {
							t.Errorf("%d, %v, %d: handed out after %v", size, pace, status, took)
						}
						if n := ans.read.Load(); n > 64<<10+1 {
							t.Errorf("%d, %v: %d bytes were read", size, pace, n)
						}
						var got []byte
						for buf := make([]byte, 4<<10); err == nil; {
							var n int
							n, err = resp.Body.Read(buf)
							got = append(got, buf[:n]...)
						}
						if string(got) != want || err != end {
							t.Errorf("%d, %v, %v: got %d bytes, %v", size, pace, end, len(got), err)
						}
						if took, need := time.Since(begun), pace*time.Duration((size+4095)/(4<<10)+1); took > need+pace {
							t.Errorf("%d, %v: read after %v, it comes in %v", size, pace, took, need)
						}
						resp.Body.Close()
						if ans.closed.Load() != 1 {
							t.Errorf("closed %d times", ans.closed.Load())
						}
						synctest.Wait()
						if left := leftBehind(); left != "" {
							t.Error("goroutines are left:\n", left)
						}
					})
				}
			}
		}
	}
}

// What has come of a body that never ends is handed out at once, while looking into it is still in a Read; Close ends that.
func TestLookingIntoABodyThatNeverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pr, pw := io.Pipe()
		go pw.Write([]byte(`{"a":`))
		up := &said{status: 403, body: func() io.ReadCloser { return pr }, fields: []string{"Content-Type", "application/json"}, begun: time.Now()}
		resp, err := (&throttle.Transport{Base: up}).RoundTrip(request(t.Context(), "GET", "http://x/"))
		if err != nil || time.Since(up.begun) != 90*time.Millisecond {
			t.Fatalf("%v after %v", err, time.Since(up.begun))
		}
		b := make([]byte, 100)
		if n, err := resp.Body.Read(b); string(b[:n]) != `{"a":` || err != nil || time.Since(up.begun) != 90*time.Millisecond {
			t.Errorf("%q, %v after %v", b[:n], err, time.Since(up.begun))
		}
		go pw.Write([]byte(`1}`))
		if n, err := resp.Body.Read(b); string(b[:n]) != `1}` || err != nil {
			t.Errorf("%q, %v", b[:n], err)
		}
		resp.Body.Close()
		synctest.Wait()
		if left := leftBehind(); left != "" {
			t.Error("goroutines are left:\n", left)
		}
	})
}

// A fake often names no request in its answers. The Transport knows which one it sent: so answers of a known API are read, and
// Reason works. A response that a fake returns again and again is left alone.
func TestAnswersThatNameNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		tr := &throttle.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) {
			rec := httptest.NewRecorder()
			rec.Header().Set("Content-Type", "application/json")
			if n++; n == 1 {
				io.WriteString(rec, `{"errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}]}`)
			}
			return rec.Result(), nil
		})}
		req := request(t.Context(), "POST", "https://a.myshopify.com/admin/api/2026-07/graphql.json")
		resp, err := tr.RoundTrip(req)
		if err != nil || n != 2 || resp.Request == nil || resp.Request.URL.String() != req.URL.String() {
			t.Errorf("%d requests, %+v, %v", n, resp, err)
		}
		same := &http.Response{StatusCode: 503, Header: http.Header{}, Body: http.NoBody}
		tr = &throttle.Transport{Retry: throttle.Retry{MaxAttempts: 2}, Base: roundTripper(func(*http.Request) (*http.Response, error) { return same, nil })}
		resp, err = tr.RoundTrip(request(t.Context(), "GET", "http://x/"))
		if err != nil || !errors.Is(throttle.Reason(resp), throttle.ErrMaxAttempts) || same.Request != nil {
			t.Errorf("reason %v, %v; the fake's response names %v", throttle.Reason(resp), err, same.Request)
		}
		resp, err = (&http.Client{Transport: tr}).Get("http://x/")
		if err != nil || !errors.Is(throttle.Reason(resp), throttle.ErrMaxAttempts) {
			t.Errorf("by a client: reason %v, %v", throttle.Reason(resp), err)
		}
	})
}
