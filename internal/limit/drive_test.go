package limit

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// bucket, leaky, fixed and sliding make accounts as the root's constructors do.
func bucket(limit rate.Limit, burst int) *Bucket {
	b := new(Bucket)
	b.Init("bucket", limit, burst)
	return b
}

func leaky(limit rate.Limit) *Bucket { return bucket(limit, 1) }

func fixed(n int, per time.Duration) *FixedWindow {
	w := new(FixedWindow)
	w.Init("fixed", n, per)
	return w
}

func sliding(n int, per time.Duration) *SlidingWindow {
	w := new(SlidingWindow)
	w.Init("sliding", n, per)
	return w
}

func set(os ...Account) *Set {
	s := new(Set)
	for _, o := range os {
		s.Join(o)
	}
	return s
}

const ms = time.Millisecond

// A step is one line of a time script: at that time since the script's start, do it.
type step struct {
	at   time.Duration
	do   string // take, adjust, avail (n is what must be available), undo (the last granted take), limit, burst
	n    int
	want time.Duration // of take: the wait
	err  string        // of take: part of the error
}

// runScript drives an account through time in a bubble.
func runScript(t *testing.T, name string, lim func() Account, steps []step) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o, start := lim(), time.Now()
			var taken time.Time
			var units int
			for i, s := range steps {
				time.Sleep(s.at - time.Since(start))
				switch s.do {
				case "take":
					wait, err := TakeNow(o, s.n)
					if (err == nil) != (s.err == "") || err != nil && !strings.Contains(err.Error(), s.err) {
						t.Fatalf("step %d, %v: Take(%d): error %v, want %q", i, s.at, s.n, err, s.err)
					}
					if wait != s.want {
						t.Fatalf("step %d, %v: Take(%d) = %v, want %v", i, s.at, s.n, wait, s.want)
					}
					if wait == 0 && err == nil {
						taken, units = time.Now(), s.n
					}
				case "adjust":
					o.(adjuster).Adjust(s.n)
				case "undo":
					stateOf(o).GiveBack(taken, time.Now(), units)
				case "avail":
					if got := stateOf(o).Available(time.Now()); math.Abs(got-float64(s.n)) > 1e-6 {
						t.Fatalf("step %d, %v: %v units available, want %d", i, s.at, got, s.n)
					}
				case "limit":
					o.(*Bucket).SetLimit(rate.Limit(s.n))
				case "burst":
					o.(*Bucket).SetBurst(s.n)
				default:
					t.Fatalf("step %d: what is %q?", i, s.do)
				}
			}
		})
	})
}

// An admission is one call that was let go.
type admission struct {
	at time.Time
	n  int
}

// A drive is a random life of a set of accounts, the same for the same seed.
type drive struct {
	seed     uint64
	lim      *Set
	mean     time.Duration // between arrivals
	maxCost  int
	undo     float64                                                    // share of grants that are given back unused
	late     time.Duration                                              // a take may be dated back by so much
	external func(r *rand.Rand, g admission, start time.Time) (ok bool) // gives the last admission back through Adjust
	change   func(r *rand.Rand, now time.Time)                          // changes the rate, now and then
}

// run returns the grants that were used, in order of time.
func (d drive) run(calls int) (used []admission) {
	r := rand.New(rand.NewPCG(d.seed, 7))
	start := time.Now()
	named := start // the moment to ask again
	for range calls {
		time.Sleep(time.Duration(r.ExpFloat64() * float64(d.mean)))
		if d.change != nil && r.IntN(50) == 0 {
			d.change(r, time.Now())
		}
		g := admission{n: 1 + r.IntN(d.maxCost)}
		for ok := false; !ok; {
			now := time.Now()
			at := now
			if d.late > 0 && named.After(now.Add(-d.late)) && named.Before(now) {
				at = named // a timer that came late
			}
			m, err := d.lim.TakeBy(at, now, g.n)
			if err != nil {
				panic(err)
			}
			if g.at, ok = m, !m.After(now); !ok {
				if named = m; r.IntN(3) == 0 {
					g.n = 0 // the caller leaves
					break
				}
				early := time.Duration(0)
				if r.IntN(4) == 0 {
					early = time.Duration(r.Int64N(int64(m.Sub(now)))) // asks too early
				}
				time.Sleep(m.Sub(now) - early + time.Duration(r.Int64N(int64(d.late)+1)))
			}
		}
		switch {
		case g.n == 0:
		case r.Float64() < d.undo:
			if r.IntN(2) == 0 {
				time.Sleep(time.Duration(r.ExpFloat64() * float64(d.mean)))
			}
			d.lim.GiveBack(g.at, time.Now(), g.n)
		case d.external != nil && r.Float64() < d.undo && d.external(r, g, start):
		default:
			used = append(used, g)
		}
	}
	return used
}

// checkWindows fails if the units from any admission to any later one exceed what bound allows.
func checkWindows(t *testing.T, used []admission, bound func(from, to time.Time) float64) {
	t.Helper()
	if len(used) < 100 {
		t.Fatalf("only %d grants: this shows nothing", len(used))
	}
	for i := range used {
		units := 0
		for _, g := range used[i:] {
			units += g.n
			if most := bound(used[i].at, g.at); float64(units) > most {
				t.Fatalf("%d units in %v from %v on, bound %v", units, g.at.Sub(used[i].at), used[i].at, most)
			}
		}
	}
}

// A takeFunc takes n units from an account or a set.
type takeFunc func(n int) (wait time.Duration, err error)

func alone(o Account) takeFunc {
	return func(n int) (time.Duration, error) { return TakeNow(o, n) }
}

// backlog asks without pause until the time is over and returns the units let go.
func backlog(take takeFunc, d time.Duration, cost func() int) (units int) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		n := cost()
		for {
			wait, err := take(n)
			if err != nil {
				panic(err)
			}
			if wait == 0 {
				break
			}
			time.Sleep(wait)
		}
		if time.Now().Before(end) {
			units += n
		}
	}
	return units
}

func one() int { return 1 }

// everyKind makes one of each, n units per second or so.
func everyKind(n int) map[string]Account {
	return map[string]Account{
		"bucket burst 1": bucket(rate.Limit(n), 1),
		"bucket":         bucket(rate.Limit(n), 1+n/3),
		"leaky":          leaky(rate.Limit(n)),
		"fixed":          fixed(n, time.Second),
		"sliding":        sliding(n, time.Second),
	}
}

// readyAt is the earliest moment, not before at, at which n units may start.
func readyAt(o Account, at time.Time, n int) (time.Time, error) {
	if err := stateOf(o).Check(n); err != nil {
		return at, err
	}
	return stateOf(o).After(at, 0, n), nil
}
