package inbound_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/inbound"
	"github.com/go-throttle/throttle/internal/race"
)

// TestAsThrottle: buckets, even spacing, windows and small sliding windows answer as the limiters of package throttle do, to
// the nanosecond, debts included.
func TestAsThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(15, 4))
		for range race.Pick(100, 500) {
			n, per := 1+r.IntN(100), time.Duration(1+r.Int64N(int64(10*time.Second)))
			text := [...]string{
				fmt.Sprintf("%d/%v burst %d", n, per, 1+r.IntN(20)), fmt.Sprintf("%d/%v even", n, per),
				fmt.Sprintf("%d/%v window", n, per), fmt.Sprintf("%d/%v sliding", 1+n%20, per),
			}[r.IntN(4)]
			want, err := throttle.ParseLimit(text)
			if err != nil {
				t.Fatal(err)
			}
			k := inbound.NewKeyed[int](0, text)
			for i := range 200 {
				cost := 1 + r.IntN(3)
				if r.IntN(20) == 0 {
					cost = 1 + r.IntN(2*n)
				}
				wait, err := want.Take(t.Context(), cost)
				if err != nil {
					wait = -1
				}
				if got := k.Take(1, cost); got-wait > 1 || wait-got > 1 {
					t.Fatalf("%s: take %d of %d: wait %v, want %v", text, i, cost, got, wait)
				}
				switch r.IntN(3) {
				case 0:
					time.Sleep(max(wait, 0) + 1) // both have it then, whichever is a nanosecond later
				case 1:
					time.Sleep(time.Duration(r.Int64N(int64(per))))
				}
			}
		}
	})
}

// TestWaitsAreEnough: who waits as long as Take says has the units then, to the nanosecond, and not a microsecond earlier.
func TestWaitsAreEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(36, 2))
		for i := range race.Pick(2000, 100_000) {
			n, per := 1+r.IntN(1+r.IntN([...]int{3, 100, 1_000_000}[i%3])), time.Millisecond+time.Duration(r.Int64N(int64(10*time.Second)))
			text := fmt.Sprintf([...]string{"%d/%v burst 7", "%d/%v even", "%d/%v window", "%d/%v sliding"}[r.IntN(4)], n, per)
			k := inbound.NewKeyed[int](1, text)
			for range 30 {
				cost := 1 + r.IntN(3)
				wait := k.Take(1, cost)
				if wait <= time.Microsecond {
					time.Sleep(wait + time.Duration(r.Int64N(1+int64(per)/int64(n))))
					continue
				}
				time.Sleep(wait - time.Microsecond)
				if k.Take(1, cost) == 0 {
					t.Fatalf("%s: %d units were given a microsecond before %v were over", text, cost, wait)
				}
				time.Sleep(time.Microsecond)
				if more := k.Take(1, cost); more != 0 {
					t.Fatalf("%s: %d units were refused after %v, for %v more", text, cost, wait, more)
				}
			}
		}
	})
}

