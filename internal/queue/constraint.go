package queue

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/upstream"
)

// A constraint is one thing that a call must pass before it goes. All that may hold a call is in one list: for going, for
// waiting, for predicting, for explaining and for undoing. Units of limits are taken last, in one step for all of
// them (dues.take), because only there may another one come first.
//
//	slotsOf    in-flight slots of the key
//	upOf       the gate, advertised quotas, and a limit that is searched for
//	limitsOf   limiters and meters that no other key waits for
//	foreignOf  limiters of other kinds
//	stake      what several keys share, see pool
//
// A constraint is the queue itself in another dress, so the list costs no memory.
type constraint interface {
	// ready says whether n may go at now; nothing is taken. The moment is that as of which units are taken.
	ready(n need, at, now time.Time) (time.Time, decision)
	// start notes that n goes, and undo that it has not gone after all.
	start(n need, at, now time.Time) wish
	undo(n need, at, now time.Time)
	// held is what holds n, were it alone, and until when; "": nothing does, zero: nobody knows.
	held(n need, now time.Time) (by string, until time.Time)
	// after is when n starts behind b, from the moment on when the gate is open: at the earliest, and at the latest;
	// never: nobody knows.
	after(b *backlog, n need, from, now time.Time) (at, latest time.Time)
}

// A need is what a call needs of them.
type need struct {
	holds *Holds // of meters; nil: nothing
	cost  int32
	scope uint8
	wants wish
	epoch uint32
}

// need is that of w, which wants h of the meters.
func (w *waiter) need(h *Holds) need { return need{h, w.Cost, w.Scope, w.wants, w.epoch} }

// The list of what a key's calls must pass alone, from the cheapest to ask to the dearest.
type constraints []constraint

func (q *Queue) constraints() constraints {
	return constraints{(*slotsOf)(q), (*upOf)(q), (*limitsOf)(q), (*foreignOf)(q)}
}

// unpaid are those that hold a call back by other things than limits.
func (all constraints) unpaid() constraints { return all[:len(all)-2] }

// ready asks all of them: the first that says no decides.
func (all constraints) ready(n need, at, now time.Time) (time.Time, decision) {
	var d decision
	for _, c := range all {
		if at, d = c.ready(n, at, now); d.verdict != grant {
			break
		}
	}
	return at, d
}

// until is the decision for a moment: grant, or later.
func until(m, now time.Time, exact bool) decision {
	if m.After(now) {
		return decision{verdict: later, until: m, exact: exact}
	}
	return decision{}
}

type (
	slotsOf   Queue
	upOf      Queue
	limitsOf  Queue
	foreignOf Queue
)

func (q *slotsOf) ready(n need, at, now time.Time) (time.Time, decision) {
	if n.wants&wantsSlot == 0 {
		return at, decision{}
	}
	if full, _ := (*Queue)(q).fullLocked(now); full {
		return at, decision{verdict: block}
	}
	return at, decision{}
}

func (q *slotsOf) start(n need, at, _ time.Time) wish {
	if n.wants&wantsSlot == 0 {
		return 0
	}
	(*Queue)(q).slotsLocked(1)
	if b := (*Queue)(q).boundLocked(); b != nil {
		b.Use(int(q.slots))
		b.Begin(at)
	}
	return 0
}

func (q *slotsOf) undo(n need, at, _ time.Time) {
	if n.wants&wantsSlot != 0 {
		(*Queue)(q).slotsLocked(-1)
		(*Queue)(q).timedLocked(at, at, false)
	}
}

func (q *slotsOf) held(n need, now time.Time) (string, time.Time) {
	if full, by := (*Queue)(q).fullLocked(now); full && n.wants&wantsSlot != 0 {
		return by, time.Time{}
	}
	return "", now
}

// after: slots are not predicted, see turnover.
func (q *slotsOf) after(_ *backlog, _ need, from, _ time.Time) (at, latest time.Time) {
	return from, from
}

