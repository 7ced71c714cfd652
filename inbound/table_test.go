package inbound_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/inbound"
	"github.com/go-throttle/throttle/internal/race"
)

var floodKeys = flag.Int("flood", race.Pick(30_000, 1_000_000), "keys of TestFlood")

// heap is the memory in use, in bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestFlood: keys that nobody has seen before come by the million. Memory stays where it was, an established client is
// served its whole quota meanwhile, and beyond the slots nobody gets in but by the one shared limit.
func TestFlood(t *testing.T) {
	keys := *floodKeys
	for _, c := range []struct {
		slot   int64 // bytes
		most   int   // for one key
		limits []string
	}{
		{64, 100, []string{"100/24h window"}},
		{64, 100, []string{"100/1m burst 100", "5000/24h window", "100000/24h sliding"}},
		{64, 6, []string{"6/24h sliding"}},                                // 16 bytes, and 8 for each unit
		{16 + 16 + 8*20, 20, []string{"5000/24h window, 20/24h sliding"}}, // 20 units are the most
		{64, 21, []string{"5000/24h window", "21/24h sliding"}},           // from there on a counter
	} {
		limits := c.limits
		synctest.Test(t, func(t *testing.T) {
			const slots = 1 << 14
			before := heap()
			k := inbound.NewKeyed[uint64](slots, limits...)
			own := uint64(1) << 63
			for range 2 {
				if !k.Allow(own, 1) {
					t.Fatal("the established client was refused at once")
				}
			}
			admitted := 0
			for i := range uint64(keys) {
				if k.Allow(i, 1) {
					admitted++
				}
				if i%uint64((keys-1)/(c.most-2)) == 0 && i > 0 {
					if !k.Allow(own, 1) {
						t.Fatalf("%v: the established client was refused after %d other keys: %d left", limits, i, k.Tokens(own))
					}
				}
			}
			if k.Allow(own, 1) {
				t.Errorf("%v: the established client got more than its %d", limits, c.most)
			}
			s := k.Stats()
			// one key's limit for the newcomers; a slot in 50 may not be found with three limits
			if admitted > slots-1+c.most || admitted < slots*9/10 || s.Keys > slots {
				t.Errorf("%v: %d of %d keys were let in, want at most %d and not much less; %+v", limits, admitted, keys, slots-1+c.most, s)
			}
			if grown := heap() - before; grown > slots*c.slot+c.slot<<14 {
				t.Errorf("%v: %d bytes for %d keys, want at most %d each and 16,384 times that beside", limits, grown, slots, c.slot)
			}
			runtime.KeepAlive(k)
			t.Logf("%v: %d keys, %d let in, %d of them by the shared limit: %+v", limits, keys, admitted, s.Newcomers, s)
		})
	}
}

// TestSlots: as many keys as MaxKeys have units of their own, however few that are, and one more does not.
func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{1, 2, 7, 8, 100, 1000, 4096, 20_000} {
			k := inbound.NewKeyed[int](n, "1/24h window", "1/24h sliding", "20/24h sliding")
			in := 0
			for i := range 2 * n {
				if k.Allow(i, 1) {
					in++
				}
			}
			if in != n+1 {
				t.Errorf("%d keys of %d were let in, want those with a slot and one more", in, n)
			}
		}
	})
}

// TestAnIdleKeyGivesWay: a newcomer gets the slot of a key whose units are all back, but not of one that came twice.
func TestAnIdleKeyGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := inbound.NewKeyed[string](2, "10/s burst 10")
		for range 3 {
			k.Allow("regular", 1)
		}
		k.Allow("once", 1)
		time.Sleep(time.Second)
		for i := range 1000 {
			if !k.Allow(strconv.Itoa(i), 1) {
				t.Fatalf("newcomer %d was refused", i)
			}
			time.Sleep(100 * time.Millisecond)
			if i%300 == 299 { // each half a minute
				if left := k.Tokens("regular"); left != 10 {
					t.Fatalf("%d left for a regular key, want 10", left)
				}
				k.Allow("regular", 10)
			}
		}
		if s := k.Stats(); s.Newcomers != 0 || s.Keys != 2 {
			t.Errorf("%+v; want no newcomer without a slot", s)
		}
	})
}

// TestARegularKeyKeepsItsSlot while all its units are back and newcomers look for one.
func TestARegularKeyKeepsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := inbound.NewKeyed[string](2, "10/1m burst 10")
		for round := range 20 {
			for range 5 {
				if !k.Allow("regular", 1) {
					t.Fatalf("round %d: refused, %+v", round, k.Stats())
				}
			}
			for i := range 460 { // for a minute; its units are back after half of it
				k.Allow(itoa(round)+"-"+itoa(i), 1)
				time.Sleep(130 * time.Millisecond)
			}
		}
	})
}

// TestLongWindowsDoNotLock: after a flood of keys that came once, newcomers get slots again after a minute of silence,
// though the units of a day are not back. What was used stays used, so it makes no units.
func TestLongWindowsDoNotLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, most = 64, 10
		k := inbound.NewKeyed[int](slots, fmt.Sprintf("%d/24h window", most))
		total := 0
		drain := func(key int) (n int) {
			for k.Allow(key, 1) {
				n++
			}
			total += n
			return n
		}
		for i := range slots {
			if !k.Allow(i, 1) {
				t.Fatal("refused in an empty table")
			}
			total++
		}
		if n := drain(1000); n != most {
			t.Errorf("the newcomers together got %d, want %d", n, most)
		}
		if n := drain(1001); n != 0 {
			t.Errorf("another newcomer got %d, want none", n)
		}
		time.Sleep(2 * time.Minute)
		if n := drain(1002); n != most-1 {
			t.Errorf("a newcomer after two minutes got %d, want the %d that its slot has left", n, most-1)
		}
		for i := range 100_000 {
			drain(2000 + i)
			if i%100 == 0 {
				time.Sleep(10 * time.Second)
			}
		}
		if want := (slots + 1) * most; total > want {
			t.Errorf("%d units were used in less than a day, want at most %d", total, want)
		}
	})
}

