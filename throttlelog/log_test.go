package throttlelog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/throttlelog"
	"github.com/go-throttle/throttle/throttletest"
)

// A log is where a logger writes to.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// lines returns what was written since the last time.
func (l *log) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.buf.Reset()
	return strings.Split(strings.TrimSuffix(l.buf.String(), "\n"), "\n")
}

// logger returns a logger that writes lines without their time, to a tenth of a second.
func logger(level slog.Level) (*slog.Logger, *log) {
	l := new(log)
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch {
		case a.Key == slog.TimeKey:
			return slog.Attr{}
		case a.Key == "error": // without what is predicted, which has jitter
			text, _, _ := strings.Cut(a.Value.String(), " (")
			a.Value = slog.StringValue(text)
		case a.Value.Kind() == slog.KindDuration:
			a.Value = slog.DurationValue(a.Value.Duration().Truncate(time.Second / 4))
		}
		return a
	}})), l
}

// A baseFunc is a function as a Base.
type baseFunc func(*http.Request) (*http.Response, error)

func (f baseFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// upstream answers with code, and 429 with Retry-After: 4. 0: no answer.
func upstream(code *atomic.Int32) baseFunc {
	return func(req *http.Request) (*http.Response, error) {
		now := int(code.Load())
		resp := &http.Response{StatusCode: now, Header: http.Header{}, Body: http.NoBody, Request: req}
		switch now {
		case 0:
			return nil, fmt.Errorf("cannot reach %s", req.URL)
		case 429:
			resp.Header.Set("Retry-After", "4")
		}
		return resp, nil
	}
}

// get makes a call whose request holds secrets wherever a request can.
func get(rt http.RoundTripper, ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://user:hush@a.test/hush?key=hush", strings.NewReader("hush"))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "hush")
	resp, err := rt.RoundTrip(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return err
}

// A closing that its time ends, an outage from its first closing to the probe that ends it, and calls that are turned away.
func TestWarnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, log := logger(slog.LevelInfo)
		var code atomic.Int32
		code.Store(429)
		tr := &throttle.Transport{
			Base: upstream(&code), Retry: throttle.Retry{MaxAttempts: 1, MaxPause: time.Second}, Hooks: throttlelog.Hooks(to),
		}
		send := func(n int) {
			for range n {
				get(tr, t.Context())
			}
		}
		check := func(want ...string) {
			t.Helper()
			if got := log.lines(); !slices.Equal(got, want) {
				t.Errorf("logged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		send(4)
		time.Sleep(1500 * time.Millisecond)
		send(1)
		check(
			`level=WARN msg="throttle: gate closed" key=a.test reason=gate:retry-after wait=4s status=429 attempt=1`,
			`level=WARN msg="throttle: call refused" key=a.test reason=gate:retry-after wait=4s error="throttle: \"a.test\": upstream paused"`,
			`level=WARN msg="throttle: call refused" key=a.test reason=gate:retry-after wait=2.5s error="throttle: \"a.test\": upstream paused" count=3`,
		)
		time.Sleep(3 * time.Second)
		code.Store(0)
		send(10)
		time.Sleep(time.Minute)
		code.Store(200)
		send(3)
		check(
			`level=WARN msg="throttle: gate closed" key=a.test reason=gate:failing wait=250ms attempt=1`,
			// Nobody was served since the first closing, so who comes now does not wait.
			`level=WARN msg="throttle: call refused" key=a.test reason=gate:failing wait=250ms error="throttle: \"a.test\": upstream paused"`,
			`level=WARN msg="throttle: gate opened" key=a.test reason=gate:failing wait=1m0s status=200 attempt=1`,
		)
	})
}

// An outage that probes prolong within a second: one closing is logged, and the opening that ends it.
func TestOpeningAfterSeveralClosings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, log := logger(slog.LevelInfo)
		h := throttlelog.Hooks(to)
		closings := 0
		count := throttle.Hooks{Closed: func(context.Context, throttle.Event) { closings++ }}
		attempts := 0
		tr := &throttle.Transport{Retry: throttle.Retry{MaxAttempts: 20}, Hooks: h.Join(count), Base: baseFunc(func(req *http.Request) (*http.Response, error) {
			time.Sleep(10 * time.Millisecond)
			code := 200
			if attempts++; attempts <= 3 {
				code = 429
			}
			return &http.Response{StatusCode: code, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
		})}
		if err := get(tr, t.Context()); err != nil {
			t.Fatal(err)
		}
		lines := log.lines()
		if closings != 3 || len(lines) != 2 || !strings.Contains(lines[0], "gate closed") || !strings.Contains(lines[1], "gate opened") {
			t.Errorf("%d closings, and logged\n%s\nwant 3, one closing and the opening", closings, strings.Join(lines, "\n"))
		}
	})
}

