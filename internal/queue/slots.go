package queue

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/go-throttle/throttle/internal/upstream"
)

// This file bounds the calls that are sent and not finished: those of a key (Options.MaxInFlight), and those of all
// keys together (Config.MaxInFlight). A call takes its slots with its units in one step, or none of them, and a call
// that waits holds none.
//
// # Slots of all keys
//
// They are waited for in the line of all keys, sharedLine, which the head of a key's line enters once its own gate,
// slot and limiter would let it go. So a key that waits for its limiter takes up no slot and no turn, and a slot is
// given to the flow that is next, whatever its key. An example: 200 hosts with a call in 2 s each, 5 slots. Five calls
// are out; 40 hosts are ready and stand in the line. An answer comes: the first host's call goes, takes its host's
// unit at that moment, and that host's next one goes 2 s later. If units were taken first, and the slot waited for
// after, as by a semaphore in Base, two calls of a host would go as close together as slots become free.
//
// # Hosts that are down
//
// A key whose last attempt has failed stands behind all others (failing): in a second scope of sharedLine, from which
// the head is taken only while the first is empty. So does a new key from its first attempt on, until one is answered:
// that one may be down, and a second attempt tells no more than the first. So the slots that such a key holds for the
// length of its timeouts are those that nobody else could use when its attempt began, but for the first. And while
// other keys have calls in line, those that stand behind share one slot. Otherwise, in the moment when all who are well
// wait for their limiters, the failing ones would take all slots for a whole timeout.
//
// An example: 5 slots, and 20 of 200 hosts are down, for 5 s a call. Until all hosts are known the dead ones hold 20 · 5 s
// of slots, and the first calls of the others 180 · 50 ms: 21.8 s with 5 slots. The last host that lives is met then, and
// its other four calls take 8 s more. So no order of first calls as they come is done before 29.8 s; this one takes up
// to 30.8 s (TestCrawl).
//
// # States of a slot, all under the lock
//
//	free       inFlight < most
//	taken      startLocked, in the critical section that takes the units
//	given back by releaseLocked: at the end of the attempt or of its body, or by undo
//
// # Races
//
//	two heads, one slot              one comes first under the lock; the other stays the head, without a timer
//	a slot is freed, nobody waits    nothing
//	a slot is freed while a head     the line is settled when that head has its answer; it stays the head, so nobody
//	asks a foreign limiter           else has taken the slot that it saw
//	an attempt fails, its key waits  Report moves the key's entry before the attempt's slot is freed
//	a key fails while it is the      it steps back: enter moves the entry and sets dirty, and settle looks at the
//	head                             next one
//	a first attempt is cancelled     its key is as new again when the slot is freed, and is looked at then

// The scopes of sharedLine: which keys come first.
const (
	doingWell = iota
	failing
)

// marks are what is known of a queue, in bits: they share four bytes, because there are as many queues as keys. They
// are set under the lock, and may be read without it.
type marks struct{ bits atomic.Uint32 }

const (
	crowded      uint32 = 1 << iota // somebody waits and all is well, so quick is the way into the line; only a hint
	failingMark                     // the last attempt has failed
	answeredMark                    // an attempt has ended that its caller had not cancelled
)

func (m *marks) has(mark uint32) bool { return m.bits.Load()&mark != 0 }

// set sets or clears a mark.
func (m *marks) set(mark uint32, on bool) {
	if on {
		m.bits.Or(mark)
	} else {
		m.bits.And(^mark)
	}
}

// behindLocked reports whether q comes after other keys: its last attempt has failed, or its first is out.
func (q *Queue) behindLocked() bool {
	return q.marks.has(failingMark) || q.slots > 0 && !q.marks.has(answeredMark)
}

// full reports whether there is no slot for q. While others have calls in line, those that stand behind share one.
func (s *sharedLine) full(q *Queue) bool {
	return s.most > 0 && (s.inFlight >= s.most || s.well > 0 && s.failed > 0 && q.behindLocked())
}

// weigh adds q, which waits or holds slots, to the sums of all keys, or takes it out of them if sign is -1. Whoever
// changes what they depend on takes q out before and adds it after.
func (s *sharedLine) weigh(q *Queue, sign int) {
	s.inFlight += sign * int(q.slots)
	switch {
	case q.behindLocked():
		s.failed += sign * int(q.slots)
	case q.line != nil:
		s.well += sign
	}
}

// rankOf is the scope in which a key stands.
func (s *sharedLine) rankOf(q *Queue) uint8 {
	if s.most > 0 && q.behindLocked() {
		return failing
	}
	return doingWell
}

// slotted reports whether calls of a Transport take slots.
func (c *Config) slotted() bool { return c.Options.MaxInFlight > 0 || c.MaxInFlight > 0 }

// crowdedLocked reports whether w lacks a slot, of its key or of all.
func (q *Queue) crowdedLocked(w *waiter) bool {
	if !w.slot() {
		return false
	}
	most, s := q.common.Options.MaxInFlight, q.common.shared
	return most > 0 && int(q.slots) >= most || s != nil && s.full(q)
}

