package throttle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/gate"
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

// answers makes answers with bodies of n bytes and remembers the bodies.
type answers struct {
	mu   sync.Mutex
	made []*answerBody
}

func (a *answers) reply(req *http.Request, code, n int, kv ...string) *http.Response {
	resp := reply(req, code, kv...)
	b := &answerBody{r: strings.NewReader(strings.Repeat("b", n))}
	resp.Body, resp.ContentLength = b, int64(n)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.made = append(a.made, b)
	return resp
}

// Each case drives one call to one of its ends. The request's bodies are closed exactly once each, its
// answers' too, the one handed out by the caller, the request is as it was, and the line is free again.
func TestEveryBodyIsClosedOnEveryPath(t *testing.T) {
	type world struct {
		*testing.T
		tr  *Transport
		up  *upstream
		ans *answers
		b   *bodies
		ctx context.Context
	}
	busy := func(w *world) { // the line is full, the limit used up for 1 s
		w.tr.Limiter = NewBucket(1, 1)
		if code, err := status(w.tr, w.Context(), "http://x/"); code != 200 {
			w.Fatal(code, err)
		}
	}
	canceled := func(w *world, after time.Duration) {
		ctx, cancel := context.WithCancel(w.ctx)
		if w.ctx = ctx; after == 0 {
			cancel()
			return
		}
		time.AfterFunc(after, cancel)
	}
	codes := func(w *world, codes ...int) {
		w.up.answer = func(n int, req *http.Request) (*http.Response, error) {
			return w.ans.reply(req, codes[min(n, len(codes))-1], 100), nil
		}
	}
	errTest := errors.New("test")
	for _, c := range []struct {
		name   string
		set    func(*world)
		method string // "": PUT
		code   int
		err    error // 0 and nil: it panics
		sent   int   // attempts with a body
	}{
		{name: "success", set: func(w *world) {}, code: 200, sent: 1},
		{name: "success after waiting", set: busy, code: 200, sent: 1},
		{name: "404", set: func(w *world) { codes(w, 404) }, code: 404, sent: 1},
		{name: "retries", set: func(w *world) { codes(w, 503, 429, 500, 200) }, code: 200, sent: 4},
		{name: "out of attempts", set: func(w *world) { codes(w, 503, 429, 500, 429) }, code: 429, sent: 4},
		{name: "not idempotent", set: func(w *world) { codes(w, 503) }, method: "POST", code: 503, sent: 1},
		{name: "answer then error", set: func(w *world) {
			w.up.answer = func(n int, req *http.Request) (*http.Response, error) {
				if n == 1 {
					return w.ans.reply(req, 503, 100), nil
				}
				return nil, errTest
			}
		}, code: 503, sent: 4},
		{name: "errors", set: func(w *world) {
			w.up.answer = func(int, *http.Request) (*http.Response, error) { return nil, errTest }
		}, err: errTest, sent: 4},
		{name: "queue full", set: func(w *world) {
			w.tr.Queue.MaxWaiting = 1
			busy(w)
			go status(w.tr, w.Context(), "http://x/")
			synctest.Wait()
		}, err: ErrQueueFull},
		{name: "wait too long", set: func(w *world) { w.tr.Queue.MaxWait = time.Millisecond; busy(w) }, err: ErrWaitTooLong},
		{name: "deadline too short", set: func(w *world) {
			busy(w)
			ctx, cancel := context.WithTimeout(w.ctx, time.Millisecond)
			w.Cleanup(cancel)
			w.ctx = ctx
		}, err: context.DeadlineExceeded},
		{name: "paused", set: func(w *world) {
			w.tr.Retry.MaxPause = time.Millisecond
			w.up.answer = always(429, "Retry-After", "1")
			status(w.tr, w.Context(), "http://x/")
		}, err: ErrPaused},
		{name: "ctx done before", set: func(w *world) { canceled(w, 0) }, err: context.Canceled},
		{name: "ctx done in line", set: func(w *world) { busy(w); canceled(w, time.Millisecond) }, err: context.Canceled},
		{name: "ctx done in line of a retry", set: func(w *world) {
			w.up.answer = func(_ int, req *http.Request) (*http.Response, error) {
				return w.ans.reply(req, 429, 100, "Retry-After", "9"), nil
			}
			canceled(w, time.Second)
		}, err: context.Canceled, sent: 1},
		{name: "ctx done in the backoff", set: func(w *world) {
			codes(w, 500)
			w.tr.Retry.Backoff = func() Backoff { return constant(2 * time.Second) }
			canceled(w, time.Second)
		}, err: context.Canceled, sent: 1},
		{name: "ctx done in the attempt", set: func(w *world) {
			w.up.trip = time.Hour
			canceled(w, time.Second)
		}, err: context.Canceled, sent: 1},
		{name: "told pause longer than the deadline", set: func(w *world) {
			w.up.answer = func(_ int, req *http.Request) (*http.Response, error) {
				return w.ans.reply(req, 429, 100, "Retry-After", "9"), nil
			}
			ctx, cancel := context.WithTimeout(w.ctx, time.Second)
			w.Cleanup(cancel)
			w.ctx = ctx
		}, code: 429, sent: 1},
		{name: "told pause longer than MaxPause", set: func(w *world) {
			w.up.answer = func(_ int, req *http.Request) (*http.Response, error) {
				return w.ans.reply(req, 429, 100, "Retry-After", "61"), nil
			}
		}, code: 429, sent: 1},
		{name: "GetBody fails", set: func(w *world) { codes(w, 429); w.b.fail = errTest }, code: 429, sent: 1},
		{name: "GetBody fails after an error", set: func(w *world) {
			w.up.answer = func(int, *http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }
			w.b.fail = errTest
		}, err: errTest, sent: 1},
		{name: "Base returns nothing", set: func(w *world) {
			w.up.answer = func(int, *http.Request) (*http.Response, error) { return nil, nil }
			w.tr.Retry.MaxAttempts = 1
		}, err: errAny, sent: 1},
		{name: "Base returns both", set: func(w *world) {
			w.up.answer = func(_ int, req *http.Request) (*http.Response, error) { return w.ans.reply(req, 200, 100), errTest }
		}, err: errTest, sent: 4},
		{name: "bad field", set: func(w *world) { w.tr.Retry.MaxAttempts = -1 }, err: errAny},
		{name: "limiter's error", set: func(w *world) { w.tr.Limiter = bare{err: errTest} }, err: errTest},
		{name: "impossible cost", set: func(w *world) { w.ctx = WithCost(w.ctx, -1) }, err: errAny},
		{name: "Key panics", set: func(w *world) { w.tr.Key = func(*http.Request) string { panic("test") } }},
		{name: "Cost panics", set: func(w *world) { w.tr.Cost = func(*http.Request) int { panic("test") } }},
		{name: "LimiterFor panics", set: func(w *world) { w.tr.LimiterFor = func(string) Limiter { panic("test") } }},
		{name: "limiter panics", set: func(w *world) { w.tr.Limiter = panicking{} }},
		{name: "Check panics", set: func(w *world) {
			codes(w, 200)
			w.tr.Retry.Check = func(*http.Request, *http.Response, error) Verdict { panic("test") }
		}, sent: 1},
		{name: "Backoff panics", set: func(w *world) {
			codes(w, 500)
			w.tr.Retry.Backoff = func() Backoff { panic("test") }
		}, sent: 1},
		{name: "GetBody panics", set: func(w *world) {
			codes(w, 429)
			w.b.fail = errPanic
		}, sent: 1},
		{name: "Base panics", set: func(w *world) {
			w.up.answer = func(int, *http.Request) (*http.Response, error) { panic("test") }
		}, sent: 1},
		{name: "Refused panics", set: func(w *world) {
			canceled(w, 0)
			w.tr.Hooks.Refused = func(context.Context, Event) { panic("test") }
		}},
		{name: "Waited panics", set: func(w *world) {
			busy(w)
			w.tr.Hooks.Waited = func(context.Context, Event) { panic("test") }
		}},
		{name: "Throttled panics", set: func(w *world) {
			codes(w, 429)
			w.tr.Hooks.Throttled = func(context.Context, Event) { panic("test") }
		}, sent: 1},
		{name: "Failed panics", set: func(w *world) {
			codes(w, 500)
			w.tr.Hooks.Failed = func(context.Context, Event) { panic("test") }
		}, sent: 1},
		{name: "Retrying panics", set: func(w *world) {
			codes(w, 500)
			w.tr.Hooks.Retrying = func(context.Context, Event) { panic("test") }
		}, sent: 1},
	} {
		for _, slots := range []int{0, 2} {
			t.Run(fmt.Sprint(c.name, "/slots ", slots), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					up := newUpstream(0, always(200))
					w := &world{t, &Transport{Base: up, Queue: QueueOptions{MaxInFlight: slots}}, up, &answers{}, &bodies{}, t.Context()}
					c.set(w)
					up.sent = nil
					if c.method == "" {
						c.method = "PUT"
					}
					req := w.b.request(w.ctx, c.method)
					if w.b.fail == errPanic {
						req.GetBody = func() (io.ReadCloser, error) { panic("test") }
					}
					before, header := *req, req.Header.Clone()
					var resp *http.Response
					var err error
					panicked := func() (p any) {
						defer func() { p = recover() }()
						resp, err = w.tr.RoundTrip(req)
						return nil
					}()
					if want := c.code == 0 && c.err == nil; want != (panicked != nil) {
						t.Fatalf("panicked with %v, want a panic: %v", panicked, want)
					}
					switch {
					case c.code != 0 && (err != nil || resp.StatusCode != c.code):
						t.Errorf("%v, %v, want %d", resp, err, c.code)
					case c.err == errAny && err == nil, c.err != nil && c.err != errAny && !errors.Is(err, c.err):
						t.Errorf("%v, want %v", err, c.err)
					case c.err != nil && resp != nil:
						t.Error("an answer and an error")
					}
					if n := len(up.times()); n < c.sent || c.sent > 0 && n != c.sent {
						t.Errorf("%d attempts, want %d", n, c.sent)
					}
					for i, b := range w.b.made {
						if n := b.closed.Load(); n != 1 {
							t.Errorf("body %d closed %d times", i+1, n)
						}
					}
					if before.Body != req.Body || !reflect.DeepEqual(header, req.Header) || !sameRequest(&before, req) {
						t.Error("the request was changed")
					}
					if resp != nil {
						if resp.Body.Close() != nil {
							t.Error("Close fails")
						}
					}
					for i, b := range w.ans.made {
						if n := b.closed.Load(); n != 1 {
							t.Errorf("answer %d of %d closed %d times", i+1, len(w.ans.made), n)
						}
						if i < len(w.ans.made)-1 && c.err == nil && c.code != 0 && !b.eof.Load() {
							t.Errorf("answer %d of %d not drained", i+1, len(w.ans.made))
						}
					}
					// All is free again: two calls at once go through.
					synctest.Wait()
					if w.tr.table == nil {
						return
					}
					time.Sleep(time.Hour)
					for s := range w.tr.Stats() {
						if s.InFlight != 0 || s.Waiting != 0 {
							t.Errorf("left behind: %+v", s)
						}
					}
					for _, k := range w.tr.table.all() {
						if k.Busy() || k.Resting.Load() != 0 {
							t.Errorf("busy %v, slots %d, resting %d", k.Busy(), k.Slots, k.Resting.Load())
						}
					}
					if left := leftBehind(); left != "" {
						t.Error("goroutines are left:\n", left)
					}
				})
			})
		}
	}
}

