package throttletest_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/throttletest"
)

const ms = time.Millisecond

// get sends one request and returns the answer's status, 0 after an error, and its header.
func get(t *testing.T, rt http.RoundTripper, url string) (int, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		panic(err)
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != resp.ContentLength {
		t.Errorf("a body of %d bytes, %v; %d announced", n, err, resp.ContentLength)
	}
	return resp.StatusCode, resp.Header
}

// statuses are those of n requests, one after the other.
func statuses(t *testing.T, rt http.RoundTripper, url string, n int) (all []int) {
	t.Helper()
	for range n {
		status, _ := get(t, rt, url)
		all = append(all, status)
	}
	return all
}

func want[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// The zero Server admits everything at once.
func TestZeroServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var s throttletest.Server
		status, h := get(t, &s, s.URL()+"/things?q=1")
		if status != 200 || time.Since(start) != 0 || h.Get("Date") != "Sat, 01 Jan 2000 00:00:00 GMT" || len(h) != 2 {
			t.Error(status, h, time.Since(start))
		}
		want := throttletest.Ledger{{
			Verdict: throttletest.Admitted, Status: 200, Limit: -1, Units: []int{}, Method: "GET", Host: "upstream.test", Path: "/things",
		}}
		if got := s.Ledger(); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v", got)
		}
	})
}

// Several limits hold together, and what one of them throttles costs nothing in the others.
func TestLimitsHoldTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := throttletest.NewServer(
			throttletest.Limit{Kind: throttletest.Sliding, N: 10},
			throttletest.Limit{Kind: throttletest.Sliding, N: 25, Per: time.Minute},
			throttletest.Limit{Kind: throttletest.InFlight, N: 5},
		)
		s.Work = throttletest.Span{Min: 100 * ms}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for s.Elapsed() < 10*time.Second {
					get(t, s, s.URL())
					time.Sleep(20 * ms)
				}
			})
		}
		wg.Wait()
		admitted := s.Ledger().Only(throttletest.Admitted)
		if a, b, c := admitted.Peak(time.Second), admitted.Peak(100*ms), len(admitted); a != 10 || b != 5 || c != 25 {
			t.Errorf("%d in a second, %d at once, %d in all; want 10, 5 and 25", a, b, c)
		}
		by := map[int]int{}
		for _, a := range s.Ledger().Only(throttletest.Throttled) {
			by[a.Limit]++
			if slices.Max(a.Units) != 0 {
				t.Fatalf("throttled, but charged: %+v", a)
			}
		}
		if by[0] == 0 || by[1] == 0 || by[2] == 0 || by[-1] != 0 {
			t.Errorf("throttled by limits: %v", by)
		}
	})
}

// At the moment when the work on one request ends, the next one is admitted.
func TestInFlightEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := throttletest.NewServer(throttletest.Limit{Kind: throttletest.InFlight, N: 1})
		s.Work, s.Latency = throttletest.Span{Min: 100 * ms}, throttletest.Span{Min: 10 * ms}
		var got [3]int
		var wg sync.WaitGroup
		for i, at := range []time.Duration{0, 100*ms - 1, 100 * ms} {
			wg.Go(func() {
				time.Sleep(at)
				got[i], _ = get(t, s, s.URL())
			})
		}
		wg.Wait()
		want(t, "statuses", got[:], []int{200, 429, 200})
	})
}

// A limit can be about some requests, have an account for each key, and count units.
func TestMatchKeyCost(t *testing.T) {
	s := throttletest.NewServer(
		throttletest.Limit{N: 2, Per: time.Hour, Key: func(r *http.Request) string { return r.Header.Get("Authorization") }},
		throttletest.Limit{N: 1, Per: time.Hour, Match: func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/search") }},
		throttletest.Limit{N: 100, Per: time.Hour, Cost: func(r *http.Request) int {
			n, _ := strconv.Atoi(r.URL.Query().Get("tokens"))
			return n
		}},
	)
	var got []int
	for _, c := range []struct{ key, target string }{
		{"a", "/"}, {"a", "/"}, {"a", "/"}, // the key is spent
		{"b", "/search/1"}, {"b", "/search/2"}, {"b", "/other"},
		{"c", "/?tokens=60"}, {"c", "/?tokens=41"}, {"c", "/?tokens=40"},
		{"d", "/?tokens=-5"}, {"d", "/?tokens=101"},
	} {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL()+c.target, nil)
		req.Header.Set("Authorization", c.key)
		resp, err := s.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, resp.StatusCode)
	}
	want(t, "statuses", got, []int{200, 200, 429, 200, 429, 200, 200, 429, 200, 200, 429})
	l := s.Ledger()
	want(t, "units", l[6].Units, []int{1, 0, 60})
	want(t, "units of a throttled one", l[7].Units, []int{0, 0, 0})
	if l[2].Limit != 0 || l[4].Limit != 1 || l[7].Limit != 2 || l[9].Units[2] != 0 || peakUnits(l, 2, time.Hour) != 100 {
		t.Errorf("%+v", l)
	}
}

