package limit

import (
	"cmp"
	"slices"
	"time"
)

// Spent is what a limiter has to earn back before it is as new: a few bytes to remember a limiter by that
// is dropped, so that one made in its place goes on where the old one was. Without it a key that is dropped
// and made again at each of its calls would get a burst each time.
//
// Example: a bucket of 10/s with 3 of its 5 units left at 0 s has 2 units to earn back until 200 ms. A new
// bucket made at 100 ms is given min(2 units, 10/s · 100 ms) = 1 unit less than its burst: 4, as the old one
// would have.
type Spent struct {
	Units int64     // how many units are missing, at most
	Until time.Time // when the last of them is back, if no more are taken
}

// larger is the larger debt of two in both respects.
func larger(a, b Spent) Spent { return Spent{max(a.Units, b.Units), Latest(a.Until, b.Until)} }

// Spent is what the accounts have to earn back at now, the slowest account first. Accounts of one rate
// are put together, with the larger debt: their own order is random, and would be another one for the same
// limiters made anew.
func (s *Set) Spent(now time.Time) (all []Spent) {
	s.bySpeed(func(i int, a state) {
		if i == len(all) {
			all = append(all, Spent{})
		}
		all[i] = larger(all[i], a.spent(now))
	})
	return all
}

// Spend makes each account, numbered as by Spent, have to earn back no less than spent says. An account
// that has been used before is not changed: it is the very one that was dropped, and may have been given
// units back meanwhile, or it belongs to other keys too. No watchers are called, so it may be called under
// the line's lock: nobody waits for a new limiter yet.
func (s *Set) Spend(now time.Time, spent func(i int) Spent) {
	s.bySpeed(func(i int, a state) {
		if old := spent(i); old.Until.After(now) && a.unused() {
			a.spend(now, old)
		}
	})
}

// bySpeed visits the states of all accounts under their locks, the slowest first, and numbers them by their
// rates: that number must find the same limiter among those of a key made anew, whatever their ranks
// are. Accounts of one rate have the same number.
func (s *Set) bySpeed(visit func(i int, a state)) {
	s = s.locked()
	defer s.unlock()
	sorted := make([]state, len(s.accounts))
	for i, a := range s.accounts {
		sorted[i] = stateOf(a)
	}
	slices.SortFunc(sorted, func(a, b state) int { return cmp.Compare(a.rate(), b.rate()) })
	i := 0
	for at, a := range sorted {
		if at > 0 && a.rate() > sorted[at-1].rate() {
			i++
		}
		visit(i, a)
	}
}
