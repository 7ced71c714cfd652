package line

import "slices"

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
//	kept   in the heap of its lane's seat, by what its flow's start was when it was put there. Seats are in a heap of
//	       their priority; one that comes to the top while its station is not in is put aside until that is back
//	out    in the heap of its flow, by arrival; flows with tickets that are out are a heap by start
//
// The next call is that of the flow with the least start among the tickets that are out, unless a lane keeps one that was put there
// with a lower start, or with the same and is older: then that one is put out first. A ticket that is out and whose station has left is
// kept again when it comes to the top. So a key that comes and goes pays for those of its flows that come to the top meanwhile. A flow
// that is granted under one key starts later under all: its tickets that are out stay where they are, and those that are kept are put
// out as they come to the top, once. A grant costs O(log n), amortised, for many flows in few keys and for few flows in many keys.
//
// Starts never fall, so a kept ticket whose flow starts later now stands too far in front, never behind.
//
// # Dead keys
//
// They stand apart, in the order of arrival, whatever their priorities and flows are.
type Pool[W any] struct {
	of     any                  // whose order it is
	amount func(*Call[W]) int64 // how much a call takes of what is shared

	turns   turns[W]
	live    places[*Station[W]] // by their oldest calls
	tops    places[*top[W]]     // the live ones by their highest priorities
	dead    places[*Station[W]]
	served  uint32
	calls   int   // that wait, here or elsewhere
	units   int64 // that these take
	largest int64 // of the amounts of those who have waited since nobody did
	mixed   bool  // they differ
}

// Init makes p that of something shared, of which a call takes an amount.
func (p *Pool[W]) Init(of any, amount func(*Call[W]) int64) { p.of, p.amount = of, amount }

// Of is whose order it is.
func (p *Pool[W]) Of() any { return p.of }

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
	s.topped()
	s.seated(slices.Index(s.line.pools, p))
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
		p.tops.take((*top[W])(s))
	}
	s.in = nil
	s.lead()
}

// topped puts the station, whose highest priority may be another one, in its place.
func (s *Station[W]) topped() {
	if s.in != nil && !s.isDead {
		s.in.tops.put((*top[W])(s))
	}
	s.lead()
}

// Crowded reports whether many flows and priorities wait in the station.
func (s *Station[W]) Crowded() bool {
	room := 64
	for _, n := range s.lanes {
		if room -= len(n.ages); room < 0 {
			return true
		}
	}
	return false
}

// In is the pool that the station is in; nil: none.
func (s *Station[W]) In() *Pool[W] { return s.in }

// count adds the calls of a station to those of its flows that go before newcomers, or takes them out, if all of them do.
func (s *Station[W]) count(sign int64) {
	if s.isDead || !s.counts {
		return
	}
	at := slices.Index(s.line.pools, s.in)
	for _, n := range s.lanes {
		for _, p := range n.ages {
			t := p.tickets[at]
			t.flow.sure.add(sign*t.units, int(sign)*p.count)
			t.flow.class.sure += sign * t.units
		}
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

// Units are what these take of it.
func (p *Pool[W]) Units() int64 { return p.units }

// Live and Dead count the stations that are in.
func (p *Pool[W]) Live() int { return len(p.live) }
func (p *Pool[W]) Dead() int { return len(p.dead) }

// Next is the call whose turn it is among those of live keys; nil: there are none. inTurn: because its flow is next.
func (p *Pool[W]) Next() (c *Call[W], inTurn bool) {
	if len(p.live) == 0 {
		return nil, false
	}
	if p.served%fairEvery == fairEvery-1 {
		c = oldestOf(p.live).orOnly()
		if !c.ticket(p).flow.isAhead() {
			return c, false
		}
		return c.ticket(p).flow.class.next().orOnly(), true
	}
	return p.tops[0].lanes[0].seat(p).class.next().orOnly(), true
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
func (l *Line[W]) Hold(c *Call[W]) { c.part.lane.station.only = c }

// Held is the call of the station that Hold was called with; nil: none.
func (s *Station[W]) Held() *Call[W] { return s.only }

// Release undoes Hold.
func (l *Line[W]) Release(c *Call[W]) {
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
			if s := c.seats[0]; !s.isIn() {
				s.setAside()
				continue
			} else if f == nil || !f.isBefore(s.kept[0]) {
				s.kept[0].hand()
				continue
			}
		}
		t := f.tickets[0]
		switch {
		case !t.seat.isIn():
			t.back()
			t.keep()
		default:
			return t.part.first()
		}
	}
}

// isBefore reports whether f, with tickets that are out, is before one that is kept. Of equals the older one is: if all of them
// were put out, a key that comes and goes would pay for all of its flows each time.
func (f *flow[W]) isBefore(t *ticket[W]) bool {
	return byTurn(f.start, t.start, f.tickets[0].seq, t.seq)
}

// Granted notes that c, which is in the pool, goes, in turn or not. It is called before Line.Remove.
func (p *Pool[W]) Granted(c *Call[W], inTurn bool) {
	p.served++
	p.Charge(c, inTurn)
}

// Charge notes that c takes of p, where others wait: its flow has had a turn.
func (p *Pool[W]) Charge(c *Call[W], inTurn bool) {
	f := c.ticket(p).flow
	f.charge(p.amount(c), inTurn)
	if len(f.tickets) > 0 {
		f.class.turns.put(f)
	}
}