func (q *upOf) ready(n need, at, now time.Time) (time.Time, decision) {
	m, exact, ok := q.up.Ready(n.scope, int(n.cost), at, now)
	if !ok {
		return at, decision{verdict: block}
	}
	return m, until(m, now, exact)
}

func (q *upOf) start(n need, at, now time.Time) wish {
	if q.up.Start(n.scope, int(n.cost), at, now) {
		return counted
	}
	return 0
}

func (q *upOf) undo(n need, at, now time.Time) {
	q.up.Undo(n.epoch, n.scope, n.wants&counted != 0, int(n.cost), at, now)
}

func (q *upOf) held(n need, now time.Time) (string, time.Time) {
	return q.up.Held(n.scope, int(n.cost), now)
}

func (q *upOf) after(b *backlog, n need, _, now time.Time) (at, latest time.Time) {
	before := upstream.Before{All: b.all + b.more, Scope: b.scope + b.more}
	at = q.up.Predict(n.scope, before, int(n.cost), now)
	if !q.up.Foreseeable(n.scope, before.All+1, now) {
		return at, never
	}
	return at, at
}

func (q *limitsOf) ready(n need, at, now time.Time) (time.Time, decision) {
	m, err := (*Queue)(q).aloneLocked().ready(n.holds, at, n.cost)
	if err != nil {
		return at, decision{verdict: deny, err: err}
	}
	return at, until(m, now, true)
}

func (q *limitsOf) start(need, time.Time, time.Time) wish { return 0 } // taken with all others, see dues.take
func (q *limitsOf) undo(need, time.Time, time.Time)       {}

// held is the limiter or meter that is ready last.
func (q *limitsOf) held(n need, now time.Time) (by string, until time.Time) {
	by, until = heldByLimitOf(q.own, heldByLimit, int(n.cost), now)
	if n.holds == nil {
		return by, until
	}
	for i, one := range n.holds.meters.each {
		if what, m := heldByLimitOf(one.Limits, n.holds.meters.reasons[i], n.holds.Held(i), now); m.After(until) {
			by, until = what, m
		}
	}
	return by, until
}

func (q *limitsOf) after(b *backlog, n need, from, _ time.Time) (at, latest time.Time) {
	at = q.own.After(from, b.all+b.more, int(n.cost))
	if q.meters != nil {
		at = limit.Latest(at, q.meters.afterLocked(from, n.holds, b.held, b.more))
		if n.holds == nil && slices.Contains(q.meters.usual, 0) || q.line != nil && !q.meters.even(n.holds, q.line.Len()) {
			return at, never
		}
	}
	if q.line != nil && !q.line.Even() {
		return at, never
	}
	return at, at
}

func (q *foreignOf) ready(n need, at, now time.Time) (time.Time, decision) {
	if q.asker == nil {
		return at, decision{}
	}
	return at, q.asker.ready(int(n.cost), now)
}

func (q *foreignOf) start(n need, _, now time.Time) wish {
	if q.asker != nil {
		q.asker.use(int(n.cost), now)
	}
	return 0
}

func (q *foreignOf) undo(need, time.Time, time.Time) {} // see Queue.refund

func (q *foreignOf) held(_ need, now time.Time) (string, time.Time) {
	return q.asker.held(heldByLimit, now)
}

func (q *foreignOf) after(b *backlog, _ need, from, _ time.Time) (at, latest time.Time) {
	return q.asker.after(b.all+b.more, from)
}

// A stake's ready is in stake.go: it is what a pool is about.

func (s *stake) held(n need, now time.Time) (by string, until time.Time) {
	switch {
	case s.pace != nil && s.pace.next.After(now):
		return upstream.HeldByReopening, s.pace.next
	case s.pool != s.common.all: // by limitsOf
		return "", now
	}
	if _, d := s.free(n, now, now); d.verdict == block {
		return heldBySlot, time.Time{}
	}
	if s.asker != nil {
		return s.asker.held(heldByShared, now)
	}
	return heldByLimitOf(s.limits, heldByShared, s.amount(n), now)
}

