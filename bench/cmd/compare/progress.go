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

func newProgress(runs, columns int, bar, out io.Writer) progress {
	const named, beside = 30, 30 + 34 // a scenario's name; that and "100% || (1000/1000) [59m59s] "
	if bar == nil || columns < beside+10 {
		return &printed{runs: runs, columns: columns, out: out}
	}
	return drawn{progressbar.NewOptions(runs,
		progressbar.OptionSetWriter(bar),
		progressbar.OptionSetDescription(fmt.Sprintf("%-*s", named, "")),
		progressbar.OptionSetWidth(columns-beside),
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

// end removes the bar: tables follow.
func (d drawn) end() {
	_ = d.bar.Exit()
	fmt.Fprint(d.out, erase)
}

// printed is the progress in a pipe or a file: a line for each run.
type printed struct {
	runs, ended int
	columns     int
	out         io.Writer
}

func (p *printed) done(j job, r *report.Run) {
	p.ended++
	failed := ""
	if r.Failed != "" {
		failed = ": failed: " + r.Failed
	}
	text := fmt.Sprintf("%d/%d %s, %s, %s time, no. %d%s", p.ended, p.runs, j.scenario.Name, j.client.Name, j.mode, j.rep, failed)
	fmt.Fprintln(p.out, report.Wrap(text, p.columns))
}

func (p *printed) end() {}
