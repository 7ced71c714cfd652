package inbound_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/inbound"
)

// TestStoreGivesBack: what comes back to a store is never more than what counts, whoever has granted it and whenever.
func TestStoreGivesBack(t *testing.T) {
	type keyed = *inbound.Keyed[string]
	allowed := func(k keyed, most int) (n int) {
		for range most {
			if k.Allow("a", 1) {
				n++
			}
		}
		return n
	}
	for _, test := range []struct {
		name, limit string
		work        func(k keyed, w *storeWire)
		want        int // units that the key has after it
	}{
		{"Adjust while units are lent", "100/1h window", func(k keyed, _ *storeWire) {
			for range 5 {
				k.Allow("a", 1)
				time.Sleep(200 * time.Millisecond)
			}
			k.Adjust("a", -1000)
			if n := allowed(k, 300); n > 105 {
				t.Errorf("%d let in at once, want no more than 100 and what was lent", n)
			}
		}, 0},
		{"Adjust of half", "100/1h window", func(k keyed, _ *storeWire) {
			k.Allow("a", 80)
			k.Adjust("a", -40)
		}, 60},
		{"Settle", "100/1h window", func(k keyed, _ *storeWire) {
			r := k.Reserve("a", 80)
			r.Settle(30)
		}, 70},
		{"Cancel in the next window", "10/1m window", func(k keyed, _ *storeWire) {
			r := k.Reserve("a", 5)
			time.Sleep(61 * time.Second)
			k.Allow("a", 5)
			r.Cancel()
		}, 5},
		{"Settle in the next window", "10/1m window", func(k keyed, _ *storeWire) {
			r := k.Reserve("a", 5)
			time.Sleep(61 * time.Second)
			k.Allow("a", 5)
			r.Settle(0)
		}, 5},
		{"Settle of what this server has granted", "100/1h window", func(k keyed, w *storeWire) {
			k.Allow("a", 50)
			w.set("error")
			time.Sleep(time.Second)
			k.Allow("b", 1)
			r := k.Reserve("a", 10)
			w.set("")
			time.Sleep(time.Second)
			k.Allow("b", 1)
			time.Sleep(time.Second)
			r.Settle(0)
		}, 50},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &storeWire{to: new(inbound.Memory), delay: time.Millisecond}
				k := inbound.NewSharedKeyed[string](inbound.Sharing{Store: w, Name: "x", Servers: 2}, 0, test.limit)
				test.work(k, w)
				time.Sleep(3 * time.Second)
				k.Allow("b", 1) // a round trip
				if left := k.Tokens("a"); left != test.want {
					t.Errorf("%d left, want %d", left, test.want)
				}
				if n := allowed(k, test.want+50); n != test.want {
					t.Errorf("%d let in, want %d", n, test.want)
				}
				time.Sleep(3 * time.Second)
			})
		})
	}
}

// TestStoreUndoneLeft: a request that another limit refuses leaves no mark in the fields.
func TestStoreUndoneLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := new(inbound.Memory)
		var fields string
		for range 2 { // servers
			user := &inbound.Limit{Name: "user", Limits: []string{"1/24h window"}, Key: inbound.ByHeader("X-User"), Store: memory}
			l := &inbound.Limit{Name: "api", Limits: []string{"100/24h window"}, Key: inbound.ByHeader("X-Client"), Store: memory, And: []*inbound.Limit{user}}
			w := httptest.NewRecorder()
			l.Handler(served).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			fields = w.Header().Get("RateLimit")
		}
		if !strings.Contains(fields, `"api-d";r=99`) {
			t.Errorf("one of 100 is used, and the fields say %s", fields)
		}
		time.Sleep(3 * time.Second)
	})
}

// TestStoreVisits: a key that has come once does not keep its slot, so a flood of such keys leaves room for those after it.
func TestStoreVisits(t *testing.T) {
	for _, lost := range []string{"", "error"} {
		synctest.Test(t, func(t *testing.T) {
			s := newServers(t, 1, time.Millisecond, &inbound.Limit{Limits: []string{"5/s burst 5"}, MaxKeys: 32})
			s.wires[0].set(lost)
			for i := range 200 {
				s.ask(0, "new"+strconv.Itoa(i), 1)
			}
			s.wires[0].set("")
			time.Sleep(20 * time.Second)
			s.ask(0, "", 1) // tries the store
			time.Sleep(time.Second)
			for i := range 8 {
				for range 5 {
					if name := "late" + strconv.Itoa(i); !s.ask(0, name, 1).ok {
						t.Fatalf("store %q: %s shares what one key has", lost, name)
					}
				}
			}
			time.Sleep(3 * time.Second)
		})
	}
}

