package throttle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/hint"
)

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
				if code, err := status(&Transport{Base: up}, t.Context(), "http://x/"); code != 200 || err != nil {
					t.Fatal(code, err)
				}
				if late := time.Since(until); late < 0 || late > part+150*time.Millisecond {
					t.Errorf("%v into a second, Date %v: sent again %v after the date", part, dated, late)
				}
			})
		}
	}
}

// A 429 that tells only when its window ends stops every caller until then.
func TestResetAloneIsWaitedFor(t *testing.T) {
	for name, field := range map[string]func() (string, string){
		"span":   func() (string, string) { return "X-RateLimit-Reset", "20" },
		"moment": func() (string, string) { return "X-RateLimit-Reset", strconv.FormatInt(time.Now().Unix()+20, 10) },
		"date": func() (string, string) {
			return "X-RateLimit-Reset", time.Now().Add(20 * time.Second).UTC().Format(http.TimeFormat)
		},
		"Contentful": func() (string, string) { return "X-Contentful-RateLimit-Reset", "20" },
	} {
		for _, lim := range []Limiter{nil, NewBucket(100, 10)} {
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
				tr := &Transport{Base: up, Limiter: lim}
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

// What says that it is not to be sent again is handed out at once, untouched, and stops nobody.
func TestShouldRetryFalseIsFinal(t *testing.T) {
	for _, field := range []string{"X-Should-Retry", "Stripe-Should-Retry"} {
		for _, code := range []int{400, 403, 409, 418, 429, 500, 502, 503, 504, 529} {
			synctest.Test(t, func(t *testing.T) {
				var ans answers
				var sent *http.Response
				var throttled, failed int
				up := newUpstream(time.Millisecond, func(_ int, req *http.Request) (*http.Response, error) {
					sent = ans.reply(req, code, 100, "Retry-After", "30", field, "false")
					return sent, nil
				})
				tr := &Transport{Base: up, Hooks: Hooks{
					Throttled: func(context.Context, Event) { throttled++ },
					Failed:    func(context.Context, Event) { failed++ },
				}}
				const calls = 20
				for i := range calls { // one after the other, in no time but their round trips
					resp, err := tr.RoundTrip(request(t.Context(), "GET", "http://x/"))
					if err != nil || resp != sent || ans.made[i].read.Load() != 0 {
						t.Fatalf("%s on %d: %v, %v, want the answer as it came", field, code, resp, err)
					}
					resp.Body.Close()
				}
				s := statsOfOnly(t, tr)
				if n, d := len(up.times()), up.now(); n != calls || d != calls*time.Millisecond {
					t.Errorf("%s on %d: %d attempts in %v, want %d in %d ms", field, code, n, d, calls, calls)
				}
				if s.Cause != "" || len(s.Learned) > 0 || s.Retried != 0 {
					t.Errorf("%s on %d: left behind %+v", field, code, s)
				}
				if isThrottled := code == 403 || code == 418 || code == 429 || code == 503 || code == 529; isThrottled != (throttled == calls) ||
					int(s.Throttled) != throttled || (failed > 0) != (code == 500 || code == 502 || code == 504) {
					t.Errorf("%s on %d: %d throttled, %d failed, counted %d", field, code, throttled, failed, s.Throttled)
				}
			})
		}
	}
}

func statsOfOnly(t *testing.T, tr *Transport) (s KeyStats) {
	t.Helper()
	n := 0
	for s = range tr.Stats() {
		n++
	}
	if n != 1 {
		t.Fatalf("%d keys", n)
	}
	return s
}

// Who asks for a retry does not change what is safe to send again, and Check has the last word.
func TestShouldRetryOverridesNoRule(t *testing.T) {
	for _, c := range []struct {
		method, value string
		code          int
		check         Verdict
		sent          int
	}{
		{"POST", "true", 503, Default, 1},
		{"POST", "true", 500, Default, 1},
		{"GET", "true", 409, Default, 1},
		{"GET", "true", 429, Default, 2},
		{"GET", "maybe", 500, Default, 2},
		{"GET", "false", 200, Default, 1},
		{"GET", "false", 429, Default, 1},
		{"GET", "False", 500, Default, 1},
		{"POST", "false", 429, Again, 2},
		{"GET", "true", 429, Final, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(0, func(n int, req *http.Request) (*http.Response, error) {
				if n > 1 {
					return reply(req, 200), nil
				}
				return reply(req, c.code, "X-Should-Retry", c.value), nil
			})
			tr := &Transport{Base: up, Retry: Retry{Check: func(_ *http.Request, resp *http.Response, _ error) Verdict {
				if resp.StatusCode == 200 {
					return Default
				}
				return c.check
			}}}
			resp, err := tr.RoundTrip(request(t.Context(), c.method, "http://x/"))
			if err != nil || len(up.times()) != c.sent || c.sent > 1 && resp.StatusCode != 200 {
				t.Errorf("%+v: %d attempts, %v, %v", c, len(up.times()), resp, err)
			}
		})
	}
}

// A final answer to a probe says nothing of the gate: it stays as it is, and the next caller is the probe at once, so that
// all of them get their own answer.
func TestFinalAnswerToAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trip = 10 * time.Millisecond
		var first time.Duration // final answer
		up := newUpstream(trip, nil)
		up.answer = func(n int, req *http.Request) (*http.Response, error) {
			if n <= 8 {
				return reply(req, 429), nil
			}
			if first == 0 {
				first = up.now()
			}
			return reply(req, 429, "X-Should-Retry", "false"), nil
		}
		tr := &Transport{Base: up, Retry: Retry{MaxAttempts: 100}}
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if code, err := status(tr, t.Context(), "http://x/"); code != 429 || err != nil {
					t.Error(code, err)
				}
			})
		}
		wg.Wait()
		if took := up.now() - first; first == 0 || took > 100*trip {
			t.Errorf("50 callers had their answers %v after the first, want about %v", took, 49*trip)
		}
	})
}

