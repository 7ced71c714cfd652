package main

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/go-throttle/throttle/bench/report"
)

// progress tells how far the runs are. Its methods are called one at a time.
type progress interface {
	done(job, *report.Run)
	end()
}

func newProgress(runs int, bar, out io.Writer) progress {
	if bar == nil {
		return &printed{runs: runs, out: out}
	}
	return drawn{progressbar.NewOptions(runs,
		progressbar.OptionSetWriter(bar),
		progressbar.OptionSetDescription(fmt.Sprintf("%-30s", "")),
		progressbar.OptionSetWidth(30),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(false), // runs differ too much
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionSetRenderBlankState(true),
		progressbar.OptionThrottle(50*time.Millisecond),
	), bar}
}

// drawn is the progress on a terminal. What it fails to draw is no reason to stop.
type drawn struct {
	bar *progressbar.ProgressBar
	out io.Writer
}

func (d drawn) done(j job, _ *report.Run) {
	d.bar.Describe(fmt.Sprintf("%-30.30s", j.scenario.Name))
	_ = d.bar.Add(1)
}

func (d drawn) end() {
	_ = d.bar.Exit()
	fmt.Fprintln(d.out)
}

// printed is the progress in a pipe or a file: a line for each run.
type printed struct {
	runs, ended int
	out         io.Writer
}

func (p *printed) done(j job, r *report.Run) {
	p.ended++
	failed := ""
	if r.Failed != "" {
		failed = ": failed: " + r.Failed
	}
	fmt.Fprintf(p.out, "%d/%d %s, %s, %s time, no. %d%s\n", p.ended, p.runs, j.scenario.Name, j.client.Name, j.mode, j.rep, failed)
}

func (p *printed) end() {}
