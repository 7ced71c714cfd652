package quota

import (
	"sort"
	"time"
)

// starts is a log of own starts: the moments, and the units of all up to each. So the units since any moment are the
// difference of two entries, found by bisection. The first entry is older than any that is asked for. Example: starts of 3,
// 2 and 1 units at 1.0, 1.2 and 1.9 s. Since 1.1 s that is 6 − 3 = 3 units; 5 of the 6 have left a window of 1 s at 2.2 s.
type starts []start

// A start is one entry of starts.
type start struct {
	at    time.Time
	total float64
	count // the meter's, if it is exact
}

// upTo is the number of entries until t, at least 1.
func (s starts) upTo(t time.Time) int {
	return 1 + sort.Search(len(s)-1, func(i int) bool { return s[i+1].at.After(t) })
}

// since is the units of all starts after t.
func (s starts) since(t time.Time) float64 { return s[len(s)-1].total - s[s.upTo(t)-1].total }

// leave is the moment of the start with which so many units after t are reached: when it has left the window, they have.
func (s starts) leave(units float64, t time.Time) time.Time {
	units += s[s.upTo(t)-1].total
	return s[min(len(s)-1, sort.Search(len(s), func(i int) bool { return s[i].total >= units }))].at
}

// countAt is the meter's count when a call had started.
func (s starts) countAt(t time.Time) count { return s[s.upTo(t)-1].count }

// A count is what a meter has held in all by some moment, and what had come back of that.
type count struct{ held, back float64 }
