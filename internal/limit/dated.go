package limit

import (
	"time"

	"golang.org/x/time/rate"
)

// A Dated is the account of a limiter whose units come from somewhere else, each with a date: it may be
// used from that moment on, and for a while after it. A Supply brings them. So a call never waits for
// whoever grants units, only for a date.
//
// Example: at 0 s a supply adds 3 units, the first at 10 ms, the others each 5 ms, valid for 200 ms. A take at
// 0 s is answered 10 ms; takes at 10, 15 and 20 ms succeed. A fourth one finds the hand empty: Supply.Short
// sends for more and says when to ask again, and the line is woken when Add brings them.
type Dated struct {
	g     Guard
	s     dated
	owner any
}

// A Supply is where a Dated gets its units. Its methods are called under the account's lock. They must
// neither block nor call the account's own methods; to send for units they start a goroutine.
type Supply interface {
	// Check returns why nothing can be taken any more; nil: it can.
	Check() error
	// Short says that n units, a debt included, are not in hand at a moment: the supply sends for them.
	// It returns when to ask again, or a moment not after from if the supply itself gives n units then.
	Short(from time.Time, n int) time.Time
	// Later is the moment before which no units that are missing now can be there, as the supply knows already; zero: none.
	Later(now time.Time) time.Time
	// Spend takes n units of the supply itself, and reports whether it gave them.
	Spend(at time.Time, n int) bool
	// Taken says that n units were taken from the hand, which still holds that many.
	Taken(at time.Time, n, held int)
	// Returned says that n of the units taken were not used; kept of them are in hand again.
	Returned(n, kept int)
	// Beyond predicts when so many units more than are in hand will be there.
	Beyond(from time.Time, units float64) time.Time
	// Back gets n units that were used by nobody and are not in hand.
	Back(n int)
	// Idle reports whether nothing is being sent for.
	Idle() bool
	// Awaited reports whether units that are not in hand wait for an answer, and not for a moment.
	Awaited() bool
}

// Parts implements Account.
func (d *Dated) Parts() (*Guard, State) { return &d.g, &d.s }

// Init makes a Dated with an empty hand, and panics for nonsense; caller is the constructor that the message
// names. owner is the limiter as users see it.
func (d *Dated) Init(caller string, owner any, limit rate.Limit, burst int, s Supply) {
	d.owner = owner
	d.s.limit, d.s.burst, d.s.supply = checkLimit(caller, limit, burst), burst, s
}

// UnderLock runs f under the lock, which also guards what the owner and the Supply keep.
func (d *Dated) UnderLock(f func()) {
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	f()
}

// Update runs f under the lock, then notifies those who watch.
func (d *Dated) Update(f func(now time.Time)) { change(d, f) }

// Add puts units into the hand. It is called in Update, or by the Supply. A debt is paid first.
func (d *Dated) Add(r Run) { d.s.add(r) }

// Pause drops the units that are dated before until, and lets none go before it. It is called in Update.
// It returns how many were dropped.
func (d *Dated) Pause(until time.Time) int { return d.s.pause(until) }

// Held is how many units are in hand at now, and how many have expired so far. It is called in Update or
// UnderLock.
func (d *Dated) Held(now time.Time) (held, debt int, expired uint64) {
	d.s.expire(now)
	return d.s.held, d.s.debt, d.s.expired
}

// Paused is the end of the latest pause. It is called in Update or UnderLock.
func (d *Dated) Paused() time.Time { return d.s.paused }

// Watched reports whether somebody waits for a change, as a line does. It is called by the Supply.
func (d *Dated) Watched() bool { return len(d.g.watchers) > 0 }

// Empty takes all units out of the hand, and returns how many there were. It is called in Update.
func (d *Dated) Empty() (n int) {
	n, d.s.held, d.s.runs = d.s.held, 0, nil
	return n
}

// Limit and Burst are called in Update, UnderLock, or by the Supply.
func (d *Dated) Limit() rate.Limit { return d.s.limit }
func (d *Dated) Burst() int        { return d.s.burst }

// SetLimit changes the rate that is used for predictions and sent along; units in hand stay. It is called
// in Update.
func (d *Dated) SetLimit(limit rate.Limit) {
	d.s.limit, d.s.changed = checkLimit("SetLimit", limit, d.s.burst), true
}

