package fleet

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/outage"
	"github.com/go-throttle/throttle/internal/race"
)

const validity250 = 250 * time.Millisecond

// bound is the term that the fleet adds to burst + limit·L.
func bound(limit rate.Limit) float64 { return float64(limit)*validity250.Seconds() + 1 }

// checkBurst fails if a window admits more than burst + limit·L + more.
func checkBurst(t *testing.T, led *ledger, from, to time.Time, limit rate.Limit, burst int, more float64) {
	t.Helper()
	if got := led.burst(from, to, limit); got > float64(burst)+more {
		t.Errorf("a window admits %.1f + %v·L; want at most %.1f + %v·L", got, limit, float64(burst)+more, limit)
	}
}

// usedOf is the part of the limit that is used from one moment to another.
func usedOf(led *ledger, from, to time.Time, limit rate.Limit) float64 {
	return float64(led.units(-1, from, to)) / (to.Sub(from).Seconds() * float64(limit))
}

// TestQuiet: members that together want less than the limit wait for one round trip at most.
func TestQuiet(t *testing.T) {
	var p50, p99 []time.Duration
	for range race.Pick(1, 5) {
		bubble(t, func(t *testing.T) {
			m, led, limit := new(Memory), new(ledger), rate.Limit(50)
			var ps []*process
			all := make([][]time.Duration, 8)
			for i := range 8 {
				p := newProcess(i, m, led, limit, 20, Options{})
				p.quiet(5, &all[i])
				ps = append(ps, p)
			}
			time.Sleep(120 * time.Second)
			killAll(ps)
			waits := slices.Concat(all...)
			slices.Sort(waits)
			p50, p99 = append(p50, waits[len(waits)/2]), append(p99, waits[len(waits)*99/100])
			t.Logf("%d calls: p50 %v, p99 %v; %.2f trips a call", len(waits), p50[len(p50)-1], p99[len(p99)-1], float64(trips(ps))/float64(len(waits)))
		})
	}
	slices.Sort(p50)
	slices.Sort(p99)
	if trip := 2 * time.Millisecond; p50[len(p50)/2] > trip || p99[len(p99)/2] > trip+2*time.Millisecond {
		t.Errorf("medians of p50 %v and p99 %v; a round trip takes %v", p50, p99, trip)
	}
}

// TestUsedLate: members that keep what they are granted as long as they may, and then use all of it at once, stay
// within the bound too, and come near it.
func TestUsedLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, led, limit, start := new(Memory), new(ledger), rate.Limit(1000), time.Now()
		var ps []*process
		for i := range 4 {
			p := newProcess(i, m, led, limit, 1, Options{})
			ctx, stop := context.WithCancel(context.Background())
			p.stop = stop
			p.wg.Go(func() {
				for ctx.Err() == nil {
					for {
						if wait, _ := p.lim.Take(ctx, 1); wait > 0 {
							break
						}
						led.add(i, 1)
					}
					// All take at the same moments, when the first units are about to expire.
					time.Sleep(200*time.Millisecond - time.Since(start)%(200*time.Millisecond))
				}
			})
			ps = append(ps, p)
		}
		time.Sleep(20 * time.Second)
		killAll(ps)
		got := led.burst(start, time.Now(), limit)
		t.Logf("%.1f + limit·L; the bound is %.1f", got, 1+bound(limit))
		if got > 1+bound(limit) || got < 0.5*bound(limit) {
			t.Errorf("%.1f + limit·L; want at most %.1f and not far below", got, 1+bound(limit))
		}
	})
}

// TestNewcomer: a member that wants units for the first time, or now and then, gets one within a round trip, though others
// have taken all there is. When it wants all it can get, it has its even part within W.
func TestNewcomer(t *testing.T) {
	for _, c := range []struct {
		limit  rate.Limit
		within time.Duration // its even part: W, or its turn among the others
	}{{1000, validity250}, {50, 8 * 20 * time.Millisecond}} {
		bubble(t, func(t *testing.T) {
			m, led := new(Memory), new(ledger)
			ps := fleetOf(7, m, led, c.limit, 1, Options{})
			time.Sleep(5 * time.Second)
			p := newProcess(7, m, led, c.limit, 1, Options{})
			for range 4 {
				if wait := p.call(context.Background(), 1); wait > 2*time.Millisecond {
					t.Errorf("limit %v: a unit comes after %v; a round trip takes 2ms", c.limit, wait)
				}
				time.Sleep(500 * time.Millisecond)
			}
			came := time.Now()
			p.work(4, nil)
			time.Sleep(c.within + 2*time.Second)
			killAll(append(ps, p))
			got := float64(led.units(7, came.Add(c.within), came.Add(c.within+2*time.Second)))
			if want := 2 * float64(c.limit) / 8; got < 0.8*want {
				t.Errorf("limit %v: it gets %v units in 2s, want about %v", c.limit, got, want)
			}
			if n := led.units(7, came, came.Add(2*time.Millisecond+1)); n == 0 {
				t.Errorf("limit %v: nothing within a round trip", c.limit)
			}
			checkBurst(t, led, came.Add(-time.Hour), time.Now(), c.limit, 1, bound(c.limit))
		})
	}
}

