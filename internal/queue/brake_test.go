package queue

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestBrake(t *testing.T) {
	const us, ms = time.Microsecond, time.Millisecond
	for name, c := range map[string]struct {
		gaps  []time.Duration // between refusals, each of them as often as times
		times int
		full  int // refusals that are to sleep
	}{
		"99 at once":                          {[]time.Duration{0}, 99, 0},
		"100 at once":                         {[]time.Duration{0}, 100, 1},
		"100 within a millisecond":            {[]time.Duration{10 * us}, 100, 1},
		"100 in more":                         {[]time.Duration{11 * us}, 100, 0},
		"a loop that sleeps then":             {[]time.Duration{us, ms}, 200, 301},
		"a millisecond apart":                 {[]time.Duration{ms}, 10000, 0},
		"99 at once, and slowly on":           {[]time.Duration{0, 10 * ms}, 99, 0},
		"a burst, and slowly on for a second": {[]time.Duration{0, 9 * ms}, 100, 101},
	} {
		t.Run(name, func(t *testing.T) {
			var b brake
			at, full := 5*time.Second, 0
			for i, gap := range c.gaps {
				for j := range c.times {
					if i+j > 0 {
						at += gap
					}
					if b.full(at) {
						full++
					}
				}
			}
			if full != c.full {
				t.Errorf("%d refusals sleep, want %d", full, c.full)
			}
		})
	}
}

// Each refusal is counted once, by however many goroutines.
func TestBrakeOfMany(t *testing.T) {
	var b brake
	var wg sync.WaitGroup
	var free atomic.Int64
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if !b.full(time.Second) {
					free.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := free.Load(); n != spinning-1 {
		t.Errorf("%d refusals did not sleep, want %d", n, spinning-1)
	}
}

// A loop is told from many callers at once by how long it goes on.
func TestBrakeLoops(t *testing.T) {
	var b brake
	at := 5 * time.Second
	for range 10000 {
		if b.full(at); b.loops(at) {
			t.Fatal("many at once are no loop")
		}
	}
	for at += time.Millisecond; at < 5*time.Second+spinsLong; at += time.Millisecond {
		if b.full(at); b.loops(at) {
			t.Fatalf("a loop after %v", at-5*time.Second)
		}
	}
	if b.full(at); !b.loops(at) {
		t.Error("no loop")
	}
	if at += spinEnds; b.loops(at) {
		t.Error("a loop that has ended")
	}
	for range 2 * spinning {
		if b.full(at); b.loops(at) {
			t.Fatal("a loop anew")
		}
	}
}
