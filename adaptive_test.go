package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
)

// TestAdaptiveNonsense names the field and the value.
func TestAdaptiveNonsense(t *testing.T) {
	for want, a := range map[string]*throttle.Adaptive{
		"Target is 0":         {Most: 5},
		"Target is -1":        {Target: -1, Most: 5},
		"Target is NaN":       {Target: math.NaN(), Most: 5},
		"Target is +Inf":      {Target: math.Inf(1), Most: 5},
		"Least is -1":         {Target: 1, Least: -1, Most: 5},
		"Most is 0":           {Target: 1},
		"Most is 4":           {Target: 1, Least: 5, Most: 4},
		"Least, which is 500": {Target: 1, Least: 500, Most: 4},
	} {
		func() {
			defer func() {
				if err, _ := recover().(error); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
			}()
			a.Bound(1, 0)
		}()
	}
}

// TestAdaptiveBound: a limit of one's own that is always full, while the load is 2, 0.95 and 0.5 times the target.
func TestAdaptiveBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		load, asked := 2., 0
		a := throttle.Adaptive{Load: func() float64 { asked++; return load }, Target: 1, Least: 10, Most: 100}
		var got []int
		for second := range 12 {
			switch second {
			case 4:
				load = 0.95
			case 6:
				load = 0.5
			}
			for range 10 {
				a.Bound(100, 0)
				time.Sleep(100 * time.Millisecond)
			}
			got = append(got, a.Bound(100, 0))
		}
		if want := []int{64, 51, 41, 33, 33, 33, 36, 40, 44, 48, 53, 58}; !slices.Equal(got, want) { // 80 at once
			t.Errorf("%v, want %v", got, want)
		}
		if asked > 13 {
			t.Errorf("asked %d times in 12 s", asked)
		}
	})
}

// TestAdaptiveBoundByTimes: nine of ten are to be within a second. A pool of 50 takes 2 s each while more than 20 are in use.
func TestAdaptiveBoundByTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := throttle.Adaptive{Target: 1, Most: 50}
		bound, inFlight := 50, 0
		done := make(chan time.Duration, 100)
		least := bound
		for start := time.Now(); time.Since(start) < 5*time.Minute; {
			for inFlight < bound {
				inFlight++
				took := 500 * time.Millisecond
				if inFlight > 20 {
					took = 2 * time.Second
				}
				bound = a.Bound(inFlight, 0)
				time.AfterFunc(took, func() { done <- took })
			}
			took := <-done
			bound = a.Bound(inFlight, took)
			inFlight--
			if time.Since(start) > time.Minute {
				least = min(least, bound)
			}
		}
		if bound < 15 || bound > 26 || least < 12 {
			t.Errorf("%d, and at least %d, want about 20", bound, least)
		}
	})
}

// TestAdaptiveLoadThatFails leaves the limit as it is.
func TestAdaptiveLoadThatFails(t *testing.T) {
	for name, load := range map[string]func() float64{
		"NaN": math.NaN, "-1": func() float64 { return -1 }, "panic": func() float64 { panic(errors.New("no")) },
		"infinite": func() float64 { return math.Inf(1) },
	} {
		synctest.Test(t, func(t *testing.T) {
			a := throttle.Adaptive{Load: load, Target: 1, Most: 100}
			for range 10 {
				if b := a.Bound(100, 0); b != 100 {
					t.Fatalf("%s: %d", name, b)
				}
				time.Sleep(time.Second)
			}
		})
	}
}

// rated are places where a rate may stand.
func rated(t *testing.T, lim func() throttle.Limiter) map[string]func(ctx context.Context) error {
	base := baseFunc(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r}, nil
	})
	send := func(tr *throttle.Transport) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, "GET", "http://a.example/", nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := tr.RoundTrip(req)
			if err == nil {
				res.Body.Close()
			}
			return err
		}
	}
	var held throttle.LimiterVar
	held.Set(lim())
	return map[string]func(context.Context) error{
		"Queue":      throttle.NewQueue(lim(), throttle.QueueOptions{}).Wait,
		"All":        throttle.NewQueue(throttle.All(lim(), throttle.NewBucket(1000, 1)), throttle.QueueOptions{}).Wait,
		"LimiterVar": throttle.NewQueue(&held, throttle.QueueOptions{}).Wait,
		"Limiter":    send(&throttle.Transport{Base: base, Limiter: lim()}),
		"LimiterFor": send(&throttle.Transport{Base: base, LimiterFor: func(string) throttle.Limiter { return lim() }}),
		"Meter": send(&throttle.Transport{Base: base, Meters: func(string) []throttle.Meter {
			return []throttle.Meter{{Name: "m", Limiter: lim(), Failures: true}}
		}}),
	}
}