// A request of no units passes even a limit of nothing, and of several limits the one with the longest wait is named.
func TestWhichLimit(t *testing.T) {
	s := throttletest.NewServer(
		throttletest.Limit{N: 1, Per: time.Hour}, throttletest.Limit{N: 1, Per: time.Minute},
		throttletest.Limit{Cost: func(*http.Request) int { return 0 }},
	)
	s.RetryAfter = throttletest.Exact
	want(t, "statuses", statuses(t, s, s.URL(), 2), []int{200, 429})
	if a := s.Ledger()[1]; a.Limit != 0 || a.RetryAfter < 59*time.Minute {
		t.Errorf("%+v", a)
	}
}

// Requests that are throttled are charged where they count, and only there.
func TestCountThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := throttletest.NewServer(
			throttletest.Limit{Kind: throttletest.Sliding, N: 2, CountThrottled: true},
			throttletest.Limit{N: 10, Per: time.Hour},
			throttletest.Limit{Kind: throttletest.InFlight, N: 10, CountThrottled: true},
		)
		for range 20 { // every 0.3 s, which is more than 2 a second
			get(t, s, s.URL())
			time.Sleep(300 * ms)
		}
		if got := s.Ledger().Tally(); got != (throttletest.Tally{Admitted: 2, Throttled: 18}) {
			t.Errorf("%+v", got)
		}
		want(t, "units of a throttled one", s.Ledger()[5].Units, []int{1, 0, 0})
	})
}

// A body can be read by all who are asked about the request, is counted, and is closed once.
func TestRequestBody(t *testing.T) {
	length := func(r *http.Request) int {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		return len(b)
	}
	s := throttletest.NewServer(
		throttletest.Limit{N: 10, Per: time.Hour, Match: func(r *http.Request) bool { return length(r) == 5 }, Cost: length},
		throttletest.Limit{N: 2, Per: time.Hour, Key: func(r *http.Request) string { return strconv.Itoa(length(r)) }},
	)
	s.Faults = []throttletest.Fault{{Match: func(r *http.Request) bool { return length(r) > 5 }}}
	s.Identify = func(r *http.Request) (client, call string) { return r.Host, strconv.Itoa(length(r)) }
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(w, r.Body)
	})
	for i, want := range []int{200, 200, 429} {
		b := &countedBody{Reader: strings.NewReader("hello")}
		req, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL(), b)
		resp, err := s.RoundTrip(req)
		if err != nil || resp.StatusCode != want || b.closed != 1 || req.Body != b || resp.Request != req {
			t.Fatalf("%d: %v %v, closed %d times", i, resp, err, b.closed)
		}
		if text, err := io.ReadAll(resp.Body); err != nil || want == 200 && string(text) != "hello" {
			t.Errorf("%q %v", text, err)
		}
	}
	a := s.Ledger()[1]
	if a.Size != 5 || a.Units[0] != 5 || a.Call != "5" || a.Attempt != 2 || a.Client != "upstream.test" || a.Method != "POST" {
		t.Errorf("%+v", a)
	}
}

type countedBody struct {
	io.Reader
	closed int
	err    error
}

func (b *countedBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	return b.Reader.Read(p)
}

func (b *countedBody) Close() error {
	b.closed++
	return nil
}

// A request that cannot be sent has not arrived, and its body is closed all the same.
func TestNotSent(t *testing.T) {
	broken := errors.New("broken")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	for name, c := range map[string]struct {
		s    *throttletest.Server
		ctx  context.Context
		body countedBody
		url  bool
		want string
	}{
		"its body fails":      {&throttletest.Server{}, t.Context(), countedBody{err: broken}, true, "broken"},
		"its context is over": {&throttletest.Server{}, ended, countedBody{Reader: strings.NewReader("")}, true, "broken"},
		"it has no URL":       {&throttletest.Server{}, t.Context(), countedBody{Reader: strings.NewReader("")}, false, "throttletest: nil Request.URL"},
		"the Server is wrong": {throttletest.NewServer(throttletest.Limit{Kind: "leaky"}), t.Context(), countedBody{Reader: strings.NewReader("")}, true,
			`throttletest: Limits[0]: there is no Kind "leaky"`},
	} {
		req, _ := http.NewRequestWithContext(c.ctx, "POST", c.s.URL(), &c.body)
		if !c.url {
			req.URL = nil
		}
		resp, err := c.s.RoundTrip(req)
		if resp != nil || err == nil || err.Error() != c.want || c.body.closed != 1 || len(c.s.Ledger()) != 0 {
			t.Errorf("%s: %v, %v, closed %d times, %v", name, resp, err, c.body.closed, c.s.Ledger())
		}
	}
}

