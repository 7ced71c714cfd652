// Overload is a server of two cores, and clients that ask it for four times what it can do, first without and then with
// inbound.Overload in front of its handler. It prints how many of the answers came in time.
//
// Run it from the root of the repository:
//
//	go run ./examples/overload          # half a minute
//	go run ./examples/overload -brief   # some seconds
//
// A request waits for 20 ms, as for a database, and then works for 10 ms; the work goes on when its client has left, as in
// most servers. A client leaves after a second. Without Overload requests wait for each other until nobody's answer comes
// in time, although the server works all the time. With it the server answers as many as it can, and turns the others
// away at once.
//
// The server is a process of its own, which the program starts: with both in one, clients would wait for cores behind
// the server's work. On a machine with two cores, or a busy one, clients take some of what the server should have.
//
// Flags:
//
//	-load   how many times what the server can do (4)
//	-for    how long each of the two takes (15s, brief 2s)
//	-brief  a run of some seconds
//	-serve  be the server, without or with Overload, until the standard input ends
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-throttle/throttle/examples/internal/console"
)

// config is what the flags say.
type config struct {
	load    float64
	length  time.Duration // of each of the two
	columns int
	live    bool // draw while it runs
}

func main() {
	cfg := config{columns: console.Columns(), live: console.Terminal()}
	p := console.New("overload", "Overload asks a server for four times what it can do, with Overload and without.")
	p.Flags.Float64Var(&cfg.load, "load", 4, "how many times what the server can do")
	p.Flags.DurationVar(&cfg.length, "for", 0, "how long each of the two takes (default 15s, brief 2s)")
	brief := p.Flags.Bool("brief", false, "a run of some seconds")
	serve := p.Flags.String("serve", "", "be the server, \"without\" or \"with\" Overload, until the standard input ends")
	p.Main(func(ctx context.Context, out io.Writer) error {
		if *serve != "" {
			return beServer(ctx, *serve == "with", os.Stdin, out)
		}
		cfg.length = cmp.Or(cfg.length, length(*brief))
		if cfg.length <= 0 || !(cfg.load > 0) {
			return fmt.Errorf("-for %v and -load %v must be above 0", cfg.length, cfg.load)
		}
		return run(ctx, cfg, out)
	})
}

// length is how long each of the two takes.
func length(brief bool) time.Duration {
	if brief {
		return 2 * time.Second
	}
	return 15 * time.Second
}

// run has both servers asked, one after the other, and prints the table.
func run(ctx context.Context, cfg config, out io.Writer) error {
	t := table{cfg: cfg, out: out, screen: console.Screen{Out: out, Width: console.Columns}}
	fmt.Fprintln(out, console.Fill(fmt.Sprintf("A server of two cores is asked for %g times what it can do, for %v without and %v with inbound.Overload.",
		cfg.load, cfg.length, cfg.length), cfg.columns, ""))
	for _, name := range []string{"without", "with"} {
		s, err := start(ctx, name)
		if err != nil {
			return err
		}
		t.runs = append(t.runs, newClients(name, s, cfg.load))
		t.ask(ctx, t.runs[len(t.runs)-1])
		s.stop()
		if ctx.Err() != nil {
			break
		}
	}
	return t.print(out, cfg.columns)
}
