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
//	-brief    at most 100 calls
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/go-throttle/throttle/examples/internal/calls"
	"github.com/go-throttle/throttle/examples/internal/console"
)

// config is what the flags say.
type config struct {
	url     string
	limit   string
	calls   int
	workers int
	bare    bool

	bubble bool // the embedded upstream is called without sockets, so that a test need not wait

	slack int       // by how much the embedded upstream's burst exceeds the client's; 0: see embedded
	bar   io.Writer // a terminal, for a progress bar; nil: print lines instead

	columns int // that may be written; 0: 80
}

func main() {
	cfg := config{columns: console.Columns()}
	if console.Terminal() {
		cfg.bar = os.Stderr
	}
	p := console.New("quickstart", "Quickstart sends the same calls with and without throttle and counts the 429s.")
	p.Flags.StringVar(&cfg.url, "url", "", "where to send the calls, with GET; empty: an embedded upstream")
	p.Flags.StringVar(&cfg.limit, "limit", "100/s burst 10", "the limit to keep, as throttle.ParseLimit reads it")
	p.Flags.IntVar(&cfg.calls, "calls", 400, "how many calls each client sends")
	p.Flags.IntVar(&cfg.workers, "workers", 32, "how many of them may be under way at once")
	p.Flags.BoolVar(&cfg.bare, "bare", false, "with -url: send the calls through the bare client too, at full speed; ask its owner first")
	brief := p.Flags.Bool("brief", false, "at most 100 calls")
	p.Main(func(ctx context.Context, out io.Writer) error {
		return run(ctx, cfg.short(*brief), out)
	})
}

// short is the config of a run that is brief, or as it was.
func (c config) short(brief bool) config {
	if brief {
		c.calls = min(c.calls, 100)
	}
	return c
}

// run measures the clients one after the other and prints the table, after an interrupt what there is of it.
// The throttled client goes first, so that an upstream that is not ours still has all of its burst.
func run(ctx context.Context, cfg config, out io.Writer) error {
	if cfg.calls < 1 || cfg.workers < 1 {
		return fmt.Errorf("-calls %d and -workers %d must be at least 1", cfg.calls, cfg.workers)
	}
	shape, err := parseShape(cfg.limit)
	if err != nil {
		return err
	}
	if cfg.url != "" {
		if err := calls.CheckURL(cfg.url); err != nil {
			return err
		}
		if err := calls.Reach(ctx, cfg.url); err != nil {
			return err
		}
	}
	throttled, err := measureThrottled(ctx, cfg, shape, out)
	if err != nil {
		return err
	}
	results := []result{throttled}
	if ctx.Err() == nil && (cfg.url == "" || cfg.bare) {
		bare, err := measureBare(ctx, cfg, shape, out)
		if err != nil {
			return err
		}
		results = []result{bare, throttled}
	}
	if err := printTable(out, cfg.columns, results); err != nil {
		return err
	}
	if throttled.delivered == 0 && ctx.Err() == nil {
		return fmt.Errorf("no call was delivered: %w", throttled.failure)
	}
	return ctx.Err()
}
