package load

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestSourceAsksOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Source
		asked := 0.
		ask := func() float64 { asked++; return asked }
		for i := range 100 { // 10 s
			if r := s.Look(ask, time.Second); r.Load != float64(i/10+1) || r.N != uint64(i/10+1) {
				t.Fatalf("after %d00 ms: %+v", i, r)
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// TestSourceThatBlocks holds the one that asks; the others go on with the last reading.
func TestSourceThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Source
		var asking atomic.Int32
		var all sync.WaitGroup
		slow := func() float64 {
			if asking.Add(1) > 1 {
				t.Error("two ask at once")
			}
			defer asking.Add(-1)
			time.Sleep(time.Minute)
			return 7
		}
		s.Look(func() float64 { return 1 }, time.Second)
		time.Sleep(time.Second)
		for range 10 {
			all.Go(func() { s.Look(slow, time.Second) })
		}
		synctest.Wait()
		for range 50 {
			if r := s.Look(slow, time.Second); r.Load != 1 || r.N != 1 {
				t.Fatalf("while one asks: %+v", r)
			}
			time.Sleep(time.Second)
		}
		all.Wait()
		if r := s.Look(func() float64 { return 8 }, time.Second); r.Load != 8 || r.N != 3 {
			t.Errorf("afterwards: %+v", r)
		}
	})
}

// TestSourceThatFails: a panic and a Goexit say nothing, and the next one asks as ever.
func TestSourceThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Source
		if r := s.Look(func() float64 { panic("no") }, time.Second); !math.IsNaN(r.Load) || r.N != 1 {
			t.Errorf("a panic: %+v", r)
		}
		time.Sleep(time.Second)
		done := make(chan bool)
		go func() {
			defer close(done)
			s.Look(func() float64 { runtime.Goexit(); return 0 }, time.Second)
		}()
		<-done
		time.Sleep(time.Second)
		if r := s.Look(func() float64 { return 3 }, time.Second); r.Load != 3 || r.N != 3 {
			t.Errorf("afterwards: %+v", r)
		}
	})
}
