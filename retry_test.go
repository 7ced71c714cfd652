package throttle

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/go-throttle/throttle/internal/gate"
)

// What is sent again: each row is one answer or error, and who may be sent again after it.
func TestWhatIsSentAgain(t *testing.T) {
	const never, idempotentOnly, all = 0, 1, 2
	answer := func(code int, kv ...string) func(*http.Request) (*http.Response, error) {
		return func(req *http.Request) (*http.Response, error) { return reply(req, code, kv...), nil }
	}
	fail := func(err error) func(*http.Request) (*http.Response, error) {
		return func(*http.Request) (*http.Response, error) { return nil, err }
	}
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for name, c := range map[string]struct {
		first func(*http.Request) (*http.Response, error)
		again int
	}{
		"200":               {answer(200), never},
		"204":               {answer(204), never},
		"302, Retry-After":  {answer(302, "Retry-After", "5", "Location", "/"), never},
		"400":               {answer(400), never},
		"403, Retry-After":  {answer(403, "Retry-After", "5"), all},
		"403":               {answer(403), never},
		"404":               {answer(404), never},
		"408":               {answer(408), never},
		"429":               {answer(429), all},
		"429 told":          {answer(429, "Retry-After", "5"), all},
		"429 nonsense":      {answer(429, "Retry-After", "soon"), all},
		"500":               {answer(500), idempotentOnly},
		"501":               {answer(501), never},
		"502":               {answer(502), idempotentOnly},
		"503":               {answer(503), idempotentOnly},
		"503 told":          {answer(503, "Retry-After", "5"), idempotentOnly},
		"504":               {answer(504), idempotentOnly},
		"505":               {answer(505), never},
		"reset":             {fail(&net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}), idempotentOnly},
		"EOF":               {fail(io.EOF), idempotentOnly},
		"dial":              {fail(dial), all},
		"dial in url.Error": {fail(&url.Error{Op: "Get", URL: "http://x", Err: dial}), all},
		"DNS timeout":       {fail(&net.DNSError{Err: "i/o timeout", Name: "x", IsTimeout: true}), all},
		"no such host":      {fail(&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}}), never},
		"unknown CA":        {fail(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), never},
		"wrong host":        {fail(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "x"}), never},
		"expired":           {fail(x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.Expired}), never},
		"scheme":            {fail(&url.Error{Op: "Get", URL: "ftp://x", Err: errors.New("unsupported protocol scheme \"ftp\"")}), never},
		"no Host":           {fail(errors.New("http: no Host in request URL")), never},
	} {
		for _, m := range []struct {
			method, header string
			idempotent     bool
		}{
			{"", "", true}, {"GET", "", true}, {"HEAD", "", true}, {"OPTIONS", "", true}, {"TRACE", "", true}, {"PUT", "", true}, {"DELETE", "", true},
			{"POST", "", false}, {"PATCH", "", false}, {"CONNECT", "", false}, {"QUERY", "", false},
			{"POST", "Idempotency-Key", true}, {"PATCH", "X-Idempotency-Key", true},
		} {
			for _, body := range []string{"none", "replayable", "once"} {
				synctest.Test(t, func(t *testing.T) {
					up := newUpstream(0, func(n int, req *http.Request) (*http.Response, error) {
						if n == 1 {
							return c.first(req)
						}
						return reply(req, 200), nil
					})
					req := request(t.Context(), m.method, "http://x/")
					if m.header != "" {
						req.Header.Set(m.header, "1")
					}
					if body != "none" {
						b := &bodies{}
						full := b.request(t.Context(), m.method)
						if req.Body = full.Body; body == "replayable" {
							req.GetBody = full.GetBody
						}
					}
					resp, err := (&Transport{Base: up}).RoundTrip(req)
					want := 1
					if body != "once" && (c.again == all || c.again == idempotentOnly && m.idempotent) {
						want = 2
					}
					if got := len(up.times()); got != want {
						t.Errorf("%s, %s %s, body %s: %d attempts, want %d", name, m.method, m.header, body, got, want)
					}
					if (err == nil) == (resp == nil) || want == 2 && (err != nil || resp.StatusCode != 200) {
						t.Errorf("%s, %s: %v, %v", name, m.method, resp, err)
					}
				})
			}
		}
	}
}

