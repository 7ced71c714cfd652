package account

import (
	"cmp"
	"math"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/moment"
)

// Spent is what an account has to earn back before it is as new: a few bytes to remember a limiter by
// that is dropped, so that one made in its place can begin as it left off.
type Spent struct {
	Units int64     // are missing, at most
	Until time.Time // when the last of them is back, if no more are taken
}

// Most is the larger debt of two in both respects.
func (s Spent) Most(other Spent) Spent {
	return Spent{max(s.Units, other.Units), moment.Latest(s.Until, other.Until)}
}

// Spent is what the accounts have to earn back at now, the slowest first. Those of one rate are put
// together: their own order is random, and would be another one for the same limiters made anew.
func (s *Set) Spent(now time.Time) (all []Spent) {
	s.bySpeed(func(i int, o Account) {
		if i == len(all) {
			all = append(all, Spent{})
		}
		all[i] = all[i].Most(o.spent(now))
	})
	return all
}

// Spend makes each account, numbered as Spent does, have to earn back no less than spent says. An
// account that has been used before is not changed: it is the very one that was dropped, and may have
// been given units back meanwhile, or that of other keys too. Nobody is told of the change, so it may
// be called under the line's lock: nobody waits for a new limiter yet.
func (s *Set) Spend(now time.Time, spent func(i int) Spent) {
	s.bySpeed(func(i int, o Account) {
		if back := spent(i); back.Until.After(now) && o.core().last.IsZero() {
			o.spend(now, back)
		}
	})
}

// bySpeed visits all accounts under their locks, numbered by their rates.
func (s *Set) bySpeed(visit func(i int, o Account)) {
	s.lock()
	defer s.unlock()
	sorted := slices.Clone(s.Accounts)
	slices.SortFunc(sorted, func(a, b Account) int { return cmp.Compare(a.rate(), b.rate()) })
	i := 0
	for at, o := range sorted {
		if at > 0 && o.rate() > sorted[at-1].rate() {
			i++
		}
		visit(i, o)
	}
}

func (t *Tank) spent(now time.Time) Spent {
	now = t.c.lift(now)
	missing := float64(t.burst) - t.tokensAt(now)
	if missing <= 0 || t.limit == 0 || t.limit == rate.Inf {
		return Spent{}
	}
	return Spent{int64(min(math.Ceil(missing), 1<<62)), now.Add(span(missing, t.limit))}
}

// spend: what is missing at any moment is the rate times the time until nothing is.
func (t *Tank) spend(now time.Time, s Spent) {
	now = t.c.lift(now)
	missing := min(float64(s.Units), s.Until.Sub(now).Seconds()*float64(t.limit))
	if left := float64(t.burst) - missing; left < t.tokensAt(now) && t.limit != rate.Inf {
		t.tokens, t.c.last = left, now
	}
}

func (w *FixedWindow) spent(now time.Time) Spent {
	start, used := w.at(w.c.lift(now))
	if used == 0 {
		return Spent{}
	}
	return Spent{used, start.Add(times(w.windows(used), w.per))}
}

// spend: the window is the one that ends when the units are back.
func (w *FixedWindow) spend(now time.Time, s Spent) {
	if old := w.spent(now); s.Until.After(old.Until) && w.n > 0 {
		w.used = max(s.Units, old.Units)
		w.start = s.Until.Add(-times(w.windows(w.used), w.per))
		w.c.last = w.c.lift(now)
	}
}

func (w *SlidingWindow) spent(now time.Time) Spent {
	now = w.c.lift(now)
	if w.fresh(now) {
		return Spent{}
	}
	log := w.log.live()
	return Spent{w.n - int64(w.available(now)), w.base.Add(time.Duration(log[len(log)-1]) + w.per)}
}

// spend: which unit was taken when is not known, so all count as taken with the last one.
func (w *SlidingWindow) spend(now time.Time, s Spent) {
	now = w.c.lift(now)
	if !s.Until.After(moment.Latest(now, w.spent(now).Until)) {
		return
	}
	if w.base.IsZero() {
		w.base = now
	}
	w.c.last = now
	units := int(min(s.Units, w.n))
	w.log.drop(max(w.expired(w.since(now)), w.log.len()+units-int(w.n)))
	w.log.push(w.since(s.Until)-int64(w.per), units)
}
