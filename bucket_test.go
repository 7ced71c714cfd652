package throttle_test

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
)

func TestInfiniteLimitAndBack(t *testing.T) {
	for _, inf := range []rate.Limit{rate.Inf, rate.Limit(math.Inf(1))} {
		synctest.Test(t, func(t *testing.T) {
			b := throttle.NewBucket(inf, 2)
			for range 100 {
				if !b.AllowN(50) {
					t.Fatal("refused without a limit")
				}
			}
			stats := throttle.NewQueue(b, throttle.QueueOptions{}).Stats()
			if got := b.Tokens(); got != float64(rate.Inf) || got != stats.Tokens || stats.Limit != rate.Inf {
				t.Errorf("Tokens() = %v, Stats has %v", got, stats.Tokens)
			}
			if _, err := json.Marshal(map[string]any{"tokens": b.Tokens(), "stats": stats}); err != nil {
				t.Error(err)
			}
			booked := b.Reserve(1)
			b.Adjust(77)
			b.SetLimit(10)
			if got := b.Tokens(); got != 2 {
				t.Errorf("after rate.Inf the bucket holds %v, want its burst 2", got)
			}
			b.AllowN(2)
			booked.Cancel() // took nothing, gives nothing
			if wait, _ := b.Take(context.Background(), 1); wait != 100*ms {
				t.Errorf("wait %v, want 100ms", wait)
			}
			b.Adjust(20)
			b.SetLimit(inf)
			time.Sleep(time.Second)
			if !b.Allow() || b.Limit() != rate.Inf {
				t.Error("a debt outlived its limit")
			}
			b.SetLimit(5)
			if got := b.Tokens(); got != 2 {
				t.Errorf("the second time the bucket holds %v, want 2", got)
			}
		})
	}
}

// Where rate.Limiter is right, with its times in order and nothing cancelled or set, Bucket agrees.
func TestBucketAgreesWithRateLimiter(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 9))
			limit, burst := rate.Limit(0.1+r.Float64()*500), 1+r.IntN(20)
			b, ref := throttle.NewBucket(limit, burst), rate.NewLimiter(limit, burst)
			allowed := 0
			for i := range 500 {
				time.Sleep(time.Duration(r.ExpFloat64() * 4 / float64(limit) * 1e9))
				now, n := time.Now(), 1+r.IntN(burst)
				if got, want := b.Tokens(), ref.TokensAt(now); math.Abs(got-want) > 1e-6 {
					t.Fatalf("seed %d, call %d: %v tokens, rate.Limiter %v", seed, i, got, want)
				}
				switch r.IntN(3) {
				case 0:
					got, want := b.AllowN(n), ref.AllowN(now, n)
					if got != want {
						t.Fatalf("seed %d, call %d: AllowN(%d) = %v, rate.Limiter %v", seed, i, n, got, want)
					}
					if got {
						allowed++
					}
				case 1:
					got, want := b.Reserve(n).Delay(), ref.ReserveN(now, n).DelayFrom(now)
					if got-want > 1 || want > got {
						t.Fatalf("seed %d, call %d: Reserve(%d) waits %v, rate.Limiter %v", seed, i, n, got, want)
					}
				case 2:
					tokens := ref.TokensAt(now)
					wait, err := b.Take(context.Background(), n)
					if want := math.Max(0, float64(n)-tokens) / float64(limit) * 1e9; err != nil || math.Abs(float64(wait)-want) > 2 {
						t.Fatalf("seed %d, call %d: Take(%d) waits %v, %v; rate.Limiter would %v ns", seed, i, n, wait, err, want)
					}
					if wait == 0 && !ref.AllowN(now, n) {
						t.Fatalf("seed %d, call %d: taken, but rate.Limiter refuses", seed, i)
					}
				}
			}
			if allowed == 0 {
				t.Errorf("seed %d: AllowN never said yes", seed)
			}
		})
	}
}