// TestAdaptiveRate: ten callers wait all the time. The load is high for 20 s, low for 30 s, and right from then on.
func TestAdaptiveRate(t *testing.T) {
	var begin time.Time
	load := func() float64 {
		switch since := time.Since(begin); {
		case since < 20*time.Second:
			return 3
		case since < 50*time.Second:
			return 0
		}
		return 1
	}
	a := throttle.Adaptive{Load: load, Target: 1, Least: 4, Most: 40}
	for place := range rated(t, func() throttle.Limiter { return a.Rate(1) }) {
		synctest.Test(t, func(t *testing.T) {
			begin = time.Now()
			a := throttle.Adaptive{Load: load, Target: 1, Least: 4, Most: 40}
			call := rated(t, func() throttle.Limiter { return a.Rate(1) })[place]
			ctx, cancel := context.WithCancel(t.Context())
			var counts [70]atomic.Int32
			for range 10 {
				go func() {
					for call(ctx) == nil {
						counts[min(69, int(time.Since(begin).Seconds()))].Add(1)
					}
				}()
			}
			time.Sleep(70 * time.Second)
			cancel()
			synctest.Wait()
			for _, c := range []struct{ second, least, most int32 }{
				{0, 31, 41}, {2, 17, 27}, {19, 4, 5}, {30, 9, 20}, {49, 39, 41}, {68, 39, 41},
			} {
				if n := counts[c.second].Load(); n < c.least || n > c.most {
					t.Errorf("%s: %d calls in second %d, want %d to %d", place, n, c.second, c.least, c.most)
				}
			}
		})
	}
}

// TestAdaptiveRateNonsense panics.
func TestAdaptiveRateNonsense(t *testing.T) {
	for want, make := range map[string]func(){
		"Load is nil":    func() { (&throttle.Adaptive{Target: 1, Most: 1}).Rate(1) },
		"Most is 0":      func() { (&throttle.Adaptive{Target: 1, Load: throttle.CPU()}).Rate(1) },
		"Rate: burst 0 ": func() { (&throttle.Adaptive{Target: 1, Most: 1, Load: throttle.CPU()}).Rate(0) },
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, want) {
					t.Errorf("%q, want %q", text, want)
				}
			}()
			make()
		}()
	}
}

// TestAdaptiveWithoutMost: the largest int says that there is no upper end. It is not one that wraps around to Least.
func TestAdaptiveWithoutMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, load := range []float64{0, 1} {
			a := throttle.Adaptive{Load: func() float64 { return load }, Target: 1, Most: math.MaxInt}
			r := a.Rate(1)
			for range 5 {
				if wait, err := r.Take(t.Context(), 1); wait > 0 || err != nil {
					t.Errorf("load %v: a unit after %v, %v", load, wait, err)
				}
				if n := a.Bound(math.MaxInt, 0); n < math.MaxInt/2 {
					t.Errorf("load %v: %d may be in flight", load, n)
				}
				time.Sleep(time.Second / 2)
			}
		}
	})
}

// TestCPU says a share, or that it is not known.
func TestCPU(t *testing.T) {
	share := throttle.CPU()
	for start := time.Now(); time.Since(start) < 150*time.Millisecond; {
		share()
	}
	if got := share(); got <= 0 {
		t.Errorf("%v after 150 ms of work", got)
	}
}

// TestCPUAtFirst: a moment is no load. What this goroutine does while it asks would be all of a core.
func TestCPUAtFirst(t *testing.T) {
	if got := throttle.CPU()(); !math.IsNaN(got) {
		t.Errorf("%v of nothing yet, want NaN", got)
	}
}

// TestQueueAge: three calls wait for a slot, since 0, 1 and 2 s.
func TestQueueAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := throttle.NewQueue(nil, throttle.QueueOptions{MaxInFlight: 1})
		if age := q.Age(); age != 0 {
			t.Errorf("%v s before anybody waits", age)
		}
		for range 3 {
			go q.Do(t.Context(), func(context.Context) error { time.Sleep(10 * time.Second); return nil })
			time.Sleep(time.Second)
		}
		if age := q.Age(); age != 2 {
			t.Errorf("%v s, want 2: the first runs, the second came 2 s ago", age)
		}
		time.Sleep(time.Minute)
		if age := q.Age(); age != 0 {
			t.Errorf("%v s afterwards", age)
		}
	})
}
