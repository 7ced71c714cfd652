package throttle_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/hint"
)

func TestCostAndPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		up := newUpstream(0, func(n int, req *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, req.URL.Path)
			return reply(req, 200), nil
		})
		tr := &throttle.Transport{Base: up, Limiter: throttle.NewBucket(1, 1), Cost: func(req *http.Request) int {
			if req.URL.Path == "/dear" {
				return 3
			}
			return 1
		}}
		var wg sync.WaitGroup
		send := func(ctx context.Context, path string) {
			wg.Go(func() {
				if code, err := status(tr, ctx, "http://x/"+path); code != 200 {
					t.Error(path, code, err)
				}
			})
			synctest.Wait()
		}
		send(t.Context(), "first")                                                 // at 0
		send(t.Context(), "dear")                                                  // at 2, after vip; leaves a debt of 2
		send(t.Context(), "last")                                                  // at 5
		send(throttle.WithPriority(t.Context(), 1), "vip")                         // at 1
		send(throttle.WithCost(throttle.WithPriority(t.Context(), -5), 0), "free") // with last
		send(throttle.WithPriority(throttle.WithCost(t.Context(), 2), 1), "vip2")  // after vip, at 2, and 1 s of debt
		wg.Wait()
		slices.Sort(order[4:]) // the two go at the same moment
		if want := []string{"/first", "/vip", "/vip2", "/dear", "/free", "/last"}; !slices.Equal(order, want) {
			t.Errorf("%v, want %v", order, want)
		}
		want := []time.Duration{0, 1, 2, 4, 7, 7}
		for i, at := range up.times() {
			if at != want[i]*time.Second {
				t.Errorf("%s at %v, want %v", order[i], at, want[i]*time.Second)
			}
		}
	})
}

// A call whose first attempt is throttled and whose second one fails pays three times, as WithCost says.
func TestThrottledAttemptsPay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := throttle.NewBucket(1e-9, 100)
		tr := &throttle.Transport{Base: newUpstream(0, script(429, 503, 200)), Limiter: b}
		if code, err := status(tr, throttle.WithCost(t.Context(), 7), "http://x/"); code != 200 || math.Abs(b.Tokens()-79) > 1e-3 {
			t.Errorf("%d, %v, %v left of 100, want 79", code, err, b.Tokens())
		}
	})
}

// Retried counts attempts, not intentions.
func TestRetriedCountsWhatWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		tr := &throttle.Transport{Base: baseFunc(func(req *http.Request) (*http.Response, error) {
			n.Add(1)
			return reply(req, 429, "Retry-After", "10"), nil
		})}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := status(tr, ctx, "http://a.test/"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if s := statsOf(t, tr); n.Load() != 1 || s.Sent != 1 || s.Retried != 0 {
			t.Errorf("sent %d: %+v", n.Load(), s)
		}
		status(tr, t.Context(), "http://a.test/")
		if s := statsOf(t, tr); s.Sent != uint64(n.Load()) || s.Retried != s.Sent-2 {
			t.Errorf("sent %d: %+v", n.Load(), s)
		}
	})
}

func TestCustomHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, script(403, 200))
		tr := &throttle.Transport{Base: up, Hint: func(resp *http.Response, now time.Time) hint.Hint {
			if !now.Equal(time.Now()) {
				t.Error("not the time of receipt")
			}
			if resp.StatusCode == 403 {
				return hint.Hint{Throttled: true, RetryAfter: 7 * time.Second}
			}
			return hint.Hint{RetryAfter: -time.Hour}
		}}
		if code, err := status(tr, t.Context(), "http://x/"); code != 200 || err != nil {
			t.Fatal(code, err)
		}
		if got := up.times()[1]; got < 7*time.Second || got > 7*time.Second+350*time.Millisecond {
			t.Errorf("sent again after %v", got)
		}
	})
}

