//go:build throttle_invariants

package line

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// This file checks that lines and pools are sound. It is part of builds with the tag throttle_invariants alone, which are for
// tests.

func broken(format string, args ...any) {
	panic("throttle: invariant broken: " + fmt.Sprintf(format, args...))
}

// checkHeap: whoever is in is where it says, and not before the one above it.
func checkHeap[T placed[T]](h places[T]) {
	for i, t := range h {
		if int(*t.at()) != i+1 || i > 0 && t.before(h[(i-1)/2]) {
			broken("%T number %d of %d says that it is number %d, or goes before the one above it", t, i+1, len(h), *t.at())
		}
	}
}

// Check panics if the line does not agree with itself, or if it names another call as the next one than a plain search does.
func (l *Line[W]) Check() {
	calls, units := 0, int64(0)
	for i, s := range l.stations {
		if s.line != l || len(s.lanes) == 0 || i > 0 && s.scope <= l.stations[i-1].scope || s.only != nil && (s.only.part == nil || l.StationOf(s.only) != s) {
			broken("scope %d is empty, in another place, or waits for a call that is elsewhere: %+v", s.scope, s.only)
		}
		checkHeap(s.lanes)
		checkHeap(s.elders)
		for at := range s.aside {
			checkHeap(s.aside[at])
		}
		for _, n := range s.lanes {
			if n.station != s || n.count == 0 || s.find(n.prio) != n || len(n.seats) != len(l.pools) || (n.elder > 0) != (s.byPrio != nil) {
				broken("priority %d of scope %d is empty or in another place, or has %d seats in %d pools", n.prio, s.scope, len(n.seats), len(l.pools))
			}
			n.check()
			calls, units = calls+n.count, units+n.units
		}
		if p := s.in; p != nil && (s.place == 0 || s.age > s.oldest().Seq || !slices.Contains(l.pools, p)) {
			broken("scope %d stands in a pool as of call %d; its oldest is %d", s.scope, s.age, s.oldest().Seq)
		}
	}
	if calls != l.count || units != l.units {
		broken("the line counts %d calls of %d units, and has %d of %d", l.count, l.units, calls, units)
	}
	for _, c := range l.turns {
		c.check()
	}
	l.checkNext()
}

// check: sums are those of the parts, and each part is in its heaps.
func (n *lane[W]) check() {
	calls, units, named := 0, int64(0), len(n.named)
	checkHeap(n.ages)
	checkHeap(n.turns)
	if n.plain != nil {
		named++
	}
	for _, p := range n.ages {
		if p.lane != n || n.partOf(p.name) != p || (p.turn == 0) != (p.flow == nil) || p.flow != nil && p.start > p.flow.start {
			broken("flow %q of priority %d is in another place, or starts too late", p.name, n.prio)
		}
		p.check()
		calls, units = calls+p.count, units+p.units
	}
	if calls != n.count || units != n.units || named != len(n.ages) || len(n.turns) > 0 && len(n.turns) != named {
		broken("priority %d counts %d calls of %d units in %d flows, and has %d of %d in %d", n.prio, n.count, n.units, named, calls, units, len(n.ages))
	}
	for i, s := range n.seats {
		if s.pool != n.station.line.pools[i] || s.lane != n || s.aside && s.isIn() || (s.place > 0) != (len(s.kept) > 0) {
			broken("priority %d has another place in pool %d, or in none, with %d tickets: %v", n.prio, i, len(s.kept), s.isIn())
		}
		checkHeap(s.kept)
	}
}

// check: calls are in the order of arrival, and their tickets where they say.
func (p *part[W]) check() {
	checkHeap(p.late)
	calls, units, amounts := 0, int64(0), make([]int64, len(p.tickets))
	p.each(func(c *Call[W]) bool {
		calls, units = calls+1, units+int64(c.Cost)
		if c.part != p || c.Seq < p.first().Seq || c.next != nil && (c.next.prev != c || c.next.Seq <= c.Seq) {
			broken("call %d of flow %q is not in its place", c.Seq, p.name)
		}
		for i, t := range p.tickets {
			amounts[i] += t.seat.pool.amount(c)
		}
		return true
	})
	if calls == 0 || calls != p.count || units != p.units || len(p.tickets) != len(p.lane.seats) {
		broken("flow %q counts %d calls of %d units, and has %d of %d, and %d tickets", p.name, p.count, p.units, calls, units, len(p.tickets))
	}
	for i, t := range p.tickets {
		in := t.seat.kept
		if t.out {
			in = t.flow.tickets
		}
		if t.part != p || t.seat != p.lane.seats[i] || t.seq != p.first().Seq || t.units != amounts[i] || t.start > t.flow.start || t.place == 0 || in[t.place-1] != t {
			broken("flow %q has a ticket that is not its own or not in its place: %+v; its calls take %d", p.name, t, amounts[i])
		}
	}
}

