package queue

import (
	"time"

	"github.com/go-throttle/throttle/internal/account"
)

// A SharedLine orders the queues of a room whose heads wait for one limiter
// that all of them pay (Transport.Limiter). Each queue has at most one entry,
// for its head; only the queue at the head of the SharedLine takes, from its own
// limiters and the shared one together. Guarded by Room.Mu.
type SharedLine struct {
	ranks    // of entries
	limits   *account.Set
	Told     time.Time          // the moment the limiter told for the head
	Entries  map[*Queue]*Waiter // what stands in ranks for a queue's head
	Queues   map[*Waiter]*Queue // the reverse
	Waiting  tally              // all calls that wait, in any queue
	Asking   *Queue             // whose head asks a foreign limiter: it stays the head meanwhile
	Dirty    bool               // the head has left: the next one has to be asked
	Settling bool               // settle is at work
}

// NewSharedLine returns the line before l.
func NewSharedLine(l *account.Set) *SharedLine {
	return &SharedLine{limits: l, Entries: map[*Queue]*Waiter{}, Queues: map[*Waiter]*Queue{}, Waiting: tally{}}
}

// enter puts q in, or moves it to the place of its new head.
func (s *SharedLine) enter(q *Queue, head *Waiter) {
	e := s.Entries[q]
	switch {
	case e == nil:
		e = new(Waiter)
		s.Entries[q], s.Queues[e] = e, q
	case e.Seq == head.Seq && e.Prio == head.Prio:
		return
	default:
		s.remove(e)
		s.Dirty, s.Told = true, time.Time{} // it may have been the head
	}
	e.Seq, e.Prio, e.Cost = head.Seq, head.Prio, head.Cost
	s.push(e)
}

// stepOut takes q out, whose head cannot go or has left. What the limiter told
// it is no measure for the next one: that timer was not late.
func (s *SharedLine) stepOut(q *Queue) {
	if s.Head() == q {
		s.Told = time.Time{}
	}
	s.leave(q)
}

// leave takes q out, if it is in.
func (s *SharedLine) leave(q *Queue) {
	e := s.Entries[q]
	if e == nil {
		return
	}
	s.remove(e)
	delete(s.Entries, q)
	delete(s.Queues, e)
	s.Dirty = true
}

// Head is the queue whose turn it is; nil: nobody's.
func (s *SharedLine) Head() *Queue {
	if s.Asking != nil {
		return s.Asking
	}
	return s.Queues[s.next()]
}

// follow notes what the limiters said to q, the head.
func (s *SharedLine) follow(q *Queue, d Decision) {
	switch d.Verdict {
	case Grant:
		s.Served++
		s.leave(q)
	case Deny:
		s.stepOut(q)
	case Ask:
		s.Asking = q
	case Later:
		if d.told {
			s.Told = d.until
		}
	}
}

// settle lets the queues go on whose turn has come.
func (s *SharedLine) settle(now time.Time) {
	if s.Settling {
		return
	}
	s.Settling = true
	for s.Dirty {
		s.Dirty = false
		if q := s.Head(); q != nil && q.Line != nil {
			q.Line.advance(now)
		}
	}
	s.Settling = false
	if !s.Told.After(now) || len(s.Entries) == 0 {
		s.Told = time.Time{} // who comes next has waited for something else
	}
}

// A tally counts units by priority.
type tally map[int32]int64

func (t tally) add(prio int32, units int64) {
	if t[prio] += units; t[prio] == 0 {
		delete(t, prio)
	}
}

// ahead counts the units of that priority and above.
func (t tally) ahead(prio int32) (units int64) {
	for p, n := range t {
		if p >= prio {
			units += n
		}
	}
	return units
}