// A refused retry waits for the gate alone, one after a failure for its own backoff.
func TestWhenItIsSentAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(*http.Request) (*http.Response, error)
		from   time.Duration
		to     time.Duration
	}{
		{"429 told 5 s", func(r *http.Request) (*http.Response, error) { return reply(r, 429, "Retry-After", "5"), nil }, 5 * time.Second, 5*time.Second + 250*time.Millisecond},
		{"429 told 60 s", func(r *http.Request) (*http.Response, error) { return reply(r, 429, "Retry-After", "60"), nil }, time.Minute, 61 * time.Second},
		{"503 told 5 s", func(r *http.Request) (*http.Response, error) { return reply(r, 503, "Retry-After", "5"), nil }, 5 * time.Second, 5*time.Second + 250*time.Millisecond},
		{"429 untold, limit known", func(r *http.Request) (*http.Response, error) { return reply(r, 429), nil }, 500 * time.Millisecond, 500 * time.Millisecond},
		{"503", func(r *http.Request) (*http.Response, error) { return reply(r, 503), nil }, 3 * time.Second, 3 * time.Second},
		{"500", func(r *http.Request) (*http.Response, error) { return reply(r, 500), nil }, 3 * time.Second, 3 * time.Second},
		{"error", func(r *http.Request) (*http.Response, error) { return nil, io.EOF }, 3 * time.Second, 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(0, func(n int, req *http.Request) (*http.Response, error) {
				if n == 1 {
					return c.answer(req)
				}
				return reply(req, 200), nil
			})
			tr := &Transport{Base: up, Limiter: NewBucket(2, 10), Retry: Retry{Backoff: func() Backoff { return constant(3 * time.Second) }}}
			if code, err := status(tr, t.Context(), "http://x/"); code != 200 {
				t.Fatal(code, err)
			}
			if got := up.times()[1]; got < c.from || got > c.to {
				t.Errorf("%s: sent again after %v, want %v to %v", c.name, got, c.from, c.to)
			}
		})
	}
}

// The default delays are uniform in (0, c], c = 500 ms doubling to 30 s.
func TestDefaultBackoff(t *testing.T) {
	ceilings := []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second}
	const rounds = 2000
	var sum [8]time.Duration
	var most [8]time.Duration
	for range rounds {
		b := defaultBackoff()
		for i, c := range ceilings {
			d := b.NextBackOff()
			if d < 0 || d > c+1 {
				t.Fatalf("delay %d is %v, want at most %v", i, d, c)
			}
			sum[i] += d
			most[i] = max(most[i], d)
		}
	}
	for i, c := range ceilings {
		if mean := sum[i] / rounds; mean < c*45/100 || mean > c*55/100 || most[i] < c*95/100 {
			t.Errorf("delay %d: mean %v, most %v, want uniform up to %v", i, mean, most[i], c)
		}
	}
}

// delays is a Backoff that ends.
type delays []time.Duration

func (d *delays) NextBackOff() time.Duration {
	if len(*d) == 0 {
		return -1
	}
	next := (*d)[0]
	*d = (*d)[1:]
	return next
}

func TestCustomBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, always(500))
		made := 0
		tr := &Transport{Base: up, Retry: Retry{MaxAttempts: 10, Backoff: func() Backoff {
			made++
			return &delays{time.Second, 0, 2 * time.Second}
		}}}
		code, err := status(tr, t.Context(), "http://x/")
		if want := []time.Duration{0, time.Second, time.Second, 3 * time.Second}; code != 500 || err != nil || !slices.Equal(up.times(), want) || made != 1 {
			t.Errorf("%d %v, sent at %v, want %v; %d made", code, err, up.times(), want, made)
		}
		// One that stops at once; one that is never asked, after a success.
		tr = &Transport{Base: up, Retry: Retry{Backoff: func() Backoff { return &backoff.StopBackOff{} }}}
		status(tr, t.Context(), "http://x/")
		if n := len(up.times()); n != 5 {
			t.Errorf("%d attempts, want 1 more", n)
		}
	})
}

