package lab_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-throttle/throttle/internal/race"
	"github.com/go-throttle/throttle/throttletest"
)

// These tests are of limits beside which some calls are throttled at random, as by a broken node. Each 429 looks like the
// other. Were all of them taken for the limit, hardly anything of it would be used: of 100/s and 1 % at random 22 %, of 5 % 2 %.

// A bothCell is a limit of so many a second, and a share that is throttled at random. Both change after changeBoth, or not.
type bothCell struct {
	n, later          int
	share, laterShare float64
	kind              throttletest.Kind
	retryAfter        time.Duration
	settled           time.Duration // after the change; what comes then is judged
	used, throttled   float64       // at least and at most, means of the runs
}

// changeBoth is late enough that both are known, and endBoth is when a run ends.
const changeBoth, endBoth = 3 * time.Minute, 6 * time.Minute

// run returns the share of the limit that was used, and of the requests that were throttled for it.
func (c bothCell) run(t *testing.T, seed uint64) (used, throttled float64) {
	s := newSim(shortTrip, seed, throttletest.Limit{Kind: c.kind, N: c.n, Per: time.Second, Burst: 10,
		Changes: []throttletest.Change{{At: changeBoth, N: c.later}}})
	s.RetryAfter = c.retryAfter
	before, after := random(c.share, c.retryAfter), random(c.laterShare, c.retryAfter)
	before.To, after.From = changeBoth, changeBoth
	s.Faults = []throttletest.Fault{before, after}
	s.run(t, endBoth, simWorkers, s.client(0))
	admitted, sent := 0, 0
	for _, a := range s.Ledger() {
		if a.Sent < changeBoth+c.settled {
			continue
		}
		switch sent++; {
		case a.Verdict == throttletest.Admitted:
			admitted++
		case a.Limit >= 0:
			throttled++
		}
	}
	return float64(admitted) / (float64(c.later) * (endBoth - changeBoth - c.settled).Seconds()), throttled / float64(sent)
}

func TestLimitAndRandomThrottling(t *testing.T) {
	for name, c := range map[string]bothCell{
		"1%":                 {n: 100, share: 0.01, used: 0.9, throttled: 0.025},
		"5%":                 {n: 100, share: 0.05, used: 0.8, throttled: 0.03},
		"1%/sliding":         {n: 100, share: 0.01, kind: throttletest.Sliding, used: 0.9, throttled: 0.025},
		"1%/300":             {n: 300, share: 0.01, used: 0.9, throttled: 0.025},
		"1%/10":              {n: 10, share: 0.01, used: 0.75, throttled: 0.05},
		"1%/retry-after":     {n: 100, share: 0.01, retryAfter: time.Second, used: 0.14, throttled: 0.025}, // obeying alone leaves 0.5
		"5%/10/retry-after":  {n: 10, share: 0.05, retryAfter: time.Second, used: 0.5, throttled: 0.12},    // 0.67
		"a quarter is left":  {n: 100, later: 25, share: 0.01, settled: 10 * time.Second, used: 0.9, throttled: 0.04},
		"four times as much": {n: 100, later: 400, share: 0.01, settled: 30 * time.Second, used: 0.9, throttled: 0.03},
		"a limit comes":      {n: 1000, later: 100, share: 0.01, settled: 30 * time.Second, used: 0.75, throttled: 0.03},
		"more at random":     {n: 100, share: 0.01, laterShare: 0.05, used: 0.5, throttled: 0.03},
		"15% and then none":  {n: 100, share: 0.15, laterShare: 1e-9, settled: time.Minute, used: 0.8, throttled: 0.05},
		"30% and then none":  {n: 100, share: 0.3, laterShare: 1e-9, settled: time.Minute, used: 0.8, throttled: 0.05},
		"less at random":     {n: 100, share: 0.05, laterShare: 0.001, settled: time.Minute, used: 0.8, throttled: 0.04},
	} {
		c.later, c.laterShare = cmp.Or(c.later, c.n), cmp.Or(c.laterShare, c.share)
		t.Run(name, func(t *testing.T) {
			if c.n > 10 || c.retryAfter > 0 {
				race.Long(t)
			}
			used, throttled := 0.0, 0.0
			seeds, line := simSeeds(4), ""
			for _, seed := range seeds {
				synctest.Test(t, func(t *testing.T) {
					u, l := c.run(t, seed)
					used, throttled = used+u/float64(len(seeds)), throttled+l/float64(len(seeds))
					line += fmt.Sprintf("  %.0f, %.1f", 100*u, 100*l)
				})
			}
			t.Logf("%.1f %% of the limit used, %.2f %% throttled for it:%s", 100*used, 100*throttled, line)
			if used < c.used || throttled > c.throttled {
				t.Errorf("want at least %.0f %% and at most %.0f %%", 100*c.used, 100*c.throttled)
			}
		})
	}
}

// The share is forgotten now and then, or a wrong one would stay. It is known again after a few 429s, and costs no minute of the
// limit.
func TestLimitAndRandomThrottlingForLong(t *testing.T) {
	race.Long(t)
	for _, share := range []float64{0.01, 0.05} {
		synctest.Test(t, func(t *testing.T) {
			const minutes = 33
			s := newSim(shortTrip, 1, throttletest.Limit{N: 100, Per: time.Second, Burst: 10})
			s.Faults = []throttletest.Fault{random(share, 0)}
			s.run(t, minutes*time.Minute, simWorkers, s.client(0))
			var used [minutes]float64
			for _, a := range s.Ledger() {
				if a.Verdict == throttletest.Admitted {
					used[min(a.Sent/time.Minute, minutes-1)] += 1.0 / 6000
				}
			}
			if t.Logf("%.2f at random: %.2f used", share, used); slices.Min(used[3:]) < 0.75 {
				t.Errorf("%.0f %% of the limit used in the worst minute, want at least 75 %%", 100*slices.Min(used[3:]))
			}
		})
	}
}
