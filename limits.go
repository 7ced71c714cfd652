package throttle

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"golang.org/x/time/rate"
)

// limits is a flattened set of limiters that are paid together.
type limits struct {
	own     []own     // sorted by rank, no duplicates
	foreign []Limiter // in argument order, the one without Adjuster last
}

// flatten is tryFlatten where nonsense is the programmer's: it panics.
func flatten(ls ...Limiter) limits {
	s, err := tryFlatten(ls...)
	if err != nil {
		panic("throttle: All: " + err.Error())
	}
	return s
}

// tryFlatten sorts limiters by kind, resolves nested Alls and merges duplicates of the own kinds.
// Nil limiters are skipped. A second foreign limiter without Adjuster is an error: if the later of
// two refuses, what the earlier one took would be lost.
func tryFlatten(ls ...Limiter) (limits, error) {
	var s limits
	var last []Limiter // those that cannot give back; one may be, and is asked last
	var add func(ls []Limiter)
	add = func(ls []Limiter) {
		for _, l := range ls {
			a, nested := l.(*all)
			o, ours := asOwn(l)
			_, gives := l.(Adjuster)
			switch {
			case none(l):
			case nested:
				for _, o := range a.own {
					add([]Limiter{o})
				}
				add(a.foreign)
			case ours && !slices.Contains(s.own, o):
				s.own = append(s.own, o)
			case ours:
			case gives:
				s.foreign = append(s.foreign, l)
			default:
				last = append(last, l)
			}
		}
	}
	add(ls)
	if len(last) > 1 {
		return s, fmt.Errorf("%T and %T both lack Adjust; at most one limiter may, because units that it took cannot be given back", last[0], last[1])
	}
	s.foreign = append(s.foreign, last...)
	slices.SortFunc(s.own, func(a, b own) int { return bytes.Compare(a.core().rank[:], b.core().rank[:]) })
	return s, nil
}

// none reports whether l is no limiter: nil, or a nil pointer of one of our kinds.
func none(l Limiter) bool {
	_, ours := asOwn(l)
	return l == nil || ours && reflect.ValueOf(l).IsNil()
}

func (s *limits) lock() {
	for _, o := range s.own {
		o.core().mu.Lock()
	}
}

func (s *limits) unlock() {
	for _, o := range s.own {
		o.core().mu.Unlock()
	}
}

// takeBy takes n units from all own limiters, as of the first moment from at to now at which all of
// them are ready; as readiness is monotone, one pass finds it. A moment not after now means taken;
// otherwise nothing was, and it is the one to ask again.
func (s *limits) takeBy(at, now time.Time, n int) (time.Time, error) {
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
func (s *limits) ready(at time.Time, n int) (m time.Time, err error) {
	s.lock()
	defer s.unlock()
	return s.readyLocked(at, n)
}

func (s *limits) readyLocked(at time.Time, n int) (m time.Time, err error) {
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
func (s *limits) each(visit func(own)) {
	s.lock()
	defer s.unlock()
	for _, o := range s.own {
		visit(o)
	}
}

// giveBack returns an unused takeBy(…, n) that answered at. It tells nobody: it may be called under
// the line's lock, and an All that is refused again and again must not wake its own line each time.
func (s *limits) giveBack(at, now time.Time, n int) {
	s.each(func(o own) { o.giveBack(at, now, n) })
}

// after is the latest prediction.
func (s *limits) after(from time.Time, ahead int64, n int) time.Time {
	m := from
	s.each(func(o own) { m = latest(m, o.after(from, ahead, n)) })
	return m
}

// rate is the slowest rate, rate.Inf if there is none.
func (s *limits) rate() rate.Limit {
	slowest := rate.Inf
	s.each(func(o own) { slowest = min(slowest, o.rate()) })
	return slowest
}

// easeIn is the time over which the gate spreads what a limiter has left when it
// lets calls in again: a quota for a day must not slow them to one in minutes.
const easeIn = 10 * time.Minute

// pace is the rate at which the gate lets calls in again: the slowest long-run rate,
// of a limiter with much left what spends that within easeIn. rate.Inf if there is none.
func (s *limits) pace(now time.Time) rate.Limit {
	slowest := rate.Inf
	s.each(func(o own) {
		slowest = min(slowest, max(o.rate(), rate.Limit(o.available(now)/easeIn.Seconds())))
	})
	return slowest
}

// available is the smallest number of units that could be taken at now, +Inf without limit.
func (s *limits) available(now time.Time) float64 {
	fewest := math.Inf(1)
	s.each(func(o own) { fewest = min(fewest, o.available(now)) })
	return fewest
}

// fresh reports whether all own limiters are as new. Of foreign ones it knows nothing.
func (s *limits) fresh(now time.Time) bool {
	fresh := true
	s.each(func(o own) { fresh = fresh && o.fresh(now) })
	return fresh
}
