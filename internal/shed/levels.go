package shed

import (
	"cmp"
	"slices"
	"time"
)

// Levels count the arrivals of a second by priority, and say who has to go from below until so many are left as were
// served. The highest level is never turned away here. The zero value has seen nobody.
//
// Example: in a second 100 requests of priority 2, 300 of 1 and 600 of 0 came, and 250 were served, of whatever priority. 750 must
// go: all 600 of priority 0, and every second of priority 1.
//
// After Cinnamon and DAGOR, which do so too.
type Levels struct {
	began  time.Time
	all    []level // by priority, the lowest first
	served int
}

// A level is one priority.
type level struct {
	prio  int32
	came  int
	share float64 // that is turned away, after what the second before has shown
	owed  float64 // of those turned away, below 1
}

// second is for how long arrivals are counted.
const second = time.Second

// mostLevels bounds the levels. A further one shares the next lower one's, or the lowest.
const mostLevels = 16

// Arrive counts a request, and reports whether its level is to be turned away; it is if it would have to wait.
func (l *Levels) Arrive(now time.Time, prio int32) bool {
	if took := now.Sub(l.began); took >= second {
		l.turn(now, took)
	}
	at := l.level(prio)
	at.came++
	if at.share == 0 || at == &l.all[len(l.all)-1] {
		return false
	}
	at.owed += at.share
	if at.owed < 1-1e-9 {
		return false
	}
	at.owed--
	return true
}

// Serve counts a request that goes.
func (l *Levels) Serve() { l.served++ }

// level finds the level of a priority, or makes it.
func (l *Levels) level(prio int32) *level {
	i, ok := slices.BinarySearchFunc(l.all, prio, func(a level, prio int32) int { return cmp.Compare(a.prio, prio) })
	switch {
	case ok:
	case len(l.all) < mostLevels:
		l.all = slices.Insert(l.all, i, level{prio: prio})
	default:
		i = max(0, i-1)
	}
	return &l.all[i]
}

// turn ends a second. A level that nobody came with is forgotten, and all are after two seconds.
func (l *Levels) turn(now time.Time, took time.Duration) {
	came := 0
	for i := range l.all {
		came += l.all[i].came
	}
	excess := float64(came - l.served)
	if took >= 2*second {
		excess = 0
	}
	for i := range l.all {
		at := &l.all[i]
		at.share = 0
		if excess > 0 && at.came > 0 {
			at.share = min(1, excess/float64(at.came))
		}
		excess -= float64(at.came)
	}
	l.all = slices.DeleteFunc(l.all, func(at level) bool { return at.came == 0 })
	for i := range l.all {
		l.all[i].came = 0
	}
	l.began, l.served = now, 0
}
