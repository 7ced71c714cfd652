package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"

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
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nclient\tdue\tdelivered\tattempts\t503s\t429s\tfirst second\tbacklog\tdrained after\tideal\t")
	for _, s := range sides {
		b, ledger := &s.backlog, s.server.Ledger()
		tally, first := ledger.Tally(), 0
		if s.back > 0 {
			first = len(ledger.Between(s.back, s.back+time.Second))
		}
		drained := "never"
		if !b.drained.IsZero() {
			drained = seconds(b.drained.Sub(b.returned))
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t\n", s.name, cfg.deliveries(), b.delivered,
			tally.Total(), tally.Failed, tally.Throttled, first, b.atReturn, drained, seconds(b.ideal()))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, s := range sides {
		if s.backlog.failure != nil {
			fmt.Fprintf(out, "%s: %d deliveries failed or were under way at the end; the first: %v\n", s.name, s.backlog.failed, s.backlog.failure)
		}
	}
	fmt.Fprint(out, "Attempts, 503s and 429s are counted by the endpoint; first second: attempts in the second after its return;\n"+
		"backlog: due and not delivered at its return; drained: when nothing was overdue for the first time after it;\n"+
		"ideal: the same for an endpoint that is used to its full capacity from the first moment on.\n")
	return nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
