package throttle_test

import (
	"errors"
	"math"
	"slices"
	"strings"
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
