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
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/go-throttle/throttle/bench/chart"
	"github.com/go-throttle/throttle/bench/fleets"
	"github.com/go-throttle/throttle/bench/report"
	"github.com/go-throttle/throttle/bench/scenario"
)

func main() {
	scenario.ServeVirtual()
	fleets.Serve()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	pressed := make(chan os.Signal, 1)
	signal.Notify(pressed, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-pressed
		signal.Stop(pressed) // the second Ctrl-C ends at once
		if term.IsTerminal(int(os.Stderr.Fd())) {
			fmt.Fprint(os.Stderr, erase) // the ^C, before anything follows it
		}
		stop()
	}()
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// command runs the program and returns its exit status, which after Ctrl-C is 130, as shells have it.
func command(ctx context.Context, args []string, out, errs io.Writer) int {
	c, err := parse(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	misused := err != nil
	if err == nil {
		if term.IsTerminal(int(os.Stdout.Fd())) && term.IsTerminal(int(os.Stderr.Fd())) {
			c.bar = errs
		}
		err = c.run(ctx, out)
	}
	if err != nil {
		fmt.Fprintln(errs, report.Wrap("compare: "+err.Error(), columns()))
	}
	switch {
	case ctx.Err() != nil:
		return 130
	case misused:
		return 2
	case err != nil:
		return 1
	}
	return 0
}

// erase moves to the left edge of a terminal and clears the line.
const erase = "\r\x1b[K"

// columns says how wide to write: at most 80, or as COLUMNS or the terminal says.
func columns() int {
	n, err := strconv.Atoi(os.Getenv("COLUMNS"))
	if err != nil || n < 1 {
		if n, _, err = term.GetSize(int(os.Stdout.Fd())); err != nil || n < 1 {
			n = 80
		}
	}
	return max(20, min(n, 80))
}

// config is what the command line says.
type config struct {
	scenario, clients string // patterns
	mode              string
	reps              int
	short, list       bool
	from, out, readme string
	parallel          int
	args              []string  // the command line
	bar               io.Writer // a terminal, for a progress bar; nil: print lines instead
	columns           int       // how wide to write
}

// parse reads the command line. With -h it prints what there is to know, and returns flag.ErrHelp.
func parse(args []string, out io.Writer) (*config, error) {
	c := &config{columns: columns(), args: args}
	fs := flag.NewFlagSet("compare", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // what it prints is as wide as it likes
	fs.StringVar(&c.scenario, "scenario", everything, "which `scenarios`: names or patterns with * and ?, separated by commas; * alone leaves out those of fleets, which need a redis-server, and of limits that adapt, which take ten minutes")
	fs.StringVar(&c.clients, "clients", "*", "which `clients`, in the same way; the oracle is one of them")
	fs.StringVar(&c.mode, "mode", "both", "`real` time, virtual time, or both")
	fs.IntVar(&c.reps, "reps", 0, "how often each client runs each scenario; 0: once in real time, three times in virtual time and where noise is great")
	fs.BoolVar(&c.short, "short", false, "a tenth of the load: a quick look whether all works")
	fs.BoolVar(&c.list, "list", false, "print scenarios and clients, and run nothing")
	fs.StringVar(&c.from, "from", "", "make tables and charts of this results `file`, and run nothing")
	fs.StringVar(&c.out, "out", "compare-out", "`directory` for compare.json, compare.md and charts")
	fs.StringVar(&c.readme, "readme", "", "bring the marked tables and charts of this Markdown `file` up to date")
	fs.IntVar(&c.parallel, "parallel", 16, "how many of the runs that mostly wait share the machine")
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		help(out, fs, c.columns)
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("%w; -h lists the flags", err)
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

// help prints the purpose, the usage line, and the flags.
func help(out io.Writer, fs *flag.FlagSet, columns int) {
	fmt.Fprintln(out, report.Wrap("Compare shows what HTTP clients do to the same upstreams.", columns))
	fmt.Fprintln(out, report.Wrap("Usage: go run ./bench/cmd/compare [flags]", columns))
	fs.VisitAll(func(f *flag.Flag) {
		value, text := flag.UnquoteUsage(f)
		if f.DefValue != "" && f.DefValue != "false" {
			text += " (default " + f.DefValue + ")"
		}
		fmt.Fprintln(out)
		entry(out, strings.TrimRight("  -"+f.Name+" "+value, " "), text, columns)
	})
}

// entry prints a name, and its text below with an indent.
func entry(out io.Writer, name, text string, columns int) {
	text = report.Wrap(text, columns-6)
	fmt.Fprintf(out, "%s\n      %s\n", name, strings.ReplaceAll(text, "\n", "\n      "))
}

// command is what to type for the same again.
func (c *config) command() string {
	words := []string{"go run ./bench/cmd/compare"}
	for _, arg := range c.args {
		if strings.ContainsAny(arg, " *?'\"") {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}

// repetitions are how often to run a scenario in a mode.
func (c *config) repetitions(s scenario.Scenario, mode string) int {
	switch {
	case c.mode != "both" && c.mode != mode, mode == report.Real && (s.Metered || s.Adapts):
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
		fmt.Fprintln(out, "Interrupted; this is what there is.")
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
	if err := f.Text(out, c.columns); err != nil {
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
		if courses, ok := chart.NewCourses(s); ok {
			if err := create(filepath.Join(c.out, s.Name+".svg"), courses.SVG); err != nil {
				return err
			}
		}
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
	fmt.Fprintln(out, "\n"+report.Wrap("Tables and charts are in "+c.out+".", c.columns))
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