// An example: MaxInFlight is 20, 5 are held, 3 calls wait and 10 more are asked about: 13 calls for 15 free slots.

// A turnover is what is known of the slots that calls will find.
type turnover struct {
	calls, free int64         // that wait for slots or are to come, and slots that are free
	trip        time.Duration // how long a slot is held, as far as is known
	closed      time.Duration // how long none is taken
}

// turnoverLocked is what so many more calls will find, behind those that wait. They are taken to want slots, as those of a
// Transport do, and of Queue.Do.
func (q *Queue) turnoverLocked(more int64, now time.Time) turnover {
	s, most := q.common.shared, q.common.Options.MaxInFlight
	t := turnover{calls: more, free: math.MaxInt64, trip: q.up.RoundTrip().Smoothed, closed: q.up.Closing(now).Left}
	if most > 0 {
		t.free = int64(most) - int64(q.slots)
	}
	if s != nil && s.most > 0 {
		t.free = min(t.free, int64(s.most-s.inFlight))
	}
	if q.line != nil && t.free < math.MaxInt64 {
		q.line.each(func(w *waiter) {
			if w.slot() {
				t.calls++
			}
		})
	}
	return t
}

// suffices reports whether each call finds a slot when its turn comes, if the last one's comes after that long. While all
// slots are taken nobody knows when one comes back. While some are free, and more calls come than they are, they suffice
// if the calls that start in a round trip find room in them.
//
// Examples with 4 slots and round trips of 2 s: with 3 taken, one more call finds a slot, and of two the second may wait
// for any of the others. At 1/s, with 2 taken, 100 more find theirs.
func (t turnover) suffices(wait time.Duration) bool {
	if wait -= t.closed; t.calls <= t.free || t.free <= 0 || wait <= 0 {
		return t.calls <= t.free
	}
	return float64(t.calls)*float64(t.trip) <= float64(t.free)*float64(wait)
}

// slotsLocked counts a slot that a call takes, or gives back if by is -1.
func (q *Queue) slotsLocked(by int32) {
	s := q.common.shared
	if s == nil {
		q.slots += by
		return
	}
	s.weigh(q, -1)
	q.slots += by
	s.weigh(q, 1)
}

// releaseLocked gives a slot back. Its caller lets go who may go by it.
func (q *Queue) releaseLocked() {
	q.slotsLocked(-1)
	if s := q.common.shared; s != nil {
		s.dirty = s.dirty || s.most > 0
	}
}

// noteFailingLocked keeps whether the last attempt has failed. What its caller has cancelled says nothing.
func (q *Queue) noteFailingLocked(o Outcome) {
	s := q.common.shared
	if s == nil || !q.changesLocked(o) {
		return
	}
	s.weigh(q, -1)
	q.marks.set(failingMark, fails(o))
	q.marks.set(answeredMark, true)
	s.weigh(q, 1)
	s.dirty = s.dirty || s.most > 0
}

// changesLocked reports whether that outcome changes what is kept of the last attempt.
func (q *Queue) changesLocked(o Outcome) bool {
	return o != Cancelled && (fails(o) != q.marks.has(failingMark) || !q.marks.has(answeredMark))
}

// fails reports whether an attempt with that outcome has failed.
func fails(o Outcome) bool { return o == Failure || o == Overloaded }

// lineLocked makes l the line of q; nil: it has none any more.
func (q *Queue) lineLocked(l *line) {
	s := q.common.shared
	if s == nil {
		q.line = l
		return
	}
	s.weigh(q, -1)
	q.line = l
	s.weigh(q, 1)
	s.dirty = s.dirty || s.well == 0 // one that stands behind may have the slot that it has left to others
}

// lackedLocked says which slots the head of the line could go with; "": it could not go with them either, or it does not
// lack any.
//
// An example: "2 of 2 calls in flight (bodies not closed?)".
func (q *Queue) lackedLocked(now time.Time) string {
	if q.line.asking != nil {
		return ""
	}
	if c := q.up.Closing(now); c.Cause != upstream.Open && !c.Over {
		return ""
	}
	w := q.headLocked(now)
	if w == nil || !q.crowdedLocked(w) {
		return ""
	}
	// the same call, but one that wants no slot: if that one could go, the slot is what is lacking
	at, d := q.readyLocked(&waiter{cost: w.cost, scope: w.scope}, now, now)
	if d.verdict != grant || q.foreign != nil && q.foreign.next.After(now) {
		return ""
	}
	if m, err := q.payableLocked(q.line.holdsOf(w), at, w.cost); err != nil || m.After(now) {
		return ""
	}
	held, most, open := int(q.slots), q.common.Options.MaxInFlight, ""
	if most == 0 || held < most {
		held, most = q.common.shared.inFlight, q.common.MaxInFlight
	}
	if q.key != "" { // a Transport's
		open = " (bodies not closed?)"
	}
	return fmt.Sprintf("%d of %d calls in flight%s", held, most, open)
}