// However often something happens, there is a line a second for each key and kind.
func TestOneASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, log := logger(slog.LevelInfo)
		h := throttlelog.Hooks(to)
		start := time.Now()
		for time.Since(start) < 10*time.Second { // 1,000 times
			for _, key := range []string{"a", "b"} {
				h.Closed(t.Context(), throttle.Event{Key: key})
				h.Opened(t.Context(), throttle.Event{Key: key})
				h.Refused(t.Context(), throttle.Event{Key: key, Err: throttle.ErrPaused})
			}
			time.Sleep(10 * time.Millisecond)
		}
		counts := map[string]int{}
		for _, l := range log.lines() {
			counts[l]++
		}
		for _, key := range []string{"a", "b"} {
			for _, what := range []struct {
				line string
				n    int
			}{
				{`level=WARN msg="throttle: gate closed" key=` + key, 1},
				{`level=WARN msg="throttle: gate closed" key=` + key + ` count=100`, 9},
				{`level=WARN msg="throttle: gate opened" key=` + key, 10},
				{`level=WARN msg="throttle: call refused" key=` + key + ` error="throttle: upstream paused"`, 1},
				{`level=WARN msg="throttle: call refused" key=` + key + ` error="throttle: upstream paused" count=100`, 9},
			} {
				if counts[what.line] != what.n {
					t.Errorf("%d of %s, want %d", counts[what.line], what.line, what.n)
				}
			}
		}
		if len(counts) != 10 {
			t.Errorf("%d different lines, want 10: %v", len(counts), counts)
		}
	})
}

// 100,000 keys in a second make about a thousand lines, and when they are gone others have theirs.
func TestManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, log := logger(slog.LevelInfo)
		h := throttlelog.Hooks(to)
		for n := range 100_000 {
			h.Closed(t.Context(), throttle.Event{Key: fmt.Sprint(n)})
		}
		if n := len(log.lines()); n != 1025 {
			t.Errorf("%d lines, want 1,025", n)
		}
		time.Sleep(time.Second)
		h.Closed(t.Context(), throttle.Event{Key: "x"})
		if got := log.lines(); len(got) != 1 || strings.Contains(got[0], "count") {
			t.Errorf("%q, want one line that stands for itself", got)
		}
	})
}

// At Debug every wait is there, when it begins and when it ends.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, log := logger(slog.LevelDebug)
		var code atomic.Int32
		code.Store(200)
		tr := &throttle.Transport{Base: upstream(&code), Limiter: throttle.NewBucket(1, 1), Hooks: throttlelog.Hooks(to)}
		get(tr, t.Context())
		get(tr, t.Context())
		want := []string{
			`level=DEBUG msg="throttle: call waits" key=a.test reason=limit:shared wait=1s`,
			`level=DEBUG msg="throttle: call goes" key=a.test reason=limit:shared wait=1s`,
		}
		if got := log.lines(); !slices.Equal(got, want) {
			t.Errorf("logged %q, want %q", got, want)
		}
	})
}

