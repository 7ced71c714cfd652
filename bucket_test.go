package throttle

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/moment"
)

const ms = time.Millisecond

func TestBucketScripts(t *testing.T) {
	tenPerSecond := func() Limiter { return NewBucket(10, 3) }
	runScript(t, "burst, then the rate", tenPerSecond, []step{
		{at: 0, do: "take", n: 1},
		{at: 0, do: "take", n: 2},
		{at: 0, do: "take", n: 1, want: 100 * ms},
		{at: 0, do: "take", n: 3, want: 300 * ms}, // a refusal took nothing
		{at: 50 * ms, do: "take", n: 1, want: 50 * ms},
		{at: 100 * ms, do: "take", n: 1},
		{at: 100 * ms, do: "take", n: 0},
		{at: 250 * ms, do: "take", n: 1},
		{at: 250 * ms, do: "take", n: 1, want: 50 * ms},
		{at: 10 * time.Second, do: "avail", n: 3}, // never more than the burst
	})
	runScript(t, "a cost above the burst goes when full and leaves a debt", tenPerSecond, []step{
		{at: 0, do: "take", n: 1},
		{at: 0, do: "take", n: 13, want: 100 * ms},
		{at: 100 * ms, do: "take", n: 13},
		{at: 100 * ms, do: "avail", n: -10},
		{at: 100 * ms, do: "take", n: 0},
		{at: 100 * ms, do: "take", n: 1, want: 1100 * ms},
		{at: 100 * ms, do: "take", n: 5, want: 1300 * ms},
		{at: 1200 * ms, do: "take", n: 1},
		{at: 9 * time.Second, do: "avail", n: 3}, // and the burst is what it was
	})
	runScript(t, "undo gives all back, also of a debt", tenPerSecond, []step{
		{at: 0, do: "take", n: 13},
		{at: 100 * ms, do: "undo"},
		{at: 100 * ms, do: "avail", n: 3},
		{at: 100 * ms, do: "take", n: 3},
		{at: 100 * ms, do: "take", n: 1, want: 100 * ms},
		{at: 100 * ms, do: "undo"},
		{at: 100 * ms, do: "avail", n: 3},
	})
	runScript(t, "adjust", tenPerSecond, []step{
		{at: 0, do: "adjust", n: 5},
		{at: 0, do: "avail", n: -2},
		{at: 0, do: "take", n: 1, want: 300 * ms},
		{at: 0, do: "adjust", n: -4},
		{at: 0, do: "take", n: 2},
		{at: 0, do: "adjust", n: -1000},
		{at: 0, do: "avail", n: 3},
		{at: 0, do: "adjust", n: math.MinInt},
		{at: 0, do: "take", n: 3},
		{at: 0, do: "take", n: 1, want: 100 * ms},
	})
	runScript(t, "a new rate counts from now on", tenPerSecond, []step{
		{at: 0, do: "take", n: 3},
		{at: 50 * ms, do: "limit", n: 1},
		{at: 50 * ms, do: "take", n: 1, want: 500 * ms}, // half of it earned at the old rate
		{at: 250 * ms, do: "limit", n: 100},
		{at: 250 * ms, do: "take", n: 1, want: 3 * ms},
		{at: 253 * ms, do: "take", n: 1},
	})
	runScript(t, "limit 0 refuses, and what was saved comes back with the limit", tenPerSecond, []step{
		{at: 0, do: "take", n: 1},
		{at: 0, do: "limit", n: 0},
		{at: 0, do: "take", n: 1, err: "limit is 0"},
		{at: 0, do: "take", n: 0},
		{at: 0, do: "avail", n: 0},
		{at: time.Hour, do: "limit", n: 10},
		{at: time.Hour, do: "take", n: 2},
		{at: time.Hour, do: "take", n: 1, want: 100 * ms},
	})
	runScript(t, "a new burst", tenPerSecond, []step{
		{at: 0, do: "burst", n: 5},
		{at: 0, do: "take", n: 5, want: 200 * ms}, // filled at the rate
		{at: 200 * ms, do: "take", n: 1},
		{at: 200 * ms, do: "burst", n: 2},
		{at: 200 * ms, do: "take", n: 2},
		{at: 200 * ms, do: "take", n: 2, want: 200 * ms},
		{at: time.Second, do: "avail", n: 2},
	})
}

func TestInfiniteLimitAndBack(t *testing.T) {
	for _, inf := range []rate.Limit{rate.Inf, rate.Limit(math.Inf(1))} {
		synctest.Test(t, func(t *testing.T) {
			b := NewBucket(inf, 2)
			for range 100 {
				if !b.AllowN(50) {
					t.Fatal("refused without a limit")
				}
			}
			if got := b.Tokens(); !math.IsInf(got, 1) {
				t.Errorf("Tokens() = %v", got)
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

// bucketBound: burst + ∫rate + what one cost may exceed the burst by, and 1 ns of AllowN's tolerance.
func bucketBound(limit rate.Limit, burst, largest int) func(from, to time.Time) float64 {
	return func(from, to time.Time) float64 {
		return float64(max(burst, largest)) + float64(limit)*(to.Sub(from)+1).Seconds() + 1e-6
	}
}

func TestBucketWindowsHoldTheLimit(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 5))
			limit, burst, largest := rate.Limit(1+r.Float64()*300), 1+r.IntN(20), 1+r.IntN(30)
			b := NewBucket(limit, burst)
			unit := time.Duration(float64(time.Second) / float64(limit))
			d := drive{seed: seed, lim: b, mean: unit * time.Duration(1+r.IntN(2*largest)), maxCost: largest, undo: 0.15}
			d.late = time.Duration(r.IntN(2)) * 5 * ms
			d.external = func(r *rand.Rand, g admission, _ time.Time) bool { b.Adjust(-g.n); return true }
			checkWindows(t, d.run(1000), bucketBound(limit, burst, largest))
		})
	}
}

