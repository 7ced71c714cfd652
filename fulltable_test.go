package throttle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// fullTable is a Transport whose table holds so many keys.
func fullTable(most int, limiter func() Limiter) (*Transport, *upstream) {
	up := newUpstream(0, always(200))
	tr := &Transport{Base: up, LimiterFor: func(string) Limiter { return limiter() }}
	tr.once.Do(tr.setup)
	tr.table.most = most
	return tr, up
}

// Each kind of limit, one call a minute in the long run.
var minutely = []struct {
	name  string
	make  func() Limiter
	burst int           // calls at once
	per   time.Duration // of a window; 0: none
}{
	{"bucket", func() Limiter { return NewBucket(rate.Every(time.Minute), 5) }, 5, 0},
	{"bucket of 1", func() Limiter { return NewBucket(rate.Every(time.Minute), 1) }, 1, 0},
	{"leaky", func() Limiter { return NewLeaky(rate.Every(time.Minute)) }, 1, 0},
	{"fixed window", func() Limiter { return NewFixedWindow(5, 5*time.Minute) }, 5, 5 * time.Minute},
	{"sliding window", func() Limiter { return NewSlidingWindow(5, 5*time.Minute) }, 5, 5 * time.Minute},
	{"all", func() Limiter { return All(NewBucket(1, 2), NewSlidingWindow(5, 5*time.Minute)) }, 2, 5 * time.Minute},
}

// The first call of a key that is made while the table is full goes at once. The next one is paced,
// although the burst is not used.
func TestFirstCallsInAFullTable(t *testing.T) {
	for _, c := range minutely {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr, up := fullTable(4, c.make)
				start := time.Now()
				for i := range 50 {
					status(tr, t.Context(), fmt.Sprintf("http://h%d/", i))
				}
				if d := time.Since(start); d > 0 {
					t.Errorf("the first calls to 50 hosts took %v", d)
				}
				up.sent = nil
				var wg sync.WaitGroup
				for range 3 {
					wg.Go(func() { status(tr, t.Context(), "http://new/") })
				}
				wg.Wait()
				if want := []time.Duration{0, time.Minute, 2 * time.Minute}; !slices.Equal(up.sent, want) {
					t.Errorf("three calls to a new host were sent at %v, want %v", up.sent, want)
				}
			})
		})
	}
}

// The same at the size that users see.
func TestFirstCallToHost65537(t *testing.T) {
	if testing.Short() {
		t.Skip("70,000 hosts take seconds")
	}
	synctest.Test(t, func(t *testing.T) {
		tr, _ := fullTable(maxKeys, func() Limiter { return NewBucket(rate.Every(time.Minute), 1) })
		start := time.Now()
		for i := range 70_000 {
			status(tr, t.Context(), fmt.Sprintf("http://h%d.example.com/", i))
		}
		if d := time.Since(start); d > 0 {
			t.Errorf("the first calls to 70,000 hosts took %v, want no time", d)
		}
	})
}

// A key that is dropped from a full table and made anew, again and again, gets no more than its limit.
func TestRemadeKeysKeepTheirLimit(t *testing.T) {
	for _, c := range minutely {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(3) {
				synctest.Test(t, func(t *testing.T) { remakeKeys(t, seed, c.make, float64(c.burst), c.per) })
			}
		})
	}
}

// remakeKeys has callers, of whom some wait and others give up at once, call 2 to 40 hosts through a
// table of 3, and checks what comes to each host.
func remakeKeys(t *testing.T, seed uint64, limiter func() Limiter, burst float64, per time.Duration) {
	rng := rand.New(rand.NewPCG(seed, 3))
	tr, up := fullTable(3, limiter)
	hosts := 2 + rng.IntN(39)
	sent := map[string][]time.Duration{}
	var mu sync.Mutex
	up.answer = func(_ int, req *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		sent[req.URL.Host] = append(sent[req.URL.Host], up.now())
		return reply(req, 200), nil
	}
	var wg sync.WaitGroup
	for range 1500 {
		host := fmt.Sprint("h", rng.IntN(1+rng.IntN(hosts))) // the first ones are called more often
		patience := time.Nanosecond
		if rng.IntN(4) == 0 {
			patience = time.Duration(rng.IntN(200)) * time.Second
		}
		for range 1 + rng.IntN(8) {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				status(tr, ctx, "http://"+host+"/")
			})
		}
		time.Sleep(time.Duration(rng.ExpFloat64() * float64(3*time.Second)))
	}
	wg.Wait()
	for host, s := range sent {
		if per == 0 {
			checkRate(t, host, s, 1.0/60, burst)
			continue
		}
		checkWindows(t, host, s, per, limiter)
	}
	// The busiest host is asked for more than it may have; it should get most of that.
	if got, most := float64(len(sent["h0"])), up.now().Minutes(); got < 0.6*most {
		t.Errorf("seed %d: %v calls to h0 in %.0f minutes", seed, got, most)
	}
}

// checkWindows: at most 5 calls in any window; a fixed one may be straddled by twice as many.
func checkWindows(t *testing.T, host string, s []time.Duration, per time.Duration, limiter func() Limiter) {
	t.Helper()
	most := 5
	if _, fixed := limiter().(*FixedWindow); fixed {
		most = 10
		start, n := -per, 0 // of the windows, as a FixedWindow counts them
		for _, at := range s {
			if at-start >= per {
				start, n = at, 0
			}
			if n++; n > 5 {
				t.Errorf("%s: %d calls in the window from %v on", host, n, start)
				return
			}
		}
	}
	for i := most; i < len(s); i++ {
		if s[i]-s[i-most] < per {
			t.Errorf("%s: %d calls between %v and %v", host, most+1, s[i-most], s[i])
			return
		}
	}
}

// A limiter that serves several keys remembers what it has given itself: it is not charged once more
// because a key has been dropped.
func TestRemadeKeysOfOneLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := NewBucket(1, 100)
		tr, _ := fullTable(2, func() Limiter { return one })
		for i := range 90 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			if _, err := status(tr, ctx, fmt.Sprintf("http://h%d/", i%9)); err != nil {
				t.Fatalf("call %d: %v", i, err)
			}
			cancel()
		}
		if got := one.Tokens(); got < 9.9 {
			t.Errorf("%v units are left after 90 calls of 100 units", got)
		}
	})
}
