package throttle

import (
	"context"
	"sync"
	"time"
)

// fairEvery: each fairEvery-th grant goes to the call that has waited longest,
// whatever its priority, so that nobody starves.
const fairEvery = 8

type waitState uint8

const (
	waiting waitState = iota // in the line
	asking                   // in the line, its goroutine asks a foreign limiter
	granted                  // left the line: may start
	refused                  // left the line: the line keeps the reason
)

// A waiter is one call in a line. Its fields are guarded by the line's lock;
// once woken, its own goroutine may read them without. 64 bytes: the number of
// waiters is what memory goes to, so times are offsets from the room's base, and
// some fields mean another thing once it is granted.
type waiter struct {
	wake   chan struct{}         // buffered by one; nil: left is called instead
	left   func(*waiter, *Error) // called under the lock, must not block
	seq    uint64                // place in the order of arrival; a retry keeps its first
	cost   int
	moment time.Duration // while it waits: its ctx's deadline, 0: none; once granted: as of when its units were taken
	pause  time.Duration // the gate's closed-time clock on arrival, less what the call had spent before; in an order and once granted: what it has spent
	prio   int32
	index  int32 // in its level's heap, -1: not in a line
	epoch  uint32
	tries  uint8 // sent before, at most 255
	state  waitState
	wants  wish
	lane   uint8 // see learned.go
}

// wish is what a waiter wants beside units, in bits.
type wish uint8

const (
	wantsSlot wish = 1 << iota // an in-flight slot
	canResend                  // nothing: its request can be sent again
	paidLane                   // nothing: its start has been counted in its lane
)

func (w *waiter) slot() bool   { return w.wants&wantsSlot != 0 }
func (w *waiter) resend() bool { return w.wants&canResend != 0 }

// paid is 1 + the lane that the start was counted in; 0: none.
func (w *waiter) paid() uint8 {
	if w.wants&paidLane == 0 {
		return 0
	}
	return w.lane + 1
}

// settle ends w's wait, or passes it the turn to ask.
func (w *waiter) settle(s waitState, err *Error) {
	w.state = s
	if w.left != nil {
		w.left(w, err)
		return
	}
	w.wake <- struct{}{} // never blocks: asked one at a time, and each turn is received
}

// A decision is what a rule says about the head of a line.
type decision struct {
	verdict verdict
	until   time.Time // later: when it is worth looking again
	told    bool      // later: a limiter has told that moment, so a late timer may be made up for
	err     error     // deny
}

type verdict uint8

const (
	grant verdict = iota // it has its units and may start
	later                // not before until
	block                // not before something happens that calls advance
	ask                  // its goroutine must ask a foreign limiter
	deny                 // never: err says why
)

// A rule decides who goes, and when. Its methods are called with the line's lock
// held, but for those named below.
type rule interface {
	head(now time.Time) *waiter
	pass(w *waiter, at, now time.Time) decision // may w go; if so, as of at
	fail(w *waiter, err error) *Error
	undo(w *waiter, now time.Time) // w was granted and cannot go: give all back, let the next go
	gone(w *waiter)                // w has left the line, whatever the reason
	emptied()                      // nobody waits any more
	advance(now time.Time)         // line.advance, with all that hangs on it
	watch(changed func()) (stop func())

	// For foreign limiters. They may block, so all but answered is called without the lock.
	inquire(ctx context.Context, n int) (time.Duration, error)  // take from them
	refund(n int)                                               // give n units back to them
	watchForeign() (stop func())                                // hear from them until stop
	askAnew()                                                   // forget what they told
	answered(w *waiter, wait time.Duration, now time.Time) bool // what they said for w; negative: nothing good
}

// A line is a waiting line. Only its head is ever looked at: units are bound to
// a caller at the last moment, so leaving, pausing and changing a rate lose
// nothing. It exists while somebody waits, and has one timer.
//
// Its methods are called with *mu held, but for those that a waiter's goroutine
// or a callback runs, and that take it themselves: sleep, woken, abandon, askFor,
// hear, reason and wakeUp.
type line struct {
	ranks
	mu     *sync.Mutex
	rule   rule
	timer  *time.Timer
	told   time.Time // the moment a limiter told for the head; zero: none
	asking *waiter   // whose goroutine asks a foreign limiter now
	stop   func()    // ends the watch on the limiters

	reasons map[*waiter]*Error // of those refused who have not seen theirs yet
}

