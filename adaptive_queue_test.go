package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
)

// A works is something that calls take up: how long a call takes depends on how many there are.
type works struct {
	takes func(n int) time.Duration // of n at once

	mu           sync.Mutex
	n, most, all int
}

func (w *works) do(ctx context.Context) error {
	w.mu.Lock()
	w.n++
	w.all++
	w.most = max(w.most, w.n)
	d := w.takes(w.n)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.n--
	}()
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// took returns the most at once and how many there were since the last look.
func (w *works) took() (most, all int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	most, all = w.most, w.all
	w.most, w.all = w.n, 0
	return most, all
}

// steady is a works whose calls all take that long.
func steady(d time.Duration) *works { return &works{takes: func(int) time.Duration { return d }} }

// keepCalling makes calls one after the other, each of so many goroutines, until stop.
func keepCalling(n int, call func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				call(ctx)
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// TestAdaptiveInFlight: 60 callers, 50 calls at most. The load is high for 10 s, low for 20 s, and right from then on.
func TestAdaptiveInFlight(t *testing.T) {
	for _, n := range []int{1, 4, 60} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			q := throttle.NewQueue(nil, throttle.QueueOptions{InFlight: &throttle.Adaptive{
				Load: func() float64 {
					switch since := time.Since(begin); {
					case since < 9500*time.Millisecond:
						return 3
					case since < 29500*time.Millisecond:
						return 0.5
					}
					return 1
				}, Target: 1, Least: 5, Most: 50,
			}})
			w := steady(500 * time.Millisecond)
			stop := keepCalling(n, func(ctx context.Context) error { return q.Do(ctx, w.do) })
			var most []int
			for range 40 {
				time.Sleep(time.Second)
				now, _ := w.took()
				most = append(most, now)
			}
			stop()
			for _, c := range []struct{ second, most, least int }{{0, 50, 40}, {3, 33, 20}, {9, 8, 5}, {19, 20, 12}, {35, 50, 25}} {
				if got := most[c.second]; got > c.most || got < min(n, c.least) {
					t.Errorf("%d callers: %d in flight in second %d, want %d to %d: %v", n, got, c.second, c.least, c.most, most)
				}
			}
			if n == 60 && most[35] != most[39] {
				t.Errorf("it moves at the target: %v", most)
			}
		})
	}
}

// TestAdaptiveLetsWaitersGo: the bound goes up while nobody arrives and nothing ends.
func TestAdaptiveLetsWaitersGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		load := 5.
		var mu sync.Mutex
		q := throttle.NewQueue(nil, throttle.QueueOptions{InFlight: &throttle.Adaptive{
			Load: func() float64 { mu.Lock(); defer mu.Unlock(); return load }, Target: 1, Most: 10,
		}})
		w := steady(time.Hour)
		for range 20 { // from 10 down to 1, with nothing in flight
			q.Do(t.Context(), func(context.Context) error { return nil })
			time.Sleep(time.Second)
		}
		for range 4 {
			go q.Do(t.Context(), w.do)
		}
		time.Sleep(time.Minute)
		if n, _ := w.took(); n != 1 {
			t.Fatalf("%d in flight, want 1", n)
		}
		if s := q.Stats(); s.Reason != "in-flight:load" || s.MaxInFlight != 1 || s.Load != 5 || s.Waiting != 3 {
			t.Errorf("%+v", s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := q.Do(ctx, w.do); err == nil || !strings.Contains(err.Error(), "waiting for an in-flight slot: 1 of 1 calls in flight") {
			t.Errorf("a call whose time is over: %v", err)
		}
		mu.Lock()
		load = 0
		mu.Unlock()
		time.Sleep(5 * time.Second)
		if n, _ := w.took(); n != 4 {
			t.Errorf("%d in flight 5 s after the load has gone, want all 4", n)
		}
		time.Sleep(time.Hour)
	})
}

