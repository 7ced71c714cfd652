package queue

import (
	"time"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/line"
)

// A pool is something that the calls of several keys take: Transport.Limiter with the slots of Transport.MaxInFlight, a
// limiter that LimiterFor has returned for several keys, or that of a meter; or the pace of a host that was closed as a
// whole. One rule holds for all of them.
//
// # Who stands in a pool
//
// The calls of a key stand in one pool at a time, and only while nothing else holds them: the one that holds them up. So
// who waits for something of its own, a closed gate for instance, neither takes a turn nor delays nor counts before anybody.
//
//	alone      the key's own things hold its head, and its line has a timer for that
//	standing   all of those would let it go. Its turn, or the units, of one pool are missing; the line has no timer
//	owed       its turn came in one pool, and another one lacks its units: it goes first there
//
// A key begins to stand in lineup.advance, and leaves when its own things hold it again, when another pool holds it, or
// when its line is empty. All of it is under common.mu. Nothing is taken before everything can be taken in one step.
//
// # Turns
//
// Their order is that of line.Pool: priority first, each eighth turn for who has waited longest, then flows by weight.
// Units are saved for the call whose turn it is. While they are saved for a call that waits for another pool, others may
// have what does not make it wait for longer.
//
// An example: keys a and b pay 10/s, and b's gate is closed. a's calls get every turn. The gate opens: b stands in the pool,
// and the next turn is b's.
//
// # Dead keys
//
// A key is dead after two failures in a row, or after one if it has never succeeded, until its next success. While a live
// key stands in the pool all dead ones together get a tenth of its units, and hold a tenth of its slots, or one. What no
// live key wants they may have.
//
// An example: 5 slots, and 20 of 200 hosts are down, for 30 s a call. From each one's first failure on all of them
// together hold one slot while others wait for one.
//
// # Races
//
//	two heads, one unit             one comes first under the lock; the other waits for its turn
//	units come back, nobody waits   nothing
//	a key dies, or lives again      its calls are put where they belong before anybody goes
//	a pool's turn, another's units  the call is owed there. Of two calls for which pools are saved against each other
//	                                the older one need not spare the other, see spares
type pool struct {
	line.Pool[waiter]
	common *common
	limits *limit.Set   // nil: slots alone
	asker  *asker       // of its limiters of other kinds; nil: there are none
	most   int          // slots; 0: there is no bound
	pace   *hostClosing // of a host; nil: it is not one's
	lines  int          // that may stand in it

	inFlight, dead int // slots that are held, and those of them that dead keys hold

	owed  *waiter // whose turn has come at another pool, so it goes first here; nil: nobody's
	saved *waiter // for which units are saved, while it is owed elsewhere

	share float64 // units that dead keys may have, of what live ones have got since one waits

	timer *time.Timer
	due   time.Time // the moment that a limiter named for the next one; zero: none
	head  *waiter   // whose turn it was when the timer was set; nil: nobody's
	stop  func()    // ends the watch on the limits
	dirty bool      // it is in common.dirty
	asked comebacks // of refused calls of all keys; of common.all alone, as is
	taken int64     // units that the calls of all keys had taken when somebody looked
}

// idle reports whether nobody waits for it.
func (p *pool) idle() bool { return p.Live()+p.Dead() == 0 && p.owed == nil && p.saved == nil }

// deadShare is the part of what is shared that dead keys may have while a live one waits.
const deadShare = 10

// newPool makes the pool of limits, which may be nil, and so many slots.
func (r *common) newPool(limits *limit.Set, most int) *pool {
	p := &pool{common: r, limits: limits, most: most}
	if limits == nil {
		p.limits = new(limit.Set)
	}
	if p.limits.Foreign() > 0 {
		p.asker = r.newAsker(p.limits, func(time.Time) { r.stirPool(p) })
	}
	p.Init(p, func(c *line.Call[waiter]) int64 {
		w := c.Of
		stakes := w.queue().line.stakes
		for i := range stakes {
			if s := &stakes[i]; s.pool == p {
				return int64(s.amount(w.need(w.holds())))
			}
		}
		return 0
	})
	return p
}

