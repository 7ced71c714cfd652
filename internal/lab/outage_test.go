package lab_test

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle"
	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/throttletest"
)

const (
	outageLimit  = 100 // units a second, and a burst of 10
	outageLoad   = 60  // calls a second
	outageLength = 10 * time.Second
	outageGoesOn = 15 * time.Second // for which load comes after the outage, if it does
)

// An outageCase is an upstream that is down for outageLength. It never tells its limit, and each of its 429s costs a second.
type outageCase struct {
	name   string
	before time.Duration // of load, until the outage
	after  time.Duration // of load, from its end on
	atOnce bool          // all calls of the outage come at its beginning
	loop   int           // so many callers in a loop, in place of outageLoad
	most   float64       // seconds that the backlog may take; 0: outageBounds.backlog
	trip   trip
}

// outageFigures is what a user sees of one return.
type outageFigures struct {
	backlog   float64 // seconds until all calls that came before the end of the outage were answered; 0 of callers in a loop
	used      float64 // share of the limit in the first five seconds
	peak      float64 // requests in the busiest second, of the limit
	throttled float64 // share of the requests after the outage
	lost      float64 // calls without a 200
}

// outageBounds are what the worst run may show at most.
var outageBounds = outageFigures{backlog: 8, peak: 1.15, throttled: 0.02}

// After an outage the backlog goes at the limit, though nobody has told it and each 429 stops all calls for a second. The
// Transport is the zero one but for its Base: it gives a call up after 15 s of the call's own time, and loses none.
//
// The ideal backlog takes 5.9 s: 600 calls wait, 10 go at once, and the rest at 100/s.
func TestOutageWithRetryAfter(t *testing.T) {
	const history = 5 * time.Second
	for _, c := range []outageCase{
		{name: "a backlog", before: history},
		{name: "all at once", before: history, atOnce: true},
		// Nothing is known of a rate, so the ramp begins at its lowest: 8.3 s.
		{name: "the first calls", before: 0, most: 9},
		{name: "the first calls, all at once", before: 0, atOnce: true, most: 9},
		{name: "load goes on", before: history, after: outageGoesOn},
		{name: "four callers in a loop", before: history, after: outageGoesOn, loop: 4},
	} {
		for _, c.trip = range []trip{{5 * time.Millisecond, 25 * time.Millisecond}, {10 * time.Millisecond, 10 * time.Millisecond}}[:race.Pick(1, 2)] {
			t.Run(fmt.Sprintf("%s/%v", c.name, c.trip), func(t *testing.T) {
				var runs []outageFigures
				for _, seed := range simSeeds(race.Pick(1, 8)) {
					synctest.Test(t, func(t *testing.T) { runs = append(runs, c.run(t, seed)) })
				}
				c.judge(t, runs)
			})
		}
	}
}

func (c outageCase) run(t *testing.T, seed uint64) outageFigures {
	limit := throttletest.Limit{N: outageLimit, Burst: 10}
	s := newSim(c.trip, seed, limit)
	s.RetryAfter = time.Second
	up := c.before + outageLength
	s.Faults = []throttletest.Fault{{From: c.before, To: up}}
	client := &throttle.Transport{Base: s.Server}
	var done sync.Mutex
	var waited time.Duration // until the last call of the backlog was answered
	lost := 0
	call := func() {
		backlog := s.Elapsed() < up
		code, err := get(t.Context(), client, s.URL())
		done.Lock()
		defer done.Unlock()
		if err != nil || code != http.StatusOK {
			lost++
		}
		if backlog {
			waited = s.Elapsed() - up
		}
	}
	c.load(call, s, up+c.after, seed)
	l := s.Ledger().Between(up, never)
	f := outageFigures{
		used:      l.Used(limit, up, up+5*time.Second),
		peak:      float64(l.Peak(time.Second)) / outageLimit,
		throttled: float64(l.Tally().Throttled) / float64(len(l)),
		lost:      float64(lost),
	}
	if c.loop == 0 {
		f.backlog = waited.Seconds()
	}
	return f
}

// load makes calls until then, and waits for their end. Each seed begins at another moment before the outage.
func (c outageCase) load(call func(), s *sim, until time.Duration, seed uint64) {
	var wg sync.WaitGroup
	defer wg.Wait()
	time.Sleep(time.Duration(seed%20) * time.Second / outageLoad / 20)
	for range c.loop {
		wg.Go(func() {
			for s.Elapsed() < until {
				call()
			}
		})
	}
	for c.loop == 0 && s.Elapsed() < until {
		wg.Go(call)
		if !c.atOnce || s.Elapsed() < c.before {
			time.Sleep(time.Second / outageLoad)
			continue
		}
		for range int(outageLength.Seconds())*outageLoad - 1 {
			wg.Go(call)
		}
		return
	}
}

// judge logs the median and the worst of each figure in a line.
func (c outageCase) judge(t *testing.T, runs []outageFigures) {
	line, bounds := "", outageBounds
	bounds.backlog = cmp.Or(c.most, bounds.backlog)
	for _, f := range []struct {
		name  string
		of    func(outageFigures) float64
		least bool // the worst is the least
	}{
		{"backlog s", func(f outageFigures) float64 { return f.backlog }, false},
		{"used in 5 s", func(f outageFigures) float64 { return f.used }, true},
		{"peak", func(f outageFigures) float64 { return f.peak }, false},
		{"throttled %", func(f outageFigures) float64 { return 100 * f.throttled }, false},
		{"lost", func(f outageFigures) float64 { return f.lost }, false},
	} {
		var all []float64
		for _, r := range runs {
			all = append(all, f.of(r))
		}
		slices.Sort(all)
		if f.least {
			slices.Reverse(all)
		}
		worst := all[len(all)-1]
		line += fmt.Sprintf("  %s %.2f (%.2f)", f.name, all[len(all)/2], worst)
		if most := f.of(bounds); !f.least && worst > most {
			t.Errorf("%s: %.2f in the worst of %d runs, want at most %.2f", f.name, worst, len(runs), most)
		}
	}
	t.Logf("%d runs, median (worst):%s; %s, %v", len(runs), line, c.name, c.trip)
}
