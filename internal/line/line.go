// Package line is the order of calls that wait: who is next.
//
//	fifo.go  calls in the order of arrival
//	flow.go  how flows take turns by weight
//	line.go  the calls of one key
//	lane.go  those of one scope and priority, and of one flow in it
//	ahead.go what goes before a call
//	pool.go  keys that wait for something that they share
//	ticket.go where the flows of a key stand there
//
// It is pure: it has no lock, reads no clock, and knows nothing of limits. A grant, an arrival and a departure cost
// O(log n) in calls, flows, keys and priorities.
package line

import (
	"cmp"
	"iter"
	"slices"
	"time"
)

// fairEvery: each fairEvery-th grant goes to the call that has waited longest, whatever its priority, so that nobody
// starves. With 8, a flood of a high priority gets 7 of 8 turns.
const fairEvery = 8

// An item is what a call of a W's stands in line by. Its fields may be set while the call does not wait.
type item[W any] struct {
	Of    *W
	Seq   uint64 // in the order of arrival; one that comes back keeps it
	Prio  int32
	Cost  int32 // units
	Scope uint8

	place int32 // in fifo.late; here, because it costs nothing beside Scope
}

// A Call is one that may wait.
type Call[W any] struct {
	item[W]
	spot[W]
}

// A spot is where a call stands.
type spot[W any] struct {
	part       *part[W] // nil: nowhere
	prev, next *Call[W]
}

// A Line is the calls of one key. They fall into stations, by scope; those of a scope into lanes, by priority; those of a
// lane into parts, by flow. A plain line has one of each. The zero value is empty and ready to use.
type Line[W any] struct {
	of       any // whose calls they are
	count    int
	stations []*Station[W] // by scope; none empty
	turns    turns[W]      // nil until a call names a flow
	pools    []*Pool[W]    // in which the key waits for what it shares
	key      string        // its name there
	served   uint32        // turns given
	units    int64
}

// A Station is the calls of one scope: those that are held by the same things.
type Station[W any] struct {
	scope uint8
	lanes places[*lane[W]] // the highest priority first; none empty
	line  *Line[W]
	in    *Pool[W] // where it waits for its turn; nil: in none
	age   uint64   // its oldest call's Seq, when it was sorted last
	place int32    // in Pool.live or Pool.dead
	top   int32    // in Pool.tops
	only  *Call[W] // whose turn it is, whatever the order says; nil: nobody's
	head  *flow[W] // whose first call goes before newcomers, see lead; nil: nobody's

	elders places[*elder[W]]  // lanes by their oldest calls, and
	byPrio map[int32]*lane[W] // by priority, once there was more than one
	aside  []places[*seat[W]] // for each pool, the seats that were found there while the station was not in

	isDead, counts bool // how it has entered
}

// Init says whose calls the line is of.
func (l *Line[W]) Init(of any) { l.of = of }

// OwnerOf is what Init was told of the line in which c stands.
func OwnerOf[W any](c *Call[W]) any { return c.part.lane.station.line.of }

// Len is how many wait.
func (l *Line[W]) Len() int { return l.count }

// Scope is that of the station's calls.
func (s *Station[W]) Scope() uint8 { return s.scope }

// Push puts c in, at the end of its flow, or at its old place. weight is the flow's from now on.
func (l *Line[W]) Push(c *Call[W], flow string, weight float64) {
	if flow != "" && l.turns == nil {
		l.begin()
	}
	s := l.station(c.Scope)
	p := s.lane(c.Prio).part(flow)
	first := p.first()
	p.put(c)
	c.part = p
	p.lane.count++
	p.lane.units += int64(c.Cost)
	l.count++
	l.units += int64(c.Cost)
	if flow != "" {
		p.weigh(weight)
	}
	p.add(c, 1)
	if p.first() != first {
		p.sort()
		s.aged(c.Seq)
	}
	if first == nil {
		s.topped()
	}
}

// Remove takes c out, which is in.
func (l *Line[W]) Remove(c *Call[W]) {
	p := c.part
	n, s := p.lane, p.lane.station
	first := p.first() == c
	p.add(c, -1)
	p.take(c)
	c.part = nil
	n.count--
	n.units -= int64(c.Cost)
	l.count--
	l.units -= int64(c.Cost)
	if s.only == c {
		s.only = nil
	}
	switch {
	case p.count == 0:
		n.drop(p)
	case first:
		p.sort()
	}
	if n.count == 0 {
		s.dropLane(n)
	}
	switch {
	case len(s.lanes) == 0:
		s.Leave()
		i, _ := l.find(s.scope)
		l.stations = slices.Delete(l.stations, i, i+1)
	case p.count == 0:
		s.topped()
	}
}

// Move puts c, which is in, into another scope.
func (l *Line[W]) Move(c *Call[W], scope uint8) {
	name, weight := c.part.name, c.part.weight()
	l.Remove(c)
	c.Scope = scope
	l.Push(c, name, weight)
}

// Flow is the flow that c, which is in, has named, and its weight.
func (l *Line[W]) Flow(c *Call[W]) (name string, weight float64) { return c.part.name, c.part.weight() }

// begin has flows take turns from now on: those who wait are one.
func (l *Line[W]) begin() {
	l.turns = turns[W]{}
	for _, s := range l.stations {
		for _, n := range s.lanes {
			n.plain.flow = l.turns.join(n.prio, ID{})
			n.turns.put((*turn[W])(n.plain))
		}
	}
}