func TestMaxAttempts(t *testing.T) {
	for most, want := range map[int]int{0: 4, 1: 1, 2: 2, 7: 7} {
		for _, code := range []int{429, 500, 503} {
			synctest.Test(t, func(t *testing.T) {
				up := newUpstream(0, always(code))
				tr := &Transport{Base: up, Retry: Retry{MaxAttempts: most, MaxPause: -1, Budget: Budget{PerCall: -1}}}
				resp, err := tr.RoundTrip(request(t.Context(), "GET", "http://x/"))
				if err != nil || resp.StatusCode != code || len(up.times()) != want {
					t.Errorf("MaxAttempts %d, %d: %v %v, %d attempts, want %d", most, code, resp, err, len(up.times()), want)
				}
				if text, _ := io.ReadAll(resp.Body); string(text) != "answer" {
					t.Errorf("body %q", text)
				}
			})
		}
	}
}

// verdicts of Check.
func TestCheck(t *testing.T) {
	errTest := errors.New("test")
	for _, c := range []struct {
		name     string
		verdict  Verdict
		method   string
		first    func(*http.Request) (*http.Response, error)
		attempts int
	}{
		{"Default, 429", Default, "POST", func(r *http.Request) (*http.Response, error) { return reply(r, 429), nil }, 2},
		{"Final, 429", Final, "GET", func(r *http.Request) (*http.Response, error) { return reply(r, 429, "Retry-After", "1"), nil }, 1},
		{"Final, error", Final, "GET", func(r *http.Request) (*http.Response, error) { return nil, errTest }, 1},
		{"Again, 200", Again, "GET", func(r *http.Request) (*http.Response, error) { return reply(r, 200), nil }, 2},
		{"Again, 404", Again, "GET", func(r *http.Request) (*http.Response, error) { return reply(r, 404), nil }, 2},
		{"Again, POST 503", Again, "POST", func(r *http.Request) (*http.Response, error) { return reply(r, 503), nil }, 2},
		{"Again, POST error", Again, "POST", func(r *http.Request) (*http.Response, error) { return nil, errTest }, 2},
		{"Again, body once", Again, "PUT", func(r *http.Request) (*http.Response, error) { return reply(r, 429), nil }, 1},
		{"nonsense", Verdict(99), "GET", func(r *http.Request) (*http.Response, error) { return reply(r, 200), nil }, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(0, func(n int, req *http.Request) (*http.Response, error) {
				if n == 1 {
					return c.first(req)
				}
				return reply(req, 201), nil
			})
			req := request(t.Context(), c.method, "http://x/")
			if c.name == "Again, body once" {
				req.Body = io.NopCloser(strings.NewReader("x"))
			}
			calls := 0
			tr := &Transport{Base: up, Retry: Retry{Check: func(r *http.Request, resp *http.Response, err error) Verdict {
				if calls++; r != req {
					t.Error("not the caller's request")
				}
				if (resp == nil) == (err == nil) {
					t.Error("both or neither", resp, err)
				}
				if calls > 1 {
					return Default
				}
				return c.verdict
			}}}
			resp, err := tr.RoundTrip(req)
			if got := len(up.times()); got != c.attempts || calls != c.attempts {
				t.Errorf("%s: %d attempts, %d calls of Check, want %d", c.name, got, calls, c.attempts)
			}
			if c.attempts == 2 && (err != nil || resp.StatusCode != 201) {
				t.Errorf("%s: %v %v", c.name, resp, err)
			}
			if s, ok := keyStats(tr, "x"); c.name == "Final, 429" && (!ok || s.Cause != "told") {
				t.Error("a Final refusal does not close the gate")
			}
		})
	}
}