var (
	errAny   = errors.New("any error")
	errPanic = errors.New("panic")
)

type panicking struct{}

func (panicking) Take(context.Context, int) (time.Duration, error) { panic("test") }

// sameRequest compares what can be compared.
func sameRequest(a, b *http.Request) bool {
	return a.Method == b.Method && a.URL == b.URL && a.Host == b.Host && a.ContentLength == b.ContentLength &&
		reflect.DeepEqual(a.TransferEncoding, b.TransferEncoding) && a.Close == b.Close && a.Context() == b.Context() && a.Response == b.Response
}

// A nil URL closes the body too.
func TestNilURL(t *testing.T) {
	b := &bodies{}
	req := b.request(t.Context(), "PUT")
	req.URL = nil
	resp, err := (&Transport{Key: ByCredential}).RoundTrip(req)
	if resp != nil || err == nil || !strings.Contains(err.Error(), "URL") || b.made[0].closed.Load() != 1 {
		t.Error(resp, err, b.made[0].closed.Load())
	}
}

// An answer that is handed out is whole, whether or not it was kept through waits and attempts.
func TestAnswersAreHandedOutWhole(t *testing.T) {
	for _, size := range []int{0, 1, keepBytes - 1, keepBytes, keepBytes + 1, 5 * keepBytes} {
		for _, pace := range []time.Duration{0, time.Millisecond, time.Second} { // from one read to the next
			for _, kept := range []string{"at once", "out of attempts", "paused later", "deadline later"} {
				synctest.Test(t, func(t *testing.T) {
					var ans answers
					text := bytes.Repeat([]byte("0123456789abcdef"), 5*keepBytes/16)[:size]
					up := newUpstream(0, nil)
					up.answer = func(n int, req *http.Request) (*http.Response, error) {
						if kept == "out of attempts" && n > 1 {
							return nil, io.ErrUnexpectedEOF
						}
						told := "1"
						if kept == "paused later" && n > 1 {
							told = "600"
						}
						resp := ans.reply(req, 429, 0, "Retry-After", told)
						ans.made[len(ans.made)-1].r = &slowReader{text, pace}
						resp.ContentLength = -1
						return resp, nil
					}
					tr := &Transport{Base: up, Retry: Retry{MaxAttempts: 2, Backoff: func() Backoff { return constant(1) }}}
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					defer cancel()
					switch kept {
					case "at once":
						tr.Retry.MaxAttempts = 1
					case "paused later":
						// another call closes the gate for long while this one waits
						go func() {
							time.Sleep(500 * time.Millisecond)
							tr.once.Do(tr.setup)
							tr.table.Mu.Lock()
							defer tr.table.Mu.Unlock()
							k := tr.table.keys["x"]
							k.Gate.Shut(gate.Told, time.Now().Add(10*time.Minute), time.Now())
							k.Expel(time.Now())
						}()
					case "deadline later":
						tr.Limiter = NewBucket(1, 1)
						c, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
						defer cancel()
						ctx = c
						go func() { // takes what the retry would go with
							time.Sleep(500 * time.Millisecond)
							tr.Limiter.(*Bucket).Adjust(5)
						}()
					}
					resp, err := tr.RoundTrip(request(ctx, "GET", "http://x/"))
					if err != nil || resp.StatusCode != 429 {
						t.Fatalf("%d bytes, %v, %s: %v %v", size, pace, kept, resp, err)
					}
					got, err := io.ReadAll(resp.Body)
					if err != nil || !bytes.Equal(got, text) {
						t.Errorf("%d bytes, %v, %s: got %d bytes, %v", size, pace, kept, len(got), err)
					}
					if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
						t.Error("after the end:", n, err)
					}
					if err := resp.Body.Close(); err != nil {
						t.Error(err)
					}
					for i, b := range ans.made {
						if n := b.closed.Load(); n != 1 {
							t.Errorf("answer %d closed %d times", i, n)
						}
					}
					synctest.Wait()
					if left := leftBehind(); left != "" && kept != "paused later" {
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
			var ans answers
			var sent *http.Response
			up := newUpstream(0, func(_ int, req *http.Request) (*http.Response, error) {
				sent = ans.reply(req, code, 100, "Retry-After", "3600")
				return sent, nil
			})
			resp, err := (&Transport{Base: up}).RoundTrip(request(t.Context(), "POST", "http://x/"))
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
		resp, err := (&Transport{Base: up}).RoundTrip(request(t.Context(), "GET", "http://x/"))
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
		code, err := status(&Transport{Base: up}, t.Context(), "http://x/")
		if code != 200 || err != nil || up.times()[1] > 110*time.Millisecond {
			t.Error(code, err, up.times())
		}
		synctest.Wait()
		if left := leftBehind(); left != "" {
			t.Error("goroutines are left:\n", left)
		}
	})
}

// slotCase is one way for an answer to end.
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
		"ctx end":       {end: func(_ *http.Response, cancel func()) { cancel() }},
		"no body":       {answer: func(r *http.Response) { r.Body, r.ContentLength = http.NoBody, 0 }},
		"length 0":      {answer: func(r *http.Response) { r.ContentLength = 0 }},
		"nil body":      {answer: func(r *http.Response) { r.Body = nil }},
		"HEAD":          {method: "HEAD"},
		"switched":      {answer: func(r *http.Response) { r.StatusCode = 101; r.Body = duplex{r.Body} }},
		"close of 500":  {method: "POST", answer: func(r *http.Response) { r.StatusCode = 500 }, end: func(r *http.Response, _ func()) { r.Body.Close() }},
		"close of told": {answer: func(r *http.Response) { r.StatusCode = 304 }, end: func(r *http.Response, _ func()) { r.Body.Close() }},
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
				tr := &Transport{Base: up, Queue: QueueOptions{MaxInFlight: 1}}
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
				if k := tr.table.keys["x"]; k.Slots != 0 {
					t.Errorf("%d slots held after the end", k.Slots)
				}
			})
		})
	}
}