// rate.Limiter gives 1 of N back here (field notes); Bucket gives N.
func TestCancellingReservationsInOrderGivesAllBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := throttle.NewBucket(10, 5)
		var booked []*throttle.Reservation
		for i := range 25 {
			r := b.Reserve(1)
			if want := time.Duration(max(0, i-4)) * 100 * ms; !r.OK() || r.Delay() != want {
				t.Fatalf("reservation %d waits %v, want %v", i, r.Delay(), want)
			}
			booked = append(booked, r)
		}
		if got := b.Tokens(); got != -20 {
			t.Fatalf("%v tokens after 25 reservations of burst 5", got)
		}
		for i, r := range booked {
			r.Cancel()
			r.Cancel() // once is enough
			if got, want := b.Tokens(), float64(-20+i+1); math.Abs(got-want) > 1e-9 {
				t.Fatalf("%v tokens after %d cancels, want %v", got, i+1, want)
			}
		}
		big := b.Reserve(15)
		time.Sleep(300 * ms)
		if big.Delay() != 0 || math.Abs(b.Tokens()+7) > 1e-9 {
			t.Errorf("15 of a full burst 5 wait %v and leave %v tokens after 300ms, want 0 and -7", big.Delay(), b.Tokens())
		}
		next := b.Reserve(2)
		if next.Delay() != 900*ms {
			t.Errorf("the next 2 wait %v, want 900ms", next.Delay())
		}
		big.Cancel()
		if got := b.Tokens(); got != 5-2 && math.Abs(got-5) > 1e-9 {
			t.Errorf("%v tokens after the cancel", got)
		}
		if got := next.Delay(); got != 900*ms {
			t.Errorf("a reservation's delay moved to %v", got)
		}
		time.Sleep(time.Hour)
		if got := next.Delay(); got != 0 {
			t.Errorf("delay %v long after", got)
		}
	})
}

func TestReservationThatIsRefusedBooksNothing(t *testing.T) {
	b := throttle.NewBucket(1, 10)
	for _, n := range []int{-1, 3611} {
		r := b.Reserve(n)
		if r.Cancel(); r.OK() || r.Delay() != rate.InfDuration || math.Abs(b.Tokens()-10) > 1e-6 {
			t.Errorf("Reserve(%d): OK %v, delay %v, %v tokens left", n, r.OK(), r.Delay(), b.Tokens())
		}
	}
	if r := throttle.NewBucket(0, 1).Reserve(1); r.OK() {
		t.Error("booked at limit 0")
	}
	if b.AllowN(-1) || b.AllowN(3611) || b.Burst() != 10 {
		t.Error("allowed what can never be paid")
	}
}

// The zero Bucket and the zero Leaky refuse every cost, with all their methods, until they have a limit.
func TestZeroBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b throttle.Bucket
		r := b.Reserve(1)
		if b.Allow() || b.Tokens() != 0 || b.Limit() != 0 || b.Burst() != 0 || r.OK() || r.Delay() != rate.InfDuration || !b.Reserve(0).OK() {
			t.Error("the zero Bucket gives units")
		}
		r.Cancel()
		if err := b.Wait(t.Context()); err == nil {
			t.Error("Wait has let one go")
		}
		if err := b.Wait(throttle.WithCost(t.Context(), 0)); err != nil {
			t.Errorf("cost 0: %v", err)
		}
		b.SetLimit(0)
		b.SetLimit(10)
		start := time.Now()
		if err := b.Wait(t.Context()); err != nil || b.Burst() != 1 || time.Since(start) > 100*ms {
			t.Errorf("with a limit: %v after %v, burst %d", err, time.Since(start), b.Burst())
		}
		var l throttle.Leaky
		l.SetLimit(0)
		if _, err := l.Take(t.Context(), 1); err == nil {
			t.Error("the zero Leaky gives units")
		}
		l.SetLimit(10)
		q := throttle.NewQueue(&l, throttle.QueueOptions{})
		for start := time.Now(); time.Since(start) < sec; {
			q.Wait(t.Context())
		}
		if n := q.Stats().Sent; n != 10 {
			t.Errorf("%d went in a second, want 10", n)
		}
		var inf throttle.Bucket
		if inf.SetLimit(rate.Inf); !inf.AllowN(1000) || inf.Burst() != 0 {
			t.Error("no limit, and it stops calls")
		}
	})
}
