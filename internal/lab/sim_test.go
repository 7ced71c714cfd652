package lab_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/throttletest"
)

// This file puts clients before a throttletest.Server, inside synctest bubbles: advertised_test.go and
// finder_test.go hold the tables, ledger_test.go what is measured.
//
//	THROTTLE_LONG=1        the cells that CI runs; by default a few of them
//	THROTTLE_FULL=1        every cell, 5 minutes each
//	THROTTLE_SEEDS=5       that many runs of each cell, each with its own random numbers
//	THROTTLE_SIM=oracle    clients that know the limit instead of ones that learn it
//	THROTTLE_SIM=law       plain clients that keep the bare laws of seek_test.go and law_test.go: what can be reached
//
// One cell: THROTTLE_FULL=1 go test -v -run 'TestAdvertised/draft-08/fixed/10s' .

// simFull tells whether the whole tables are to be run.
func simFull() bool { return os.Getenv("THROTTLE_FULL") != "" }

// simSeeds returns the seeds that each cell runs with.
func simSeeds(least int) []uint64 {
	n := least
	fmt.Sscan(os.Getenv("THROTTLE_SEEDS"), &n)
	seeds := make([]uint64, max(least, n))
	for i := range seeds {
		seeds[i] = uint64(i + 1)
	}
	return seeds
}

// A trip is the least and the longest round trip. Each way takes half of it.
type trip struct{ min, max time.Duration }

var (
	shortTrip      = trip{18 * time.Millisecond, 22 * time.Millisecond}
	wildTrip       = trip{5 * time.Millisecond, 50 * time.Millisecond}
	advertisedTrip = trip{20 * time.Millisecond, 50 * time.Millisecond}
)

// spread is J, the spread of the one-way delay, which is what a limiter sees.
func (w trip) spread() time.Duration { return (w.max - w.min) / 2 }

func (w trip) String() string {
	return fmt.Sprintf("%d-%dms", w.min.Milliseconds(), w.max.Milliseconds())
}

// A sim is an upstream and what becomes of the calls to it.
type sim struct {
	*throttletest.Server
	trip        trip
	calls, lost atomic.Int64 // calls that ended with a 200, and others that were not cancelled
}

// newSim returns an upstream in a bubble. The fields of its Server may be set before the first request.
func newSim(trip trip, seed uint64, limits ...throttletest.Limit) *sim {
	time.Sleep(time.Until(time.Unix(1e9, 0))) // bubbles begin in 2000, when an epoch still looked like a span
	s := &sim{Server: throttletest.NewServer(limits...), trip: trip}
	s.Latency, s.Seed = throttletest.Span{Min: trip.min / 2, Max: trip.max / 2}, seed
	return s
}

// port is how client i reaches s. A cancelled ctx is left unheeded, which is cheaper: an answer is never far away.
func (s *sim) port(i int) http.RoundTripper {
	base := s.From(strconv.Itoa(i))
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		return base.RoundTrip(req.WithContext(context.WithoutCancel(req.Context())))
	})
}

// client returns client i of s: a Transport without any limit of its own, which loses no call.
func (s *sim) client(i int) http.RoundTripper {
	t := &throttle.Transport{Base: s.port(i), Retry: throttle.Retry{MaxAttempts: 1 << 30, MaxPause: -1}}
	switch os.Getenv("THROTTLE_SIM") {
	case "oracle":
		if len(s.Limits) > 1 {
			return s.scoped(t)
		}
		t.Limiter = oracle(s.Limits[0], s.trip.spread())
		t.Hint = func(resp *http.Response, now time.Time) hint.Hint { // it knows better than what is advertised
			h := hint.Parse(resp, now)
			h.Quotas = nil
			return h
		}
	case "law":
		switch {
		case len(s.Limits) != 1:
		case s.Advertise.Dialect != nil:
			return newLawClient(s, i)
		default:
			return newSeekClient(s, i)
		}
	}
	return t
}

// oracle is the limiter of a client that knows the limit and the spread j of its way there. It is
// what a configured client can do, not the best that can be done: it does not know where fixed
// windows begin. Without room for the spread a bucket of burst 1 is paced so that 1.5 % are throttled,
// another so that hardly any are.
func oracle(l throttletest.Limit, j time.Duration) throttle.Limiter {
	per := cmp.Or(l.Per, time.Second)
	if l.Kind != throttletest.Bucket {
		return throttle.NewSlidingWindow(l.N, per+j)
	}
	t := float64(per) / float64(l.N)
	switch room := float64(cmp.Or(l.Burst, l.N)); {
	case room == 1:
		t += 0.85 * float64(j)
	case room < 1+float64(j)/t:
		t /= 0.88
	}
	return throttle.NewLeaky(rate.Every(time.Duration(t)))
}

// scoped makes t one that knows which request falls under which quota, and what a 403 means.
func (s *sim) scoped(t *throttle.Transport) *throttle.Transport {
	t.Key = func(req *http.Request) string {
		for _, l := range s.Limits {
			if l.Match(req) {
				return l.Name
			}
		}
		return ""
	}
	t.Hint = func(resp *http.Response, now time.Time) (h hint.Hint) {
		var reset int64
		if resp.StatusCode == http.StatusForbidden {
			fmt.Sscan(resp.Header.Get("X-RateLimit-Reset"), &reset)
			h.Throttled, h.RetryAfter = true, time.Unix(reset, 0).Sub(now)
		}
		return h
	}
	return t
}

// load keeps workers busy with calls of rt until ctx ends, each with the next call as soon as the
// last one is answered. The func that it returns waits for them.
func (s *sim) load(ctx context.Context, t *testing.T, rt http.RoundTripper, workers int, url string) (wait func()) {
	var wg sync.WaitGroup
	for range workers {
		req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				resp, err := rt.RoundTrip(req)
				if err == nil {
					resp.Body.Close()
				}
				switch {
				case err == nil && resp.StatusCode == http.StatusOK:
					s.calls.Add(1)
				case ctx.Err() != nil:
				case err == nil:
					s.lost.Add(1)
				default:
					s.lost.Add(1)
					time.Sleep(time.Second) // else a call that is refused at once would stop the clock
				}
			}
		})
	}
	return wg.Wait
}

// run keeps workers of each client busy for d.
func (s *sim) run(t *testing.T, d time.Duration, workers int, clients ...http.RoundTripper) {
	ctx, cancel := context.WithCancel(t.Context())
	var waits []func()
	for _, c := range clients {
		waits = append(waits, s.load(ctx, t, c, workers, s.URL()))
	}
	time.Sleep(d)
	cancel()
	for _, wait := range waits {
		wait()
	}
}
