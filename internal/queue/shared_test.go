package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/race"
)

// A crowd sends calls one after the other, so that their order of arrival is known, and notes how they went.
type crowd struct {
	*client
	t     *testing.T
	start time.Time
	hold  map[string]time.Duration // how long a call takes; 0: no time
	wg    sync.WaitGroup

	mu   sync.Mutex
	gone []string // names in the order of sending
	when []time.Duration
}

func newCrowd(t *testing.T, o Options, shared *limit.Set) *crowd {
	c := &crowd{t: t, start: time.Now(), hold: map[string]time.Duration{}}
	config := testConfig(o)
	config.Shared = shared
	c.client = newClient(config, func(_ context.Context, _, name string, _ int) Outcome {
		c.mu.Lock()
		c.gone, c.when = append(c.gone, name), append(c.when, time.Since(c.start))
		c.mu.Unlock()
		time.Sleep(c.hold[name])
		return Success
	})
	return c
}

// send starts a call and returns when it waits or has gone.
func (c *crowd) send(ctx context.Context, key, name string, cost int, prio int32) {
	c.wg.Go(func() {
		if _, err := c.call(ctx, key, name, &Want{Cost: cost, Priority: prio}, false); err != nil && !errors.Is(err, context.Canceled) {
			c.t.Error(key, name, err)
		}
	})
	synctest.Wait()
}

// one sends a call of one unit and the priority 0.
func (c *crowd) one(key, name string) { c.send(c.t.Context(), key, name, 1, 0) }

// check compares what has gone, and when in ms.
func (c *crowd) check(want ...string) {
	c.t.Helper()
	c.wg.Wait()
	got := make([]string, len(c.gone))
	for i, name := range c.gone {
		got[i] = fmt.Sprint(name, " ", c.when[i].Milliseconds())
		if i > 0 && c.when[i] == c.when[i-1] && got[i] < got[i-1] { // at one moment: in either order
			got[i], got[i-1] = got[i-1], got[i]
		}
	}
	if !slices.Equal(got, want) {
		c.t.Errorf("went %q\nwant %q", got, want)
	}
	sharedIsEmpty(c.t, c.table)
}

// sharedIsEmpty fails if something of a shared line, or of a queue, is left behind though nobody waits.
func sharedIsEmpty(t *testing.T, table *Table) {
	t.Helper()
	for _, q := range table.All() {
		conserved(t, q)
	}
	locked(&table.common, func() {
		if p := table.common.all; !p.idle() || p.lines != 0 || p.inFlight != 0 || p.dead != 0 || p.stop != nil || len(table.common.payers) != 0 {
			t.Errorf("left behind: %+v", p)
		}
	})
}

// Calls of several keys go to the shared limiter in the order of priority and arrival, as if they stood
// in one line, but for those that something of their own key holds back.
func TestSharedLineOrder(t *testing.T) {
	for name, test := range map[string]func(ctx context.Context, c *crowd){
		"arrival": func(_ context.Context, c *crowd) {
			for i, key := range []string{"a", "b", "a", "c", "b", "a"} {
				c.one(key, fmt.Sprint(i))
			}
			c.check("0 0", "1 100", "2 200", "3 300", "4 400", "5 500")
		},
		"priority": func(ctx context.Context, c *crowd) {
			for i, prio := range []int32{0, 0, 1, -1, 2, 1, 0} {
				c.send(ctx, string("aabcbca"[i]), fmt.Sprint(i), 1, prio)
			}
			c.check("0 0", "4 100", "2 200", "5 300", "1 400", "6 500", "3 600")
		},
		"the head leaves": func(ctx context.Context, c *crowd) {
			soon, cancel := context.WithCancel(ctx)
			c.one("a", "0")
			c.send(soon, "a", "leaves", 1, 1)
			c.send(ctx, "a", "last", 1, -1)
			c.one("b", "b")
			time.Sleep(50 * ms)
			cancel()
			c.check("0 0", "b 100", "last 200")
		},
		"one of a higher priority comes and goes": func(ctx context.Context, c *crowd) {
			c.one("a", "0")
			c.one("a", "a")
			soon, cancel := context.WithCancel(ctx)
			c.send(soon, "b", "leaves", 1, 1)
			time.Sleep(50 * ms)
			cancel()
			c.check("0 0", "a 100")
		},
		"a gate closes": func(_ context.Context, c *crowd) {
			c.one("a", "0")
			c.one("a", "a1")
			c.one("b", "b1")
			c.one("a", "a2")
			c.one("b", "b2")
			time.Sleep(50 * ms)
			c.table.Get("a").Pause(10 * time.Second)
			c.check("0 0", "b1 100", "b2 200", "a1 10050", "a2 10150")
		},
		"a gate reopens": func(_ context.Context, c *crowd) {
			c.one("a", "0")
			c.table.Get("a").Pause(10 * time.Second)
			c.one("a", "a1")
			for i := range 5 {
				c.one("b", fmt.Sprint("b", i))
			}
			time.Sleep(250 * ms)
			c.table.Get("a").Resume() // a1 came first, so it goes next
			c.check("0 0", "b0 100", "b1 200", "a1 300", "b2 400", "b3 500", "b4 600")
		},
		"an own limiter is slower": func(_ context.Context, c *crowd) {
			c.own = func(key string) *limit.Set {
				if key == "slow" {
					return setOf(bucket(1/0.95, 1)) // s1 enters the shared line at 950 ms
				}
				return setOf()
			}
			c.one("slow", "s0")
			c.one("slow", "s1")
			for i := range 12 {
				c.one("b", fmt.Sprint(i))
			}
			c.check("s0 0", "0 100", "1 200", "2 300", "3 400", "4 500", "5 600", "6 700", "7 800", "8 900", "s1 1000", "9 1100", "10 1200", "11 1300")
		},
		"cost": func(ctx context.Context, c *crowd) {
			c.one("a", "0")
			c.send(ctx, "b", "dear", 3, 0) // leaves a debt of 2
			c.one("a", "1")
			c.send(ctx, "c", "free", 0, 0)
			c.check("0 0", "dear 100", "1 400", "free 400")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test(t.Context(), newCrowd(t, Options{}, setOf(bucket(10, 1))))
			})
		})
	}
	t.Run("slots", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, Options{MaxInFlight: 1}, setOf(bucket(10, 1)))
			c.hold["0"] = 350 * ms
			c.one("a", "0")
			c.one("a", "a1")
			c.one("b", "b1")
			c.one("b", "b2")
			c.check("0 0", "b1 100", "b2 200", "a1 350")
		})
	})
}