// TestStoreHangs: for the whole outage a call waits at most once for the soft timeout; the shares are used; and the
// fleet is one again soon after.
func TestStoreHangs(t *testing.T) {
	for _, strict := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			m, led, limit, start := new(Memory), new(ledger), rate.Limit(200), time.Now()
			ps := fleetOf(4, m, led, limit, 4, Options{})
			for _, p := range ps {
				p.link.set(func() { p.link.strict = strict })
			}
			time.Sleep(3 * time.Second)
			lost, back := time.Now(), time.Now().Add(30*time.Second)
			for _, p := range ps {
				p.mu.Lock()
				p.max = 0
				p.mu.Unlock()
				p.link.set(func() { p.link.hang = back })
			}
			time.Sleep(time.Until(back))
			for _, p := range ps {
				// 4 workers share 40 units a second, 1 each 25 ms; the hand was emptied before.
				p.mu.Lock()
				longest := p.max
				p.mu.Unlock()
				if longest > outage.MostSoft+4*25*time.Millisecond+validity250 {
					t.Errorf("a call waited for %v", longest)
				}
				if s := p.lim.Stats(); s.Mode != "alone" {
					t.Errorf("mode %q", s.Mode)
				}
			}
			time.Sleep(5 * time.Second)
			for _, p := range ps {
				if s := p.lim.Stats(); s.Mode != "shared" {
					t.Errorf("mode %q after the store is back", s.Mode)
				}
			}
			killAll(ps)
			synctest.Wait()
			alone := usedOf(led, lost.Add(time.Second), back, limit)
			after := usedOf(led, back.Add(2*time.Second), back.Add(5*time.Second), limit)
			t.Logf("alone %.3f, after %.3f", alone, after)
			if alone < 0.75 || alone > 0.85 || after < 0.98 {
				t.Errorf("used %.3f of the limit without the store, %.3f after it came back", alone, after)
			}
			// Both at once, at the seams: the last granted units and the shares.
			checkBurst(t, led, start, time.Now(), limit, 4, bound(limit)+4+0.8*200*0.25)
		})
	}
}

// TestModes: without a store Closed lets nothing go and Open all; with Options.Members the share is known from the
// start.
func TestModes(t *testing.T) {
	for _, c := range []struct {
		o        Options
		from, to int
	}{
		{Options{Mode: Closed}, 0, 0},
		{Options{Mode: Open}, 10000, 1 << 30},
		{Options{}, 85, 105},            // a tenth of 100/s
		{Options{Members: 4}, 170, 205}, // 0.8 · 100/4
	} {
		bubble(t, func(t *testing.T) {
			led := new(ledger)
			p := newProcess(0, new(Memory), led, 100, 10, c.o)
			p.link.hang = time.Now().Add(time.Minute)
			p.work(1, func() int { time.Sleep(time.Microsecond * 500); return 1 })
			time.Sleep(10 * time.Second)
			n := led.units(-1, time.Time{}, time.Now())
			p.kill()
			if n < c.from || n > c.to {
				t.Errorf("%+v: %d units in 10s, want %d to %d", c.o, n, c.from, c.to)
			}
			time.Sleep(time.Minute)
		})
	}
}

// TestMemberDies: a dead process costs what it held, a fifth of a second of its part, and from then on the others use
// all.
func TestMemberDies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		led, limit, start := new(ledger), rate.Limit(1000), time.Now()
		ps := fleetOf(4, new(Memory), led, limit, 1, Options{})
		time.Sleep(3 * time.Second)
		ps[0].kill()
		dead := time.Now()
		time.Sleep(3 * time.Second)
		killAll(ps[1:])
		first := usedOf(led, dead, dead.Add(time.Second), limit)
		if t.Logf("%.3f in the first second", first); first < 1-0.2/4-0.02 {
			t.Errorf("%.3f of the limit used in the first second after a member died", first)
		}
		for from := dead.Add(validity250); from.Before(dead.Add(2 * time.Second)); from = from.Add(validity250) {
			if used := usedOf(led, from, from.Add(time.Second), limit); used < 0.99 {
				t.Errorf("%.3f of the limit used in the second from %v after it on", used, from.Sub(dead))
			}
		}
		checkBurst(t, led, start, time.Now(), limit, 1, bound(limit))
	})
}

