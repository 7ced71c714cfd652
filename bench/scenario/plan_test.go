package scenario

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/go-throttle/throttle/throttletest"
)

const ms = time.Millisecond

func TestPlan(t *testing.T) {
	gcra := throttletest.Limit{N: 100, Per: second, Burst: 10}
	weaker := gcra
	weaker.Changes = []throttletest.Change{{At: 2 * second, N: 50}}
	for name, c := range map[string]struct {
		config config
		calls  int
		last   time.Duration
		could  int // in the first 4 s
	}{
		"gcra":    {config{limits: []throttletest.Limit{gcra}}, 400, 3900 * ms, 410},
		"fixed":   {config{limits: []throttletest.Limit{{Kind: throttletest.Fixed, N: 100, Per: second, Phase: 300 * ms}}}, 400, 2300 * ms, 500},
		"sliding": {config{limits: []throttletest.Limit{{Kind: throttletest.Sliding, N: 100, Per: second}}}, 400, 3 * second, 400},
		"outage":  {config{limits: []throttletest.Limit{gcra}, faults: []throttletest.Fault{{From: second, To: 2 * second}}}, 400, 4810 * ms, 319},
		"brown-out": {config{limits: []throttletest.Limit{gcra}, faults: []throttletest.Fault{{From: second, To: 2 * second, Share: 0.5}}},
			400, 3900 * ms, 410},
		"weaker":    {config{limits: []throttletest.Limit{weaker}}, 400, 5800 * ms, 310},
		"in flight": {config{limits: []throttletest.Limit{{Kind: throttletest.InFlight, N: 5}}, work: throttletest.Span{Min: 100 * ms}}, 400, 7900 * ms, 200},
		"several": {config{limits: []throttletest.Limit{{Kind: throttletest.Sliding, N: 10, Per: second}, {Kind: throttletest.Sliding, N: 30, Per: 60 * second}}},
			35, 60 * second, 30},
	} {
		at := c.config.ideal(make([]time.Duration, c.calls))
		if got := at[len(at)-1]; max(got-c.last, c.last-got) > ms {
			t.Errorf("%s: the last of %d at %v, want %v", name, c.calls, got, c.last)
		}
		if got := c.config.could(0, 4*second); max(got-c.could, c.could-got) > 1 {
			t.Errorf("%s: could %d, want %d", name, got, c.could)
		}
	}
	if at := (config{}).ideal([]time.Duration{0, 5 * ms}); at[0] != 0 || at[1] != 5*ms {
		t.Error("without a limit at", at)
	}
}

func TestRateAt(t *testing.T) {
	c := config{
		limits: []throttletest.Limit{
			{N: 100, Per: second, Changes: []throttletest.Change{{At: 3 * second, N: 70}}}, {Kind: throttletest.InFlight, N: 1}, {N: 90 * 60, Per: time.Minute},
		},
		faults: []throttletest.Fault{{From: second, To: 2 * second}},
	}
	for at, want := range map[time.Duration]float64{0: 90, second: 0, 2 * second: 90, 3 * second: 70} {
		if got := c.rateAt(at); got != want {
			t.Errorf("%v a second at %v, want %v", got, at, want)
		}
	}
}

func TestFigures(t *testing.T) {
	var l throttletest.Ledger
	for i := range 100 { // every 10 ms, by turns of two callers, each call throttled once before it is admitted
		v := throttletest.Throttled
		if i%2 == 1 {
			v = throttletest.Admitted
		}
		l = append(l, throttletest.Arrival{At: time.Duration(i) * 10 * ms, Call: strconv.Itoa(i / 2), Client: strconv.Itoa(i / 2 % 2), Verdict: v})
	}
	if got := perCall(l, 50); got != 2 {
		t.Error("attempts per call", got)
	}
	if got := evenness(l); got > 1e-9 {
		t.Error("spacing of even arrivals", got)
	}
	if a, b := jain(l, 2), jain(l, 4); a != 1 || b != 0.5 || !math.IsNaN(jain(nil, 2)) {
		t.Error("jain of two, and of two among four", a, b)
	}
	if first := firstAdmitted(l); len(first) != 50 || first[3] != 70*ms {
		t.Error("first admitted", first)
	}
	if last(l) != 990*ms || last(nil) != 0 {
		t.Error("last", last(l))
	}
	uneven := throttletest.Ledger{{At: 0}, {At: 10}, {At: 40}} // gaps of 10 and 30: mean 20, deviation 10
	if got := evenness(uneven); math.Abs(got-0.5) > 1e-9 || !math.IsNaN(evenness(uneven[:2])) {
		t.Error("uneven", got)
	}
}
