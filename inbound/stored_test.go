package inbound_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/inbound"
	"github.com/go-throttle/throttle/internal/race"
)

// A crowd is a random world of clients and servers with one bucket for each client.
type crowd struct {
	*servers
	r     *rand.Rand
	rate  float64 // per second
	burst int
	delay time.Duration
}

func newCrowd(t *testing.T, seed uint64) *crowd {
	r := rand.New(rand.NewPCG(seed, 39))
	c := &crowd{r: r, rate: []float64{0.5, 5, 20, 100}[r.IntN(4)], burst: 1 + r.IntN(40), delay: time.Duration(r.IntN(8000)) * time.Microsecond}
	text := fmt.Sprintf("%d/1m burst %d", int(c.rate*60), c.burst)
	c.servers = newServers(t, 1+r.IntN(4), c.delay, &inbound.Limit{Limits: []string{text}})
	return c
}

// bound is what the documentation says: burst and limit·L, a fifth of what is lent in two seconds, and what the way
// back of an answer keeps.
func (c *crowd) bound() float64 {
	return float64(c.burst) + 0.2*(float64(c.burst)+2*c.rate) + c.rate*c.delay.Seconds() + 1
}

// greedy sends as much as it likes.
func (c *crowd) greedy(name string, seed uint64, end time.Time) {
	r := rand.New(rand.NewPCG(seed, 1))
	for time.Now().Before(end) {
		for range 1 + r.IntN(1+c.burst) {
			c.ask(r.IntN(len(c.h)), name, 1)
		}
		time.Sleep(time.Duration(r.ExpFloat64() * float64(time.Second) / c.rate))
	}
}

// modest stays below 80 % of rate and burst, in any way that this allows, and is never refused.
func (c *crowd) modest(name string, seed uint64, end time.Time) {
	r := rand.New(rand.NewPCG(seed, 2))
	most := math.Floor(0.8 * float64(c.burst))
	missing, last, home := 0.0, time.Now(), r.IntN(len(c.h))
	for time.Now().Before(end) {
		if time.Sleep(time.Duration(r.ExpFloat64() * float64(time.Second) / c.rate)); r.IntN(10) == 0 {
			time.Sleep(time.Duration(r.Float64() * 3 * float64(time.Second)))
		}
		for range r.IntN(int(most) + 1) {
			// A request counts when it arrives, which the way there and the requests before it delay.
			now := time.Now()
			missing = max(0, missing-(now.Sub(last).Seconds())*0.8*c.rate)
			if last = now; missing+1 > most-c.rate*c.delay.Seconds() {
				break
			}
			missing++
			if r.IntN(5) == 0 {
				home = r.IntN(len(c.h))
			}
			if a := c.ask(home, name, 1); !a.ok {
				c.t.Errorf("%v/s burst %d, %d servers, %v: a client below 80 %% is refused: %+v", c.rate, c.burst, len(c.h), c.delay, a)
				return
			}
		}
	}
}

// TestStoreProperties: over random limits, ways and clients, no window admits more than the bound, and who stays below 80 %
// is never refused.
func TestStoreProperties(t *testing.T) {
	for seed := range uint64(race.Pick(5, 60)) {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, seed)
			end := time.Now().Add(10 * time.Second)
			var wg sync.WaitGroup
			for i := range uint64(3) {
				wg.Go(func() { c.modest("modest"+strconv.Itoa(int(i)), seed+i, end) })
				wg.Go(func() { c.greedy("greedy", seed+i, end) })
			}
			wg.Wait()
			time.Sleep(3 * time.Second)
			if got := c.servers.burst("greedy", c.rate); got > c.bound() {
				t.Errorf("seed %d: %v/s burst %d: a window admits %.2f, want at most %.2f", seed, c.rate, c.burst, got, c.bound())
			}
		})
	}
}

