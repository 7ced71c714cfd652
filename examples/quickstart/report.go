package main

import (
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
)

// printTable prints the results, and below them a summary of each row.
func printTable(out io.Writer, results []result) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nclient\tcalls\tdelivered\t429s\twall time\tideal time\t")
	for _, r := range results {
		ideal := "unknown"
		if r.ideal >= 0 {
			ideal = seconds(r.ideal)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\t\n", r.name, r.calls, r.delivered, r.refused, seconds(r.wall), ideal)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, r := range results {
		fmt.Fprintln(out, summary(r))
	}
	fmt.Fprintln(out, "Ideal time: the shortest in which the limit admits all the calls; for a bucket, (calls - burst) / limit.")
	return nil
}

// summary returns one row in words.
func summary(r result) string {
	text := fmt.Sprintf("%s: %.4g %% delivered, %d x 429", r.name, 100*float64(r.delivered)/float64(r.calls), r.refused)
	if r.ideal > 0 && r.delivered == r.calls {
		text += fmt.Sprintf(", %.3f x ideal time", r.wall.Seconds()/r.ideal.Seconds())
	}
	if r.failure != nil {
		text += fmt.Sprintf("; the first failure: %v", r.failure)
	}
	return text
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// progress shows how many calls are over. Its methods may be called from any goroutine.
type progress interface {
	add() // one more call is over
	finish()
}

func newProgress(name string, cfg config, out io.Writer) progress {
	if cfg.bar == nil {
		return &lines{out: out, name: name, calls: cfg.calls, start: time.Now()}
	}
	return bar{progressbar.NewOptions(cfg.calls,
		progressbar.OptionSetWriter(cfg.bar),
		progressbar.OptionSetDescription(fmt.Sprintf("%-9s", name)),
		progressbar.OptionSetWidth(40),
		progressbar.OptionShowCount(),
		progressbar.OptionThrottle(50*time.Millisecond),
	), cfg.bar}
}

// bar is the progress on a terminal. A failure to draw does not end the run.
type bar struct {
	*progressbar.ProgressBar
	out io.Writer
}

func (b bar) add() { _ = b.Add(1) }

func (b bar) finish() {
	_ = b.Exit()
	fmt.Fprintln(b.out)
}

// lines is the progress in a pipe or a file: a line for every quarter of the calls.
type lines struct {
	out   io.Writer
	name  string
	calls int
	start time.Time

	mu    sync.Mutex
	over  int
	shown int // quarters printed
}

func (l *lines) add() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over++
	if quarters := 4 * l.over / l.calls; quarters > l.shown {
		l.shown = quarters
		fmt.Fprintf(l.out, "%s: %d of %d calls after %s\n", l.name, l.over, l.calls, seconds(time.Since(l.start)))
	}
}

func (l *lines) finish() {}
