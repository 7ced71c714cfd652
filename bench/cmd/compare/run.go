package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/go-throttle/throttle/bench/report"
	"github.com/go-throttle/throttle/bench/scenario"
)

// run makes all runs, or those until ctx ends, and returns what they found.
func (p *plan) run(ctx context.Context, out io.Writer) (*report.File, error) {
	fmt.Fprintln(out, report.Wrap(fmt.Sprintf("%d scenarios, %d clients, %d runs: about %v.",
		len(p.scenarios), len(p.clients), len(p.jobs), p.estimate().Round(time.Second)), p.columns))
	f := report.New(p.short)
	f.Command = p.command()
	for _, c := range p.clients {
		f.Clients = append(f.Clients, c.Name)
	}
	if w := f.Machine.Warning(); w != "" {
		fmt.Fprintln(out, report.Wrap(w, p.columns))
	}
	progress := newProgress(len(p.jobs), p.columns, p.bar, out)
	results := make([]*report.Run, len(p.jobs))
	for phase := range phases {
		p.runPhase(ctx, phase, func(i int, r *report.Run) {
			results[i] = r
			progress.done(p.jobs[i], r)
		})
	}
	progress.end()
	for i, r := range results {
		if r != nil {
			f.Add(p.jobs[i].scenario, *r)
		}
	}
	return f, nil
}

// runPhase makes the runs of a phase, the longest first. Done is called by one goroutine at a time.
func (p *plan) runPhase(ctx context.Context, phase int, done func(int, *report.Run)) {
	var todo []int
	for i, j := range p.jobs {
		if j.phase() == phase {
			todo = append(todo, i)
		}
	}
	slices.SortStableFunc(todo, func(a, b int) int { return int(p.takes(p.jobs[b]) - p.takes(p.jobs[a])) })
	next := make(chan int, len(todo))
	for _, i := range todo {
		next <- i
	}
	close(next)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range min(p.workers(phase), len(todo)) {
		wg.Go(func() {
			for i := range next {
				if ctx.Err() != nil {
					return
				}
				r := p.once(ctx, p.jobs[i])
				mu.Lock()
				if ctx.Err() == nil { // what was cut short says nothing
					done(i, r)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// patient is how much longer than usual a run may take.
const patient = 30 * time.Second

// once makes one run. One that takes far too long, or panics, has failed.
func (p *plan) once(ctx context.Context, j job) *report.Run {
	r := &report.Run{Client: j.client.Name, Mode: j.mode, Rep: j.rep}
	patience := patient + 3*j.scenario.Takes
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	result, err := p.try(ctx, j)
	r.Values, r.Failed = result.Values, result.Failed
	switch {
	case ctx.Err() != nil:
		r.Failed = fmt.Sprintf("not done after %v", patience)
	case err != nil:
		r.Failed = err.Error()
	}
	if j.rep == 1 && result.Traffic != nil && result.Traffic.Bin > 0 {
		r.Traffic = (*report.Traffic)(result.Traffic)
	}
	if j.rep == 1 {
		r.Course = result.Course
	}
	return r
}

func (p *plan) try(ctx context.Context, j job) (result scenario.Result, err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("panic: %v", x)
		}
	}()
	o := scenario.Options{Seed: int64(j.rep), Short: p.short}
	if j.mode == report.Virtual {
		return scenario.Virtual(ctx, j.scenario, j.client, o)
	}
	if j.phase() == alone {
		runtime.GC()
	}
	return j.scenario.Run(ctx, j.client, o)
}
