package upstream

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// send makes one marked call, and returns the status and the answer's header; 0 after an error.
func send(t *testing.T, s *Server, base http.RoundTripper, call int) (int, http.Header) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	Mark(req, call, call%10)
	resp, err := base.RoundTrip(req)
	if err != nil {
		return 0, nil
	}
	resp.Body.Close()
	return resp.StatusCode, resp.Header
}

// Both ways of serving admit, refuse, tell and note the same.
func TestServed(t *testing.T) {
	config := Config{
		Limits: []Limit{{Kind: GCRA, N: 1, Per: time.Minute, Burst: 3}}, Tell: Draft08, Retry: RetryAfter{Told: true, Fixed: time.Second},
	}
	check := func(t *testing.T, s *Server) {
		base := s.Base()
		var got []int
		for i := range 5 {
			status, h := send(t, s, base, i/2)
			got = append(got, status)
			if h.Get("RateLimit") == "" || (h.Get("Retry-After") == "1") != (status == 429) {
				t.Error(i, status, h)
			}
		}
		s.Close()
		if !slices.Equal(got, []int{200, 200, 200, 429, 429}) {
			t.Error(got)
		}
		var attempts []int
		for _, a := range s.Ledger() {
			attempts = append(attempts, a.Attempt)
		}
		if l := s.Ledger(); !slices.Equal(attempts, []int{1, 2, 1, 2, 1}) || l.Count(Refused) != 2 || l[4].Caller != 2 {
			t.Error(l)
		}
	}
	t.Run("loopback", func(t *testing.T) {
		s, err := Start(config)
		if err != nil {
			t.Fatal(err)
		}
		check(t, s)
	})
	t.Run("bubble", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { check(t, StartInMemory(config)) })
	})
}

// An upstream goes down in each way and comes back.
func TestFaults(t *testing.T) {
	for fault, want := range map[Fault]int{Unavailable: 503, Hang: 0, Break: 0} {
		synctest.Test(t, func(t *testing.T) {
			s := StartInMemory(Config{Outages: []Outage{{From: time.Second, To: 5 * time.Second, Fault: fault}}})
			base := s.Base()
			for i, want := range []int{200, want, 200} {
				time.Sleep(time.Duration(i)*4*time.Second - s.Now())
				if got, _ := send(t, s, base, i); got != want {
					t.Errorf("fault %d, call %d: %d, want %d", fault, i, got, want)
				}
			}
			s.Close()
			if l := s.Ledger(); l.Count(Failed, Hung, Reset) == 0 || l.Count(Admitted) != 2 {
				t.Error(l)
			}
		})
	}
	s, err := Start(Config{Outages: []Outage{{To: time.Hour, Fault: Break}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, _ := send(t, s, s.Base(), 0); got != 0 || s.Ledger().Count(Reset) == 0 {
		t.Error("over TCP:", got, s.Ledger())
	}
}

func TestBrownOutAndLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := StartInMemory(Config{
			Brown: []Brown{{To: time.Minute, Share: 0.3}}, Latency: Span{10 * ms, 20 * ms}, Work: Span{Min: 5 * ms}, Seed: 1,
		})
		base := s.Base()
		begin := time.Now()
		for i := range 1000 {
			send(t, s, base, i)
		}
		took := time.Since(begin) / 1000
		s.Close()
		if got := s.Ledger().Count(Failed); got < 260 || got > 340 {
			t.Errorf("%d of 1,000 failed, want 300", got)
		}
		if took < 32*ms || took > 35*ms { // two ways of 15, and 5 for the 7 of 10 that are admitted
			t.Errorf("a round trip of %v, want 33.5ms", took)
		}
	})
}

// Several limits: what one refuses, costs nothing in the others.
func TestSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := Config{
			Limits: []Limit{{Kind: Sliding, N: 10, Per: time.Second}, {Kind: Sliding, N: 25, Per: time.Minute}, {Kind: InFlight, N: 5}},
			Work:   Span{Min: 100 * ms},
		}
		s := StartInMemory(config)
		base := s.Base()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for s.Now() < 10*time.Second {
					send(t, s, base, i)
					time.Sleep(20 * ms)
				}
			})
		}
		wg.Wait()
		s.Close()
		admitted := s.Ledger().Only(Admitted)
		if n := admitted.Peak(time.Second); n != 10 {
			t.Errorf("%d in a second, want 10", n)
		}
		if n := admitted.Peak(50 * ms); n != 5 {
			t.Errorf("%d at once, want 5", n)
		}
		if got, could := len(admitted), config.Could(0, 10*time.Second); got != 25 || could != 25 {
			t.Errorf("%d admitted, could %d, want 25", got, could)
		}
	})
}

// Weaker capacity, and words that are not true.
func TestChangeAndLie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := StartInMemory(Config{
			Limits: []Limit{{Kind: GCRA, N: 100, Per: time.Second, Burst: 1}}, Changes: []Change{{At: time.Second, N: 10}},
			Tell: XDelta, Lie: func(q Told) Told { q.Left = 999; return q },
		})
		base := s.Base()
		for i := 0; s.Now() < 2*time.Second; i++ {
			if _, h := send(t, s, base, i); h.Get("X-RateLimit-Remaining") != "999" {
				t.Fatal(h)
			}
			time.Sleep(ms)
		}
		s.Close()
		l := s.Ledger().Only(Admitted)
		if a, b := len(l.Between(0, time.Second)), len(l.Between(time.Second, 2*time.Second)); a != 100 || b < 10 || b > 11 {
			t.Errorf("%d and %d admitted, want 100 and 10", a, b)
		}
	})
}
