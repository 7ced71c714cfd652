package queue_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/throttletest"
)

// An advertisedFuture is an upstream that advertises its limit, and calls that wait for it.
type advertisedFuture struct {
	limit   throttletest.Limit
	dialect throttletest.Dialect
	own     throttle.Limiter // beside it; nil: none
	before  int              // calls that have been made
	waiting int
	after   time.Duration // how long they have waited when something is predicted, at least
	learned float64       // the share of them that go before anything is predicted
}

// sent counts the attempts of a Transport with one key that were not throttled.
func sent(tr *throttle.Transport) (n uint64) {
	for s := range tr.Stats() {
		n = s.Sent - s.Throttled
	}
	return n
}

// run returns when one more call is predicted to start, and when it does.
func (f *advertisedFuture) run(t *testing.T) (predicted, took time.Duration) {
	server := throttletest.NewServer(f.limit)
	server.Latency = throttletest.Span{Min: 5 * time.Millisecond, Max: 15 * time.Millisecond}
	server.Advertise.Dialect = f.dialect
	var started time.Time
	type last struct{}
	tr := &throttle.Transport{Base: server, Limiter: f.own, Retry: throttle.Retry{MaxPause: -1}, Hooks: throttle.Hooks{
		Waited: func(ctx context.Context, _ throttle.Event) {
			if ctx.Value(last{}) != nil {
				started = time.Now()
			}
		},
	}}
	for range f.before {
		get(t.Context(), tr, server.URL())
	}
	var calls sync.WaitGroup
	for range f.waiting {
		calls.Go(func() { get(t.Context(), tr, server.URL()) })
	}
	synctest.Wait()
	for until := uint64(f.learned * float64(f.waiting)); sent(tr) < until; {
		time.Sleep(f.limit.Per / 100)
	}
	time.Sleep(100*time.Millisecond + f.after)
	synctest.Wait()
	req, _ := http.NewRequest("GET", server.URL(), nil)
	predicted = tr.Predict(throttle.ByHost(req), 1)
	start := time.Now()
	started = start
	calls.Go(func() { get(context.WithValue(t.Context(), last{}, true), tr, server.URL()) })
	calls.Wait()
	return predicted, started.Sub(start)
}

// randomAdvertised draws one, with a limiter of our own beside it now and then.
func randomAdvertised(seed uint64) *advertisedFuture {
	r := rand.New(rand.NewPCG(seed, 4))
	per := []time.Duration{time.Second, 10 * time.Second, time.Minute, time.Hour}[r.IntN(4)]
	f := &advertisedFuture{
		limit: throttletest.Limit{
			Kind: []throttletest.Kind{throttletest.Fixed, throttletest.Sliding, throttletest.Bucket}[r.IntN(3)],
			N:    []int{20, 100, 1000, 5000}[r.IntN(4)], Per: per,
		},
		dialect: []throttletest.Dialect{throttletest.Draft08, throttletest.Draft03}[seed%2],
		before:  1 + r.IntN(10),
		waiting: []int{10, 30, 100, 300, 1000, 3000, 10_000}[r.IntN(6)],
	}
	if f.limit.Kind != throttletest.Fixed {
		f.learned = 0.3
	}
	perSecond := float64(f.limit.N) / per.Seconds() * (0.7 + 2*r.Float64())
	switch r.IntN(4) {
	case 0:
		f.own = throttle.NewBucket(rate.Limit(perSecond), 1+r.IntN(10))
	case 1:
		n := 1 + r.IntN(100)
		f.own = throttle.NewFixedWindow(n, time.Duration(float64(n)/perSecond*1e9))
	}
	return f
}

// off is how wrong a prediction is: 1 at 5 %, or one unit's time, whichever is longer.
func off(predicted, took, unit time.Duration) float64 {
	return float64((predicted - took).Abs()) / float64(max(took/20, unit))
}

