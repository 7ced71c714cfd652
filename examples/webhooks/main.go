// Webhooks lets 200 senders deliver events to an endpoint that goes down for a while and comes back weaker,
// with and without throttle. It prints what the endpoint saw.
//
// Run it from the root of the repository:
//
//	go run ./examples/webhooks          # about half a minute
//	go run ./examples/webhooks -brief   # a few seconds
//
// The endpoint promises -capacity deliveries a second and usually takes five times as many. While it is down
// it sends 503s. After its return it takes only what it promised, and sends a 429 with Retry-After: 1 to the
// rest. Both clients deliver the same events at the same time, each to an endpoint of its own:
//
//	plain      an http.Client, and for each delivery a retry loop with the default exponential
//	           backoff of cenkalti/backoff; it knows no limit
//	throttled  an http.Client with a throttled Transport and the promised limit; no loop at all
//
// Each delivery has an Idempotency-Key, so that it may be sent again after a 503. Its body can be sent again,
// because http.NewRequest sets GetBody for a bytes.Reader.
//
// Flags:
//
//	-senders   goroutines that deliver; each has one delivery under way at a time
//	-rate      deliveries that fall due per second, all senders together
//	-capacity  deliveries per second that the endpoint promises
//	-down      when it goes down, counted from the start (3s, brief 500ms)
//	-outage    for how long (7s, brief 2s)
//	-due       for how long deliveries fall due, counted from the start (24s, brief 4s)
//	-end       when the run ends, delivered or not (40s, brief 10s)
//	-brief     a run of a few seconds
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-throttle/throttle/examples/internal/console"
)

// config is what the flags say.
type config struct {
	senders  int
	rate     float64
	capacity float64
	down     time.Duration
	outage   time.Duration
	due      time.Duration
	end      time.Duration

	bubble  bool // the endpoints are called without sockets, so that a test need not wait
	columns int  // that may be written; 0: 80
}

// withDefaults fills the times that are 0.
func (c config) withDefaults(brief bool) config {
	if brief {
		c.end = cmp.Or(c.end, 10*time.Second)
		c.due = cmp.Or(c.due, 4*time.Second)
		c.outage = cmp.Or(c.outage, 2*time.Second)
		c.down = cmp.Or(c.down, 500*time.Millisecond)
	}
	c.end = cmp.Or(c.end, 40*time.Second)
	c.due = cmp.Or(c.due, 24*time.Second)
	c.outage = cmp.Or(c.outage, 7*time.Second)
	c.down = cmp.Or(c.down, 3*time.Second)
	return c
}

func main() {
	cfg := config{columns: console.Columns()}
	p := console.New("webhooks", "Webhooks delivers events to an endpoint that goes down and comes back weaker.")
	p.Flags.IntVar(&cfg.senders, "senders", 200, "goroutines that deliver; each has one delivery under way at a time")
	p.Flags.Float64Var(&cfg.rate, "rate", 60, "deliveries that fall due per second, all senders together")
	p.Flags.Float64Var(&cfg.capacity, "capacity", 100, "deliveries per second that the endpoint promises")
	p.Flags.DurationVar(&cfg.down, "down", 0, "when the endpoint goes down, counted from the start (default 3s, brief 500ms)")
	p.Flags.DurationVar(&cfg.outage, "outage", 0, "for how long it is down (default 7s, brief 2s)")
	p.Flags.DurationVar(&cfg.due, "due", 0, "for how long deliveries fall due, counted from the start (default 24s, brief 4s)")
	p.Flags.DurationVar(&cfg.end, "end", 0, "when the run ends, delivered or not (default 40s, brief 10s)")
	brief := p.Flags.Bool("brief", false, "a run of a few seconds")
	p.Main(func(ctx context.Context, out io.Writer) error { return run(ctx, cfg.withDefaults(*brief), out) })
}

// check returns an error for flags that make no sense.
func (c config) check() error {
	switch {
	case c.senders < 1:
		return fmt.Errorf("-senders %d must be at least 1", c.senders)
	case !(c.rate > 0):
		return fmt.Errorf("-rate %v must be above 0", c.rate)
	case !(c.capacity > c.rate):
		return fmt.Errorf("-capacity %v must be above -rate %v, or the backlog never drains", c.capacity, c.rate)
	case c.down < 0 || c.outage <= 0:
		return fmt.Errorf("-down %v must not be negative, and -outage %v must be above 0", c.down, c.outage)
	case c.due <= c.down+c.outage || c.end < c.due:
		return errors.New("-due must be after the return, and -end not before -due")
	}
	return nil
}

// deliveries is how many fall due in all.
func (c config) deliveries() int { return int(c.due.Seconds() * c.rate) }

// dueAt is when delivery i falls due, counted from the start.
func (c config) dueAt(i int) time.Duration {
	return time.Duration(float64(i) / c.rate * float64(time.Second))
}

// run delivers with both clients at once and prints the table. At cfg.end, what is not delivered is given up;
// after an interrupt the table says how far it came.
func run(ctx context.Context, cfg config, out io.Writer) error {
	if err := cfg.check(); err != nil {
		return err
	}
	plain, err := newSide("plain", cfg, plainClient)
	if err != nil {
		return err
	}
	defer plain.close()
	throttled, err := newSide("throttled", cfg, throttledClient)
	if err != nil {
		return err
	}
	defer throttled.close()
	sides := []*side{plain, throttled}

	fmt.Fprintln(out, console.Fill(fmt.Sprintf("%d senders, %v deliveries/s for %v; the endpoint is down from %v to %v",
		cfg.senders, cfg.rate, cfg.due, cfg.down, cfg.down+cfg.outage), cfg.columns, ""))
	err = deliverAll(ctx, cfg, sides, out)
	if printErr := printTable(out, cfg, sides); printErr != nil {
		return printErr
	}
	return err
}