// TestStoreRemaining: what the fields say is left is what is left, but for units that other servers hold, and for what
// others took since this one has asked.
func TestStoreRemaining(t *testing.T) {
	for _, test := range []struct {
		limit   string
		most    int
		servers int
		held    int // at most, by others
	}{
		{"1000/1h window", 1000, 1, 0},
		{"9/1h window", 9, 4, 0}, // too small to be lent
		{"20/1h sliding", 20, 1, 0},
		{"500/100h burst 500", 500, 1, 0},
		{"1000/1h window", 1000, 4, 100},
		{"500/100h burst 500", 500, 4, 100},
	} {
		for seed := range uint64(race.Pick(4, 10)) {
			synctest.Test(t, func(t *testing.T) {
				s, r := newServers(t, test.servers, time.Millisecond, &inbound.Limit{Limits: []string{test.limit}}), rand.New(rand.NewPCG(seed, 3))
				lastAsked := make([]int, test.servers) // how many were used when the server asked last
				for used := 0; used < test.most; {
					i, trips := r.IntN(test.servers), 0
					trips = s.wires[i].trips
					a := s.ask(i, "a", 1)
					if a.ok {
						used++
					}
					if s.wires[i].trips > trips {
						lastAsked[i] = used
					}
					off := test.most - used - a.rest // above 0: held by others; below: used by others
					if off > test.held || off < 0 && (test.servers == 1 || off < lastAsked[i]-used) || !a.ok && off != 0 && test.held == 0 {
						t.Fatalf("%s, %d servers, seed %d: %d of %d used, and the fields say %d; %+v", test.limit, test.servers, seed, used, test.most, a.rest, a)
					}
					if !a.ok {
						return
					}
					time.Sleep(time.Duration(r.ExpFloat64() * float64(time.Second) / float64(1+r.IntN(200))))
				}
			})
		}
	}
}

// TestStoreRetryAfter: who waits as long as Retry-After says is let in, on any server, and who comes a second earlier is
// not, unless another server has given back a unit meanwhile that it was lent.
func TestStoreRetryAfter(t *testing.T) {
	for limit, lent := range map[string]bool{
		"6/1m burst 3": false, "9/1m window": false, "10/1m sliding": true, "5/10s even": false, "30/1m sliding": true, "6/1m burst 2, 20/5m window": false,
	} {
		for seed := range uint64(race.Pick(5, 15)) {
			synctest.Test(t, func(t *testing.T) {
				s, r := newServers(t, 3, time.Millisecond, &inbound.Limit{Limits: []string{limit}}), rand.New(rand.NewPCG(seed, 4))
				for n := 0; n < 10; {
					time.Sleep(time.Duration(r.Float64() * float64(time.Second)))
					cost := 1 + r.IntN(2)
					a := s.ask(r.IntN(3), "a", cost)
					if a.ok {
						continue
					}
					n++
					if a.retry > time.Second && r.IntN(2) == 0 {
						time.Sleep(a.retry - time.Second - 2*time.Millisecond)
						if early := s.ask(r.IntN(3), "a", cost); early.ok {
							if !lent {
								t.Errorf("%s, seed %d: let in a second too early", limit, seed)
							}
							continue
						}
						time.Sleep(time.Second + 2*time.Millisecond)
					} else {
						time.Sleep(a.retry)
					}
					if b := s.ask(r.IntN(3), "a", cost); !b.ok {
						t.Errorf("%s, seed %d: refused after Retry-After: %+v, then %+v", limit, seed, a, b)
					}
				}
				time.Sleep(3 * time.Second)
			})
		}
	}
}

// TestStoreLost: while the store does not answer no request waits longer than the soft timeout, the mode decides, and
// all is as before when it answers again.
func TestStoreLost(t *testing.T) {
	for _, fault := range []string{"hang", "error", "lost", "broken"} {
		for _, test := range []struct {
			mode inbound.Mode
			want int // of 80 requests at once, with a burst of 40 and 4 servers
		}{{inbound.Alone, 40}, {inbound.Closed, 0}, {inbound.Open, 80}} {
			t.Run(fmt.Sprint(fault, test.mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newServers(t, 4, 2*time.Millisecond, &inbound.Limit{Limits: []string{"40/1m burst 40"}, Mode: test.mode, Servers: 4})
					for i := range 4 {
						s.ask(i, "somebody", 1)
						s.wires[i].set(fault)
					}
					for i := range 4 {
						if a := s.ask(i, "else", 1); a.took > 100*time.Millisecond {
							t.Errorf("the first request waits for %v", a.took)
						}
					}
					for i := range 80 {
						if a := s.ask(i%4, "a", 1); a.took > 2*time.Millisecond {
							t.Errorf("request %d waits for %v", i, a.took)
						}
					}
					got := s.count("a")
					if got != test.want {
						t.Errorf("%d let in, want %d", got, test.want)
					}
					for i := range 4 {
						s.wires[i].set("")
					}
					for range 40 { // any traffic tries the store again
						time.Sleep(100 * time.Millisecond)
						for i := range 4 {
							s.ask(i, "somebody", 0)
							s.ask(i, "else", 1)
						}
					}
					time.Sleep(time.Minute)
					for i := range 80 {
						s.ask(i%4, "b", 1)
					}
					if got := s.count("b"); got != 40 {
						t.Errorf("%d of another client let in after it, want 40", got)
					}
					time.Sleep(3 * time.Second)
				})
			})
		}
	}
}

