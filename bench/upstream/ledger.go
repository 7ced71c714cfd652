package upstream

import (
	"math"
	"sort"
	"time"
)

// An Outcome is what became of an arrival.
type Outcome byte

const (
	Admitted Outcome = iota // 200
	Refused                 // by a limit
	Failed                  // 503: down, or brown-out
	Hung                    // down: no answer
	Reset                   // down: the connection was broken
)

// An Arrival is one line of the ledger: an attempt that reached the upstream.
type Arrival struct {
	At      time.Duration // since the start
	Call    int           // -1: it was not marked
	Caller  int
	Attempt int // 1 is the call's first that arrived
	Outcome Outcome
}

// A Ledger is what arrived, in order of time.
type Ledger []Arrival

// Between returns what arrived at from or later, and before to.
func (l Ledger) Between(from, to time.Duration) Ledger {
	at := func(t time.Duration) int { return sort.Search(len(l), func(i int) bool { return l[i].At >= t }) }
	return l[at(from):max(at(from), at(to))]
}

// Count tells how many had one of the outcomes.
func (l Ledger) Count(outcomes ...Outcome) int {
	n := 0
	for _, a := range l {
		for _, o := range outcomes {
			if a.Outcome == o {
				n++
			}
		}
	}
	return n
}

// Only returns those with the outcome.
func (l Ledger) Only(outcome Outcome) (only Ledger) {
	for _, a := range l {
		if a.Outcome == outcome {
			only = append(only, a)
		}
	}
	return only
}

// Of returns the arrivals of some calls.
func (l Ledger) Of(calls func(call int) bool) (of Ledger) {
	for _, a := range l {
		if calls(a.Call) {
			of = append(of, a)
		}
	}
	return of
}

// Delivered tells how many calls were admitted at least once.
func (l Ledger) Delivered() int {
	calls := make(map[int]bool)
	for _, a := range l {
		if a.Outcome == Admitted {
			calls[a.Call] = true
		}
	}
	return len(calls)
}

// Twice tells how many were admitted though their call had been before.
func (l Ledger) Twice() int { return l.Count(Admitted) - l.Delivered() }

// Amplification is the attempts per call, where so many calls were made. Calls that never arrived
// make it small: read it beside Delivered.
func (l Ledger) Amplification(calls int) float64 { return float64(len(l)) / float64(calls) }

// Spacing is the coefficient of variation of the gaps between arrivals: 0 is perfectly even, a
// Poisson stream has 1. Below three arrivals it is NaN.
func (l Ledger) Spacing() float64 {
	n := float64(len(l) - 1)
	if n < 2 {
		return math.NaN()
	}
	var sum, squares float64
	for i := range l[1:] {
		gap := float64(l[i+1].At - l[i].At)
		sum += gap
		squares += gap * gap
	}
	mean := sum / n
	return math.Sqrt(max(0, squares/n-mean*mean)) / mean
}

// Jain is Jain's index of fairness over callers 0 to n-1: 1 if all were admitted equally often, 1/n
// if only one was.
func (l Ledger) Jain(n int) float64 {
	admitted := make([]float64, n)
	for _, a := range l {
		if a.Outcome == Admitted && a.Caller >= 0 && a.Caller < n {
			admitted[a.Caller]++
		}
	}
	var sum, squares float64
	for _, x := range admitted {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return math.NaN()
	}
	return sum * sum / (float64(n) * squares)
}

// Peak is the most that arrived within any stretch of the width.
func (l Ledger) Peak(width time.Duration) (most int) {
	first := 0
	for i, a := range l {
		for l[first].At <= a.At-width {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// Last is when the last one arrived; 0 if none did.
func (l Ledger) Last() time.Duration {
	if len(l) == 0 {
		return 0
	}
	return l[len(l)-1].At
}

// FirstAdmitted tells when each call was first admitted.
func (l Ledger) FirstAdmitted() map[int]time.Duration {
	first := make(map[int]time.Duration)
	for _, a := range l {
		if _, ok := first[a.Call]; !ok && a.Outcome == Admitted {
			first[a.Call] = a.At
		}
	}
	return first
}

// Bins counts what arrived in each stretch of bin from 0 to until: admitted, refused, and failed in
// any way.
func (l Ledger) Bins(bin, until time.Duration) (admitted, refused, failed []int) {
	n := int((until + bin - 1) / bin)
	admitted, refused, failed = make([]int, n), make([]int, n), make([]int, n)
	for _, a := range l {
		i := int(a.At / bin)
		switch {
		case i >= n:
		case a.Outcome == Admitted:
			admitted[i]++
		case a.Outcome == Refused:
			refused[i]++
		default:
			failed[i]++
		}
	}
	return admitted, refused, failed
}