// TestStopped: a process that was stopped for a while sends nothing stale when it goes on.
func TestStopped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		led := new(ledger)
		p := newProcess(0, new(Memory), led, 1000, 50, Options{})
		p.work(4, nil)
		time.Sleep(time.Second)
		p.kill()
		if s := p.lim.Stats(); s.Held == 0 {
			t.Fatal("it holds nothing")
		}
		time.Sleep(5 * time.Second)
		if wait, err := p.lim.Take(context.Background(), 1); err != nil || wait == 0 {
			t.Errorf("Take: %v, %v; the units are stale", wait, err)
		}
		if s := p.lim.Stats(); s.Held != 0 || s.Expired == 0 || s.Granted != s.Used+s.Expired {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Second)
	})
}

// TestValidity: a unit is used between its date and W after it, counted from when the request was sent.
func TestValidity(t *testing.T) {
	const ms = time.Millisecond
	for _, back := range []time.Duration{ms, 80 * ms} { // the answer's way
		for _, c := range []struct {
			at    time.Duration // from when the request was executed
			taken bool
		}{{back, false}, {98*ms + back, false}, {100*ms + back, true}, {315 * ms, true}, {326 * ms, false}} {
			bubble(t, func(t *testing.T) {
				m, led := new(Memory), new(ledger)
				newProcess(1, m, led, 10, 1, Options{}).call(t.Context(), 1) // so the next date is in 100 ms
				p := newProcess(0, m, led, 10, 1, Options{Mode: Closed})
				p.link.trip = func() time.Duration {
					p.link.trip = func() time.Duration { return back }
					return 0
				}
				m.limits["x"].loaned, m.limits["x"].repaid = 1, 1<<62 // nothing is lent
				start := time.Now().Add(-ms)
				p.lim.Take(t.Context(), 1)
				time.Sleep(time.Until(start.Add(c.at)))
				synctest.Wait()
				if wait, _ := p.lim.Take(t.Context(), 1); (wait == 0) != c.taken {
					t.Errorf("answer after %v, %v after the request: wait %v, taken should be %v", back, c.at, wait, c.taken)
				}
			})
		}
	}
}

// TestLimitChanges: a limit that is halved or doubled holds within one validity.
func TestLimitChanges(t *testing.T) {
	for _, to := range []rate.Limit{500, 2000} {
		bubble(t, func(t *testing.T) {
			led := new(ledger)
			ps := fleetOf(4, new(Memory), led, 1000, 1, Options{})
			time.Sleep(3 * time.Second)
			for i, p := range ps { // one after the other, as a deployment does
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				p.lim.SetLimit(to)
			}
			changed := time.Now()
			time.Sleep(3 * time.Second)
			killAll(ps)
			checkBurst(t, led, changed.Add(validity250), time.Now(), to, 1, bound(to))
			if used := usedOf(led, changed.Add(time.Second), changed.Add(3*time.Second), to); used < 0.98 {
				t.Errorf("%.3f of the new limit %v used", used, to)
			}
		})
	}
}

// TestStateLost: a store that forgets everything or whose clock jumps is healed by what the members carry.
func TestStateLost(t *testing.T) {
	for name, fault := range map[string]func(*Memory){
		"flushed": func(m *Memory) { m.limits = nil },
		"back":    func(m *Memory) { m.skew -= 30 * time.Second },
		"forward": func(m *Memory) { m.skew += 30 * time.Second },
		"failover": func(m *Memory) {
			for _, s := range m.limits { // the replica has seen nothing of the last second
				s.next -= second
				s.seen -= second
				s.members = nil
			}
		},
	} {
		bubble(t, func(t *testing.T) {
			m, led, limit, start := new(Memory), new(ledger), rate.Limit(1000), time.Now()
			ps := fleetOf(4, m, led, limit, 100, Options{})
			time.Sleep(3 * time.Second)
			at := time.Now()
			m.mu.Lock()
			fault(m)
			m.mu.Unlock()
			time.Sleep(3 * time.Second)
			killAll(ps)
			checkBurst(t, led, start, time.Now(), limit, 100, bound(limit)+100+0.8*0.25*float64(limit))
			// Nothing is used late here, so what is above the limit comes from the fault: the units that were
			// granted ahead, which the healed schedule may not know, but not another burst.
			if got := led.burst(at, time.Now(), limit); name != "forward" && got > 0.8*0.25*float64(limit)+1 {
				t.Errorf("%s: %.1f + limit·L after the fault", name, got)
			}
			used := usedOf(led, at, at.Add(3*time.Second), limit)
			t.Logf("%s: burst %.1f, used %.3f", name, led.burst(at.Add(-time.Second), time.Now(), limit), used)
			if used < 0.95 {
				t.Errorf("%s: %.3f used", name, used)
			}
		})
	}
}

