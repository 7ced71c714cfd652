package limit

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// TestMovingLooksWhileUsed: at most once a second while units are taken, and each second while somebody waits.
func TestMovingLooksWhileUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Moving
		var looks atomic.Int32
		var used float64 // under the lock
		m.Init(10, 1, time.Second, func() {
			looks.Add(1)
			m.Step(func(is rate.Limit, u float64) (rate.Limit, bool) { used = u; return is, true })
		})
		for range 50 { // 5 s, 10/s
			if wait, err := TakeNow(&m, 1); wait != 0 || err != nil {
				t.Fatal(wait, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if looks.Load() != 5 || used < 9 || used > 11 {
			t.Errorf("%d looks in 5 s, %v/s used", looks.Load(), used)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if looks.Load() != 5 {
			t.Errorf("%d looks while nobody takes", looks.Load())
		}
		TakeNow(&m, 100) // a debt of 10 s
		stop := m.Notify(func() {})
		time.Sleep(5500 * time.Millisecond)
		synctest.Wait()
		if looks.Load() < 10 || used != 10 {
			t.Errorf("%d looks after 5.5 s of waiting, %v/s used", looks.Load(), used)
		}
		stop()
		was := looks.Load()
		time.Sleep(time.Hour)
		synctest.Wait()
		if looks.Load() > was+1 {
			t.Errorf("%d looks after the one who waited has left", looks.Load()-was)
		}
	})
}

// TestMovingIsABucket: without a step it answers as a Bucket does, whatever is asked of it.
func TestMovingIsABucket(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 5))
		limit, burst := rate.Limit(1+r.IntN(50)), 1+r.IntN(20)
		var b Bucket
		b.Init("", limit, burst)
		var m Moving
		m.Init(limit, burst, time.Hour, func() {})
		now := time.Unix(0, 0)
		for range 200 {
			now = now.Add(time.Duration(r.IntN(200)) * time.Millisecond)
			n := r.IntN(2 * burst)
			switch r.IntN(5) {
			case 0:
				b.s.Adjust(now, n-burst)
				m.s.Adjust(now, n-burst)
			case 1:
				b.s.GiveBack(now, now, n)
				m.s.GiveBack(now, now, n)
			default:
				at, err := b.s.TakeBy(now, now, n)
				if got, wrong := m.s.TakeBy(now, now, n); !got.Equal(at) || (err == nil) != (wrong == nil) {
					t.Fatalf("seed %d: %v, %v; a Bucket says %v, %v", seed, got, wrong, at, err)
				}
			}
			if got, want := m.s.Available(now), b.s.Available(now); got != want {
				t.Fatalf("seed %d: %v units, a Bucket has %v", seed, got, want)
			}
		}
	}
}
