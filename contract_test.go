package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
)

// Each case drives one call to one of its ends. The request's bodies are closed exactly once each, its
// answers' too, the one handed out by the caller, the request is as it was, and the line is free again.
func TestEveryBodyIsClosedOnEveryPath(t *testing.T) {
	type world struct {
		*testing.T
		tr  *throttle.Transport
		up  *upstream
		ans *bodyLog
		b   *bodies
		ctx context.Context
	}
	busy := func(w *world) { // the line is full, the limit used up for 1 s
		w.tr.Limiter = throttle.NewBucket(1, 1)
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
	shutDown := func(w *world) { // while the call is under way, and with no time left for those that wait
		ctx, cancel := context.WithCancel(w.ctx)
		cancel()
		time.AfterFunc(time.Millisecond, func() {
			if err := w.tr.Shutdown(ctx); err != context.Canceled {
				w.Error(err)
			}
		})
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
		}, err: throttle.ErrQueueFull},
		{name: "wait too long", set: func(w *world) { w.tr.Queue.MaxWait = time.Millisecond; busy(w) }, err: throttle.ErrWaitTooLong},
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
		}, err: throttle.ErrPaused},
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
			w.tr.Retry.Backoff = func() throttle.Backoff { return constant(2 * time.Second) }
			canceled(w, time.Second)
		}, err: context.Canceled, sent: 1},
		{name: "ctx done in the attempt", set: func(w *world) {
			w.up.trip = time.Hour
			canceled(w, time.Second)
		}, err: context.Canceled, sent: 1},
		{name: "shut down before", set: func(w *world) { w.tr.Shutdown(w.Context()) }, err: throttle.ErrClosed},
		{name: "shut down in line", set: func(w *world) { busy(w); shutDown(w) }, err: throttle.ErrClosed},
		{name: "shut down in line of a retry", set: func(w *world) {
			w.up.answer = func(_ int, req *http.Request) (*http.Response, error) {
				return w.ans.reply(req, 429, 100, "Retry-After", "9"), nil
			}
			shutDown(w)
		}, code: 429, sent: 1},
		{name: "shut down in the backoff", set: func(w *world) {
			w.up.answer = func(int, *http.Request) (*http.Response, error) { return nil, errTest }
			w.tr.Retry.Backoff = func() throttle.Backoff { return constant(2 * time.Second) }
			shutDown(w)
		}, err: throttle.ErrClosed, sent: 1},
		{name: "shut down in the attempt", set: func(w *world) {
			codes(w, 503)
			w.up.trip = time.Second
			shutDown(w)
		}, code: 503, sent: 1},
		{name: "advertised pause longer than the deadline", set: func(w *world) {
			w.up.answer = func(_ int, req *http.Request) (*http.Response, error) {
				return w.ans.reply(req, 429, 100, "Retry-After", "9"), nil
			}
			ctx, cancel := context.WithTimeout(w.ctx, time.Second)
			w.Cleanup(cancel)
			w.ctx = ctx
		}, code: 429, sent: 1},
		{name: "advertised pause longer than MaxPause", set: func(w *world) {
			w.up.answer = func(_ int, req *http.Request) (*http.Response, error) {
				return w.ans.reply(req, 429, 100, "Retry-After", "121"), nil
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
		{name: "bad field", set: func(w *world) { w.tr.Retry.Budget.Max = -1 }, err: errAny},
		{name: "limiter's error", set: func(w *world) { w.tr.Limiter = bare{err: errTest} }, err: errTest},
		{name: "impossible cost", set: func(w *world) { w.ctx = throttle.WithCost(w.ctx, -1) }, err: errAny},
		{name: "Key panics", set: func(w *world) { w.tr.Key = func(*http.Request) string { panic("test") } }},
		{name: "Cost panics", set: func(w *world) { w.tr.Cost = func(*http.Request) int { panic("test") } }},
		{name: "LimiterFor panics", set: func(w *world) { w.tr.LimiterFor = func(string) throttle.Limiter { panic("test") } }},
		{name: "Hold panics", set: func(w *world) {
			hold := func(*http.Request) int { panic("test") }
			w.tr.Meters = func(string) []throttle.Meter {
				return []throttle.Meter{{Name: "tokens", Limiter: throttle.NewBucket(1, 1), Hold: hold}}
			}
		}},
		{name: "limiter panics", set: func(w *world) { w.tr.Limiter = panicking{} }, err: errAny},
		{name: "Check panics", set: func(w *world) {
			codes(w, 200)
			w.tr.Retry.Check = func(*http.Request, *http.Response, error) throttle.Verdict { panic("test") }
		}, sent: 1},
		{name: "Backoff panics", set: func(w *world) {
			codes(w, 500)
			w.tr.Retry.Backoff = func() throttle.Backoff { panic("test") }
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
			w.tr.Hooks.Refused = func(context.Context, throttle.Event) { panic("test") }
		}},
		{name: "Waited panics", set: func(w *world) {
			busy(w)
			w.tr.Hooks.Waited = func(context.Context, throttle.Event) { panic("test") }
		}},
		{name: "Throttled panics", set: func(w *world) {
			codes(w, 429)
			w.tr.Hooks.Throttled = func(context.Context, throttle.Event) { panic("test") }
		}, sent: 1},
		{name: "Failed panics", set: func(w *world) {
			codes(w, 500)
			w.tr.Hooks.Failed = func(context.Context, throttle.Event) { panic("test") }
		}, sent: 1},
		{name: "Retrying panics", set: func(w *world) {
			codes(w, 500)
			w.tr.Hooks.Retrying = func(context.Context, throttle.Event) { panic("test") }
		}, sent: 1},
	} {
		for _, slots := range []int{0, 2} {
			t.Run(fmt.Sprint(c.name, "/slots ", slots), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					up := newUpstream(0, always(200))
					w := &world{t, &throttle.Transport{Base: up, Queue: throttle.QueueOptions{MaxInFlight: slots}, Retry: throttle.Retry{MaxAttempts: 4}}, up, &bodyLog{}, &bodies{}, t.Context()}
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
					synctest.Wait()
					time.Sleep(time.Hour)
					for s := range w.tr.Stats() {
						if s.InFlight != 0 || s.Waiting != 0 {
							t.Errorf("left behind: %+v", s)
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
		tr := &throttle.Transport{Base: up, Queue: throttle.QueueOptions{MaxInFlight: 3}, Retry: throttle.Retry{MaxAttempts: 100, Budget: throttle.Budget{PerCall: -1}}}
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