// A Hint that takes its time, as one that reads a slow body does, delays its own call alone: those that wait go when
// their units are there.
func TestSlowHintDelaysNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, func(_ int, req *http.Request) (*http.Response, error) { return reply(req, 503), nil })
		tr := &throttle.Transport{
			Base:    up,
			Limiter: throttle.NewBucket(10, 1),
			Retry:   throttle.Retry{MaxAttempts: 1},
			Hint: func(*http.Response, time.Time) hint.Hint {
				time.Sleep(90 * time.Millisecond)
				return hint.Hint{}
			},
		}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { status(tr, t.Context(), "http://x/") })
		}
		all.Wait()
		if got, want := up.times(), []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond}; !slices.Equal(got, want) {
			t.Errorf("sent at %v, want %v", got, want)
		}
	})
}

// The same holds for the bodies that are read unasked.
func TestSlowGraphQLDelaysNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, func(_ int, req *http.Request) (*http.Response, error) {
			resp := reply(req, 503, "Content-Type", "application/json")
			body, write := io.Pipe()
			resp.Body, resp.ContentLength = body, -1
			time.AfterFunc(90*time.Millisecond, func() { write.Close() })
			return resp, nil
		})
		tr := &throttle.Transport{Base: up, Limiter: throttle.NewBucket(10, 1), Retry: throttle.Retry{MaxAttempts: 1}}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { status(tr, t.Context(), "http://api.github.com/graphql") })
		}
		all.Wait()
		if got, want := up.times(), []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond}; !slices.Equal(got, want) {
			t.Errorf("sent at %v, want %v", got, want)
		}
	})
}

// Nor does it take anything from the patience of calls that came while it ran: for them the gate was open until then.
func TestSlowHintIsNoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, script(429, 200))
		tr := &throttle.Transport{
			Base:    up,
			Limiter: throttle.NewBucket(0.025, 1),
			Retry:   throttle.Retry{MaxAttempts: 1, MaxPause: 10 * time.Second},
			Hint: func(resp *http.Response, _ time.Time) hint.Hint {
				if resp.StatusCode == 200 {
					return hint.Hint{}
				}
				time.Sleep(30 * time.Second)
				return hint.Hint{Throttled: true, RetryAfter: 31 * time.Second}
			},
		}
		go status(tr, t.Context(), "http://x/")
		time.Sleep(25 * time.Second)
		if code, err := status(tr, t.Context(), "http://x/"); code != 200 || err != nil {
			t.Fatal(code, err)
		}
		if got := up.times()[1]; got != 40*time.Second {
			t.Errorf("sent after %v", got)
		}
	})
}

// Whatever time an upstream advertises, no pause is negative, endless or forgotten.
func TestAbsurdHints(t *testing.T) {
	for _, noted := range []time.Duration{math.MinInt64, -1, math.MaxInt64, 100 * 365 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(0, script(429, 200))
			tr := &throttle.Transport{Base: up, Retry: throttle.Retry{MaxPause: -1}, Hint: func(resp *http.Response, _ time.Time) hint.Hint {
				return hint.Hint{Throttled: resp.StatusCode == 429, RetryAfter: noted}
			}}
			if code, err := status(tr, t.Context(), "http://x/"); code != 200 || err != nil {
				t.Fatal(noted, code, err)
			}
			// After 24 h one probe tests what was advertised.
			if got := up.times()[1]; noted > 0 && (got < 24*time.Hour || got > 24*time.Hour+time.Second) || noted <= 0 && got > time.Second {
				t.Errorf("advertised %v: sent again after %v", noted, got)
			}
		})
	}
}

// A Retry-After date 2 to 3 s ahead is waited for until that date, not a second longer. Jitter adds up to 5 %.
func TestRetryAfterDateIsWaitedForAndNoLonger(t *testing.T) {
	for _, dated := range []bool{true, false} {
		for part := time.Duration(0); part < time.Second; part += 100 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(part) // into the second
				var until time.Time
				up := newUpstream(0, nil)
				up.answer = func(n int, req *http.Request) (*http.Response, error) {
					if n > 1 {
						return reply(req, 200), nil
					}
					until = time.Now().Add(3 * time.Second).Truncate(time.Second)
					resp := reply(req, 429, "Retry-After", until.UTC().Format(http.TimeFormat))
					if dated {
						resp.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
					}
					return resp, nil
				}
				if code, err := status(&throttle.Transport{Base: up}, t.Context(), "http://x/"); code != 200 || err != nil {
					t.Fatal(code, err)
				}
				if late := time.Since(until); late < 0 || late > part+150*time.Millisecond {
					t.Errorf("%v into a second, Date %v: sent again %v after the date", part, dated, late)
				}
			})
		}
	}
}

