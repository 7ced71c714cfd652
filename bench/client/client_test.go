package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// stub answers what the test says, and remembers what came.
type stub struct {
	mu     sync.Mutex
	bodies []string
	starts []time.Time
	answer func(n int) (status int, err error) // n from 1
}

func (s *stub) RoundTrip(req *http.Request) (*http.Response, error) {
	body := ""
	if req.Body != nil {
		b, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		_ = req.Body.Close()
		body = string(b)
	}
	s.mu.Lock()
	s.bodies = append(s.bodies, body)
	s.starts = append(s.starts, time.Now())
	n := len(s.bodies)
	s.mu.Unlock()
	status, err := http.StatusOK, error(nil)
	if s.answer != nil {
		status, err = s.answer(n)
	}
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/plain"}}, Request: req,
		Body: io.NopCloser(strings.NewReader("hello")), ContentLength: 5,
	}, nil
}

func (s *stub) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.bodies)
}

func first(n int, status int, err error) func(int) (int, error) {
	return func(i int) (int, error) {
		if i <= n {
			return status, err
		}
		return http.StatusOK, nil
	}
}

// each runs a test for each client: in a bubble if it can live in one.
func each(t *testing.T, test func(*testing.T, Client)) {
	for _, c := range All() {
		t.Run(c.Name, func(t *testing.T) {
			if !c.Bubble {
				t.Parallel() // waits for real
				test(t, c)
				return
			}
			synctest.Test(t, func(t *testing.T) { test(t, c) })
		})
	}
}

func start(t *testing.T, c Client, job Job) Doer {
	t.Helper()
	if job.Patience == 0 {
		job.Patience = time.Minute
	}
	if job.Workers == 0 {
		job.Workers = 8
	}
	d, err := c.Start(job)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func send(t *testing.T, d Doer, method, body string) (int, error) {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://api.example.com/v1/items?q=1", r)
	if err != nil {
		t.Error(err)
		return 0, err
	}
	resp, err := d.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || string(got) != "hello" {
		t.Errorf("body %q, %v", got, err)
	}
	return resp.StatusCode, nil
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range All() {
		if c.Name == "" || seen[c.Name] || strings.Contains(c.Name, ",") || c.Start == nil {
			t.Errorf("%q", c.Name)
		}
		seen[c.Name] = true
	}
}

func TestDelivers(t *testing.T) {
	each(t, func(t *testing.T, c Client) {
		for _, job := range []Job{
			{},
			{Limits: []Limit{{N: 100, Per: time.Second, Burst: 10}}, InFlight: 5},
			{Limits: []Limit{{N: 100, Per: time.Second, Burst: 10, Window: true}}},
			{Limits: []Limit{{N: 100, Per: time.Second, Burst: 9, Window: true}, {N: 3000, Per: time.Minute, Burst: 99, Window: true}}},
			{Limits: []Limit{{N: 100, Per: time.Second, Burst: 10}}, Even: true},
		} {
			s := new(stub)
			job.Base = s
			d := start(t, c, job)
			for _, m := range []string{http.MethodGet, http.MethodPost} {
				body := ""
				if m == http.MethodPost {
					body = "payload"
				}
				if status, err := send(t, d, m, body); status != http.StatusOK || err != nil {
					t.Errorf("%s: %d, %v", m, status, err)
				}
			}
			if s.calls() != 2 || s.bodies[1] != "payload" {
				t.Errorf("arrived: %q", s.bodies)
			}
		}
	})
}

// TestRetries: a failure that passes is hidden from the caller by those who retry, and only by them.
func TestRetries(t *testing.T) {
	reset := errors.New("connection reset by peer")
	each(t, func(t *testing.T, c Client) {
		for _, try := range []struct {
			name   string
			answer func(int) (int, error)
			status int
		}{
			{"429", first(2, http.StatusTooManyRequests, nil), http.StatusTooManyRequests},
			{"503", first(2, http.StatusServiceUnavailable, nil), http.StatusServiceUnavailable},
			{"error", first(2, 0, reset), 0},
		} {
			s := &stub{answer: try.answer}
			status, err := send(t, start(t, c, Job{Base: s}), http.MethodGet, "")
			switch {
			case c.Retries && (status != http.StatusOK || s.calls() != 3):
				t.Errorf("%s: %d, %v after %d calls", try.name, status, err, s.calls())
			case !c.Retries && (status != try.status || s.calls() != 1):
				t.Errorf("%s: %d, %v after %d calls, does not retry", try.name, status, err, s.calls())
			}
		}
	})
}

// TestResendsBodies: who sends a request again sends its body again, and a POST after a 429 at that.
func TestResendsBodies(t *testing.T) {
	each(t, func(t *testing.T, c Client) {
		if !c.Retries {
			t.Skip("does not retry")
		}
		method := http.MethodPost
		if c.Name == "resty" { // sends no POST again, unless it is set to
			method = http.MethodPut
		}
		s := &stub{answer: first(2, http.StatusTooManyRequests, nil)}
		status, err := send(t, start(t, c, Job{Base: s}), method, "payload")
		if status != http.StatusOK || err != nil {
			t.Errorf("%d, %v", status, err)
		}
		if got := strings.Join(s.bodies, ","); got != "payload,payload,payload" {
			t.Errorf("arrived: %q", got)
		}
	})
}

// TestPatience: no call outlasts Job.Patience by more than one timer, and the last answer is not lost.
func TestPatience(t *testing.T) {
	each(t, func(t *testing.T, c Client) {
		if !c.Retries {
			t.Skip("does not retry")
		}
		s := &stub{answer: func(int) (int, error) { return http.StatusServiceUnavailable, nil }}
		patience, late := 20*time.Second, time.Millisecond
		if !c.Bubble {
			patience, late = 3*time.Second, 10*time.Second
		}
		begin := time.Now()
		status, err := send(t, start(t, c, Job{Base: s, Patience: patience}), http.MethodGet, "")
		if took := time.Since(begin); took > patience+late {
			t.Errorf("took %v", took)
		}
		if s.calls() < 2 || status == 0 && err == nil || status == http.StatusOK {
			t.Errorf("%d, %v after %d calls", status, err, s.calls())
		}
		t.Logf("%d, %v after %d calls and %v", status, err, s.calls(), time.Since(begin))
	})
}

// TestLimits: a client that knows a limit keeps it, and uses it.
func TestLimits(t *testing.T) {
	each(t, func(t *testing.T, c Client) {
		if !c.Limits {
			t.Skip("holds no limit")
		}
		for _, job := range []Job{
			{Limits: []Limit{{N: 100, Per: time.Second, Burst: 1}}},
			{Limits: []Limit{{N: 100, Per: time.Second, Burst: 1}}, Even: true, InFlight: 4},
			{Limits: []Limit{{N: 100, Per: time.Second, Burst: 1}, {N: 1200, Per: time.Minute, Burst: 5}}},
		} {
			const calls = 200
			s := new(stub)
			job.Base = s
			d := start(t, c, job)
			parallel(t, d, 8, calls/8)
			want := time.Duration(float64(calls-1) / job.slowest().Rate() * float64(time.Second))
			took := s.starts[calls-1].Sub(s.starts[0])
			least, most := want*97/100, want*105/100
			if !c.Bubble { // a busy machine holds starts back
				least, most = want*3/4, time.Minute
			}
			if took < least || took > most {
				t.Errorf("%+v: %d calls took %v, want about %v", job.Limits, calls, took, want)
			}
		}
	})
}

func parallel(t *testing.T, d Doer, workers, calls int) {
	t.Helper()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range calls {
				if status, err := send(t, d, http.MethodGet, ""); status != http.StatusOK || err != nil {
					t.Errorf("%d, %v", status, err)
				}
			}
		})
	}
	wg.Wait()
}