// A configured limit that is too high is logged with what is accepted, and once more when the limit holds alone. Other limits are not logged.
func TestConfiguredLimit(t *testing.T) {
	to, log := logger(slog.LevelWarn)
	h := throttlelog.Hooks(to)
	for _, l := range []throttle.Learned{
		{Source: "throttled", Rate: 9.5887, Configured: 10},
		{Source: "throttled", Rate: 9.9987, Configured: 10},
		{Source: "throttled", Rate: 0.012345, Configured: 0.5},
		{Source: "throttled", Rate: 9.6},
		{Source: "Ratelimit", Limit: 5000, Rate: 1.4},
		{Source: "throttled", Rate: rate.Inf, Configured: 10},
	} {
		h.Learned(t.Context(), throttle.Event{Key: "a", Status: 429, Attempt: 1, Learned: l})
	}
	if got, want := log.lines(), []string{
		`level=WARN msg="throttle: configured limit too high" key=a status=429 attempt=1 configured=10 accepted=9.59`,
		`level=WARN msg="throttle: configured limit too high" key=a status=429 attempt=1 configured=10 accepted=9.999`,
		`level=WARN msg="throttle: configured limit too high" key=a status=429 attempt=1 configured=0.5 accepted=0.0123`,
		`level=WARN msg="throttle: configured limit accepted" key=a status=429 attempt=1 configured=10`,
	}; !slices.Equal(got, want) {
		t.Errorf("logged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Whoever is throttled for ten minutes because the configured limit is too high finds a line of that in the log, and not many.
func TestConfiguredLimitIsLoggedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, log := logger(slog.LevelWarn)
		up := throttletest.NewServer(throttletest.Limit{N: 8, Burst: 5})
		up.Latency = throttletest.Span{Min: 10 * time.Millisecond}
		tr := &throttle.Transport{Base: up, Limiter: throttle.NewBucket(10, 1), Hooks: throttlelog.Hooks(to)}
		for start := time.Now(); time.Since(start) < 10*time.Minute; {
			if err := get(tr, t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for _, line := range log.lines() {
			switch {
			case strings.Contains(line, "configured limit too high") && strings.Contains(line, " configured=10 accepted="):
				n++
			case strings.Contains(line, "configured"):
				t.Error(line)
			}
		}
		if n == 0 || n > 10 { // one a minute
			t.Errorf("%d lines", n)
		}
	})
}

// Whatever becomes of calls, nothing of a request is logged.
func TestNoCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, log := logger(slog.LevelDebug)
		var code atomic.Int32
		tr := &throttle.Transport{
			Base: upstream(&code), Limiter: throttle.NewBucket(1, 1), Hooks: throttlelog.Hooks(to),
			Retry: throttle.Retry{MaxPause: time.Second}, Queue: throttle.QueueOptions{MaxWaiting: 2},
		}
		var calls sync.WaitGroup
		for n := range 40 {
			code.Store([]int32{0, 429, 503, 200}[n/10])
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n%7+1)*time.Second)
			defer cancel()
			calls.Go(func() { get(tr, ctx) })
			time.Sleep(300 * time.Millisecond)
		}
		calls.Wait()
		lines := log.lines()
		for _, l := range lines {
			if strings.Contains(l, "hush") {
				t.Error(l)
			}
		}
		if len(lines) < 20 {
			t.Errorf("%d lines are not much: %q", len(lines), lines)
		}
	})
}

// A nil logger is the default one, and a handler may be asked for its level at any time.
func TestDefault(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	h := throttlelog.Hooks(nil)
	to, log := logger(slog.LevelWarn)
	slog.SetDefault(to)
	h.Refused(t.Context(), throttle.Event{Key: "<script>\n\u202e", Err: errors.New("no"), Status: 429})
	h.Waiting(t.Context(), throttle.Event{Key: "a"})
	if got := log.lines(); len(got) != 1 || got[0] != `level=WARN msg="throttle: call refused" key="<script>\n\u202e" status=429 error=no` {
		t.Errorf("%q", got)
	}
}
