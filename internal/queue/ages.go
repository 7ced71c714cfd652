package queue

import "time"

// ages remembers when the calls of a line came: too coarse for any decision, fine enough for whoever watches. A waiter
// has no field for it, because 100,000 of them would have it.
//
// One moment stands for all calls that came within a 32nd of the time that has gone by since the oldest one came, so
// the age of the oldest is at most 1/32 too high, and a line that never empties holds a few hundred moments.
//
// An example: calls come each 10 ms, and the oldest has waited for 3.2 s. The next moment is kept 100 ms after the
// last one, and stands for ten calls.
type ages []arrival

// An arrival is the moment from which on calls came, the first of them with that seq.
type arrival struct {
	seq uint64
	at  time.Duration // from common.base
}

// noteLocked notes that a call begins to wait, behind all that came before it. A retry, which keeps its place, is not noted.
func (l *line) noteLocked(seq uint64, at time.Duration) {
	if n := len(l.ages); n > 0 {
		last := l.ages[n-1]
		if seq <= last.seq || at-last.at <= (at-l.ages[0].at)/32 {
			return
		}
		l.ages = l.ages.since(l.eldest().seq)
	}
	l.ages = append(l.ages, arrival{seq, at})
}

// since is a without the moments before the one that stands for a call with that seq.
func (a ages) since(seq uint64) ages {
	for len(a) > 1 && a[1].seq <= seq {
		a = a[1:]
	}
	return a
}

// oldestLocked is when the oldest of those that wait came; zero: nobody waits.
func (q *Queue) oldestLocked() time.Time {
	if q.line == nil || q.line.count == 0 || len(q.line.ages) == 0 {
		return time.Time{}
	}
	return q.common.base.Add(q.line.ages.since(q.line.eldest().seq)[0].at)
}
