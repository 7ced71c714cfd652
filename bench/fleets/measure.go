package fleets

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// A ledger is what all processes have used and lost. The parent keeps it.
type ledger struct {
	uses  []entry // in order of time, once sorted
	lost  []entry
	trips [][]int64 // of each process: round trips to Redis by the end of each load
}

type entry struct {
	member int
	use
}

func (l *ledger) add(member int, b batch) {
	for _, u := range b.Uses {
		l.uses = append(l.uses, entry{member, u})
	}
	for _, u := range b.Lost {
		l.lost = append(l.lost, entry{member, u})
	}
	if b.Trips != nil {
		l.trips[member] = b.Trips
	}
}

func (l *ledger) sort() {
	slices.SortFunc(l.uses, func(a, b entry) int { return cmp.Compare(a.at(), b.at()) })
}

// count is how many units a member has used; -1: all of them.
func (l *ledger) count(member int, from, to time.Duration) (n int) {
	for _, e := range l.uses {
		if (member < 0 || e.member == member) && from <= e.at() && e.at() < to {
			n++
		}
	}
	return n
}

// used is the share of the limit in percent, at most 100: what is above is in excess.
func (l *ledger) used(limit int, from, to time.Duration) float64 {
	return min(100, 100*float64(l.count(-1, from, to))/(float64(limit)*(to-from).Seconds()))
}

// excess is the least x with which no window of any length L holds more than burst + limit·L + x units.
func (l *ledger) excess(t terms, from, to time.Duration) float64 {
	worst, least, sum := 0.0, math.Inf(1), 0.0
	for _, e := range l.uses {
		if e.at() < from || e.at() >= to {
			continue
		}
		due := (e.at() - from).Seconds() * float64(t.Limit)
		least = min(least, sum-due)
		sum++
		worst = max(worst, sum-due-least)
	}
	return max(0, worst-float64(t.Burst))
}

// jain is Jain's index of fairness: 1 if all members used the same, 1/members if one used all.
func (l *ledger) jain(members int, from, to time.Duration) float64 {
	sum, squares := 0.0, 0.0
	for i := range members {
		n := float64(l.count(i, from, to))
		sum, squares = sum+n, squares+n*n
	}
	return sum * sum / (float64(members) * squares)
}

// waits are how long the calls waited that came from from to to, in milliseconds and in order. A lost one has
// waited for as long as it was there.
func (l *ledger) waits(from, to time.Duration) (ms []float64) {
	for _, e := range slices.Concat(l.uses, l.lost) {
		if from <= e.came() && e.came() < to {
			ms = append(ms, e.waited().Seconds()*1000)
		}
	}
	slices.Sort(ms)
	return ms
}

// tripsIn is how many round trips the processes made in a load.
func (l *ledger) tripsIn(load int) (n int64) {
	for _, t := range l.trips {
		if load < len(t) {
			n += t[load]
		}
		if load > 0 && load <= len(t) {
			n -= t[load-1]
		}
	}
	return n
}

// known drops what is not a number, as of nothing.
func known(values map[string]float64) map[string]float64 {
	maps.DeleteFunc(values, func(_ string, v float64) bool { return math.IsNaN(v) })
	return values
}

// quantile of sorted values; NaN if there are none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
