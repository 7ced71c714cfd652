package worlds

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const never = math.MaxInt64

// What an account counts of a call.
const (
	byCost = iota
	byHold
	bySlot
)

const (
	bucket = iota
	fixed
	sliding
	slots
)

// An account is the oracle's own arithmetic of one limit. Times are in ns since the world began.
type account struct {
	name        string
	unit, kind  int
	rate, burst float64 // of a bucket; burst is n of a window, and the number of slots
	per         int64
	level       float64 // of a bucket, and free slots
	at          int64
	open        int64 // a fixed window: its begin
	used        float64
	log         []stamp
	back        bool    // failures give back what they held
	slop        float64 // how much more there may be: what was given back to a full bucket at the moment of starts, see admits
	moment      moment
}

// A moment is what happens to an account at one. In which order is not known.
type moment struct {
	at    int64
	most  float64 // what there was before, at most
	given float64
	taken []*call
}

type stamp struct {
	at int64
	n  float64
}

// eps is what rounding may cost, in units.
const eps = 1e-4

func (a *account) amount(c *call) float64 {
	switch a.unit {
	case byHold:
		return float64(c.hold)
	case bySlot:
		return 1
	}
	return float64(c.cost)
}

// need is what has to be there for n units to start.
func (a *account) need(n float64) float64 { return min(n, a.burst) }

func (a *account) advance(now int64) {
	if now <= a.at {
		return
	}
	switch a.kind {
	case bucket:
		if a.level = min(a.burst, a.level+a.rate*float64(now-a.at)/1e9); a.level == a.burst {
			a.slop = 0
		}
	case fixed:
		if a.used > 0 && now >= a.open+a.per {
			a.used = 0
		}
	case sliding:
		i := 0
		for i < len(a.log) && a.log[i].at+a.per <= now {
			i++
		}
		a.log = a.log[i:]
	}
	a.at = now
}

// free is what is there at a moment.
func (a *account) free(now int64) float64 {
	a.advance(now)
	switch a.kind {
	case fixed:
		return a.burst - a.used
	case sliding:
		f := a.burst
		for _, s := range a.log {
			f -= s.n
		}
		return f
	}
	return a.level
}

// when is the moment, now or later, at which level units are there if nobody takes any.
func (a *account) when(level float64, now int64) int64 {
	level = min(level, a.burst)
	f := a.free(now)
	if f >= level-eps {
		return now
	}
	switch a.kind {
	case bucket:
		if a.rate <= 0 {
			return never
		}
		return now + int64(math.Ceil((level-f)/a.rate*1e9))
	case fixed:
		return a.open + a.per
	case sliding:
		for _, s := range a.log {
			if f += s.n; f >= level-eps {
				return s.at + a.per
			}
		}
	}
	return never
}

// produce is an upper bound of the time in which n units come, whatever is there; of a window its length for each n.
func (a *account) produce(n float64) int64 {
	switch a.kind {
	case bucket:
		return int64(n / a.rate * 1e9)
	case fixed, sliding:
		return int64(math.Ceil(n/a.burst)) * a.per
	}
	return never
}

func (a *account) take(n float64, now int64) {
	a.advance(now)
	switch a.kind {
	case bucket, slots:
		a.level -= n
	case fixed:
		if a.used == 0 {
			a.open = now
		}
		a.used += n
	case sliding:
		a.log = append(a.log, stamp{now, n})
	}
}

func (a *account) give(n float64, now int64) {
	a.begin(now)
	a.moment.given += n
	a.level = min(a.burst, a.level+n)
}

// begin notes what there is when a moment begins.
func (a *account) begin(now int64) {
	if most := min(a.burst, a.free(now)+a.slop); a.moment.at != now {
		a.moment = moment{at: now, most: most}
	}
}

// admits returns a call of those that start at this moment that could not, in whatever order they started, and what there was
// then; nil: there is none. The best order has the smallest first, and gives units back when one lacks them.
func (a *account) admits(now int64) (c *call, had float64) {
	m := &a.moment
	if m.at != now {
		return nil, 0
	}
	give := func() {
		n := min(m.given, a.burst-m.most)
		m.most, m.given = m.most+n, m.given-n
	}
	slices.SortFunc(m.taken, func(x, y *call) int { return cmp.Compare(a.amount(x), a.amount(y)) })
	for _, x := range m.taken {
		n := a.amount(x)
		if m.most < a.need(n)-eps {
			give()
		}
		if m.most < a.need(n)-eps && c == nil {
			c, had = x, m.most
		}
		m.most -= n
	}
	give()
	a.slop = max(0, m.most-a.free(now))
	return c, had
}

func (a *account) setRate(r float64, now int64) {
	a.advance(now)
	a.rate = r
}

// step is the time of one unit, for what is foretold.
func (a *account) step() time.Duration {
	switch a.kind {
	case bucket:
		return time.Duration(1e9 / a.rate)
	case slots:
		return 0
	}
	return time.Duration(a.per)
}

func (a *account) clone() *account {
	b := *a
	b.log = slices.Clone(a.log)
	return &b
}