// check: flows that wait have parts, and those that are remembered have none.
func (c *class[W]) check() {
	parts, idle := 0, 0
	checkHeap(c.idle)
	checkHeap(c.turns)
	checkHeap(c.seats)
	for id, f := range c.flows {
		checkHeap(f.tickets)
		if parts += f.parts; f.parts == 0 {
			idle++
		}
		if f.id != id || f.class != c || len(f.tickets) > f.parts {
			broken("flow %v of priority %d has %d tickets of %d parts, or is another one", id, c.prio, len(f.tickets), f.parts)
		}
	}
	if parts == 0 || parts != c.parts || idle != len(c.idle) || idle > maxRemembered {
		broken("priority %d counts %d parts, and has %d; %d flows are remembered, %d should be", c.prio, c.parts, parts, len(c.idle), idle)
	}
}

// checkTurn: next is the call whose turn it is among all parts, which a plain search finds too. startOf is when a part's flow starts,
// and whether the flow is ahead.
func checkTurn[W any](next *Call[W], all []*part[W], served uint32, startOf func(*part[W]) (at float64, ahead bool)) {
	byAge := func(a, b *part[W]) int { return cmp.Compare(a.first().Seq, b.first().Seq) }
	want := slices.MinFunc(all, byAge)
	prio := want.lane.prio
	_, ahead := startOf(want)
	if served%fairEvery != fairEvery-1 {
		for _, p := range all {
			ahead, prio = true, max(prio, p.lane.prio)
		}
	}
	if ahead {
		all = slices.DeleteFunc(slices.Clone(all), func(p *part[W]) bool { return p.lane.prio != prio })
		want = slices.MinFunc(all, func(a, b *part[W]) int {
			as, _ := startOf(a)
			bs, _ := startOf(b)
			return cmp.Or(cmp.Compare(as, bs), byAge(a, b))
		})
	}
	if next != want.first() {
		broken("turn %d is that of call %d, priority %d, flow %q, and not of call %d", served, want.first().Seq, want.lane.prio, want.name, next.Seq)
	}
}

func (l *Line[W]) checkNext() {
	var all []*part[W]
	for _, s := range l.stations {
		if s.only != nil {
			return
		}
		for _, n := range s.lanes {
			all = append(all, n.ages...)
		}
	}
	if len(all) > 0 {
		checkTurn(l.Next(nil, time.Time{}), all, l.served, func(p *part[W]) (float64, bool) { return p.begins(), p.flow != nil && p.flow.isAhead() })
	}
}

// A census is what lines have in a pool.
type census[W any] struct {
	flows map[*flow[W]]sums
	live  []*part[W]
	in    int  // stations
	only  bool // one of them waits for a call, whatever the order says
}

type sums struct {
	all, sure    tally
	heads, parts int
}

func (p *Pool[W]) census(lines []*Line[W]) (all census[W]) {
	if len(lines) > 0 {
		all.flows = map[*flow[W]]sums{}
	}
	for _, l := range lines {
		at := slices.Index(l.pools, p)
		for _, s := range l.stations {
			if s.in == p {
				all.in++
			}
			for _, n := range s.lanes {
				all.add(n, at, s.in == p && !s.isDead)
			}
		}
	}
	return all
}

func (all *census[W]) add(n *lane[W], at int, inside bool) {
	s := n.station
	for _, p := range n.ages {
		t := p.tickets[at]
		its := all.flows[t.flow]
		its.parts++
		its.all.add(t.units, p.count)
		switch {
		case !inside:
		case s.counts:
			its.sure.add(t.units, p.count)
		case len(n.ages) == 1 && n == s.lanes[0]:
			its.heads++
		}
		all.flows[t.flow] = its
	}
	if inside {
		all.live, all.only = append(all.live, n.ages...), all.only || s.only != nil
	}
}

// Check panics if what the pool counts does not agree with lines, which are all that take of it.
func (p *Pool[W]) Check(lines []*Line[W]) {
	checkHeap(p.live)
	checkHeap(p.dead)
	checkHeap(p.tops)
	has, calls := p.census(lines), 0
	for prio, c := range p.turns {
		c.check()
		var all, sure int64
		for id, f := range c.flows {
			if its := (sums{f.all, f.sure, f.heads, f.parts}); its != has.flows[f] {
				broken("flow %v of priority %d counts %+v; it should be %+v", id, prio, its, has.flows[f])
			}
			all, sure, calls = all+f.all.units, sure+f.sure.units, calls+f.all.calls
		}
		if all != c.all || sure != c.sure {
			broken("priority %d counts %d units, and %d sure ones; it should be %d and %d", prio, c.all, c.sure, all, sure)
		}
	}
	if calls != p.calls || has.in != p.Live()+p.Dead() || len(p.tops) != len(p.live) {
		broken("a pool counts %d calls, and %d live scopes and %d dead ones; there are %d calls, and %d scopes in it", p.calls, p.Live(), p.Dead(), calls, has.in)
	}
	if len(has.live) > 0 && !has.only {
		next, _ := p.Next()
		checkTurn(next, has.live, p.served, func(part *part[W]) (float64, bool) {
			f := part.tickets[slices.Index(part.lane.station.line.pools, p)].flow
			return f.start, f.isAhead()
		})
	}
}
