package throttle

import (
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/account"
	"github.com/go-throttle/throttle/internal/moment"
)

// A soakAccount is what a limiter ought to hold, reckoned in the plainest way from what has started:
// its units are gone from the moment of the start, and nothing else is.
type soakAccount interface {
	roll(now time.Time)                                               // forgets what is past
	allows(total, biggest int) bool                                   // may calls of total units, the biggest of so many, start now
	take(now time.Time, n int)                                        // whatever there is
	giveBack(at time.Time, n int)                                     // what was taken at that moment
	adjust(now time.Time, n int)                                      // as Adjuster
	holds(actual float64, taken, back int, loose bool) (string, bool) // whether actual is what is left after this instant's takes
}

// A soakModel watches one of the library's limiters. What happens in one instant of virtual time has
// no order for an observer, so it is collected, and weighed when the instant is over. Guarded by
// the soak's lock.
type soakModel struct {
	name  string
	lim   Limiter
	set   account.Set // of lim alone
	acc   soakAccount
	takes []int
	backs []backed
	loose bool // foreign limiters are asked too, and the time that this takes is made up for: see asOf
}

type backed struct {
	at time.Time
	n  int
}

func newSoakModel(lim Limiter) *soakModel {
	m := &soakModel{lim: lim, set: flatten(lim)}
	switch l := lim.(type) {
	case *Bucket:
		m.name = fmt.Sprintf("Bucket(%v, %d)", l.Limit(), l.Burst())
		m.acc = &tokenAccount{rate: float64(l.Limit()), burst: float64(l.Burst()), tokens: float64(l.Burst()), last: time.Now()}
	case *Leaky:
		m.name = fmt.Sprintf("Leaky(%v)", l.Limit())
		m.acc = &tokenAccount{rate: float64(l.Limit()), burst: 1, tokens: 1, last: time.Now()}
	case *FixedWindow:
		n, per := windowOf(l)
		m.name = fmt.Sprintf("FixedWindow(%d, %v)", n, per)
		m.acc = &windowAccount{n: n, per: per}
	case *SlidingWindow:
		n, per := windowOf(l)
		m.name = fmt.Sprintf("SlidingWindow(%d, %v)", n, per)
		m.acc = &slidingAccount{n: n, per: per}
	}
	return m
}

// settle weighs the instant that is over, and says what is wrong.
func (m *soakModel) settle(now time.Time) (wrong string) {
	_, tokens := m.acc.(*tokenAccount)
	if m.loose && !tokens {
		m.takes, m.backs = m.takes[:0], m.backs[:0]
		return ""
	}
	m.acc.roll(now)
	taken, back, biggest := 0, 0, 0
	for _, n := range m.takes {
		taken, biggest = taken+n, max(biggest, n)
	}
	for _, b := range m.backs {
		back += b.n
	}
	if taken > 0 && back == 0 && !m.loose && !m.acc.allows(taken, biggest) {
		wrong = fmt.Sprintf("%s let calls of %v units start at once, and holds %+v", m.name, m.takes, m.acc)
	}
	for _, b := range m.backs {
		m.acc.giveBack(b.at, b.n)
	}
	for _, n := range m.takes {
		m.acc.take(now, n)
	}
	actual := m.set.Available(now)
	if why, ok := m.acc.holds(actual, taken, back, m.loose); !ok && wrong == "" {
		wrong = fmt.Sprintf("%s holds %v units, not %s, after calls of %v units have started and %v have come back", m.name, actual, why, m.takes, m.backs)
	}
	m.takes, m.backs = m.takes[:0], m.backs[:0]
	return wrong
}

// soakGrain is what rounding may cost, in units.
const soakGrain = 1e-4

// soakRate is above all rates, in units per second.
const soakRate = 70

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
		return a.tokens-float64(total-biggest) >= a.burst-soakGrain
	}
	return a.tokens >= float64(total)-soakGrain
}

func (a *tokenAccount) take(time.Time, int)     {}
func (a *tokenAccount) giveBack(time.Time, int) {}

func (a *tokenAccount) adjust(_ time.Time, n int) { a.tokens = min(a.burst, a.tokens-float64(n)) }

// holds: what comes back first may be cut at the burst, what comes back last is not.
func (a *tokenAccount) holds(actual float64, taken, back int, loose bool) (string, bool) {
	least := min(a.burst, a.tokens+float64(back)) - float64(taken)
	most := min(a.burst, a.tokens-float64(taken)+float64(back))
	a.tokens = most
	grain := soakGrain
	if loose {
		grain += moment.MaxLate.Seconds() * soakRate
	}
	if a.rate == 0 {
		least, most = min(0, least), min(0, most)
		return fmt.Sprint(least), actual >= least-grain && actual <= most+grain
	}
	ok := actual >= least-grain && actual <= most+grain
	if ok {
		a.tokens = actual // so that what is rounded does not add up
	}
	return fmt.Sprintf("%v to %v", least, most), ok
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

func (a *windowAccount) giveBack(at time.Time, n int) {
	if a.used > 0 && !at.Before(a.start) {
		a.used = max(0, a.used-n)
	}
}

func (a *windowAccount) adjust(now time.Time, n int) {
	if n > 0 {
		a.take(now, n)
		return
	}
	a.used = max(0, a.used+n)
}

func (a *windowAccount) holds(actual float64, _, _ int, _ bool) (string, bool) {
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

func (a *slidingAccount) giveBack(at time.Time, n int) {
	a.units = slices.DeleteFunc(a.units, func(u time.Time) bool {
		n--
		return n >= 0 && u.Equal(at)
	})
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

func (a *slidingAccount) holds(actual float64, _, _ int, _ bool) (string, bool) {
	return fmt.Sprint(a.n - len(a.units)), actual == float64(a.n-len(a.units))
}

// paid notes that calls of n units start now.
func (m *soakModel) paid(n int) {
	if n > 0 {
		m.takes = append(m.takes, n)
	}
}

// meddle changes the limiter, between two instants. All that it does is done to the account too.
func (m *soakModel) meddle(s *soak, now time.Time) {
	switch x := s.n(4); {
	case x == 0:
		n := s.n(9) - 5
		s.tell("%s Adjust(%d)", m.name, n)
		m.acc.adjust(now, n)
		m.lim.(Adjuster).Adjust(n)
		return
	case x == 1:
		if b, ok := m.lim.(*Bucket); ok {
			s.reserve(m, b, now)
			return
		}
	}
	a, ok := m.acc.(*tokenAccount)
	if !ok {
		return
	}
	limit := rate.Limit(math.Round(1 + 60*math.Pow(s.r.Float64(), 2)))
	if s.n(40) == 0 {
		limit = 0
	}
	if b, ok := m.lim.(*Bucket); ok && s.n(2) == 0 {
		burst := 1 + s.n(12)
		s.tell("%s SetBurst(%d)", m.name, burst)
		a.burst, a.tokens = float64(burst), min(a.tokens, float64(burst))
		b.SetBurst(burst)
		return
	}
	s.tell("%s SetLimit(%v)", m.name, limit)
	a.rate = float64(limit)
	m.lim.(interface{ SetLimit(rate.Limit) }).SetLimit(limit)
}

// windowOf is what an unused window was made with.
func windowOf(l Limiter) (n int, per time.Duration) {
	set := flatten(l)
	units := set.Available(time.Now())
	return int(units), time.Duration(math.Round(units / float64(set.Rate()) * float64(time.Second)))
}