// A 429 that says only when its window ends stops every caller until then.
func TestResetAloneIsWaitedFor(t *testing.T) {
	for name, field := range map[string]func() (string, string){
		"span":   func() (string, string) { return "X-RateLimit-Reset", "20" },
		"moment": func() (string, string) { return "X-RateLimit-Reset", strconv.FormatInt(time.Now().Unix()+20, 10) },
		"date": func() (string, string) {
			return "X-RateLimit-Reset", time.Now().Add(20 * time.Second).UTC().Format(http.TimeFormat)
		},
		"Contentful": func() (string, string) { return "X-Contentful-RateLimit-Reset", "20" },
	} {
		for _, lim := range []throttle.Limiter{nil, throttle.NewBucket(100, 10)} {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(20 * 365 * 24 * time.Hour) // a bubble begins in 2000, before a second count is seen to be one
				up := newUpstream(time.Millisecond, nil)
				up.answer = func(n int, req *http.Request) (*http.Response, error) {
					if n == 1 {
						name, value := field()
						return reply(req, 429, name, value), nil
					}
					return reply(req, 200), nil
				}
				tr := &throttle.Transport{Base: up, Limiter: lim}
				var wg sync.WaitGroup
				for i := range 10 {
					wg.Go(func() {
						time.Sleep(time.Duration(i) * 10 * time.Millisecond)
						if code, err := status(tr, t.Context(), "http://x/"); code != 200 || err != nil {
							t.Error(code, err)
						}
					})
				}
				wg.Wait()
				if again := up.times()[1]; again < 20*time.Second || again > 21100*time.Millisecond {
					t.Errorf("%s, %v: sent again after %v, want 20 s", name, lim, again)
				}
			})
		}
	}
}

// A Retry-After of more than a day is tried after a day; a patience of a day ends then too.
func TestRetryAfterOfMoreThanADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		tr := &throttle.Transport{Retry: throttle.Retry{MaxPause: 24 * time.Hour}, Base: baseFunc(func(req *http.Request) (*http.Response, error) {
			n++
			if n == 1 {
				return reply(req, 429, "Retry-After", "180000"), nil
			}
			return reply(req, 200), nil
		})}
		start := time.Now()
		code, err := status(tr, t.Context(), "http://a/")
		if waited := time.Since(start); code != 429 || err != nil || waited < 24*time.Hour {
			t.Errorf("%d %v after %v", code, err, waited)
		}
	})
}

// A first 429 whose quota is exhausted for longer than the call's MaxPause is handed out at once and untouched.
func TestExhaustedBeyondMaxPauseIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retried := 0
		var sent *http.Response
		tr := &throttle.Transport{
			Base: baseFunc(func(req *http.Request) (*http.Response, error) {
				sent = reply(req, 429, "RateLimit-Policy", `"q";q=100;w=3600`, "RateLimit", `"q";r=0;t=300`)
				return sent, nil
			}),
			Hooks: throttle.Hooks{Retrying: func(context.Context, throttle.Event) { retried++ }},
		}
		resp, err := tr.RoundTrip(request(t.Context(), "GET", "http://a.test/x"))
		if err != nil {
			t.Fatal(err)
		}
		if body, _ := io.ReadAll(resp.Body); resp != sent || string(body) != "answer" || retried > 0 {
			t.Errorf("status %d, %d retries announced, body %q", resp.StatusCode, retried, body)
		}
		resp.Body.Close()
	})
}

