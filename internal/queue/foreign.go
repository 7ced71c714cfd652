package queue

import (
	"context"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// answeredLocked takes in what the foreign limiters answered for w: to wait that long; 0: they gave their
// units; negative: they will not give any. It reports whether w goes. Otherwise the units of the own
// limiters, taken before the asking, are given back, and the caller must give the foreign ones theirs.
func (q *Queue) answeredLocked(w *waiter, wait time.Duration, now time.Time) bool {
	at := q.foreign.taken
	_, d := q.readyLocked(w, at, now)
	if s := q.common.shared; s != nil {
		s.asking, s.dirty = nil, true // another may have come before q meanwhile
		if wait == 0 && d.verdict == grant {
			s.follow(q, d)
		}
	}
	if wait == 0 && d.verdict == grant {
		q.foreign.granted()
		q.startLocked(w, q.line.holdsOf(w), at, now)
		q.grantedLocked(w, at, now)
		return true
	}
	// The own units were taken before the asking. They go back as of that moment, see TakeBy.
	q.giveBackLocked(q.line.holdsOf(w), at, now, w.cost)
	if wait > 0 {
		// One of them has no Notify: it may change without a word, so it is asked once a second at
		// least.
		if q.limits().Silent() {
			wait = min(wait, maxAskGap)
		}
		q.foreign.refused(now, wait)
	}
	// The answer is older than a change that was reported during the asking.
	if q.foreign.stale {
		q.foreign.next = q.foreign.again()
	}
	return false
}

// inquire takes n units from the foreign limiters, or none. It may block; no lock is held.
func (q *Queue) inquire(ctx context.Context, n int) (time.Duration, error) {
	return q.limits().TakeForeign(ctx, n)
}

// refund gives n units back to the foreign limiters. The own limiters got theirs under the lock, where
// other lines that wait for them cannot be woken: Adjust(0) does that now. No lock is held.
func (q *Queue) refund(n int) {
	q.wake()
	if n > 0 {
		q.limits().RefundForeign(n)
	}
}

// watchForeign has the queue notified of changes of foreign limiters until stop.
func (q *Queue) watchForeign() (stop func()) { return q.limits().WatchForeign(q.askAnew) }

// askAnew forgets what the foreign limiters answered: one of them has changed.
// stale is for a change that is reported during an asking: the answer that is on its way must not put
// off the next asking.
func (q *Queue) askAnew() {
	q.change(func(time.Time) { q.foreign.next, q.foreign.stale = q.foreign.again(), true })
}

// A foreignView is what a queue knows of its foreign limiters. It cannot compute when they will have
// units, as it can for its own, so it keeps what they answered last and how fast they have given so far.
type foreignView struct {
	next      time.Time // they are not asked before
	until     time.Time // they said to wait until then
	last      time.Time // when they said so
	early     uint8     // how often in a row they were asked before until, and still said to wait
	taken     time.Time // the moment for which the own limiters gave units to the call that asks
	stale     bool      // one of them has changed since they were asked last
	lastGrant time.Time // when a call last got units; zero: not since the line was empty
	gap       float64   // smoothed seconds per unit granted, for predictions; 0: not known
}

// granted notes that they said yes.
// The back-off begins anew: whoever gives units is not asked in vain.
func (f *foreignView) granted() {
	f.next, f.until, f.early = time.Time{}, time.Time{}, 0
}

// refused notes that they said to wait.
//
// An example: at 0 ms they say to wait for 500 ms. At 20 ms one of them reports a change, is asked, and
// says 480 ms: early is 1. The next change counts from 21 ms on, then one from 2 ms after that answer,
// and at most a second after it. At 500 ms the wait is over, and early is 0 if they say to wait again.
func (f *foreignView) refused(now time.Time, wait time.Duration) {
	if now.Before(f.until) {
		f.early = min(f.early+1, 20)
	} else {
		f.early = 0
	}
	f.last, f.until = now, now.Add(wait)
	f.next = f.until
}

// again is when they may be asked after a change: at once, or after 1, 2, 4 ... ms if they were asked early
// before and still said to wait. Without that, two limiters could keep a processor busy: the first gives
// its units, the second says to wait, the first gets its units back and reports that as a change.
func (f *foreignView) again() time.Time {
	if f.early == 0 {
		return time.Time{}
	}
	return limit.Earliest(f.until, f.last.Add(min(time.Millisecond<<(f.early-1), maxAskGap)))
}

// maxAskGap is how long a foreign limiter that cannot report a change is left unasked.
const maxAskGap = time.Second
