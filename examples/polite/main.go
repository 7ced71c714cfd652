// Polite calls a URL a few times and shows what the upstream says about its limits, and how the
// client adapts. The client knows no limit: whatever it keeps, it has learned.
//
// Run it from the root of the repository:
//
//	go run ./examples/polite -url https://api.example.com/v1/things
//	go run ./examples/polite
//
// On a terminal it draws a table that follows the run; elsewhere it prints a line when something
// happens. Either way the table stands at the end:
//
//	told by     the header field that told the limit, or "refusals" if it was found from them alone
//	remaining   what is left of it, as told last, until it resets
//	pace        units per second that follow from it
//	gate        open, or closed for how long and why: told (by Retry-After), throttled (refused, no
//	            time told), failing (no good answer any more)
//
// "-" stands for what was not told. Without -url it starts an upstream of its own on the loopback
// interface: 10 calls a second and 20 at once, told as -tell says; above that it refuses with 429
// and Retry-After: 1.
//
// It is careful with an upstream that is not its own: few calls, few at once, no redirect is
// followed, and it ends with the first call that gets no answer. Ctrl-C ends it too.
//
// Flags:
//
//	-url      where to send the calls, with GET; empty: the embedded upstream
//	-n        how many calls
//	-workers  how many of them may be under way at once
//	-tell     how the embedded upstream tells its limit: draft-8, x-ratelimit or none
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/term"

	"github.com/go-throttle/throttle/examples/internal/calls"
	"github.com/go-throttle/throttle/examples/internal/upstream"
)

// config is what the flags say.
type config struct {
	url     string
	calls   int
	workers int
	limit   upstream.Limit // of the embedded upstream

	width func() int // columns of the terminal that the table is drawn on; nil: print lines instead
}

func main() {
	cfg := config{limit: upstream.Limit{Rate: 10, Burst: 20, RetryAfter: time.Second}}
	if terminal := int(os.Stdout.Fd()); term.IsTerminal(terminal) {
		cfg.width = func() int { return width(terminal) }
	}
	flag.StringVar(&cfg.url, "url", "", "where to send the calls, with GET; empty: an embedded upstream")
	flag.IntVar(&cfg.calls, "n", 60, "how many calls")
	flag.IntVar(&cfg.workers, "workers", 4, "how many of them may be under way at once")
	flag.StringVar((*string)(&cfg.limit.Tell), "tell", string(upstream.TellRateLimit),
		"how the embedded upstream tells its limit: draft-8, x-ratelimit or none")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, cfg, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "polite:", err)
		os.Exit(1)
	}
}

// width is the number of columns of a terminal.
func width(terminal int) int {
	columns, _, err := term.GetSize(terminal)
	if err != nil {
		return 80
	}
	return columns
}

// run makes the calls, shows them, and prints the table. To be interrupted is no error.
func run(ctx context.Context, cfg config, out io.Writer) error {
	if err := cfg.check(); err != nil {
		return err
	}
	if cfg.url == "" {
		server, err := upstream.Start(cfg.limit)
		if err != nil {
			return err
		}
		defer server.Close()
		cfg.url = server.URL
	}
	s := newSession(cfg)
	defer s.pool.CloseIdleConnections()
	v := newView(s, out)
	err := s.send(ctx, v)
	v.finish()
	if s.progress().over == 0 && err != nil {
		return err // there is nothing to show
	}
	fmt.Fprintln(out)
	if printErr := s.print(out); printErr != nil {
		return printErr
	}
	if err == nil && ctx.Err() != nil {
		fmt.Fprintln(out, "interrupted")
	}
	return err
}

// check says what is wrong with the flags.
func (c config) check() error {
	if c.calls < 1 || c.workers < 1 {
		return fmt.Errorf("-n %d and -workers %d must be at least 1", c.calls, c.workers)
	}
	if c.url == "" {
		return nil
	}
	return calls.CheckURL(c.url)
}