func TestBucketWindowsHoldTheIntegralOfAChangingRate(t *testing.T) {
	for seed := range uint64(15) {
		synctest.Test(t, func(t *testing.T) {
			b := NewBucket(50, 4)
			type change struct {
				at    time.Time
				limit rate.Limit
			}
			changes := []change{{time.Now(), 50}}
			d := drive{seed: seed, lim: b, mean: 10 * ms, maxCost: 6, undo: 0.1}
			d.change = func(r *rand.Rand, now time.Time) {
				limit := rate.Limit(1 + r.IntN(200))
				b.SetLimit(limit)
				changes = append(changes, change{now, limit})
			}
			used := d.run(1000)
			if len(changes) < 10 {
				t.Fatal("the rate hardly changed")
			}
			integral := func(to time.Time) (units float64) {
				for i, c := range changes {
					end := to
					if i+1 < len(changes) {
						end = moment.Earliest(to, changes[i+1].at)
					}
					units += float64(c.limit) * max(0, end.Sub(c.at).Seconds())
				}
				return units
			}
			sums := make(map[time.Time]float64)
			for _, g := range used {
				sums[g.at] = integral(g.at)
			}
			checkWindows(t, used, func(from, to time.Time) float64 { return 6 + sums[to] - sums[from] + 1e-5 })
		})
	}
}

// Backlog reaches the rate, whatever it is, and over days too.
func TestBucketBacklogReachesTheRate(t *testing.T) {
	for _, c := range []struct {
		limit rate.Limit
		burst int
		d     time.Duration
	}{
		{1, 1, 10 * time.Hour}, {3, 1, 3 * time.Hour}, {7, 7, time.Hour}, {0.001, 2, 365 * 24 * time.Hour},
		{200, 10, time.Minute}, {5000, 1, 8 * time.Second}, {5000, 10, 8 * time.Second},
		{1e6, 1, 50 * ms}, {7e5, 10, 50 * ms}, {130_000, 1, 300 * ms},
	} {
		t.Run(fmt.Sprintf("%v burst %d", c.limit, c.burst), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ideal := float64(c.limit) * c.d.Seconds()
				got := float64(backlog(NewBucket(c.limit, c.burst), c.d, one))
				if got < 0.9999*ideal-1 || got > ideal+float64(c.burst)+1e-6 {
					t.Errorf("%v units in %v, ideal %v", got, c.d, ideal)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // costs of every size lose nothing either
		r := rand.New(rand.NewPCG(1, 1))
		got := backlog(NewBucket(100, 5), 20*time.Minute, func() int { return 1 + r.IntN(15) })
		if got < 120_000-30 || got > 120_000+30 {
			t.Errorf("%d units in 20 min at 100/s", got)
		}
	})
}

// A timer that is late again and again costs nothing if the take is reckoned as of the moment told.
func TestLateTimersCostNoQuota(t *testing.T) {
	for _, limit := range []rate.Limit{200, 5000} {
		b := flatten(NewBucket(limit, 1))
		start := time.Unix(1000, 0)
		told, now, units := start, start, 0
		for now.Sub(start) < 10*time.Second {
			m, err := b.TakeBy(told, now, 1)
			if err != nil {
				t.Fatal(err)
			}
			if !m.After(now) {
				units, told = units+1, m
				continue
			}
			told, now = m, m.Add(1100*time.Microsecond) // as timers do here
		}
		if ideal := float64(limit) * 10; float64(units) < 0.995*ideal || float64(units) > ideal+float64(limit)*0.005+1 {
			t.Errorf("%d units in 10 s at %v/s", units, limit)
		}
	}
}

// Where rate.Limiter is right, with its times in order and nothing cancelled or set, Bucket agrees.
func TestBucketAgreesWithRateLimiter(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 9))
			limit, burst := rate.Limit(0.1+r.Float64()*500), 1+r.IntN(20)
			b, ref := NewBucket(limit, burst), rate.NewLimiter(limit, burst)
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
		b := NewBucket(10, 5)
		var booked []*Reservation
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
	b := NewBucket(1, 10)
	for _, n := range []int{-1, 3611} {
		r := b.Reserve(n)
		if r.Cancel(); r.OK() || r.Delay() != rate.InfDuration || math.Abs(b.Tokens()-10) > 1e-6 {
			t.Errorf("Reserve(%d): OK %v, delay %v, %v tokens left", n, r.OK(), r.Delay(), b.Tokens())
		}
	}
	if r := NewBucket(0, 1).Reserve(1); r.OK() {
		t.Error("booked at limit 0")
	}
	if b.AllowN(-1) || b.AllowN(3611) || b.Burst() != 10 {
		t.Error("allowed what can never be paid")
	}
}