// settle lets go who may go of those who wait for what is shared.
//
// Each grant may bring another key to its turn, and that one the next. A loop does this, not a recursion: with 60,000
// keys whose heads go one after the other the stack would be as deep.
func (r *common) settle(now time.Time) {
	if r.settling {
		return
	}
	r.settling = true
	for i, j := 0, 0; i < len(r.dirty) || j < len(r.stirred); {
		if i < len(r.dirty) {
			p := r.dirty[i]
			p.dirty = false
			p.advance(now)
			i++
		} else {
			if l := r.stirred[j]; l.q.line == l {
				l.advance(now)
			}
			j++
		}
	}
	r.settling = false
	clear(r.dirty)
	r.dirty, r.stirred = r.dirty[:0], nil
}

// stirPool has p looked at, stirLine a line, and stir all pools that a key takes from.
func (r *common) stirPool(p *pool) {
	if !p.dirty {
		p.dirty = true
		r.dirty = append(r.dirty, p)
	}
}

// joined has p looked at if somebody who has come is the next one there. Behind that one nothing changes.
func (p *pool) joined() {
	if c, _ := p.Next(); p.Dead() > 0 || p.owed != nil || c == nil || c.Of != p.head {
		p.common.stirPool(p)
	}
}

func (r *common) stirLine(l *lineup) { r.stirred = append(r.stirred, l) }

func (r *common) stir(q *Queue) {
	if r.all != nil {
		r.stirPool(r.all)
	}
	if q.line == nil {
		return
	}
	for i := range q.line.stakes {
		r.stirPool(q.line.stakes[i].pool)
	}
}

// wakeUp is what the timer calls, and a limiter that has changed.
func (p *pool) wakeUp() {
	r := p.common
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stirPool(p)
	r.settle(time.Now())
}

// advance lets go whose turn it is, and plans when to look again.
func (p *pool) advance(now time.Time) {
	at := asOf(p.due, now)
	for {
		w, inTurn := p.next(at, now)
		if p.head = w; w == nil {
			p.due = time.Time{}
			if p.timer != nil {
				p.timer.Stop()
			}
			return
		}
		if d := p.try(w, inTurn, at, now); d.verdict != grant {
			plan(&p.timer, &p.due, d, now, now.Sub(at), p.wakeUp)
			return
		}
	}
}

// next is the call whose turn it is; nil: nobody stands here. inTurn: its flow's turn, see line.Pool.
func (p *pool) next(at, now time.Time) (w *waiter, inTurn bool) {
	if p.owed != nil && p.stakeOf(p.owed).lets(p.owed) {
		return p.owed, false
	}
	if d := p.NextDead(); d != nil {
		s, n := p.stakeOf(d.Of), d.Of.need(d.Of.holds())
		if p.Live() == 0 {
			return d.Of, false
		}
		p.share = min(p.share, s.portion(n))
		if _, ready := s.free(n, at, now); ready.verdict == grant && s.lets(d.Of) && s.spares(d.Of, n, now) {
			return d.Of, false
		}
	}
	c, inTurn := p.Next()
	if c == nil {
		return nil, false
	}
	return c.Of, inTurn
}

// stakeOf is that of w's key.
func (p *pool) stakeOf(w *waiter) *stake { return w.queue().line.stakeIn(p) }

// lets reports whether w may go as far as the share of dead keys is concerned.
func (s *stake) lets(w *waiter) bool {
	n := w.need(w.holds())
	return s.Live() == 0 || !w.queue().dead() || s.share >= s.portion(n) && !s.deadFull(n.wants)
}

// portion is what n counts of the share of dead keys.
func (s *stake) portion(n need) float64 { return float64(max(1, s.amount(n))) }

// deadFull reports whether dead keys hold as many slots as they may while a live one waits.
func (p *pool) deadFull(w wish) bool {
	return w&wantsSlot != 0 && p.most > 0 && p.dead >= max(1, p.most/deadShare)
}