// TestAdaptiveResponseTimes: 64 callers of something that collapses beyond 16. With a target of a third above the time of 16 most of
// what it can do is kept; without one a tenth.
func TestAdaptiveResponseTimes(t *testing.T) {
	collapse := func(n int) time.Duration {
		base := 100 * time.Millisecond
		if n <= 16 {
			return base
		}
		return time.Duration(float64(base) * float64(n) / 16 * (1 + 0.2*float64(n-16)))
	}
	run := func(o throttle.QueueOptions, send bool) (perSecond float64) {
		synctest.Test(t, func(t *testing.T) {
			w := &works{takes: collapse}
			q := throttle.NewQueue(nil, o)
			call := func(ctx context.Context) error { return q.Do(ctx, w.do) }
			if send {
				tr := &throttle.Transport{Queue: o, Base: baseFunc(func(r *http.Request) (*http.Response, error) {
					if err := w.do(r.Context()); err != nil {
						return nil, err
					}
					return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r}, nil
				})}
				call = func(ctx context.Context) error { return get(ctx, tr, "http://a.example/") }
			}
			stop := keepCalling(64, call)
			time.Sleep(30 * time.Second)
			w.took()
			time.Sleep(time.Minute)
			_, all := w.took()
			perSecond = float64(all) / 60
			stop()
		})
		return perSecond
	}
	for _, send := range []bool{false, true} {
		without := run(throttle.QueueOptions{}, send)
		with := run(throttle.QueueOptions{InFlight: &throttle.Adaptive{Target: 0.13, Most: 64}}, send)
		t.Logf("Transport %v: %.0f/s without a target, %.0f/s with one, of 160", send, without, with)
		if without > 40 || with < 120 {
			t.Errorf("Transport %v: %.0f/s without a target, %.0f/s with one, of 160", send, without, with)
		}
	}
}

// get sends a request, and reads the answer.
func get(ctx context.Context, tr http.RoundTripper, url string) error {
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return err
	}
	res, err := tr.RoundTrip(req)
	if err == nil {
		res.Body.Close()
	}
	return err
}

// TestAdaptiveHarmsNothing: response times that vary, with nothing in the way, and a target that nine of ten are within by a half.
func TestAdaptiveHarmsNothing(t *testing.T) {
	worst, sum, n := 2., 0., 0
	for seed := range uint64(race.Pick(4, 200)) {
		run := func(in func(p90 float64) *throttle.Adaptive) (all int) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 77))
				w := new(works)
				median, sigma, slow, by := math.Exp(r.Float64()*2-1.5), 0.3+1.5*r.Float64(), 0., 1.
				p90 := median * math.Exp(1.2816*sigma)
				if r.IntN(3) == 0 {
					sigma, slow, by = 0.2, 0.12+0.4*r.Float64(), 10+90*r.Float64()
					p90 = median * by * 1.2
				}
				w.takes = func(int) time.Duration {
					v := median * math.Exp(sigma*r.NormFloat64())
					if r.Float64() < slow {
						v *= by
					}
					return time.Duration(v * float64(time.Second))
				}
				q := throttle.NewQueue(nil, throttle.QueueOptions{InFlight: in(p90)})
				stop := keepCalling(8+r.IntN(race.Pick(20, 60)), func(ctx context.Context) error { return q.Do(ctx, w.do) })
				time.Sleep(time.Duration(race.Pick(2, 10)) * time.Minute)
				_, all = w.took()
				stop()
			})
			return all
		}
		without := run(func(float64) *throttle.Adaptive { return nil })
		with := run(func(p90 float64) *throttle.Adaptive { return &throttle.Adaptive{Target: 1.5 * p90, Most: 70} })
		kept := float64(with) / float64(without)
		worst, sum, n = min(worst, kept), sum+kept, n+1
	}
	t.Logf("%d: %.2f %% kept, at worst %.1f %%", n, 100*sum/float64(n), 100*worst)
	if sum/float64(n) < 0.99 || worst < 0.93 {
		t.Errorf("%.2f %% kept, at worst %.1f %%", 100*sum/float64(n), 100*worst)
	}
}