// A call whose pause would outlast it gets the answer at once, untouched; later calls meet the closed gate.
func TestPausesThatCannotBeSatThrough(t *testing.T) {
	for _, c := range []struct {
		name     string
		told     string
		pause    time.Duration
		deadline time.Duration
		later    error
	}{
		{"deadline", "10", -1, 5 * time.Second, context.DeadlineExceeded},
		{"MaxPause", "10", 9 * time.Second, 0, ErrPaused},
		{"default MaxPause", "61", 0, 0, ErrPaused},
		{"a day", "86400", 0, 0, ErrPaused},
		{"for ever", "99999999999999999999", 0, 0, ErrPaused},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(0, always(429, "Retry-After", c.told))
			tr := &Transport{Base: up, Retry: Retry{MaxPause: c.pause}}
			start := time.Now()
			ctx := t.Context()
			if c.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.deadline)
				defer cancel()
			}
			if code, err := status(tr, ctx, "http://x/"); code != 429 || err != nil {
				t.Errorf("%s: %d %v", c.name, code, err)
			}
			_, err := status(tr, ctx, "http://x/")
			var e *Error
			if !errors.As(err, &e) || !errors.Is(err, c.later) || e.Key != "x" || e.Attempts != 0 || e.Timeout() != (c.later != ErrPaused) {
				t.Errorf("%s: %v, want %v", c.name, err, c.later)
			} else if e.Wait < 10*time.Second || e.Wait > 24*time.Hour+time.Second {
				t.Errorf("%s: predicted wait %v", c.name, e.Wait)
			}
			if err := at(0, start); err != nil || len(up.times()) != 1 {
				t.Errorf("%s: %v, %d attempts", c.name, err, len(up.times()))
			}
		})
	}
}

// MaxPause is all the time behind closed gates of one call.
func TestMaxPauseIsSpentOverAllAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, always(429, "Retry-After", "4"))
		tr := &Transport{Base: up, Retry: Retry{MaxAttempts: 100, MaxPause: 10 * time.Second}}
		start := time.Now()
		if code, err := status(tr, t.Context(), "http://x/"); code != 429 || err != nil {
			t.Error(code, err)
		}
		// two pauses of 4 to 4.2 s; the third does not fit
		if n, d := len(up.times()), time.Since(start); n != 3 || d < 8*time.Second || d > 8400*time.Millisecond {
			t.Errorf("%d attempts in %v, want 3 in 8 s", n, d)
		}
	})
}

// A call that waits behind an untold closing leaves after MaxPause: with its answer, or with ErrPaused.
func TestMaxPauseInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, always(503))
		tr := &Transport{Base: up, Retry: Retry{MaxPause: 30 * time.Second, MaxAttempts: 1000, Backoff: func() Backoff { return constant(1) }}}
		start := time.Now()
		var wg sync.WaitGroup
		var mu sync.Mutex
		ended := map[string]int{}
		call := func() {
			wg.Go(func() {
				begin := time.Now()
				code, err := status(tr, t.Context(), "http://x/")
				mu.Lock()
				defer mu.Unlock()
				if ended[fmt.Sprint(code, errors.Is(err, ErrPaused))]++; err != nil && !errors.Is(err, ErrPaused) {
					t.Error(err)
				}
				if d := time.Since(begin); d > 30*time.Second+300*time.Millisecond {
					t.Errorf("ended after %v", d)
				}
			})
		}
		for range 20 {
			call()
		}
		time.Sleep(5 * time.Second)
		for range 20 { // these meet the closed gate
			call()
		}
		time.Sleep(25*time.Second - time.Since(start))
		synctest.Wait()
		s, _ := keyStats(tr, "x")
		if s.Cause != "failing" || s.Waiting == 0 {
			t.Errorf("%+v", s)
		}
		wg.Wait()
		if len(ended) > 2 || ended["503 false"] < 20 || ended["503 false"]+ended["0 true"] != 40 {
			t.Errorf("ended %v", ended)
		}
		// The closing is older than MaxPause now: a new call is the probe if one is due, else it is refused at once.
		time.Sleep(time.Minute)
		before := len(up.times())
		if code, _ := status(tr, t.Context(), "http://x/"); code != 503 || len(up.times()) != before+1 {
			t.Errorf("the next call is no probe: %d, %d attempts", code, len(up.times())-before)
		}
		begin := time.Now()
		if _, err := status(tr, t.Context(), "http://x/"); !errors.Is(err, ErrPaused) || time.Since(begin) != 0 {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		up.answer = always(200)
		time.Sleep(30 * time.Second)
		if code, err := status(tr, t.Context(), "http://x/"); code != 200 {
			t.Error("the outage does not end:", code, err)
		}
	})
}

