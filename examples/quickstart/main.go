// Quickstart sends the same few hundred calls through a bare http.Client and through one with a throttled
// Transport, to an upstream that enforces a limit, and prints what became of them.
//
// Run it from the root of the repository:
//
//	go run ./examples/quickstart
//
// Without flags it starts an upstream of its own on the loopback interface. That one admits the rate of
// -limit, with twice its burst (more at high rates, see embedded), and sends a 429 with Retry-After: 1 to what
// exceeds that. Every time and count is measured, the 429s by the upstream itself; only the ideal time is
// computed. To aim it at a server of yours:
//
//	go run ./examples/quickstart -url http://localhost:8080/ -limit "50/s burst 5" -calls 200
//
// Flags:
//
//	-url      where to send the calls, with GET; empty: the embedded upstream
//	-limit    the limit to keep, as throttle.ParseLimit reads it
//	-calls    how many calls each client sends
//	-workers  how many of them may be under way at once
//	-bare     with -url: send the calls through the bare client too, at full speed; ask its owner first
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"golang.org/x/term"

	"github.com/go-throttle/throttle/examples/internal/calls"
)

// config is what the flags say.
type config struct {
	url     string
	limit   string
	calls   int
	workers int
	bare    bool

	slack int       // by how much the embedded upstream's burst exceeds the client's; 0: see embedded
	bar   io.Writer // a terminal, for a progress bar; nil: print lines instead
}

func main() {
	var cfg config
	if term.IsTerminal(int(os.Stdout.Fd())) && term.IsTerminal(int(os.Stderr.Fd())) {
		cfg.bar = os.Stderr
	}
	flag.StringVar(&cfg.url, "url", "", "where to send the calls, with GET; empty: an embedded upstream")
	flag.StringVar(&cfg.limit, "limit", "100/s burst 10", "the limit to keep, as throttle.ParseLimit reads it")
	flag.IntVar(&cfg.calls, "calls", 400, "how many calls each client sends")
	flag.IntVar(&cfg.workers, "workers", 32, "how many of them may be under way at once")
	flag.BoolVar(&cfg.bare, "bare", false, "with -url: send the calls through the bare client too, at full speed; ask its owner first")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, cfg, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// run measures the clients one after the other and prints the table. The throttled client goes first, so that
// an upstream that is not ours still has all of its burst.
func run(ctx context.Context, cfg config, out io.Writer) error {
	if cfg.calls < 1 || cfg.workers < 1 {
		return fmt.Errorf("-calls %d and -workers %d must be at least 1", cfg.calls, cfg.workers)
	}
	if cfg.url != "" {
		if err := calls.CheckURL(cfg.url); err != nil {
			return err
		}
	}
	shape, err := parseShape(cfg.limit)
	if err != nil {
		return err
	}
	throttled, err := measureThrottled(ctx, cfg, shape, out)
	if err != nil {
		return err
	}
	results := []result{throttled}
	if cfg.url == "" || cfg.bare {
		bare, err := measureBare(ctx, cfg, shape, out)
		if err != nil {
			return err
		}
		results = []result{bare, throttled}
	}
	if err := printTable(out, results); err != nil {
		return err
	}
	if throttled.delivered == 0 {
		return fmt.Errorf("no call was delivered: %w", throttled.failure)
	}
	return nil
}
