package queue

import (
	"slices"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
	"github.com/go-throttle/throttle/internal/line"
)

// A stake is what the calls of one key take of a pool.
type stake struct {
	*pool
	byCost bool    // what they cost
	meters uint64  // and what they hold of these meters, in bits
	of     *Meters // those
}

// amount is how much of the pool n takes.
func (s *stake) amount(n need) (units int) {
	if s.pace != nil {
		return 1
	}
	if s.byCost {
		units = int(n.cost)
	}
	for i := 0; s.meters>>i != 0; i++ {
		switch {
		case s.meters>>i&1 == 0:
		case n.holds != nil:
			units += n.holds.Held(i)
		default: // of a call that may come, the usual
			units += int(s.of.usual[i])
		}
	}
	return units
}

// ready implements constraint, but for the order of those who wait.
func (s *stake) ready(n need, at, now time.Time) (time.Time, decision) {
	at, d := s.free(n, at, now)
	if d.verdict == grant && s.asker != nil {
		d = s.asker.ready(s.amount(n), now)
	}
	return at, d
}

// free is ready without the limiters of other kinds: a look asks them for nothing.
func (s *stake) free(n need, at, now time.Time) (time.Time, decision) {
	if d := s.open(n, now); d.verdict != grant || s.pace != nil {
		return at, d
	}
	m, err := s.limits.Ready(at, s.amount(n))
	switch {
	case err != nil:
		return at, decision{verdict: deny, err: err}
	case m.After(now):
		return at, decision{verdict: later, until: m, exact: true}
	}
	return at, decision{}
}

// open is free without limiters.
func (p *pool) open(n need, now time.Time) decision {
	switch {
	case n.wants&wantsSlot != 0 && p.most > 0 && p.inFlight >= p.most:
		return decision{verdict: block}
	case p.pace != nil:
		return until(p.pace.next, now, true)
	}
	return decision{}
}

// share finds what the key's calls share with those of other keys that wait: whatever two of them pay.
func (l *lineup) share() {
	q, r := l.q, l.q.common
	l.alone = q.aloneLocked()
	if !r.keyed {
		return
	}
	for _, s := range q.stakesLocked() {
		l.take(s)
	}
	for a, s := range q.accounts() {
		if of, waited := r.payers[a]; waited {
			s.pool = r.poolOf(a, of)
			l.take(s)
			continue
		}
		if r.payers == nil {
			r.payers = map[limit.Account]payer{}
		}
		r.payers[a] = payer{sole: l}
	}
}

// stakesLocked are those in what the key shares whoever waits: with all keys, and with those of its hosts that were closed.
func (q *Queue) stakesLocked() []stake {
	stakes := slices.Clip(q.common.stakes)
	for _, c := range q.common.hosts {
		if c.keys[q] {
			stakes = append(stakes, stake{pool: c.pool})
		}
	}
	return stakes
}

// poolOf is the pool of an account that a line waits for, made if only that one has done so.
func (r *common) poolOf(a limit.Account, of payer) *pool {
	if of.pool != nil {
		return of.pool
	}
	p := r.newPool(limit.SetOf(a), 0)
	r.payers[a] = payer{pool: p}
	for b, s := range of.sole.q.accounts() {
		if a == b {
			s.pool = p
			of.sole.take(s)
		}
	}
	r.stirLine(of.sole)
	return p
}

// A payer is who waits for an account: the line of one key, or those of several.
type payer struct {
	sole *lineup
	pool *pool
}

// unshare is the reverse, for a line in which nobody waits any more.
func (l *lineup) unshare() {
	for i := range l.stakes {
		l.stakes[i].pool.unused()
	}
	if !l.q.common.keyed {
		return
	}
	payers := l.q.common.payers
	for a := range l.q.accounts() {
		if of := payers[a]; of.sole == l || of.pool != nil && of.pool.lines == 0 {
			delete(payers, a)
		}
	}
}

