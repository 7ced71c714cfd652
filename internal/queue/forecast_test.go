package queue

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/race"
)

// A future is a random line: limiters that have been used a little, and calls that wait.
type future struct {
	set     *limit.Set
	slowest float64 // units a second
	text    string
	rng     *rand.Rand
}

// newFuture joins up to three limiters of rates that are not far from each other, so that they hold each other up.
func newFuture(seed uint64) *future {
	f := &future{set: new(limit.Set), rng: rand.New(rand.NewPCG(seed, 3))}
	per := func(r float64, n int) time.Duration { return time.Duration(float64(n) / r * 1e9) }
	base := 5 + 200*f.rng.Float64()
	for range 1 + f.rng.IntN(3) {
		r := base * (0.6 + 0.8*f.rng.Float64())
		n := []int{1, 2, 5, 10, 15, 60, 100, 300, 1000, 5000}[f.rng.IntN(10)]
		var a limit.Account
		switch f.rng.IntN(4) {
		case 0:
			a, n = bucket(rate.Limit(r), 1), 1
		case 1:
			a = bucket(rate.Limit(r), n)
		case 2:
			w := new(limit.FixedWindow)
			w.Init("test", n, per(r, n))
			a = w
		case 3:
			w := new(limit.SlidingWindow)
			w.Init("test", n, per(r, n))
			a = w
		}
		f.set.Join(a)
		f.text += fmt.Sprintf("%T %d at %.1f/s, ", a, n, r)
	}
	f.slowest = float64(f.set.Rate())
	return f
}

// use spends some units at random moments, so that the limiters are not as new.
func (f *future) use() {
	for range f.rng.IntN(20) {
		f.set.Pay(time.Now(), 1+f.rng.IntN(5))
		time.Sleep(time.Duration(f.rng.ExpFloat64() * 1e9 / f.slowest))
	}
}

// run has so many calls wait, and returns what is predicted for n more and how long they take.
func (f *future) run(t *testing.T, waiting, maxCost, n int) (predicted, arriving, took time.Duration) {
	q := New(testConfig(Options{}), f.set)
	f.use()
	for range waiting {
		cost := 1 + f.rng.IntN(maxCost)
		go q.Wait(t.Context(), &Want{Cost: cost})
		if f.rng.IntN(10) == 0 {
			synctest.Wait()
		}
	}
	synctest.Wait()
	predicted, known := q.Predict(n)
	if !known {
		t.Errorf("not known: %s", f.text)
	}
	locked(q.common, func() {
		arriving = q.predictLocked(&order{waiter: waiter{Call: callOf(1, 0, 1<<62)}, want: new(Want)}, time.Now())
	})
	start, left := time.Now(), make(chan struct{}, n)
	for range n {
		go func() {
			q.Wait(context.Background(), &Want{Cost: 1})
			left <- struct{}{}
		}()
	}
	for range n {
		<-left
	}
	return predicted, arriving, time.Since(start)
}

// wrong is how far off a prediction is: 1 at 5 %, or one unit's time of the slowest limiter, whichever is longer.
func (f *future) wrong(predicted, took time.Duration) float64 {
	return (predicted - took).Abs().Seconds() / max(0.05*took.Seconds(), 1/f.slowest)
}

// The last of n more calls starts when it was predicted to, and so does a single one that arrives. Only behind
// thousands of calls of several units, before a window of a few units, may a prediction on arrival be early.
func TestPredict(t *testing.T) {
	for seed := range race.Pick(uint64(12), 120) {
		synctest.Test(t, func(t *testing.T) {
			f := newFuture(seed)
			waiting := []int{0, 10, 30, 100, 300, 1000, 3000, 10_000}[f.rng.IntN(8)]
			if waiting > 1000 && seed%4 > 0 {
				waiting /= 10
			}
			maxCost := []int{1, 1, 3, 8}[f.rng.IntN(4)]
			n := []int{1, 1, 10, 500}[f.rng.IntN(4)]
			predicted, arriving, took := f.run(t, waiting, maxCost, n)
			if f.wrong(predicted, took) > 1 {
				t.Errorf("seed %d: %s%d waiting, cost to %d, n %d: predicted %v, took %v", seed, f.text, waiting, maxCost, n, predicted, took)
			}
			most := 1.0
			if waiting > 1000 && maxCost > 1 {
				most = 8
			}
			if n == 1 && f.wrong(arriving, took) > most {
				t.Errorf("seed %d: %s%d waiting, cost to %d: %v on arrival, took %v", seed, f.text, waiting, maxCost, arriving, took)
			}
		})
	}
}

// A call of a low priority gets some of the turns of those that go before it, so they take longer.
func TestPredictBesideLowerPriorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(testConfig(Options{}), setOf(bucket(100, 1)))
		for i := range 2000 {
			go q.Wait(t.Context(), &Want{Cost: 1, Priority: int32(i / 1000)})
			if i%1000 == 999 {
				synctest.Wait()
			}
		}
		var predicted time.Duration
		locked(q.common, func() {
			predicted = q.predictLocked(&order{waiter: waiter{Call: callOf(1, 1, 1<<62)}, want: new(Want)}, time.Now())
		})
		start := time.Now()
		q.Wait(t.Context(), &Want{Cost: 1, Priority: 1})
		if took := time.Since(start); (predicted-took).Abs() > took/20 || took < 11*time.Second {
			t.Errorf("predicted %v, took %v", predicted, took)
		}
	})
}

// A closing that ends at a known moment is counted in, and the paced reopening after it.
func TestPredictBehindAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(testConfig(Options{}), setOf(bucket(100, 100)))
		q.Pause(time.Minute)
		for range 100 {
			go q.Wait(t.Context(), &Want{Cost: 1})
		}
		synctest.Wait()
		if wait, known := q.Predict(50); !known || (wait-61490*time.Millisecond).Abs() > 20*time.Millisecond {
			t.Errorf("predicted %v, %t; want 61.49s", wait, known)
		}
	})
}

// The more calls are ahead, the later it is; a huge number ends at once, and is not known or beyond any life.
func TestPredictHuge(t *testing.T) {
	for seed := range race.Pick(uint64(4), 30) {
		synctest.Test(t, func(t *testing.T) {
			f := newFuture(seed)
			q := New(testConfig(Options{}), f.set)
			var last time.Duration
			for _, n := range []int{-1, 0, 1, 1000, 1_000_000, 1 << 30, math.MaxInt} {
				wait, known := q.Predict(n)
				if wait < last || wait < 0 || !known && n < 1<<30 || n <= 0 && wait != 0 {
					t.Errorf("%s%d calls: %v, %t, after %v", f.text, n, wait, known, last)
				}
				last = wait
			}
		})
	}
}