// Nonsense is an error that names the field, from the first request, from Start and in an answer.
func TestNonsense(t *testing.T) {
	for text, s := range map[string]*throttletest.Server{
		"Limits[1]: negative: N -1":         throttletest.NewServer(throttletest.Limit{N: 1}, throttletest.Limit{N: -1}),
		"Limits[0]: negative: N 1, Burst -": throttletest.NewServer(throttletest.Limit{N: 1, Burst: -2}),
		"Per -1s":                           throttletest.NewServer(throttletest.Limit{N: 1, Per: -time.Second}),
		"Phase -1s":                         throttletest.NewServer(throttletest.Limit{N: 1, Phase: -time.Second}),
		"Changes[0] to N -1":                throttletest.NewServer(throttletest.Limit{Changes: []throttletest.Change{{N: -1}}}),
		"Changes[1] to N 0":                 throttletest.NewServer(throttletest.Limit{Changes: []throttletest.Change{{At: 1}, {At: 0}}}),
		"Faults[0]: a Share of 1.5":         {Faults: []throttletest.Fault{{Share: 1.5}}},
		"Faults[0]: its To 1s":              {Faults: []throttletest.Fault{{From: time.Minute, To: time.Second}}},
		"Faults[0]: a Status of 99":         {Faults: []throttletest.Fault{{Status: 99}}},
		"Status 1000":                       {Status: 1000},
		"Latency":                           {Latency: throttletest.Span{Min: -1}},
		"-1ns":                              {Work: throttletest.Span{Mean: -1}},
		"Work":                              {Work: throttletest.Span{Min: -1}},
	} {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL(), nil)
		_, err := s.RoundTrip(req)
		started := s.Start()
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		for _, got := range []string{errText(err), errText(started), w.Body.String()} {
			if !strings.HasPrefix(got, "throttletest: ") || !strings.Contains(got, text) {
				t.Errorf("%q, want one that says %q", got, text)
			}
		}
		if w.Code != 500 {
			t.Errorf("%s: answered %d", text, w.Code)
		}
	}
	s := throttletest.NewServer(throttletest.Limit{N: -1})
	s.Faults = []throttletest.Fault{{Share: 2}}
	s.Elapsed()
	s.SetLimits(throttletest.Limit{N: 1, Per: time.Hour})
	s.SetFaults()
	want(t, "put right", statuses(t, s, s.URL(), 2), []int{200, 429})
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// The limits and faults in force can be replaced, before and after the first request.
func TestReplace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(throttletest.Server)
		s.SetLimits(throttletest.Limit{N: 1})
		s.SetFaults(throttletest.Fault{To: time.Second})
		want(t, "down", statuses(t, s, s.URL(), 2), []int{503, 503})
		time.Sleep(time.Second)
		want(t, "up", statuses(t, s, s.URL(), 2), []int{200, 429})
		s.SetLimits(throttletest.Limit{N: 2, Per: time.Hour})
		want(t, "fresh", statuses(t, s, s.URL(), 3), []int{200, 200, 429})
		s.SetFaults(throttletest.Fault{})
		want(t, "down again", statuses(t, s, s.URL(), 1), []int{503})
		s.SetFaults()
		want(t, "up again", statuses(t, s, s.URL(), 1), []int{429})
	})
}

// What is on its way is judged by the limits under which it was sent.
func TestReplaceOnTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := throttletest.NewServer(throttletest.Limit{Kind: throttletest.InFlight})
		s.Latency = throttletest.Span{Min: time.Second}
		done := make(chan int)
		go func() {
			status, _ := get(t, s, s.URL())
			done <- status
		}()
		synctest.Wait()
		s.SetLimits(throttletest.Limit{N: 1}, throttletest.Limit{N: 1})
		second, _ := get(t, s, s.URL())
		if first := <-done; first != 429 || second != 200 {
			t.Error(first, second)
		}
	})
}

