// Polite calls a URL a few times and shows what the upstream says about its limits, and how the client adapts.
// The client knows no limit: every limit that it keeps, it has learned.
//
// Run it from the root of the repository:
//
//	go run ./examples/polite -url https://api.example.com/v1/things
//	go run ./examples/polite
//
// On a terminal it draws a table that follows the run; elsewhere it prints a line when something happens. At
// the end it prints the table either way:
//
//	source      the header field that advertises the limit, or "throttled" for a rate found from 429s alone
//	remaining   what is left of the limit, as last advertised, until it resets
//	pace        the units per second that follow from it
//	gate        open, or for how long it is closed and why: retry-after, throttled (a 429 without a
//	            Retry-After), or failing (the upstream keeps failing)
//
// "-" stands for unknown. Without -url it starts an upstream of its own on the loopback interface. That one
// admits 10 calls a second and 20 at once, and advertises this as -tell says. Above that it sends a 429 with
// Retry-After: 1.
//
// Polite is careful with an upstream that is not its own: it makes few calls, few of them at once, follows no
// redirect, and ends with the first call that gets no response. Ctrl-C ends it too.
//
// Flags:
//
//	-url      where to send the calls, with GET; empty: the embedded upstream
//	-n        how many calls
//	-workers  how many of them may be under way at once
//	-tell     how the embedded upstream advertises its limit: draft-8, x-ratelimit or none
//	-brief    at most 40 calls
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-throttle/throttle/examples/internal/calls"
	"github.com/go-throttle/throttle/examples/internal/console"
	"github.com/go-throttle/throttle/throttletest"
)

// config is what the flags say.
type config struct {
	url     string
	calls   int
	workers int
	limit   throttletest.Limit // of the embedded upstream
	tell    string             // how that advertises it: draft8, xRateLimit or silent

	bubble  bool       // the embedded upstream is called without sockets, so that a test need not wait
	columns int        // that may be written; 0: 80
	width   func() int // columns of the terminal that the table is drawn on; nil: print lines instead
}

// The names of the dialects that -tell knows.
const (
	draft8     = "draft-8"
	xRateLimit = "x-ratelimit"
	silent     = "none"
)

// dialect returns the dialect of a name.
func dialect(name string) (d throttletest.Dialect, ok bool) {
	switch name {
	case draft8:
		return throttletest.Draft08, true
	case xRateLimit:
		return throttletest.XEpoch, true
	}
	return nil, name == silent
}

func main() {
	cfg := config{limit: throttletest.Limit{N: 10, Burst: 20}, columns: console.Columns()}
	if console.Terminal() {
		cfg.width = console.Columns
	}
	p := console.New("polite", "Polite shows what a URL says about its limits, and how a client adapts.")
	p.Flags.StringVar(&cfg.url, "url", "", "where to send the calls, with GET; empty: an embedded upstream")
	p.Flags.IntVar(&cfg.calls, "n", 60, "how many calls")
	p.Flags.IntVar(&cfg.workers, "workers", 4, "how many of them may be under way at once")
	p.Flags.StringVar(&cfg.tell, "tell", draft8, "how the embedded upstream advertises its limit: draft-8, x-ratelimit or none")
	brief := p.Flags.Bool("brief", false, "at most 40 calls")
	p.Main(func(ctx context.Context, out io.Writer) error {
		return run(ctx, cfg.short(*brief), out)
	})
}

// short is the config of a run that is brief, or as it was.
func (c config) short(brief bool) config {
	if brief {
		c.calls = min(c.calls, 40)
	}
	return c
}

// run makes the calls, shows them, and prints the table, after an interrupt too.
func run(ctx context.Context, cfg config, out io.Writer) error {
	if err := cfg.check(); err != nil {
		return err
	}
	var base http.RoundTripper
	if cfg.url == "" {
		server := throttletest.NewServer(cfg.limit)
		server.RetryAfter = time.Second
		server.Advertise.Dialect, _ = dialect(cfg.tell)
		if cfg.bubble {
			base = server
		} else if err := server.Start(); err != nil {
			return err
		}
		defer server.Close()
		cfg.url = server.URL()
	} else if err := calls.Reach(ctx, cfg.url); err != nil {
		return err
	}
	s := newSession(cfg)
	defer s.pool.CloseIdleConnections()
	if base != nil {
		s.transport.Base = base
	}
	v := newView(s, out)
	err := s.send(ctx, v)
	v.finish()
	if s.progress().over == 0 && err != nil {
		return err // there is nothing to show
	}
	fmt.Fprintln(out)
	if printErr := s.print(out, cfg.columns); printErr != nil {
		return printErr
	}
	return cmp.Or(err, ctx.Err())
}

// check returns an error for flags that make no sense.
func (c config) check() error {
	if c.calls < 1 || c.workers < 1 {
		return fmt.Errorf("-n %d and -workers %d must be at least 1", c.calls, c.workers)
	}
	if c.url == "" {
		if _, ok := dialect(c.tell); !ok {
			return fmt.Errorf("-tell %q is none of %s, %s, %s", c.tell, draft8, xRateLimit, silent)
		}
		return nil
	}
	return calls.CheckURL(c.url)
}