// TestClose: units in hand go back to the others, and nothing can be taken any more.
func TestClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, led := new(Memory), new(ledger)
		p := newProcess(0, m, led, 100, 1, Options{})
		p.work(2, nil)
		time.Sleep(2 * time.Second)
		p.stop()
		p.wg.Wait()
		held := min(p.lim.Stats().Held, p.lim.account.got)
		before := m.limits["x"].next
		if err := p.lim.Close(); err != nil || held == 0 {
			t.Errorf("Close: %v, with %d units in hand", err, held)
		}
		if got := before - m.limits["x"].next; got != int64(held)*10000 {
			t.Errorf("%d µs of the schedule came back for %d units", got, held)
		}
		if _, err := p.lim.Take(context.Background(), 1); !errors.Is(err, ErrClosed) {
			t.Errorf("Take after Close: %v", err)
		}
		if err := p.q.Wait(context.Background()); !errors.Is(err, ErrClosed) {
			t.Errorf("Wait after Close: %v", err)
		}
		if err := p.lim.Close(); err != nil {
			t.Errorf("a second Close: %v", err)
		}
	})
}

// TestFaults is the property: whatever the network does to requests and answers, and however members come, go
// and want, no window is above the bound, and no call is lost.
func TestFaults(t *testing.T) {
	for seed := range race.Pick(uint64(10), 30) {
		bubble(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			limit, burst := rate.Limit(20+r.IntN(1000)), 1+r.IntN(50)
			limit2, burst2, both := limit*rate.Limit(0.2+r.Float64()), max(1, r.IntN(2*burst)), seed%2 == 0
			m, led, start := new(Memory), new(ledger), time.Now()
			var ps []*process
			cost := 1
			if r.IntN(3) == 0 {
				cost = 1 + r.IntN(min(burst, 8))
			}
			for i := range 2 + r.IntN(8) {
				p := newProcess(i, m, led, limit, burst, Options{Mode: Closed})
				if both { // another limit of each call, which holds too
					p.q = throttle.NewQueue(throttle.All(p.lim, New(p.link, "y", limit2, burst2, Options{Mode: Closed})), throttle.QueueOptions{})
				}
				spread := 1 + r.IntN(30)
				p.link.trip = func() time.Duration {
					d := time.Duration(rand.IntN(spread)) * time.Millisecond
					if rand.IntN(50) == 0 {
						d += time.Duration(rand.IntN(400)) * time.Millisecond // answers overtake each other
					}
					return d
				}
				p.link.lose, p.link.cut, p.link.twice = r.Float64()/20, r.Float64()/20, r.Float64()/5
				p.work(1+r.IntN(4), func() int {
					if rand.IntN(3) == 0 {
						time.Sleep(time.Duration(rand.ExpFloat64() * 1e8)) // neither idle nor saturated
					}
					return 1 + rand.IntN(cost)
				})
				ps = append(ps, p)
			}
			time.Sleep(2 * time.Second)
			ps[0].kill()
			ps[1].link.set(func() { ps[1].link.hang = time.Now().Add(time.Second) })
			time.Sleep(3 * time.Second)
			killAll(ps[1:])
			time.Sleep(time.Minute) // units for calls that wait may be dated 30 s ahead
			checkBurst(t, led, start, time.Now(), limit, burst, bound(limit))
			if both { // a call that costs more than the burst stands in for it
				checkBurst(t, led, start, time.Now(), limit2, max(burst2, cost), bound(limit2))
			}
			for _, p := range ps {
				if s := p.lim.Stats(); s.Held != 0 || s.Granted != s.Used+s.Expired {
					t.Errorf("seed %d: %+v", seed, s)
				}
			}
		})
	}
}

// TestAll: a local limit before the shared one costs no units of it.
func TestAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		led := new(ledger)
		p := newProcess(0, new(Memory), led, 1000, 1, Options{})
		p.q = throttle.NewQueue(throttle.All(throttle.NewLeaky(50), p.lim), throttle.QueueOptions{})
		start := time.Now()
		p.work(4, nil)
		time.Sleep(5 * time.Second)
		p.kill()
		n := led.units(-1, start, start.Add(5*time.Second))
		if s := p.lim.Stats(); n < 245 || n > 251 || s.Used != uint64(n) {
			t.Errorf("%d calls, want 250; %+v", n, s)
		}
	})
}