// The same requests in the same order have the same fate, another seed gives another one.
func TestSeed(t *testing.T) {
	run := func(seed uint64) (l throttletest.Ledger) {
		synctest.Test(t, func(t *testing.T) {
			s := throttletest.NewServer(throttletest.Limit{N: 50, Burst: 5})
			s.Latency, s.Work = throttletest.Span{Min: ms, Max: 30 * ms}, throttletest.Span{Max: 10 * ms}
			s.Faults = []throttletest.Fault{{Share: 0.1}}
			s.Seed = seed
			for range 200 {
				time.Sleep(5 * ms)
				go get(t, s, s.URL())
			}
			time.Sleep(time.Second)
			l = s.Ledger()
		})
		return l
	}
	a, b, c := run(1), run(1), run(2)
	if !reflect.DeepEqual(a, b) || reflect.DeepEqual(a, c) || a.Tally().Failed == 0 || a.Tally().Throttled == 0 {
		t.Errorf("%+v, %+v, %+v", a.Tally(), b.Tally(), c.Tally())
	}
}

// Nothing is lost in the ledger, nothing is twice there, and it is in order, whatever clients do: many at once, and
// some give up. No stretch of time has more units than the limits allow.
func TestLedgerIsConserved(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			limits := []throttletest.Limit{
				{N: 40, Burst: 7}, {Kind: throttletest.Sliding, N: 35, Per: 2 * time.Second, Cost: func(r *http.Request) int { return len(r.URL.Path) }},
				{Kind: throttletest.Fixed, N: 30, Phase: 300 * ms}, {Kind: throttletest.InFlight, N: 4},
			}
			s := throttletest.NewServer(limits...)
			s.Latency, s.Work, s.Seed = throttletest.Span{Max: 40 * ms}, throttletest.Span{Min: 5 * ms, Max: 60 * ms}, seed
			s.Faults = []throttletest.Fault{{Share: 0.05}, {From: 2 * time.Second, To: 3 * time.Second, Hang: true}}
			var mu sync.Mutex
			sent, by := 0, map[int]int{}
			r := rand.New(rand.NewPCG(seed, 5))
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					for s.Elapsed() < 5*time.Second {
						mu.Lock()
						patience, path := time.Duration(1+r.IntN(int(150*ms))), "/aaaaa"[:1+r.IntN(6)]
						sent++
						mu.Unlock()
						ctx, cancel := context.WithTimeout(t.Context(), patience)
						req, _ := http.NewRequestWithContext(ctx, "GET", s.URL()+path, nil)
						resp, err := s.RoundTrip(req)
						cancel()
						mu.Lock()
						if err == nil {
							by[resp.StatusCode]++
						} else if by[0]++; !errors.Is(err, context.DeadlineExceeded) {
							t.Error(err)
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			time.Sleep(time.Second) // what was given up arrives too
			l := s.Ledger()
			answered := map[int]int{}
			for i, a := range l {
				if i > 0 && a.At < l[i-1].At || a.At < a.Sent || a.At > a.Sent+40*ms || a.Answered != 0 && a.Answered < a.At {
					t.Fatalf("out of order: %+v", a)
				}
				if a.Answered > 0 {
					answered[a.Status]++
				}
				if charged := slices.Max(a.Units) > 0; charged != (a.Verdict == throttletest.Admitted) {
					t.Fatalf("%+v", a)
				}
			}
			if len(l) != sent || by[0] != sent-by[200]-by[429]-by[503] || answered[200] != by[200] || answered[429] != by[429] || answered[503] != by[503] {
				t.Errorf("%d sent, %v; %d in the ledger, answered %v", sent, by, len(l), answered)
			}
			if a, b := peakUnits(l, 0, time.Second), peakUnits(l, 1, 2*time.Second); a > 47 || b > 35 || a < 5 || b < 20 {
				t.Errorf("seed %d: %d and %d units at most", seed, a, b)
			}
			for from := 300 * ms; from < 5*time.Second; from += time.Second {
				if n := l.Between(from, from+time.Second).Tally().Admitted; n > 30 {
					t.Errorf("seed %d: %d in a window of 30", seed, n)
				}
			}
		})
	}
}

// peakUnits is the most units that the limit with an index has charged within any stretch of a length.
func peakUnits(l throttletest.Ledger, limit int, length time.Duration) (most int) {
	for i := range l {
		sum := 0
		for _, a := range l.Between(l[i].At, l[i].At+length) {
			sum += a.Units[limit]
		}
		most = max(most, sum)
	}
	return most
}
