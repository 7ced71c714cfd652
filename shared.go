package throttle

import "time"

// A sharedLine orders the queues of a room whose heads wait for one limiter
// that all of them pay (Transport.Limiter). Each queue has at most one entry,
// for its head; only the queue at the head of the sharedLine takes, from its own
// limiters and the shared one together. Guarded by the room's lock.
type sharedLine struct {
	ranks    // of entries
	limits   *set
	told     time.Time // the moment the limiter told for the head
	entries  map[*Queue]*waiter
	queues   map[*waiter]*Queue
	waiting  tally  // all calls that wait, in any queue
	asking   *Queue // whose head asks a foreign limiter: it stays the head meanwhile
	dirty    bool   // the head has left: the next one has to be asked
	settling bool
}

func newSharedLine(l *set) *sharedLine {
	return &sharedLine{limits: l, entries: map[*Queue]*waiter{}, queues: map[*waiter]*Queue{}, waiting: tally{}}
}

// enter puts q in, or moves it to the place of its new head.
func (s *sharedLine) enter(q *Queue, head *waiter) {
	e := s.entries[q]
	switch {
	case e == nil:
		e = new(waiter)
		s.entries[q], s.queues[e] = e, q
	case e.seq == head.seq && e.prio == head.prio:
		return
	default:
		s.remove(e)
		s.dirty, s.told = true, time.Time{} // it may have been the head
	}
	e.seq, e.prio, e.cost = head.seq, head.prio, head.cost
	s.push(e)
}

// stepOut takes q out, whose head cannot go or has left. What the limiter told
// it is no measure for the next one: that timer was not late.
func (s *sharedLine) stepOut(q *Queue) {
	if s.head() == q {
		s.told = time.Time{}
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

func (s *sharedLine) head() *Queue {
	if s.asking != nil {
		return s.asking
	}
	return s.queues[s.next()]
}

// follow notes what the limiters said to q, the head.
func (s *sharedLine) follow(q *Queue, d decision) {
	switch d.verdict {
	case grant:
		s.served++
		s.leave(q)
	case deny:
		s.stepOut(q)
	case ask:
		s.asking = q
	case later:
		if d.told {
			s.told = d.until
		}
	}
}

// settle lets the queues go on whose turn has come.
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
	if !s.told.After(now) || len(s.entries) == 0 {
		s.told = time.Time{} // who comes next has waited for something else
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
