package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/go-throttle/throttle/examples/internal/console"
)

// printTable prints the results, and below them a summary of each.
func printTable(out io.Writer, columns int, results []result) error {
	rows := [][]string{{"client", "calls", "delivered", "429s", "wall time", "ideal time"}}
	for _, r := range results {
		ideal := "unknown"
		if r.ideal >= 0 {
			ideal = seconds(r.ideal)
		}
		rows = append(rows, []string{r.name, strconv.Itoa(r.calls), strconv.Itoa(r.delivered), strconv.Itoa(r.refused), seconds(r.wall), ideal})
	}
	fmt.Fprintln(out)
	if err := console.Print(out, columns, true, rows); err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, r := range results {
		fmt.Fprintln(out, console.Fill(summary(r), columns, "  "))
	}
	_, err := fmt.Fprintln(out, console.Fill(idealTime(results), columns, ""))
	return err
}

// idealTime explains the column of that name, and why its rows differ, if they do.
func idealTime(results []result) string {
	text := "Ideal time: the shortest in which the limit admits all the calls; for a bucket, (calls - burst) / limit."
	for _, r := range results {
		if r.name == "bare" && r.ideal >= 0 && r.ideal != results[len(results)-1].ideal {
			text += " That of the bare client is by the upstream's burst, which is larger than the throttled client's:" +
				" calls that were sent evenly may arrive in a bunch."
		}
	}
	return text
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
	columns := cmp.Or(cfg.columns, 80)
	if cfg.bar == nil || columns < beside+10 {
		return &lines{out: out, name: name, calls: cfg.calls, start: time.Now()}
	}
	return bar{progressbar.NewOptions(cfg.calls,
		progressbar.OptionSetWriter(cfg.bar),
		progressbar.OptionSetDescription(fmt.Sprintf("%-9s", name)),
		progressbar.OptionSetWidth(columns-beside),
		progressbar.OptionSetPredictTime(false), // the burst would mislead it
		progressbar.OptionSetElapsedTime(false),
		progressbar.OptionShowCount(),
		progressbar.OptionThrottle(50*time.Millisecond),
	), cfg.bar}
}

// beside is the width of what is written beside a bar, as in "throttled 100% || (400000/400000) ", and one
// column for the cursor.
const beside = 34

// bar is the progress on a terminal. A failure to draw does not end the run.
type bar struct {
	*progressbar.ProgressBar
	out io.Writer
}

func (b bar) add() { _ = b.Add(1) }

// finish removes the bar, because the table says more.
func (b bar) finish() {
	_ = b.Exit()
	fmt.Fprint(b.out, console.Erase)
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
