package throttledebug

import (
	"time"

	"github.com/go-throttle/throttle"
)

// This file is how much of a limit is used. A limit counts what was taken since its key was made, so two looks show how much
// it was in between. A page without events has looked once, and knows it of windows alone.
//
// An example: looks each second from 0 s on. The marks are those of 0 and 10 s at 15 s: what was taken in 15 s counts. At 20 s
// the mark of 10 s is old enough: it is compared with, and gives way to that of 20 s.

// Looks that lie less than leastSpan apart show single calls; a mark gives way once the next one is markSpan old.
const leastSpan, markSpan = time.Second, 10 * time.Second

// A mark is what was taken of all limits at a moment.
type mark struct {
	at    time.Time
	taken map[limitID]int64
}

// A limitID is a limit of a Transport. The key of one that all keys share is "".
type limitID struct{ name, key, reason string }

// idOf is that of a limit of a row.
func (r *row) idOf(l *throttle.LimitStats) limitID {
	if l.Reason == "limit:shared" {
		return limitID{r.name, "", l.Reason}
	}
	return limitID{r.name, r.Key, l.Reason}
}

// note adds the limits of a row.
func (m *mark) note(r *row) {
	for i := range r.Limits {
		m.taken[r.idOf(&r.Limits[i])] = r.Limits[i].Taken
	}
}

// marks are two of them, the newer one less than markSpan old at the last look; nil: nobody has looked.
type marks struct{ older, newer *mark }

// since is what a look is compared with; nil: nothing.
func (m *marks) since(now time.Time) *mark {
	from := m.older
	if m.newer != nil && now.Sub(m.newer.at) >= markSpan {
		from = m.newer
	}
	if from == nil || now.Sub(from.at) < leastSpan {
		return nil
	}
	return from
}

// add takes in a look.
func (m *marks) add(now *mark) {
	switch {
	case m.older == nil:
		m.older, m.newer = now, now
	case now.at.Sub(m.newer.at) >= markSpan:
		m.older, m.newer = m.newer, now
	}
}

// utilization is that of a limit of the row; ok is false if it is not known yet. A key that was not there at the earlier look
// has begun since then.
func (r *row) utilization(l *throttle.LimitStats) (share float64, ok bool) {
	if l.Window == 0 && r.since == nil {
		return 0, false
	}
	before := int64(0)
	if r.since != nil {
		before = r.since.taken[r.idOf(l)]
	}
	return l.Utilization(before, r.ago), true
}

// used is the utilization of the limit that is used most, and false if that of none is known.
func (r *row) used() (most float64, ok bool) {
	for i := range r.Limits {
		if share, known := r.utilization(&r.Limits[i]); known {
			most, ok = max(most, share), true
		}
	}
	return most, ok
}
