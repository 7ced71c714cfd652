package scenario

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/throttletest"
)

func TestCaughtUp(t *testing.T) {
	due := evenly(10, 0, 2*second) // every 100 ms
	if len(due) != 20 || due[19] != 1900*time.Millisecond {
		t.Fatal(due)
	}
	// Down until 1 s, then a call every 50 ms: 10 that waited, and one for each two that go.
	var at []time.Duration
	for i := range due {
		at = append(at, second+time.Duration(i)*50*time.Millisecond)
	}
	// The 18th goes at 1.85 s, when 18 were due 50 ms before; the 17th at 1.8 s was one behind.
	if got := caughtUp(due, at, second); got != 1850*time.Millisecond {
		t.Error(got)
	}
	if got := caughtUp(due, due, second); got != second {
		t.Error("never behind, but caught up at", got)
	}
}

func TestDisplaced(t *testing.T) {
	var in, reverse throttletest.Ledger
	for i := range 4 {
		in = append(in, throttletest.Arrival{Call: strconv.Itoa(i)})
		reverse = append(reverse, throttletest.Arrival{Call: strconv.Itoa(3 - i)})
	}
	if displaced(in) != 0 || displaced(reverse) != 2 {
		t.Error(displaced(in), displaced(reverse))
	}
}

// The oracle is at the first moment at every door, lets the urgent go first, and forgets who has left.
func TestOracle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := config{
			limits: []throttletest.Limit{{N: 10, Per: second, Burst: 1}, {Kind: throttletest.InFlight, N: 1}},
			faults: []throttletest.Fault{{From: 0, To: second}}, latency: throttletest.Span{Min: 10 * time.Millisecond}, work: throttletest.Span{Min: 40 * time.Millisecond},
		}
		s, err := begin(t.Context(), Oracle(), Options{Virtual: true}, config, client.Job{})
		if err != nil {
			t.Fatal(err)
		}
		leave, cancel := context.WithCancel(s.ctx)
		var wg sync.WaitGroup
		for i := range 20 {
			ctx := s.ctx
			switch {
			case i%2 == 1:
				ctx = leave
			case i == 18:
				ctx = urgently(ctx)
			}
			wg.Go(func() { s.call(ctx, i, 0) })
			time.Sleep(time.Millisecond)
		}
		cancel()
		wg.Wait()
		l := s.end()
		if len(l) != 10 || l.Tally().Admitted != 10 || l[0].Call != "18" || l[0].At != second || last(l) != 1900*time.Millisecond {
			t.Error(l)
		}
	})
}

// A backlog ends when all is done, or when its time is over.
func TestBacklogEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			calls, want int
			took        time.Duration
		}{{30, 30, 2900 * time.Millisecond}, {math.MaxInt, 51, 5 * second}} {
			config := config{limits: []throttletest.Limit{{N: 10, Per: second, Burst: 1}}}
			s, err := begin(t.Context(), named(t, known), Options{Virtual: true}, config, client.Job{Limits: []client.Limit{{N: 10, Per: second, Burst: 1}}})
			if err != nil {
				t.Fatal(err)
			}
			s.backlog(c.calls, 3, 5*second)
			took := s.server.Elapsed()
			if n := s.end().Tally().Admitted; n > c.want || n < c.want-1 || took.Round(10*time.Millisecond) != c.took {
				t.Errorf("%d calls: %d admitted in %v", c.calls, n, took)
			}
		}
	})
}

// A client that cannot start is an error, and leaves nothing behind.
func TestBeginFails(t *testing.T) {
	c := client.Client{Name: "broken", Start: func(client.Job) (client.Doer, error) { return nil, http.ErrNotSupported }}
	if _, err := All()[0].Run(t.Context(), c, Options{Short: true}); err == nil {
		t.Error("no error")
	}
}
