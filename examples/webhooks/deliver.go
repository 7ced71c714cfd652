package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/go-throttle/throttle/examples/internal/console"
	"github.com/go-throttle/throttle/throttletest"
)

// deliverAll makes every delivery of every side, while the endpoints go down and come back. It
// returns an error only if it was interrupted.
func deliverAll(ctx context.Context, cfg config, sides []*side, out io.Writer) error {
	start := time.Now()
	until, cancel := context.WithDeadline(ctx, start.Add(cfg.end))
	defer cancel()
	var work sync.WaitGroup
	for _, s := range sides {
		s.backlog.start = start
		for sender := range cfg.senders {
			work.Go(func() { s.send(until, cfg, sender) })
		}
	}
	work.Go(func() { outage(until, cfg, start, sides, out) })
	work.Wait()
	return ctx.Err()
}

// send is one sender: every cfg.senders-th delivery is its own, and it makes them one by one.
func (s *side) send(ctx context.Context, cfg config, sender int) {
	for i := sender; i < cfg.deliveries(); i += cfg.senders {
		if !sleepUntil(ctx, s.backlog.start.Add(cfg.dueAt(i))) {
			return
		}
		key := fmt.Sprintf("delivery-%d", i)
		body := fmt.Appendf(nil, `{"event":%d,"sender":%d}`, i, sender)
		s.backlog.count(s.deliver(ctx, s.server.URL(), key, body))
	}
}

// outage takes the endpoints down and brings them back, weaker.
func outage(ctx context.Context, cfg config, start time.Time, sides []*side, out io.Writer) {
	if !sleepUntil(ctx, start.Add(cfg.down)) {
		return
	}
	for _, s := range sides {
		s.server.SetFaults(throttletest.Fault{})
	}
	fmt.Fprintf(out, "%5.1f s  the endpoint is down\n", time.Since(start).Seconds())
	if !sleepUntil(ctx, start.Add(cfg.down+cfg.outage)) {
		return
	}
	for _, s := range sides {
		s.server.SetLimits(limit(cfg.capacity, 2*burst))
		s.backlog.back(time.Now())
		s.back = s.server.Elapsed()
		s.server.SetFaults()
	}
	fmt.Fprintf(out, "%5.1f s  the endpoint is back, and takes %v/s\n", time.Since(start).Seconds(), cfg.capacity)
}

// sleepUntil sleeps until then, or returns false at once when ctx ends.
func sleepUntil(ctx context.Context, then time.Time) bool {
	timer := time.NewTimer(time.Until(then))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// printTable prints what the endpoints saw. It is called when all deliveries are over.
func printTable(out io.Writer, cfg config, sides []*side) error {
	rows := [][]string{{"client", "due", "delivered", "attempts", "503s", "429s", "first second", "backlog", "drained after", "ideal"}}
	for _, s := range sides {
		rows = append(rows, s.row(cfg))
	}
	fmt.Fprintln(out)
	if err := console.Print(out, cfg.columns, true, rows); err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, s := range sides {
		if b := &s.backlog; b.failure != nil {
			fmt.Fprintln(out, console.Fill(fmt.Sprintf("%s: %d deliveries failed or were under way at the end; the first: %v", s.name, b.failed, b.failure), cfg.columns, "  "))
		}
	}
	_, err := fmt.Fprintln(out, console.Fill("Attempts, 503s and 429s are counted by the endpoint. First second: attempts in the second after its return. "+
		"Backlog: due and not delivered at its return. Drained: when nothing was overdue for the first time after it. "+
		"Ideal: the same for an endpoint that is used to its full capacity from the first moment on.", cfg.columns, ""))
	return err
}

// row is the line of a side. What follows the endpoint's return is unknown before it.
func (s *side) row(cfg config) []string {
	b, ledger := &s.backlog, s.server.Ledger()
	tally := ledger.Tally()
	cells := []string{s.name}
	for _, n := range []int{cfg.deliveries(), b.delivered, tally.Total(), tally.Failed, tally.Throttled} {
		cells = append(cells, strconv.Itoa(n))
	}
	if b.returned.IsZero() {
		return append(cells, "-", "-", "-", "-")
	}
	drained := "never"
	if !b.drained.IsZero() {
		drained = seconds(b.drained.Sub(b.returned))
	}
	first := len(ledger.Between(s.back, s.back+time.Second))
	return append(cells, strconv.Itoa(first), strconv.Itoa(b.atReturn), drained, seconds(b.ideal()))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