// Units that a call of one key was granted and cannot use go to another key's head at once.
func TestUnitsGivenBackReachOtherKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := setOf(bucket(0.1, 1))
		c := newCrowd(t, Options{}, shared)
		c.one("a", "0")
		ctx, cancel := context.WithCancel(t.Context())
		c.send(ctx, "a", "leaves", 1, 0)
		c.one("b", "b")
		time.Sleep(9 * time.Second)
		a := c.table.Get("a")
		locked(&c.table.common, func() { // the grant and the end of its ctx meet
			cancel()
			shared.GiveBack(time.Now(), time.Now(), 1) // tells nobody
			a.advanceLocked(time.Now())
		})
		c.check("0 0", "b 9000")
	})
}

// Under random traffic of several keys with leaving, throttling, failures and closings, the shared limiter
// is never idle while somebody could go: each start comes as soon as the limiters and the gates allow.
// In the end nothing is left of those who waited.
func TestSharedLimiterIsNeverIdle(t *testing.T) {
	for seed := range race.Pick(uint64(8), 25) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex
			roll := func(n int) int { mu.Lock(); defer mu.Unlock(); return r.IntN(n) }
			b := bucket(100, 1)
			config := testConfig(Options{MaxInFlight: roll(2) * 2})
			config.Shared = setOf(b)
			c := newClient(config, func(context.Context, string, string, int) Outcome {
				time.Sleep(time.Duration(roll(30)) * ms)
				switch roll(20) {
				case 0, 1:
					return Throttled
				case 2:
					return Failure
				}
				return Success
			})
			c.after, c.attempts, c.backOff = time.Duration(seed%2)*time.Second, 4, 50*ms
			c.own = func(key string) *limit.Set {
				if key == "h0" {
					return setOf()
				}
				return setOf(bucket(40, 3))
			}
			done := make(chan struct{})
			go func() { // in every quiet moment: could somebody go who does not?
				for {
					select {
					case <-done:
						return
					case <-time.After(3777 * time.Microsecond):
					}
					synctest.Wait()
					idle(t, seed, c.table, b)
				}
			}()
			var wg sync.WaitGroup
			for range 300 {
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if roll(3) == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(roll(3000))*ms)
				} else if roll(3) == 0 {
					ctx, cancel = context.WithCancel(ctx)
					time.AfterFunc(time.Duration(roll(2000))*ms, cancel)
				}
				key := fmt.Sprint("h", roll(4))
				flow := []string{"", "", "a" + key, "b" + key}[roll(4)]
				resend := roll(2) == 0
				want := &Want{Cost: 1 + roll(8)/7, Priority: int32(roll(3)), Flow: flow}
				wg.Go(func() {
					defer cancel()
					c.call(ctx, key, "/", want, resend)
				})
				if roll(3) == 0 {
					time.Sleep(time.Duration(roll(25)) * ms)
				}
			}
			wg.Wait()
			close(done)
			sharedIsEmpty(t, c.table)
		})
		if t.Failed() {
			return
		}
	}
}

// idle reports a head whose own slot, gate and limiter would let it go while the shared limiter has a unit.
func idle(t *testing.T, seed uint64, table *Table, shared *limit.Bucket) {
	locked(&table.common, func() {
		now := time.Now()
		free := shared.Tokens()
		for _, e := range table.order {
			q := &e.queue
			if q.line == nil {
				continue
			}
			w := q.headLocked(now)
			if w == nil || float64(min(w.Cost, 1)) > free+1e-9 {
				continue
			}
			if _, d := q.readyLocked(w, now, now); d.verdict != grant {
				continue
			}
			if m, err := q.own.Ready(now, int(w.Cost)); err != nil || m.After(now) {
				continue
			}
			t.Errorf("seed %d, %v: %s waits although everything would let it go", seed, now.Sub(table.common.base), q.key)
		}
	})
}