// after counts those of other keys, too.
func (s *stake) after(b *backlog, n need, from, _ time.Time) (at, latest time.Time) {
	each := s.amount(n) // what comes before it is taken to be like it
	least, most := s.Units(), s.Units()
	if !b.last {
		least, most = s.Ahead(b.key, &b.of, b.more*int64(each)/int64(max(1, n.cost)), b.old)
	}
	at, latest = s.limits.After(from, least, each), s.limits.After(from, most, each)
	if s.pace != nil {
		at, latest = s.pace.after(least, from), s.pace.after(most, from)
	}
	if s.Dead() > 0 {
		latest = never
	}
	m, until := s.asker.after(least, from)
	return limit.Latest(at, m), limit.Latest(latest, until)
}

func (s *stake) start(n need, at, now time.Time) wish {
	if s.asker != nil {
		s.asker.use(s.amount(n), now)
	}
	if s.pace != nil {
		s.pace.start(at, now)
	}
	return 0
}

func (p *pool) undo(need, time.Time, time.Time) { p.common.stirPool(p) }

// dues are what a call pays: by its cost, and by what it holds of meters, each a part of its own if the key has some.
type dues struct{ *limit.Set }

// dues are all of it, and aloneLocked those that no other key waits for.
func (q *Queue) dues() dues {
	if q.meters == nil {
		return dues{q.limits()}
	}
	return dues{q.meters.all}
}

func (q *Queue) aloneLocked() dues {
	switch {
	case q.line != nil:
		return q.line.alone
	case q.meters == nil:
		return dues{q.own}
	}
	return dues{q.meters.own}
}

// take takes what a call pays, h and its cost, as limit.Set.TakeBy does. An example: requests 1/s, paid by cost, and a meter
// of 100 tokens a second. A call of 1 unit holds 300 tokens. h.amounts is 1, 300, and the Set takes 1 from the first part and
// 300 from the second. Without the meter h is nil, and the Set of the requests is asked.
func (d dues) take(h *Holds, at, now time.Time, cost int32) (time.Time, error) {
	if h == nil {
		return d.TakeBy(at, now, int(cost))
	}
	return d.TakeBy(at, now, h.amounts...)
}

// ready is when all of it is there; the error: it never is. An example: a hold of 500,000 before a meter of 100/s is an
// error, because those behind it would wait for more than an hour.
func (d dues) ready(h *Holds, at time.Time, cost int32) (time.Time, error) {
	if h == nil {
		return d.Ready(at, int(cost))
	}
	return d.Ready(at, h.amounts...)
}

// heldLocked returns what holds a call that needs n back at now, and until when; zero: nobody knows. Of gate and limits it
// is the one that holds the call for longest; a slot comes last, and what nobody can foresee first.
//
// An example: closed for 2 s after a 429, and a Bucket that has a unit in 5 s. The call is held by the limit, until then.
// If the gate waits for a probe's answer, it is held by the gate.
func (q *Queue) heldLocked(n need, now time.Time) (by string, until time.Time) {
	by, until = heldByOrder, now
	slot, gated := "", false
	for _, c := range append(q.constraints(), q.sharedLocked()...) {
		what, m := c.held(n, now)
		_, up := c.(*upOf)
		gated = gated || strings.HasPrefix(what, upstream.HeldByGate)
		switch {
		case what == "":
		case heldBySlots(what):
			slot = cmp.Or(slot, what)
		case m.IsZero() && up: // the gate, whose end nobody knows
			return what, m
		case m.After(until):
			by, until = what, m
		}
	}
	switch {
	case gated: // it has no use for a slot yet
	case slot != "":
		return slot, time.Time{}
	case by == heldByOrder:
		return by, time.Time{}
	}
	return by, until
}
