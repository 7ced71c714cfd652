package line

// A lane is the calls of one scope and priority.
type lane[W any] struct {
	station *Station[W]
	prio    int32
	count   int
	units   int64
	plain   *part[W]            // of calls that name no flow; nil: there are none
	named   map[string]*part[W] // nil: there are none
	ages    places[*part[W]]    // all parts, by arrival
	turns   places[*turn[W]]    // the same by the line's own turns, once a flow was named
	seats   []*seat[W]          // in each pool
	place   int32               // in Station.lanes
	elder   int32               // in Station.elders
}

func (n *lane[W]) before(o *lane[W]) bool { return n.prio > o.prio }
func (n *lane[W]) at() *int32             { return &n.place }

// An elder is a lane in Station.elders.
type elder[W any] lane[W]

func (n *elder[W]) before(o *elder[W]) bool {
	return (*lane[W])(n).oldest().Seq < (*lane[W])(o).oldest().Seq
}
func (n *elder[W]) at() *int32 { return &n.elder }

// A part is the calls of one flow in a lane.
type part[W any] struct {
	fifo[W]
	lane    *lane[W]
	name    string
	flow    *flow[W] // of the line's own turns; nil: nobody has named a flow
	start   float64  // the flow's, when the part was sorted last
	age     int32    // its place in lane.ages
	turn    int32    // its place in lane.turns
	tickets []*ticket[W]
}

func (p *part[W]) before(o *part[W]) bool { return p.first().Seq < o.first().Seq }
func (p *part[W]) at() *int32             { return &p.age }

// A turn is a part in lane.turns.
type turn[W any] part[W]

func (p *turn[W]) before(o *turn[W]) bool {
	return byTurn(p.start, o.start, p.first().Seq, o.first().Seq)
}
func (p *turn[W]) at() *int32 { return &p.turn }

// find returns the lane of a priority; nil: there is none.
func (s *Station[W]) find(prio int32) *lane[W] {
	if len(s.lanes) > 0 && s.lanes[0].prio == prio {
		return s.lanes[0]
	}
	return s.byPrio[prio]
}

// lane returns the lane of a priority, made if it is missing. One that is made is empty, and an elder once it is not.
func (s *Station[W]) lane(prio int32) *lane[W] {
	if n := s.find(prio); n != nil {
		return n
	}
	n := &lane[W]{station: s, prio: prio}
	if len(s.lanes) == 1 && s.byPrio == nil {
		only := s.lanes[0]
		s.byPrio = map[int32]*lane[W]{only.prio: only}
		s.elders.put((*elder[W])(only))
	}
	if s.byPrio != nil {
		s.byPrio[prio] = n
	}
	s.lanes.put(n)
	n.takeSeats()
	return n
}

// grow sorts the lane, whose oldest call is another one, among those of its station.
func (n *lane[W]) grow() {
	if n.station.byPrio != nil {
		n.station.elders.put((*elder[W])(n))
	}
}

// dropLane forgets a lane without calls.
func (s *Station[W]) dropLane(n *lane[W]) {
	s.lanes.take(n)
	s.elders.take((*elder[W])(n))
	delete(s.byPrio, n.prio)
}

// part returns the part of a flow, made if it is missing. One that is made is empty, and sorted once it is not.
func (n *lane[W]) part(name string) *part[W] {
	if name == "" && n.plain != nil {
		return n.plain
	}
	p := n.named[name]
	if p != nil {
		return p
	}
	p = &part[W]{lane: n, name: name}
	if name == "" {
		n.plain = p
	} else {
		if n.named == nil {
			n.named = map[string]*part[W]{}
		}
		n.named[name] = p
	}
	if l := n.station.line; l.turns != nil {
		p.flow = l.turns.join(n.prio, ID{Name: name})
	}
	p.takeTickets()
	return p
}

// drop forgets a part without calls.
func (n *lane[W]) drop(p *part[W]) {
	if n.ages.take(p); len(n.ages) > 0 {
		n.grow()
	}
	if p.flow != nil {
		n.turns.take((*turn[W])(p))
		n.station.line.turns.leave(p.flow)
	}
	p.returnTickets()
	if p.name == "" {
		n.plain = nil
	} else {
		delete(n.named, p.name)
	}
}

// sort puts p, whose first call is another one, in its places.
func (p *part[W]) sort() {
	n := p.lane
	n.ages.put(p)
	n.grow()
	if p.flow != nil {
		p.start = p.flow.start
		n.turns.put((*turn[W])(p))
	}
	for _, t := range p.tickets {
		t.sort()
	}
}

// next is the call of the lane whose flow is next by the line's own turns. A flow has a part in each of several scopes: when
// it was granted in one of them, the others are sorted anew once they come to the top.
func (n *lane[W]) next() *Call[W] {
	if len(n.turns) == 0 {
		return n.plain.first()
	}
	for {
		p := n.turns[0]
		if p.start >= p.flow.start {
			return p.first()
		}
		p.start = p.flow.start
		n.turns.put(p)
	}
}

// begins is when its flow is to start.
func (p *part[W]) begins() float64 {
	if p.flow == nil {
		return 0
	}
	return p.flow.start
}
