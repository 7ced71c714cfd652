// Cli starts a program fifty times, eight at a time, as a shell loop, cron or thirty runs of Terraform do, and shows what the
// upstream sees: first each run has a limiter of its own, then all hold one limit by a file (fleet.File).
//
// Run it from the root of the repository:
//
//	go run ./examples/cli          # about 15 seconds
//	go run ./examples/cli -brief   # 4 seconds
//
// The program is this one again (see program.go): each run makes four calls and ends. A limiter of its own never holds it:
// every run finds a full bucket. With the file a run starts where the last one stopped. Nothing else runs: no server, no
// daemon. The upstream is on the loopback interface. It admits what the bound of a fleet allows (docs/fleet.md), and what the
// runs at one time may have under way, and answers 429 above it.
//
// With -file the limit stays in a file of yours: start the example twice, and the second time there is no burst.
//
// Ctrl-C ends it, and shows what there is.
//
// Flags:
//
//	-runs      how often the program is started
//	-parallel  how many runs there are at one time
//	-limit     calls per second, of all runs together
//	-file      the file that holds the limit; empty: one that is removed afterwards
//	-brief     at most 15 runs
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-throttle/throttle/examples/internal/calls"
	"github.com/go-throttle/throttle/examples/internal/console"
	"github.com/go-throttle/throttle/throttletest"
)

// config is what the flags say.
type config struct {
	runs, parallel int
	limit          float64
	file           string

	columns int // that may be written; 0: 80
}

const (
	callsEach = 4  // of a run
	burst     = 10 // of the limit
)

func main() {
	if serve() {
		return
	}
	cfg := config{columns: console.Columns()}
	p := console.New("cli", "Cli starts a program fifty times; all runs hold one limit by a file.")
	p.Flags.IntVar(&cfg.runs, "runs", 50, "how often the program is started")
	p.Flags.IntVar(&cfg.parallel, "parallel", 8, "how many runs there are at one time")
	p.Flags.Float64Var(&cfg.limit, "limit", 20, "calls per second, of all runs together")
	p.Flags.StringVar(&cfg.file, "file", "", "the `path` of the file that holds the limit; empty: one that is removed afterwards")
	brief := p.Flags.Bool("brief", false, "at most 15 runs")
	p.Main(func(ctx context.Context, out io.Writer) error {
		if *brief {
			cfg.runs = min(cfg.runs, 15)
		}
		return run(ctx, cfg, out)
	})
}

// run starts the program with both limiters, and prints what became of its calls, after an interrupt too.
func run(ctx context.Context, cfg config, out io.Writer) error {
	if cfg.runs < 1 || cfg.parallel < 1 || cfg.parallel > 64 || !(cfg.limit >= 1 && cfg.limit <= 10_000) {
		return fmt.Errorf("-runs %d must be at least 1, -parallel %d from 1 to 64, -limit %v from 1 to 10000",
			cfg.runs, cfg.parallel, cfg.limit)
	}
	if cfg.file == "" {
		dir, err := os.MkdirTemp("", "throttle-cli-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		cfg.file = filepath.Join(dir, "limits")
	}
	intro := fmt.Sprintf("%d runs of %d calls, %d at a time; the upstream admits %v/s", cfg.runs, callsEach, cfg.parallel, cfg.limit)
	fmt.Fprintln(out, console.Fill(intro, cfg.columns, ""))
	rows := [][]string{{"each run has", "runs", "calls", "answered", "429s", "took"}}
	for _, s := range []*side{{name: "a limiter of its own"}, {name: "the limit in a file", file: cfg.file}} {
		if err := s.measure(ctx, cfg); err != nil {
			return err
		}
		rows = append(rows, s.row())
		if ctx.Err() != nil {
			break
		}
	}
	if err := console.Print(out, cfg.columns, true, rows); err != nil {
		return err
	}
	return ctx.Err()
}

// A side is the same runs with one kind of limiter.
type side struct {
	name, file string
	took       time.Duration
	tally      throttletest.Tally // what the upstream saw

	mu             sync.Mutex
	runs, answered int
	err            error // of the first run that has failed
}

// measure starts all runs, so many at a time.
func (s *side) measure(ctx context.Context, cfg config) error {
	upstream := throttletest.NewServer(throttletest.Limit{
		N: 1, Per: time.Duration(float64(time.Second) / cfg.limit), Burst: burst + 1 + int(cfg.limit/4) + cfg.parallel,
	})
	upstream.RetryAfter = time.Second
	if err := upstream.Start(); err != nil {
		return err
	}
	defer upstream.Close()
	running, stop := context.WithCancel(ctx) // the first failure ends all
	defer stop()
	began, j := time.Now(), job{Upstream: upstream.URL(), File: s.file, Limit: cfg.limit}
	calls.Each(running, cfg.runs, cfg.parallel, func() {
		if answered, err := j.start(running); !s.add(answered, err) {
			stop()
		}
	})
	s.took, s.tally = time.Since(began), upstream.Ledger().Tally()
	if ctx.Err() != nil {
		return nil // runs were killed
	}
	return s.err
}

// add counts a run, and reports whether it has ended well.
func (s *side) add(answered int, err error) (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered += answered
	if err != nil {
		if s.err == nil {
			s.err = err
		}
		return false
	}
	s.runs++
	return true
}

func (s *side) row() []string {
	return []string{
		s.name, fmt.Sprint(s.runs), fmt.Sprint(s.tally.Total()), fmt.Sprint(s.answered),
		fmt.Sprint(s.tally.Throttled), fmt.Sprintf("%.1f s", s.took.Seconds()),
	}
}
