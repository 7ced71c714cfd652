package micro

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/bench/scenario"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"
)

// drain is how many units a second the waiters are let go at.
const drain = 100_000

// indebted are limits of drain that owe so many seconds' units, so that nobody leaves before all have come.
// Its functions have that prefix in a profile.
func indebted(name string, debt int) (wait func(context.Context) error, prefix string) {
	switch name {
	case nothing:
		open := make(chan struct{})
		time.AfterFunc(time.Duration(debt)*time.Second, func() { close(open) })
		return func(ctx context.Context) error {
			select {
			case <-open:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, "-"
	case reference:
		l := rate.NewLimiter(drain, drain)
		for range 1 + debt {
			l.ReserveN(time.Now(), drain)
		}
		return l.Wait, "golang.org/x/time/rate."
	case uber:
		// Its first call sets the time from which it counts: that of a clock that is ahead.
		ahead := &aheadClock{by: time.Duration(debt) * time.Second}
		l := ratelimit.New(drain, ratelimit.WithClock(ahead))
		l.Take()
		ahead.by = 0
		return func(context.Context) error { l.Take(); return nil }, "go.uber.org/ratelimit."
	case failsafe:
		l := ratelimiter.NewSmooth[*http.Response](drain, time.Second)
		l.ReservePermits(uint(debt) * drain)
		return l.AcquirePermit, "github.com/failsafe-go/"
	case library:
		b := throttle.NewBucket(drain, drain)
		b.Adjust((1 + debt) * drain)
		return throttle.NewQueue(b, throttle.QueueOptions{}).Wait, "github.com/go-throttle/throttle."
	}
	return nil, ""
}

type aheadClock struct{ by time.Duration }

func (c *aheadClock) Now() time.Time        { return time.Now().Add(c.by) }
func (c *aheadClock) Sleep(d time.Duration) { time.Sleep(d) }

func waiters() scenario.Scenario {
	return scenario.Scenario{
		Name:  "waiters",
		Title: "100,000 goroutines that wait at once",
		About: "They are let go at 100,000 a second, and each has a far deadline. CPU is all that the process used from the first arrival to the last departure. " +
			"The ratio is to x/time/rate, measured right before and right after: what waiters cost rises with the age of the process. Of the heap, " +
			"own is what the library allocated or had the standard library allocate; the rest are the runtime's notes of who waits for which channel. " +
			"The row http.Client stands for a goroutine that waits for a channel to be closed, without any library. resty cannot be made to owe units: " +
			"its waiters poll.",
		Metrics: []scenario.Metric{
			{Name: "cpu", Title: "CPU a waiter", Unit: "µs", Better: -1, Digits: 1},
			{Name: "cpu_x", Title: "ratio", Better: -1, Digits: 2},
			{Name: "heap", Title: "heap a waiter", Unit: "B", Better: -1},
			{Name: "own", Title: "own", Unit: "B", Better: -1},
			{Name: "stack", Title: "stack", Unit: "B", Better: -1},
		},
		Takes: 13 * time.Second, Alone: true,
		Fits: only(nothing, reference, uber, failsafe, library),
		Run:  runWaiters,
	}
}

func runWaiters(ctx context.Context, c client.Client, o scenario.Options) (scenario.Result, error) {
	r := scenario.Result{Values: map[string]float64{}}
	many, some := 100_000, 20_000
	debt := 2
	if o.Short {
		many, some, debt = many/10, some/10, 1
	}
	var used [3]time.Duration
	for i, name := range []string{reference, c.Name, reference} {
		cpu, err := cpuOf(ctx, name, many, debt, o.Short)
		if err != nil {
			return r, err
		}
		used[i] = cpu
	}
	if used[1] > 0 { // the system tells it
		r.Values["cpu"] = used[1].Seconds() * 1e6 / float64(many)
		r.Values["cpu_x"] = 2 * used[1].Seconds() / (used[0] + used[2]).Seconds()
	}
	return r, bytesOf(ctx, c.Name, some, debt, o.Short, r.Values)
}

// untilAllWait measures again, with a greater debt, if more than one in a hundred had left before the last
// came, unless the run is short, whose figures mean nothing: on a busy machine, or because a rate.Limiter reads the clock before it locks, and so counts an
// interval twice when many come at once (golang/go#56287).
func untilAllWait(name string, n, debt int, short bool, measure func(debt int) (left int64, err error)) error {
	for more := range 7 {
		left, err := measure(debt + more*more)
		if err != nil || short || left <= int64(n/100) {
			return err
		}
	}
	return fmt.Errorf("micro: %s: they never waited all at once", name)
}

// cpuOf is what n waiters use, 0 where the system does not tell.
func cpuOf(ctx context.Context, name string, n, debt int, short bool) (used time.Duration, err error) {
	err = untilAllWait(name, n, debt, short, func(debt int) (int64, error) {
		warmUp(n)
		before := CPUTime()
		wait, _ := indebted(name, debt)
		crowd := gather(ctx, n, wait)
		left := crowd.left.Load()
		err := crowd.finish()
		used = CPUTime() - before
		return left, err
	})
	return used, err
}

// bytesOf is what n waiters keep alive: the stack, and beside it and the runtime's descriptor of a goroutine
// (which it keeps, and so was there before) the heap.
func bytesOf(ctx context.Context, name string, n, debt int, short bool, values map[string]float64) error {
	defer func(old int) { runtime.MemProfileRate = old }(runtime.MemProfileRate)
	return untilAllWait(name, n, debt, short, func(debt int) (int64, error) {
		warmUp(n)
		wait, prefix := indebted(name, debt)
		before, ownBefore := memory(), ownBytes(prefix)
		runtime.MemProfileRate = 1
		crowd := gather(ctx, n, wait)
		after, ownAfter := memory(), ownBytes(prefix)
		left := crowd.left.Load()
		err := crowd.finish()
		each := func(before, after uint64) float64 { return (float64(after) - float64(before)) / float64(n) }
		values["heap"] = each(before.HeapAlloc, after.HeapAlloc)
		values["stack"] = each(before.StackInuse, after.StackInuse)
		values["own"] = (ownAfter - ownBefore) / float64(n)
		return left, err
	})
}

// A crowd is many goroutines that wait.
type crowd struct {
	arrived, left, failed atomic.Int64
	all                   sync.WaitGroup
	cancel                context.CancelFunc
}

// gather returns when all wait.
func gather(ctx context.Context, n int, wait func(context.Context) error) *crowd {
	c := new(crowd)
	ctx, c.cancel = request(ctx)
	c.all.Add(n)
	waiter := func() { // one closure for all: a go statement without arguments allocates nothing
		defer c.all.Done()
		c.arrived.Add(1)
		if err := wait(ctx); err != nil {
			c.failed.Add(1)
		}
		c.left.Add(1)
	}
	for range n {
		go waiter()
	}
	for c.arrived.Load() < int64(n) {
		time.Sleep(time.Millisecond)
	}
	awaitIdle()
	return c
}

// awaitIdle returns when the process does nothing, or has not come to rest for a second: all who were on
// their way into the line are in it.
func awaitIdle() {
	const look = 50 * time.Millisecond
	for range 20 {
		before := CPUTime()
		time.Sleep(look)
		if CPUTime()-before < look/20 {
			return
		}
	}
}

func (c *crowd) finish() error {
	c.all.Wait()
	c.cancel()
	if n := c.failed.Load(); n > 0 {
		return fmt.Errorf("micro: %d waiters failed", n)
	}
	return nil
}

// warmUp makes the runtime's descriptors of as many goroutines, which it keeps, and lets the garbage
// collector take what else they used.
func warmUp(n int) {
	var wg sync.WaitGroup
	release := make(chan struct{})
	for range n + 100 {
		wg.Go(func() { <-release })
	}
	close(release)
	wg.Wait()
	runtime.GC()
}