// TestAdaptiveKeys: of four keys one is slow, and one is down, which says so at once. The slow one alone is held.
func TestAdaptiveKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := map[string]*works{"a.example": steady(500 * time.Millisecond), "b.example": steady(3 * time.Second), "c.example": steady(250 * time.Millisecond)}
		tr := &throttle.Transport{
			Queue: throttle.QueueOptions{InFlight: &throttle.Adaptive{Target: 1, Least: 2, Most: 20}},
			Base: baseFunc(func(r *http.Request) (*http.Response, error) {
				if r.URL.Host == "down.example" {
					return nil, errors.New("no route to it")
				}
				if err := all[r.URL.Host].do(r.Context()); err != nil {
					return nil, err
				}
				return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r}, nil
			}),
		}
		for host := range all {
			defer keepCalling(30, func(ctx context.Context) error { return get(ctx, tr, "http://"+host+"/") })()
		}
		defer keepCalling(4, func(ctx context.Context) error { return get(ctx, tr, "http://down.example/") })()
		time.Sleep(time.Minute)
		if s, _ := tr.Explain("down.example"); s.MaxInFlight != 20 || s.Sent == 0 {
			t.Errorf("down: %+v", s.QueueStats)
		}
		for host, want := range map[string]int{"a.example": 20, "b.example": 2, "c.example": 20} {
			s, _ := tr.Explain(host)
			if s.MaxInFlight != want || s.InFlight != want || s.Reason != map[bool]string{true: "in-flight:load"}[true] {
				t.Errorf("%s: %+v, want %d in flight", host, s.QueueStats, want)
			}
		}
	})
}

// TestAdaptiveGroup: 2,000 jobs before a database whose queries take longer the more there are.
func TestAdaptiveGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &works{takes: func(n int) time.Duration { return time.Duration(n*n) * time.Millisecond }} // 20 at once: 0.4 s
		q := throttle.NewQueue(nil, throttle.QueueOptions{InFlight: &throttle.Adaptive{Target: 0.2, Least: 2, Most: 100}})
		g, ctx := throttle.NewGroup(t.Context(), q)
		start := time.Now()
		for range 2000 {
			g.Go(ctx, db.do)
		}
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 5*time.Minute {
			t.Errorf("it took %v", took)
		}
		if s := q.Stats(); s.MaxInFlight < 10 || s.MaxInFlight > 19 || s.InFlight != 0 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestAdaptiveBatch: all of a batch is in line at once, nobody arrives later, and calls end all the time. The load is far too high:
// the bound goes down each second, whatever else holds the calls.
func TestAdaptiveBatch(t *testing.T) {
	for name, o := range map[string]struct {
		limit throttle.Limiter
		most  int
	}{
		"the load alone": {}, "fewer slots": {most: 8}, "a rate": {limit: throttle.NewLeaky(100)}, "a slow rate": {limit: throttle.NewLeaky(0.2)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int32
				load := func() float64 { asked.Add(1); return 9 }
				q := throttle.NewQueue(o.limit, throttle.QueueOptions{
					InFlight: &throttle.Adaptive{Load: load, Target: 1, Least: 2, Most: 50}, MaxInFlight: o.most,
				})
				g, ctx := throttle.NewGroup(t.Context(), q)
				for range 2000 {
					g.Go(ctx, func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil })
				}
				time.Sleep(3500 * time.Millisecond)
				if s := q.Stats(); s.Waiting == 0 || s.MaxInFlight > 26 || asked.Load() < 3 {
					t.Errorf("after 3.5 s, asked %d times: %+v", asked.Load(), s)
				}
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				q.Shutdown(ctx)
				g.Wait()
			})
		})
	}
}