// TestStoreCountsAll: the servers of each limit are counted, also if another limit always comes first.
func TestStoreCountsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &storeWire{to: new(inbound.Memory), delay: time.Millisecond}
		user := &inbound.Limit{Name: "user", Limits: []string{"100/1s window"}, Store: w}
		api := &inbound.Limit{Name: "api", Limits: []string{"9/1ms window"}, Store: w, And: []*inbound.Limit{user}} // asks each time
		h, admitted := api.Handler(served), 0
		ask := func(n int, each time.Duration) {
			for range n {
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil)); w.Code == http.StatusOK {
					admitted++
				}
				time.Sleep(each)
			}
		}
		ask(300, 100*time.Millisecond)
		w.set("error")
		ask(1, 2*time.Second)
		admitted = 0
		if ask(100, time.Millisecond); admitted < 90 {
			t.Errorf("%d let in, want 100: there is one server", admitted)
		}
		time.Sleep(3 * time.Second)
	})
}

// TestSharedKeyedUnlimited: without limits there is nothing to ask a store.
func TestSharedKeyedUnlimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &storeWire{to: new(inbound.Memory)}
		k := inbound.NewSharedKeyed[string](inbound.Sharing{Store: w, Name: "x"}, 0)
		k.Forget("a")
		if left := k.Tokens("a"); left >= 0 || w.trips > 0 || !k.Allow("a", 1) {
			t.Errorf("%d left, %d round trips", left, w.trips)
		}
	})
}

// TestStoreSlower: a store that has become slower for good, but not too slow to wait for, is used again.
func TestStoreSlower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t, 1, time.Millisecond, &inbound.Limit{Limits: []string{"1000/1h burst 1000"}})
		for _, test := range []struct {
			delay time.Duration
			up    bool
		}{{time.Millisecond, true}, {25 * time.Millisecond, true}, {90 * time.Millisecond, true}, {120 * time.Millisecond, false}, {2 * time.Millisecond, true}} {
			s.wires[0].mu.Lock()
			s.wires[0].delay = test.delay
			s.wires[0].mu.Unlock()
			for range 300 {
				if a := s.ask(0, "a", 1); a.took > 100*time.Millisecond {
					t.Errorf("%v: a request waits for %v", test.delay, a.took)
				}
				time.Sleep(50 * time.Millisecond)
			}
			if up := s.l[0].StoreStats().Up; up != test.up {
				t.Errorf("%v: up is %v, want %v", test.delay, up, test.up)
			}
		}
		time.Sleep(3 * time.Second)
	})
}

// TestStoreUndoneElsewhere: units of requests that another limit refuses are there for other servers, also if their own server has
// nothing more to do.
func TestStoreUndoneElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, hs := new(inbound.Memory), [2]http.Handler{}
		for i := range hs {
			w := &storeWire{to: memory, delay: time.Millisecond}
			user := &inbound.Limit{Name: "user", Limits: []string{"1/24h window"}, Key: inbound.ByHeader("X-User"), Store: w}
			l := &inbound.Limit{Name: "api", Limits: []string{"20/24h window"}, Key: inbound.ByHeader("X-Client"), Store: w, And: []*inbound.Limit{user}}
			hs[i] = l.Handler(served)
		}
		ask := func(server int, user string) bool {
			r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
			r.Header.Set("X-User", user)
			hs[server].ServeHTTP(w, r)
			return w.Code == http.StatusOK
		}
		ask(1, "ann")
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { ask(0, "ann") })
		}
		wg.Wait()
		time.Sleep(10 * time.Millisecond)
		for i := range 19 {
			if !ask(1, strconv.Itoa(i)) {
				t.Fatalf("request %d of 19 is refused, though one of 20 is used", i+1)
			}
		}
		time.Sleep(3 * time.Second)
	})
}
