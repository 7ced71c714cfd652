// Compare puts HTTP clients before the same upstreams and shows what each does to them. It prints
// tables, and leaves a results file, the tables as Markdown and charts in a directory.
//
//	go run ./bench/cmd/compare                             # all; it tells first how long it takes
//	go run ./bench/cmd/compare -list                       # scenarios and clients
//	go run ./bench/cmd/compare -scenario 'outage-*' -clients 'x/time/rate,throttle*' -mode virtual
//	go run ./bench/cmd/compare -from compare-out/compare.json   # tables and charts of an earlier run
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/term"

	"github.com/go-throttle/throttle/bench/chart"
	"github.com/go-throttle/throttle/bench/report"
	"github.com/go-throttle/throttle/bench/scenario"
)

func main() {
	scenario.ServeVirtual()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the second Ctrl-C ends at once
	c, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		if term.IsTerminal(int(os.Stdout.Fd())) && term.IsTerminal(int(os.Stderr.Fd())) {
			c.bar = os.Stderr
		}
		err = c.run(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// config is what the command line says.
type config struct {
	scenario, clients string // patterns
	mode              string
	reps              int
	short, list       bool
	from, out, readme string
	parallel          int
	bar               io.Writer // a terminal, for a progress bar; nil: print lines instead
}

func parse(args []string, errs io.Writer) (*config, error) {
	c := new(config)
	fs := flag.NewFlagSet("compare", flag.ContinueOnError)
	fs.SetOutput(errs)
	fs.StringVar(&c.scenario, "scenario", "*", "which `scenarios`: names or patterns with * and ?, separated by commas")
	fs.StringVar(&c.clients, "clients", "*", "which `clients`, in the same way; the oracle is one of them")
	fs.StringVar(&c.mode, "mode", "both", "`real` time, virtual time, or both")
	fs.IntVar(&c.reps, "reps", 0, "how often each client runs each scenario; 0: once in real time, three times in virtual time and where noise is great")
	fs.BoolVar(&c.short, "short", false, "a tenth of the load: a quick look whether all works")
	fs.BoolVar(&c.list, "list", false, "print scenarios and clients, and run nothing")
	fs.StringVar(&c.from, "from", "", "make tables and charts of this results `file`, and run nothing")
	fs.StringVar(&c.out, "out", "compare-out", "`directory` for compare.json, compare.md and charts")
	fs.StringVar(&c.readme, "readme", "", "bring the marked tables and charts of this Markdown `file` up to date")
	fs.IntVar(&c.parallel, "parallel", 16, "how many of the runs that mostly wait share the machine")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case fs.NArg() > 0:
		return nil, fmt.Errorf("unknown argument %q", fs.Arg(0))
	case c.reps < 0:
		return nil, fmt.Errorf("-reps %d: want 0 or more", c.reps)
	case c.parallel < 1:
		return nil, fmt.Errorf("-parallel %d: want 1 or more", c.parallel)
	case c.mode != "both" && c.mode != report.Real && c.mode != report.Virtual:
		return nil, fmt.Errorf("-mode %q: want real, virtual or both", c.mode)
	}
	return c, nil
}

// repetitions are how often to run a scenario in a mode.
func (c *config) repetitions(s scenario.Scenario, mode string) int {
	switch {
	case c.mode != "both" && c.mode != mode:
		return 0
	case c.reps > 0:
		return c.reps
	case mode == report.Virtual, s.Noisy:
		return 3
	}
	return 1
}

func (c *config) run(ctx context.Context, out io.Writer) error {
	if c.from != "" {
		return c.again(out)
	}
	p, err := c.plan(scenarios(), clients())
	if err != nil {
		return err
	}
	if c.list {
		return p.list(out)
	}
	f, err := p.run(ctx, out)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		fmt.Fprintln(out, "\nInterrupted; this is what there is.")
	}
	if len(f.Scenarios) == 0 {
		return errors.New("no run has ended")
	}
	if err := f.Write(filepath.Join(c.out, "compare.json")); err != nil {
		return err
	}
	return c.show(f, f, out)
}

// again shows results of an earlier run.
func (c *config) again(out io.Writer) error {
	all, err := report.Read(c.from)
	if err != nil {
		return err
	}
	f, err := report.Read(c.from)
	if err != nil {
		return err
	}
	f.Keep(matcher(c.scenario), matcher(c.clients), func(mode string) bool { return c.mode == "both" || c.mode == mode })
	if len(f.Scenarios) == 0 {
		return fmt.Errorf("%s has no such results", c.from)
	}
	return c.show(f, all, out)
}

// show prints the tables, and writes what is made of the results. A page takes what it needs from
// all of them.
func (c *config) show(f, all *report.File, out io.Writer) error {
	fmt.Fprintln(out)
	if err := f.Text(out); err != nil {
		return err
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	if err := create(filepath.Join(c.out, "compare.md"), f.Markdown); err != nil {
		return err
	}
	for i := range f.Scenarios {
		s := &f.Scenarios[i]
		for _, mode := range []string{report.Real, report.Virtual} {
			figure, ok := chart.New(s, mode)
			if !ok {
				continue
			}
			if err := create(filepath.Join(c.out, s.Name+"-"+mode+".svg"), figure.SVG); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(out, "\nTables and charts are in %s.\n", c.out)
	if c.readme == "" {
		return nil
	}
	if err := chart.Refresh(all, c.readme); err != nil {
		return err
	}
	return all.Refresh(c.readme)
}

func create(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
