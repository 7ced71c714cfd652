package inbound_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/inbound"
	"github.com/go-throttle/throttle/inbound/keys"
	"github.com/go-throttle/throttle/internal/race"
)

// A storeWire is the way of one server to the store, with the faults of a network. It has a breaker of its own, as a client in
// a process of its own has.
type storeWire struct {
	to      keys.Store
	breaker keys.Breaker

	mu    sync.Mutex
	delay time.Duration // of the round trip
	fault string        // "": none; "hang", "error", "broken" (each key), "lost" (the answer)
	trips int
	keys  int
	most  int // keys in one round trip
}

func (w *storeWire) Breaker() *keys.Breaker { return &w.breaker }

func (w *storeWire) set(fault string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = fault
}

func (w *storeWire) passes(n int) (time.Duration, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trips++
	w.keys += n
	w.most = max(w.most, n)
	return w.delay, w.fault
}

func (w *storeWire) Ask(ctx context.Context, rs []keys.Request) ([]keys.Reply, error) {
	delay, fault := w.passes(len(rs))
	time.Sleep(delay / 2)
	switch fault {
	case "hang":
		<-ctx.Done()
		return nil, ctx.Err()
	case "error":
		return nil, errors.New("connection refused")
	case "broken":
		replies := make([]keys.Reply, len(rs))
		for i := range replies {
			replies[i].Err = keys.ErrKey
		}
		return replies, nil
	}
	replies, err := w.to.Ask(ctx, rs)
	time.Sleep(delay - delay/2)
	if fault == "lost" {
		return nil, errors.New("connection reset")
	}
	return replies, err
}

// servers are n servers of one API, each with a Limit and a way to one store of its own.
type servers struct {
	t     *testing.T
	wires []*storeWire
	h     []http.Handler
	l     []*inbound.Limit

	mu  sync.Mutex
	log []let // of admitted requests
}

// A let is one request that was let in.
type let struct {
	at     time.Time
	client string
	cost   int
}

func newServers(t *testing.T, n int, delay time.Duration, of *inbound.Limit) *servers {
	s := &servers{t: t}
	memory := new(inbound.Memory)
	for range n {
		w := &storeWire{to: memory, delay: delay}
		l := &inbound.Limit{
			Limits: of.Limits, Name: "api", Store: w, Key: inbound.ByHeader("X-Client"), Mode: of.Mode, Servers: of.Servers,
			Wait: of.Wait, MaxKeys: of.MaxKeys, And: of.And, Cost: func(r *http.Request) int {
				n, err := strconv.Atoi(r.Header.Get("X-Cost"))
				if err != nil {
					return 1
				}
				return n
			},
		}
		s.wires, s.l, s.h = append(s.wires, w), append(s.l, l), append(s.h, l.Handler(http.HandlerFunc(s.serve)))
	}
	return s
}

func (s *servers) serve(_ http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cost, err := strconv.Atoi(r.Header.Get("X-Cost"))
	if err != nil {
		cost = 1
	}
	s.log = append(s.log, let{time.Now(), r.Header.Get("X-Client"), cost})
}

// An answer is what a client hears.
type answer struct {
	ok    bool
	rest  int           // of the tightest limit
	reset time.Duration // the same
	retry time.Duration // negative: it is not said
	took  time.Duration
}

// ask sends a request of a client to a server.
func (s *servers) ask(server int, client string, cost int) (a answer) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Client", client)
	r.Header.Set("X-Cost", strconv.Itoa(cost))
	w := httptest.NewRecorder()
	from := time.Now()
	s.h[server].ServeHTTP(w, r)
	a = answer{ok: w.Code == http.StatusOK, retry: -1, rest: -1, took: time.Since(from)}
	if n, err := strconv.Atoi(w.Header().Get("Retry-After")); err == nil {
		a.retry = time.Duration(n) * time.Second
	}
	if _, after, ok := strings.Cut(w.Header().Get("RateLimit"), ";r="); ok {
		var rest, reset int
		fmt.Sscanf(after, "%d;t=%d", &rest, &reset)
		a.rest, a.reset = rest, time.Duration(reset)*time.Second
	}
	return a
}

// trips is the round trips of all servers.
func (s *servers) trips() (n int) {
	for _, w := range s.wires {
		w.mu.Lock()
		n += w.trips
		w.mu.Unlock()
	}
	return n
}

// burst is the smallest b with which no window of any length L has let in more of one client than b + limit·L units.
func (s *servers) burst(client string, perSecond float64) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	worst, least, sum := 0.0, 1e18, 0.0
	for _, u := range s.log {
		if u.client != client {
			continue
		}
		due := u.at.Sub(s.log[0].at).Seconds() * perSecond
		least = min(least, sum-due)
		sum += float64(u.cost)
		worst = max(worst, sum-due-least)
	}
	return worst
}

// count is what one client was let in.
func (s *servers) count(client string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.log {
		if u.client == client {
			n++
		}
	}
	return n
}

