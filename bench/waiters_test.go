//go:build unix

package bench

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-throttle/throttle"
	"golang.org/x/time/rate"
)

const (
	waiters      = 100_000
	drainRate    = 100_000 // units a second: they are gone about a second after the first
	arrivalDebt  = 2       // seconds that the limit is in debt for at first, so that all wait at once
	waitersBurst = arrivalDebt * drainRate / 2
)

// newWaiting are the lines to compare: each a limit of drainRate, already in debt.
var newWaiting = []struct {
	name string
	pkg  string // its functions' prefix in a profile
	wait func() func(context.Context) error
}{
	{"throttle", "github.com/go-throttle/throttle.", func() func(context.Context) error {
		bucket := throttle.NewBucket(drainRate, waitersBurst)
		bucket.Adjust(waitersBurst + arrivalDebt*drainRate)
		return throttle.NewQueue(bucket, throttle.QueueOptions{}).Wait
	}},
	{"rate", "golang.org/x/time/rate.", func() func(context.Context) error {
		limiter := rate.NewLimiter(drainRate, waitersBurst)
		for range 1 + arrivalDebt*drainRate/waitersBurst {
			limiter.ReserveN(time.Now(), waitersBurst)
		}
		return limiter.Wait
	}},
}

// BenchmarkWaiters measures 100,000 goroutines that wait at once and are let go at drainRate.
//
// "cpu" is all that the process used from the first arrival to the last departure, the goroutines
// themselves included. "heap" is what a waiter keeps alive beside its stack and the runtime's
// descriptor of a goroutine (which is never freed and so was there before); of it, "own" is what
// the package and the standard library on its behalf allocated, and the rest the runtime's list
// entries (sudogs) for a goroutine that waits on a channel.
func BenchmarkWaiters(b *testing.B) {
	for _, c := range newWaiting {
		b.Run("cpu/"+c.name, func(b *testing.B) {
			var used time.Duration
			n := 0
			for b.Loop() {
				wait := c.wait()
				runtime.GC()
				before := cpuTime(b)
				finished := startWaiters(b, wait)
				finished()
				used += cpuTime(b) - before
				n++
			}
			b.ReportMetric(float64(used.Nanoseconds())/float64(n*waiters), "cpu-ns/waiter")
		})
	}
	for _, c := range newWaiting {
		b.Run("heap/"+c.name, func(b *testing.B) {
			defer func(old int) { runtime.MemProfileRate = old }(runtime.MemProfileRate)
			var heap, stack, own float64
			n := 0
			for b.Loop() {
				runtime.MemProfileRate = 0
				warmUp()
				wait := c.wait()
				runtime.MemProfileRate = 1
				before, ownBefore := memory(), ownBytes(c.pkg)
				finished := startWaiters(b, wait)
				after, ownAfter := memory(), ownBytes(c.pkg)
				finished()
				heap += float64(after.HeapAlloc) - float64(before.HeapAlloc)
				stack += float64(after.StackInuse) - float64(before.StackInuse)
				own += ownAfter - ownBefore
				n++
			}
			b.ReportMetric(heap/float64(n*waiters), "heap-B/waiter")
			b.ReportMetric(own/float64(n*waiters), "own-B/waiter")
			b.ReportMetric(stack/float64(n*waiters), "stack-B/waiter")
		})
	}
}

// startWaiters returns when all wait; finished returns when none waits any more.
func startWaiters(b *testing.B, wait func(context.Context) error) (finished func()) {
	ctx, cancel := context.WithCancel(b.Context()) // as a request's: it can be cancelled
	var arrived atomic.Int64
	var done sync.WaitGroup
	done.Add(waiters)
	waiter := func() { // one closure for all: a go statement without arguments allocates nothing
		defer done.Done()
		arrived.Add(1)
		if err := wait(ctx); err != nil {
			b.Error(err)
		}
	}
	start := time.Now()
	for range waiters {
		go waiter()
	}
	for arrived.Load() < waiters {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond) // from the counter into the line
	if took := time.Since(start); took > arrivalDebt*time.Second {
		b.Logf("the waiters needed %v to arrive: the first had left before the last came", took)
	}
	return func() {
		done.Wait()
		cancel()
	}
}

// warmUp makes the runtime's descriptors of as many goroutines, which it keeps, and lets the
// garbage collector take what else they used.
func warmUp() {
	var wg sync.WaitGroup
	release := make(chan struct{})
	for range waiters + 100 {
		wg.Go(func() { <-release })
	}
	close(release)
	wg.Wait()
}

func memory() (m runtime.MemStats) {
	for range 3 { // the profile is two collections behind
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m
}

// ownBytes counts the live bytes that the package and what it called have allocated, without what
// the runtime needs to park a goroutine. Only what is allocated at MemProfileRate 1 is seen.
func ownBytes(pkg string) (sum float64) {
	n, _ := runtime.MemProfile(nil, false)
	records := make([]runtime.MemProfileRecord, n+1000)
	n, ok := runtime.MemProfile(records, false)
	if !ok {
		panic("the heap profile outgrew its buffer")
	}
	for _, r := range records[:n] {
		if isOwn(r.Stack(), pkg) {
			sum += float64(r.InUseBytes())
		}
	}
	return sum
}

func isOwn(stack []uintptr, pkg string) bool {
	frames := runtime.CallersFrames(stack)
	for {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.acquireSudog":
			return false
		case strings.HasPrefix(f.Function, pkg):
			return true
		case !more:
			return false
		}
	}
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
