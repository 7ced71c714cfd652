package main

import (
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/go-throttle/throttle/examples/internal/console"
	"github.com/go-throttle/throttle/throttletest"
)

// print writes the tables of a run that is over.
func (s *story) print(out io.Writer, columns int) error {
	ledger, end := s.upstream.Ledger(), s.upstream.Elapsed()
	rows := [][]string{{"phase", "lasts", "calls", "throttled", "used", "round trips per call"}}
	for _, p := range s.soFar() {
		if p.to == 0 {
			p.to, p.trips = end, s.trips()-p.trips
		}
		tally := ledger.Between(p.from, p.to).Tally()
		rows = append(rows, []string{p.title, seconds(p.to - p.from), strconv.Itoa(tally.Total()), strconv.Itoa(tally.Throttled),
			percent(float64(tally.Admitted), s.cfg.limit*(p.to-p.from).Seconds()), ratio(p.trips, tally.Total())})
	}
	if err := console.Print(out, columns, true, rows); err != nil {
		return err
	}
	fmt.Fprintln(out)
	rows = [][]string{{"process", "calls", "throttled", "share", "round trips", "per call", "expired", "alone"}}
	for _, m := range s.members() {
		to := m.to
		if to == 0 {
			to = end
		}
		tally, all := m.calls(ledger).Tally(), ledger.Between(m.from, to).Tally()
		stats, _ := m.look()
		rows = append(rows, []string{m.job.Process, strconv.Itoa(tally.Total()), strconv.Itoa(tally.Throttled),
			percent(float64(tally.Total()), float64(all.Total())), strconv.FormatUint(stats.Trips, 10), ratio(stats.Trips, tally.Total()),
			strconv.FormatUint(stats.Expired, 10), strconv.FormatUint(stats.Alone, 10)})
	}
	if err := console.Print(out, columns, true, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, "\n"+console.Fill("Calls and throttled ones (429) are counted by the upstream. Used: of the limit. Share: of the calls made while the "+
		"process ran. Round trips: to the store. Expired: units that were granted and not used in time. Alone: units used while Redis hung.", columns, ""))
	return err
}

// printLive writes the table that follows a run.
func (s *story) printLive(out io.Writer, columns int) {
	ledger, now := s.upstream.Ledger(), s.upstream.Elapsed()
	phases := s.soFar()
	if len(phases) == 0 {
		return
	}
	p := phases[len(phases)-1]
	recent := ledger.Between(max(0, now-time.Second), now)
	tally := ledger.Tally()
	fmt.Fprintln(out, console.Fill(fmt.Sprintf("%s  %s (for %s)", seconds(now), p.title, seconds(now-p.from)), columns, "  "))
	fmt.Fprintln(out, console.Fill(fmt.Sprintf("%d calls, %d throttled; %d in the last second, of %v", tally.Total(), tally.Throttled, len(recent), s.cfg.limit), columns, "  "))
	fmt.Fprintln(out)
	rows := [][]string{{"process", "mode", "calls", "last second", "share", "throttled", "trips per call"}}
	for _, m := range s.members() {
		rows = append(rows, m.row(ledger, recent))
	}
	_ = console.Print(out, columns, true, rows) // a buffer takes everything
}

// row is the line of a member in the live table.
func (m *member) row(ledger, recent throttletest.Ledger) []string {
	stats, ok := m.look()
	mode := stats.Mode
	switch {
	case m.gone():
		mode = "killed"
	case !ok:
		mode = "starts"
	}
	tally, latest := m.calls(ledger).Tally(), len(m.calls(recent))
	return []string{m.job.Process, mode, strconv.Itoa(tally.Total()), strconv.Itoa(latest), percent(float64(latest), float64(len(recent))),
		strconv.Itoa(tally.Throttled), ratio(stats.Trips, tally.Total())}
}

// calls are those of a member.
func (m *member) calls(l throttletest.Ledger) throttletest.Ledger {
	return l.Where(func(a throttletest.Arrival) bool { return a.Client == m.job.Process })
}

// soFar are the phases that have begun.
func (s *story) soFar() []phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]phase(nil), s.phases...)
}

const unknown = "-"

func percent(part, whole float64) string {
	if whole <= 0 {
		return unknown
	}
	return fmt.Sprintf("%.0f %%", 100*part/whole)
}

func ratio(part uint64, whole int) string {
	if whole == 0 {
		return unknown
	}
	return fmt.Sprintf("%.2f", float64(part)/float64(whole))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// view shows a story while it happens.
type view interface {
	begins(title string)
	finish()
}

func newView(s *story, out io.Writer) view {
	if s.cfg.width == nil {
		return lines{s, out}
	}
	v := &screen{story: s, screen: console.Screen{Out: out, Width: s.cfg.width}, stop: make(chan struct{})}
	v.running.Go(v.run)
	return v
}

// lines is the view in a pipe or a file: a line for each phase.
type lines struct {
	story *story
	out   io.Writer
}

func (v lines) begins(title string) {
	fmt.Fprintf(v.out, "%6s  %s\n", seconds(v.story.upstream.Elapsed()), title)
}

func (v lines) finish() {}

// screen is the view on a terminal: the table, drawn again and again in its place.
type screen struct {
	story   *story
	screen  console.Screen
	stop    chan struct{}
	running sync.WaitGroup
}

func (v *screen) begins(string) {} // the table has it

func (v *screen) run() {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		v.screen.Draw(v.story.printLive)
		select {
		case <-tick.C:
		case <-v.stop:
			return
		}
	}
}

// finish removes the drawing, because the tables follow.
func (v *screen) finish() {
	close(v.stop)
	v.running.Wait()
	v.screen.Erase()
}