// closedByFailures makes tr's Base, and has its gate closed by failures.
func closedByFailures(t *testing.T, tr *Transport) *upstream {
	up := newUpstream(0, always(503))
	tr.Base, tr.Retry.MaxAttempts = up, 1
	for range gate.FailuresToClose {
		status(tr, t.Context(), "http://x/")
	}
	if s, _ := keyStats(tr, "x"); s.Cause != "failing" {
		t.Fatalf("not closed: %+v", s)
	}
	return up
}

// An outage always ends: however long it has lasted, the next call is the probe, even if it has to
// wait for the limiter.
func TestTheNextCallIsTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := NewBucket(1, 10)
		tr := &Transport{Limiter: lim}
		up := closedByFailures(t, tr)
		up.answer = always(200)
		time.Sleep(time.Hour)
		lim.Adjust(15) // a debt of 5
		start := time.Now()
		if code, err := status(tr, t.Context(), "http://x/"); code != 200 {
			t.Error(code, err)
		}
		if err := at(6*time.Second, start); err != nil {
			t.Error(err)
		}
	})
}

// The probe is rather a call that can be sent again.
func TestProbeIsOneThatCanBeSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{}
		up := closedByFailures(t, tr)
		var order []string
		var mu sync.Mutex
		up.answer = func(n int, req *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, req.Method)
			return reply(req, 503), nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		for _, method := range []string{"POST", "PATCH", "PUT", "POST", "GET"} {
			go tr.RoundTrip(request(ctx, method, "http://x/"))
			synctest.Wait()
		}
		time.Sleep(600 * time.Millisecond) // two probes
		cancel()
		synctest.Wait()
		if want := []string{"PUT", "GET"}; !slices.Equal(order, want) {
			t.Errorf("probes %v, want %v", order, want)
		}
	})
}

// A 500 is no failure that closes a gate, but one that answers a probe does not end the outage, and the
// next probe is not due at once. A probe whose caller cancels makes place for another.
func TestWhatAnswersAProbe(t *testing.T) {
	for _, c := range []struct {
		name     string
		answer   func(int, *http.Request) (*http.Response, error)
		from, to int // attempts in 10 s
	}{
		{"503", always(503), 20, 40},
		{"500", always(500), 20, 40},
		{"certificate", func(int, *http.Request) (*http.Response, error) { return nil, x509.UnknownAuthorityError{} }, 20, 40},
		{"200", always(200), 1000, 1000},
		{"404", always(404), 1000, 1000},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := &Transport{}
			up := closedByFailures(t, tr)
			up.answer = c.answer
			ctx, cancel := context.WithCancel(t.Context())
			before := len(up.times())
			for range 1000 {
				go status(tr, ctx, "http://x/")
			}
			time.Sleep(10 * time.Second)
			cancel()
			synctest.Wait()
			if n := len(up.times()) - before; n < c.from || n > c.to {
				t.Errorf("%s: %d attempts in 10 s, want %d to %d", c.name, n, c.from, c.to)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{}
		up := closedByFailures(t, tr)
		up.trip = time.Second
		up.answer = always(200)
		ctx, cancel := context.WithCancel(t.Context())
		go status(tr, ctx, "http://x/") // the probe, at 250 ms
		synctest.Wait()
		done := make(chan bool)
		go func() { status(tr, t.Context(), "http://x/"); close(done) }()
		time.Sleep(500 * time.Millisecond)
		cancel()
		<-done
		if got := up.now(); got != 1500*time.Millisecond {
			t.Errorf("the next probe was answered at %v, want 1.5 s", got)
		}
	})
}