// find returns the place of a scope among the stations, and whether it is there: there are few.
func (l *Line[W]) find(scope uint8) (int, bool) {
	return slices.BinarySearchFunc(l.stations, scope, func(s *Station[W], scope uint8) int { return cmp.Compare(s.scope, scope) })
}

func (l *Line[W]) station(scope uint8) *Station[W] {
	i, ok := l.find(scope)
	if !ok {
		l.stations = slices.Insert(l.stations, i, &Station[W]{scope: scope, line: l})
	}
	return l.stations[i]
}

// oldest is the call of the lane that came first, and of the station.
func (n *lane[W]) oldest() *Call[W] { return n.ages[0].first() }

func (s *Station[W]) oldest() *Call[W] {
	if s.byPrio != nil {
		return (*lane[W])(s.elders[0]).oldest()
	}
	return s.lanes[0].oldest()
}

// Oldest is the call of the line that came first. Somebody waits.
func (l *Line[W]) Oldest() (c *Call[W]) {
	for _, s := range l.stations {
		if o := s.oldest(); c == nil || o.Seq < c.Seq {
			c = o
		}
	}
	return c
}

// Next is the call whose turn it is as far as the key alone is concerned; nil: nobody waits. ready says when a scope may
// send so many units; nil: at once. It is the first of those that may go, or the one that may go soonest: a costly call
// blocks those behind it in its scope, and nobody else.
//
// An example of turns with calls of priority 5 that never end, and one of priority 0: turns 1 to 7 go to priority 5, turn
// 8 to whoever came first of all, which is the call of priority 0 once all older ones have gone.
func (l *Line[W]) Next(ready func(scope uint8, cost int32) time.Time, now time.Time) *Call[W] {
	if l.oldestTurn() {
		c := l.pick((*Station[W]).oldest, true, ready, now)
		if c == nil || c.part.flow == nil || !c.part.flow.isAhead() {
			return c
		}
		prio := c.Prio // its flow has had its turn: the one that is next in its priority goes in its place
		return l.pick(func(s *Station[W]) *Call[W] {
			if n := s.find(prio); n != nil {
				return n.next()
			}
			return nil
		}, false, ready, now)
	}
	return l.pick(func(s *Station[W]) *Call[W] { return s.lanes[0].next() }, false, ready, now)
}

// oldestTurn reports whether the next turn is that of the call that has waited longest. Grants count, not looks: a head
// that has to wait stays the head until it goes.
func (l *Line[W]) oldestTurn() bool { return l.served%fairEvery == fairEvery-1 }

// pick is Next among those that stand for the stations.
func (l *Line[W]) pick(of func(*Station[W]) *Call[W], byAge bool, ready func(uint8, int32) time.Time, now time.Time) *Call[W] {
	var best, soonest *Call[W]
	var at time.Time
	for _, s := range l.stations {
		c := cmp.Or(s.only, of(s))
		if c == nil || best != nil && !goesBefore(c, best, byAge) {
			continue
		}
		if ready != nil {
			if m := ready(s.scope, c.Cost); m.After(now) {
				if soonest == nil || m.Before(at) || m.Equal(at) && c.Prio > soonest.Prio {
					soonest, at = c, m
				}
				continue
			}
		}
		best = c
	}
	return cmp.Or(best, soonest)
}

// goesBefore reports whether a goes before b: by arrival alone, or by priority and flow first.
func goesBefore[W any](a, b *Call[W], byAge bool) bool {
	switch {
	case byAge:
		return a.Seq < b.Seq
	case a.Prio != b.Prio:
		return a.Prio > b.Prio
	}
	return byTurn(a.part.begins(), b.part.begins(), a.Seq, b.Seq)
}

// Granted notes that c, which is in, goes. It is called before Remove.
func (l *Line[W]) Granted(c *Call[W]) {
	l.served++
	if f := c.part.flow; f != nil {
		f.charge(int64(c.Cost), c.part.lane.next() == c)
	}
}

// All visits all who wait, in no particular order. The line must not be changed meanwhile.
func (l *Line[W]) All() iter.Seq[*Call[W]] {
	return func(yield func(*Call[W]) bool) {
		for _, s := range l.stations {
			for _, n := range s.lanes {
				for _, p := range n.ages {
					if !p.each(yield) {
						return
					}
				}
			}
		}
	}
}

// Scopes visits the scopes in which calls wait, with their units.
func (l *Line[W]) Scopes() iter.Seq2[uint8, int64] {
	return func(yield func(uint8, int64) bool) {
		for _, s := range l.stations {
			if !yield(s.scope, s.units()) {
				return
			}
		}
	}
}

func (s *Station[W]) units() (units int64) {
	for _, n := range s.lanes {
		units += n.units
	}
	return units
}

// Flows counts the calls of each flow; nil: none is named.
func (l *Line[W]) Flows() map[string]int {
	if l.turns == nil {
		return nil
	}
	all := map[string]int{}
	for _, s := range l.stations {
		for _, n := range s.lanes {
			for _, p := range n.ages {
				all[p.name] += p.count
			}
		}
	}
	return all
}

// Stations visits those of the line. They may be left and entered meanwhile.
func (l *Line[W]) Stations() iter.Seq[*Station[W]] { return slices.Values(l.stations) }

// StationOf is where c, which is in, stands.
func (l *Line[W]) StationOf(c *Call[W]) *Station[W] { return c.part.lane.station }

// Next is the call of the station whose turn it is.
func (s *Station[W]) Next() *Call[W] { return cmp.Or(s.only, s.lanes[0].next()) }
