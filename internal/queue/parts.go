package queue

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
)

// parts are the waiters of a level that name a flow, each flow's in a fifo of its own. Two
// heaps of them say whose turn it is: by virtual start, and by arrival for the turn of the
// one that has waited longest. A grant, an arrival and a departure cost O(log flows).
type parts struct {
	units int64
	of    map[*flow]*part
	piles [2]pile // by byStart and byAge
}

// A part is the waiters of one flow in one level. A flow has one in each scope, and with a
// shared line in each key, where its calls wait.
type part struct {
	fifo
	flow  *flow
	start float64 // the flow's, when the part was sorted last
	at    [2]int  // its places in the piles
}

// By what a pile is sorted.
const (
	byStart = iota
	byAge
)

func newParts() *parts {
	return &parts{of: map[*flow]*part{}, piles: [2]pile{{by: byStart}, {by: byAge}}}
}

// put puts w in. Most arrivals are behind others of their flow and change no heap.
func (ps *parts) put(w *waiter) {
	ps.units += int64(w.cost)
	p := ps.of[w.flow]
	if p == nil {
		p = &part{flow: w.flow, start: w.flow.start}
		p.put(w)
		ps.of[w.flow] = p
		for by := range ps.piles {
			heap.Push(&ps.piles[by], p)
		}
		return
	}
	p.put(w)
	if p.first() == w {
		ps.sort(p)
	}
}

// take takes w out, which is in. A part without waiters goes.
func (ps *parts) take(w *waiter) {
	ps.units -= int64(w.cost)
	p := ps.of[w.flow]
	if p.waiters() == 1 {
		for by := range ps.piles {
			heap.Remove(&ps.piles[by], p.at[by])
		}
		delete(ps.of, w.flow)
		p.take(w)
		return
	}
	first := p.first() == w
	if p.take(w); first {
		ps.sort(p)
	}
}

// sort puts p, whose first waiter is another one, in its places.
func (ps *parts) sort(p *part) {
	p.start = p.flow.start
	for by := range ps.piles {
		heap.Fix(&ps.piles[by], p.at[by])
	}
}

// next is the part whose flow starts first.
//
// An example: flow a has a part in each of two scopes, both sorted by its start of 500. A
// grant in the first scope makes that 501, and sorts only the part there. When the other one
// comes to the top, its 500 is seen to be old: it is sorted anew, by 501. So a grant costs
// the same in however many scopes and keys its flow waits.
func (ps *parts) next() *part {
	for {
		p := ps.piles[byStart].parts[0]
		if p.start >= p.flow.start {
			return p
		}
		p.start = p.flow.start
		heap.Fix(&ps.piles[byStart], 0)
	}
}

// eldest is the waiter that came first.
func (ps *parts) eldest() *waiter { return ps.piles[byAge].parts[0].first() }

// before counts the units that start before until, without those of a flow. Of more than
// mostFlows parts some, evenly picked, stand for the others, see class.ahead.
func (ps *parts) before(until float64, without *flow) (units int64) {
	all := ps.piles[byStart].parts
	step := 1 + len(all)/mostFlows
	for i := 0; i < len(all); i += step {
		if p := all[i]; p.flow != without {
			units += unitsBefore(until, max(p.flow.class.now, p.flow.start), p.flow.weight, p.units, p.waiters())
		}
	}
	return units * int64(step)
}

// A pile is a heap of parts, for container/heap. Of flows with the same start, the one that
// has waited longest is first: so newcomers go in the order of their arrival.
type pile struct {
	parts []*part
	by    int
}

func (h *pile) Len() int { return len(h.parts) }

func (h *pile) Less(i, j int) bool {
	a, b := h.parts[i], h.parts[j]
	if h.by == byStart && a.start != b.start {
		return a.start < b.start
	}
	return a.first().seq < b.first().seq
}

func (h *pile) Swap(i, j int) {
	h.parts[i], h.parts[j] = h.parts[j], h.parts[i]
	h.parts[i].at[h.by], h.parts[j].at[h.by] = i, j
}

func (h *pile) Push(p any) {
	p.(*part).at[h.by] = len(h.parts)
	h.parts = append(h.parts, p.(*part))
}

func (h *pile) Pop() any {
	last := len(h.parts) - 1
	p := h.parts[last]
	h.parts[last], h.parts = nil, h.parts[:last]
	return p
}

// mostNamed is how many flows Stats shows apart.
const mostNamed = 100

// named reports whether a waiter names a flow.
func (r *ranks) named() bool {
	return slices.ContainsFunc(r.scopes, func(s scope) bool { return s.root.named() })
}

// named reports whether a waiter in the tree l, which may be nil, names a flow.
func (l *level) named() bool {
	return l != nil && (l.parts != nil || l.below[0].named() || l.below[1].named())
}

// byName counts the waiters of each flow, the smaller ones of many together as "_other"; nil:
// none is named.
func (r *ranks) byName() map[string]int {
	if !r.named() {
		return nil
	}
	all := map[string]int{}
	for i := range r.scopes {
		r.scopes[i].root.count(all)
	}
	if len(all) <= mostNamed {
		return all
	}
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(all[b], all[a]), cmp.Compare(a, b))
	})
	others := 0
	for _, name := range names[mostNamed:] {
		others += all[name]
		delete(all, name)
	}
	all["_other"] += others
	return all
}

// count adds the waiters of each flow in the tree l, which may be nil, to all.
func (l *level) count(all map[string]int) {
	if l == nil {
		return
	}
	if n := l.waiters(); n > 0 {
		all[""] += n
	}
	if l.parts != nil {
		for f, p := range l.parts.of {
			all[f.id.name] += p.waiters()
		}
	}
	l.below[0].count(all)
	l.below[1].count(all)
}
