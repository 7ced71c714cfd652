package queue

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/race"
)

// A key whose upstream has asked it to wait twice, and whose time is over, is worth less than one whose time is not.
func TestWorthOfAKeyThatWaitsForAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(testConfig(Options{}), func(context.Context, string, string, int) Outcome { return Throttled })
		c.after = 10 * time.Second
		for _, key := range []string{"twice", "twice", "once"} {
			c.get(t.Context(), key)
			time.Sleep(11 * time.Second)
		}
		c.get(t.Context(), "now")
		worth := func(key string) int { return c.table.keys[key].worth(time.Now()) }
		if a, b, c := worth("twice"), worth("once"), worth("now"); a != 1 || b != 3 || c != 2 {
			t.Errorf("asked twice %d, once %d, just now %d; want 1, 3 and 2", a, b, c)
		}
	})
}

// Above the bound the key goes that is worth least, and of equals the least recently used: first those
// that are open and unused, then what is closed for a time that nobody advertised, then what is closed
// for an advertised one; never a key that is busy.
func TestOrderOfEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(testConfig(Options{}), func(ctx context.Context, _, path string, _ int) Outcome {
			switch path {
			case "/429":
				return Throttled
			case "/503":
				return Failure
			case "/busy":
				<-ctx.Done()
				return Cancelled
			}
			return Success
		})
		c.after = 2 * time.Hour
		c.own = func(string) *limit.Set { return setOf(bucket(0.001, 100)) }
		c.table.most = 8
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		want := &Want{Cost: 1}
		go c.call(ctx, "busy", "/busy", want, true)
		synctest.Wait()
		c.call(ctx, "dated1", "/429", want, true)
		time.Sleep(time.Millisecond)
		c.call(ctx, "dated2", "/429", want, true)
		for range 10 {
			for _, key := range []string{"fail1", "fail2"} {
				soon, cancel := context.WithTimeout(ctx, time.Millisecond)
				c.call(soon, key, "/503", want, true)
				cancel()
				time.Sleep(time.Millisecond)
			}
		}
		c.get(ctx, "open1")
		c.get(ctx, "open2")
		time.Sleep(2 * time.Minute)
		c.get(ctx, "used")
		time.Sleep(time.Millisecond)
		c.get(ctx, "open1") // makes open2 the oldest
		time.Sleep(61 * time.Second)
		keys := func() string {
			return strings.Join(c.keys("busy", "dated1", "dated2", "fail1", "fail2", "open1", "open2", "used"), " ")
		}
		if got, want := keys(), "busy dated1 dated2 fail1 fail2 open1 open2 used"; got != want {
			t.Fatalf("%s, want %s", got, want)
		}
		for i, left := range []string{
			"busy dated1 dated2 fail1 fail2 open1 used", // open2 goes
			"busy dated1 dated2 fail1 fail2 open1",      // used
			"busy dated1 dated2 fail1 fail2",            // open1
			"busy dated1 dated2 fail2",                  // fail1
			"busy dated1 dated2",
			"busy dated2",
			"busy",
			"busy",
		} {
			hour, cancel := context.WithTimeout(ctx, time.Hour)
			go c.call(hour, fmt.Sprint("new", i), "/busy", want, true) // stays, and is busy
			synctest.Wait()
			defer cancel()
			if got := keys(); got != left {
				t.Errorf("after %d new keys: %q, want %q", i+1, got, left)
			}
		}
	})
}

// A key that is in use and open goes last of those that are not busy: a flood of hosts that throttle does
// not slow one that works.
func TestKeysInUseStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(testConfig(Options{}), func(_ context.Context, key, _ string, _ int) Outcome {
			if key == "used" {
				return Success
			}
			return Throttled
		})
		c.after = time.Hour
		c.table.most = 8
		for i := range 200 {
			c.get(t.Context(), "used")
			c.get(t.Context(), fmt.Sprint("h", i))
			if c.table.Get("used") == nil {
				t.Fatalf("the key in use was dropped for key %d", i)
			}
			time.Sleep(time.Second)
		}
	})
}

// A new key of a full table opens paced, another one with its burst.
func TestNewKeyOfAFullTableOpensPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(testConfig(Options{}), nil)
		c.own = func(string) *limit.Set { return setOf(bucket(10, 100)) }
		c.table.most = 1
		burst := func(key string) time.Duration {
			start := time.Now()
			var wg sync.WaitGroup
			for range 5 {
				wg.Go(func() { c.get(t.Context(), key) })
			}
			wg.Wait()
			return time.Since(start)
		}
		if got := burst("a"); got != 0 {
			t.Errorf("the first key's burst took %v", got)
		}
		if got := burst("b"); got != 400*time.Millisecond {
			t.Errorf("5 calls of a key made while the table is full took %v, want 400 ms", got)
		}
	})
}

