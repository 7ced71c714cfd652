package aimd

import (
	"math"
	"time"
)

// times are what is known of the response times of those that began soon after a step: how many there were, and how many of
// them have ended in time. They began so early that each had time to be too late when it is asked, ended or not. So slow
// ones count as much as fast ones, also those that never end, and no one counts that was in flight before the step.
//
// An example: a target of 1 s. A step is due 2.2 s after the last one. 40 calls began in the first half of that; 35 of them ended
// within 0.9 s, 2 more within 1.1 s, and 3 have not or took longer. The objective is that nine of ten are in time: 3 of 40 are too late, and
// 5 were not well in time, so the bound stays.
type times struct {
	began, well, just int // well: in less than below × Target; just: in up to above × Target
}

// The objective is that most answers are within the target. Chance makes more of few answers late: so many deviations are no
// evidence. A bound that is not used has to be right later on, and costs nothing now, so it takes more to lower it.
const (
	late         = 0.1
	chance       = 2
	chanceUnused = 4
)

// limit is what is too late, and period how long a step takes. Calls count that begin in the period, and so long before its end.
func (l *Law) limit() time.Duration { return seconds(above * l.Target) }

func (l *Law) period() time.Duration { return max(Every, 2*l.limit()) }

// seconds is a span, capped.
func seconds(s float64) time.Duration {
	return time.Duration(min(s*float64(time.Second), math.MaxInt64/4))
}

// Begin notes that one begins.
func (b *Bound) Begin(now time.Time) {
	if b.step.IsZero() {
		b.step = now
	}
	if b.counts(now) {
		b.times.began++
	}
}

// End notes that one has ended that began at that moment; ok: with an answer. Without one it tells nothing, unless it took
// longer than an answer may.
func (b *Bound) End(began, now time.Time, ok bool) {
	if !b.counts(began) {
		return
	}
	switch took := now.Sub(began); {
	case took > b.law.limit():
	case !ok:
		b.times.began--
	case took < seconds(below*b.law.Target):
		b.times.well++
	default:
		b.times.just++
	}
}

// counts reports whether one that began then belongs to those that count.
func (b *Bound) counts(began time.Time) bool {
	since := began.Sub(b.step)
	return since >= 0 && since < b.law.period()-b.law.limit()
}

// FollowTimes is Follow by response times.
func (b *Bound) FollowTimes(inFlight int, now time.Time) (moved bool) {
	b.Use(inFlight)
	if b.step.IsZero() || now.Sub(b.step) < b.law.period() {
		return false
	}
	deviations := float64(chanceUnused)
	if float64(b.peak) >= full*float64(b.now) {
		deviations = chance
	}
	return b.take(b.times.load(b.law.Target, deviations), inFlight, now)
}

// load is what the times say, as a load: too much, enough, or that there is room.
func (t *times) load(target, deviations float64) float64 {
	n := float64(t.began)
	switch {
	case t.began == 0:
		return math.NaN()
	case n-float64(t.well+t.just) > late*n+deviations*math.Sqrt(late*(1-late)*n):
		return 2 * target
	case n-float64(t.well) <= late*n:
		return 0
	}
	return target
}
