package line

import "math"

// A Newcomer is a call that may come: what goes before it.
type Newcomer struct {
	Flow   string
	Weight float64
	Prio   int32
	Seq    uint64 // its place; math.MaxUint64: behind all
	Scope  uint8
	More   int64 // units of its flow that come before it and do not wait yet
}

// Ahead counts the units of the line that go before a newcomer, and those of them in its scope. Those of lower priorities
// get up to every eighth turn. Example: 70 units go before a call of priority 1, and 100 of priority 0 wait too. While
// the 70 go, up to 10 of the 100 do.
//
// The newcomer starts, in virtual time, where its flow will be when all of its own before it have gone. Of each other
// flow those go before it that start earlier. That is exact if the calls of a flow cost the same.
func (l *Line[W]) Ahead(n *Newcomer) (all, mine int64) {
	var higher, lower [2]int64 // of all, and of its scope
	until, its := l.until(n)
	for _, s := range l.stations {
		var before, behind int64
		for _, at := range s.lanes {
			switch {
			case at.prio > n.Prio:
				before += at.units
			case at.prio < n.Prio:
				behind += at.units
			case l.turns != nil:
				before += at.beforeTurn(n, until)
			}
		}
		higher[0], lower[0] = higher[0]+before, lower[0]+behind
		if s.scope == n.Scope {
			higher[1], lower[1] = before, behind
		}
	}
	all, mine = higher[0]+its[0], higher[1]+its[1]
	return all + min(lower[0], all/(fairEvery-1)), mine + min(lower[1], mine/(fairEvery-1))
}

// until is the virtual time at which the newcomer starts, and the units of its own flow before it, of all and of its scope.
func (l *Line[W]) until(n *Newcomer) (until float64, own [2]int64) {
	if c := l.turns[n.Prio]; c != nil {
		until = c.now
		if f := c.flows[ID{Name: n.Flow}]; f != nil {
			until = max(until, f.start)
		}
	}
	for _, s := range l.stations {
		at := s.find(n.Prio)
		if at == nil {
			continue
		}
		units := at.partOf(n.Flow).beforeSeq(n.Seq)
		if own[0] += units; s.scope == n.Scope {
			own[1] = units
		}
	}
	return until + float64(own[0]+n.More)/n.weight(), own
}

func (n *Newcomer) weight() float64 {
	if n.Weight == 0 {
		return 1
	}
	return n.Weight
}

// partOf is the part of a flow; nil: none of its calls wait.
func (n *lane[W]) partOf(flow string) *part[W] {
	if flow == "" {
		return n.plain
	}
	return n.named[flow]
}

func (p *part[W]) beforeSeq(seq uint64) int64 {
	if p == nil {
		return 0
	}
	return p.fifo.before(seq)
}

// beforeTurn counts the units of other flows that start before until. Of more than mostFlows some, evenly picked, stand for the others.
func (n *lane[W]) beforeTurn(of *Newcomer, until float64) (units int64) {
	step := 1 + len(n.ages)/mostFlows
	for i := 0; i < len(n.ages); i += step {
		if p := n.ages[i]; p.name != of.Flow {
			units += unitsBefore(until, max(p.flow.class.now, p.flow.start), p.flow.weight, p.units, p.count)
		}
	}
	return units * int64(step)
}

// AheadOf counts the units of the line that go before c, which is in.
func (l *Line[W]) AheadOf(c *Call[W]) (all, mine int64) {
	name, weight := l.Flow(c)
	return l.Ahead(&Newcomer{Flow: name, Weight: weight, Prio: c.Prio, Seq: c.Seq, Scope: c.Scope})
}

// Units are those of all who wait.
func (l *Line[W]) Units() int64 { return l.units }

// Ones reports whether all calls cost one unit, as far as their sum shows: calls of 1, 1 and 4 units are 6 units, and
// three calls. Calls of 0 and 2 units pass for two of 1, which is near enough.
func (l *Line[W]) Ones() bool { return l.units == int64(l.count) }

