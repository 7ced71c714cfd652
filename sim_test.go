package throttle_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/hint"
)

// This file simulates an upstream with a limit, for tests inside synctest bubbles: learned_test.go
// and finder_test.go hold the tables, simlimit_test.go the kinds of limits and what is told of them.
//
//	THROTTLE_FULL=1        every cell, 5 minutes each; by default a subset that takes 45 s under the
//	                       race detector, since a request costs 50 µs there and 6 µs without
//	THROTTLE_SEEDS=5       that many runs of each cell, each with its own random numbers
//	THROTTLE_SIM=oracle    clients that know the limit instead of ones that learn it
//	THROTTLE_SIM=law       plain clients that keep the laws of algorithms.md, 19 and 20: what can be reached
//
// One cell: THROTTLE_FULL=1 go test -v -run 'TestTold/draft-08/fixed/10s' .

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

// A trip is the least and the longest round trip. Each way takes half of it, uniform between the
// two: the spread of the way there, which is what a limiter sees, is (max-min)/2.
type trip struct{ min, max time.Duration }

var (
	shortTrip = trip{18 * time.Millisecond, 22 * time.Millisecond}
	wildTrip  = trip{5 * time.Millisecond, 50 * time.Millisecond}
	toldTrip  = trip{20 * time.Millisecond, 50 * time.Millisecond}
)

// spread is J, the spread of the one-way delay.
func (w trip) spread() time.Duration { return (w.max - w.min) / 2 }

func (w trip) String() string {
	return fmt.Sprintf("%d-%dms", w.min.Milliseconds(), w.max.Milliseconds())
}

// A sim is an upstream. It judges each request at the moment of its arrival, in the order of
// arrival, and answers with a shared empty body. All its times are counted from its making. Set its
// fields before the first request.
type sim struct {
	limits     []limit // the quotas; 0 of them: no limit at all
	trip       trip
	seed       uint64
	tells      dialect                 // what answers say; nil: nothing
	clock      clock                   // how exactly they say it
	refusal    int                     // status of a refusal; 0: 429
	retryAfter int                     // seconds that a refusal tells; 0: none
	route      func(*http.Request) int // which of limits a request falls under; nil: the first
	changes    []change                // in order of time

	mu     sync.Mutex
	start  time.Time
	rng    *rand.Rand
	models []model
	done   int        // changes made
	due    []*arrival // on their way here, the next one last
	spare  []*arrival
	ledger
}

// change sets the first limit to n units per window from a moment on.
type change struct {
	at time.Duration
	n  int
}

// An arrival is one request on its way there and back.
type arrival struct {
	sent, at time.Duration
	trip     time.Duration
	row      int // of the ledger
	quota    int
	admitted bool
	told     told
}

// setup is called by the first request or client, in the bubble.
func (s *sim) setup() {
	if s.rng != nil {
		return
	}
	time.Sleep(time.Until(time.Unix(1e9, 0))) // bubbles begin in 2000, when an epoch still looked like a span
	s.start = time.Now()
	s.rng = rand.New(rand.NewPCG(s.seed, 1))
	for _, l := range s.limits {
		s.models = append(s.models, l.model())
	}
}

// now is the time since the making.
func (s *sim) now() time.Duration { return time.Since(s.start) }

// port returns a Base through which one client talks to s. What it sends is noted in the row
// client of the ledger, and with several quotas in the row client + quota.
func (s *sim) port(client int) *port {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setup()
	s.ledger.add(client + max(1, len(s.limits)))
	return &port{s, client}
}

type port struct {
	sim    *sim
	client int
}

func (p *port) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, _ := p.exchange(req)
	return resp, nil
}

// exchange is RoundTrip, and returns too what the upstream knew when it answered. A cancelled ctx
// is left unheeded: an answer is never far away.
func (p *port) exchange(req *http.Request) (*http.Response, told) {
	a := p.sim.send(p.client, req)
	time.Sleep(a.trip)
	return p.sim.receive(a, req)
}

func (s *sim) send(client int, req *http.Request) *arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var a *arrival
	if n := len(s.spare); n > 0 {
		a, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		a = new(arrival)
	}
	there, back := s.oneWay(), s.oneWay()
	*a = arrival{sent: now, at: now + there, trip: there + back, row: client}
	if s.route != nil {
		a.quota = s.route(req)
		a.row += a.quota
	}
	s.ledger.sent(a, now)
	i := len(s.due)
	for i > 0 && s.due[i-1].at <= a.at { // of two that arrive together the first sent goes first
		i--
	}
	s.due = slices.Insert(s.due, i, a)
	return a
}

