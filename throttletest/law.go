package throttletest

import (
	"cmp"
	"math"
	"math/bits"
	"time"
)

// Never is a moment that does not come: what [Account.Ready] returns if no unit gets free.
const Never = time.Duration(math.MaxInt64)

// An Account is what has been used of a Limit, asked by itself and one unit at a time. A Server has its own accounts.
// This one serves clients that know all about a limit, to compare others with. Its moments are counted from the
// Server's start and must come in order of time. It is not safe for concurrent use.
//
// An example: Limit{N: 10} begins with 10 units, so ten calls of Take at 0 leave none, and Ready(0) is
// 100 ms. A scheduler that knows the limit waits until Ready, and takes. What it needs for 100 units, 9
// s, is the time that no client can beat.
type Account struct {
	limit Limit
	laws  map[string]law // by key
}

// A law is how one key of a Limit is counted.
type law interface {
	ready(at time.Duration, n int) time.Duration // the first moment, at or later, at which n units are free
	take(at time.Duration, n int)                // charges n units, whether they are free or not
	settle(at, charged time.Duration, n int)     // charges n units more, or -n less, for what was charged at that moment
	set(at time.Duration, n int)                 // from now on the limit is n
	state(at time.Duration) State
}

// NewAccount returns an account that has not been used. It panics if the limit is nonsense, such as a negative N.
func NewAccount(l Limit) *Account {
	if err := l.check(); err != nil {
		panic("throttletest: NewAccount: " + err.Error())
	}
	l.Per, l.Burst = cmp.Or(l.Per, time.Second), cmp.Or(l.Burst, l.N)
	return &Account{l, make(map[string]law)}
}

// Ready is the first moment, at or later, at which a unit is free, if nobody else comes and the limit does not change;
// Never if there is none. An InFlight limit says at or Never, because it cannot know when work will be done.
func (a *Account) Ready(at time.Duration) time.Duration { return a.of(at, "").ready(at, 1) }

// Take charges a unit, whether one is free or not. Call it when [Account.Ready] has come.
func (a *Account) Take(at time.Duration) { a.of(at, "").take(at, 1) }

// Done ends the work on a unit of an InFlight limit, which is free for the next one from then on. Other limits have no
// use for it.
func (a *Account) Done(at time.Duration) { a.done(at, "", 1) }

func (a *Account) done(at time.Duration, key string, n int) {
	if f, ok := a.of(at, key).(*flight); ok {
		f.flying -= n
	}
}

// of returns the law of a key, after the changes that are due.
//
// Changes take effect at their own moment, even if nobody comes until much later. An example: N is 10
// and becomes 5 at 60 s. Somebody who comes at 62 s finds the 2 s since then counted at 5/s.
func (a *Account) of(at time.Duration, key string) law {
	for c := &a.limit.Changes; len(*c) > 0 && (*c)[0].At <= at; *c = (*c)[1:] {
		a.limit.N = (*c)[0].N
		for _, l := range a.laws {
			l.set((*c)[0].At, a.limit.N)
		}
	}
	l, ok := a.laws[key]
	if !ok {
		l = a.limit.law()
		a.laws[key] = l
	}
	return l
}

// law returns a fresh law. The limit must have its defaults.
func (l Limit) law() law {
	switch l.Kind {
	case Fixed, FixedFirst, SlidingCounter:
		// A window ago, so that turn finds the first one: with Phase 70 s and Per 60 s, windows begin
		// at -50 s, 10 s, 70 s and so on. A FixedFirst window is over at once, and the first request
		// begins the next.
		began := l.Phase%l.Per - l.Per
		return &window{n: l.N, per: l.Per, began: began, first: l.Kind == FixedFirst, slides: l.Kind == SlidingCounter}
	case Sliding:
		return &sliding{n: l.N, per: l.Per}
	case InFlight:
		return &flight{n: l.N}
	}
	b := &bucket{per: l.Per, burst: l.Burst}
	b.set(0, l.N)
	return b
}

