package throttle

import (
	"context"
	"time"
)

// answered implements rule: the foreign limiters, asked for w, said to wait
// that long; 0: w has their units too; negative: they refused altogether.
func (q *Queue) answered(w *waiter, wait time.Duration, now time.Time) bool {
	at := q.foreign.taken
	_, d := q.ready(w, at, now)
	if s := q.room.shared; s != nil {
		s.asking, s.dirty = nil, true // another may have come before q meanwhile
		if wait == 0 && d.verdict == grant {
			s.follow(q, d)
		}
	}
	if wait == 0 && d.verdict == grant {
		q.foreign.granted()
		q.start(w, at, now)
		q.granted(w, at, now)
		return true
	}
	q.limits.giveBack(at, now, w.cost)
	if wait > 0 {
		if q.limits.silent() {
			wait = min(wait, maxAskGap)
		}
		q.foreign.refused(now, wait)
	}
	if q.foreign.stale {
		q.foreign.next = q.foreign.again()
	}
	return false
}

// inquire implements rule.
func (q *Queue) inquire(ctx context.Context, n int) (time.Duration, error) {
	return takeForeign(ctx, q.limits.foreign, n)
}

// refund implements rule. Own limiters have been given back to under the lock,
// silently; now other lines that wait for them are told.
func (q *Queue) refund(n int) {
	adjust(q.limits.own, 0)
	if n > 0 {
		adjust(q.limits.foreign, -n)
	}
}

// watchForeign implements rule.
func (q *Queue) watchForeign() (stop func()) { return watch(q.limits.foreign, q.askAnew) }

// askAnew implements rule: what the foreign limiters told holds no longer.
func (q *Queue) askAnew() {
	q.change(func(time.Time) { q.foreign.next, q.foreign.stale = q.foreign.again(), true })
}

// foreignView is what a queue knows of limiters that are not the library's own.
type foreignView struct {
	next      time.Time // not to be asked before
	told      time.Time // until when they said no
	last      time.Time // when they did
	early     uint8     // how often in a row they did so before what was told was over
	taken     time.Time // as of when the own limiters were paid for the one who asks
	stale     bool      // one of them has changed since they were asked last
	lastGrant time.Time
	gap       float64 // smoothed seconds per unit granted; 0: not known
}

// granted notes that they said yes.
func (f *foreignView) granted() {
	f.next, f.told, f.early = time.Time{}, time.Time{}, 0
}

// refused notes that they said to wait.
func (f *foreignView) refused(now time.Time, wait time.Duration) {
	if now.Before(f.told) {
		f.early = min(f.early+1, 20)
	} else {
		f.early = 0
	}
	f.last, f.told = now, now.Add(wait)
	f.next = f.told
}

// again is when they may be asked after a change: at once, but after 1, 2, 4 ... ms where they were
// asked early and refused again. Of two limiters the second of which refuses, the first gets back
// what it gave at each asking, and says that it has changed: else that would never end.
func (f *foreignView) again() time.Time {
	if f.early == 0 {
		return time.Time{}
	}
	return earliest(f.told, f.last.Add(min(time.Millisecond<<(f.early-1), maxAskGap)))
}

// maxAskGap is how long a foreign limiter that cannot tell of a change is left unasked.
const maxAskGap = time.Second