// http.Client on top: its Timeout is a deadline, so that calls that cannot meet it fail at once.
func TestClientTimeoutFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, always(200))
		client := &http.Client{Timeout: 2 * time.Second, Transport: &throttle.Transport{Base: up, Limiter: throttle.NewBucket(0.1, 1)}}
		start := time.Now()
		resp, err := client.Get("http://x/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		_, err = client.Get("http://x/")
		var e *throttle.Error
		var u *url.Error
		if !errors.As(err, &e) || e.Wait != 10*time.Second || !errors.Is(err, throttle.ErrWaitTooLong) || !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &u) || !u.Timeout() {
			t.Errorf("%v", err)
		}
		if err := at(0, start); err != nil {
			t.Error(err)
		}
	})
}

// A wait that nobody could foresee outlasts Client.Timeout. What net/http then hands out is not always our
// Error, but always says that this side ended the call, and always is a timeout. The README says so.
func TestClientTimeoutThatRunsOut(t *testing.T) {
	flat := 0
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			tr := &throttle.Transport{Base: newUpstream(0, always(200)), Queue: throttle.QueueOptions{MaxInFlight: 1}}
			held, err := tr.RoundTrip(request(t.Context(), "GET", "http://x/"))
			if err != nil {
				t.Fatal(err)
			}
			defer held.Body.Close()
			start := time.Now()
			_, err = (&http.Client{Timeout: time.Second, Transport: tr}).Get("http://x/")
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), `throttle: "x": `) {
				t.Errorf("%v", err)
			}
			if e := new(throttle.Error); !errors.As(err, &e) {
				flat++
				if !strings.Contains(err.Error(), "Client.Timeout exceeded") {
					t.Errorf("%v", err)
				}
			}
			if u := new(url.Error); !errors.As(err, &u) || !u.Timeout() {
				t.Errorf("%v is not a timeout", err)
			}
			if err := at(time.Second, start); err != nil {
				t.Error(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = (&http.Client{Transport: tr}).Do(request(ctx, "GET", "http://x/"))
			if e := new(throttle.Error); !errors.As(err, &e) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a deadline of the context: %v", err)
			}
		})
	}
	t.Logf("net/http made a text of %d of 200 errors", flat)
}

// Cancelled while waiting: an *Error with the ctx's own error, the last attempt's error beside it.
func TestCancelledWhileWaiting(t *testing.T) {
	for name, c := range map[string]struct {
		tr       func() *throttle.Transport
		attempts int
		also     error
	}{
		"in line": {func() *throttle.Transport {
			tr := &throttle.Transport{Base: newUpstream(0, always(200)), Limiter: throttle.NewBucket(0.01, 1)}
			status(tr, context.Background(), "http://x/")
			return tr
		}, 0, nil},
		"behind the gate": {func() *throttle.Transport {
			return &throttle.Transport{Base: newUpstream(0, always(429, "Retry-After", "30"))}
		}, 1, nil},
		"in the backoff": {func() *throttle.Transport {
			return &throttle.Transport{Base: newUpstream(0, always(500)), Retry: throttle.Retry{Backoff: func() throttle.Backoff { return constant(time.Hour) }}}
		}, 1, nil},
		"in line after an error": {func() *throttle.Transport {
			return &throttle.Transport{Base: newUpstream(0, func(int, *http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }),
				Limiter: throttle.NewBucket(0.01, 1), Retry: throttle.Retry{Backoff: func() throttle.Backoff { return constant(1) }}}
		}, 1, io.ErrUnexpectedEOF},
		"in the backoff after an error": {func() *throttle.Transport {
			return &throttle.Transport{Base: newUpstream(0, func(int, *http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }),
				Retry: throttle.Retry{Backoff: func() throttle.Backoff { return constant(time.Hour) }}}
		}, 1, io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := c.tr()
				var noted []error
				tr.Hooks.Refused = func(_ context.Context, e throttle.Event) { noted = append(noted, e.Err) }
				ctx, cancel := context.WithCancel(t.Context())
				start := time.Now()
				time.AfterFunc(time.Second, cancel)
				_, err := status(tr, ctx, "http://x/")
				var e *throttle.Error
				if !errors.As(err, &e) || !errors.Is(err, context.Canceled) || e.Attempts != c.attempts || e.Key != "x" || e.Timeout() ||
					c.also == nil && e.Err != context.Canceled || c.also != nil && !errors.Is(err, c.also) {
					t.Errorf("%#v", err)
				}
				if err := at(time.Second, start); err != nil {
					t.Error(err)
				}
				if len(noted) != 1 || !errors.Is(noted[0], context.Canceled) {
					t.Errorf("Refused got %v", noted)
				}
			})
		})
	}
}