// A bucket is kept as one moment, full, at which all that was taken will have come back. This is GCRA's theoretical
// arrival time: n units fit as long as full is no further ahead than the time in which burst - n units come back.
//
// An example with N 10, Per 1 s, Burst 3: unit is 100 ms, and full 0. Three requests at 0 make it 300
// ms. A fourth fits when full − (3 − 1) × 100 ms = 100 ms has come. Taken then, it makes full 400 ms.
// Nothing runs in between: a rested bucket is one whose full is over.
type bucket struct {
	per        time.Duration
	burst      int
	unit, full float64 // ns; a unit comes back in unit, never if that is 0
}

func (b *bucket) set(at time.Duration, n int) {
	unit := 0.0
	if n > 0 {
		unit = float64(b.per) / float64(n)
	}
	// At 10/s a debt of 300 ms is 3 units. At 5/s the same 3 units take 600 ms.
	if debt := b.full - float64(at); debt > 0 && b.unit > 0 && unit > 0 {
		b.full = float64(at) + debt/b.unit*unit // as many units are missing as before
	}
	b.unit, b.burst = unit, cmp.Or(b.burst, n)
}

// More than the burst never fits: no rest makes a bucket larger.
func (b *bucket) ready(at time.Duration, n int) time.Duration {
	if n > b.burst || b.unit == 0 {
		return Never
	}
	first := b.full - float64(b.burst-n)*b.unit
	if first <= float64(at)+0.5 { // half a nanosecond: sums of fractions err
		return at
	}
	return time.Duration(math.Ceil(first - 0.5))
}

func (b *bucket) take(at time.Duration, n int) {
	b.full = max(b.full, float64(at)) + float64(n)*b.unit
}

// In the example above, right after the fourth request, at 100 ms: the debt is 300 ms, so 0 of 3 units
// remain, and Reset is 300 ms. At 250 ms the debt is 150 ms, which is 1.5 units: 1 remains, rounded
// down.
func (b *bucket) state(at time.Duration) State {
	if b.unit == 0 {
		return State{Limit: b.burst}
	}
	debt := max(0, b.full-float64(at))
	left := max(0, float64(b.burst)-debt/b.unit) + 1e-9 // for sums that err
	per := time.Duration(float64(b.burst) * b.unit)
	return State{Limit: b.burst, Remaining: int(left), Window: per, Reset: time.Duration(debt)}
}

// A window counts what has come since it began. If it slides, what came in the window before counts too, by the share
// of this window that is left. For an even flow that is what came within the last Per. HAProxy's http_req_rate is
// such a sum, and so are the estimates of many gateways.
//
// An example of a SlidingCounter with N 100 and Per 60 s: 80 units came in the window before, 30 in
// this one, and 15 s of it are over, so 45 s are left. The sum is 30 + 80 × 45 ÷ 60 = 90, and 10 units
// are free. A Fixed limit would have 70 free, because it forgets the window before at once: at the edge
// of its windows it admits 200 units in a moment.
type window struct {
	n             int
	per           time.Duration
	first, slides bool          // it begins with a request; SlidingCounter
	began         time.Duration // may be over
	before, now   int           // units of the window before, and of this one
}

func (w *window) set(_ time.Duration, n int) { w.n = n }

// turn goes on to the window of a moment.
//
// Of a FixedFirst window that is over only the count goes: the next one begins with the next unit, in
// take. A SlidingCounter remembers one window: after a pause of two it has forgotten all.
func (w *window) turn(at time.Duration) {
	k := (at - w.began) / w.per
	if k == 0 {
		return
	}
	if w.before, w.now = w.now, 0; k > 1 || !w.slides {
		w.before = 0
	}
	if !w.first {
		w.began += k * w.per
	}
}

