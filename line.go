package throttle

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// maxLate is how far back a take that the timer delayed may be reckoned: a late
// timer is not lost quota. Any window admits at most its limit + rate × maxLate.
const maxLate = 5 * time.Millisecond

// fairEvery: each fairEvery-th grant goes to the call that has waited longest,
// whatever its priority, so that nobody starves.
const fairEvery = 8

type waitState uint8

const (
	waiting waitState = iota // in the line
	asking                   // in the line, its goroutine asks a foreign limiter
	granted                  // left the line: may start
	refused                  // left the line: err says why
)

// A waiter is one call in a line. Its fields are guarded by the line's lock;
// once woken, its own goroutine may read them without. 80 bytes: the number of
// waiters is what memory goes to, so times are offsets from the line's base.
type waiter struct {
	wake     chan struct{} // buffered by one; nil: left is called instead
	left     func(*waiter) // called under the lock, must not block
	err      *Error        // why it was refused
	seq      uint64        // place in the order of arrival; a retry keeps its first
	cost     int
	deadline time.Duration // its ctx's, since the base; 0: none
	pause    time.Duration // reading of the gate's closed-time clock on arrival, less what the call had spent before
	taken    time.Duration // as of when its units were taken, since the base
	prio     int32
	index    int32 // in its level's heap, -1: not in a line
	epoch    uint32
	attempts uint8
	state    waitState
	resend   bool // its request can be sent again
	slot     bool // it wants an in-flight slot
}

// errAskPanicked stands in while a foreign limiter is asked, in case it panics.
var errAskPanicked = errors.New("throttle: the limiter panicked")

// settle ends w's wait, or passes it the turn to ask.
func (w *waiter) settle(s waitState) {
	w.state = s
	if w.left != nil {
		w.left(w)
		return
	}
	w.wake <- struct{}{} // never blocks: asked one at a time, and each turn is received
}

// ranks orders waiters: by priority, then by arrival, with every fairEvery-th
// turn for the oldest. One heap by arrival for each priority in use; priorities
// are expected to be few.
type ranks struct {
	levels []*level // highest priority first, none empty
	count  int
	served uint32 // turns given
}

type level struct {
	prio  int32
	units int64
	heap  []*waiter // by seq
	last  uint64    // the latest seq that ever came
}

func (r *ranks) find(prio int32) (int, bool) {
	return slices.BinarySearchFunc(r.levels, prio, func(l *level, p int32) int { return int(p) - int(l.prio) })
}

func (r *ranks) push(w *waiter) {
	i, ok := r.find(w.prio)
	if !ok {
		r.levels = slices.Insert(r.levels, i, &level{prio: w.prio})
	}
	l := r.levels[i]
	l.units += int64(w.cost)
	l.last = max(l.last, w.seq)
	l.heap = append(l.heap, w)
	w.index = int32(len(l.heap) - 1)
	l.up(int(w.index))
	r.count++
}

func (r *ranks) remove(w *waiter) {
	i, _ := r.find(w.prio)
	l := r.levels[i]
	l.units -= int64(w.cost)
	l.cut(int(w.index))
	w.index = -1
	r.count--
	if len(l.heap) == 0 {
		r.levels = slices.Delete(r.levels, i, i+1)
	}
}

// next is the waiter whose turn it is; nil if there is none.
func (r *ranks) next() *waiter {
	if r.count == 0 {
		return nil
	}
	w := r.levels[0].heap[0]
	if r.served%fairEvery == fairEvery-1 {
		for _, l := range r.levels[1:] {
			if l.heap[0].seq < w.seq {
				w = l.heap[0]
			}
		}
	}
	return w
}

// ahead counts the units that go before one of that priority and place.
func (r *ranks) ahead(prio int32, seq uint64) (units int64) {
	for _, l := range r.levels {
		switch {
		case l.prio > prio, l.prio == prio && seq > l.last:
			units += l.units
		case l.prio == prio: // it comes back to its old place
			for _, w := range l.heap {
				if w.seq < seq {
					units += int64(w.cost)
				}
			}
		}
	}
	return units
}

// each visits all waiters; f may not change the line.
func (r *ranks) each(f func(*waiter)) {
	for _, l := range r.levels {
		for _, w := range l.heap {
			f(w)
		}
	}
}

func (l *level) swap(i, j int) {
	l.heap[i], l.heap[j] = l.heap[j], l.heap[i]
	l.heap[i].index, l.heap[j].index = int32(i), int32(j)
}

func (l *level) up(i int) {
	for i > 0 {
		p := (i - 1) / 2
		if l.heap[p].seq <= l.heap[i].seq {
			return
		}
		l.swap(i, p)
		i = p
	}
}