func TestBudget(t *testing.T) {
	// run sends calls that all fail, one after the other, and returns the retries.
	run := func(ctx context.Context, tr *Transport, up *upstream, calls int) int {
		before := len(up.times())
		for range calls {
			status(tr, ctx, "http://x/")
		}
		return len(up.times()) - before - calls
	}
	for _, c := range []struct {
		name   string
		budget Budget
		calls  int
		want   int
	}{
		{"default", Budget{}, 100, 10 + 20},
		{"none saved up", Budget{Max: 1}, 50, 1 + 10},
		{"half", Budget{PerCall: 0.5, Max: 4}, 40, 4 + 20},
		{"no budget", Budget{PerCall: -1}, 50, 150},
		{"too small for one", Budget{PerCall: 0.1, Max: 0.5}, 50, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(0, always(500)) // says nothing of the upstream, so the gate stays open
			tr := &Transport{Base: up, Retry: Retry{Budget: c.budget}}
			if got := run(t.Context(), tr, up, c.calls); got > c.want || got < c.want-2 {
				t.Errorf("%s: %d retries for %d calls, want %d", c.name, got, c.calls, c.want)
			}
			// Successes refill it up to Max.
			up.answer = always(200)
			run(t.Context(), tr, up, 200)
			up.answer = always(500)
			full := c.budget.withDefaults()
			first := run(t.Context(), tr, up, 1)
			if want := min(3, int(full.Max)); full.PerCall > 0 && first != want {
				t.Errorf("%s: %d retries of the first call after the refill, want %d", c.name, first, want)
			}
		})
	}
}

func (b Budget) withDefaults() Budget { return Retry{Budget: b}.withDefaults().Budget }

// State is per key.
func TestBudgetIsPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, always(500))
		tr := &Transport{Base: up, Retry: Retry{Budget: Budget{Max: 3}}}
		for _, want := range []int{4, 5, 9, 10} { // 3 retries, none; the same for b
			host := "a"
			if want > 5 {
				host = "b"
			}
			status(tr, t.Context(), "http://"+host)
			if got := len(up.times()); got != want {
				t.Errorf("%d attempts, want %d", got, want)
			}
		}
	})
}

// When the budget is spent, an answer is handed out as it is; an error says why it was not sent again.
func TestErrRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errTest := errors.New("test")
		up := newUpstream(0, func(int, *http.Request) (*http.Response, error) { return nil, errTest })
		tr := &Transport{Base: up, Retry: Retry{MaxAttempts: 3, Budget: Budget{PerCall: 0.001, Max: 3}}}
		for i, attempts := range []int{0, 2, 1} { // two retries, one, none
			_, err := status(tr, t.Context(), "http://x/")
			var e *Error
			switch {
			case i == 0 && err != errTest:
				t.Errorf("out of attempts: %v", err)
			case i > 0 && (!errors.Is(err, ErrRetryBudget) || !errors.Is(err, errTest) || !errors.As(err, &e) || e.Attempts != attempts || e.Key != "x"):
				t.Errorf("out of budget: %v", err)
			}
		}
		up.answer = always(500)
		if code, err := status(tr, t.Context(), "http://x/"); code != 500 || err != nil || len(up.times()) != 7 {
			t.Error(code, err, len(up.times()))
		}
	})
}

// A brown-out: 30 % of the answers are failures, more than the budget covers; the load stays within
// 1 + PerCall, and what is retried costs nothing while the gate is closed.
func TestBrownOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 3000
		up := newUpstream(10*time.Millisecond, func(n int, req *http.Request) (*http.Response, error) {
			if n%10 < 3 {
				return reply(req, 503), nil
			}
			return reply(req, 200), nil
		})
		tr := &Transport{Base: up}
		delivered := 0
		for range calls {
			if code, _ := status(tr, t.Context(), "http://x/"); code == 200 {
				delivered++
			}
		}
		if n := len(up.times()); n > calls*12/10+10 {
			t.Errorf("%d attempts for %d calls, want at most 1.2 times and 10", n, calls)
		}
		if delivered < calls*80/100 {
			t.Errorf("%d of %d delivered", delivered, calls)
		}
		t.Logf("%d delivered, %d attempts", delivered, len(up.times()))
		// Within the share that the budget covers, nothing is lost.
		n := 0
		up.answer = func(_ int, req *http.Request) (*http.Response, error) {
			if n++; n%8 == 0 {
				return reply(req, 503), nil
			}
			return reply(req, 200), nil
		}
		for range 1000 {
			if code, _ := status(tr, t.Context(), "http://x/"); code != 200 {
				t.Fatal("lost at a failure share of 1/8")
			}
		}
	})
}