// A deadline that ends a later attempt, or the wait for it, does not lose the answer that there is.
func TestDeadlineWithAnAnswerAtHand(t *testing.T) {
	for _, trip := range []time.Duration{0, 500 * time.Millisecond, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(0, func(n int, req *http.Request) (*http.Response, error) {
				if n == 1 {
					return reply(req, 503), nil
				}
				<-req.Context().Done()
				return nil, req.Context().Err()
			})
			tr := &throttle.Transport{Base: up, Retry: throttle.Retry{Backoff: func() throttle.Backoff { return constant(time.Second) }}}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second+trip)
			defer cancel()
			resp, err := tr.RoundTrip(request(ctx, "GET", "http://x/"))
			if err != nil || resp.StatusCode != 503 {
				t.Fatalf("deadline %v into the second attempt: %v, want the answer of the first", trip, err)
			}
			if text, err := io.ReadAll(resp.Body); string(text) != "answer" || err != nil {
				t.Errorf("%q %v", text, err)
			}
		})
	}
}

// Behind an upstream that serves nobody, calls wait until that has lasted for MaxPause. Those that were never sent learn then what the probes
// were answered, and nobody is handed the answer to another's request.
func TestErrPausedSaysWhatProbesAreAnswered(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(int, *http.Request) (*http.Response, error)
		want   string
	}{
		"429": {always(429), `upstream paused \(429, \d+ probes in (1m59s|2m0s)\)`},
		"503": {always(503), `upstream paused \(503, \d\d+ probes in (1m59s|2m0s)\)`},
		"nobody there": {func(int, *http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
			`upstream paused \(no answer, \d\d+ probes in (1m59s|2m0s)\)`},
		"429, once": {always(429, "Retry-After", "3600"), `upstream paused \(429 0s ago\)`},
		"spent": {always(200, "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "3600"),
			`upstream paused`},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(10*time.Millisecond, c.answer)
			tr := &throttle.Transport{Base: up, Retry: throttle.Retry{MaxAttempts: 1000, Backoff: func() throttle.Backoff { return constant(1) }}}
			var wg sync.WaitGroup
			var mu sync.Mutex
			var texts []string
			for i := range 500 {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					start := time.Now()
					resp, err := tr.RoundTrip(request(t.Context(), "GET", fmt.Sprint("http://x/", i)))
					if err == nil {
						if resp.Request.URL.Path != fmt.Sprint("/", i) {
							t.Errorf("%s: call %d got the answer to %s", name, i, resp.Request.URL)
						}
						resp.Body.Close()
						return
					}
					var e *throttle.Error
					if errors.Is(err, io.ErrUnexpectedEOF) {
						return // it was sent itself
					}
					if !errors.Is(err, throttle.ErrPaused) || !errors.As(err, &e) || e.Attempts != 0 {
						t.Errorf("%s: %v", name, err)
					}
					if d := time.Since(start); strings.Contains(err.Error(), "probes in") && (d < 119*time.Second || d > 121*time.Second) {
						t.Errorf("%s: left after %v", name, d)
					}
					mu.Lock()
					defer mu.Unlock()
					texts = append(texts, err.Error())
				})
			}
			wg.Wait()
			if len(texts) < 250 {
				t.Fatalf("%s: %d calls ended with ErrPaused, want most of 500", name, len(texts))
			}
			for _, text := range texts {
				if !regexp.MustCompile(c.want).MatchString(text) {
					t.Fatalf("%s: %s, want %s", name, text, c.want)
				}
			}
		})
	}
}

