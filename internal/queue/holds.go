package queue

import (
	"math"
	"math/bits"
	"time"

	"github.com/go-throttle/throttle/internal/meter"
)

// This file is what becomes of the units that an attempt holds of its key's meters.
//
// # States of a hold: what one attempt holds of one meter
//
//	asked     the call knows how much, see asks. If it has to wait, a Holds stands in its waiter's extra; nothing is taken
//	held      in the critical section that takes the units
//	settled   Holds.end, once, under Meters.mu: by the body's end, by hand, as a failure, or undone before it was sent
//
// A Holds is made when somebody beside the call must know of it: the line, who reads the body, a Bill. A call that goes at once and
// whose body nobody reads has none, and allocates nothing.
//
// # Who settles, and what
//
//	Settle(i, n)  the true cost of one meter
//	Fail          the attempt has got no answer, or one that does not count: nothing, or what was held with Meter.Failures
//	Keep          what was held is right
//	undo          the attempt was not sent: nothing, with Meter.Failures too
//
// # Races
//
// Whoever comes first under Meters.mu settles, the others find it settled and do nothing. It is held for that and for sums: the
// limiters are corrected after it, and they wake the line, which takes its own lock.
//
//	grant, the end of the ctx     the waiter is granted and undone by its own goroutine (Call.Sleep, or Call.Done if an
//	                              observer panics), or it leaves the line before and holds nothing
//	a foreign limiter refuses     nothing was held yet; its error ends the call whose turn it is
//	settle, the key is dropped    a key with open holds is not as new. In a full table it may go, and the settlement
//	                              corrects limiters that nobody asks any more, or that a new key has got again
//	two keys, one meter's limiter each corrects what it has held; the limiter wakes the lines of both

// An example with two meters. A call holds 300 tokens and 1,000 bytes and is sent. Its answer says that it was 120 tokens: that
// settles the first. Its caller says 80 tokens by hand: too late, and nothing changes. The body ends without a word of
// bytes: Keep settles the second as 1,000. Now none is open, and the key may be dropped.

// Bounds of the number of meters.
const (
	fewMeters = 4  // a Holds has a place for, without another allocation
	MaxMeters = 64 // of a key
)

// A Holds is what one attempt holds of the meters of its key, or will hold once it has its turn. Settle, Fail and Keep may
// be called by any goroutine, and without effect more than once.
type Holds struct {
	meters  *Meters
	amounts []int // the cost, then what is held of each meter; fixed before it is asked
	taken   time.Time
	waits   bool // it is counted among those that wait; the queue's lock guards it

	// Meters.mu guards these.
	open uint64       // the meters whose hold is not settled, in bits; none too until they are taken
	read meter.Length // of the body, for learn.go

	claims []claim // of each meter; nil: none learns

	few amounts // where amounts begins, if there are few meters
}

// amounts are the cost and what is held of each of few meters.
type amounts [1 + fewMeters]int

// asks are what an attempt is to hold of few meters that do not learn, and holds while nobody but the call knows of it. They are
// part of the call, so they are on its caller's stack.
//
// An example: a call asks for 1 request and 300 tokens, and both are there. It holds them, and its answer has no body: keep counts these
// units as settled. If the answer has a body that is read, Holds takes over what is held, and held is false again. If sending
// panics, Done makes a Holds too, and lets it Fail.
type asks struct {
	attempt int // that they are of, counted from 1; 0: none, or others settle them. Holds in their place are of that attempt, too
	amounts amounts
	held    bool // the units were taken, and are not settled
}

// newHolds makes the holds of an attempt that holds nothing yet of each of its meters. It is one allocation for few meters: what
// it holds outlives the call, whose stack is gone when the body is read.
//
// Example: 1 request and 300 tokens are one array of three numbers, the cost first, in the Holds itself. With six meters the array is
// an allocation of its own.
func (m *Meters) newHolds(cost int) *Holds {
	h := &Holds{meters: m}
	if n := 1 + len(m.each); n <= len(h.few) {
		h.amounts = h.few[:n]
	} else {
		h.amounts = make([]int, n)
	}
	if h.amounts[0] = cost; m.learns {
		h.claims = make([]claim, len(m.each))
	}
	return h
}

