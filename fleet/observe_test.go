package fleet

import (
	"context"
	"testing"
	"time"

	"github.com/go-throttle/throttle/hint"
)

// TestRemaining: advertised units tighten the limit of all and never loosen it.
func TestRemaining(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, led := new(Memory), new(ledger)
		a, b := newProcess(0, m, led, 10, 100, Options{}), newProcess(1, m, led, 10, 100, Options{})
		a.call(context.Background(), 1)
		a.lim.Observe(hint.Hint{Quotas: []hint.Quota{{Unit: "tokens", Remaining: 0}, {Remaining: 5}}}, time.Now())
		a.lim.Observe(hint.Hint{Quotas: []hint.Quota{{Remaining: 5000}}}, time.Now())
		a.call(context.Background(), 1)
		b.work(1, nil)
		start := time.Now()
		time.Sleep(10 * time.Second)
		b.kill()
		if n := led.units(1, start, start.Add(10*time.Second)); n < 100 || n > 106 {
			t.Errorf("%d units in 10s of 10/s with 4 left of the burst", n)
		}
	})
}

// TestScope: a time not to send that is about one quota stops the fleet if all answers have advertised that quota, and
// otherwise it is left to the process that hears it.
func TestScope(t *testing.T) {
	quota := func(name string) hint.Quota { return hint.Quota{Name: name, Limit: 100, Remaining: 50} }
	for name, c := range map[string]struct {
		before func(i int) []hint.Quota
		want   bool
	}{
		"one policy":          {func(int) []hint.Quota { return []hint.Quota{quota("default")} }, true},
		"two on every answer": {func(int) []hint.Quota { return []hint.Quota{quota("day"), quota("default")} }, true},
		"routes differ":       {func(i int) []hint.Quota { return []hint.Quota{quota([]string{"default", "search"}[i%2])} }, false},
		"another name":        {func(int) []hint.Quota { return []hint.Quota{quota("search")} }, false},
		"nothing advertised":  {func(int) []hint.Quota { return nil }, false},
	} {
		bubble(t, func(t *testing.T) {
			m := new(Memory)
			a, b := New(&link{m: m}, "x", 100, 10, Options{}), New(&link{m: m}, "x", 100, 10, Options{})
			stop := hint.Hint{Throttled: true, RetryAfter: 5 * time.Second, Scope: "default", Quotas: []hint.Quota{{Name: "default", Remaining: 0}}}
			a.Observe(stop, time.Now()) // the first answer of all: it is not known yet what its quota is about
			if s := a.Stats(); s.Paused > 0 {
				t.Errorf("%s: stopped by the first answer", name)
			}
			for i := range 20 {
				a.Observe(hint.Hint{Quotas: c.before(i)}, time.Now())
			}
			a.Observe(stop, time.Now())
			if s := a.Stats(); (s.Paused > 0) != c.want {
				t.Errorf("%s: paused for %v", name, s.Paused)
			}
			time.Sleep(10 * time.Millisecond)
			b.Take(t.Context(), 1)
			time.Sleep(10 * time.Millisecond)
			if s := b.Stats(); (s.Paused > 0) != c.want {
				t.Errorf("%s: the other one is paused for %v", name, s.Paused)
			}
			b.Observe(hint.Hint{Throttled: true, RetryAfter: 5 * time.Second}, time.Now()) // no name: all
			if s := b.Stats(); s.Paused == 0 {
				t.Errorf("%s: not paused", name)
			}
		})
	}
}
