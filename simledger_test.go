package throttle_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// simBin is the ledger's resolution.
const simBin = 10 * time.Millisecond

// A tally counts requests.
type tally struct{ arrived, admitted int }

func (c tally) refused() int { return c.arrived - c.admitted }

// share is the part of the requests that was refused.
func (c tally) share() float64 {
	if c.arrived == 0 {
		return 0
	}
	return float64(c.refused()) / float64(c.arrived)
}

// A ledger notes what happens, under the sim's lock, with one row for each client.
type ledger struct {
	rows        []*ledgerRow
	calls, lost int // calls that ended with a 200, and others that were not cancelled
}

type ledgerRow struct {
	bins      []struct{ arrived, admitted uint32 }
	flying    int
	heard     bool            // an answer was received
	early     int             // most in flight before that
	first     time.Duration   // when it was
	peak      time.Duration   // when there were most in flight
	most      int             // how many
	quiet     time.Duration   // told not to send before
	disobeyed int             // sent before
	seen      time.Duration   // when the last event's first refusal was received
	events    []time.Duration // those moments: see answered
}

func (l *ledger) add(rows int) {
	for len(l.rows) < rows {
		l.rows = append(l.rows, new(ledgerRow))
	}
}

func (l *ledger) sent(a *arrival, now time.Duration) {
	r := l.rows[a.row]
	r.flying++
	if r.flying > r.most {
		r.most, r.peak = r.flying, now
	}
	if !r.heard {
		r.early = max(r.early, r.flying)
	}
	if now < r.quiet {
		r.disobeyed++
	}
}

func (l *ledger) arrived(a *arrival) {
	r := l.rows[a.row]
	i := int(a.at / simBin)
	for len(r.bins) <= i {
		r.bins = append(r.bins, struct{ arrived, admitted uint32 }{})
	}
	r.bins[i].arrived++
	if a.admitted {
		r.bins[i].admitted++
	}
}

// answered notes that a client hears of a. A refusal begins a new event if its attempt was sent
// when the client knew of the last event: what was in flight then is an echo.
func (l *ledger) answered(a *arrival, now, quiet time.Duration) {
	r := l.rows[a.row]
	r.flying--
	if !r.heard {
		r.heard, r.first = true, now
	}
	if a.admitted {
		return
	}
	if quiet > 0 {
		r.quiet = max(r.quiet, now+quiet)
	}
	if len(r.events) == 0 || a.sent >= r.seen {
		r.seen = now
		r.events = append(r.events, now)
	}
}

// row counts what one row had in [from, to), both whole bins.
func (l *ledger) row(i int, from, to time.Duration) (c tally) {
	bins := l.rows[i].bins
	hi := min(int(to/simBin), len(bins))
	for _, b := range bins[min(int(from/simBin), hi):hi] {
		c.arrived += int(b.arrived)
		c.admitted += int(b.admitted)
	}
	return c
}

// all counts what all rows had.
func (l *ledger) all(from, to time.Duration) (c tally) {
	for i := range l.rows {
		r := l.row(i, from, to)
		c.arrived += r.arrived
		c.admitted += r.admitted
	}
	return c
}

// jain is Jain's index over the rows: 1 if all were let in equally often, 1/n if only one was.
func (l *ledger) jain(from, to time.Duration) float64 {
	var sum, squares float64
	for i := range l.rows {
		x := float64(l.row(i, from, to).admitted)
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(l.rows)) * squares)
}

// eventsIn counts the refusal events heard of in [from, to).
func (l *ledger) eventsIn(from, to time.Duration) (n int) {
	for _, r := range l.rows {
		for _, at := range r.events {
			if from <= at && at < to {
				n++
			}
		}
	}
	return n
}

func (l *ledger) disobeyed() (n int) {
	for _, r := range l.rows {
		n += r.disobeyed
	}
	return n
}

// A result is what a cell's line says.
type result struct {
	tally
	used      float64 // admitted / capacity
	events    int
	disobeyed int
	perCall   float64 // attempts
	lost      int
}

// result measures from from to to.
func (s *sim) result(from, to time.Duration) result {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.all(from, to)
	return result{
		tally: c, used: float64(c.admitted) / s.capacity(from, to), events: s.eventsIn(from, to),
		disobeyed: s.disobeyed(), perCall: float64(s.all(0, 1<<62).arrived) / float64(max(1, s.calls)), lost: s.lost,
	}
}

func (r result) String() string {
	return fmt.Sprintf("used %6.2f %%, refused %5.2f %% (%d of %d in %d events), %.3f attempts a call",
		100*r.used, 100*r.share(), r.refused(), r.arrived, r.events, r.perCall)
}

// want logs r and fails the test if less than used or more than refused was reached, or a call lost.
func (r result) want(t *testing.T, used, refused float64) {
	t.Helper()
	t.Log(r)
	if r.used < used || r.share() > refused {
		t.Errorf("used %.2f %%, refused %.2f %%; want at least %.2f and at most %.2f", 100*r.used, 100*r.share(), 100*used, 100*refused)
	}
	if r.lost > 0 {
		t.Errorf("%d calls lost", r.lost)
	}
	if r.disobeyed > 0 {
		t.Errorf("%d attempts sent while told not to", r.disobeyed)
	}
}

// overSeeds runs a cell once for each seed, each run in a bubble of its own, and returns the sums
// and the mean use. It logs each run if there are several.
func overSeeds(t *testing.T, least int, run func(t *testing.T, seed uint64) result) (sum result) {
	seeds := simSeeds(least)
	for _, seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			r := run(t, seed)
			if len(seeds) > 1 {
				t.Logf("seed %d: %v", seed, r)
			}
			sum.arrived += r.arrived
			sum.admitted += r.admitted
			sum.used += r.used / float64(len(seeds))
			sum.perCall += r.perCall / float64(len(seeds))
			sum.events += r.events
			sum.lost += r.lost
			sum.disobeyed += r.disobeyed
		})
	}
	return sum
}
