package soak

import (
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
)

// An account is what a limiter ought to hold, computed in the plainest way from what has started:
// its units are gone from the moment of the start, and nothing else is.
type account interface {
	roll(now time.Time)                                         // forgets what is past
	allows(total, biggest int) bool                             // may calls of total units, the biggest of so many, start now
	take(now time.Time, n int)                                  // whatever there is
	adjust(now time.Time, n int)                                // as Adjuster
	holds(actual float64, taken int, loose bool) (string, bool) // whether actual is what is left after this instant's takes
}

// A model watches one of the library's limiters. What happens in one instant of virtual time has
// no order for an observer, so it is collected, and weighed when the instant is over. Guarded by
// the world's lock.
type model struct {
	name    string
	lim     throttle.Limiter
	asked   *throttle.Queue // only its Stats are, for the units of lim
	acc     account
	takes   []int
	changed bool // a setter was called
	loose   bool // foreign limiters are asked too, and the time that this takes is made up for
}

// newModel makes a limiter and its model.
func (w *world) newModel() *model {
	m := new(model)
	limit, burst := rate.Limit(5+w.n(60)), 1+w.n(10)
	n, per := 1+w.n(20), w.dur(50*time.Millisecond, 3*time.Second)
	switch w.n(5) {
	case 0, 1:
		m.name, m.lim = fmt.Sprintf("Bucket(%v, %d)", limit, burst), throttle.NewBucket(limit, burst)
		m.acc = &tokenAccount{rate: float64(limit), burst: float64(burst), tokens: float64(burst), last: time.Now()}
	case 2:
		m.name, m.lim = fmt.Sprintf("Leaky(%v)", limit), throttle.NewLeaky(limit)
		m.acc = &tokenAccount{rate: float64(limit), burst: 1, tokens: 1, last: time.Now()}
	case 3:
		m.name, m.lim = fmt.Sprintf("FixedWindow(%d, %v)", n, per), throttle.NewFixedWindow(n, per)
		m.acc = &windowAccount{n: n, per: per}
	default:
		m.name, m.lim = fmt.Sprintf("SlidingWindow(%d, %v)", n, per), throttle.NewSlidingWindow(n, per)
		m.acc = &slidingAccount{n: n, per: per}
	}
	m.asked = throttle.NewQueue(m.lim, throttle.QueueOptions{})
	return m
}

// available is the units that the limiter has now.
func (m *model) available() float64 { return m.asked.Stats().Tokens }

// settle weighs the instant that is over, and says what is wrong.
func (m *model) settle(now time.Time) (wrong string) {
	_, tokens := m.acc.(*tokenAccount)
	if m.loose && !tokens {
		m.takes = m.takes[:0]
		return ""
	}
	m.acc.roll(now)
	taken, biggest := 0, 0
	for _, n := range m.takes {
		taken, biggest = taken+n, max(biggest, n)
	}
	if taken > 0 && !m.loose && !m.acc.allows(taken, biggest) {
		wrong = fmt.Sprintf("%s let calls of %v units start at once, and holds %+v", m.name, m.takes, m.acc)
	}
	for _, n := range m.takes {
		m.acc.take(now, n)
	}
	actual := m.available()
	if why, ok := m.acc.holds(actual, taken, m.loose); !ok && wrong == "" {
		wrong = fmt.Sprintf("%s holds %v units, not %s, after calls of %v units have started", m.name, actual, why, m.takes)
	}
	m.takes = m.takes[:0]
	return wrong
}

// grain is what rounding may cost, in units.
const grain = 1e-4

// topRate is above all rates, in units per second.
const topRate = 70

// A tokenAccount is a token bucket.
type tokenAccount struct {
	rate, burst float64
	tokens      float64 // before this instant's takes, until holds
	last        time.Time
	given       float64
}

func (a *tokenAccount) roll(now time.Time) {
	a.tokens = min(a.burst, a.tokens+a.rate*now.Sub(a.last).Seconds())
	a.last, a.given = now, 0
}

func (a *tokenAccount) allows(total, biggest int) bool {
	if float64(biggest) > a.burst { // goes when the bucket is full
		return a.tokens-float64(total-biggest) >= a.burst-grain
	}
	return a.tokens >= float64(total)-grain
}

func (a *tokenAccount) take(time.Time, int) {}

func (a *tokenAccount) adjust(_ time.Time, n int) { a.tokens = min(a.burst, a.tokens-float64(n)) }