// try lets w go, whose turn it is. grant: somebody has gone, or stepped aside, and the next one is to be looked at.
func (p *pool) try(w *waiter, inTurn bool, at, now time.Time) decision {
	q := w.queue()
	l := q.line
	if q.lateLocked(w, now) {
		q.trouble().refused++
		return p.refuse(w, q.common.Errors.Deadline, now)
	}
	n := w.need(w.holds())
	at, d := q.readyLocked(w, at, now)
	if d.verdict != grant { // it waits for something of its own, with the right to go first then
		l.Hold(&w.Call)
		l.stepOut()
		l.unowe(w)
		l.advance(now)
		return decision{}
	}
	s := l.stakeIn(p)
	switch _, d := s.ready(n, at, now); {
	case d.verdict == deny:
		return p.refuse(w, d.err, now)
	case d.verdict != grant:
		return d
	case !s.spares(w, n, now):
		return decision{verdict: block}
	}
	for i := range l.stakes {
		if other := &l.stakes[i]; other.pool != p {
			if _, d := other.ready(n, at, now); d.verdict != grant || !other.lets(w) || !other.spares(w, n, now) {
				l.owe(w, other, d, now)
				return decision{}
			}
		}
	}
	if d = q.goLocked(w, at, now); d.verdict == deny {
		return p.refuse(w, d.err, now)
	} else if d.verdict != grant {
		return d
	}
	for i := range l.stakes {
		l.stakes[i].count(q, l.stakes[i].portion(n))
	}
	if l.StationOf(&w.Call).In() == &p.Pool && !q.dead() {
		l.granted(w, p, inTurn)
	} else {
		l.granted(w, nil, false)
	}
	l.advance(now)
	return d
}

// spares reports whether the pool has enough units for n without delaying the call that is owed here, or for which it saves. Slots
// are not saved: nobody knows when the next one comes back. Of two calls whose turns have come, the one that came first need not
// spare the other: they would wait for each other for ever.
func (s *stake) spares(w *waiter, n need, now time.Time) bool {
	for _, of := range [...]*waiter{s.owed, s.saved} {
		if of == nil || of == w || w.also().owed != nil && w.Seq < of.Seq {
			continue
		}
		m, there := of.need(of.holds()), of.extra.owed.stakeOf(of)
		_, d := there.free(m, now, now) // when it can go there
		if d.verdict != block && there.lets(of) && s.limits.After(now, int64(s.amount(n)), s.pool.stakeOf(of).amount(m)).After(limit.Latest(d.until, now)) {
			return false
		}
	}
	return true
}

// count counts what live and dead keys get.
func (p *pool) count(q *Queue, units float64) {
	if q.dead() {
		p.share = max(0, p.share-units)
	} else {
		p.share += units / (deadShare - 1)
	}
}

// refuse ends w, which does not go because of reason.
func (p *pool) refuse(w *waiter, reason error, now time.Time) decision {
	q := w.queue()
	l := q.line
	l.leave(w, refused, q.deniedLocked(w, reason, now))
	l.advance(now)
	return decision{}
}

// owe has w, whose turn it is, wait at the pool that holds it, and go first there, unless another one does so already. While
// it is first there, what it needs of all others is saved for it.
func (l *lineup) owe(w *waiter, s *stake, d decision, now time.Time) {
	l.unowe(w)
	l.Release(&w.Call)
	l.enter(l.StationOf(&w.Call), s.pool)
	l.q.common.stirPool(s.pool)
	if s.owed != nil {
		return
	}
	s.pool.owed, w.more().owed = w, s.pool
	l.Hold(&w.Call)
	for i := range l.stakes {
		if other := l.stakes[i].pool; d.verdict == later && other != s.pool && other.saved == nil {
			other.saved = w
		}
	}
}

// unowe ends that.
func (l *lineup) unowe(w *waiter) {
	if w.extra == nil || w.extra.owed == nil {
		return
	}
	w.extra.owed.owed, w.extra.owed = nil, nil
	for i := range l.stakes {
		if other := l.stakes[i].pool; other.saved == w {
			other.saved = nil
			l.q.common.stirPool(other)
		}
	}
}
