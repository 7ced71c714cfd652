package line

import (
	"cmp"
	"slices"
)

// A Pool is the order of keys that wait for something that they share: a limit, or slots. Priority goes first, with every
// eighth turn for the call that has waited longest; then flows take turns by weight over all keys. A key is the flow of
// its calls that name none.
//
// A station stands in one pool at a time, while nothing holds it but what that pool stands for (Station.Enter). One that
// waits for something of its own is not in, and neither takes a turn nor delays anybody.
//
// # Tickets
//
// Each part has a ticket in each pool of its key. It is in one of two places:
//
//	kept   in the heap of its lane's seat, by what its flow's start was when it was put there
//	out    in the heap of its flow, by arrival; flows with tickets that are out are a heap by start
//
// The next call is that of the flow with the least start among the tickets that are out, unless a lane keeps one whose
// flow starts no later: then that one is put out first. A ticket that is out and whose station has left is kept again
// when it comes to the top. So a key that comes and goes pays for those of its flows that come to the top meanwhile, a
// flow that was granted under one key starts later under all, and a grant costs O(log n), however many keys and flows
// there are.
//
// Starts never fall, so a kept ticket that was not sorted anew stands too far in front, never behind.
//
// # Dead keys
//
// They stand apart, in the order of arrival, whatever their priorities and flows are.
type Pool[W any] struct {
	Of any // whose order it is
	// Amount is how much a call takes of what is shared.
	Amount func(*Call[W]) int64

	turns   turns[W]
	classes []*class[W] // with seats of stations that are in, the highest priority first
	live    places[*Station[W]]
	dead    places[*Station[W]]
	served  uint32
	calls   int   // that wait, here or elsewhere
	largest int64 // of the amounts of those who have waited since nobody did
	mixed   bool  // they differ
}

// A seat is a lane in a pool.
type seat[W any] struct {
	pool  *Pool[W]
	lane  *lane[W]
	class *class[W]          // nil: it has had no ticket yet
	in    bool               // its station is
	kept  places[*ticket[W]] // by start
	place int32              // in class.seats
}

// A ticket is a part in a pool.
type ticket[W any] struct {
	part  *part[W]
	seat  *seat[W]
	flow  *flow[W]
	start float64 // the flow's, when it was kept
	seq   uint64  // of the part's first call
	out   bool
	place int32
	units int64
}

func (t *ticket[W]) at() *int32 { return &t.place }
func (t *ticket[W]) before(o *ticket[W]) bool {
	if t.out {
		return t.seq < o.seq
	}
	return byTurn(t.start, o.start, t.seq, o.seq)
}

func (s *seat[W]) at() *int32 { return &s.place }
func (s *seat[W]) before(o *seat[W]) bool {
	a, b := s.kept[0], o.kept[0]
	return byTurn(a.start, b.start, a.seq, b.seq)
}

func (s *Station[W]) at() *int32                { return &s.place }
func (s *Station[W]) before(o *Station[W]) bool { return s.age < o.age }

// Share has the calls of the line take turns in one more pool, where they are those of that key.
func (l *Line[W]) Share(p *Pool[W], key string) {
	l.key = key
	l.pools = append(l.pools, p)
	for _, s := range l.stations {
		for _, n := range s.lanes {
			n.takeSeats()
			for _, part := range n.ages {
				part.takeTickets()
				part.tickets[len(l.pools)-1].sort()
			}
		}
	}
}

// takeSeats gives the lane a seat in each pool that it has none in, and takeTickets the part a ticket.
func (n *lane[W]) takeSeats() {
	for _, p := range n.station.line.pools[len(n.seats):] {
		s := &seat[W]{pool: p, lane: n}
		n.seats = append(n.seats, s)
	}
}

func (p *part[W]) takeTickets() {
	n := p.lane
	l := n.station.line
	for _, s := range n.seats[len(p.tickets):] {
		id := ID{Name: p.name}
		if p.name == "" {
			id = ID{l.key, true}
		}
		if s.pool.turns == nil {
			s.pool.turns = turns[W]{}
		}
		t := &ticket[W]{part: p, seat: s, flow: s.pool.turns.join(n.prio, id)}
		if p.flow != nil && p.name != "" {
			t.flow.weight = p.flow.weight
		}
		s.class = t.flow.class
		p.tickets = append(p.tickets, t)
		p.each(func(c *Call[W]) bool { t.add(c, 1); return true })
		if n.station.in == s.pool && !n.station.isDead {
			s.enter()
		}
	}
}

// weigh sets the weight of the part's flow, from its next charge on.
func (p *part[W]) weigh(weight float64) {
	p.flow.weight = weight
	for _, t := range p.tickets {
		t.flow.weight = weight
	}
}

func (p *part[W]) weight() float64 {
	if p.flow == nil {
		return 1
	}
	return p.flow.weight
}