// unused notes that one line less may stand in the pool.
func (p *pool) unused() {
	if p.lines--; p.lines > 0 {
		return
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.stop != nil {
		p.stop()
		p.stop = nil
	}
	if p.asker != nil {
		p.asker.close()
	}
	p.due = time.Time{}
}

// take adds a stake.
func (l *lineup) take(s stake) {
	if s.lines++; s.lines == 1 && s.stop == nil {
		s.stop = s.limits.Watch(s.pool.wakeUp)
	}
	l.stakes = append(l.stakes, s)
	if s.pool != l.q.common.all {
		l.alone = l.withoutPools()
		if l.stop != nil { // the pool looks at them from now on
			l.stop()
			l.stop = l.ending(l.alone.Watch(l.wakeUp))
		}
	}
	l.Share(&s.Pool, l.q.key)
}

// withoutPools are the dues without what is in a pool.
func (l *lineup) withoutPools() (d dues) {
	shared := func(s *limit.Set) *limit.Set {
		return limit.SetOf(slices.DeleteFunc(slices.Clone(s.Accounts()), func(a limit.Account) bool {
			return slices.ContainsFunc(l.stakes, func(s stake) bool {
				return s.pool != l.q.common.all && slices.Contains(s.limits.Accounts(), a)
			})
		})...)
	}
	d.Set = shared(l.q.own)
	if l.q.meters != nil {
		var each []Meter
		for _, one := range l.q.meters.each {
			each = append(each, Meter{Name: one.Name, Limits: shared(one.Limits)})
		}
		d.Set = partsOf(d.Set, each)
	}
	return d
}

// accounts visits what the key pays that other keys may pay too, with what its calls take of it.
func (q *Queue) accounts() func(func(limit.Account, stake) bool) {
	return func(yield func(limit.Account, stake) bool) {
		for _, a := range q.own.Accounts() {
			if !yield(a, q.stakeOf(a)) {
				return
			}
		}
		if q.meters == nil {
			return
		}
		for i, one := range q.meters.each {
			for _, a := range one.Limits.Accounts() {
				if s := q.stakeOf(a); !s.byCost && s.meters&(1<<i-1) == 0 && !yield(a, s) {
					return
				}
			}
		}
	}
}

// stakeOf is what the key's calls take of an account.
func (q *Queue) stakeOf(a limit.Account) (s stake) {
	s.byCost = slices.Contains(q.own.Accounts(), a)
	if s.of = q.meters; q.meters != nil {
		for i, one := range q.meters.each {
			if slices.Contains(one.Limits.Accounts(), a) {
				s.meters |= 1 << i
			}
		}
	}
	return s
}

// stakeIn is the line's stake in p.
func (l *lineup) stakeIn(p *pool) *stake {
	return &l.stakes[slices.IndexFunc(l.stakes, func(s stake) bool { return s.pool == p })]
}

// heldBy is the pool that holds w, which nothing else does: somebody stands in it, or it lacks what w takes; nil: none.
func (l *lineup) heldBy(w *waiter, at, now time.Time) *pool {
	n := w.need(w.holds())
	station := l.StationOf(&w.Call)
	for i := range l.stakes {
		s := &l.stakes[i]
		if station.In() == &s.Pool || s.Live() > 0 || s.owed != nil || s.saved != nil || l.q.dead() && s.Dead() > 0 {
			return s.pool
		}
	}
	for i := range l.stakes {
		if _, d := l.stakes[i].ready(n, at, now); d.verdict != grant {
			return l.stakes[i].pool
		}
	}
	return nil
}

// stand puts the calls of w's scope into p, unless they stand in a pool already, and those of other scopes whose next call
// may go. It returns when to look at the rest.
func (l *lineup) stand(p *pool, w *waiter, now time.Time) decision {
	look := decision{verdict: block}
	for s := range l.Stations() {
		if s != l.StationOf(&w.Call) {
			if d := l.lets(s.Next().Of, now); d.verdict != grant {
				if l.leavePool(s); d.verdict == later && (look.verdict == block || d.until.Before(look.until)) {
					look = decision{verdict: later, until: d.until}
				}
				continue
			}
		}
		in := p
		if at := s.In(); at != nil {
			in = at.Of().(*pool)
		}
		l.enter(s, in)
	}
	return look
}

// lets says whether the quotas of w's scope and the limits of the key alone let w go, of whose key another call may go. A limiter of
// another kind has been asked for that call alone.
func (l *lineup) lets(w *waiter, now time.Time) decision {
	m, err := l.alone.ready(w.holds(), now, w.Cost)
	if err != nil || l.q.asker != nil {
		return decision{verdict: block}
	}
	return until(limit.Latest(m, l.q.up.ScopeReady(w.Scope, int(w.Cost), now)), now, false)
}

// stepOut takes all calls out of the pools in which they stand, leavePool those of a scope: it may be another one's turn there.
func (l *lineup) stepOut() {
	for s := range l.Stations() {
		if c := s.Held(); c != nil { // others may have what was saved for it
			l.unowe(c.Of)
		}
		l.leavePool(s)
	}
}

func (l *lineup) leavePool(s *line.Station[waiter]) {
	if p := s.In(); p != nil {
		s.Leave()
		l.q.common.stirPool(p.Of().(*pool))
	}
}

// enter puts the calls of a scope into p, or in another place there.
func (l *lineup) enter(s *line.Station[waiter], p *pool) {
	if s.In() != &p.Pool {
		l.leavePool(s)
	}
	if s.Enter(&p.Pool, l.q.dead(), l.sure(p, s)) {
		p.joined()
	}
}

// sure reports whether nothing but the pool will hold the calls of a scope, as far as is known: the key has no slower limit of
// its own. Then those behind the first one go before newcomers too. A key with a limit of its own, or in several pools, comes and
// goes, which must not cost time in proportion to its flows.
func (l *lineup) sure(p *pool, s *line.Station[waiter]) bool {
	q := l.q
	calm := q.up.Calm() && q.asker == nil && q.common.Options.MaxInFlight == 0 && q.common.Options.InFlight == nil && (q.meters == nil || l.alone.Own() == 0)
	free := l.alone.Own() == 0
	return calm && (free || l.alone.Rate() >= p.limits.Rate()) && (free && len(l.stakes) == 1 || !s.Crowded())
}