func (l *level) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(l.heap) {
			return
		}
		if c+1 < len(l.heap) && l.heap[c+1].seq < l.heap[c].seq {
			c++
		}
		if l.heap[i].seq <= l.heap[c].seq {
			return
		}
		l.swap(i, c)
		i = c
	}
}

func (l *level) cut(i int) {
	last := len(l.heap) - 1
	l.swap(i, last)
	l.heap[last] = nil
	l.heap = l.heap[:last]
	if i < last {
		l.down(i)
		l.up(i)
	}
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

// A rule decides who goes, and when. All methods are called with the line's
// lock held, but for inquire, which may block and is called without.
type rule interface {
	head(now time.Time) *waiter
	pass(w *waiter, at, now time.Time) decision
	fail(w *waiter, err error) *Error
	inquire(ctx context.Context, n int) (time.Duration, error) // take from the foreign limiters
	answered(w *waiter, wait time.Duration, now time.Time) bool
	undo(w *waiter, now time.Time)             // w was granted and cannot go: give all back, let the next go
	refund(n int)                              // foreign limiters get n units back; without the lock
	watch(changed func()) (stop func())        // own limiters, under the lock
	watchForeign(changed func()) (stop func()) // foreign ones, without
	gone(w *waiter)                            // w has left the line, whatever the reason
	emptied()                                  // nobody waits any more
	advance(now time.Time)                     // line.advance, with all that hangs on it
}

// A line is a waiting line. Only its head is ever looked at: units are bound to
// a caller at the last moment, so leaving, pausing and changing a rate lose
// nothing. It exists while somebody waits, and has one timer.
//
// Every method but sleep is called with *mu held.
type line struct {
	ranks
	mu     *sync.Mutex
	rule   rule
	timer  *time.Timer
	told   time.Time // the moment a limiter told for the head; zero: none
	asking *waiter   // whose goroutine asks a foreign limiter now
	stop   func()    // ends the watch on the limiters
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
			l.leave(w, granted)
		case deny:
			w.err = l.rule.fail(w, d.err)
			l.leave(w, refused)
		case ask:
			l.asking = w
			w.settle(asking)
		default:
			l.plan(d, now)
			return
		}
	}
}

func (l *line) leave(w *waiter, s waitState) {
	l.remove(w)
	l.rule.gone(w)
	w.settle(s)
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
	watched := false
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return l.abandon(ctx, w)
		}
		switch w.state {
		case refused:
			return w.err
		case asking:
			if !watched {
				watched = true
				defer l.rule.watchForeign(l.wakeUp)()
			}
			l.askFor(ctx, w)
		case granted:
			if ctx.Err() != nil {
				return l.abandon(ctx, w)
			}
			return nil
		}
	}
}

// abandon takes w, whose ctx has ended, out of the line, or undoes its grant.
func (l *line) abandon(ctx context.Context, w *waiter) error {
	err, refund := l.abandonLocked(ctx, w)
	if refund {
		l.rule.refund(w.cost)
	}
	return err
}

func (l *line) abandonLocked(ctx context.Context, w *waiter) (err error, refund bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	switch w.state {
	case refused:
		return w.err, false
	case granted:
		l.rule.undo(w, now) // l itself may be gone by now
		refund = true
	case asking: // the turn had come, but was not taken up
		l.asking = nil
		l.rule.answered(w, -1, now)
		l.drop(w, now)
	default:
		l.drop(w, now)
	}
	return l.rule.fail(w, ctx.Err()), refund
}

// askFor asks the foreign limiters on behalf of w, the head, and settles w by
// the answer. The lock is not held while they are asked; meanwhile nobody else
// of this line asks. A panic of theirs passes through, with w out of the line.
func (l *line) askFor(ctx context.Context, w *waiter) {
	err := errAskPanicked
	wait := time.Duration(0)
	defer func() {
		if !l.hear(w, wait, err) && wait == 0 && err == nil {
			l.rule.refund(w.cost) // the gate has closed meanwhile
		}
	}()
	wait, err = l.rule.inquire(ctx, w.cost)
}

// hear takes in what the foreign limiters answered and reports whether w goes.
func (l *line) hear(w *waiter, wait time.Duration, err error) (ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.asking = nil
	switch {
	case err != nil:
		l.rule.answered(w, -1, now)
		w.err = l.rule.fail(w, err)
		l.leave(w, refused)
	case l.rule.answered(w, wait, now):
		ok = true
		l.served++
		l.leave(w, granted)
	default:
		w.state = waiting
	}
	l.goOn(now)
	return ok
}