// A redirect hop is a call of its own, under its own key.
func TestRedirectsCountUnderTheirOwnKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, func(n int, req *http.Request) (*http.Response, error) {
			if req.URL.Host == "a" {
				return reply(req, 302, "Location", "http://b/", "Retry-After", "100"), nil
			}
			return reply(req, 200), nil
		})
		tr := &throttle.Transport{Base: up, LimiterFor: func(key string) throttle.Limiter {
			if key == "b" {
				return throttle.NewBucket(1, 1)
			}
			return throttle.NewBucket(1000, 1000)
		}}
		client := &http.Client{Transport: tr}
		start := time.Now()
		for range 4 {
			resp, err := client.Get("http://a/")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		if err := at(3*time.Second, start); err != nil {
			t.Error(err)
		}
		a, _ := keyStats(tr, "a")
		b, _ := keyStats(tr, "b")
		if a.Sent != 4 || b.Sent != 4 || a.Throttled != 0 {
			t.Errorf("a %+v, b %+v", a, b)
		}
	})
}

// A nil URL closes the body too.
func TestNilURL(t *testing.T) {
	b := &bodies{}
	req := b.request(t.Context(), "PUT")
	req.URL = nil
	resp, err := (&throttle.Transport{Key: throttle.ByCredential}).RoundTrip(req)
	if resp != nil || err == nil || !strings.Contains(err.Error(), "URL") || b.made[0].closed.Load() != 1 {
		t.Error(resp, err, b.made[0].closed.Load())
	}
}

// Base returns neither.
func TestBaseThatReturnsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, func(int, *http.Request) (*http.Response, error) { return nil, nil })
		_, err := status(&throttle.Transport{Base: up, Retry: throttle.Retry{MaxAttempts: 2}}, t.Context(), "http://x/")
		if err == nil || !strings.Contains(err.Error(), "*throttle_test.upstream") {
			t.Error(err)
		}
	})
}

