package queue

import (
	"fmt"
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
// A key whose last attempt has failed (failing) stands behind all that have not: in a second scope of sharedLine, from
// which the head is taken only while the first is empty. So the slots that it holds for the length of its timeouts are
// those that nobody else could use when its attempt began. And while other keys have calls in line, those that fail
// share one slot. Otherwise, in the moment when all who are well wait for their limiters, the failing ones would take
// all slots for a whole timeout.
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

// The scopes of sharedLine: which keys come first.
const (
	doingWell = iota
	failing
)

// marks are what is known of a queue, in bits: they share four bytes, because there are as many queues as keys. They
// are set under the lock, and may be read without it.
type marks struct{ bits atomic.Uint32 }

const (
	crowded     uint32 = 1 << iota // somebody waits and all is well, so quick is the way into the line; only a hint
	failingMark                    // the last attempt has failed
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

// full reports whether there is no slot for q. While others have calls in line, those that fail share one.
func (s *sharedLine) full(q *Queue) bool {
	return s.most > 0 && (s.inFlight >= s.most || q.marks.has(failingMark) && s.well > 0 && s.failed > 0)
}

// taken counts slots that q takes, or gives back if by is negative.
func (s *sharedLine) taken(q *Queue, by int32) {
	if s.inFlight += int(by); q.marks.has(failingMark) {
		s.failed += int(by)
	}
}

// rankOf is the scope in which a key stands.
func (s *sharedLine) rankOf(q *Queue) uint8 {
	if s.most > 0 && q.marks.has(failingMark) {
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

// releaseLocked gives a slot back. Its caller lets go who may go by it.
func (q *Queue) releaseLocked() {
	q.slots--
	if s := q.common.shared; s != nil {
		s.taken(q, -1)
		s.dirty = s.dirty || s.most > 0
	}
}

// noteFailingLocked keeps whether the last attempt has failed. What its caller has cancelled says nothing.
func (q *Queue) noteFailingLocked(o Outcome) {
	failed, s := o == Failure || o == Overloaded, q.common.shared
	if o == Cancelled || failed == q.marks.has(failingMark) || s == nil {
		return
	}
	s.taken(q, -q.slots)
	q.countWellLocked(-1)
	q.marks.set(failingMark, failed)
	q.countWellLocked(1)
	s.taken(q, q.slots)
	s.dirty = s.dirty || s.most > 0
}

// countWellLocked counts the keys that are not failing and have calls in line, when q becomes one of them or no longer is.
func (q *Queue) countWellLocked(by int) {
	if s := q.common.shared; s != nil && q.line != nil && !q.marks.has(failingMark) {
		s.well += by
		s.dirty = s.dirty || s.well == 0 // a failing key may have the slot that it has left to them
	}
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
	if m, err := q.limits.Ready(at, int(w.cost)); err != nil || m.After(now) {
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