func (a *tokenAccount) holds(actual float64, taken int, loose bool) (string, bool) {
	left := a.tokens - float64(taken)
	a.tokens = left
	slack := grain
	if loose {
		slack += maxLate.Seconds() * topRate
	}
	if a.rate == 0 {
		left = min(0, left)
		return fmt.Sprint(left), math.Abs(actual-left) <= slack
	}
	ok := math.Abs(actual-left) <= slack
	if ok {
		a.tokens = actual // so that what is rounded does not add up
	}
	return fmt.Sprint(left), ok
}

// A windowAccount is windows in a row.
type windowAccount struct {
	n     int
	per   time.Duration
	start time.Time
	used  int // from start on; 0: no window is open
}

func (a *windowAccount) roll(now time.Time) {
	for a.used > 0 && !now.Before(a.start.Add(a.per)) {
		a.start, a.used = a.start.Add(a.per), max(0, a.used-a.n)
	}
}

func (a *windowAccount) allows(total, biggest int) bool {
	if biggest > a.n {
		return a.used == 0 && total == biggest
	}
	return a.used+total <= a.n
}

func (a *windowAccount) take(now time.Time, n int) {
	if a.used == 0 {
		a.start = now
	}
	a.used += n
}

func (a *windowAccount) adjust(now time.Time, n int) {
	if n > 0 {
		a.take(now, n)
		return
	}
	a.used = max(0, a.used+n)
}

func (a *windowAccount) holds(actual float64, _ int, _ bool) (string, bool) {
	return fmt.Sprint(a.n - a.used), actual == float64(a.n-a.used)
}

// A slidingAccount has the moment of each unit; one that was owed has that of the unit whose place
// it took, a window later.
type slidingAccount struct {
	n     int
	per   time.Duration
	units []time.Time
}

func (a *slidingAccount) roll(now time.Time) {
	gone := 0
	for gone < len(a.units) && !a.units[gone].After(now.Add(-a.per)) {
		gone++
	}
	a.units = a.units[gone:]
}

func (a *slidingAccount) allows(total, biggest int) bool {
	if biggest > a.n {
		return len(a.units) == 0 && total == biggest
	}
	return len(a.units)+total <= a.n
}

func (a *slidingAccount) take(now time.Time, n int) {
	for range n {
		at := now
		if len(a.units) >= a.n {
			at = a.units[len(a.units)-a.n].Add(a.per)
		}
		i := len(a.units)
		for i > 0 && a.units[i-1].After(at) {
			i--
		}
		a.units = slices.Insert(a.units, i, at)
	}
}

func (a *slidingAccount) adjust(now time.Time, n int) {
	if n > 0 {
		a.take(now, n)
		return
	}
	for ; n < 0 && len(a.units) > 0 && a.units[len(a.units)-1].After(now); n++ {
		a.units = a.units[:len(a.units)-1] // of the debt
	}
	a.units = a.units[min(-n, len(a.units)):]
}

func (a *slidingAccount) holds(actual float64, _ int, _ bool) (string, bool) {
	return fmt.Sprint(a.n - len(a.units)), actual == float64(a.n-len(a.units))
}

// paid notes that calls of n units start now.
func (m *model) paid(n int) {
	if n > 0 {
		m.takes = append(m.takes, n)
	}
}

// meddle changes the limiter, between two instants. All that it does is done to the account too.
func (m *model) meddle(w *world, now time.Time) {
	switch x := w.n(4); {
	case x == 0:
		n := w.n(9) - 5
		w.note("%s Adjust(%d)", m.name, n)
		m.acc.adjust(now, n)
		m.lim.(throttle.Adjuster).Adjust(n)
		return
	case x == 1:
		if b, ok := m.lim.(*throttle.Bucket); ok {
			w.reserve(m, b, now)
			return
		}
	}
	a, ok := m.acc.(*tokenAccount)
	if !ok {
		return
	}
	limit := rate.Limit(math.Round(1 + 60*math.Pow(w.r.Float64(), 2)))
	if w.n(40) == 0 {
		limit = 0
	}
	m.changed = true
	if b, ok := m.lim.(*throttle.Bucket); ok && w.n(2) == 0 {
		burst := 1 + w.n(12)
		w.note("%s SetBurst(%d)", m.name, burst)
		a.burst, a.tokens = float64(burst), min(a.tokens, float64(burst))
		b.SetBurst(burst)
		return
	}
	w.note("%s SetLimit(%v)", m.name, limit)
	a.rate = float64(limit)
	m.lim.(interface{ SetLimit(rate.Limit) }).SetLimit(limit)
}