// Meters are those that it holds.
func (h *Holds) Meters() *Meters { return h.meters }

// Set says how much is to be held of meter i; less than nothing is nothing. If the meter learns that is the most, and what is held
// is learned, unless it was given by the caller. It is called before the attempt asks for its turn.
func (h *Holds) Set(i, n int, given bool) {
	n = max(0, int(units(n)))
	if h.meters.learners[i] != nil {
		if h.claims[i] = (claim{limit: n, given: given}); !given {
			n = h.meters.learned(i, n)
		}
	}
	h.amounts[1+i] = n
}

// Held is how much is, or was, held of meter i.
func (h *Holds) Held(i int) int { return h.amounts[1+i] }

// startLocked notes that the units were taken as of at, for a call that goes. From here on it is in somebody's hand: that of
// the call until it is sent, of what reads its body after that.
func (h *Holds) startLocked(at time.Time) {
	h.taken, h.open = at, 1<<len(h.meters.each)-1
	h.meters.startLocked(h.amounts)
}

// startLocked counts an attempt that holds such amounts.
func (m *Meters) startLocked(amounts []int) {
	m.begun++
	for i, n := range amounts[1:] {
		m.held[i] += int64(n)
		if usual := &m.usual[i]; *usual == 0 {
			*usual = float64(n)
		} else {
			*usual += (float64(n) - *usual) / 8
		}
	}
}

// end settles the holds of some meters, given in bits, that nobody has settled, and returns which these are. Its caller
// corrects the limiters. Between the two the units count neither as held nor as given back, which only an observer
// could see.
func (h *Holds) end(which uint64) (ended uint64) {
	h.meters.mu.Lock()
	defer h.meters.mu.Unlock()
	return h.endLocked(which)
}

// endLocked is end under Meters.mu.
func (h *Holds) endLocked(which uint64) (ended uint64) {
	ended = h.open & which
	for left := ended; left != 0; left &= left - 1 {
		i := bits.TrailingZeros64(left)
		h.meters.ended[i].held += int64(h.Held(i))
	}
	if h.open &^= ended; h.open == 0 && ended != 0 {
		h.meters.done++
	}
	return ended
}

// Settle says that the attempt has cost n units of meter i; less than nothing is nonsense and counts as what was held. Only
// the first word about a meter counts. Those who wait for the units are looked at anew.
func (h *Holds) Settle(i, n int) {
	charged, read, ok := h.endOne(i)
	switch {
	case !ok:
		return
	case n < 0:
		n = h.Held(i)
	case h.meters.learners[i] != nil:
		took := time.Since(h.taken)
		h.meters.count(func() { h.meters.learners[i].Note(h.claims[i].limit, int(units(n)), took, read) })
	}
	h.correct(i, charged, n)
}

// Cut is Settle of an answer that has not said all. Nothing is learned from it, and what was charged while it came stays.
func (h *Holds) Cut(i, n int) {
	if charged, _, ok := h.endOne(i); ok {
		h.correct(i, charged, max(n, charged))
	}
}

// endOne is end of meter i. charged is what was charged for it until then, and read how much of the body was read.
func (h *Holds) endOne(i int) (charged int, read meter.Length, ok bool) {
	h.meters.mu.Lock()
	defer h.meters.mu.Unlock()
	if charged, ok = h.Held(i), h.endLocked(1<<i) != 0; h.claims != nil {
		charged += h.claims[i].more
	}
	return charged, h.read, ok
}

// correct makes n units of what meter i was charged.
func (h *Holds) correct(i, charged, n int) {
	n = int(units(n))
	h.meters.mirrors[i].come(h.Held(i)-n, h.taken)
	h.meters.count(func() { h.meters.ended[i].off += int64(n) - int64(h.Held(i)) })
	h.meters.each[i].Limits.Settle(h.taken, charged, n)
}

// Fail settles what is open of an attempt that got no answer, or one that does not count, such as a 429: as nothing, or as
// what was held where the upstream charges for failures.
func (h *Holds) Fail() {
	for i, one := range h.meters.each {
		if charged, _, ok := h.endOne(i); ok && one.Failures {
			h.correct(i, charged, h.Held(i))
		} else if ok {
			h.correct(i, charged, 0)
		}
	}
}