// left is how much of a window may be left so that the units of the window before count for free ones at most:
// before × left ÷ per ≤ free, rounded down.
//
// In the example above, a request of 20 units: free is 100 − 20 − 30 = 50, and 80 × left ÷ 60 s ≤ 50
// from 37.5 s on. So it is admitted when 37.5 s are left, 7.5 s from now.
func (w *window) left(before, free int) time.Duration {
	if before <= free {
		return w.per
	}
	hi, lo := bits.Mul64(uint64(w.per), uint64(free)) // many units in a long window need more than 64 bits
	left, _ := bits.Div64(hi, lo, uint64(before))
	return time.Duration(left)
}

// If this window is too full by itself, the next one must come first. There this window is the one
// before, and the same formula says how much of it must be forgotten.
func (w *window) ready(at time.Duration, n int) time.Duration {
	w.turn(at)
	end := w.began + w.per
	switch free := w.n - n - w.now; {
	case n > w.n:
		return Never
	case free >= 0: // as soon as enough of the window before is forgotten
		return max(at, end-w.left(w.before, free))
	case w.slides: // in the next window, once enough of this one is
		return end + w.per - w.left(w.now, w.n-n)
	}
	return end
}

// A FixedFirst window that is over begins anew with this unit: one at 75 s makes it 75 s to 135 s, if
// Per is 60 s.
func (w *window) take(at time.Duration, n int) {
	if w.turn(at); w.first && at >= w.began+w.per {
		w.began = at
	}
	w.now += n
}

func (w *window) state(at time.Duration) State {
	w.turn(at)
	left := max(0, w.began+w.per-at)
	used := float64(w.now) + float64(w.before)*float64(left)/float64(w.per)
	return State{Limit: w.n, Remaining: max(0, int(float64(w.n)-used)), Window: w.per, Reset: left}
}

// sliding remembers when the units of the last Per came.
//
// An example with N 3 and Per 10 s: units at 0, 4 and 6 s. A fourth fits at 10 s, when the first one
// leaves, and the next ones at 14 and 16 s. Any 10 s have at most 3, which neither kind of window
// promises.
type sliding struct {
	n    int
	per  time.Duration
	used int // by the log
	log  []taken
}

type taken struct {
	at time.Duration
	n  int
}

func (s *sliding) set(_ time.Duration, n int) { s.n = n }

// turn forgets the units that came Per ago and earlier.
func (s *sliding) turn(at time.Duration) {
	for ; len(s.log) > 0 && s.log[0].at <= at-s.per; s.log = s.log[1:] {
		s.used -= s.log[0].n
	}
}

// With CountThrottled or after a Change more may have been charged than N. An example: N 3, 5 in the
// log, and 1 wanted. 5 + 1 − 3 = 3 must leave, so it is the third entry that counts.
func (s *sliding) ready(at time.Duration, n int) time.Duration {
	if s.turn(at); n > s.n {
		return Never
	}
	for i, over := 0, s.used+n-s.n; over > 0; i++ { // so many units have to leave first
		over -= s.log[i].n
		at = s.log[i].at + s.per
	}
	return at
}

func (s *sliding) take(at time.Duration, n int) {
	s.turn(at)
	s.log, s.used = append(s.log, taken{at, n}), s.used+n
}

func (s *sliding) state(at time.Duration) State {
	s.turn(at)
	st := State{Limit: s.n, Remaining: max(0, s.n-s.used), Window: s.per}
	if len(s.log) > 0 {
		st.Reset = s.log[0].at + s.per - at
	}
	return st
}

// A flight caps what is at work at once. Account.done takes off what has ended.
type flight struct{ n, flying int }

func (f *flight) set(_ time.Duration, n int)  { f.n = n }
func (f *flight) take(_ time.Duration, n int) { f.flying += n }

// An example with N 2 and Work 1 s: requests at 0 and 0.4 s are at work, and one at 0.5 s is throttled.
// From 1 s on there is a place. The account cannot say so, because it does not know the work.
func (f *flight) ready(at time.Duration, n int) time.Duration {
	if f.flying+n > f.n {
		return Never
	}
	return at
}

// state has no Window, so it is not advertised: there is no time in which units come back.
func (f *flight) state(time.Duration) State {
	return State{Limit: f.n, Remaining: max(0, f.n-f.flying)}
}