// Adjust takes n units, as a debt if they are not there; a negative n gives units back.
func (d *Dated) Adjust(n int) {
	change(d, func(now time.Time) { d.s.Adjust(now, n) })
}

// Notify has changed called after each change of the limit or the units, until stop.
func (d *Dated) Notify(changed func()) (stop func()) { return d.g.notify(changed) }

// OwnerOf is the limiter that users know an account by, if the account knows it: that of a Dated.
func OwnerOf(a Account) any {
	if d, ok := a.(*Dated); ok {
		return d.owner
	}
	return nil
}

// String is the owner's text.
func (d *Dated) String() string {
	text := ""
	d.UnderLock(func() { text = textOf(d.s.limit, d.s.burst) })
	return text + " shared"
}

// dated is the state of a Dated: the units in hand, and what they are owed to. The units that the limit has in
// all are known to the supply's store alone, so a prediction beyond the hand is the supply's guess.
//
//	held    units of all runs, ripe ones and those whose date is still to come
//	debt    units that were used before they were there, by Adjust
//	paused  until then nothing goes, whatever is in hand
type dated struct {
	clock
	supply  Supply
	limit   rate.Limit
	burst   int
	runs    []Run // sorted by First; few
	held    int   // the units of all runs
	debt    int   // units used that were not there; the next ones in hand pay it
	paused  time.Time
	expired uint64
	changed bool
	beside  *Set // who is asked or taken from at this moment, for so many units; see Beside
	units   int
	latest  struct { // the latest take: what giveBack may put back
		at time.Time
		Run
	}
}

// pay takes one unit, if the first run has one that is ripe: the whole cost of a take that need not wait. In
// all other cases it says no, and the long way finds out: several units, a debt, a pause, a run behind the first
// that is ripe earlier. Example: of a run of 3 units from 10 ms on, each 5 ms, a call at 12 ms takes the first, and
// the run is one of 2 units from 15 ms on.
func (s *dated) pay(at time.Time, n int) bool {
	at = s.Lift(at)
	if n != 1 || s.held == 0 || s.debt > 0 || s.limit == rate.Inf || !s.paused.IsZero() {
		return false
	}
	r := &s.runs[0]
	if r.First.After(at) || !r.Until.After(at) || s.supply.Check() != nil {
		return false
	}
	s.clock.last, s.latest.at = at, at
	s.latest.First, s.latest.Until, s.latest.Count = r.First, r.Until, 1
	if s.cut(r, 1); r.Count == 0 {
		s.sweep()
	}
	s.supply.Taken(at, 1, s.held)
	return true
}

// payAlone is pay, for a call that pays nothing but this account.
func (d *Dated) payAlone(at time.Time, n int) bool {
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	return d.s.pay(at, n)
}

// TakeBy implements State. It tries pay, the common case, first.
func (s *dated) TakeBy(at, now time.Time, n int) (time.Time, error) {
	if s.pay(at, n) {
		return Earliest(s.latest.at, now), nil
	}
	return takeReady(s, at, now, n)
}

// Check implements State, as for a bucket: a fleet's schedule has a burst and leaves debts in the same way. A
// supply that is closed refuses everything, calls of no units too.
func (s *dated) Check(n int) error {
	if err := s.supply.Check(); err != nil {
		return err
	}
	t := tokens{limit: s.limit, burst: s.burst}
	return t.Check(n)
}

// Consume takes n ripe units from the hand. Those that are not there come from the supply itself, or become
// a debt.
//
// A call that waits comes here after the question (see after) has said that its units are ripe, under the same
// lock. Adjust comes without a question. Example: 2 of 5 units are in hand: both go, and 3 are owed. The next
// 3 that the supply brings pay that, and are used by nobody.
func (s *dated) Consume(at time.Time, n int) {
	at = s.Lift(at)
	s.clock.last = at
	if !s.paused.After(at) {
		s.paused = time.Time{}
	}
	if n <= 0 || s.limit == rate.Inf {
		return
	}
	s.expire(at)
	if s.ripeUnits(at) < n && s.supply.Spend(at, n) {
		return
	}
	left, empty := n, false
	s.latest.at, s.latest.Run = at, Run{}
	for i := 0; i < len(s.runs) && left > 0; i++ {
		r := &s.runs[i]
		took := min(ripe(r, at), left)
		if took == 0 {
			continue
		}
		if s.latest.Count == 0 {
			s.latest.First, s.latest.Until = r.First, r.Until
		}
		s.latest.Until = Earliest(s.latest.Until, r.Until)
		s.latest.Count += took
		s.cut(r, took)
		left -= took
		empty = empty || r.Count == 0
	}
	s.debt += left
	if empty {
		s.sweep()
	}
	s.supply.Taken(at, n, s.held)
}