// TestStoreFlood: a flood of invented keys at four servers. Those who were there before are served, and
// the store and its round trips stay within bounds.
func TestStoreFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := race.Pick(10_000, 60_000)
		maxKeys := n / 40
		s := newServers(t, 4, time.Millisecond, &inbound.Limit{Limits: []string{"20/1m burst 20"}, MaxKeys: maxKeys})
		for c := range 10 {
			for range 2 {
				s.ask(c%4, "old"+strconv.Itoa(c), 1)
			}
		}
		time.Sleep(10 * time.Second)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { s.ask(i%4, "new"+strconv.Itoa(i), 1) })
			if i%(n/100) == 0 {
				time.Sleep(30 * time.Millisecond)
				if c := i / (n / 100) % 10; i > 0 {
					if a := s.ask(c%4, "old"+strconv.Itoa(c), 1); !a.ok || a.took > 20*time.Millisecond {
						t.Errorf("an old client: %+v", a)
					}
				}
			}
		}
		wg.Wait()
		time.Sleep(3 * time.Second)
		names := 0
		for _, w := range s.wires {
			names += w.keys
			if w.most > 200 {
				t.Errorf("%d keys in one round trip", w.most)
			}
		}
		if t.Logf("%d keys asked for, %d round trips, for %d keys", names, s.trips(), n); names > 2*4*maxKeys+1000 {
			t.Errorf("%d keys are asked for; the tables have room for %d", names, 4*maxKeys)
		}
	})
}

// TestSharedKeyed: a login limit of two servers.
func TestSharedKeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k [2]*inbound.Keyed[string]
		memory := new(inbound.Memory)
		for i := range k {
			k[i] = inbound.NewSharedKeyed[string](inbound.Sharing{Store: memory, Name: "logins"}, 0, "5/1m burst 5")
		}
		for i := range 7 {
			if wait := k[i%2].Take("ann", 1); (wait == 0) != (i < 5) {
				t.Errorf("attempt %d: %v", i, wait)
			}
		}
		if left := k[0].Tokens("ann"); left != 0 {
			t.Errorf("%d left, want 0", left)
		}
		k[1].Forget("ann")
		if left := k[0].Tokens("ann"); left != 5 {
			t.Errorf("%d left after Forget, want 5", left)
		}
		r := k[0].Reserve("ann", 5)
		if !r.OK() || r.Delay() != 0 {
			t.Errorf("%+v", r)
		}
		if r := k[1].Reserve("ann", 1); r.OK() {
			t.Error("a debt is reserved")
		}
		r.Cancel()
		k[0].Take("bob", 1) // a round trip
		if left := k[1].Tokens("ann"); left != 5 {
			t.Errorf("%d left after Cancel, want 5", left)
		}
		time.Sleep(3 * time.Second)
	})
}

