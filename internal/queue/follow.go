package queue

import (
	"time"

	"github.com/go-throttle/throttle/internal/aimd"
	"github.com/go-throttle/throttle/internal/limit"
)

// This file is a bound of the calls in flight that follows a load: that of a function of the user's, or the response times of
// the key's calls. Each key has its own, and slots.go takes it for one more bound.
//
// # States
//
//	Following    one for all queues that share a lock: the law, and the last reading. Under the lock
//	aimd.Bound   one a key, made with its first call that takes a slot. Under the lock
//
// # Who comes by
//
// Whoever arrives asks the function, before the lock is taken (come), and so does the timer of a line after it has served it,
// at the latest when the next look is due, whatever holds the head. Then followLocked takes a step, if one is due: at an arrival, at the
// end of a call, and by that timer. Whoever finds that the bound has gone up lets go who may go, so nobody waits for a slot that
// is there.
//
// # Races
//
//	two arrive                     one of them asks, the other goes on with the last reading
//	readings that come in late     are dropped: their numbers tell
//	the bound goes down            those in flight stay, and no other goes until enough have ended
//	nobody arrives                 a line's timer comes by once a second while somebody waits
//	a call ends when a look is due the timer is set anew, to now: next moves on only when a timer has come by
//	the function blocks            its caller waits. If that is the timer, the line was served before, and sets another one
type Following struct {
	law  *aimd.Law
	look func() (load float64, n uint64) // nil: response times
	load float64                         // of the last reading, and its number
	n    uint64
	next time.Time // when the timer of a line looks next
}

// Follow makes a Following for one Config. look returns the n-th reading of a load; nil: response times are to be followed.
func Follow(law *aimd.Law, look func() (load float64, n uint64)) *Following {
	return &Following{law: law, look: look}
}

// asks reports whether there is a function to be asked.
func (f *Following) asks() bool { return f != nil && f.look != nil }

// come asks the function, if there is one, without the lock.
func (r *common) come() {
	if r.Options.InFlight.asks() {
		r.ask()
	}
}

// ask is come where there is one.
func (r *common) ask() {
	f := r.Options.InFlight
	load, n := f.look()
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > f.n {
		f.load, f.n = load, n
	}
}

// boundLocked is the bound of the key; nil: none is set.
func (q *Queue) boundLocked() *aimd.Bound {
	f := q.common.Options.InFlight
	if f == nil {
		return nil
	}
	t := q.trouble()
	if t.bound == nil {
		t.bound = new(aimd.Bound)
		t.bound.Init(f.law)
	}
	return t.bound
}

// followLocked takes a step, if one is due, and reports whether there is more room now.
func (q *Queue) followLocked(now time.Time) (rose bool) {
	b, f := q.boundLocked(), q.common.Options.InFlight
	if b == nil {
		return false
	}
	was := b.Now()
	if f.asks() {
		b.Follow(f.load, f.n, int(q.slots), now)
	} else {
		b.FollowTimes(int(q.slots), now)
	}
	return b.Now() > was
}

// emptyLocked reports whether nobody waits, after those have gone whom the load lets go. The response time of o, which arrives, is to be
// measured then.
func (q *Queue) emptyLocked(o *order, now time.Time) bool {
	if q.common.Options.InFlight != nil {
		if o.sample = true; q.followLocked(now) {
			q.advanceLocked(now)
		}
	}
	return q.line == nil
}

// timedLocked notes that a call has ended that began then; ok: with an answer.
func (q *Queue) timedLocked(began, now time.Time, ok bool) {
	if f := q.common.Options.InFlight; f != nil && !f.asks() {
		q.boundLocked().End(began, now, ok)
	}
}

// answers reports whether that outcome is an answer, whose response time counts.
func answers(o Outcome) bool { return o == Success || o == Neutral }

// timeUp is what the line's timer calls.
func (l *lineup) timeUp() {
	q := l.q
	look := q.common.lookDue()
	if l.wakeUp(); look && q.waits() {
		q.common.come()
		q.change(func(now time.Time) { q.followLocked(now) })
	}
}

// lookDue reports whether the function is to be asked by a timer now, and claims that look for the caller.
func (r *common) lookDue() bool {
	f := r.Options.InFlight
	if !f.asks() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if f.next.After(now) {
		return false
	}
	f.next = now.Add(aimd.Every)
	return true
}

// untilLookLocked is d, with the moment of the next look if that comes first.
func (q *Queue) untilLookLocked(d decision, now time.Time) decision {
	f := q.common.Options.InFlight
	if !f.asks() {
		return d
	}
	if next := limit.Latest(f.next, now); d.until.IsZero() || next.Before(d.until) {
		d.until, d.exact = next, false
	}
	return d
}

// waits reports whether somebody does.
func (q *Queue) waits() bool {
	q.common.mu.Lock()
	defer q.common.mu.Unlock()
	return q.line != nil
}

// signalLocked is what the bound follows, as observers see it: the last reading, or the smoothed response time in seconds; 0: none, or not
// known.
func (q *Queue) signalLocked() float64 {
	switch f := q.common.Options.InFlight; {
	case f == nil, f.asks() && !aimd.Known(f.load):
		return 0
	case f.asks():
		return f.load
	}
	return q.up.RoundTrip().Smoothed.Seconds()
}

// staleBound is how long after its last step a bound says nothing any more.
const staleBound = time.Hour

// boundIdleLocked reports whether a new bound would do as well.
func (q *Queue) boundIdleLocked(now time.Time) bool {
	b := q.troubled().bound
	return b == nil || b.Now() == q.common.Options.InFlight.law.Most || now.Sub(b.Stepped()) >= staleBound
}
