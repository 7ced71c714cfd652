// Package micro measures what the compared libraries cost by themselves, without an upstream: time and memory
// of a call that need not wait, of one that waits, and of a key. Each run measures its reference too, so that
// ratios hold on a machine whose speed varies.
package micro

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/go-throttle/throttle/bench/client"
	"github.com/go-throttle/throttle/bench/scenario"
)

// The clients that something is compared with, or that stand for a limiter of their own.
const (
	nothing   = "http.Client"
	reference = "x/time/rate"
	uber      = "uber-go/ratelimit"
	failsafe  = "failsafe-go: retry + limiter"
	resty     = "resty"
	library   = "throttle: limit configured"
)

// plenty is a limit that nobody reaches. A float64 must still count its units one by one: the burst and the
// units of a nanosecond are far from the 2^53 where it stops.
var plenty = client.Limit{N: 1e9, Per: time.Second, Burst: 1 << 29}

// All are the scenarios, in the order of the tables.
func All() []scenario.Scenario {
	return []scenario.Scenario{overhead(), limiters(), waiters(), keys()}
}

// A work does something n times.
type work func(n int)

// A cost is the nanoseconds of one time.
type cost struct {
	wall float64 // of the quickest turn, as whatever disturbs a turn only makes it longer
	cpu  float64 // of the whole process, garbage collection included: the median turn's. 0: unknown here
}

// alone is the cost of a work that waits for nothing: its CPU, which other programs do not change much.
func (c cost) alone() float64 {
	if c.cpu > 0 {
		return c.cpu
	}
	return c.wall
}

// times measures works in turns. It has as much heap alive as a small program has, so that garbage is not
// collected more often than there.
func times(ctx context.Context, o scenario.Options, works ...work) ([]cost, error) {
	turns, length := 30, 5*time.Millisecond
	if o.Short {
		turns, length = 3, time.Millisecond
	}
	ballast := make([]byte, 64<<20)
	defer runtime.KeepAlive(ballast)
	best, cpu, n := make([]cost, len(works)), make([][]float64, len(works)), make([]int, len(works))
	for i, w := range works {
		n[i] = often(w, length)
	}
	for range turns {
		for i, w := range works {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			before := CPUTime()
			wall := took(w, n[i])
			cpu[i] = append(cpu[i], float64(CPUTime()-before)/float64(n[i]))
			if best[i].wall == 0 || wall < best[i].wall {
				best[i].wall = wall
			}
		}
	}
	for i := range best {
		slices.Sort(cpu[i])
		best[i].cpu = cpu[i][len(cpu[i])/2]
	}
	return best, nil
}

// together does half of the times each.
func together(a, b work) work {
	return func(n int) {
		var wg sync.WaitGroup
		wg.Go(func() { a((n + 1) / 2) })
		b((n + 1) / 2)
		wg.Wait()
	}
}

// often is how often w is to be done for a turn of about that length.
func often(w work, length time.Duration) int {
	n := 100
	for {
		ns := took(w, n)
		if d := ns * float64(n); d > float64(length)/4 || n > 1<<24 {
			return max(1, int(float64(length)/ns))
		}
		n *= 2
	}
}

func took(w work, n int) float64 {
	start := time.Now()
	w(n)
	return float64(max(1, time.Since(start))) / float64(n)
}

// allocs counts the allocations of one time.
func allocs(w work) float64 {
	const n = 5000
	w(100)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w(n)
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / n
}

// heap is what lives now.
func heap() float64 {
	for range 3 { // finalizers and pools outlive one collection
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// request is a ctx like most requests': it can be cancelled, and it has a deadline, here a far one.
func request(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Hour)
}

// only fits the named clients.
func only(names ...string) func(client.Client) bool {
	return func(c client.Client) bool { return slices.Contains(names, c.Name) }
}