// Keep settles what is open as what was held.
func (h *Holds) Keep() { h.end(math.MaxUint64) }

// Open reports whether a hold is not settled.
func (h *Holds) Open() bool {
	h.meters.mu.Lock()
	defer h.meters.mu.Unlock()
	return h.open != 0
}

// undo gives everything back of an attempt that has got its units and was not sent. Limiters with windows are given units
// of the window that they were taken from, as for a cost.
func (h *Holds) undo() {
	m, undone := h.meters, h.end(math.MaxUint64)
	if undone == 0 {
		return
	}
	m.count(func() {
		m.unsent++
		for i := range m.ended {
			m.ended[i].undone += int64(undone>>i&1) * int64(h.Held(i))
		}
	})
	for i, one := range m.each {
		if undone>>i&1 == 1 {
			one.Limits.GiveBack(h.taken, time.Now(), h.Held(i))
			one.Limits.Wake()
		}
	}
}

// lacksHolds reports whether it is not known how much the next attempt is to hold of meters: each attempt holds its own.
func (c *Call) lacksHolds() bool { return c.order.asks.attempt != c.order.attempts+1 }

// ask begins what the next attempt asks of its key's meters, which it returns.
func (c *Call) ask() *Meters {
	o, m := &c.order, c.meters
	o.holds = nil
	o.asks.attempt, o.asks.held, o.asks.amounts[0] = o.attempts+1, false, int(o.Cost)
	if m.learns || len(m.each) > fewMeters {
		o.holds = m.newHolds(int(o.Cost))
	}
	return m
}

// Hold says how much the next attempt is to hold of meter i, as Holds.Set does. It is called in the hold of Arrive.
func (c *Call) Hold(i, n int, given bool) {
	if h := c.order.holds; h != nil {
		h.Set(i, n, given)
		return
	}
	c.order.asks.amounts[1+i] = max(0, int(units(n)))
}

// Meters are those that the last attempt holds; nil: its key has none.
func (c *Call) Meters() *Meters { return c.meters }

// Holds are what the last attempt holds of its Meters, for those who are to know of it.
func (c *Call) Holds() *Holds {
	c.order.known(c.meters)
	return c.order.holds
}

// known makes Holds of what o asks of m, or holds.
func (o *order) known(m *Meters) {
	if o.holds != nil || m == nil {
		return
	}
	h := m.newHolds(int(o.Cost))
	copy(h.amounts, o.asks.amounts[:])
	if o.asks.held {
		h.taken, h.open, o.asks.held = o.now, 1<<len(m.each)-1, false
	}
	o.holds = h
}

// KeepHolds leaves it to the caller to settle what the attempt holds. Otherwise Done does, as a failure.
func (c *Call) KeepHolds() { c.order.asks.attempt = 0 }

// SettleAsHeld settles what the attempt holds as what it held.
func (c *Call) SettleAsHeld() {
	if h := c.order.holds; h != nil {
		h.Keep()
		return
	}
	c.order.asks.held = false
	c.meters.keep(c.order.asks.amounts[1:])
}

// keep counts what an attempt has held of few meters, and has cost.
func (m *Meters) keep(held []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.ended {
		m.ended[i].held += int64(held[i])
	}
	m.done++
}

// undoHolds gives back what an attempt holds that was granted and is not sent: the line has given back the rest, and
// its map no longer has the waiter. It is called without the lock, so the line is looked at anew for these units. For a call
// that has left the line without a turn it does nothing, because its holds were never taken.
func (c *Call) undoHolds() {
	if c.order.holds != nil {
		c.order.holds.undo()
	}
}

// Late is a copy of the call for what an answer says after the call has ended, in its body: Report, Attempts and Limiters may be
// called. It holds nothing. If the key has been dropped meanwhile, the report is to nobody's harm or use.
//
// An example: the epoch in which the attempt was sent is copied, too. Its body says after 40 s that the upstream refuses. If
// the gate has been closed and reopened meanwhile, that is a stale answer.
func (c *Call) Late() Call {
	late := Call{table: c.table, entry: c.entry, meters: c.meters, key: c.key, order: c.order}
	late.order.holds, late.order.asks, late.order.wants = nil, asks{}, late.order.wants&^counted
	return late
}
