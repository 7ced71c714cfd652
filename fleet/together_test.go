package fleet

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet/store"
	"github.com/go-throttle/throttle/internal/race"
)

// both starts processes whose calls pay two limits, or the first alone.
func both(n int, m *Memory, led *ledger, a, b rate.Limit, two bool) (ps []*process, others []*Limiter) {
	for i := range n {
		p := newProcess(i, m, led, a, 1, Options{})
		if two {
			other := New(p.link, "y", b, 1, Options{})
			p.q, others = throttle.NewQueue(throttle.All(p.lim, other), throttle.QueueOptions{}), append(others, other)
		}
		p.work(4, nil)
		ps = append(ps, p)
	}
	return ps, others
}

// TestTogether: several limits of a call take hardly more requests than one, all of the slower one is used, in equal
// parts, and both bounds hold.
func TestTogether(t *testing.T) {
	for _, c := range []struct {
		members int
		a, b    rate.Limit
	}{{1, 50, 50}, {4, 50, 50}, {8, 50, 60}, {8, 60, 50}, {16, 20, 20}, {4, 1000, 1000}, {8, 1000, 900}, {16, 200, 200}} {
		if race.Pick(c.members == 4 || c.a == 20 || c.a == 200, false) {
			continue
		}
		var perCall [2]float64
		for i, two := range []bool{false, true} {
			bubble(t, func(t *testing.T) {
				m, led, start, slow := new(Memory), new(ledger), time.Now(), c.a
				ps, _ := both(c.members, m, led, c.a, c.b, two)
				if two {
					slow = min(c.a, c.b)
				}
				time.Sleep(10 * time.Second)
				killAll(ps)
				from, to := start.Add(time.Second), start.Add(10*time.Second)
				used, jain := usedOf(led, from, to, slow), led.jain(c.members, from, to)
				perCall[i] = float64(trips(ps)) / float64(len(led.log))
				t.Logf("%+v, two %v: used %.4f, jain %.4f, trips %.3f a call", c, two, used, jain, perCall[i])
				if used < 0.98 || jain < 0.95 {
					t.Errorf("%+v, two %v: used %.4f, jain %.4f", c, two, used, jain)
				}
				checkBurst(t, led, start, to, c.a, 1, bound(c.a))
				if two {
					checkBurst(t, led, start, to, c.b, 1, bound(c.b))
				}
			})
		}
		if perCall[1] > 1.3*perCall[0]+0.02 {
			t.Errorf("%+v: %.3f trips a call, and %.3f with one limit", c, perCall[1], perCall[0])
		}
	}
}

// TestTogetherWithSlow: a slow limit costs a fast one nothing, be it shared or local: units of the fast one are not sent
// for before they can be used.
func TestTogetherWithSlow(t *testing.T) {
	for name, slow := range map[string]func(*process) throttle.Limiter{
		"shared": func(p *process) throttle.Limiter { return New(p.link, "y", 0.5, 5, Options{}) },
		"local":  func(*process) throttle.Limiter { return throttle.NewBucket(0.125, 2) },
		"both": func(p *process) throttle.Limiter {
			return throttle.All(throttle.NewBucket(0.125, 2), New(p.link, "y", 0.5, 5, Options{}))
		},
	} {
		bubble(t, func(t *testing.T) {
			m, led, start := new(Memory), new(ledger), time.Now()
			var ps []*process
			for i := range 4 {
				p := newProcess(i, m, led, 10, 10, Options{})
				p.q = throttle.NewQueue(throttle.All(p.lim, slow(p)), throttle.QueueOptions{})
				p.work(2, nil)
				ps = append(ps, p)
			}
			time.Sleep(100 * time.Second)
			killAll(ps)
			n, expired := led.units(-1, start, start.Add(100*time.Second)), uint64(0)
			for _, p := range ps {
				expired += p.lim.Stats().Expired
			}
			perCall := float64(trips(ps)) / float64(n)
			t.Logf("%s: %d calls, %d units of the fast one expired, %.2f trips a call", name, n, expired, perCall)
			if n < 53 || n > 60 || expired > 8 || perCall > 3 {
				t.Errorf("%s: %d calls, want about 55; %d units of the fast one expired; %.2f trips a call", name, n, expired, perCall)
			}
		})
	}
}

// TestTogetherLaw: what would expire before the other limit has its unit is not granted, and no unit is used up by it.
func TestTogetherLaw(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, names, seq := new(Memory), []string{"fast", "slow"}, uint64(0)
		get := func(slow, need int) (runs [2][]store.Run) {
			seq++
			rs := []store.Request{ask("a", seq, 10, 1, need, 0), ask("a", seq, rate.Limit(slow), 1, 1, 0)}
			for range 2 { // the second time it is repeated
				replies, err := m.ExchangeAll(t.Context(), names, rs)
				if err != nil || len(replies) != 2 {
					t.Fatal(replies, err)
				}
				runs = [2][]store.Run{replies[0].Runs, replies[1].Runs}
			}
			return runs
		}
		const ms = time.Millisecond
		for i, want := range [][2][]store.Run{
			{{units(0, 0, 1)}, {units(0, 0, 1)}},
			{nil, {units(1000*ms, 0, 1)}}, // the fast one, of 100 ms, would expire
			{nil, {units(2000*ms, 0, 1)}},
		} {
			if got := get(1, 1); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("step %d: %v, want %v", i, got, want)
			}
		}
		time.Sleep(2150 * ms) // the slow one has nothing on loan: it had a unit of 2 s
		if got, want := get(1, 0), [2][]store.Run{nil, {units(850*ms, 0, 1)}}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("when the fast one is not needed: %v, want %v", got, want)
		}
		if _, err := m.ExchangeAll(t.Context(), names, []store.Request{ask("a", 9, 10, 1, 1, 0), ask("a", 9, 0, 1, 1, 0)}); err == nil {
			t.Error("a limit of 0 is no error")
		}
	})
}

// TestTogetherOneFails: if one of several limits cannot be served, the others are asked for by themselves.
func TestTogetherOneFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store, led := &picky{&link{m: new(Memory)}, "bad"}, new(ledger)
		good, bad := New(store, "good", 50, 1, Options{}), New(store, "bad", 100, 1, Options{Members: 1})
		p := &process{lim: good, link: store.link, led: led}
		p.q = throttle.NewQueue(throttle.All(good, bad), throttle.QueueOptions{})
		start := time.Now()
		p.work(2, nil)
		time.Sleep(10 * time.Second)
		p.kill()
		if n := led.units(-1, start, start.Add(10*time.Second)); n < 490 || n > 501 {
			t.Errorf("%d calls in 10s of 50/s", n)
		}
		if g, b := good.Stats(), bad.Stats(); g.Mode != "shared" || g.Failed > 0 || b.Mode != "alone" || b.Err == nil {
			t.Errorf("good: %+v\nbad: %+v", g, b)
		}
	})
}

func (p *picky) ExchangeAll(ctx context.Context, names []string, rs []store.Request) ([]store.Reply, error) {
	for i, name := range names {
		if _, err := p.Exchange(ctx, name, rs[i]); err != nil {
			return nil, err
		}
	}
	return nil, store.ErrLimit
}