// The rate that an upstream has served counts from the first call of its key, also of one made while the
// table is full.
func TestServedRateCountsFromTheFirstCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c := newClient(testConfig(Options{}), func(context.Context, string, string, int) Outcome {
			if n++; n == 403 {
				return Throttled
			}
			return Success
		})
		c.get(t.Context(), "a")
		c.table.most = 1
		time.Sleep(10 * time.Minute)
		c.get(t.Context(), "a") // or it is idle, and the table not full
		for range 401 {
			c.get(t.Context(), "b")
			time.Sleep(10 * time.Millisecond)
		}
		if _, l, _ := c.table.Get("b").Look(nil); len(l) != 1 || l[0].Rate < 90 || l[0].Rate > 110 {
			t.Errorf("100 calls a second led to %+v", l)
		}
	})
}

// After a rush in which more keys than the bound were busy at once, the table shrinks back.
func TestTableShrinksAfterARush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(testConfig(Options{}), func(context.Context, string, string, int) Outcome {
			time.Sleep(time.Second)
			return Throttled
		})
		c.after = 24 * time.Hour
		c.table.most = 100
		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() { c.get(t.Context(), fmt.Sprint("h", i)) })
		}
		synctest.Wait()
		if n := len(c.table.All()); n != 500 {
			t.Errorf("%d keys while all of 500 are busy", n)
		}
		wg.Wait()
		for i := range 1000 {
			c.get(t.Context(), fmt.Sprint("g", i))
		}
		if n := len(c.table.All()); n > 100 {
			t.Errorf("%d keys, none of them busy, want at most 100", n)
		}
	})
}

// With real goroutines and a table of one key, everything still gets through.
func TestFullTableUnderContention(t *testing.T) {
	c := newClient(testConfig(Options{MaxInFlight: 3}), nil)
	c.own = func(string) *limit.Set { return setOf(bucket(1e6, 100)) }
	c.table.most = 1
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 300 {
				if _, err := c.get(context.Background(), fmt.Sprint("h", (g*i)%50)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// A table whose keys are all busy takes new ones without looking at all of them.
func TestManyBusyKeys(t *testing.T) {
	n := race.Pick(4000, 20_000)
	block := make(chan struct{})
	var flying atomic.Int32
	c := newClient(testConfig(Options{}), func(context.Context, string, string, int) Outcome {
		flying.Add(1)
		<-block
		return Success
	})
	c.table.most = n / 2
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if _, err := c.get(context.Background(), fmt.Sprint("h", i)); err != nil {
				flying.Add(1)
				t.Error(err)
			}
		})
	}
	for int(flying.Load()) < n {
		runtime.Gosched()
	}
	if keys := len(c.table.All()); keys != n {
		t.Errorf("%d keys, want all %d that are busy", keys, n)
	}
	close(block)
	wg.Wait()
}

// Each kind of limit, one call a minute in the long run.
var minutely = []struct {
	name string
	make func() *limit.Set
}{
	{"bucket", func() *limit.Set { return setOf(bucket(rate.Every(time.Minute), 5)) }},
	{"leaky", func() *limit.Set { return setOf(bucket(rate.Every(time.Minute), 1)) }},
	{"fixed window", func() *limit.Set { return setOf(fixedWindow()) }},
	{"sliding window", func() *limit.Set { return setOf(slidingWindow()) }},
	{"all", func() *limit.Set { return setOf(bucket(1, 2), slidingWindow()) }},
}

func fixedWindow() limit.Account {
	w := new(limit.FixedWindow)
	w.Init("test", 5, 5*time.Minute)
	return w
}

func slidingWindow() limit.Account {
	w := new(limit.SlidingWindow)
	w.Init("test", 5, 5*time.Minute)
	return w
}

// The first call of a key that is made while the table is full goes at once. The next one is paced,
// although the burst is not used.
func TestFirstCallsInAFullTable(t *testing.T) {
	for _, k := range minutely {
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent []time.Duration
				start := time.Now()
				c := newClient(testConfig(Options{}), func(context.Context, string, string, int) Outcome {
					sent = append(sent, time.Since(start))
					return Success
				})
				c.own = func(string) *limit.Set { return k.make() }
				c.table.most = 4
				for i := range 50 {
					c.get(t.Context(), fmt.Sprint("h", i))
				}
				if d := time.Since(start); d > 0 {
					t.Errorf("the first calls to 50 keys took %v", d)
				}
				sent = nil
				var wg sync.WaitGroup
				for range 3 {
					wg.Go(func() { c.get(t.Context(), "new") })
				}
				wg.Wait()
				if want := []time.Duration{0, time.Minute, 2 * time.Minute}; !slices.Equal(sent, want) {
					t.Errorf("three calls to a new key were sent at %v, want %v", sent, want)
				}
			})
		})
	}
}

// A limiter that serves several keys remembers what it has given itself: it is not charged once more
// because a key has been dropped.
func TestRemadeKeysOfOneLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := bucket(1, 100)
		c := newClient(testConfig(Options{}), nil)
		c.own = func(string) *limit.Set { return setOf(one) }
		c.table.most = 2
		for i := range 90 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			if _, err := c.get(ctx, fmt.Sprint("h", i%9)); err != nil {
				t.Fatalf("call %d: %v", i, err)
			}
			cancel()
		}
		if got := one.Tokens(); got < 9.9 {
			t.Errorf("%v units are left after 90 calls of 100 units", got)
		}
	})
}
