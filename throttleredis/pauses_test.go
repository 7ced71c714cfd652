package throttleredis

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/fleet"
	"github.com/go-throttle/throttle/fleet/store"
	"github.com/go-throttle/throttle/hint"
)

// listening is how many clients are subscribed.
func listening(t *testing.T, ss ...*server) (n int64) {
	t.Helper()
	for _, s := range ss {
		n += s.do(t, "PUBSUB", "NUMSUB", channel).([]any)[1].(int64)
	}
	return n
}

// aLine makes calls wait before a limiter that has nothing for a quarter of an hour, and asks for nothing meanwhile.
func aLine(t *testing.T, c Client, names ...string) (lims []*fleet.Limiter, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	s := New(c)
	for _, name := range names {
		lim := fleet.New(s, name, 0.001, 1, fleet.Options{Mode: fleet.Closed})
		q := throttle.NewQueue(lim, throttle.QueueOptions{})
		go func() {
			for q.Wait(ctx) == nil {
			}
		}()
		until(t, "it waits", func() bool { return time.Until(q.Stats().Until) > time.Minute })
		lims = append(lims, lim)
	}
	return lims, cancel
}

// TestPauseByMessage: lines that wait hear of a pause by message, each store by one subscription, which ends with the
// last line; and without it, with a client that cannot subscribe or may not, all goes on.
func TestPauseByMessage(t *testing.T) {
	srv := start(t)
	long := string(make([]byte, 5000)) + "{}\n"
	a, endA := aLine(t, srv.client(t), "x", "y", long)
	b, endB := aLine(t, srv.client(t), "x")
	mute, endC := aLine(t, struct{ Client }{srv.client(t)}, "x")
	until(t, "two are subscribed", func() bool { return listening(t, srv) == 2 })
	pause := func(name string, d time.Duration) *fleet.Limiter {
		lim := New(srv.client(t)).Limiter(name, 0.001, 1)
		lim.Observe(hint.Hint{Throttled: true, RetryAfter: d}, time.Now())
		return lim
	}
	paused := func(l *fleet.Limiter) bool { return l.Stats().Paused > 0 }
	p := pause("x", time.Hour)
	until(t, "both hear it", func() bool { p.Take(t.Context(), 1); return paused(a[0]) && paused(b[0]) })
	if paused(a[1]) || paused(a[2]) {
		t.Error("a pause of x stops others")
	}
	p = pause(long, time.Hour)
	until(t, "it hears it", func() bool { p.Take(t.Context(), 1); return paused(a[2]) })
	if a[0].Stats().Paused > time.Hour || paused(mute[0]) {
		t.Errorf("%+v, %+v", a[0].Stats(), mute[0].Stats())
	}
	endA()
	until(t, "one is subscribed", func() bool { return listening(t, srv) == 1 })
	endB()
	endC()
	until(t, "nobody is subscribed", func() bool { return listening(t, srv) == 0 })
}

// TestPauseInCluster: a message reaches clients of all servers.
func TestPauseInCluster(t *testing.T) {
	ss, client := cluster(t)
	a, _ := aLine(t, client(), "x", "y", "z") // limits of different servers
	until(t, "it is subscribed", func() bool { return listening(t, ss...) == 1 })
	for i, name := range []string{"x", "y", "z"} {
		lim, pause := New(client()).Limiter(name, 0.001, 1), time.Hour
		until(t, "the line hears it", func() bool {
			// A longer one each time: on a slow machine a message is lost while a connection is made again.
			pause += time.Second
			lim.Observe(hint.Hint{Throttled: true, RetryAfter: pause}, time.Now())
			lim.Take(t.Context(), 1)
			return a[i].Stats().Paused > 0
		})
	}
}

// TestPauseForAll: what one of eight processes hears stops all, for as long as it says.
func TestPauseForAll(t *testing.T) {
	srv := start(t)
	m := newMembers(t, 8, 400, 40, fleet.Closed, func() Client { return srv.client(t) })
	m.work(2)
	m.granted(2)
	until(t, "all are subscribed", func() bool { return listening(t, srv) == 8 })
	const pause = time.Second
	heard := time.Now()
	m.lims[3].Observe(hint.Hint{Throttled: true, RetryAfter: pause}, heard)
	until(t, "all have stopped", func() bool {
		for _, l := range m.lims {
			if l.Stats().Paused == 0 && time.Since(heard) < pause {
				return false
			}
		}
		return true
	})
	stopped := time.Now()
	m.granted(1)
	m.stop()
	n := 0
	for _, u := range m.uses {
		if u.at.After(stopped) && u.at.Before(heard.Add(pause)) {
			n++
		}
	}
	t.Logf("all have stopped after %v", stopped.Sub(heard))
	if n > m.workers { // each may write one down late
		t.Errorf("%d units used in the pause", n)
	}
	m.check(400, 0)
}

// TestMayNotPublish: a user without the right to channels has limits all the same, and pauses with the next request.
func TestMayNotPublish(t *testing.T) {
	srv := start(t)
	srv.do(t, "ACL", "SETUSER", "poor", "on", ">secret", "resetchannels", "~throttle:*", "+eval", "+evalsha", "+time", "+hmget", "+hset", "+hdel", "+hgetall", "+pexpire")
	client := func() Client {
		return closing(t, redis.NewClient(&redis.Options{Addr: srv.addr(), Username: "poor", Password: "secret"}))
	}
	a, b := New(client()).Limiter("x", 0.001, 10), New(client()).Limiter("x", 0.001, 10)
	a.Observe(hint.Hint{Throttled: true, RetryAfter: time.Hour}, time.Now())
	until(t, "it is known", func() bool { b.Take(t.Context(), 1); return b.Stats().Paused > 0 })
	if s := a.Stats(); s.Failed > 0 {
		t.Logf("%+v", s) // a slow machine
	}
}

// TestMessages: what is no message of ours is left alone.
func TestMessages(t *testing.T) {
	if p, ok := parsePause("1700000000000000 5000000 a b"); !ok || p != (store.Pause{Name: "a b", Left: 5 * time.Second, Until: 17e14}) {
		t.Errorf("%+v, %v", p, ok)
	}
	for _, text := range []string{"", "x", "1 2", "1 -2 x", "0 2 x", "1 9e9 x", "1 99999999999999999 x", "99999999999999999999 1 x"} {
		if p, ok := parsePause(text); ok {
			t.Errorf("%q: %+v", text, p)
		}
	}
}