// TestInFlight: a client that keeps limits keeps a bound of calls in flight too.
func TestInFlight(t *testing.T) {
	each(t, func(t *testing.T, c Client) {
		if !c.Limits {
			t.Skip("holds no limit")
		}
		var now, most atomic.Int32
		base := roundTripper(func(req *http.Request) (*http.Response, error) {
			n := now.Add(1)
			defer now.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(10 * time.Millisecond)
			return new(stub).RoundTrip(req)
		})
		parallel(t, start(t, c, Job{Base: base, InFlight: 3}), 16, 4)
		if most.Load() != 3 {
			t.Errorf("%d calls in flight, want 3", most.Load())
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestCancel: a call that is cancelled while it waits ends at once.
func TestCancel(t *testing.T) {
	each(t, func(t *testing.T, c Client) {
		if !c.Retries || c.Name == "throttle: zero value" {
			t.Skip("waits for nothing")
		}
		s := &stub{answer: func(int) (int, error) { return http.StatusTooManyRequests, nil }}
		d := start(t, c, Job{Base: s})
		after, late := 10*time.Second, time.Millisecond
		if !c.Bubble {
			after, late = time.Second, 10*time.Second
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(after, cancel)
		begin := time.Now()
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example.com/", nil)
		resp, err := d.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		if took := time.Since(begin); took > after+late {
			t.Errorf("took %v: %v", took, err)
		}
	})
}

// TestNothingStays: in a bubble this is tested by its end; here it is for real, for all.
func TestNothingStays(t *testing.T) {
	for _, c := range All() {
		before := runtime.NumGoroutine()
		job := Job{Limits: []Limit{{N: 100_000, Per: time.Second, Burst: 50_000}}, InFlight: 8}
		for range 3 {
			job.Base = new(stub)
			parallel(t, start(t, c, job), 8, 20)
		}
		after := 0
		for range 100 {
			if after = runtime.NumGoroutine(); after <= before {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if after > before {
			t.Errorf("%s: %d goroutines stay", c.Name, after-before)
		}
	}
}

// TestGitHub: the one thing that the client for GitHub does send again.
func TestGitHub(t *testing.T) {
	var n atomic.Int32
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := new(stub).RoundTrip(req)
		if n.Add(1) == 1 {
			resp.StatusCode = http.StatusForbidden
			resp.Header = http.Header{"Retry-After": {"1"}}
			resp.Body = io.NopCloser(strings.NewReader(`{"message": "You have exceeded a secondary rate limit."}`))
		}
		return resp, err
	})
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		status, err := send(t, start(t, githubRatelimit(), Job{Base: base}), http.MethodGet, "")
		if status != http.StatusOK || err != nil || time.Since(begin) != time.Second {
			t.Errorf("%d, %v after %v", status, err, time.Since(begin))
		}
	})
}

func TestSlowest(t *testing.T) {
	job := Job{Limits: []Limit{{N: 10, Per: time.Second, Burst: 3}, {N: 300, Per: time.Minute, Burst: 300}}}
	if got := job.slowest(); got != (Limit{N: 300, Per: time.Minute, Burst: 3}) {
		t.Errorf("%+v", got)
	}
}