func newLine(mu *sync.Mutex, r rule) *line {
	l := &line{mu: mu, rule: r}
	l.stop = r.watch(l.wakeUp)
	return l
}

// wakeUp is the timer's callback, and that of a limiter that has changed. A
// call that comes late, after the line has emptied, finds nobody to serve.
func (l *line) wakeUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rule.advance(time.Now())
}

// asOf returns the moment as of which a take made now is reckoned.
func asOf(told, now time.Time) time.Time {
	if told.IsZero() || !told.Before(now) {
		return now
	}
	if earliest := now.Add(-maxLate); told.Before(earliest) {
		return earliest
	}
	return told
}

// advance lets go all who may go now, and plans for the next. It is called
// after every event that may change the answer, and is right to call at any time.
func (l *line) advance(now time.Time) {
	if l.count == 0 {
		return
	}
	at := asOf(l.told, now)
	for l.asking == nil {
		w := l.rule.head(now)
		if w == nil {
			l.close()
			return
		}
		d := l.rule.pass(w, at, now)
		switch d.verdict {
		case grant:
			l.served++
			l.leave(w, granted, nil)
		case deny:
			l.leave(w, refused, l.rule.fail(w, d.err))
		case ask:
			l.asking = w
			w.settle(asking, nil)
		default:
			l.plan(d, now)
			return
		}
	}
}

// leave settles w, which has been granted or refused because of err.
func (l *line) leave(w *waiter, s waitState, err *Error) {
	l.remove(w)
	l.rule.gone(w)
	if s == refused && w.left == nil {
		if l.reasons == nil {
			l.reasons = map[*waiter]*Error{}
		}
		l.reasons[w] = err
	}
	w.settle(s, err)
}

// reason is why w was refused. It is asked once.
func (l *line) reason(w *waiter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reasonLocked(w)
}

func (l *line) reasonLocked(w *waiter) error {
	err := l.reasons[w]
	delete(l.reasons, w)
	return err
}

func (l *line) plan(d decision, now time.Time) {
	l.told = time.Time{}
	if d.told {
		l.told = d.until
	}
	switch {
	case d.verdict == block:
		if l.timer != nil {
			l.timer.Stop()
		}
	case l.timer == nil:
		l.timer = time.AfterFunc(d.until.Sub(now), l.wakeUp)
	default:
		l.timer.Reset(d.until.Sub(now))
	}
}

func (l *line) close() {
	if l.timer != nil {
		l.timer.Stop()
	}
	l.stop()
	l.rule.emptied()
}

// drop takes a waiter out that will not go.
func (l *line) drop(w *waiter, now time.Time) {
	l.remove(w)
	l.rule.gone(w)
	l.goOn(now)
}

// goOn serves those who are left.
func (l *line) goOn(now time.Time) {
	if l.count == 0 {
		l.close()
	}
	l.rule.advance(now)
}

// sleep waits until w may start (nil), is refused, or ctx ends. Grant and ctx
// may race: whichever the select sees, a grant that cannot be used is undone.
func (l *line) sleep(ctx context.Context, w *waiter) error {
	select {
	case <-w.wake:
	case <-ctx.Done():
		return l.abandon(ctx, w)
	}
	if w.state == granted && ctx.Err() == nil {
		return nil
	}
	return l.woken(ctx, w)
}

// abandon takes w, whose ctx has ended, out of the line, or undoes its grant.
func (l *line) abandon(ctx context.Context, w *waiter) error {
	units, back, err := l.abandonLocked(ctx, w)
	if back {
		l.rule.refund(units)
	}
	return err
}

// abandonLocked also returns whether units of w's have come back, and how many
// of them a foreign limiter must get.
func (l *line) abandonLocked(ctx context.Context, w *waiter) (units int, back bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	switch w.state {
	case refused:
		return 0, false, l.reasonLocked(w)
	case granted:
		l.rule.undo(w, now) // l itself may be gone by now
		units, back = w.cost, true
	case asking: // the turn had come, but was not taken up: only own limiters have been paid
		l.asking = nil
		l.rule.answered(w, -1, now)
		l.drop(w, now)
		back = true
	default:
		l.drop(w, now)
	}
	return units, back, l.rule.fail(w, ctx.Err())
}