func (s *sim) oneWay() time.Duration {
	half := s.trip.min / 2
	if j := s.trip.spread(); j > 0 {
		half += time.Duration(s.rng.Int64N(int64(j) + 1))
	}
	return half
}

// judge lets all that have arrived by now in or not. Whatever arrives by now was sent before now,
// as no way is without length: so judging late, when an answer is due, judges in the true order.
func (s *sim) judge(now time.Duration) {
	for n := len(s.due); n > 0 && s.due[n-1].at <= now; n-- {
		a := s.due[n-1]
		s.due = s.due[:n-1]
		for ; s.done < len(s.changes) && s.changes[s.done].at <= a.at; s.done++ {
			s.models[0].set(s.changes[s.done].n)
		}
		a.admitted = true
		if len(s.models) > 0 {
			a.admitted = s.models[a.quota].take(a.at)
			if s.tells != nil {
				a.told = s.models[a.quota].tell(a.at)
			}
		}
		s.ledger.arrived(a)
	}
}

// receive ends a's journey and writes the answer. What it tells counts from the moment of arrival, as
// it does in life: an answer is older than its words.
func (s *sim) receive(a *arrival, req *http.Request) (*http.Response, told) {
	resp := &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: noHeader, Body: http.NoBody, Request: req,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.judge(now)
	s.ledger.answered(a, now, time.Duration(s.retryAfter)*time.Second)
	told := a.told
	if s.tells != nil {
		resp.Header = s.clock.header(s.tells, told, s.limits[a.quota].name, s.start.Add(a.at))
	}
	if !a.admitted {
		resp.StatusCode = cmp.Or(s.refusal, http.StatusTooManyRequests)
		if s.retryAfter > 0 {
			resp.Header = withRetryAfter(resp.Header, s.retryAfter)
		}
	}
	s.spare = append(s.spare, a)
	return resp, told
}

// client returns client i of s: a Transport without any limit of its own, which loses no call.
func (s *sim) client(i int) http.RoundTripper {
	t := &throttle.Transport{Base: s.port(i), Retry: throttle.Retry{MaxAttempts: 1 << 30, MaxPause: -1}}
	switch os.Getenv("THROTTLE_SIM") {
	case "oracle":
		if len(s.limits) > 1 {
			return s.scoped(t)
		}
		t.Limiter = s.limits[0].oracle(s.trip.spread())
		t.Hint = func(resp *http.Response, now time.Time) hint.Hint { // it knows better than what is told
			h := hint.Parse(resp, now)
			h.Quotas = nil
			return h
		}
	case "law":
		switch {
		case len(s.limits) != 1:
		case s.tells != nil:
			return newLawClient(s.port(i))
		default:
			return newSeekClient(s.port(i))
		}
	}
	return t
}

// scoped makes t one that knows which request falls under which quota, and what a 403 means.
func (s *sim) scoped(t *throttle.Transport) *throttle.Transport {
	t.Key = func(req *http.Request) string { return s.limits[s.route(req)].name }
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
				switch {
				case err == nil:
					resp.Body.Close()
					if ok := resp.StatusCode == http.StatusOK; ok || ctx.Err() == nil {
						s.ended(ok)
					}
				case ctx.Err() == nil:
					s.ended(false)
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
		waits = append(waits, s.load(ctx, t, c, workers, "http://upstream.test/"))
	}
	time.Sleep(d)
	cancel()
	for _, wait := range waits {
		wait()
	}
}

func (s *sim) ended(ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ok {
		s.calls++
	} else {
		s.lost++
	}
}

// capacity is what the first limit lets in from from to to: the rate times the time, whatever its
// kind. For a window it is n times the number of windows if from and to are n windows apart. The
// first burst of a bucket or of a sliding window is not in it.
func (s *sim) capacity(from, to time.Duration) float64 {
	l := s.limits[0]
	sum, n := 0.0, float64(l.n)
	for _, c := range s.changes {
		if c.at > from && c.at < to {
			sum += n * float64(c.at-from) / float64(l.per)
			from = c.at
		}
		if c.at < to {
			n = float64(c.n)
		}
	}
	return sum + n*float64(to-from)/float64(l.per)
}
