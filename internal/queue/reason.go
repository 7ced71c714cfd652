package queue

import (
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// This file says what holds a call that waits, in the words that observers see. All of it is called with the
// lock held, and nothing here changes who goes when.
//
//	gate:...           the gate, by its cause: gate:retry-after, gate:throttled, gate:failing, gate:paused;
//	                   gate:reopening while it lets the first calls in, gate:first-contact before the first answer
//	slot               all in-flight slots are taken
//	in-flight:load     as many calls are in flight as the load that they follow lets
//	limit              the key's own limiter, or a bare Queue's
//	limit:shared       the limiter that all keys pay
//	limit:advertised   a quota that responses advertise
//	limit:found        a rate that was found because the upstream throttles
//	in-flight:found    a number of attempts in flight that was found because the upstream throttles
//	store              a limit that many processes share, while it is not known when it has units: its store has not
//	                   answered yet
//	meter:NAME         the meter of that name
//	order              nothing but those before it
//
// Of gate and limits it is the one that holds the call for longest. Those before it in line do not count, because
// they wait for the same: of 100 calls before a Bucket of 10/s, the last one waits for "limit" too. Only a
// call that could go if it were alone waits for "order": behind a call of 50 units, say.

// The reasons that are not upstream's.
const (
	heldByLimit  = "limit"
	heldByShared = "limit:shared"
	heldBySlot   = "slot"
	heldByLoad   = "in-flight:load"
	heldByFlight = "in-flight:found"
	heldByOrder  = "order"
	heldByStore  = "store"
	heldByMeter  = "meter:" // and its name
)

// heldBySlots reports whether a reason is that no slot is free.
func heldBySlots(by string) bool { return by == heldBySlot || by == heldByLoad || by == heldByFlight }

// A Held is why a call was ended on this side, with what held it up to then.
type Held struct {
	error
	by   string
	wait time.Duration
}

// By is what held the call.
func (h *Held) By() string { return h.by }

// Predicted is how long it would have waited; 0: unknown.
func (h *Held) Predicted() time.Duration { return h.wait }

// Unwrap returns the reason.
func (h *Held) Unwrap() error { return h.error }

// heldByLimitOf is when limits are ready for n units, and what holds a call until then: what, or a store that has been
// asked for them; zero if they never are.
func heldByLimitOf(limits *limit.Set, what string, n int, now time.Time) (by string, until time.Time) {
	m, err := limits.Ready(now, n)
	switch {
	case err != nil:
		return what, time.Time{}
	case m.After(now) && !m.After(limits.Awaited(now, n)):
		return heldByStore, m
	}
	return what, m
}

// heldErrorLocked is errorOf of a call like w that is refused while it waits, or instead of it: it would wait for that
// long, and is asked to come again after another time. The word is that of
// the moment when it is ended. An example: a call waits for a Bucket, a 429 closes the gate for a minute, and its
// caller gives up: "gate:retry-after".
func (q *Queue) heldErrorLocked(n need, attempts int, wait, again time.Duration, reason error, now time.Time) error {
	by, _ := q.heldLocked(n, now)
	return q.errorOf(attempts, again, &Held{reason, by, wait})
}

// noteWaitLocked keeps for o, which begins to wait, what its observers want to know. It is called before the call joins the
// line, so the call itself does not count as one that goes before it. Without observers it is one comparison.
func (q *Queue) noteWaitLocked(o *order, now time.Time) {
	tell := q.common.Tell
	if tell == 0 {
		return
	}
	o.begins = new(begins)
	if tell&TellReason != 0 {
		o.begins.by, _ = q.heldLocked(o.need(o.holds), now)
	}
	if tell&TellWait != 0 {
		o.begins.wait = q.foretoldLocked(o, now)
	}
}

// headHeldLocked is heldLocked of the head of the line; "" if nobody waits. An example with a Bucket of 10/s and 100 calls in
// line: "limit", and a moment at most 0.1 s away. When the last of them goes is for Predict to say.
func (q *Queue) headHeldLocked(now time.Time) (by string, until time.Time) {
	if q.line == nil || q.line.Len() == 0 {
		return "", time.Time{}
	}
	w := q.headLocked(now)
	by, until = q.heldLocked(w.need(w.holds()), now)
	in := q.line.StationOf(&w.Call).In()
	for i := range q.line.stakes { // it may be another key's turn
		s := &q.line.stakes[i]
		if next, _ := s.next(now, now); next != nil && next != w && (in != nil || s.Live() > 0) {
			until = time.Time{}
		}
	}
	return by, until
}
