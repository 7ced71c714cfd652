package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
)

func TestHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type ours struct{} // a key of the request's ctx
		var got []string
		var tr *throttle.Transport
		note := func(name string) func(context.Context, throttle.Event) {
			return func(ctx context.Context, e throttle.Event) {
				for range tr.Stats() { // would deadlock under the lock
				}
				tr.Resume("no such key")
				if ctx.Value(ours{}) == nil {
					t.Error("not the request's ctx")
				}
				text := fmt.Sprintf("%s %s %s %s status=%d attempt=%d wait=%v", name, e.Key, e.Method, e.Host, e.Status, e.Attempt, e.Wait)
				if e.Err != nil {
					text += " err=" + e.Err.Error()
				}
				got = append(got, text)
			}
		}
		first := throttle.Hooks{Waited: note("Waited"), Refused: note("Refused"), Throttled: note("Throttled")}
		second := throttle.Hooks{Failed: note("Failed"), Retrying: note("Retrying"), Throttled: note("Throttled2")}
		up := newUpstream(0, nil)
		up.answer = func(n int, req *http.Request) (*http.Response, error) {
			switch n {
			case 1:
				return reply(req, 429, "Retry-After", "2"), nil
			case 2:
				return reply(req, 500), nil
			case 3:
				return nil, io.ErrUnexpectedEOF
			}
			return reply(req, 429, "Retry-After", "3600"), nil
		}
		tr = &throttle.Transport{Base: up, Hooks: first.Join(second), Retry: throttle.Retry{Backoff: func() throttle.Backoff { return constant(time.Second) }}}
		ctx := context.WithValue(t.Context(), ours{}, true)
		if code, err := status(tr, ctx, "http://X:80/"); code != 429 || err != nil {
			t.Error(code, err)
		}
		if _, err := status(tr, ctx, "http://X:80/"); !errors.Is(err, throttle.ErrPaused) {
			t.Error(err)
		}
		want := []string{
			"Throttled x GET X:80 status=429 attempt=1 wait=2s",
			"Throttled2 x GET X:80 status=429 attempt=1 wait=2s",
			"Retrying x GET X:80 status=429 attempt=1 wait=2.0*", // and jitter
			"Waited x GET X:80 status=0 attempt=1 wait=2.0*",
			"Failed x GET X:80 status=500 attempt=2 wait=0s",
			"Retrying x GET X:80 status=500 attempt=2 wait=1s",
			"Failed x GET X:80 status=0 attempt=3 wait=0s err=unexpected EOF", // 500 is the answer kept
			"Retrying x GET X:80 status=0 attempt=3 wait=1s err=unexpected EOF",
			"Throttled x GET X:80 status=429 attempt=4 wait=1h0m0s",
			"Throttled2 x GET X:80 status=429 attempt=4 wait=1h0m0s",
			"Refused x GET X:80 status=0 attempt=0 wait=1h0m0.*",
		}
		for i := range max(len(got), len(want)) {
			g, w := "nothing", "nothing"
			if i < len(got) {
				g = got[i]
			}
			if i < len(want) {
				w = want[i]
			}
			if pre, ok := strings.CutSuffix(w, "*"); g != w && !(ok && strings.HasPrefix(g, pre)) {
				t.Errorf("event %d: %s\n     want: %s", i, g, w)
			}
		}
	})
}

func TestJoinOfHooks(t *testing.T) {
	var got string
	add := func(s string) func(context.Context, throttle.Event) {
		return func(context.Context, throttle.Event) { got += s }
	}
	h := throttle.Hooks{Waited: add("a"), Refused: add("b")}.Join(throttle.Hooks{Waited: add("A"), Failed: add("C")}).Join(throttle.Hooks{})
	for _, f := range []func(context.Context, throttle.Event){h.Waited, h.Refused, h.Failed, h.Throttled, h.Retrying} {
		if f != nil {
			f(t.Context(), throttle.Event{})
		}
	}
	if got != "aAbC" || h.Throttled != nil || h.Retrying != nil {
		t.Error(got)
	}
}

// Failed's Status.
func TestFailedHookHasItsOwnAttemptsStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		tr := &throttle.Transport{Base: baseFunc(func(req *http.Request) (*http.Response, error) {
			n++
			switch n {
			case 1:
				return reply(req, 503), nil
			case 2:
				return nil, context.DeadlineExceeded
			}
			return reply(req, 200), nil
		}), Hooks: throttle.Hooks{Failed: func(_ context.Context, e throttle.Event) {
			if e.Attempt == 2 && e.Status != 0 {
				t.Error("Status of another attempt:", e.Status, e.Err)
			}
		}}}
		status(tr, t.Context(), "http://a/")
	})
}

// A quota that is not spaced has rate.Inf, which is no real infinity.
func TestLearnedRateIsRateInf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &throttle.Transport{Base: answers(200, "Ratelimit-Policy", `"a";q=10;w=1`, "Ratelimit", `"a";r=9;t=1`)}
		for range 2 {
			if _, err := status(tr, t.Context(), "http://a.test/"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if l := statsOf(t, tr).Learned; len(l) != 1 || l[0].Rate != rate.Inf {
			t.Errorf("%+v", l)
		}
	})
}
