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
	waiters   = 100_000
	drainRate = 100_000 // units a second: they are gone about a second after the first
)

// line is something to wait in.
type line struct {
	name string
	pkg  string // its functions' prefix in a profile
	// wait makes a limit of drainRate that owes so many seconds' units, so that nobody leaves
	// before all have come.
	wait func(debt int) func(context.Context) error
}

var waiting = []line{
	{"throttle", "github.com/go-throttle/throttle.", func(debt int) func(context.Context) error {
		bucket := throttle.NewBucket(drainRate, drainRate)
		bucket.Adjust((1 + debt) * drainRate)
		return throttle.NewQueue(bucket, throttle.QueueOptions{}).Wait
	}},
	{"rate", "golang.org/x/time/rate.", func(debt int) func(context.Context) error {
		limiter := rate.NewLimiter(drainRate, drainRate)
		for range 1 + debt {
			limiter.ReserveN(time.Now(), drainRate)
		}
		return limiter.Wait
	}},
	{"park", "-", func(debt int) func(context.Context) error { // a goroutine's own cost: no line at all
		open := make(chan struct{})
		time.AfterFunc(time.Duration(debt)*time.Second, func() { close(open) })
		return func(ctx context.Context) error {
			select {
			case <-open:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}},
}

// BenchmarkWaiters measures 100,000 goroutines that wait at once and are let go at drainRate.
//
// "cpu" is all that the process used from the first arrival to the last departure, the goroutines
// themselves included. "heap" is what a waiter keeps alive beside its stack and the runtime's
// descriptor of a goroutine (which it keeps, and so was there before); of it, "own" is what
// the package and the standard library on its behalf allocated, and the rest the runtime's list
// entries (sudogs) for a goroutine that waits on a channel.
func BenchmarkWaiters(b *testing.B) {
	for _, l := range waiting {
		b.Run("cpu/"+l.name, func(b *testing.B) {
			for b.Loop() {
				untilAllWait(b, l.reportCPU)
			}
		})
	}
	for _, l := range waiting {
		b.Run("heap/"+l.name, func(b *testing.B) {
			for b.Loop() {
				untilAllWait(b, l.reportHeap)
			}
		})
	}
}

// untilAllWait measures again if some had left before the last came. That is not the debt's fault:
// a rate.Limiter reads the clock before it locks, and so counts an interval twice when many come at
// once (golang/go#56287).
func untilAllWait(b *testing.B, measure func(*testing.B) (left int64)) {
	for range 5 {
		left := measure(b)
		if left == 0 {
			return
		}
		b.Logf("measured again: %d of %d had left before the last came", left, waiters)
	}
	b.Error("they never waited all at once")
}

func (l line) reportCPU(b *testing.B) (left int64) {
	warmUp()
	before := cpuTime(b)
	crowd := startWaiters(b, l.wait(3))
	left = crowd.left.Load()
	crowd.finish()
	used := cpuTime(b) - before
	b.ReportMetric(float64(used.Nanoseconds())/waiters, "cpu-ns/waiter")
	return left
}

func (l line) reportHeap(b *testing.B) (left int64) {
	warmUp()
	defer func(old int) { runtime.MemProfileRate = old }(runtime.MemProfileRate)
	before, ownBefore := memory(), ownBytes(l.pkg)
	runtime.MemProfileRate = 1
	crowd := startWaiters(b, l.wait(8))
	after, ownAfter := memory(), ownBytes(l.pkg)
	left = crowd.left.Load()
	crowd.finish()
	b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc))/waiters, "heap-B/waiter")
	b.ReportMetric((ownAfter-ownBefore)/waiters, "own-B/waiter")
	b.ReportMetric((float64(after.StackInuse)-float64(before.StackInuse))/waiters, "stack-B/waiter")
	return left
}

// crowd is many goroutines that wait.
type crowd struct {
	arrived, left atomic.Int64
	all           sync.WaitGroup
	cancel        context.CancelFunc
}

// startWaiters returns when all wait.
func startWaiters(b *testing.B, wait func(context.Context) error) *crowd {
	c := new(crowd)
	ctx, cancel := context.WithCancel(b.Context()) // as a request's: it can be cancelled
	c.cancel = cancel
	c.all.Add(waiters)
	waiter := func() { // one closure for all: a go statement without arguments allocates nothing
		defer c.all.Done()
		c.arrived.Add(1)
		if err := wait(ctx); err != nil {
			b.Error(err)
		}
		c.left.Add(1)
	}
	for range waiters {
		go waiter()
	}
	for c.arrived.Load() < waiters {
		time.Sleep(time.Millisecond)
	}
	awaitIdle(b)
	return c
}

// awaitIdle returns when the process does nothing: all who were on their way into the line are in it.
func awaitIdle(b *testing.B) {
	b.Helper()
	const look = 50 * time.Millisecond
	for range 100 {
		before := cpuTime(b)
		time.Sleep(look)
		if cpuTime(b)-before < look/20 {
			return
		}
	}
	b.Error("the process never rests")
}

func (c *crowd) finish() {
	c.all.Wait()
	c.cancel()
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
	runtime.GC()
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