// Even reports whether calls cost the same, or there is one order for them: that of arrival.
func (l *Line[W]) Even() bool {
	return l.count == 0 || l.units%int64(l.count) == 0 && l.Ones() || l.turns == nil && len(l.stations) == 1 && len(l.stations[0].lanes) == 1
}

// Top is the highest priority of those who wait. Somebody does.
func (l *Line[W]) Top() int32 {
	prio := int32(math.MinInt32)
	for _, s := range l.stations {
		prio = max(prio, s.lanes[0].prio)
	}
	return prio
}

// Plain reports whether nobody has named a flow, and nothing is shared.
func (l *Line[W]) Plain() bool { return l.turns == nil && len(l.pools) == 0 }

// Ahead counts the units of what is shared that go before a newcomer of that key: at least, and at most. The one counts the
// calls that nothing else holds and those that stand first, the other all that wait. more is what comes before it of its
// own flow; old: it comes back to an older place, and what goes before it is not known.
func (p *Pool[W]) Ahead(key string, n *Newcomer, more int64, old bool) (least, most int64) {
	var higher, equal, lower int64
	least, most = more, more
	for prio, c := range p.turns {
		switch {
		case prio > n.Prio:
			higher, most = higher+c.sure, most+c.all
		case prio < n.Prio:
			lower += c.all
		default:
			a, b := c.ahead(key, n, more, old)
			least, most, equal = least+a, most+b, c.all
		}
	}
	if equal > 0 { // each eighth turn may be of its priority
		higher = min(higher, least*(fairEvery-1))
	}
	least += higher
	if p.mixed { // whose turn comes before depends on which call costs what
		most += p.largest
	}
	each := max(1, p.largest)
	eighths := (int64(p.served%fairEvery) + most/each) / (fairEvery - 1)
	return least, most + min(lower, eighths*each)
}

// ahead is Ahead within the priority, without more. Of many flows some stand for the others, see mostFlows.
func (c *class[W]) ahead(key string, n *Newcomer, more int64, old bool) (least, most int64) {
	id, weight, start := ID{Name: n.Flow}, n.weight(), c.now
	if n.Flow == "" {
		id = ID{key, true}
	}
	var mine, all int64
	if f := c.flows[id]; f != nil {
		start = max(start, f.start)
		if mine, all = f.sure.units, f.all.units; n.Flow == "" {
			mine = all
		}
	}
	if old {
		mine = 0
	}
	until, latest := start+float64(mine+more)/weight, start+float64(all+more)/weight
	seen, a, b := 0, int64(0), int64(0)
	for _, f := range c.flows {
		if f.id == id || f.all.calls == 0 {
			continue
		}
		if seen++; seen > mostFlows {
			others := int64(len(c.flows) - len(c.idle))
			a, b = a*others/mostFlows, b*others/mostFlows
			break
		}
		from := max(c.now, f.start)
		sure := f.sure
		if f.heads > 0 {
			sure.add(int64(f.heads)*f.all.units/int64(f.all.calls), f.heads)
		}
		a += unitsBefore(until, from, f.weight, sure.units, sure.calls)
		b += unitsBefore(latest, from, f.weight, f.all.units, f.all.calls)
	}
	return mine + a, all + b
}

// Waiting is how many units of a flow wait, in the line, and in a pool.
func (l *Line[W]) Waiting(prio int32, id ID) (units int64) {
	for _, s := range l.stations {
		if n := s.find(prio); n != nil {
			if p := n.partOf(id.Name); p != nil {
				units += p.units
			}
		}
	}
	return units
}

func (p *Pool[W]) Waiting(prio int32, id ID) int64 {
	if c := p.turns[prio]; c != nil && c.flows[id] != nil {
		return c.flows[id].all.units
	}
	return 0
}
