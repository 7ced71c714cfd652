package fleet

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet/store"
	"github.com/go-throttle/throttle/hint"
)

// TestPause: a time not to send that one process hears of stops all of them, by message in one round trip and one way,
// otherwise within W; and they come back within the limit.
func TestPause(t *testing.T) {
	const trip = 2 * time.Millisecond
	for _, deaf := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			led, limit := new(ledger), rate.Limit(400)
			ps := fleetOf(8, new(Memory), led, limit, 40, Options{})
			for _, p := range ps {
				p.link.set(func() { p.link.deaf = deaf })
			}
			time.Sleep(3 * time.Second)
			heard := time.Now()
			for _, i := range []int{3, 4, 3} { // some answers of the same moment say the same
				ps[i].lim.Observe(hint.Hint{Throttled: true, RetryAfter: 5 * time.Second}, heard)
				time.Sleep(time.Millisecond)
			}
			end := heard.Add(5 * time.Second)
			time.Sleep(8 * time.Second)
			killAll(ps)
			if n := led.units(3, heard.Add(1), end); n > 0 {
				t.Errorf("the process that has heard it used %d units", n)
			}
			quiet := 2*trip + trip/2 // a request may be out when it is heard
			if deaf {
				quiet = validity250
			}
			if n := led.units(-1, heard.Add(quiet+1), end); n > 0 {
				t.Errorf("deaf %v: %d units used in the pause", deaf, n)
			}
			if n := led.units(-1, end, end.Add(time.Second)); n < 350 || n > 401 {
				t.Errorf("%d units in the first second after the pause; the limit is %v", n, limit)
			}
			for _, p := range ps {
				p.link.set(func() {
					if p.link.heard != 1 {
						t.Errorf("%d messages for one pause", p.link.heard)
					}
				})
			}
		})
	}
}

// TestListens: the limiters of a store listen together, while one of them has units or a line, and not when all are idle.
func TestListens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		link := &link{m: new(Memory)}
		ways := func() (n int) {
			synctest.Wait()
			link.set(func() { n = link.ways })
			return n
		}
		a, b := New(link, "a", 0.001, 1, Options{}), New(link, "b", 1000, 1, Options{})
		if ways() != 0 {
			t.Error("new limiters listen")
		}
		take := func(l *Limiter) {
			t.Helper()
			l.Take(t.Context(), 1)
			time.Sleep(10 * time.Millisecond)
			if wait, err := l.Take(t.Context(), 1); wait > 0 || err != nil {
				t.Errorf("Take: %v, %v", wait, err)
			}
		}
		take(a)
		take(b)
		if ways() != 1 {
			t.Errorf("%d ways for two limiters in use", ways())
		}
		if time.Sleep(3 * time.Second); ways() != 0 {
			t.Error("they listen when they are idle")
		}

		// A line waits for a quarter of an hour, without a request.
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			q := throttle.NewQueue(a, throttle.QueueOptions{})
			q.Wait(ctx) // a unit on loan
			time.Sleep(3 * time.Second)
			a.Take(ctx, 1) // now the store has said when to ask again, and nobody listens in the end
			time.Sleep(3 * time.Second)
			done <- q.Wait(ctx)
		}()
		time.Sleep(5 * time.Minute)
		trips := a.Stats().Trips
		if ways() != 1 {
			t.Error("they do not listen for a line that waits")
		}
		other := New(link.m, "a", 0.001, 1, Options{})
		other.Observe(hint.Hint{Throttled: true, RetryAfter: time.Hour}, time.Now())
		time.Sleep(10 * time.Millisecond)
		if s := a.Stats(); s.Paused < time.Hour-20*time.Millisecond || s.Paused > time.Hour || s.Trips != trips {
			t.Errorf("after a message: %+v", s)
		}
		if s := b.Stats(); s.Paused > 0 {
			t.Errorf("a message for another limit: %+v", s)
		}
		cancel()
		<-done
		if time.Sleep(3 * time.Second); ways() != 0 {
			t.Error("they listen after the line has ended")
		}
	})
}

// TestMessageLate: what is left of a pause counts from when the message was sent, as far as an answer lets that be known.
func TestMessageLate(t *testing.T) {
	for _, c := range []struct{ late, left time.Duration }{
		{0, 5 * time.Second}, {2 * time.Second, 3 * time.Second}, {6 * time.Second, 0},
	} {
		bubble(t, func(t *testing.T) {
			l := New(&link{m: new(Memory)}, "x", 10, 1, Options{})
			l.Take(t.Context(), 1)
			time.Sleep(10 * time.Millisecond)
			end := time.Now().Add(5 * time.Second)
			p := store.Pause{Name: "x", Left: 5 * time.Second, Until: end.UnixMicro()}
			time.Sleep(c.late)
			l.account.common.hearers.heard(p)
			if c.late > 0 { // it does not listen any more
				l.account.update(func(now time.Time) { l.account.hear(now, &p) })
			}
			// The answer took a millisecond, so the end may be believed that much later.
			if s := l.Stats(); s.Paused < c.left || s.Paused > c.left+time.Millisecond {
				t.Errorf("%v late: paused for %v, want %v", c.late, s.Paused, c.left)
			}
		})
	}
}