// A spent account, by a Parser that looks into bodies: the caller gets the 429 that names the cause, and nobody waits.
func TestSpentAccountStopsNobody(t *testing.T) {
	const text = `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`
	for looks, sent := range map[bool]int{true: 1, false: 4} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(time.Millisecond, func(_ int, req *http.Request) (*http.Response, error) {
				resp := reply(req, 429, "Content-Type", "application/json")
				resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
				return resp, nil
			})
			tr := &Transport{Base: up, Retry: Retry{MaxAttempts: 4}}
			if looks {
				p := &hint.Parser{Dialects: []hint.Dialect{{Host: "api.openai.com", Body: true}}}
				tr.Hint = p.Parse
			}
			resp, err := tr.RoundTrip(request(t.Context(), "POST", "https://api.openai.com/v1/responses"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			if resp.Body.Close(); resp.StatusCode != 429 || string(got) != text || err != nil || len(up.times()) != sent {
				t.Errorf("looks %v: %d %q %v after %d attempts, want %d", looks, resp.StatusCode, got, err, len(up.times()), sent)
			}
			if s := statsOfOnly(t, tr); looks != (s.Cause == "" && len(s.Learned) == 0) {
				t.Errorf("looks %v: %+v", looks, s)
			}
		})
	}
}

// Behind an upstream that answers nothing but 429, calls wait for MaxPause. Those that were never sent hear then what the probes
// were answered, and nobody is handed the answer to another's request.
func TestErrPausedSaysWhatProbesAreAnswered(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(int, *http.Request) (*http.Response, error)
		want   string
	}{
		"429": {always(429), `calls to this upstream are paused \(429, \d+ probes in (59s|1m0s)\)$`},
		"503": {always(503), `calls to this upstream are paused \(503, \d\d+ probes in (59s|1m0s)\)$`},
		"nobody there": {func(int, *http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
			`calls to this upstream are paused \(no answer, \d\d+ probes in (59s|1m0s)\)$`},
		"429, once": {always(429, "Retry-After", "3600"), `calls to this upstream are paused \(429 0s ago\)$`},
		"spent": {always(200, "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "3600"),
			`calls to this upstream are paused$`},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(10*time.Millisecond, c.answer)
			tr := &Transport{Base: up, Retry: Retry{MaxAttempts: 1000, Backoff: func() Backoff { return constant(1) }}}
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
					var e *Error
					if errors.Is(err, io.ErrUnexpectedEOF) {
						return // it was sent itself
					}
					if !errors.Is(err, ErrPaused) || !errors.As(err, &e) || e.Attempts != 0 {
						t.Errorf("%s: %v", name, err)
					}
					if d := time.Since(start); strings.Contains(err.Error(), "probes in") && (d < 59*time.Second || d > 61*time.Second) {
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