// The unit that a retry took out is given back when the gate closes before it is sent, whatever becomes of it.
func TestBudgetIsGivenBackWhenTheGateCloses(t *testing.T) {
	for _, told := range []string{"2", "600"} { // sat through, and not
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(0, func(n int, req *http.Request) (*http.Response, error) {
				switch n {
				case 1:
					return reply(req, 500), nil
				case 2:
					return reply(req, 429, "Retry-After", told), nil
				}
				return reply(req, 200), nil
			})
			tr := &Transport{Base: up, Retry: Retry{Backoff: func() Backoff { return constant(time.Second) }}}
			var wg sync.WaitGroup
			wg.Go(func() { status(tr, t.Context(), "http://x/") })
			synctest.Wait()
			if s := tr.table.keys["x"].spent; s != 1 {
				t.Errorf("told %s: spent %v after one failure, want 1", told, s)
			}
			wg.Go(func() { status(tr, t.Context(), "http://x/") })
			wg.Wait()
			if s := tr.table.keys["x"].spent; s != 0 {
				t.Errorf("told %s: spent %v, want 0", told, s)
			}
		})
	}
}

// In an outage retries are free: the gate bounds them.
func TestRetriesBehindAClosedGateCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, nil)
		up.answer = func(n int, req *http.Request) (*http.Response, error) {
			if up.now() < 20*time.Second {
				return reply(req, 503), nil
			}
			return reply(req, 200), nil
		}
		tr := &Transport{Base: up, Retry: Retry{MaxAttempts: 100, Budget: Budget{Max: 20}}}
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				time.Sleep(time.Millisecond)
				if code, err := status(tr, t.Context(), "http://x/"); code != 200 {
					t.Error(code, err)
				}
			})
		}
		wg.Wait()
		if s := tr.table.keys["x"].spent; s > 0 {
			t.Errorf("%v spent of the budget", s)
		}
	})
}

// Cancelled while waiting: an *Error with the ctx's own error, the last attempt's error beside it.
func TestCancelledWhileWaiting(t *testing.T) {
	for name, c := range map[string]struct {
		tr       func() *Transport
		attempts int
		also     error
	}{
		"in line": {func() *Transport {
			tr := &Transport{Base: newUpstream(0, always(200)), Limiter: NewBucket(0.01, 1)}
			status(tr, context.Background(), "http://x/")
			return tr
		}, 0, nil},
		"behind the gate": {func() *Transport {
			return &Transport{Base: newUpstream(0, always(429, "Retry-After", "30"))}
		}, 1, nil},
		"in the backoff": {func() *Transport {
			return &Transport{Base: newUpstream(0, always(500)), Retry: Retry{Backoff: func() Backoff { return constant(time.Hour) }}}
		}, 1, nil},
		"in line after an error": {func() *Transport {
			return &Transport{Base: newUpstream(0, func(int, *http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }),
				Limiter: NewBucket(0.01, 1), Retry: Retry{Backoff: func() Backoff { return constant(1) }}}
		}, 1, io.ErrUnexpectedEOF},
		"in the backoff after an error": {func() *Transport {
			return &Transport{Base: newUpstream(0, func(int, *http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }),
				Retry: Retry{Backoff: func() Backoff { return constant(time.Hour) }}}
		}, 1, io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := c.tr()
				var told []error
				tr.Hooks.Refused = func(_ context.Context, e Event) { told = append(told, e.Err) }
				ctx, cancel := context.WithCancel(t.Context())
				start := time.Now()
				time.AfterFunc(time.Second, cancel)
				_, err := status(tr, ctx, "http://x/")
				var e *Error
				if !errors.As(err, &e) || !errors.Is(err, context.Canceled) || e.Attempts != c.attempts || e.Key != "x" || e.Timeout() ||
					c.also == nil && e.Err != context.Canceled || c.also != nil && !errors.Is(err, c.also) {
					t.Errorf("%#v", err)
				}
				if err := at(time.Second, start); err != nil {
					t.Error(err)
				}
				if len(told) != 1 || !errors.Is(told[0], context.Canceled) {
					t.Errorf("Refused was told %v", told)
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
			tr := &Transport{Base: up, Retry: Retry{Backoff: func() Backoff { return constant(time.Second) }}}
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

// A nil Body has no body to replay, whatever GetBody says.
func TestNilBodyIsNotReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, func(n int, req *http.Request) (*http.Response, error) {
			if req.Body != nil && req.Body != http.NoBody {
				t.Errorf("attempt %d has a body", n)
			}
			return reply(req, 429), nil
		})
		for _, body := range []io.ReadCloser{nil, http.NoBody} {
			req, _ := http.NewRequest("GET", "http://x/", strings.NewReader("body"))
			req.Body, req.ContentLength = body, 0
			(&Transport{Base: up}).RoundTrip(req)
		}
		if n := len(up.times()); n != 8 {
			t.Error(n)
		}
	})
}

