// Package console is what the programs of the examples do alike: what -h says, how wide they write, and
// how an interrupt ends them.
package console

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/term"
)

// A Program is what the examples have in common. Its flags are defined in Flags.
type Program struct {
	Name    string // of its directory
	Purpose string // one line
	Flags   *flag.FlagSet
}

// New returns a program without flags.
func New(name, purpose string) *Program {
	return &Program{name, purpose, flag.NewFlagSet(name, flag.ContinueOnError)}
}

// Exit statuses. A signal's is 128 and its number, as shells have it.
const (
	failed      = 1
	misused     = 2
	interrupted = 128 + int(syscall.SIGINT)
	terminated  = 128 + int(syscall.SIGTERM)
)

// stopped is why ctx has ended: a signal.
type stopped struct{ signal os.Signal }

func (s stopped) Error() string { return "stopped by " + s.signal.String() }

// Main reads the flags, runs the program, and exits. The first Ctrl-C or SIGTERM ends ctx: run then shows what there
// is and returns, and the exit status is 130 or 143. The second one kills the program.
func (p *Program) Main(run func(ctx context.Context, out io.Writer) error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Stop(signals)
		if term.IsTerminal(int(os.Stderr.Fd())) {
			io.WriteString(os.Stderr, Erase) // the ^C, before anything follows it
		}
		cancel(stopped{s})
	}()
	os.Exit(p.exec(ctx, os.Args[1:], os.Stdout, os.Stderr, run))
}

// exec is Main without the process: it returns the exit status.
func (p *Program) exec(ctx context.Context, args []string, out, errs io.Writer, run func(context.Context, io.Writer) error) int {
	p.Flags.SetOutput(io.Discard) // what it prints is as wide as it likes
	columns := Columns()
	say := func(text string) { fmt.Fprintln(errs, Fill(p.Name+": "+text, columns, "  ")) }
	err := p.Flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		p.help(out, columns)
		return 0
	case err != nil:
		say(err.Error() + "; -h lists the flags")
		return misused
	case p.Flags.NArg() > 0:
		say(fmt.Sprintf("unknown argument %q; -h lists the flags", p.Flags.Arg(0)))
		return misused
	}
	err = run(ctx, out)
	switch {
	case context.Cause(ctx) == error(stopped{syscall.SIGTERM}):
		say("terminated")
		return terminated
	case ctx.Err() != nil:
		say("interrupted")
		return interrupted
	case err != nil:
		say(err.Error())
		return failed
	}
	return 0
}

// help prints the purpose, the usage line, and the flags.
func (p *Program) help(out io.Writer, columns int) {
	fmt.Fprintln(out, Fill(p.Purpose, columns, ""))
	fmt.Fprintln(out, Fill("Usage: go run ./examples/"+p.Name+" [flags]", columns, "  "))
	p.Flags.VisitAll(func(f *flag.Flag) {
		value, text := flag.UnquoteUsage(f)
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0s" {
			text += " (default " + f.DefValue + ")"
		}
		fmt.Fprintln(out, "\n"+strings.TrimRight("  -"+f.Name+" "+value, " "))
		fmt.Fprintln(out, Fill("      "+text, columns, "      "))
	})
}

// Erase moves to the left edge of a terminal and clears the line.
const Erase = "\r\x1b[K"

// Columns says how wide a program may write: at most 80, or as many as COLUMNS or the terminal says.
func Columns() int {
	const least = 20
	n, err := strconv.Atoi(os.Getenv("COLUMNS"))
	if err != nil || n < 1 {
		if n, _, err = term.GetSize(int(os.Stdout.Fd())); err != nil || n < 1 {
			n = defaultColumns
		}
	}
	return max(least, min(n, defaultColumns))
}

// Terminal tells whether both outputs are one, so that a program may draw.
func Terminal() bool {
	return term.IsTerminal(int(os.Stdout.Fd())) && term.IsTerminal(int(os.Stderr.Fd()))
}