// TestStoreStats: what servers know of each other, and of their store, before, while and after it is lost.
func TestStoreStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t, 3, 2*time.Millisecond, &inbound.Limit{Limits: []string{"20/s burst 20"}})
		work := func(d time.Duration) {
			for range int(d / (100 * time.Millisecond)) {
				for i := range 3 {
					s.ask(i, "a", 1)
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
		if got := s.l[0].StoreStats(); !got.Up || got.Servers != 10 || got.Trips != 0 {
			t.Errorf("before: %+v", got)
		}
		work(30 * time.Second)
		if got := s.l[0].StoreStats(); !got.Up || got.Servers != 3 || got.Alone > 0 || got.RoundTrip != 2*time.Millisecond || got.Err != nil || got.Failed > 0 {
			t.Errorf("with the store: %+v", got)
		}
		for _, w := range s.wires {
			w.set("error")
		}
		work(30 * time.Second)
		if got := s.l[0].StoreStats(); got.Up || got.Servers != 3 || got.Alone == 0 || got.Err == nil || got.Failed == 0 || got.Failed > 60 {
			t.Errorf("without: %+v", got)
		}
		for _, w := range s.wires {
			w.set("")
		}
		work(30 * time.Second)
		if got := s.l[0].StoreStats(); !got.Up || got.Servers != 3 || got.Err != nil {
			t.Errorf("with it again: %+v", got)
		}
		if got := (&inbound.Limit{}).StoreStats(); got != (inbound.StoreStats{}) {
			t.Errorf("without any: %+v", got)
		}
		time.Sleep(3 * time.Second)
	})
}

// TestStorePanics: what makes no sense is said when the handler is made.
func TestStorePanics(t *testing.T) {
	for want, l := range map[string]*inbound.Limit{
		"Name":    {Store: new(inbound.Memory), Limits: []string{"5/s"}},
		"Mode":    {Store: new(inbound.Memory), Name: "x", Mode: 3},
		"Servers": {Store: new(inbound.Memory), Name: "x", Servers: -1},
		"Plan":    {Store: new(inbound.Memory), Name: "x", Plan: func(*http.Request) ([]string, error) { return nil, nil }},
		"at-once": {Store: new(inbound.Memory), Name: "x", Limits: []string{"4 at once"}},
	} {
		func() {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, want) {
					t.Errorf("the panic says %q, want %q in it", said, want)
				}
			}()
			l.Handler(served)
		}()
	}
}

// TestStoreWait: requests that are held get their units from the store, one after the other, on two servers.
func TestStoreWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t, 2, time.Millisecond, &inbound.Limit{Limits: []string{"1/s burst 1"}, Wait: 10 * time.Second})
		from := time.Now()
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				if a := s.ask(i%2, "a", 1); !a.ok {
					t.Errorf("request %d: %+v", i, a)
				}
			})
		}
		wg.Wait()
		if took := time.Since(from); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("6 requests at 1/s took %v", took)
		}
		if got := s.burst("a", 1); got > 1.1 {
			t.Errorf("a window of L admits %.2f + L", got)
		}
		time.Sleep(3 * time.Second)
	})
}

// TestStoreAnd: two limits in stores are asked for together, and what one of them has given goes back if the other refuses.
func TestStoreAnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := &storeWire{to: new(inbound.Memory), delay: 10 * time.Millisecond}
		user := &inbound.Limit{Name: "user", Limits: []string{"3/24h window"}, Key: inbound.ByHeader("X-User"), Store: wire}
		l := &inbound.Limit{Name: "api", Limits: []string{"100/24h window"}, Key: inbound.ByHeader("X-Client"), Store: wire, And: []*inbound.Limit{user}}
		h, admitted := l.Handler(served), 0
		ask := func(user string) (rest string) {
			r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
			r.Header.Set("X-Client", "a")
			r.Header.Set("X-User", user)
			from := time.Now()
			if h.ServeHTTP(w, r); w.Code == http.StatusOK {
				admitted++
			}
			if took := time.Since(from); took > 12*time.Millisecond {
				t.Errorf("a request takes %v, more than a round trip", took)
			}
			return w.Header().Get("RateLimit")
		}
		for range 5 {
			ask("ann")
			time.Sleep(3 * time.Second)
		}
		if admitted != 3 {
			t.Errorf("%d let in, want 3", admitted)
		}
		ask("bob")
		time.Sleep(3 * time.Second)
		if rest := ask("bob"); !strings.Contains(rest, `"api-d";r=95`) {
			t.Errorf("5 of 100 are used, and the fields say %s", rest)
		}
		time.Sleep(3 * time.Second)
	})
}
