package inbound_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/inbound"
)

// TestAsThrottle: buckets, even spacing and windows answer as the limiters of package throttle do, to the nanosecond,
// debts included.
func TestAsThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(15, 4))
		for range 500 {
			n, per := 1+r.IntN(100), time.Duration(1+r.Int64N(int64(10*time.Second)))
			text := [...]string{fmt.Sprintf("%d/%v burst %d", n, per, 1+r.IntN(20)), fmt.Sprintf("%d/%v even", n, per), fmt.Sprintf("%d/%v window", n, per)}[r.IntN(3)]
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