// Adjust implements State.
func (s *dated) Adjust(now time.Time, n int) {
	if n > 0 {
		s.Consume(now, n)
		return
	}
	paid := min(s.debt, -n)
	s.debt -= paid
	if back := -n - paid; back > 0 {
		s.supply.Back(back)
	}
}

// GiveBack is for a call that got its units and cannot use them: its ctx has ended, or a limiter of another kind
// has refused. It puts units of the latest take back with the date that they had. Units taken earlier are lost:
// their dates are not kept, and a unit that is used long after its date would break the limit.
func (s *dated) GiveBack(at, now time.Time, n int) {
	kept := 0
	if s.latest.at.Equal(at) && s.latest.Until.After(now) {
		kept = min(n, s.latest.Count)
		s.latest.Count -= kept
		s.add(Run{First: s.latest.First, Until: s.latest.Until, Count: kept})
	}
	s.supply.Returned(n, kept)
}

// Refund implements State. Units that were used no longer have a date: they go back to where they came from.
func (s *dated) Refund(_, now time.Time, _, n int) { s.Adjust(now, -n) }

// After implements State. Units in hand have their dates. For what is not there, the supply is asked: for a
// call with nobody before it to send for units, otherwise for a guess. from may lie in the future, so nothing
// is dropped here.
//
// Example: units of 10 and 20 ms are in hand. A call of one unit is answered 10 ms, and one behind it 20 ms. For
// a third one the supply guesses. A call of three units that is first makes the supply send for three that are
// dated together: two singles and one that comes later might never be there at one moment.
func (s *dated) After(from time.Time, ahead int64, n int) time.Time {
	from = s.Lift(from)
	paused := s.paused.After(from)
	switch {
	case n == 0 && ahead == 0, s.limit == rate.Inf:
		return from
	case s.limit == 0:
		return from.Add(Forever)
	case paused:
		from = s.paused
	}
	units := ahead + int64(n)
	at, missing := s.dateOf(from, units, ahead == 0)
	switch {
	case missing == 0:
		return at
	case ahead > 0:
		return Latest(from, s.supply.Beyond(from, float64(missing)))
	case paused: // nothing is sent for before the pause is over
		return from
	}
	return s.supply.Short(from, n+s.debt)
}

// Rate implements State.
func (s *dated) Rate() rate.Limit { return s.limit }

// Available implements State: what is in hand and ripe, less what is owed.
func (s *dated) Available(now time.Time) float64 {
	if s.limit == rate.Inf {
		return float64(rate.Inf)
	}
	now = s.Lift(now)
	s.expire(now)
	return float64(s.ripeUnits(now) - s.debt)
}

// Size implements State: the burst of the limit that all processes share; this one has a part of it in hand.
func (s *dated) Size() (units float64, window time.Duration) { return float64(s.burst), 0 }

// Fresh implements State: a limiter made anew finds the same units where these have come from. One that still
// holds some is kept, or they would be lost; so is one in a pause that a new one would not know of.
func (s *dated) Fresh(now time.Time) bool {
	s.expire(now)
	return !s.changed && s.held == 0 && s.debt == 0 && !s.paused.After(now) && s.supply.Idle()
}

// Carry implements State: what was used is known where the units come from.
func (s *dated) Carry(time.Time, State) {}

// Clone implements State. What is run ahead must send for nothing, so the copy is a bucket that has what is in hand, and
// earns at the rate at which the supply says now that units will come. Example: 3 in hand, and the 1,000 units after
// those are foreseen in 4 s: a bucket of 250/s with 3 units.
func (s *dated) Clone() State {
	const units = 1000
	now := s.last
	per := s.supply.Beyond(now, 1+units).Sub(s.supply.Beyond(now, 1)).Seconds()
	c := &tokens{clock: s.clock, limit: s.limit, burst: max(1, s.burst), count: float64(s.held - s.debt)}
	if per > 0 && s.limit != rate.Inf {
		c.limit = rate.Limit(units / per)
	}
	return c
}
