package limit

import (
	"slices"
	"time"

	"golang.org/x/time/rate"
)

// A Forecast runs copies of limiters ahead of the clock, with the calls that wait, to find when one behind them
// would start.
//
// The formula of a single limiter (Set.After) is not enough for several: it takes each of them to be busy all the
// time, while a limiter that waits for another one loses what it had ready. Example: a leaky 20/s and a window of
// 1,000 a minute, both unused. The 1,900th call is due after 95 s by the first and after 60 s by the second. But
// the first thousand are through after 50 s, nobody goes until 60 s, and the other 900 take 45 s: 105 s.
// Nor does a formula know where costs leave a rest: a window of 10 lets three calls of 3 go, not 3⅓.
type Forecast struct {
	From  time.Time // nobody starts before
	Parts []Part    // what each call pays
	Steps int       // that the run takes at most, about; above that several calls go in one step
	Costs []int32   // of the calls ahead, in order, or of the first of them; nil: 1 each
}

// A Part is a copy of one thing that calls pay.
type Part interface {
	// Ready is the first moment, not before at, at which a call of n units may start if nobody goes before it.
	Ready(at time.Time, n int) time.Time
	// Take books calls that start at at, of so many units in all. What is not there becomes a debt.
	Take(at time.Time, calls, units int)
}

// Foresee returns when a call of n units starts behind calls of so many units, and more calls of one unit each.
//
// Where more calls are ahead than there may be steps, each step is for several: they start when the first of them
// may, and book the units of all, as a debt that those after them wait for. So no unit is lost, and the last
// call, which goes alone, waits until all is paid.
func Foresee(f Forecast, ahead, more int64, n int) time.Time {
	if len(f.Costs) == 0 || slices.Max(f.Costs) <= 0 {
		ahead, more = 0, ahead+more
	}
	group := max(1, (callsOf(f.Costs, ahead)+more+int64(f.Steps)-1)/int64(f.Steps))
	at, i := f.From, 0
	for ahead > 0 || more > 0 {
		first, calls, units := 1, int64(0), int64(0)
		for ; calls < group && ahead > 0; calls++ {
			cost := min(int64(f.Costs[i%len(f.Costs)]), ahead)
			if i++; calls == 0 {
				first = int(cost)
			}
			ahead, units = ahead-cost, units+cost
		}
		ones := min(group-calls, more)
		more, calls, units = more-ones, calls+ones, units+ones
		if at = readyOf(f.Parts, at, first); at.Sub(f.From) >= Forever/2 {
			return at
		}
		for _, p := range f.Parts {
			p.Take(at, int(calls), int(units))
		}
	}
	return readyOf(f.Parts, at, n)
}

// callsOf is how many calls so many units are, about. Costs that are not known are as those that are.
func callsOf(costs []int32, units int64) int64 {
	if units == 0 {
		return 0
	}
	var sum int64
	for _, c := range costs {
		sum += int64(c)
	}
	return units * int64(len(costs)) / sum
}

// readyOf is the first moment at which all parts let a call of n units start. One pass finds it: what is ready stays so.
func readyOf(parts []Part, at time.Time, n int) time.Time {
	m := at
	for _, p := range parts {
		m = Latest(m, p.Ready(at, n))
	}
	return m
}

// Copies are the accounts of the set as they are now, to be run ahead. The locks of all are taken together, so they are of
// one moment. An example: All(10/s, 1000/h) with 3 units of the first and 40 of the second there. What is run ahead takes
// from both copies, and the accounts stay as they are.
func (s *Set) Copies() (parts []Part) {
	s.each(func(a State) { parts = append(parts, &copied{a.Clone()}) })
	return parts
}

// Plain reports whether After is exact, so that no Forecast is needed: there is one account at most, and it is a
// bucket, or all calls ahead are of one unit (ones).
func (s *Set) Plain(ones bool) bool {
	return len(s.accounts) == 0 || len(s.accounts) == 1 && (ones || s.sole != nil)
}

// paceOf is one account's part of Pace.
func paceOf(a State, now time.Time) rate.Limit {
	return max(a.Rate(), rate.Limit(a.Available(now)/easeIn.Seconds()))
}

// copied is an account's copy, which nobody else knows. It needs no lock.
type copied struct{ State }

// Ready implements Part.
func (c *copied) Ready(at time.Time, n int) time.Time { return c.After(at, 0, n) }

// Take implements Part.
func (c *copied) Take(at time.Time, _, units int) {
	if units > 0 {
		c.Consume(at, units)
	}
}

// Clone implements State.
func (s *tokens) Clone() State { c := *s; return &c }

// Clone implements State.
func (s *fixedCount) Clone() State { c := *s; return &c }

// Clone implements State.
func (s *slidingLog) Clone() State {
	c := *s
	c.log = stamps{buf: slices.Clone(s.log.live())}
	return &c
}
