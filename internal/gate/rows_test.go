package gate

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

// TestRowsThatEnd: after a script of answers, so many failures in a row close the gate. "x" is a failure of the next call,
// "o" of the same one, "." a success, "-" a tenth of a second.
func TestRowsThatEnd(t *testing.T) {
	for _, c := range []struct {
		name, script string
		want         int
	}{
		{"nothing", "", 8},
		{"a failure now and then", strings.Repeat(".....x", 50) + ".", 8},
		{"one in two", strings.Repeat("x.", 50), 8},
		{"two in a row", "xx.", 12},
		{"five", "xxxxx.", 30},
		{"five, and a success more", "xxxxx..", 29},
		{"five, and 30 successes", "xxxxx" + strings.Repeat(".", 30), 11},
		{"five, long ago", "xxxxx" + strings.Repeat(".", 45), 8},
		{"the longest counts", "xxxxx.xx.", 29},
		{"one call alone failed", "xoooo.", 8},
		{"an outage of a second", "xxxxx----------.", 8},
		{"hardly that", "xxxxx---------.", 30},
		{"it closed the gate, and the first probe succeeds", "xxxxxxxx---.", 48},
		{"an outage that closed the gate", "xxxxxxxx---x-----x-----.", 8},
	} {
		g, now, call := new(Gate), zero, uint64(0)
		answer := func(o Outcome) (stopped bool) {
			if g.ProbeDue(now) {
				g.Start(1, now, now, rate.Inf)
			}
			return g.Observe(Report{Outcome: o, Epoch: g.Epoch(), Call: call}, now, rate.Inf)
		}
		for _, a := range c.script {
			switch a {
			case 'x':
				call++
				answer(Failure)
			case 'o':
				answer(Failure)
			case '.':
				answer(Success)
			case '-':
				now = now.Add(100 * time.Millisecond)
			}
		}
		got := 1
		for call++; !answer(Failure); call++ {
			got++
		}
		if got != c.want {
			t.Errorf("%s: closed after %d failures, want %d", c.name, got, c.want)
		}
	}
}

// TestOutageAfterRows: after rows that successes have ended within a moment, an outage is noticed by the 384th failure at the
// latest, and within 6 s once there are eight: also if a batch met those rows, and now there is a call a second.
func TestOutageAfterRows(t *testing.T) {
	for _, rows := range [][]int{nil, {2}, {7}, {7, 41}, {7, 41, 200}} {
		for _, gap := range []time.Duration{0, time.Millisecond, 50 * time.Millisecond, time.Second, time.Minute} {
			g, now, call := new(Gate), zero, uint64(0)
			answer := func(o Outcome) (closes bool) {
				call++
				return g.Observe(Report{Outcome: o, Epoch: g.Epoch(), Call: call}, now, rate.Inf)
			}
			for _, row := range rows {
				for range row {
					if answer(Failure) {
						t.Fatalf("%v closes the gate", rows)
					}
				}
				answer(Success)
			}
			began, n := now, 1
			for ; !answer(Failure); n++ {
				now = now.Add(gap)
			}
			if took := now.Sub(began); n < failuresToClose || n > 384 || took > max(7*gap, 6*time.Second) {
				t.Errorf("after rows of %v, a failure each %v: noticed by %d after %v", rows, gap, n, took)
			}
		}
	}
}

// TestBatches: a job that calls each minute an upstream that is busy meets no more closings than one that calls all the time: a row
// of failures in two batches does not last for a minute.
func TestBatches(t *testing.T) {
	closed, batches := 0, 0
	for seed := range uint64(20) {
		rng, g, now := rand.New(rand.NewPCG(seed, 77)), new(Gate), zero
		for call := range uint64(2000) {
			if call%20 == 0 {
				now, batches = now.Add(time.Minute), batches+1
			}
			now = now.Add(10 * time.Millisecond)
			if at, _ := g.nextStart(now, rate.Inf); at.After(now) {
				now = at
			}
			g.Start(1, now, now, rate.Inf)
			g.LineEmpty(now)
			r := Report{Epoch: g.Epoch(), Call: call}
			if rng.IntN(4) > 0 {
				r.Outcome = Failure
			}
			if g.Observe(r, now, rate.Inf) {
				closed++
			}
		}
	}
	if closed > batches/100 {
		t.Errorf("%d batches of 20 calls, of which three of four are turned away: closed %d times", batches, closed)
	}
}

// TestShedding: an upstream that turns up to nine of ten requests away at random is not out, one that serves one in a hundred is;
// and when it serves nobody, that is noticed before long.
func TestShedding(t *testing.T) {
	for _, c := range []struct {
		share float64
		least int // closings in 40 times 2,500 answers, of which each begins anew
		most  int
		costs float64 // failures until an outage is noticed, in the mean
	}{
		{0, 0, 0, 8}, {0.1, 0, 0, 9}, {0.3, 0, 2, 14}, {0.5, 0, 10, 27}, {0.75, 0, 20, 65}, {0.9, 0, 100, 180},
		{0.95, 0, 200, 300}, {0.99, 300, 2000, 384},
	} {
		closed, costs := 0, 0
		const outages = 40
		for seed := range uint64(outages) {
			rng := rand.New(rand.NewPCG(seed, 39))
			g, now := new(Gate), zero
			call := uint64(0)
			answer := func(o Outcome) (closes bool) {
				now = now.Add(time.Millisecond)
				if at, _ := g.nextStart(now, rate.Inf); at.After(now) {
					now = at
				}
				g.Start(1, now, now, rate.Inf)
				g.LineEmpty(now)
				call++
				return g.Observe(Report{Outcome: o, Epoch: g.Epoch(), Call: call}, now, rate.Inf)
			}
			for range 2500 {
				o := Success
				if rng.Float64() < c.share {
					o = Failure
				}
				if answer(o) {
					closed++
				}
			}
			answer(Success)
			for costs++; !answer(Failure); costs++ {
			}
		}
		if mean := float64(costs) / outages; closed < c.least || closed > c.most || mean > c.costs {
			t.Errorf("%.2f turned away: closed %d times, want %d to %d; an outage is noticed after %.1f failures, want %v", c.share, closed, c.least, c.most, mean, c.costs)
		}
	}
}