// TestKeyedVerbs: booking, giving back, forgetting, costs that are too high or make no sense.
func TestKeyedVerbs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := inbound.NewKeyed[[2]int](0, "1/s burst 5")
		key := [2]int{1, 2}
		r := k.Reserve(key, 5)
		if !r.OK() || r.Delay() != 0 || k.Tokens(key) != 0 {
			t.Errorf("5 of 5: %v, %v, %d left", r.OK(), r.Delay(), k.Tokens(key))
		}
		later := k.Reserve(key, 3)
		if later.Delay() != 3*time.Second {
			t.Errorf("3 more: %v, want 3s", later.Delay())
		}
		if wait := k.Take(key, 1); wait != 4*time.Second {
			t.Errorf("one behind those: %v, want 4s", wait)
		}
		time.Sleep(time.Second)
		if later.Delay() != 2*time.Second {
			t.Errorf("a second later: %v, want 2s", later.Delay())
		}
		later.Cancel()
		later.Cancel()
		if k.Tokens(key) != 1 {
			t.Errorf("%d left after Cancel, want 1", k.Tokens(key))
		}
		if never := k.Reserve(key, 1<<30); never.OK() || never.Delay() >= 0 || k.Take(key, 1<<30) >= 0 {
			t.Error("a cost that can never be paid was booked")
		}
		if k.Allow(key, -5); k.Tokens(key) != 0 {
			t.Errorf("%d left after a negative cost, want 0", k.Tokens(key))
		}
		k.Forget(key)
		if k.Tokens(key) != 5 || k.Stats().Keys != 0 {
			t.Errorf("%d left after Forget, %+v", k.Tokens(key), k.Stats())
		}
		if !k.Allow(key, 0) || !k.Allow(key, 12) || k.Allow(key, 1) {
			t.Error("a cost above the burst goes when all is there, and leaves a debt")
		}
	})
}

// TestCancelledLate: units that have come back by themselves are not given back again, and those of a debt are until their
// time has come.
func TestCancelledLate(t *testing.T) {
	for _, c := range []struct {
		limit string
		after time.Duration // from the reservation of all to its end
		most  int           // that somebody gets then
	}{
		{"1/s burst 5", 0, 5},
		{"1/s burst 5", 2 * time.Second, 5}, // 2 have come back, 3 are given
		{"1/s burst 5", time.Minute, 5},
		{"5/5s window", 4 * time.Second, 5},
		{"5/5s window", time.Minute, 5},
		{"5/5s sliding", 0, 5},
		{"5/5s sliding", 4 * time.Second, 5},
		{"50/5s sliding", 4 * time.Second, 50},
		{"5/5s sliding", time.Minute, 5},
	} {
		synctest.Test(t, func(t *testing.T) {
			k := inbound.NewKeyed[string](0, c.limit)
			r := k.Reserve("a", c.most)
			time.Sleep(c.after)
			n := 0
			for _, end := range []func(){r.Cancel, func() {}} {
				for k.Allow("a", 1) {
					n++
				}
				end()
			}
			for k.Allow("a", 1) {
				n++
			}
			if n != c.most {
				t.Errorf("%s: %d units at once, %v after a reservation that was cancelled then; want %d", c.limit, n, c.after, c.most)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		k := inbound.NewKeyed[string](0, "1/s burst 5")
		k.Take("a", 5)
		r := k.Reserve("a", 5)
		time.Sleep(5 * time.Second)
		if r.Cancel(); k.Tokens("a") != 5 {
			t.Errorf("%d units when a debt of 5 is cancelled after 5 s, want 5", k.Tokens("a"))
		}
	})
}

func TestCleanup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := inbound.NewKeyed[int](0, "1/m burst 2")
		for i := range 100 {
			k.Allow(i, 1)
		}
		time.Sleep(61 * time.Second)
		for i := range 10 {
			k.Allow(i, 1)
		}
		if n := k.Cleanup(30 * time.Second); n != 90 || k.Stats().Keys != 10 {
			t.Errorf("%d were dropped, %d are left; want 90 and 10", n, k.Stats().Keys)
		}
		if n := k.Cleanup(0); n != 0 {
			t.Errorf("%d keys were dropped that have used units", n)
		}
	})
}

// TestManyGoroutines: 50 goroutines make 1,000 calls each, of a few keys; none gets more than its limit.
func TestManyGoroutines(t *testing.T) {
	k := inbound.NewKeyed[int](8, "1000/24h burst 1000")
	var in [4]int
	var mu sync.Mutex
	var all sync.WaitGroup
	for g := range 50 {
		all.Go(func() {
			got := [4]int{}
			r := rand.New(rand.NewPCG(uint64(g), 0))
			for range 1000 {
				if key := r.IntN(4); k.Allow(key, 1) {
					got[key]++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for key, n := range got {
				in[key] += n
			}
		})
	}
	all.Wait()
	for key, n := range in {
		if n < 1000 || n > 1001+int(time.Since(start).Hours()*1000/24) {
			t.Errorf("key %d got %d, want 1000", key, n)
		}
	}
	if s := k.Stats(); s.Admitted+s.Refused != 50_000 || s.Keys != 4 {
		t.Errorf("%+v; want 50000 calls of 4 keys", s)
	}
}

var start = time.Now()
