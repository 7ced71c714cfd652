package queue

import (
	"context"
	"sync"
	"time"

	"github.com/go-throttle/throttle/internal/moment"
)

// FairEvery: each FairEvery-th grant goes to the call that has waited longest,
// whatever its priority, so that nobody starves.
const FairEvery = 8

type waitState uint8

const (
	Waiting waitState = iota // in the line
	Asking                   // in the line, its goroutine asks a foreign limiter
	Granted                  // left the line: may start
	Refused                  // left the line: the line keeps the reason
)

// A Waiter is one call in a line. Its fields are guarded by the line's lock;
// once woken, its own goroutine may read them without. 64 bytes: the number of
// waiters is what memory goes to, so times are offsets from Room.Base, and
// some fields mean another thing once it is granted.
type Waiter struct {
	wake   chan struct{}        // buffered by one; nil: left is called instead
	left   func(*Waiter, error) // called under the lock, must not block
	Seq    uint64               // place in the order of arrival; a retry keeps its first
	Cost   int
	moment time.Duration // while it waits: its ctx's deadline, 0: none; once granted: as of when its units were taken
	pause  time.Duration // the gate's closed-time clock on arrival, less what the call had spent before; in an Order and once granted: what it has spent
	Prio   int32
	Index  int32  // see Level; -1: not in a line
	Epoch  uint32 // of the gate, once granted; while it waits: see keep
	tries  uint8  // sent before, at most 255
	State  waitState
	Wants  wish
	Lane   uint8 // of the quotas it falls under, see learn.Learner
}

// wish is what a waiter wants beside units, in bits.
type wish uint8

const (
	WantsSlot wish = 1 << iota // an in-flight slot
	CanResend                  // nothing: its request can be sent again
	PaidLane                   // nothing: its start has been counted in its lane
	TakesTime                  // nothing: it must have its answer, too, before its deadline
)

// Slot reports whether it wants an in-flight slot.
func (w *Waiter) Slot() bool   { return w.Wants&WantsSlot != 0 }
func (w *Waiter) resend() bool { return w.Wants&CanResend != 0 }

// Paid is 1 + the lane that the start was counted in; 0: none.
func (w *Waiter) Paid() uint8 {
	if w.Wants&PaidLane == 0 {
		return 0
	}
	return w.Lane + 1
}

// settle ends w's wait, or passes it the turn to ask.
func (w *Waiter) settle(s waitState, err error) {
	w.State = s
	if w.left != nil {
		w.left(w, err)
		return
	}
	w.wake <- struct{}{} // never blocks: asked one at a time, and each turn is received
}

// A Decision is what a rule says about the head of a line.
type Decision struct {
	Verdict Verdict
	until   time.Time // Later: when it is worth looking again
	told    bool      // Later: a limiter has told that moment, so a late timer may be made up for
	err     error     // Deny: why
}

// A Verdict is what a Decision comes to.
type Verdict uint8

const (
	Grant Verdict = iota // it has its units and may start
	Later                // not before until
	Block                // not before something happens that calls advance
	Ask                  // its goroutine must ask a foreign limiter
	Deny                 // never: err says why
)

// A rule decides who goes, and when. Its methods are called with the line's lock
// held, but for those named below.
type rule interface {
	Head(now time.Time) *Waiter                 // whose turn it is
	pass(w *Waiter, at, now time.Time) Decision // may w go; if so, as of at
	fail(w *Waiter, err error) error
	GaveUp(w *Waiter, err error, now time.Time) error // as fail, for one whose ctx has ended
	undo(w *Waiter, now time.Time)                    // w was granted and cannot go: give all back, let the next go
	gone(w *Waiter)                                   // w has left the line, whatever the reason
	emptied()                                         // nobody waits any more
	Advance(now time.Time)                            // Line.advance, with all that hangs on it
	watch(changed func()) (stop func())

	// For foreign limiters. They may block, so all but answered is called without the lock.
	inquire(ctx context.Context, n int) (time.Duration, error)  // take from them
	refund(n int)                                               // give n units back to them
	WatchForeign() (stop func())                                // hear from them until stop
	AskAnew()                                                   // forget what they told
	answered(w *Waiter, wait time.Duration, now time.Time) bool // what they said for w; negative: nothing good
}

// A Line is a waiting line. Only its head is ever looked at: units are bound to
// a caller at the last moment, so leaving, pausing and changing a rate lose
// nothing. It exists while somebody waits, and has one timer.
//
// Its methods are called with *mu held, but for those that a waiter's goroutine
// or a callback runs, and that take it themselves: Sleep, woken, Abandon, AskFor,
// takeAnswer, reason, unlisten and WakeUp.
type Line struct {
	ranks
	mu     *sync.Mutex
	rule   rule
	Timer  *time.Timer
	Told   time.Time // the moment a limiter told for the head; zero: none
	Asking *Waiter   // whose goroutine asks a foreign limiter now
	stop   func()    // ends the watch on the limiters

	reasons map[*Waiter]error // of those refused who have not seen theirs yet
}