// Whoever is handed the answer of a failed attempt can ask why there was no other attempt, also if Base has not said
// which request it answers.
func TestReason(t *testing.T) {
	short := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, time.Second)
	}
	check := func(v throttle.Verdict) throttle.Retry {
		return throttle.Retry{Check: func(*http.Request, *http.Response, error) throttle.Verdict { return v }}
	}
	pauses := func(d time.Duration) throttle.Retry {
		return throttle.Retry{Backoff: func() throttle.Backoff { return constant(d) }}
	}
	broken := errors.New("the file is gone")
	whole := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil }
	gone := func() (io.ReadCloser, error) { return nil, broken }
	both := []error{throttle.ErrNotIdempotent, throttle.ErrNoGetBody}
	only := func(err error) []error { return []error{err} }
	for name, c := range map[string]struct {
		codes   []int // 0: no answer
		retry   throttle.Retry
		ctx     func(context.Context) (context.Context, context.CancelFunc)
		kv      []string
		method  string // "": GET
		body    bool
		getBody func() (io.ReadCloser, error)
		want    []error // nil: there is no reason
	}{
		"success":               {codes: []int{200}},
		"success at last":       {codes: []int{503, 200}},
		"not to be retried":     {codes: []int{404}},
		"final":                 {codes: []int{503}, retry: check(throttle.Final)},
		"attempts":              {codes: []int{503}, retry: throttle.Retry{MaxAttempts: 2}, want: only(throttle.ErrMaxAttempts)},
		"one attempt":           {codes: []int{429}, retry: throttle.Retry{MaxAttempts: 1}, want: only(throttle.ErrMaxAttempts)},
		"backoff ends":          {codes: []int{503}, retry: pauses(-1), want: only(throttle.ErrMaxAttempts)},
		"budget":                {codes: []int{503}, retry: throttle.Retry{Budget: throttle.Budget{PerCall: 1e-9, Max: 1e-9}}, want: only(throttle.ErrRetryBudget)},
		"deadline":              {codes: []int{429}, kv: []string{"Retry-After", "30"}, ctx: short, want: only(context.DeadlineExceeded)},
		"upstream paused":       {codes: []int{429}, kv: []string{"Retry-After", "300"}, want: only(throttle.ErrPaused)},
		"canceled in backoff":   {codes: []int{503}, retry: pauses(10 * time.Second), ctx: short, want: only(throttle.ErrWaitTooLong)},
		"deadline in retry":     {codes: []int{503, 0}, retry: pauses(time.Millisecond), ctx: short, want: only(context.DeadlineExceeded)},
		"POST, 503":             {codes: []int{503}, method: "POST", want: only(throttle.ErrNotIdempotent)},
		"POST, 500":             {codes: []int{500}, method: "POST", body: true, getBody: whole, want: only(throttle.ErrNotIdempotent)},
		"PATCH, 502":            {codes: []int{502}, method: "PATCH", body: true, getBody: whole, want: only(throttle.ErrNotIdempotent)},
		"POST, 503 Retry-After": {codes: []int{503}, kv: []string{"Retry-After", "1"}, method: "POST", want: only(throttle.ErrNotIdempotent)},
		"POST, 429, no answer":  {codes: []int{429, 0}, ctx: short, method: "POST", want: only(context.DeadlineExceeded)},
		"POST, 429, 503":        {codes: []int{429, 503}, method: "POST", want: only(throttle.ErrNotIdempotent)},
		"POST, 429":             {codes: []int{429, 200}, method: "POST", body: true, getBody: whole},
		"POST, 201":             {codes: []int{201}, method: "POST", body: true},
		"POST, 404":             {codes: []int{404}, method: "POST", body: true},
		"POST, 503, final":      {codes: []int{503}, method: "POST", body: true, retry: check(throttle.Final)},
		"POST, 503, again":      {codes: []int{503}, method: "POST", body: true, retry: check(throttle.Again), want: only(throttle.ErrNoGetBody)},
		"POST, 404, again":      {codes: []int{404}, method: "POST", body: true, retry: check(throttle.Again), want: only(throttle.ErrNoGetBody)},
		"POST, body, 429":       {codes: []int{429}, method: "POST", body: true, want: only(throttle.ErrNoGetBody)},
		"POST, body, 529":       {codes: []int{529}, method: "POST", body: true, want: only(throttle.ErrNoGetBody)},
		"POST, body, 503":       {codes: []int{503}, method: "POST", body: true, want: both},
		"PUT, body, 503":        {codes: []int{503}, method: "PUT", body: true, want: only(throttle.ErrNoGetBody)},
		"PUT, body, 429":        {codes: []int{429}, method: "PUT", body: true, want: only(throttle.ErrNoGetBody)},
		"PUT, GetBody fails":    {codes: []int{503}, method: "PUT", body: true, getBody: gone, want: only(broken)},
	} {
		for _, anonymous := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				up := newUpstream(0, func(n int, req *http.Request) (*http.Response, error) {
					code := c.codes[min(n, len(c.codes))-1]
					if code == 0 {
						<-req.Context().Done()
						return nil, req.Context().Err()
					}
					resp := reply(req, code, c.kv...)
					if anonymous {
						resp.Request = nil
					}
					return resp, nil
				})
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if c.ctx != nil {
					ctx, cancel = c.ctx(ctx)
				}
				defer cancel()
				req := request(ctx, cmp.Or(c.method, "GET"), "http://x/")
				if c.body {
					req.Body, req.ContentLength, req.GetBody = io.NopCloser(strings.NewReader("x")), 1, c.getBody
				}
				resp, err := (&throttle.Transport{Base: up, Retry: c.retry}).RoundTrip(req)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				defer resp.Body.Close()
				reason, e := throttle.Reason(resp), (*throttle.Error)(nil)
				for _, sentinel := range append(both, c.want...) {
					if errors.Is(reason, sentinel) != slices.Contains(c.want, sentinel) {
						t.Errorf("%s: %v, want %v", name, reason, c.want)
					}
				}
				switch {
				case c.want == nil && reason != nil:
					t.Errorf("%s: %v, want none", name, reason)
				case c.want != nil && (!errors.As(reason, &e) || e.Key != "x" || e.Attempts != len(up.times())):
					t.Errorf("%s: %+v after %d attempts", name, reason, len(up.times()))
				}
			})
		}
	}
	if err := errors.Join(throttle.Reason(nil), throttle.Reason(&http.Response{})); err != nil {
		t.Errorf("of no call's response: %v", err)
	}
}
