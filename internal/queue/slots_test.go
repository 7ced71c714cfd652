package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/race"
)

// A crawl asks hosts for pages, 5 in flight in all, one each 2 s of a host; some hosts are down, and show it after a
// while.
type crawl struct {
	live, dead, pages int
	timeout           time.Duration
	deadAt            func(i int) bool // whether the i-th host is down
	deadline          time.Duration    // for the live hosts to be done
}

func (c crawl) run(t *testing.T) {
	config := testConfig(Options{})
	config.MaxInFlight = 5
	var mu sync.Mutex
	begin, last, now, most, done := time.Now(), map[string]time.Time{}, 0, 0, map[string]int{}
	cl := newClient(config, func(_ context.Context, key, _ string, _ int) Outcome {
		mu.Lock()
		if at, ok := last[key]; ok && time.Since(at) < 2*time.Second {
			t.Errorf("%s: two calls within %v", key, time.Since(at))
		}
		last[key] = time.Now()
		now++
		most = max(most, now)
		mu.Unlock()
		defer func() { mu.Lock(); defer mu.Unlock(); now-- }()
		if strings.HasPrefix(key, "dead") {
			time.Sleep(c.timeout)
			return Failure
		}
		time.Sleep(50 * ms)
		mu.Lock()
		defer mu.Unlock()
		done[key]++
		return Success
	})
	cl.attempts, cl.backOff = 4, 500*ms
	cl.own = func(string) *limit.Set { return setOf(bucket(0.5, 1)) }
	var wg, live sync.WaitGroup
	for i := range c.live + c.dead {
		key, of := fmt.Sprint("live", i), &live
		if c.deadAt(i) {
			key, of = fmt.Sprint("dead", i), &wg
		}
		for range c.pages {
			of.Go(func() { cl.call(t.Context(), key, "/", &Want{Cost: 1}, true) })
		}
		synctest.Wait()
	}
	live.Wait()
	took := time.Since(begin)
	if t.Logf("the live hosts took %v", took); took > c.deadline {
		t.Errorf("the live hosts took %v, want at most %v", took, c.deadline)
	}
	wg.Wait()
	if most != 5 || len(done) != c.live {
		t.Errorf("%d in flight at most, want 5; %d hosts served", most, len(done))
	}
	sharedIsEmpty(t, cl.table)
}

// A crawler is polite to each host, and is done with those that live although others are down, in whatever order it meets
// them. No order is known in advance, so at best all slots but the one of the dead are in use until each host has been met,
// and the one that was met last is done 8 s later.
func TestCrawl(t *testing.T) {
	orders := map[string]func(i int) bool{
		"each tenth": func(i int) bool { return i%10 == 0 },
		"first":      func(i int) bool { return i < 20 },
		"last":       func(i int) bool { return i >= 180 },
	}
	for seed := range race.Pick(uint64(1), 3) {
		places := rand.New(rand.NewPCG(seed, 8)).Perm(200)
		orders[fmt.Sprint("random ", seed)] = func(i int) bool { return places[i] < 20 }
	}
	for _, timeout := range race.Pick([]time.Duration{3 * time.Second}, []time.Duration{3 * time.Second, 5 * time.Second}) {
		ideal := (20*timeout+180*50*ms)/4 + 8*time.Second
		for order, deadAt := range orders {
			c := crawl{180, 20, 5, timeout, deadAt, ideal + 3*time.Second}
			t.Run(fmt.Sprint(timeout, " ", order), func(t *testing.T) { synctest.Test(t, c.run) })
		}
	}
	c := crawl{200, 0, 5, 0, func(int) bool { return false }, 10 * time.Second}
	t.Run("all live", func(t *testing.T) { synctest.Test(t, c.run) })
}

// Slots of all keys are shared by flow, and an error that waits for one says so.
func TestSlotsOfAllKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := testConfig(Options{})
		config.MaxInFlight = 2
		var mu sync.Mutex
		var order []string
		cl := newClient(config, func(_ context.Context, key, _ string, _ int) Outcome {
			mu.Lock()
			order = append(order, key)
			mu.Unlock()
			time.Sleep(time.Second)
			return Success
		})
		var wg sync.WaitGroup
		for _, key := range strings.Split("aaaaaabcb", "") {
			wg.Go(func() { cl.call(t.Context(), key, "/", &Want{Cost: 1}, false) })
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*ms)
		defer cancel()
		_, err := cl.call(ctx, "d", "/", &Want{Cost: 1}, false)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "2 of 2 calls in flight (bodies not closed?)") {
			t.Error(err)
		}
		wg.Wait()
		for i := 1; i < len(order); i += 2 { // two go at a time, in either order
			slices.Sort(order[i-1 : i+1])
		}
		if got := strings.Join(order, ""); got != "aaabacaba" {
			t.Errorf("went in the order %s", got)
		}
		sharedIsEmpty(t, cl.table)
	})
}

// Whatever comes and goes, there are never more in flight than slots, over all keys and of each, and nobody waits while
// a slot is free that the call could use.
func TestSlotsAreNeverIdle(t *testing.T) {
	for seed := range race.Pick(uint64(10), 30) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			var mu sync.Mutex
			roll := func(n int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(n) }
			config := testConfig(Options{MaxInFlight: roll(2) * 3})
			config.MaxInFlight = 1 + roll(6)
			var shared *limit.Bucket
			if roll(2) == 0 {
				shared = bucket(100, 1)
				config.Shared = setOf(shared)
			}
			now := 0
			cl := newClient(config, func(context.Context, string, string, int) Outcome {
				mu.Lock()
				if now++; now > config.MaxInFlight {
					t.Errorf("seed %d: %d in flight of %d", seed, now, config.MaxInFlight)
				}
				mu.Unlock()
				time.Sleep(time.Duration(roll(60)) * ms)
				mu.Lock()
				defer mu.Unlock()
				now--
				return []Outcome{Success, Success, Success, Success, Failure, Throttled}[rng.IntN(6)]
			})
			cl.after, cl.attempts, cl.backOff = time.Second, 3, 50*ms
			cl.own = func(string) *limit.Set { return setOf(bucket(20, 2)) }
			var wg sync.WaitGroup
			for range 200 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(10+roll(4000))*ms)
				want := &Want{Cost: 1, Priority: int32(roll(2)), Flow: []string{"", "", "x"}[roll(3)]}
				key := fmt.Sprint("h", roll(5))
				wg.Go(func() {
					defer cancel()
					cl.call(ctx, key, "/", want, true)
				})
				if roll(3) == 0 {
					time.Sleep(time.Duration(roll(40)) * ms)
					synctest.Wait()
					slotsAreUsed(t, seed, cl.table, shared)
				}
			}
			wg.Wait()
			sharedIsEmpty(t, cl.table)
		})
		if t.Failed() {
			return
		}
	}
}

// slotsAreUsed reports a call that could go.
func slotsAreUsed(t *testing.T, seed uint64, table *Table, shared *limit.Bucket) {
	locked(&table.common, func() {
		now := time.Now()
		if shared != nil && shared.Tokens() < 1-1e-9 {
			return
		}
		for _, e := range table.order {
			q := &e.queue
			if q.line == nil {
				continue
			}
			w := q.headLocked(now)
			if q.lacksSlotLocked(w.wants, time.Now()) {
				continue
			}
			if _, d := q.readyLocked(w, now, now); d.verdict != grant {
				continue
			}
			if m, err := q.own.Ready(now, int(w.Cost)); err == nil && !m.After(now) {
				t.Errorf("seed %d, %v: %s waits although everything would let it go", seed, now.Sub(table.common.base), q.key)
			}
		}
	})
}
