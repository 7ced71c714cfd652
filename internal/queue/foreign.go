package queue

import (
	"context"
	"time"

	"github.com/go-throttle/throttle/internal/account"
	"github.com/go-throttle/throttle/internal/moment"
)

// answered implements rule: the foreign limiters, asked for w, said to wait
// that long; 0: w has their units too; negative: they refused altogether.
func (q *Queue) answered(w *Waiter, wait time.Duration, now time.Time) bool {
	at := q.Foreign.taken
	_, d := q.Ready(w, at, now)
	if s := q.Room.Shared; s != nil {
		s.Asking, s.Dirty = nil, true // another may have come before q meanwhile
		if wait == 0 && d.Verdict == Grant {
			s.follow(q, d)
		}
	}
	if wait == 0 && d.Verdict == Grant {
		q.Foreign.granted()
		q.start(w, at, now)
		q.granted(w, at, now)
		return true
	}
	q.Limits.GiveBack(at, now, w.Cost)
	if wait > 0 {
		if q.Limits.Silent() {
			wait = min(wait, maxAskGap)
		}
		q.Foreign.refused(now, wait)
	}
	if q.Foreign.stale {
		q.Foreign.Next = q.Foreign.again()
	}
	return false
}

// inquire implements rule.
func (q *Queue) inquire(ctx context.Context, n int) (time.Duration, error) {
	return account.TakeForeign(ctx, q.Limits.Foreign, n)
}

// refund implements rule. Own limiters have been given back to under the lock,
// silently; now other lines that wait for them are told.
func (q *Queue) refund(n int) {
	account.Adjust(q.Limits.Accounts, 0)
	if n > 0 {
		account.Adjust(q.Limits.Foreign, -n)
	}
}

// WatchForeign implements rule.
func (q *Queue) WatchForeign() (stop func()) { return account.Watch(q.Limits.Foreign, q.AskAnew) }

// AskAnew implements rule: what the foreign limiters told holds no longer.
func (q *Queue) AskAnew() {
	q.change(func(time.Time) { q.Foreign.Next, q.Foreign.stale = q.Foreign.again(), true })
}

// ForeignView is what a queue knows of limiters that are not the library's own.
type ForeignView struct {
	Next      time.Time // not to be asked before
	told      time.Time // until when they said no
	last      time.Time // when they did
	early     uint8     // how often in a row they did so before what was told was over
	taken     time.Time // as of when the own limiters were paid for the one who asks
	stale     bool      // one of them has changed since they were asked last
	lastGrant time.Time
	gap       float64 // smoothed seconds per unit granted; 0: not known
}

// granted notes that they said yes.
func (f *ForeignView) granted() {
	f.Next, f.told, f.early = time.Time{}, time.Time{}, 0
}

// refused notes that they said to wait.
func (f *ForeignView) refused(now time.Time, wait time.Duration) {
	if now.Before(f.told) {
		f.early = min(f.early+1, 20)
	} else {
		f.early = 0
	}
	f.last, f.told = now, now.Add(wait)
	f.Next = f.told
}

// again is when they may be asked after a change: at once, but after 1, 2, 4 ... ms where they were
// asked early and refused again. Of two limiters the second of which refuses, the first gets back
// what it gave at each asking, and says that it has changed: else that would never end.
func (f *ForeignView) again() time.Time {
	if f.early == 0 {
		return time.Time{}
	}
	return moment.Earliest(f.told, f.last.Add(min(time.Millisecond<<(f.early-1), maxAskGap)))
}

// maxAskGap is how long a foreign limiter that cannot tell of a change is left unasked.
const maxAskGap = time.Second
