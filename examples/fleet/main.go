// Fleet lets four processes share one limit, kills one, and lets Redis hang for a while. It prints what the
// upstream saw.
//
// Run it from the root of the repository:
//
//	go run ./examples/fleet          # about half a minute
//	go run ./examples/fleet -brief   # ten seconds
//	go run ./examples/fleet -redis redis://:secret@localhost:6379/0
//
// It starts a redis-server on the loopback interface, an upstream with a limit, and four times itself. Each process
// makes as many calls as it may, through a Transport whose limiter is shared (package fleet, module throttleredis).
// What happens then:
//
//	4 processes            they use the limit together, in equal parts
//	process 3 is killed    (kill -9) what it holds expires, and the others use its part
//	process 3 runs again   it has a part again
//	Redis hangs            it answers nobody; each process uses 0.8 of its part by itself
//	Redis goes on          they share again
//
// The upstream admits what the fleet's bound allows (docs/fleet.md), and sends a 429 above it. Without a
// redis-server and without -redis the processes are goroutines, and the store is in memory.
//
// Between the processes and Redis stands a pipe of this program, which stops passing bytes when Redis is to hang. So
// -redis may point at any Redis: nobody else notices. The limit has a random name there, and its key expires a
// minute later.
//
// On a terminal it draws a table that follows the run; elsewhere it prints a line when something happens.
// Ctrl-C ends it, and shows what there is.
//
// Flags:
//
//	-redis      the URL of a Redis that is there; empty: start one
//	-limit      calls per second, all processes together
//	-processes  how many
//	-brief      a run of ten seconds
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/go-throttle/throttle/examples/internal/console"
	"github.com/go-throttle/throttle/throttletest"
)

// config is what the flags say.
type config struct {
	redis     string
	limit     float64
	processes int
	each      time.Duration // how long a phase lasts at least

	inMemory bool          // do not look for a Redis
	patience time.Duration // how much longer a phase may last, until what it shows has happened
	columns  int           // that may be written; 0: 80
	width    func() int    // columns of the terminal that the table is drawn on; nil: print lines instead
}

// burst is how many calls may go at once when nobody has called for a while.
const burst = 10

func main() {
	if serve() {
		return
	}
	cfg := config{patience: time.Minute, columns: console.Columns()}
	if console.Terminal() {
		cfg.width = console.Columns
	}
	p := console.New("fleet", "Fleet lets processes share one limit, kills one, and lets Redis hang.")
	p.Flags.StringVar(&cfg.redis, "redis", "", "the `URL` of a Redis that is there, as redis://user:password@host:port/db; empty: start one")
	p.Flags.Float64Var(&cfg.limit, "limit", 100, "calls per second, all processes together")
	p.Flags.IntVar(&cfg.processes, "processes", 4, "how many processes share the limit")
	brief := p.Flags.Bool("brief", false, "a run of ten seconds")
	p.Main(func(ctx context.Context, out io.Writer) error {
		cfg.each = each(*brief)
		return run(ctx, cfg, out)
	})
}

// each is how long a phase lasts at least.
func each(brief bool) time.Duration {
	if brief {
		return 2 * time.Second
	}
	return 5 * time.Second
}

// check returns an error for flags that make no sense.
func (c *config) check() error {
	switch {
	case !(c.limit >= 1 && c.limit <= 10_000):
		return fmt.Errorf("-limit %v must be from 1 to 10000", c.limit)
	case c.processes < 2 || c.processes > 64:
		return fmt.Errorf("-processes %d must be from 2 to 64", c.processes)
	}
	if c.redis != "" && !strings.Contains(c.redis, "://") {
		c.redis = "redis://" + c.redis
	}
	return nil
}

// upstream admits what the bound of the fleet allows: the burst, and what is used up to 250 ms after its date. A tenth
// of a second's calls is for the way here, on a busy machine.
func (c *config) upstream() *throttletest.Server {
	s := throttletest.NewServer(throttletest.Limit{
		N: 1, Per: time.Duration(float64(time.Second) / c.limit), Burst: burst + 1 + int(c.limit*0.35),
	})
	s.RetryAfter = time.Second
	s.Identify = whose
	return s
}

// run tells the story and prints the tables, after an interrupt too.
func run(ctx context.Context, cfg config, out io.Writer) error {
	if err := cfg.check(); err != nil {
		return err
	}
	place, note, err := newPlace(ctx, cfg.redis, cfg.inMemory)
	if err != nil {
		return err
	}
	defer place.close()
	if note != "" {
		fmt.Fprintln(out, console.Fill(note, cfg.columns, "  "))
	}
	s := &story{cfg: cfg, place: place, upstream: cfg.upstream()}
	if err := s.upstream.Start(); err != nil {
		return err
	}
	defer s.upstream.Close()
	s.job = job{Upstream: s.upstream.URL(), Name: fmt.Sprintf("example-%x", rand.Uint64()), Limit: cfg.limit, Burst: burst}
	fmt.Fprintln(out, console.Fill(fmt.Sprintf("%d processes share %v calls/s, %v", cfg.processes, cfg.limit, place), cfg.columns, ""))
	view := newView(s, out)
	err = s.tell(ctx, view)
	s.endAll()
	view.finish()
	fmt.Fprintln(out)
	if printErr := s.print(out, cfg.columns); printErr != nil {
		return printErr
	}
	return cmp.Or(err, ctx.Err())
}
