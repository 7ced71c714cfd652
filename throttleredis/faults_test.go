package throttleredis

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-throttle/throttle/fleet"
	"github.com/go-throttle/throttle/fleet/store"
)

// These tests say what is used at most and that it goes on, not how fast: a busy machine is slow, and may take a slow
// server for one that is lost.

// TestFaults: whatever happens to the server or the way to it, no call is stuck, the fleet is one again afterwards, and
// the bound of package fleet holds.
func TestFaults(t *testing.T) {
	type stand struct {
		*members
		srv   *server
		proxy *proxy
	}
	alone := func(s stand) { // every member has noticed, and goes on with its share
		until(t, "the members notice", func() bool { return s.in("alone") })
		s.more(50)
	}
	for name, fault := range map[string]func(*testing.T, stand){
		"stalled": func(t *testing.T, s stand) {
			s.srv.signal(t, syscall.SIGSTOP)
			defer s.srv.signal(t, syscall.SIGCONT)
			alone(s)
		},
		"killed, and started empty": func(t *testing.T, s stand) {
			s.srv.kill()
			alone(s)
			s.srv.again(t)
		},
		"data flushed":    func(t *testing.T, s stand) { s.srv.do(t, "FLUSHALL") },
		"scripts flushed": func(t *testing.T, s stand) { s.srv.do(t, "SCRIPT", "FLUSH") },
		"black hole": func(t *testing.T, s stand) {
			s.proxy.set(faults{hole: true})
			alone(s)
			s.proxy.set(faults{})
		},
		"reset": func(t *testing.T, s stand) {
			s.proxy.set(faults{reset: true})
			alone(s)
			s.proxy.set(faults{})
		},
		"slow": func(t *testing.T, s stand) {
			s.proxy.set(faults{delay: 200 * time.Millisecond})
			alone(s)
			s.proxy.set(faults{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := start(t)
			p := newProxy(t, srv.addr())
			m := newMembers(t, 3, 1000, 5, fleet.Alone, func() Client {
				return closing(t, redis.NewClient(&redis.Options{Addr: p.addr()}))
			})
			m.work(3)
			m.granted(50)
			fault(t, stand{m, srv, p})
			until(t, "the fleet is one again", func() bool { return m.in("shared") })
			m.granted(50)
			// While the server is away each process may use a share beside what it holds: 0.8 of the limit in all, and its
			// part of the burst. State that is lost may cost one more burst, and what was granted ahead.
			m.check(1.8*1000, 0.8*1000*validity.Seconds()+5+3+5+0.8*1000*validity.Seconds())
		})
	}
}

// TestAnswersLost: if answers are lost after the script was executed, no unit is granted twice, whatever the
// client does about it.
func TestAnswersLost(t *testing.T) {
	t.Run("client repeats", func(t *testing.T) {
		// Of 3 answers 2 are lost, so each request is executed about 3 times. One unit is a thousand seconds.
		p, n := newProxy(t, start(t).addr()), 0
		p.set(faults{cut: func() int {
			if n++; n%3 == 0 {
				return -1
			}
			return n % 2 * 10
		}})
		s := New(closing(t, redis.NewClient(&redis.Options{Addr: p.addr(), MaxRetries: 3, ReadTimeout: time.Minute})))
		var first, last store.Mark
		for seq := range uint64(20) {
			r, err := s.Exchange(t.Context(), "x", store.Request{
				Member: "a", Seq: seq + 1, Limit: 0.001, Burst: 100, Validity: validity, Need: 1, Known: last,
			})
			if err != nil || len(r.Runs) != 1 || r.Runs[0] != (store.Run{Count: 1}) {
				t.Fatalf("%d: %+v, %v", seq, r, err)
			}
			if last = r.Known; seq == 0 {
				first = last
			}
		}
		if units := float64(last.Next-first.Next) / 1e9; units != 19 {
			t.Errorf("the schedule moved by %v units for 19; %d answers were asked for", units, n)
		}
		if n < 59 {
			t.Errorf("only %d requests were executed", n)
		}
	})
	t.Run("client does not", func(t *testing.T) {
		p := newProxy(t, start(t).addr())
		m := newMembers(t, 3, 500, 5, fleet.Closed, func() Client {
			return closing(t, redis.NewClient(&redis.Options{Addr: p.addr(), MaxRetries: -1}))
		})
		m.work(3)
		m.granted(20)
		p.set(faults{cut: func() int { return rand.IntN(4)*10 - 10 }}) // one in four passes
		m.more(20)
		p.set(faults{})
		m.granted(50)
		m.check(500, 0)
	})
}

// TestAtMost: without faults the bound holds to the unit, and every process gets something.
func TestAtMost(t *testing.T) {
	srv := start(t)
	for _, n := range []int{1, 4, 16} {
		m := newMembers(t, n, 1000, 10, fleet.Closed, func() Client { return srv.client(t) })
		m.work(2)
		m.granted(5)
		m.more(200)
		m.check(1000, 0)
		srv.do(t, "FLUSHALL")
	}
}
