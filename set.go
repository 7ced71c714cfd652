package throttle

import (
	"bytes"
	"math"
	"slices"
	"time"

	"golang.org/x/time/rate"
)

// A set of limiters that are paid together. The zero set is empty. Its methods lock the accounts
// themselves, in one order.
type set struct {
	own     []account // sorted by rank, no duplicates
	foreign []takes   // limiters of other kinds, in the order of joining, the one without Adjust last
}

// join puts an account in its place, unless it is there already.
func (s *set) join(o account) {
	if !slices.Contains(s.own, o) {
		s.own = append(s.own, o)
		slices.SortFunc(s.own, func(a, b account) int { return bytes.Compare(a.core().rank[:], b.core().rank[:]) })
	}
}

func (s *set) lock() {
	for _, o := range s.own {
		o.core().mu.Lock()
	}
}

func (s *set) unlock() {
	for _, o := range s.own {
		o.core().mu.Unlock()
	}
}

// takeBy takes n units from all own limiters, as of the first moment from at to now at which all of
// them are ready; as readiness is monotone, one pass finds it. A moment not after now means taken;
// otherwise nothing was, and it is the one to ask again.
func (s *set) takeBy(at, now time.Time, n int) (time.Time, error) {
	s.lock()
	defer s.unlock()
	m, err := s.readyLocked(at, n)
	if err != nil {
		return m, err
	}
	clock := now // the most advanced of theirs
	for _, o := range s.own {
		clock = o.core().lift(clock)
	}
	if m.After(clock) {
		return m, nil
	}
	for _, o := range s.own {
		o.take(m, n)
	}
	return earliest(m, now), nil
}

// ready is the latest of what all say.
func (s *set) ready(at time.Time, n int) (m time.Time, err error) {
	s.lock()
	defer s.unlock()
	return s.readyLocked(at, n)
}

func (s *set) readyLocked(at time.Time, n int) (m time.Time, err error) {
	if n < 0 {
		return at, errNegative(n)
	}
	m = at
	for _, o := range s.own {
		if err := o.check(n); err != nil {
			return at, err
		}
		m = latest(m, o.after(at, 0, n))
	}
	return m, nil
}

// each visits all own limiters under their locks.
func (s *set) each(visit func(account)) {
	s.lock()
	defer s.unlock()
	for _, o := range s.own {
		visit(o)
	}
}

// giveBack returns an unused takeBy(…, n) that answered at. It tells nobody: it may be called under
// the line's lock, and an All that is refused again and again must not wake its own line each time.
func (s *set) giveBack(at, now time.Time, n int) {
	s.each(func(o account) { o.giveBack(at, now, n) })
}

// after is the latest prediction.
func (s *set) after(from time.Time, ahead int64, n int) time.Time {
	m := from
	s.each(func(o account) { m = latest(m, o.after(from, ahead, n)) })
	return m
}

// rate is the slowest rate, rate.Inf if there is none.
func (s *set) rate() rate.Limit {
	slowest := rate.Inf
	s.each(func(o account) { slowest = min(slowest, o.rate()) })
	return slowest
}

// easeIn is the time over which the gate spreads what a limiter has left when it
// lets calls in again: a quota for a day must not slow them to one in minutes.
const easeIn = 10 * time.Minute

// pace is the rate at which the gate lets calls in again: the slowest long-run rate,
// of a limiter with much left what spends that within easeIn. rate.Inf if there is none.
func (s *set) pace(now time.Time) rate.Limit {
	slowest := rate.Inf
	s.each(func(o account) {
		slowest = min(slowest, max(o.rate(), rate.Limit(o.available(now)/easeIn.Seconds())))
	})
	return slowest
}

// available is the smallest number of units that could be taken at now, +Inf without limit.
func (s *set) available(now time.Time) float64 {
	fewest := math.Inf(1)
	s.each(func(o account) { fewest = min(fewest, o.available(now)) })
	return fewest
}

// fresh reports whether all own limiters are as new. Of foreign ones it knows nothing.
func (s *set) fresh(now time.Time) bool {
	fresh := true
	s.each(func(o account) { fresh = fresh && o.fresh(now) })
	return fresh
}