type duplex struct{ io.ReadCloser }

func (duplex) Write(p []byte) (int, error) { return len(p), nil }

// Never more than MaxInFlight between a start and the end of its body, for each key; a retry gives its
// slot back while it waits.
func TestMaxInFlightHoldsForEachKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		flying, most := map[string]int{}, map[string]int{}
		change := func(host string, d int) {
			mu.Lock()
			defer mu.Unlock()
			flying[host] += d
			most[host] = max(most[host], flying[host])
		}
		up := newUpstream(0, func(n int, req *http.Request) (*http.Response, error) {
			change(req.URL.Host, 1)
			time.Sleep(time.Duration(10+n%7) * time.Millisecond)
			if n%5 == 0 {
				change(req.URL.Host, -1)
				return reply(req, 500), nil
			}
			if n%11 == 0 {
				change(req.URL.Host, -1)
				return nil, io.ErrUnexpectedEOF
			}
			return reply(req, 200), nil
		})
		tr := &Transport{Base: up, Queue: QueueOptions{MaxInFlight: 3}, Retry: Retry{MaxAttempts: 100, Budget: Budget{PerCall: -1}}}
		var wg sync.WaitGroup
		for i := range 200 {
			host := fmt.Sprint("h", i%3)
			wg.Go(func() {
				resp, err := tr.RoundTrip(request(t.Context(), "GET", "http://"+host))
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Duration(i%5) * time.Millisecond)
				change(host, -1)
				resp.Body.Close()
			})
		}
		wg.Wait()
		for host, n := range most {
			if n != 3 {
				t.Errorf("%s: %d in flight at once, want 3", host, n)
			}
		}
	})
}

// On a real server: whether a connection is used again after a refused attempt.
func TestConnectionsAreReusedAcrossRetries(t *testing.T) {
	for _, c := range []struct {
		name        string
		size        int
		flush       bool // headers first, the rest of the body never
		connections int
	}{
		{"small body", 100, false, 1},
		{"16 KiB", 16 << 10, false, 1},
		{"long body", 4 << 20, false, 2}, // stays open until the retry has its answer, then it is closed
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
			if code, err := status(&Transport{Base: base}, ctx, server.URL); code != 200 || err != nil {
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
		resp, err := (&http.Client{Transport: &Transport{Base: up}}).Do(b.request(t.Context(), "POST"))
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
		resp, err := (&Transport{Base: base}).RoundTrip(b.request(t.Context(), "POST"))
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

type baseFunc func(*http.Request) (*http.Response, error)

func (f baseFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