// sort puts t, whose part has another first call, in its place.
func (t *ticket[W]) sort() {
	t.seq = t.part.first().Seq
	if t.out {
		t.flow.tickets.put(t)
		t.flow.class.turns.put(t.flow)
		return
	}
	t.start = t.flow.start
	t.keep()
}

// keep puts t among those that its lane keeps.
func (t *ticket[W]) keep() {
	s := t.seat
	s.kept.put(t)
	if s.in {
		s.class.seats.put(s)
	}
}

// unkeep is the reverse.
func (t *ticket[W]) unkeep() {
	s := t.seat
	if s.class.seats.take(s); len(s.kept) == 1 {
		s.kept.take(t)
		return
	}
	s.kept.take(t)
	if s.in {
		s.class.seats.put(s)
	}
}

// hand puts t out, and back takes it back. It is kept nowhere then.
func (t *ticket[W]) hand() {
	t.unkeep()
	t.out = true
	t.flow.tickets.put(t)
	t.flow.class.turns.put(t.flow)
}

func (t *ticket[W]) back() {
	f := t.flow
	if len(f.tickets) == 1 {
		f.class.turns.take(f)
		f.tickets.take(t)
	} else {
		f.tickets.take(t)
		f.class.turns.put(f)
	}
	t.out, t.start = false, f.start
}

// returnTickets gives the tickets of a part without calls back.
func (p *part[W]) returnTickets() {
	for _, t := range p.tickets {
		if t.out {
			t.back()
		} else if t.place > 0 {
			t.unkeep()
		}
		pool := t.seat.pool
		if pool.turns.leave(t.flow); len(pool.turns) == 0 {
			pool.mixed, pool.largest = false, 0
		}
	}
	p.tickets = nil
}

// enter and leave say that the seat's station is in the pool, or no longer.
func (s *seat[W]) enter() {
	if s.in || s.class == nil {
		return
	}
	s.in = true
	if s.class.sitting++; s.class.sitting == 1 {
		i, _ := s.pool.find(s.class.prio)
		s.pool.classes = slices.Insert(s.pool.classes, i, s.class)
	}
	if len(s.kept) > 0 {
		s.class.seats.put(s)
	}
}

func (s *seat[W]) leave() {
	if !s.in {
		return
	}
	s.in = false
	s.class.seats.take(s)
	if s.class.sitting--; s.class.sitting == 0 {
		i, _ := s.pool.find(s.class.prio)
		s.pool.classes = slices.Delete(s.pool.classes, i, i+1)
	}
}

func (p *Pool[W]) find(prio int32) (int, bool) {
	return slices.BinarySearchFunc(p.classes, prio, func(c *class[W], prio int32) int { return cmp.Compare(prio, c.prio) })
}

// seat is that of the lane in p.
func (n *lane[W]) seat(p *Pool[W]) *seat[W] {
	return n.seats[slices.Index(n.station.line.pools, p)]
}

// Enter puts the station into p, where nothing else holds it: of a dead key, or of a live one. counts: nothing else will
// hold the calls behind its first one either, so they go before newcomers.
// It reports whether that changes anything.
func (s *Station[W]) Enter(p *Pool[W], dead, counts bool) bool {
	if s.in == p && s.isDead == dead && s.counts == counts {
		return false
	}
	s.Leave()
	s.in, s.isDead, s.counts = p, dead, counts
	s.age = s.oldest().Seq
	if dead {
		p.dead.put(s)
		return true
	}
	p.live.put(s)
	for _, n := range s.lanes {
		n.seat(p).enter()
	}
	s.count(1)
	return true
}

// Leave takes the station out of the pool that it is in, if any.
func (s *Station[W]) Leave() {
	p := s.in
	if p == nil {
		return
	}
	s.count(-1)
	if s.isDead {
		p.dead.take(s)
	} else {
		p.live.take(s)
		for _, n := range s.lanes {
			n.seat(p).leave()
		}
	}
	s.in = nil
}

// In is the pool that the station is in; nil: none.
func (s *Station[W]) In() *Pool[W] { return s.in }

// count adds the calls of a station to those of its flows that go before newcomers, or takes them out: all, or the first one.
func (s *Station[W]) count(sign int64) {
	if s.isDead {
		return
	}
	at := slices.Index(s.line.pools, s.in)
	for _, n := range s.lanes {
		if !s.counts {
			if len(n.ages) == 1 { // of many flows it is not known whose turn is next
				n.ages[0].tickets[at].flow.heads += int(sign)
			}
			continue
		}
		for _, p := range n.ages {
			t := p.tickets[at]
			t.flow.sure.add(sign*t.units, int(sign)*p.count)
			t.flow.class.sure += sign * t.units
		}
	}
}

// add counts a call of the part in each pool, or takes it out.
func (p *part[W]) add(c *Call[W], sign int64) {
	for _, t := range p.tickets {
		t.add(c, sign)
	}
}