// TestStoreOrdinary: what a few ordinary programs see of four servers with one limit.
func TestStoreOrdinary(t *testing.T) {
	type world struct {
		*servers
		t *testing.T
		r *rand.Rand
	}
	for name, test := range map[string]struct {
		limit string
		run   func(w world)
	}{
		"one client, one request": {"20/s burst 20", func(w world) {
			if a := w.ask(0, "a", 1); !a.ok || a.took > 2*time.Millisecond || w.trips() != 1 {
				w.t.Errorf("%+v, %d round trips", a, w.trips())
			}
		}},
		"four clients, one a second each": {"100/1m burst 20", func(w world) {
			for range 60 {
				for c := range 4 {
					if a := w.ask(c, fmt.Sprint(c), 1); !a.ok {
						w.t.Errorf("client %d is refused: %+v", c, a)
					}
				}
				time.Sleep(time.Second)
			}
		}},
		"a loop that obeys Retry-After": {"60/1m burst 10", func(w world) {
			for n := 0; n < 100; {
				if a := w.ask(w.r.IntN(4), "a", 1); a.ok {
					n++
				} else {
					time.Sleep(a.retry)
				}
			}
			if refused := 0; w.count("a") != 100 || refused > 0 {
				w.t.Errorf("%d let in", w.count("a"))
			}
		}},
		"a batch of 50 at once": {"20/s burst 20", func(w world) {
			var wg sync.WaitGroup
			for i := range 50 {
				wg.Go(func() { w.ask(i%4, "a", 1) })
			}
			if wg.Wait(); w.count("a") != 20 {
				w.t.Errorf("%d let in, want the burst", w.count("a"))
			}
		}},
		"a batch in a window": {"100/1m window", func(w world) {
			for i := range 150 {
				if a := w.ask(i%4, "a", 1); a.ok != (i < 100) {
					w.t.Fatalf("request %d: %+v", i, a)
				}
			}
		}},
		"log-ins": {"3/10s sliding", func(w world) {
			for i := range 5 {
				if a := w.ask(i%4, "a", 1); a.ok != (i < 3) || i >= 3 && a.retry != 10*time.Second {
					w.t.Errorf("log-in %d: %+v", i, a)
				}
			}
		}},
		"a strict limit, each 250 ms, with jitter": {"5/s even", func(w world) {
			for i := range 100 {
				time.Sleep(time.Duration(w.r.IntN(50)) * time.Millisecond)
				if a := w.ask(i%4, "a", 1); !a.ok {
					w.t.Errorf("request %d: %+v", i, a)
				}
				time.Sleep(250 * time.Millisecond)
			}
		}},
		"one of the servers has lost the store": {"20/s burst 20", func(w world) {
			w.ask(3, "b", 1)
			w.wires[3].set("hang")
			slow := 0
			for i := range 40 {
				if a := w.ask(i%4, "a", 1); a.took > 5*time.Millisecond {
					slow++
				} else if !a.ok {
					w.t.Errorf("request %d: %+v", i, a)
				}
				time.Sleep(100 * time.Millisecond)
			}
			if slow > 1 {
				w.t.Errorf("%d requests waited for the store that hangs", slow)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServers(t, 4, time.Millisecond, &inbound.Limit{Limits: []string{test.limit}, Servers: 4})
				test.run(world{s, t, rand.New(rand.NewPCG(1, 1))})
				time.Sleep(3 * time.Second) // what hangs ends
			})
		})
	}
}

// TestStoreTrips: what decisions cost.
func TestStoreTrips(t *testing.T) {
	for name, test := range map[string]struct {
		limit   string
		servers int
		clients int
		every   time.Duration // from one request of a client to a server to the next
		random  bool
		lasts   time.Duration
		want    float64 // round trips for each request
	}{
		"far over":                         {"10/1m burst 10", 1, 1, 10 * time.Millisecond, false, 10 * time.Second, 0.02},
		"far over, four servers":           {"10/1m burst 10", 4, 1, 10 * time.Millisecond, false, 10 * time.Second, 0.03},
		"far under, one server":            {"20/s burst 20", 1, 1, 200 * time.Millisecond, false, time.Minute, 0.25},
		"far under, a window":              {"5000/1h window", 1, 1, 200 * time.Millisecond, false, time.Minute, 0.25},
		"a hot key, one server":            {"20000/s burst 1000", 1, 1, 100 * time.Microsecond, true, race.Pick(300*time.Millisecond, 3*time.Second), 0.03},
		"a hot key, four servers":          {"20000/s burst 1000", 4, 1, 400 * time.Microsecond, true, race.Pick(300*time.Millisecond, 3*time.Second), 0.1},
		"1,000 clients on four servers":    {"20/s burst 20", 4, 1000, 200 * time.Millisecond, true, race.Pick(200*time.Millisecond, 2*time.Second), 0.3},
		"a hot key that is nearly refused": {"100/s burst 10", 4, 1, 400 * time.Microsecond, true, race.Pick(300*time.Millisecond, 3*time.Second), 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServers(t, test.servers, time.Millisecond, &inbound.Limit{Limits: []string{test.limit}})
				var wg sync.WaitGroup
				var requests atomic.Int64
				for server := range test.servers {
					for c := range test.clients {
						wg.Go(func() {
							r := rand.New(rand.NewPCG(uint64(server), uint64(c)))
							for from := time.Now(); ; requests.Add(1) {
								wait := test.every
								if test.random {
									wait = time.Duration(r.ExpFloat64() * float64(test.every))
								}
								time.Sleep(wait)
								if time.Since(from) > test.lasts {
									return
								}
								wg.Go(func() { s.ask(server, strconv.Itoa(c), 1) })
							}
						})
					}
				}
				wg.Wait()
				got := float64(s.trips()) / float64(requests.Load())
				if t.Logf("%.3f round trips for each of %d requests", got, requests.Load()); got > test.want {
					t.Errorf("want at most %v", test.want)
				}
			})
		})
	}
}
