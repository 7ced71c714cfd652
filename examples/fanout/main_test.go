package main

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/examples/internal/leak"
)

var small = config{tasks: 1000, rate: 5000, urgent: 10}

func TestRun(t *testing.T) {
	leak.Check(t)
	var out bytes.Buffer
	if err := run(t.Context(), small, &out); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &out)
	for _, want := range []string{"1000 tasks wait", "throughput", "tasks: 1000 of 1000 started"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output does not say %q", want)
		}
	}
}

// TestOrder checks what the log says of a run, with bounds that a slow machine holds too.
func TestOrder(t *testing.T) {
	leak.Check(t)
	queue := throttle.NewQueue(throttle.NewLeaky(rate.Limit(small.rate)), throttle.QueueOptions{})
	queue.Pause(time.Hour)
	started := &log{}
	before := runtime.NumGoroutine()
	group := submit(t.Context(), small, queue, started)
	if got := queue.Stats().Waiting; got != small.tasks {
		t.Errorf("%d tasks wait, want %d", got, small.tasks)
	}
	// How many run at once later depends on the machine. That waiting tasks have no goroutine does not.
	if got := runtime.NumGoroutine() - before; got > 2 {
		t.Errorf("%d tasks wait with %d goroutines, want at most 2", small.tasks, got)
	}
	queue.Resume()
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := len(started.urgent); got != small.tasks {
		t.Errorf("%d tasks ran, want %d", got, small.tasks)
	}
	// 7 of 8 starts go by priority; without priorities 1 of 10 would be urgent. Goroutines may overtake one
	// another, on a busy machine by far.
	if ahead, urgent := started.order(); urgent != 100 || ahead < urgent/2 {
		t.Errorf("of %d urgent tasks %d were among the first %d, want 100 and at least half", urgent, ahead, urgent)
	}
}

// TestPoint: in full and in brief, tasks start at exactly the rate, and of the first 7 of 8 are urgent.
func TestPoint(t *testing.T) {
	for _, tasks := range []int{100_000, 10_000} {
		synctest.Test(t, func(t *testing.T) {
			cfg := config{tasks: tasks, rate: 20_000, urgent: 10, work: time.Millisecond}
			queue := throttle.NewQueue(throttle.NewLeaky(rate.Limit(cfg.rate)), throttle.QueueOptions{})
			queue.Pause(time.Hour)
			started := &log{}
			group := submit(t.Context(), cfg, queue, started)
			queue.Resume()
			if err := group.Wait(); err != nil {
				t.Fatal(err)
			}
			ahead, urgent := started.order()
			if got := started.throughput(); got < 0.999*cfg.rate || got > 1.001*cfg.rate || urgent != tasks/10 || ahead < urgent*86/100 {
				t.Errorf("%d tasks: %.0f/s, %d of %d urgent ones ahead; want %v/s and 7 of 8", tasks, got, ahead, urgent, cfg.rate)
			}
		})
	}
}

// TestInterrupted: what has started until Ctrl-C is shown, in a narrow terminal too.
func TestInterrupted(t *testing.T) {
	leak.Check(t)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	var out bytes.Buffer
	err := run(ctx, config{tasks: 20_000, rate: 1000, urgent: 10, columns: 40}, &out)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("run after an interrupt: %v, want %v", err, context.Canceled)
	}
	if !strings.Contains(out.String(), " of 20000 tasks started") && !strings.Contains(out.String(), " of 20000 started") {
		t.Errorf("the output does not say how far it came:\n%s", &out)
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > 41 {
			t.Errorf("wider than 40 columns: %s", line)
		}
	}
}

func TestNonsense(t *testing.T) {
	for _, cfg := range []config{
		{tasks: 1, rate: 1, urgent: 1},
		{tasks: 2, rate: 0, urgent: 1},
		{tasks: 2, rate: 1, urgent: 0},
		{tasks: 2, rate: 1, urgent: 1, work: -1},
	} {
		if err := run(t.Context(), cfg, &bytes.Buffer{}); err == nil {
			t.Errorf("run with %+v did not complain", cfg)
		}
	}
}