// TestAdaptiveBatchOfRequests: the same through a Transport whose slots for all keys hold the calls.
func TestAdaptiveBatchOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steady(100 * time.Millisecond)
		tr := &throttle.Transport{
			MaxInFlight: 4,
			Queue: throttle.QueueOptions{InFlight: &throttle.Adaptive{
				Load: func() float64 { return 9 }, Target: 1, Most: 50,
			}},
			Base: baseFunc(func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r}, w.do(r.Context())
			}),
		}
		var all sync.WaitGroup
		for range 400 {
			all.Go(func() { get(t.Context(), tr, "http://a.example/") })
		}
		time.Sleep(3500 * time.Millisecond)
		for s := range tr.Stats() {
			if s.Waiting == 0 || s.Load != 9 || s.MaxInFlight > 26 {
				t.Errorf("after 3.5 s: %+v", s)
			}
		}
		all.Wait()
	})
}

// TestAdaptiveRandom: any load, any calls, some of which fail, panic or leave. Never more are in flight than the bound was at the
// start of one, it stays within its ends, and all is over in the end.
func TestAdaptiveRandom(t *testing.T) {
	for seed := range uint64(race.Pick(40, 2000)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 99))
			a := &throttle.Adaptive{Target: 0.5, Least: 1 + r.IntN(4), Most: 5 + r.IntN(20)}
			if r.IntN(2) == 0 {
				var mu sync.Mutex
				lr := rand.New(rand.NewPCG(seed, 100))
				a.Load = func() float64 {
					mu.Lock()
					defer mu.Unlock()
					switch lr.IntN(10) {
					case 0:
						panic("no")
					case 1:
						time.Sleep(time.Duration(lr.IntN(5000)) * time.Millisecond)
					}
					return lr.ExpFloat64() * 0.5
				}
			}
			o := throttle.QueueOptions{InFlight: a}
			if r.IntN(3) == 0 {
				o.MaxInFlight = 1 + r.IntN(20)
			}
			var lim throttle.Limiter
			if r.IntN(3) == 0 {
				lim = throttle.NewBucket(20, 5)
			}
			q := throttle.NewQueue(lim, o)
			var all sync.WaitGroup
			for range 150 {
				took, fate, patience := time.Duration(r.ExpFloat64()*float64(time.Second)), r.IntN(8), time.Duration(r.IntN(20000))*time.Millisecond
				all.Go(func() {
					defer func() { _ = recover() }()
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					if fate > 0 {
						ctx = t.Context()
					}
					q.Do(ctx, func(context.Context) error {
						time.Sleep(took)
						switch fate {
						case 1:
							return errors.New("no")
						case 2:
							panic("no")
						}
						return nil
					})
				})
				time.Sleep(time.Duration(r.ExpFloat64() * 0.05 * float64(time.Second)))
				if s := q.Stats(); s.MaxInFlight < min(a.Least, max(1, o.MaxInFlight)) || s.MaxInFlight > a.Most || s.InFlight > a.Most || o.MaxInFlight > 0 && s.InFlight > o.MaxInFlight {
					t.Fatalf("seed %d: %+v", seed, s)
				}
			}
			done := make(chan bool)
			go func() { all.Wait(); close(done) }()
			select {
			case <-done:
			case <-time.After(time.Hour):
				t.Fatalf("seed %d: somebody waits for ever: %+v", seed, q.Stats())
			}
			if s := q.Stats(); s.InFlight != 0 || s.Waiting != 0 {
				t.Fatalf("seed %d: %+v", seed, s)
			}
			time.Sleep(time.Minute) // Load may sleep
		})
	}
}

// TestAdaptiveOptionNonsense: NewQueue panics, and each request of a Transport fails.
func TestAdaptiveOptionNonsense(t *testing.T) {
	o := throttle.QueueOptions{InFlight: &throttle.Adaptive{Target: 1}}
	func() {
		defer func() {
			if text := fmt.Sprint(recover()); !strings.Contains(text, "QueueOptions.InFlight.Most is 0") {
				t.Errorf("NewQueue: %s", text)
			}
		}()
		throttle.NewQueue(nil, o)
	}()
	if err := get(t.Context(), &throttle.Transport{Queue: o}, "http://a.example/"); err == nil || !strings.Contains(err.Error(), "QueueOptions.InFlight.Most is 0") {
		t.Errorf("Transport: %v", err)
	}
}
