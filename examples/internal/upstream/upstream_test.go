package upstream

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-throttle/throttle/examples/internal/leak"
)

func TestGCRA(t *testing.T) {
	start := time.Now()
	g := newGCRA(10, 3) // one every 100 ms, three at once
	for i, step := range []struct {
		at   time.Duration
		want bool
	}{
		{0, true},
		{0, true},
		{0, true},
		{0, false},
		{99 * time.Millisecond, false},
		{100 * time.Millisecond, true}, // the refusals cost nothing
		{100 * time.Millisecond, false},
		{10 * time.Second, true}, // a long rest gives the burst back, not more
		{10 * time.Second, true},
		{10 * time.Second, true},
		{10 * time.Second, false},
	} {
		if got := g.admit(start.Add(step.at)); got != step.want {
			t.Errorf("step %d: admit after %v = %v, want %v", i, step.at, got, step.want)
		}
	}
}

// TestGCRAWindows checks the definition on random arrivals: no window admits more than
// burst + rate × its length.
func TestGCRAWindows(t *testing.T) {
	const rate, burst = 50, 7
	random := rand.New(rand.NewPCG(1, 2))
	start := time.Now()
	g := newGCRA(rate, burst)
	var admitted []time.Duration
	for at := time.Duration(0); at < 5*time.Second; at += time.Duration(random.IntN(int(20 * time.Millisecond))) {
		if g.admit(start.Add(at)) {
			admitted = append(admitted, at)
		}
	}
	for i, from := range admitted {
		for j := i; j < len(admitted); j++ {
			length := (admitted[j] - from).Seconds()
			if got := float64(j - i + 1); got > burst+rate*length+1e-6 {
				t.Fatalf("%v admitted in %.3f s, want at most %v", got, length, burst+rate*length)
			}
		}
	}
	if want := rate * 4; len(admitted) < want {
		t.Errorf("admitted %d in 5 s of backlog, want at least %d", len(admitted), want)
	}
}

func TestServer(t *testing.T) {
	leak.Check(t)
	const hourly = 1.0 / 3600 // so slow that only the burst counts, however slow the machine
	s, err := Start(Limit{Rate: hourly, Burst: 2, RetryAfter: time.Second, Tell: TellRateLimit})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()

	post := func(want int) http.Header {
		t.Helper()
		req, err := http.NewRequest(http.MethodPost, s.URL, strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "k")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("answered %d, want %d", resp.StatusCode, want)
		}
		return resp.Header
	}
	post(200)
	post(200)
	header := post(429)
	if got := header.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After %q, want 1", got)
	}
	if got, want := header.Get("RateLimit"), `"default";r=0;t=7200`; got != want {
		t.Errorf("RateLimit %q, want %q", got, want)
	}
	s.SetDown(true)
	if got := post(503).Get("RateLimit"); got != "" {
		t.Errorf("RateLimit %q while it is down, want none", got)
	}
	s.SetDown(false)
	s.SetLimit(Limit{Rate: hourly, Burst: 1})
	post(200)
	if got := post(429).Get("Retry-After"); got != "" {
		t.Errorf("Retry-After %q, want none", got)
	}

	ledger := s.Ledger()
	for status, want := range map[int]int{200: 3, 429: 2, 503: 1} {
		if got := Count(ledger, status); got != want {
			t.Errorf("%d arrivals with %d, want %d", got, status, want)
		}
	}
	if got := Between(ledger, ledger[1].At, ledger[4].At.Add(time.Nanosecond)); got != 4 {
		t.Errorf("%d arrivals from the second to the fifth, want 4", got)
	}
	if first := ledger[0]; first.Key != "k" || first.Body != 5 {
		t.Errorf("first arrival %+v, want key k and 5 bytes", first)
	}
}

func TestStartRefusesNonsense(t *testing.T) {
	for _, limit := range []Limit{
		{}, {Rate: 1}, {Rate: -1, Burst: 1}, {Burst: 1},
		{Rate: 1, Burst: 1, Tell: "loudly"},
		{Rate: 100, Burst: 10, Tell: TellRateLimit}, {Rate: 2, Burst: 3, Tell: TellRateLimit},
	} {
		if s, err := Start(limit); err == nil {
			s.Close()
			t.Errorf("Start(%+v) did not complain", limit)
		}
	}
}