func (t *ticket[W]) add(c *Call[W], sign int64) {
	p := t.seat.pool
	n := p.Amount(c)
	if sign > 0 && n != p.largest {
		p.mixed, p.largest = p.mixed || p.largest > 0, max(p.largest, n)
	}
	p.calls += int(sign)
	n *= sign
	t.units += n
	t.flow.all.add(n, int(sign))
	t.flow.class.all += n
	if s := t.part.lane.station; s.in == t.seat.pool && s.counts && !s.isDead {
		t.flow.sure.add(n, int(sign))
		t.flow.class.sure += n
	}
}

// aged notes that a call of that place has come.
func (s *Station[W]) aged(seq uint64) {
	if s.in == nil || seq >= s.age {
		return
	}
	s.age = seq
	if s.isDead {
		s.in.dead.put(s)
	} else {
		s.in.live.put(s)
	}
}

// Calls counts those that wait for what is shared, or will.
func (p *Pool[W]) Calls() int { return p.calls }

// Live and Dead count the stations that are in.
func (p *Pool[W]) Live() int { return len(p.live) }
func (p *Pool[W]) Dead() int { return len(p.dead) }

// Next is the call whose turn it is among those of live keys; nil: there are none. inTurn: because its flow is next.
func (p *Pool[W]) Next() (c *Call[W], inTurn bool) {
	if len(p.live) == 0 {
		return nil, false
	}
	if p.served%fairEvery == fairEvery-1 {
		c = oldestOf(p.live)
		if !c.ticket(p).flow.isAhead() {
			return c, false
		}
		i, _ := p.find(c.Prio)
		return p.classes[i].next().orOnly(), true
	}
	return p.classes[0].next().orOnly(), true
}

// NextDead is the call whose turn it is among those of dead keys: the key's own next one, where the oldest waits.
func (p *Pool[W]) NextDead() *Call[W] {
	if len(p.dead) == 0 {
		return nil
	}
	c := oldestOf(p.dead)
	s := c.part.lane.station
	if !s.line.oldestTurn() {
		c = s.lanes[0].next()
	}
	return c.orOnly()
}

// oldestOf is the call that came first. A station's age may be that of a call that has left.
func oldestOf[W any](of places[*Station[W]]) *Call[W] {
	for {
		s := of[0]
		c := s.oldest()
		if s.age == c.Seq {
			return c
		}
		s.age = c.Seq
		of.put(s)
	}
}

func (c *Call[W]) ticket(p *Pool[W]) *ticket[W] {
	return c.part.tickets[slices.Index(c.part.lane.station.line.pools, p)]
}

// orOnly is c, or that of its station whose turn it is whatever the order says.
func (c *Call[W]) orOnly() *Call[W] {
	if only := c.part.lane.station.only; only != nil {
		return only
	}
	return c
}

// Hold says that c, whose turn has come, goes before all others of its scope once it can, and holds them up until then.
func (c *Call[W]) Hold() { c.part.lane.station.only = c }

// Release undoes Hold.
func (c *Call[W]) Release() {
	if s := c.part.lane.station; s.only == c {
		s.only = nil
	}
}

// next is the first call of the flow that is next. A station that is in has one.
func (c *class[W]) next() *Call[W] {
	for {
		var f *flow[W]
		if len(c.turns) > 0 {
			f = c.turns[0]
		}
		if len(c.seats) > 0 {
			if s := c.seats[0]; f == nil || s.kept[0].start <= f.start {
				s.consider(f)
				continue
			}
		}
		t := f.tickets[0]
		switch {
		case !t.seat.in:
			t.back()
			t.keep()
		case f.start < c.now:
			f.catchUp()
			c.turns.put(f)
		default:
			return t.part.first()
		}
	}
}

// consider puts the first of the kept tickets out, unless its flow starts later than when it was kept; f is the flow that
// is next of those with tickets out.
func (s *seat[W]) consider(f *flow[W]) {
	t := s.kept[0]
	if t.flow.start < t.flow.class.now {
		if t.flow.catchUp(); len(t.flow.tickets) > 0 {
			t.flow.class.turns.put(t.flow)
		}
	}
	if t.start < t.flow.start && f != nil && t.flow.start > f.start {
		t.start = t.flow.start
		t.keep()
		return
	}
	t.hand()
}

// Granted notes that c, which is in the pool, goes, in turn or not. It is called before Line.Remove.
func (p *Pool[W]) Granted(c *Call[W], inTurn bool) {
	p.served++
	p.Charge(c, inTurn)
}

// Charge notes that c takes of p, where others wait: its flow has had a turn.
func (p *Pool[W]) Charge(c *Call[W], inTurn bool) {
	f := c.ticket(p).flow
	f.charge(p.Amount(c), inTurn)
	if len(f.tickets) > 0 {
		f.class.turns.put(f)
	}
}
