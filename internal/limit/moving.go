package limit

import (
	"time"

	"golang.org/x/time/rate"
)

// A Moving is the account of a bucket whose rate somebody moves who is called from time to time while it is in use. That one
// needs no lock, and may take its time: units are taken at the old rate meanwhile.
//
// # States, under the guard
//
//	due       when the next call may be; a take at or after it makes the call, in a timer's goroutine
//	looking   the call is on its way, or under way; no other is made until Step
//
//	a take, a take            the first one makes the call, the second finds looking
//	Step, a take              the lock decides whether it is paid at the old rate or the new
//	nobody takes any more     nothing happens, and no timer is left, unless somebody waits: then the next call comes at due, so
//	                          a rate goes up under a line that waits for a large debt
type Moving struct {
	g     Guard
	s     moving
	every time.Duration
	look  func()
}

// moving is a Moving's state.
type moving struct {
	tokens
	owner   *Moving
	first   rate.Limit
	units   int       // taken since the last step
	step    time.Time // when that was; zero: the first take is still to come
	due     time.Time
	looking bool
}

// Init makes a full bucket. look is called while units are taken or waited for, but not more often than each time, and has to call Step.
func (m *Moving) Init(limit rate.Limit, burst int, every time.Duration, look func()) {
	limit = CheckLimit("Rate", limit, burst)
	m.s = moving{tokens: tokens{limit: limit, burst: burst, count: float64(burst)}, owner: m, first: limit}
	m.every, m.look = every, look
}

// Parts implements Account.
func (m *Moving) Parts() (*Guard, State) { return &m.g, &m.s }

// Notify implements Account.
func (m *Moving) Notify(changed func()) (stop func()) { return m.g.Notify(changed) }

// Adjust is Bucket.Adjust.
func (m *Moving) Adjust(n int) {
	Change(m, func(now time.Time) { m.s.Adjust(now, n) })
}

// String is the limit as text, as of now.
func (m *Moving) String() string {
	m.g.Lock()
	defer m.g.Unlock()
	return Text(m.s.limit, m.s.burst)
}

// Step ends a look: the rate is what next makes of it, and of the units a second that were taken since the last step; ok: it is a step. If
// nothing is new yet, look is called again soon.
func (m *Moving) Step(next func(is rate.Limit, used float64) (limit rate.Limit, ok bool)) {
	Change(m, func(now time.Time) {
		s := &m.s
		s.looking = false
		used := float64(s.units) / max(now.Sub(s.step), time.Millisecond).Seconds()
		if m.g.Watched() { // somebody waits, so all of it is used
			used = max(used, float64(s.limit))
		}
		limit, ok := next(s.limit, used)
		if s.due = now.Add(m.every / 10); ok {
			s.tokens.Consume(now, 0)
			s.limit, s.units, s.step, s.due = limit, 0, now, now.Add(m.every)
		}
		if m.g.Watched() {
			s.lookAt(s.due, now)
		}
	})
}

// lookAt has look called at that moment.
func (s *moving) lookAt(at, now time.Time) {
	s.looking = true
	time.AfterFunc(at.Sub(now), s.owner.look)
}

// took counts units that are taken as of at.
func (s *moving) took(at time.Time, n int) {
	if s.step.IsZero() {
		s.step = at
	}
	if s.units += n; !s.looking && !at.Before(s.due) {
		s.lookAt(at, at)
	}
}

// TakeBy implements State.
func (s *moving) TakeBy(at, now time.Time, n int) (time.Time, error) {
	if s.pay(at, n) {
		s.took(s.last, n)
		return Earliest(s.last, now), nil
	}
	return TakeReady(s, at, now, n)
}

// Consume implements State.
func (s *moving) Consume(at time.Time, n int) {
	s.tokens.Consume(at, n)
	s.took(s.last, n)
}

// Adjust, GiveBack and Refund implement State: what comes back was not used.
func (s *moving) Adjust(now time.Time, n int)       { s.Consume(now, n) }
func (s *moving) GiveBack(_, now time.Time, n int)  { s.Consume(now, -n) }
func (s *moving) Refund(_, now time.Time, _, n int) { s.Consume(now, -n) }
func (s *moving) Clone() State                      { return s.tokens.Clone() }

// stale is how long after the last step a rate says nothing any more.
const stale = time.Hour

// Fresh implements State.
func (s *moving) Fresh(now time.Time) bool {
	return (s.limit == s.first || now.Sub(s.step) >= stale) && s.tokens.Fresh(now)
}

// Carry implements State, as of a bucket.
func (s *moving) Carry(now time.Time, old State) {
	if o, same := old.(*moving); same {
		old = &o.tokens
	}
	s.tokens.Carry(now, old)
}
