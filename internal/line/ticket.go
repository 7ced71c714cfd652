package line

import "slices"

// A seat is a lane in a pool.
type seat[W any] struct {
	pool  *Pool[W]
	lane  *lane[W]
	class *class[W]          // nil: it has had no ticket yet
	kept  places[*ticket[W]] // by start
	aside bool               // it is in Station.aside, and not in class.seats
	place int32              // there
}

// isIn reports whether its station is in the pool, of a live key.
func (s *seat[W]) isIn() bool { return s.lane.station.in == s.pool && !s.lane.station.isDead }

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

// A top is a station in Pool.tops.
type top[W any] Station[W]

func (s *top[W]) at() *int32            { return &s.top }
func (s *top[W]) before(o *top[W]) bool { return s.lanes[0].prio > o.lanes[0].prio }

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
	s.heap().put(s)
}

// unkeep is the reverse.
func (t *ticket[W]) unkeep() {
	s := t.seat
	if len(s.kept) == 1 {
		s.heap().take(s)
		s.kept.take(t)
		s.aside = false
		return
	}
	s.kept.take(t)
	s.heap().put(s)
}

// heap is where the seat is while it has kept tickets.
func (s *seat[W]) heap() *places[*seat[W]] {
	if s.aside {
		return &s.lane.station.aside[slices.Index(s.lane.seats, s)]
	}
	return &s.class.seats
}

// setAside takes the seat out of its class until its station is back, and seated puts all those of a pool back.
func (s *seat[W]) setAside() {
	all := &s.lane.station.aside
	for len(*all) < len(s.lane.seats) {
		*all = append(*all, nil)
	}
	s.heap().take(s)
	s.aside = true
	s.heap().put(s)
}

func (s *Station[W]) seated(at int) {
	for at < len(s.aside) && len(s.aside[at]) > 0 {
		of := s.aside[at][0]
		of.heap().take(of)
		of.aside = false
		of.heap().put(of)
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

// Amend runs change, after which c, which is in, takes another amount of what is shared.
func (l *Line[W]) Amend(c *Call[W], change func()) {
	c.part.add(c, -1)
	change()
	c.part.add(c, 1)
}

// add counts a call of the part in each pool, or takes it out.
func (p *part[W]) add(c *Call[W], sign int64) {
	for _, t := range p.tickets {
		t.add(c, sign)
	}
}

func (t *ticket[W]) add(c *Call[W], sign int64) {
	p := t.seat.pool
	n := p.amount(c)
	if sign > 0 && n != p.largest {
		p.mixed, p.largest = p.mixed || p.largest > 0, max(p.largest, n)
	}
	p.calls += int(sign)
	n *= sign
	p.units += n
	t.units += n
	t.flow.all.add(n, int(sign))
	t.flow.class.all += n
	if s := t.part.lane.station; s.in == t.seat.pool && s.counts && !s.isDead {
		t.flow.sure.add(n, int(sign))
		t.flow.class.sure += n
	}
}

// lead notes whose first call goes before newcomers, if those behind it may not: of many flows it is not known whose turn is next.
func (s *Station[W]) lead() {
	var of *flow[W]
	if s.in != nil && !s.isDead && !s.counts && len(s.lanes) > 0 && len(s.lanes[0].ages) == 1 {
		of = s.lanes[0].ages[0].tickets[slices.Index(s.line.pools, s.in)].flow
	}
	if s.head != nil {
		s.head.heads--
	}
	if s.head = of; of != nil {
		of.heads++
	}
}