// TestServedShare: how much of its limit a client gets that never asks for more. Every law serves one that comes evenly, and
// one that comes with all at once, whatever the limit; only the estimate of a sliding window above 20 units does not.
func TestServedShare(t *testing.T) {
	const per = 10 * time.Second
	for _, c := range []struct {
		limits      string // of n units
		even, burst float64
	}{
		{"%d/10s window", 1, 1},
		{"%d/10s burst %[1]d", 1, 1},
		{"%d/10s sliding", 1, 1},
	} {
		for _, n := range race.Pick([]int{1, 2, 3, 19, 20, 21, 50}, []int{1, 2, 3, 4, 5, 10, 19, 20, 21, 50, 1000}) {
			even, burst := c.even, c.burst
			if n > 20 && strings.HasSuffix(c.limits, "sliding") {
				even, burst = 1-1/float64(n), 0.5
			}
			synctest.Test(t, func(t *testing.T) {
				k := inbound.NewKeyed[string](0, fmt.Sprintf(c.limits, n))
				// four clients, each n times in 10 s and a millisecond
				step := (per + time.Millisecond + time.Duration(n)) / time.Duration(n)
				served := 0
				for range 40 * n {
					for _, key := range []string{"a", "b", "c", "d"} {
						served += bit(k.Allow(key, 1))
					}
					time.Sleep(step)
				}
				if got := float64(served) / float64(160*n); got < even-0.005 || got > even+0.03 {
					t.Errorf("%s, %d units, evenly: %.1f %% were served, want %.1f", c.limits, n, 100*got, 100*even)
				}
				time.Sleep(time.Hour) // all is back
				served = 0
				for range 40 {
					for range n {
						served += bit(k.Allow("a", 1))
					}
					time.Sleep(per + time.Millisecond)
				}
				if got := float64(served) / float64(40*n); got < burst-0.005 || got > burst+0.03 {
					t.Errorf("%s, %d units, at once: %.1f %% were served, want %.1f", c.limits, n, 100*got, 100*burst)
				}
			})
		}
	}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestLoggedIsExact: a small sliding limit lets in what a list of all units would: a cost fits if and only if no window would
// hold more than the limit. Beside reservations that wait, some of them cancelled, less may be let in, never more.
func TestLoggedIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(36, 8))
		for round := range race.Pick(300, 5000) {
			n, per := 1+r.IntN(20), time.Millisecond+time.Duration(r.Int64N(int64(10*time.Second)))
			k := inbound.NewKeyed[int](1, fmt.Sprintf("%d/%v sliding", n, per))
			var used []time.Time              // in no order
			var booked []*inbound.Reservation // those that will be cancelled
			for range 100 {
				cost := 1 + r.IntN(1+r.IntN(n))
				switch r.IntN(3) * (round % 2) {
				case 0:
					fits := fitsExactly(used, time.Now(), cost, n, per)
					if got := k.Allow(1, cost); got && !fits || !got && fits && round%2 == 0 {
						t.Fatalf("round %d, %d/%v: %d units were let in: %v, want %v", round, n, per, cost, got, fits)
					} else if got {
						used = append(used, slices.Repeat([]time.Time{time.Now()}, cost)...)
					}
				case 1:
					if b := k.Reserve(1, cost); r.IntN(2) == 0 {
						booked = append(booked, &b)
					} else if at := time.Now().Add(b.Delay()); !fitsExactly(used, at, cost, n, per) {
						t.Fatalf("round %d, %d/%v: %d units were booked where they do not fit", round, n, per, cost)
					} else {
						used = append(used, slices.Repeat([]time.Time{at}, cost)...)
					}
				case 2:
					if len(booked) > 0 {
						i := r.IntN(len(booked))
						booked[i].Cancel()
						booked = slices.Delete(booked, i, i+1)
					}
				}
				time.Sleep(time.Duration(r.Int64N(1+int64(per)*2/int64(n)) * int64(r.IntN(3))))
			}
		}
	})
}

// fitsExactly reports whether cost units may be used at a moment, beside those that were used or booked: each window that
// begins with one of them holds at most n.
func fitsExactly(used []time.Time, at time.Time, cost, n int, per time.Duration) bool {
	for _, first := range append(slices.Clone(used), at) {
		if first.After(at) || at.Sub(first) >= per {
			continue
		}
		in := cost
		for _, u := range used {
			if !u.Before(first) && u.Sub(first) < per {
				in++
			}
		}
		if in > n {
			return false
		}
	}
	return true
}

// TestSlidingWindow: no window of two halves admits more than the estimate allows, evenly used it admits the limit in
// any window, and after two windows of silence all is there.
func TestSlidingWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := inbound.NewKeyed[int](0, "100/10s sliding")
		admitted := 0
		for range 10_000 { // ten times as many as allowed, for 100 s
			if k.Allow(1, 1) {
				admitted++
			}
			time.Sleep(10 * time.Millisecond)
		}
		if admitted < 990 || admitted > 1010 {
			t.Errorf("%d of 1000 were let in under an even flood", admitted)
		}
		time.Sleep(20 * time.Second)
		if left := k.Tokens(1); left != 100 {
			t.Errorf("%d are left after two windows, want 100", left)
		}
	})
}