func newLine(mu *sync.Mutex, r rule) *Line {
	l := &Line{mu: mu, rule: r}
	l.stop = r.watch(l.WakeUp)
	return l
}

// WakeUp is the timer's callback, and that of a limiter that has changed. A
// call that comes late, after the line has emptied, finds nobody to serve.
func (l *Line) WakeUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rule.Advance(time.Now())
}

// asOf returns the moment as of which a take made now is reckoned.
func asOf(told, now time.Time) time.Time {
	if told.IsZero() || !told.Before(now) {
		return now
	}
	if earliest := now.Add(-moment.MaxLate); told.Before(earliest) {
		return earliest
	}
	return told
}

// advance lets go all who may go now, and plans for the next. It is called
// after every event that may change the answer, and is right to call at any time.
func (l *Line) advance(now time.Time) {
	if l.Count == 0 {
		return
	}
	at := asOf(l.Told, now)
	for l.Asking == nil {
		w := l.rule.Head(now)
		if w == nil {
			l.close()
			return
		}
		d := l.rule.pass(w, at, now)
		switch d.Verdict {
		case Grant:
			l.Served++
			l.Leave(w, Granted, nil)
		case Deny:
			l.Leave(w, Refused, l.rule.fail(w, d.err))
		case Ask:
			l.Asking = w
			w.settle(Asking, nil)
		default:
			l.plan(d, now, now.Sub(at))
			return
		}
	}
}

// Leave settles w, which has been granted or refused because of err.
func (l *Line) Leave(w *Waiter, s waitState, err error) {
	l.remove(w)
	l.rule.gone(w)
	if s == Refused && w.left == nil {
		if l.reasons == nil {
			l.reasons = map[*Waiter]error{}
		}
		l.reasons[w] = err
	}
	w.settle(s, err)
}

// reason is why w was refused. It is asked once.
func (l *Line) reason(w *Waiter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reasonLocked(w)
}

func (l *Line) reasonLocked(w *Waiter) error {
	err := l.reasons[w]
	delete(l.reasons, w)
	return err
}

// plan sets the timer. Where it came late, it is asked for less often: what would
// be told meanwhile is made up for, and a firing costs as much as several grants.
func (l *Line) plan(d Decision, now time.Time, late time.Duration) {
	l.Told = time.Time{}
	wait := d.until.Sub(now)
	if d.told {
		l.Told = d.until
		wait = max(wait, min(late/4, moment.MaxLate/50))
	}
	switch {
	case d.Verdict == Block:
		if l.Timer != nil {
			l.Timer.Stop()
		}
	case l.Timer == nil:
		l.Timer = time.AfterFunc(wait, l.WakeUp)
	default:
		l.Timer.Reset(wait)
	}
}

func (l *Line) close() {
	if l.Timer != nil {
		l.Timer.Stop()
	}
	l.stop()
	l.rule.emptied()
}

// drop takes a waiter out that will not go.
func (l *Line) drop(w *Waiter, now time.Time) {
	l.remove(w)
	l.rule.gone(w)
	l.GoOn(now)
}

// GoOn serves those who are left.
func (l *Line) GoOn(now time.Time) {
	if l.Count == 0 {
		l.close()
	}
	l.rule.Advance(now)
}

// Sleep waits until w may start (nil), is refused, or ctx ends. Grant and ctx
// may race: whichever the select sees, a grant that cannot be used is undone.
func (l *Line) Sleep(ctx context.Context, w *Waiter) error {
	select {
	case <-w.wake:
	case <-ctx.Done():
		return l.Abandon(ctx, w)
	}
	if w.State == Granted && ctx.Err() == nil {
		return nil
	}
	return l.woken(ctx, w)
}

// Abandon takes w, whose ctx has ended, out of the line, or undoes its grant.
func (l *Line) Abandon(ctx context.Context, w *Waiter) error {
	units, back, err := l.abandonLocked(ctx, w)
	if back {
		l.rule.refund(units)
	}
	return err
}

// abandonLocked also returns whether units of w's have come back, and how many
// of them a foreign limiter must get.
func (l *Line) abandonLocked(ctx context.Context, w *Waiter) (units int, back bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	err = l.rule.GaveUp(w, ctx.Err(), now)
	switch w.State {
	case Refused:
		return 0, false, l.reasonLocked(w)
	case Granted:
		l.rule.undo(w, now) // l itself may be gone by now
		units, back = w.Cost, true
	case Asking: // the turn had come, but was not taken up: only own limiters have been paid
		l.Asking = nil
		l.rule.answered(w, -1, now)
		l.drop(w, now)
		back = true
	default:
		l.drop(w, now)
	}
	return units, back, err
}
