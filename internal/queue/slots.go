package queue

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// This file bounds the calls that are sent and not finished: those of a key (Options.MaxInFlight), and those of all keys
// together (Config.MaxInFlight), which are a pool. A call takes its slots with its units in one step, or none of them, and a
// call that waits holds none.
//
// An example: 200 hosts with a call in 2 s each, 5 slots. Five calls are out; 40 hosts are ready and stand in the pool. An
// answer comes: the first host's call goes, takes its host's unit at that moment, and that host's next one goes 2 s later.
// If units were taken first, and the slot waited for after, as by a semaphore in Base, two calls of a host would go as close
// together as slots become free.
//
// # States of a slot, all under the lock
//
//	none       neither bound: calls take none. The second event of throttled answers ends that for good (State.Slotted); attempts under way
//	           then are counted as loose, and calls in line take a slot with their turn
//	free       inFlight < most
//	taken      startLocked, in the critical section that takes the units
//	given back by releaseLocked: at the end of the attempt or of its body, or by undo

// marks are what is known of a queue, in bits: they share four bytes, because there are as many queues as keys. They
// are set under the lock, and may be read without it.
type marks struct{ bits atomic.Uint32 }

const (
	crowded   uint32 = 1 << iota // somebody waits and all is well, so quick is the way into the line; only a hint
	failed                       // the last attempt has failed
	succeeded                    // one has not
	isDead                       // see pool
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

// dead reports whether the key is: its last two attempts have failed, or its last one and it has never succeeded.
func (q *Queue) dead() bool { return q.marks.has(isDead) }

// noteOutcomeLocked keeps whether the last attempts have failed. What its caller has cancelled says nothing.
func (q *Queue) noteOutcomeLocked(o Outcome) {
	if !q.changesLocked(o) {
		return
	}
	was, fails := q.dead(), fails(o)
	dead := fails && (q.marks.has(failed) || !q.marks.has(succeeded))
	q.marks.set(failed, fails)
	if !fails {
		q.marks.set(succeeded, true)
	}
	if q.marks.set(isDead, dead); dead == was {
		return
	}
	if all := q.common.all; all != nil {
		if dead {
			all.dead += int(q.slots)
		} else {
			all.dead -= int(q.slots)
		}
	}
	if q.line != nil {
		q.common.stirLine(q.line)
	}
	q.common.stir(q)
}

// changesLocked reports whether that outcome changes what is kept of the last attempts.
func (q *Queue) changesLocked(o Outcome) bool {
	return o != Cancelled && (fails(o) && !q.dead() || !fails(o) && (q.marks.has(failed) || !q.marks.has(succeeded)))
}

// fails reports whether an attempt with that outcome has failed.
func fails(o Outcome) bool { return o == Failure || o == Overloaded }

// slotted reports whether calls of a Transport take slots.
func (c *Config) slotted() bool {
	return c.Options.MaxInFlight > 0 || c.MaxInFlight > 0 || c.Options.InFlight != nil
}

// mostLocked is how many slots of the key may be taken, the smallest bound, and what calls are held by while they are; 0: there is
// no bound.
func (q *Queue) mostLocked(now time.Time) (most int, by string) {
	most, by = q.common.Options.MaxInFlight, heldBySlot
	if b := q.boundLocked(); b != nil && (most == 0 || b.Now() < most) {
		most, by = b.Now(), heldByLoad
	}
	if b := q.up.MostInFlight(now); b > 0 && (most == 0 || b < most) {
		most, by = b, heldByFlight
	}
	return most, by
}

// fullLocked reports whether all slots of the key are taken; by: what bounds them.
func (q *Queue) fullLocked(now time.Time) (full bool, by string) {
	most, by := q.mostLocked(now)
	return most > 0 && q.takenLocked() >= most, by
}

// takenLocked is how many slots of the key are taken. Attempts that began before calls took any count, too.
func (q *Queue) takenLocked() int { return int(q.slots) + q.up.Loose() }

// slotLocked lets w want a slot if the calls of its key have come to take them.
func (q *Queue) slotLocked(w *waiter) {
	if q.up.Slotted() {
		w.wants |= wantsSlot
	}
}

// flyingLocked is how many attempts are in flight with one that starts now, and is one of so many in line.
func (q *Queue) flyingLocked(lined int) int {
	if q.up.Slotted() {
		return q.takenLocked() + 1
	}
	return max(q.underLocked()+lined, int(q.slots)+1)
}

// slotsLocked counts slots that calls take, or give back.
func (q *Queue) slotsLocked(by int32) {
	q.slots += by
	if all := q.common.all; all != nil {
		if all.inFlight += int(by); q.dead() {
			all.dead += int(by)
		}
	}
}

// releaseLocked gives a slot back. Its caller lets go who may go by it.
func (q *Queue) releaseLocked(now time.Time) {
	q.slotsLocked(-1)
	q.followLocked(now)
	if all := q.common.all; all != nil && all.most > 0 {
		q.common.stirPool(all)
	}
}

// lacksSlotLocked reports whether a call lacks a slot, of its key or of all.
func (q *Queue) lacksSlotLocked(w wish, now time.Time) bool {
	full, _ := q.fullLocked(now)
	all := q.common.all
	return w&wantsSlot != 0 && (full || all != nil && all.most > 0 && all.inFlight >= all.most)
}

// lackedLocked says which slots the head lacks, if nothing else holds it: how many are held; "" otherwise.
func (q *Queue) lackedLocked(now time.Time) string {
	w := q.headLocked(now)
	if by, _ := q.heldLocked(w.need(w.holds()), now); !heldBySlots(by) || !q.lacksSlotLocked(w.wants, now) {
		return ""
	}
	if m, err := q.dues().ready(w.holds(), now, w.Cost); err != nil || m.After(now) {
		return ""
	}
	most, _ := q.mostLocked(now)
	held, open := q.takenLocked(), ""
	if most == 0 || held < most {
		held, most = q.common.all.inFlight, q.common.MaxInFlight
	}
	if q.key != "" { // a Transport's
		open = " (bodies not closed?)"
	}
	return fmt.Sprintf("%d of %d calls in flight%s", held, most, open)
}

// A turnover is what is known of the slots that calls will find.
type turnover struct {
	calls, free int64         // that wait for slots or are to come, and slots that are free
	trip        time.Duration // how long a slot is held, as far as is known
	closed      time.Duration // how long none is taken
}

// turnoverLocked is what so many more calls will find, behind those that wait. They are taken to want slots, as those of a
// Transport do, and of Queue.Do. An example: MaxInFlight is 20, 5 are held, 3 calls wait and 10 more are asked about: 13 calls
// for 15 free slots.
func (q *Queue) turnoverLocked(more int64, now time.Time) turnover {
	all := q.common.all
	most, _ := q.mostLocked(now)
	t := turnover{calls: more, free: math.MaxInt64, trip: q.up.RoundTrip().Smoothed, closed: q.up.Closing(now).Left}
	if most > 0 {
		t.free = max(0, int64(most-q.takenLocked()))
	}
	if all != nil && all.most > 0 {
		t.free = min(t.free, int64(all.most-all.inFlight))
	}
	switch {
	case t.free == math.MaxInt64:
	case all != nil && all.most > 0:
		t.calls += int64(all.Calls())
	case q.line != nil:
		t.calls += int64(q.line.Len())
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
