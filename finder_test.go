package throttle_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// These tests are about upstreams that only refuse: their limit has to be found.

// A finderCell is one upstream of TestFinder.
type finderCell struct {
	limit      limit
	trip       trip
	retryAfter int
	workers    int // 0: 32
	// targets
	used, refused float64
	reported      bool // refused is logged only
}

func (c finderCell) name() string {
	burst := ""
	if c.limit.kind == gcra {
		burst = fmt.Sprintf("-burst-%d", c.limit.burst)
	}
	return fmt.Sprintf("%s%s/%d/%v/retry-after-%d", c.limit.kind, burst, c.limit.n, c.trip, c.retryAfter)
}

// fits tells whether one who knows the limit can use all of it without a refusal (algorithms.md, 18).
func (c finderCell) fits() bool {
	return c.limit.kind != gcra || float64(c.limit.burst) >= 1+c.limit.rate()*c.trip.spread().Seconds()
}

// run measures 5 minutes less the first 10 s.
func (c finderCell) run(t *testing.T, seed uint64) result {
	d := 5 * time.Minute
	if !simFull() && c.limit.n >= 1000 {
		d = time.Minute
	}
	s := c.sim(seed)
	s.run(t, d, max(c.workers, simWorkers), s.client(0))
	return s.result(10*time.Second, d)
}

func (c finderCell) sim(seed uint64) *sim {
	return &sim{limits: []limit{c.limit}, trip: c.trip, seed: seed, retryAfter: c.retryAfter}
}

// finderCells is Shows 4's table, in the default run without the cells that take long: of those with
// 100 a second half, of those with 1,000 one, and it for a minute only.
func finderCells() (cells []finderCell) {
	for _, n := range []int{10, 100, 1000} {
		for i, k := range []kind{gcra, fixed, sliding} {
			for j, w := range []trip{shortTrip, wildTrip} {
				for _, retryAfter := range []int{0, 1} {
					c := finderCell{limit: limit{kind: k, n: n, per: time.Second, burst: 10}, trip: w, retryAfter: retryAfter, used: 0.92, refused: 0.011}
					if retryAfter > 0 {
						c.used, c.refused = 0.89, 0.007
					}
					if k == sliding && n == 10 && retryAfter > 0 {
						c.used = 0.82
					}
					if !c.fits() {
						c.used, c.reported = 0.80, true
					}
					if simFull() || n == 10 || n == 100 && (i+j)%2 == 0 || n == 1000 && i+j+retryAfter == 0 {
						cells = append(cells, c)
					}
				}
			}
		}
	}
	for _, n := range []int{10, 100, 1000} {
		for _, w := range []trip{shortTrip, wildTrip} {
			t, j := 1/float64(n), w.spread().Seconds()
			c := finderCell{limit: limit{kind: gcra, n: n, per: time.Second, burst: 1}, trip: w, used: 0.85 * t / (t + 0.83*j), refused: 0.015}
			if simFull() || n == 10 || n == 100 && w == shortTrip {
				cells = append(cells, c)
			}
		}
	}
	return cells
}

func TestFinder(t *testing.T) {
	for _, c := range finderCells() {
		t.Run(c.name(), func(t *testing.T) {
			seeds := 1
			if c.limit.n == 10 { // few calls, so that one run tells little
				seeds = 5
			}
			r := overSeeds(t, seeds, c.run)
			if c.reported {
				c.refused = 1
			}
			t.Logf("J %v, want at least %.1f %% and at most %.1f %%", c.trip.spread(), 100*c.used, 100*c.refused)
			r.want(t, c.used, c.refused)
		})
	}
}

// changeAt is when the limit changes: late enough that the old one has been found.
const changeAt = 2 * time.Minute

// never is a moment that does not come.
const never = 24 * time.Hour

// TestFinderHalved: the client has settled when the 5 s from then on use 70 % of the new limit, 60 %
// if each refusal costs a second, and see at most one event of refusals or 3 % refused.
func TestFinderHalved(t *testing.T) {
	for _, c := range changeCells(false) {
		t.Run(c.name(), func(t *testing.T) {
			used, limit := 0.7, 4*time.Second
			if c.retryAfter > 0 {
				used, limit = 0.6, 5*time.Second
			}
			c.change(t, c.limit.n/2, 20*time.Second, "settled", limit, func(s *sim) time.Duration {
				for d := time.Duration(0); d <= 15*time.Second; d += 100 * time.Millisecond {
					if r := s.result(changeAt+d, changeAt+d+5*time.Second); r.used >= used && (r.events <= 1 || r.share() <= 0.03) {
						return d
					}
				}
				return never
			})
		})
	}
}

// TestFinderDoubled: the new limit is found when 90 % of it have been used for a second, or for two
// where a second is only a few calls.
func TestFinderDoubled(t *testing.T) {
	for _, c := range changeCells(true) {
		t.Run(c.name(), func(t *testing.T) {
			limit, span := 15*time.Second, time.Second
			switch {
			case c.limit.n == 10:
				limit, span = 45*time.Second, 2*time.Second
			case c.retryAfter > 0:
				limit = 30 * time.Second
			}
			c.change(t, 2*c.limit.n, limit+5*time.Second, "found", limit, func(s *sim) time.Duration {
				for d := span; d <= limit+5*time.Second; d += 100 * time.Millisecond {
					if s.result(changeAt+d-span, changeAt+d).used >= 0.9 {
						return d
					}
				}
				return never
			})
		})
	}
}

// change runs a client through a change of the limit to n, until after, and asks when it has done
// what is wanted of it, counted from the change.
func (c finderCell) change(t *testing.T, n int, after time.Duration, what string, limit time.Duration, when func(*sim) time.Duration) {
	for _, seed := range simSeeds(1) {
		var d time.Duration
		var r result
		synctest.Test(t, func(t *testing.T) {
			s := c.sim(seed)
			s.changes = []change{{changeAt, n}}
			s.run(t, changeAt+after, max(c.workers, simWorkers), s.client(0))
			d = when(s)
			r = s.result(changeAt, changeAt+min(d, after)+time.Second)
		})
		switch {
		case d <= limit:
			t.Logf("seed %d: %s after %v; until a second later %v", seed, what, d, r)
		case c.reported:
			t.Logf("seed %d: %s after %v, at most %v would be nice; %v", seed, what, d, limit, r)
		default:
			t.Errorf("seed %d: %s after %v, want at most %v; %v", seed, what, d, limit, r)
		}
	}
}

// changeCells are the limits before the change. What windows make of it is logged only: a client
// that has half a window's units left sees the change late.
func changeCells(doubled bool) (cells []finderCell) {
	for _, n := range []int{10, 100, 1000} {
		for i, k := range []kind{gcra, fixed, sliding} {
			for _, retryAfter := range []int{0, 1} {
				c := finderCell{limit: limit{kind: k, n: n, per: time.Second, burst: 10}, trip: shortTrip, retryAfter: retryAfter, reported: k != gcra}
				if doubled && n == 1000 {
					c.workers = 128 // 32 cannot reach 2,000 a second
				}
				if simFull() || n < 1000 && i == 0 {
					cells = append(cells, c)
				}
			}
		}
	}
	return cells
}
