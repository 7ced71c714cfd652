package queue

import (
	"cmp"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// A sharedLine is the line before Transport.Limiter, which the calls of all keys pay. Those
// who wait in it are queues: each has at most one entry, for the head of its own line, and
// enters when that head's own gate, slot and key limiter would let it go. Only the queue at
// the head of the sharedLine takes units, from its own limiters and the shared ones together,
// so that a call takes from all or from none.
//
// An example: keys a and b share 10/s. b's gate is closed: b steps out, and a's calls get
// every turn. The gate opens: b enters again, at the place of its head's arrival.
//
// Flows are those of all keys, and each key's line looks at the same ones: which of its flows
// is next depends on what that flow has got under other keys. A key is the flow of its calls
// that name none. An example: key a has 10,000 calls in line, and b one at a time. They take
// turns, where by arrival b would wait for all of a.
//
// The lock that all queues share guards it.
type sharedLine struct {
	ranks                       // of entries
	limits   *limit.Set         // the shared ones
	due      time.Time          // the moment that they named for the head; zero: none
	entries  map[*Queue]*waiter // what stands in ranks for a queue
	queues   map[*waiter]*Queue // the reverse
	most     int                // slots of all keys; 0: there is no bound
	inFlight int                // slots that are taken
	failed   int                // of these, those that keys hold which stand behind
	well     int                // keys that do not stand behind and have calls in line
	waiting  tally              // the units of all calls that wait, in any queue
	asking   *Queue             // whose head asks a foreign limiter: it stays the head meanwhile
	dirty    bool               // the head may be another one now, and has not been looked at
	settling bool               // settle is at work: a queue that it advances must not begin it again
	uses     *uses              // what the calls of all keys had taken when somebody looked
	used     float64            // units a second, as of the last look
	asked    comebacks          // of refused calls of all keys
}

// newSharedLine returns an empty line before l, which may be nil, and so many slots; 0: there is no bound.
func newSharedLine(l *limit.Set, slots int) *sharedLine {
	if l == nil {
		l = new(limit.Set)
	}
	s := &sharedLine{limits: l, most: slots, entries: map[*Queue]*waiter{}, queues: map[*waiter]*Queue{}, waiting: tally{}, uses: newUses(0)}
	s.flows = flows{}
	return s
}

// enter puts q in at the place of its head, by priority and arrival, or moves it there.
//
// An example: the head of a is its call 7, and a call of a higher priority, 9, becomes its
// head. The entry for 7 goes, and one for 9 is put where 9 belongs among the heads of all
// keys.
func (s *sharedLine) enter(q *Queue, head *waiter) {
	e, seq := s.entries[q], q.line.eldest().seq
	switch {
	case e == nil:
		e = &waiter{wants: apart}
		s.entries[q], s.queues[e] = e, q
		s.dirty = s.dirty || s.oldestTurn() // it may be the oldest, in whose place a third one goes, see nextIn
	case e.seq == seq && e.flow == head.flow && e.scope == s.rankOf(q):
		return
	default:
		s.remove(e)
		s.dirty, s.due = true, time.Time{} // it may have been the head
	}
	e.seq, e.prio, e.cost, e.flow, e.scope = seq, head.prio, head.cost, head.flow, s.rankOf(q)
	s.push(e)
}

// stepOut takes q out, whose head cannot go or has left. The moment named for that head means
// nothing to the next one.
//
// An example: due is t + 100 ms for a call of 5 units. Its ctx ends, and the next head costs
// 1, which is there at once. If due stayed, that call's units would be dated by the wrong
// moment.
func (s *sharedLine) stepOut(q *Queue) {
	if s.head() == q {
		s.due = time.Time{}
	}
	s.leave(q)
}

// leave takes q out, if it is in.
func (s *sharedLine) leave(q *Queue) {
	e := s.entries[q]
	if e == nil {
		return
	}
	s.remove(e)
	delete(s.entries, q)
	delete(s.queues, e)
	s.dirty = true
}

// head is the queue whose turn it is, or nil. While its head asks a foreign limiter a queue
// stays first, even if a call of a higher priority comes: its units are half taken.
func (s *sharedLine) head() *Queue {
	if s.asking != nil {
		return s.asking
	}
	if len(s.scopes) > 1 { // failing keys have their turns when there are no others
		well := ranks{scopes: s.scopes[:1], served: s.served, flows: s.flows}
		return s.queues[well.next()]
	}
	return s.queues[s.next()]
}

// follow notes what became of the head of q, which was the head here.
func (s *sharedLine) follow(q *Queue, d decision) {
	switch d.verdict {
	case grant:
		s.served++
		s.leave(q)
	case deny:
		s.stepOut(q)
	case ask:
		s.asking = q
	default: // a moment that was named for an earlier head does not count for this one
		if s.due = (time.Time{}); d.exact {
			s.due = d.until
		}
	}
}

// ahead counts the units of all keys that go before a newcomer of a flow: those of higher
// priorities, and in its own those that start before it.
func (s *sharedLine) ahead(o *order, id flowID, more int64) int64 {
	units := s.waiting.ahead(o.prio)
	if c := s.flows[o.prio]; c != nil {
		units += c.ahead(id, cmp.Or(o.weight, 1), more) - s.waiting[o.prio]
	}
	return units
}

// settle advances the queues whose turn has come, until the one at the head has been looked
// at.
//
// Each grant may bring another queue to the head, and advancing that one may bring the next:
// dirty says that the head has changed since it was looked at. A loop does this, not a
// recursion: with 60,000 keys whose heads go one after the other, the stack would be as deep.
// advanceLocked of the queues inside the loop finds settling set and returns.
func (s *sharedLine) settle(now time.Time) {
	if s.settling {
		return
	}
	s.settling = true
	for s.dirty {
		s.dirty = false
		if q := s.head(); q != nil && q.line != nil {
			q.line.advance(now)
		}
	}
	s.settling = false
	if !s.due.After(now) || len(s.entries) == 0 {
		s.due = time.Time{} // who comes next has waited for something else
	}
}

// A tally counts units by priority, for predictions: a newcomer waits for those of its own
// priority and above.
type tally map[int32]int64

// add counts units, or takes them off if they are negative.
func (t tally) add(prio int32, units int64) {
	if t[prio] += units; t[prio] == 0 {
		delete(t, prio)
	}
}

// ahead counts the units of that priority and above.
//
// An example: 3 units of priority 5 and 10 of priority 0 wait. A newcomer of priority 0 has
// 13 before it, one of priority 5 has 3, one of 9 none. There are as many entries as
// priorities in use, whatever the number of keys.
func (t tally) ahead(prio int32) (units int64) {
	for p, n := range t {
		if p >= prio {
			units += n
		}
	}
	return units
}