// Errors that name the field and the value, from every request and before anything is sent.
func TestBadFields(t *testing.T) {
	for want, tr := range map[string]*Transport{
		"QueueOptions.MaxWaiting is -1":  {Queue: QueueOptions{MaxWaiting: -1}},
		"QueueOptions.MaxWait is -1s":    {Queue: QueueOptions{MaxWait: -time.Second}},
		"QueueOptions.MaxInFlight is -3": {Queue: QueueOptions{MaxInFlight: -3}},
		"Retry.MaxAttempts is -2":        {Retry: Retry{MaxAttempts: -2}},
		"Budget.PerCall is NaN":          {Retry: Retry{Budget: Budget{PerCall: math.NaN()}}},
		"Budget.PerCall is +Inf":         {Retry: Retry{Budget: Budget{PerCall: math.Inf(1)}}},
		"Budget.Max is -1":               {Retry: Retry{Budget: Budget{Max: -1}}},
		"Budget.Max is NaN":              {Retry: Retry{Budget: Budget{Max: math.NaN()}}},
		"Budget.Max is +Inf":             {Retry: Retry{Budget: Budget{Max: math.Inf(1)}}},
		"cost -4 is negative":            {Cost: func(*http.Request) int { return -4 }},
		"-1s":                            {Limiter: bare{wait: -time.Second}},
		"-1ms":                           {LimiterFor: func(string) Limiter { return bare{wait: -time.Millisecond} }},
		"test limiter":                   {LimiterFor: func(string) Limiter { return bare{err: errors.New("test limiter")} }},
		"the limit is 0":                 {Limiter: NewBucket(0, 1)},
	} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(0, always(200))
			tr.Base = up
			if want == "cost -4 is negative" {
				tr.Limiter = NewBucket(1, 1)
			}
			if want == "the limit is 0" {
				tr.Limiter = NewBucket(0, 1)
				tr.Cost = func(*http.Request) int { return 2 }
			}
			for range 2 {
				b := &bodies{}
				_, err := tr.RoundTrip(b.request(t.Context(), "PUT"))
				if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "throttle: ") {
					t.Errorf("%v, want …%s…", err, want)
				}
				if b.made[0].closed.Load() != 1 {
					t.Error("body not closed")
				}
			}
			if len(up.times()) != 0 {
				t.Error("it was sent")
			}
		})
	}
	tr := &Transport{Queue: QueueOptions{MaxWaiting: -1}, Retry: Retry{MaxAttempts: -1}}
	_, err := status(tr, t.Context(), "http://x/")
	if !strings.Contains(err.Error(), "MaxWaiting") || !strings.Contains(err.Error(), "MaxAttempts") {
		t.Error("not all that is wrong is told:", err)
	}
	tr = &Transport{Base: newUpstream(0, nil), Cost: func(*http.Request) int { return -1 }}
	if _, err := status(tr, t.Context(), "http://x/"); err == nil || !strings.Contains(err.Error(), "-1") {
		t.Error("negative cost without a limiter:", err)
	}
}

// Base returns neither.
func TestBaseThatReturnsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(0, func(int, *http.Request) (*http.Response, error) { return nil, nil })
		_, err := status(&Transport{Base: up, Retry: Retry{MaxAttempts: 2}}, t.Context(), "http://x/")
		if err == nil || !strings.Contains(err.Error(), "*throttle.upstream") {
			t.Error(err)
		}
	})
}
