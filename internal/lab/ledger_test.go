package lab_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/lab"
	"github.com/go-throttle/throttle/throttletest"
)

// A result is what a cell's line says.
type result struct {
	throttletest.Tally
	used      float64 // admitted / capacity
	events    int
	disobeyed int
	perCall   float64 // attempts
	lost      int64
}

// share is the part of the requests that was throttled.
func (r result) share() float64 { return float64(r.Throttled) / float64(max(1, r.Total())) }

// result measures from from to to.
func (s *sim) result(from, to time.Duration) result { return s.results()(from, to) }

// results returns a func that measures from from to to, with what has happened so far.
func (s *sim) results() func(from, to time.Duration) result {
	l := s.Ledger()
	all := result{perCall: float64(len(l)) / float64(max(1, s.calls.Load())), lost: s.lost.Load()}
	var heard []time.Duration
	for _, answers := range byClient(l) {
		heard = append(heard, events(answers)...)
		all.disobeyed += disobeyed(answers)
	}
	return func(from, to time.Duration) result {
		r := all
		r.Tally, r.used = l.Between(from, to).Tally(), l.Used(s.Limits[0], from, to)
		for _, at := range heard {
			if from <= at && at < to {
				r.events++
			}
		}
		return r
	}
}

// byClient returns what each client has heard, in the order of the answers.
func byClient(l throttletest.Ledger) map[string][]*throttletest.Arrival {
	clients := make(map[string][]*throttletest.Arrival)
	for i := range l {
		if a := &l[i]; a.Answered > 0 {
			clients[a.Client] = append(clients[a.Client], a)
		}
	}
	for _, answers := range clients {
		slices.SortStableFunc(answers, func(a, b *throttletest.Arrival) int { return cmp.Compare(a.Answered, b.Answered) })
	}
	return clients
}

// events are the moments at which a client heard of an event. A refusal begins a new one if its attempt
// was sent when the client knew of the last event: what was in flight then is an echo.
func events(answers []*throttletest.Arrival) (heard []time.Duration) {
	for _, a := range answers {
		if a.Verdict == throttletest.Throttled && (len(heard) == 0 || a.Sent >= heard[len(heard)-1]) {
			heard = append(heard, a.Answered)
		}
	}
	return heard
}

// disobeyed counts what a client has sent while it was advertised not to.
func disobeyed(answers []*throttletest.Arrival) (n int) {
	sent := slices.Clone(answers)
	slices.SortFunc(sent, func(a, b *throttletest.Arrival) int { return cmp.Compare(a.Sent, b.Sent) })
	quiet := time.Duration(math.MinInt64)
	for _, a := range sent {
		for ; len(answers) > 0 && answers[0].Answered < a.Sent; answers = answers[1:] {
			if answers[0].RetryAfter > 0 {
				quiet = max(quiet, answers[0].Answered+answers[0].RetryAfter)
			}
		}
		if a.Sent < quiet {
			n++
		}
	}
	return n
}

// A flight is how many requests of a client were under way.
type flight struct {
	first time.Duration // when the first answer was received
	early int           // most in flight before that
	most  int
	peak  time.Duration // when there were most
}

func flightsOf(l throttletest.Ledger, client string) (f flight) {
	type step struct {
		at time.Duration
		by int
	}
	var steps []step
	f.first = math.MaxInt64
	for _, a := range l {
		if a.Client != client {
			continue
		}
		steps = append(steps, step{a.Sent, 1})
		if a.Answered > 0 {
			steps = append(steps, step{a.Answered, -1})
			f.first = min(f.first, a.Answered)
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Or(cmp.Compare(a.at, b.at), a.by-b.by) })
	flying := 0
	for _, s := range steps {
		flying += s.by
		if flying > f.most {
			f.most, f.peak = flying, s.at
		}
		if s.at < f.first {
			f.early = max(f.early, flying)
		}
	}
	return f
}

// jain is Jain's index over n clients.
func (s *sim) jain(n int, from, to time.Duration) float64 {
	names := make([]string, n)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	return lab.Jain(s.Ledger().Between(from, to), names...)
}

func (r result) String() string {
	return fmt.Sprintf("used %6.2f %%, refused %5.2f %% (%d of %d in %d events), %.3f attempts a call",
		100*r.used, 100*r.share(), r.Throttled, r.Total(), r.events, r.perCall)
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
		t.Errorf("%d attempts sent while advertised not to", r.disobeyed)
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
			sum.Admitted += r.Admitted
			sum.Throttled += r.Throttled
			sum.used += r.used / float64(len(seeds))
			sum.perCall += r.perCall / float64(len(seeds))
			sum.events += r.events
			sum.lost += r.lost
			sum.disobeyed += r.disobeyed
		})
	}
	return sum
}
