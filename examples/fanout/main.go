// Fanout runs 100,000 tasks through a leaky bucket, some of them urgent. It prints how close to the rate it
// came, how many of the urgent tasks went first, and how many goroutines there were.
//
// Run it from the root of the repository:
//
//	go run ./examples/fanout
//
// The tasks go to a throttle.Group, which starts the goroutine of a task only when the task's turn has come.
// All of them wait before the first one starts, so that the order can be judged; your own program would not
// pause the queue for that.
//
// Flags:
//
//	-tasks   how many tasks
//	-rate    how many may start per second, evenly spaced
//	-urgent  one task in so many is urgent
//	-work    how long each task takes
//	-brief   at most 10,000 tasks
package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/examples/internal/console"
)

// config is what the flags say.
type config struct {
	tasks  int
	rate   float64
	urgent int
	work   time.Duration

	columns int // that may be written; 0: 80
}

func main() {
	cfg := config{columns: console.Columns()}
	p := console.New("fanout", "Fanout runs 100,000 tasks, some of them urgent, through a leaky bucket.")
	p.Flags.IntVar(&cfg.tasks, "tasks", 100_000, "how many tasks")
	p.Flags.Float64Var(&cfg.rate, "rate", 20_000, "how many may start per second, evenly spaced")
	p.Flags.IntVar(&cfg.urgent, "urgent", 10, "one task in so many is urgent")
	p.Flags.DurationVar(&cfg.work, "work", time.Millisecond, "how long each task takes")
	brief := p.Flags.Bool("brief", false, "at most 10,000 tasks")
	p.Main(func(ctx context.Context, out io.Writer) error {
		if *brief {
			cfg.tasks = min(cfg.tasks, 10_000)
		}
		return run(ctx, cfg, out)
	})
}

// run submits the tasks, lets them go, and prints what it saw, if need be of those that have started.
func run(ctx context.Context, cfg config, out io.Writer) error {
	if cfg.tasks < 2 || !(cfg.rate > 0) || cfg.urgent < 1 || cfg.work < 0 {
		return fmt.Errorf("-tasks %d must be at least 2, -rate %v above 0, -urgent %d at least 1 and -work %v not negative",
			cfg.tasks, cfg.rate, cfg.urgent, cfg.work)
	}
	queue := throttle.NewQueue(throttle.NewLeaky(rate.Limit(cfg.rate)), throttle.QueueOptions{})
	queue.Pause(time.Hour)
	started := &log{urgent: make([]bool, 0, cfg.tasks)}
	group := submit(ctx, cfg, queue, started)
	fmt.Fprintf(out, "%d tasks wait, %d goroutines\n", queue.Stats().Waiting, runtime.NumGoroutine())
	queue.Resume()
	err := group.Wait()
	started.print(out, cfg)
	return err
}

// submit adds all tasks to a new group. It does not block.
func submit(ctx context.Context, cfg config, queue *throttle.Queue, started *log) *throttle.Group {
	group, ctx := throttle.NewGroup(ctx, queue)
	urgentCtx := throttle.WithPriority(ctx, 1)
	for i := range cfg.tasks {
		taskCtx, urgent := ctx, i%cfg.urgent == 0
		if urgent {
			taskCtx = urgentCtx
		}
		group.Go(taskCtx, func(ctx context.Context) error {
			started.add(urgent)
			return work(ctx, cfg.work)
		})
	}
	return group
}

// work takes the place of whatever a task does.
func work(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// log notes how the tasks started.
type log struct {
	mu     sync.Mutex
	first  time.Time
	last   time.Time
	urgent []bool // in the order of the starts
	peak   int    // the most goroutines that a task saw
}

// add notes the start of a task, from its own goroutine.
func (l *log) add(urgent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = time.Now()
	if l.first.IsZero() {
		l.first = l.last
	}
	l.urgent = append(l.urgent, urgent)
	l.peak = max(l.peak, runtime.NumGoroutine())
}

// throughput is the number of starts per second, from the first to the last.
func (l *log) throughput() float64 {
	return float64(len(l.urgent)-1) / l.last.Sub(l.first).Seconds()
}

// order counts the urgent tasks, and how many of them were among as many first starts.
func (l *log) order() (ahead, urgent int) {
	for _, u := range l.urgent {
		if u {
			urgent++
		}
	}
	for _, u := range l.urgent[:urgent] {
		if u {
			ahead++
		}
	}
	return ahead, urgent
}

func (l *log) print(out io.Writer, cfg config) {
	if len(l.urgent) < 2 {
		fmt.Fprintf(out, "%d of %d tasks started\n", len(l.urgent), cfg.tasks)
		return
	}
	ahead, urgent := l.order()
	for _, line := range []string{
		fmt.Sprintf("tasks: %d of %d started", len(l.urgent), cfg.tasks),
		fmt.Sprintf("throughput: %.0f tasks/s, %.2f %% of the rate of %v/s", l.throughput(), 100*l.throughput()/cfg.rate, cfg.rate),
		fmt.Sprintf("order: of the first %d starts %d were urgent (%.1f %%); every 8th goes to the longest waiting task",
			urgent, ahead, 100*float64(ahead)/float64(max(1, urgent))),
		fmt.Sprintf("peak goroutines: %d", l.peak),
	} {
		fmt.Fprintln(out, console.Fill(line, cfg.columns, "  "))
	}
}