// What an advertised quota will let through is foreseen within 5 % or one unit's time, or it is said that nobody knows:
// when the end of a window moves on with each answer, the next ones may show that it is a bucket. Now and then a
// prediction is wrong all the same, because an answer shows a quota to be another one than was thought.
func TestPredictAdvertised(t *testing.T) {
	seeds := race.Pick(8, 60)
	good, unknown := 0, 0
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			f := randomAdvertised(seed)
			switch predicted, took := f.run(t); {
			case predicted == -1:
				unknown++
			case off(predicted, took, f.limit.Per/time.Duration(f.limit.N)) <= 1:
				good++
			default:
				t.Logf("seed %d: %s of %d per %v, own %v, %d waiting: predicted %v, took %v", seed, f.limit.Kind, f.limit.N, f.limit.Per, f.own, f.waiting, predicted, took)
			}
		})
	}
	t.Logf("%d of %d are right, and %d are unknown", good, seeds, unknown)
	if known := seeds - unknown; good < known*92/100 || unknown > seeds/10 {
		t.Errorf("%d of %d predictions are right and %d unknown, want 92 %% of what is known, and no more than a tenth unknown", good, seeds, unknown)
	}
}

// While a limit that nobody advertises is searched for, nobody knows when a backlog will be through. Once it is found,
// the prediction is right.
func TestPredictFound(t *testing.T) {
	race.Long(t)
	const seeds = 12
	good := 0
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			f := &advertisedFuture{limit: throttletest.Limit{N: 60 + 30*seed, Burst: 10, Per: time.Second}, before: 3, waiting: 3000}
			if predicted, _ := f.run(t); predicted != -1 {
				t.Errorf("seed %d: predicted %v at first, want -1", seed, predicted)
			}
			f.after = 6 * time.Second
			predicted, took := f.run(t)
			t.Logf("%d/s: predicted %v, took %v", f.limit.N, predicted, took)
			if off(predicted, took, 10*time.Millisecond) <= 1 {
				good++
			}
		})
	}
	if good < 8 {
		t.Errorf("%d of %d predictions are right, want 8", good, seeds)
	}
}

// A closing that ends at a moment which the upstream has named is foreseen, with the paced reopening after it, whatever
// limit is known.
func TestPredictWhileClosed(t *testing.T) {
	for seed := range race.Pick(uint64(4), 30) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 5))
			perSecond := 5 + 100*r.Float64()
			window := func() (int, time.Duration) {
				n := 1 + r.IntN(300)
				return n, time.Duration(float64(n) / perSecond * 1e9)
			}
			var own throttle.Limiter
			switch r.IntN(4) {
			case 0:
				own = throttle.NewBucket(rate.Limit(perSecond), 1+r.IntN(50))
			case 1:
				own = throttle.NewFixedWindow(window())
			case 2:
				own = throttle.NewSlidingWindow(window())
			default:
				own = throttle.All(throttle.NewLeaky(rate.Limit(perSecond*1.1)), throttle.NewSlidingWindow(window()))
			}
			server := &throttletest.Server{Latency: throttletest.Span{Min: 5 * time.Millisecond, Max: 15 * time.Millisecond}}
			from := time.Duration(r.Int64N(int64(5 * time.Second)))
			server.Faults = []throttletest.Fault{{From: from, To: from + 100*time.Millisecond, Status: 429, RetryAfter: time.Duration(2+r.IntN(30)) * time.Second}}
			tr := &throttle.Transport{Base: server, Limiter: own, Retry: throttle.Retry{MaxPause: -1}}
			var calls sync.WaitGroup
			waiting := 50 + r.IntN(3000)
			for range waiting {
				calls.Go(func() { get(t.Context(), tr, server.URL()) })
			}
			time.Sleep(from + 120*time.Millisecond + time.Duration(r.Int64N(int64(40*time.Second))))
			req, _ := http.NewRequest("GET", server.URL(), nil)
			predicted, start := tr.Predict(throttle.ByHost(req), 1), time.Now()
			unit := time.Duration(1e9/perSecond) + 2*server.Latency.Max // what follows is until the answer
			if get(t.Context(), tr, server.URL()); off(predicted, time.Since(start), unit) > 1 {
				t.Errorf("seed %d: %v, %d waiting: predicted %v, took %v", seed, own, waiting, predicted, time.Since(start))
			}
			calls.Wait()
		})
	}
}
