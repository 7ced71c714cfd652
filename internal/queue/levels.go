package queue

// A level is the waiters of one priority and scope.
//
// The levels of a scope are a search tree, higher priorities to the left. Each knows the sum of the
// units in the tree below it, itself included, and who came first there. With four calls of one unit:
//
//	                  priority 5: calls 3, 6
//	                  4 units, oldest 1           (of the whole tree)
//	                /                        \
//	priority 9: call 4                        priority 0: call 1
//	1 unit, oldest 4                          1 unit, oldest 1
//
// By priority the turn is that of the leftmost level, call 4. The oldest stands at the root: call 1.
// Before a newcomer of priority 5 goes all to the left of its level and what is in it: 1 + 2 units.
//
// The tree is a treap: it is also a heap by weight, which depends on nothing but the priority and
// looks random. So its shape is that of a tree into which the levels were put in random order, and
// its depth about 2·ln(levels), whatever comes and goes.
type level struct {
	fifo         // of the calls that name no flow
	parts *parts // of those that do; nil: nobody does
	prio  int32

	below  [2]*level // the trees of higher and of lower priorities; nil: none
	total  int64     // units in the whole tree
	oldest *waiter   // of the whole tree
}

// with puts w into the tree l and returns the new tree.
//
// A new level is put in as a leaf, where a plain search tree would have it. On the way back up the
// recursion it changes places with its parent for as long as it weighs more. Each change is a rotation:
// it keeps the order from left to right. An example with the weights 9: 90, 5: 70, 0: 40, 7: 30, when
// priority 9 is new:
//
//	    5                  5                 9
//	   / \     9 and 7    / \    9 and 5      \
//	  7   0    change    9   0   change        5
//	 /          -->       \       -->         / \
//	9                      7                 7   0
//
// In the second step 7, all between 9 and 5, goes from the right of 9 to the left of 5. Only the levels
// on the path have other sums then, and each is renewed as the recursion returns.
func (l *level) with(w *waiter) *level {
	switch {
	case l == nil:
		l = &level{prio: w.prio}
		l.put(w)
	case w.prio == l.prio:
		l.put(w)
	default:
		side := l.side(w.prio)
		child := l.below[side].with(w)
		l.below[side] = child
		if child.weight() > l.weight() { // a new level: it rises, and l becomes its child
			l.below[side], child.below[1-side] = child.below[1-side], l
			l.sum()
			l = child
		}
	}
	l.sum()
	return l
}

// without takes w out of the tree l and returns the new tree.
//
// A level without waiters goes, and the trees below it are joined in its place. So the tree has as many
// levels as there are priorities in use, and no empty ones to step over.
func (l *level) without(w *waiter) *level {
	if w.prio != l.prio {
		side := l.side(w.prio)
		l.below[side] = l.below[side].without(w)
	} else if l.take(w); l.waiters() == 0 && l.parts == nil {
		return join(l.below[0], l.below[1])
	}
	l.sum()
	return l
}

// join makes one tree of two; all of a goes before all of b.
// The heavier root stays the root, so that the weights stay in the order of a heap, and the other tree
// goes down the side that faces it. When level 5 of the example at with is left by its last waiter, 7
// (weight 30) and 0 (weight 40) are joined: 0 becomes the root, with 7 to its left.
func join(a, b *level) *level {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.weight() > b.weight():
		a.below[1] = join(a.below[1], b)
		a.sum()
		return a
	}
	b.below[0] = join(a, b.below[0])
	b.sum()
	return b
}

// side is where that priority, not l's own, stands below l.
func (l *level) side(prio int32) int {
	if prio > l.prio {
		return 0
	}
	return 1
}

// The same priority always has the same weight. So a tree's shape depends on nothing but the priorities
// in it: not on their order of arrival, and an unlucky order cannot make it deep.
// weight looks random: it is the end of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom
// Number Generators, 2014).
func (l *level) weight() uint64 {
	x := uint64(uint32(l.prio)) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// sum renews what l knows of its tree.
// It reads only l and its two children, whose own sums must be right. So whoever changes a level calls
// sum from there up to the root.
func (l *level) sum() {
	if l.total, l.oldest = l.units, nil; l.parts == nil {
		l.oldest = l.first()
	} else {
		l.total, l.oldest = l.all(), l.eldest()
	}
	for _, b := range l.below {
		if b != nil {
			l.total += b.total
			if b.oldest.seq < l.oldest.seq {
				l.oldest = b.oldest
			}
		}
	}
}

// treeUnits are the units in the tree l, which may be nil.
func (l *level) treeUnits() int64 {
	if l == nil {
		return 0
	}
	return l.total
}

// highest is the level of the highest priority.
func (l *level) highest() *level {
	for l.below[0] != nil {
		l = l.below[0]
	}
	return l
}

// find returns the level of a priority in the tree l, which may be nil; nil if there is none.
func (l *level) find(prio int32) *level {
	for l != nil && l.prio != prio {
		l = l.below[l.side(prio)]
	}
	return l
}

// put puts w into its level, and take takes it out.
func (l *level) put(w *waiter) {
	if w.wants&apart != 0 {
		l.putApart(w)
	} else {
		l.fifo.put(w)
	}
}

func (l *level) take(w *waiter) {
	if w.wants&apart != 0 {
		l.takeApart(w)
	} else {
		l.fifo.take(w)
	}
}

// putApart puts w with those of its flow.
func (l *level) putApart(w *waiter) {
	if l.parts == nil {
		l.parts = newParts()
	}
	l.parts.put(w)
}

// takeApart takes w from those of its flow.
func (l *level) takeApart(w *waiter) {
	if l.parts.take(w); len(l.parts.of) == 0 {
		l.parts = nil
	}
}

// all are the units in the level.
func (l *level) all() int64 {
	if l.parts == nil {
		return l.units
	}
	return l.units + l.parts.units
}

// eldest is the waiter of the level that came first. There is one.
func (l *level) eldest() *waiter {
	if l.parts == nil {
		return l.first()
	}
	w := l.parts.eldest()
	if l.waiters() > 0 && l.first().seq < w.seq {
		return l.first()
	}
	return w
}

// next is the first waiter of the flow that starts first; nil: l is nil.
func (l *level) next(fs flows) *waiter {
	switch {
	case l == nil:
		return nil
	case l.parts == nil:
		return l.first()
	}
	w := l.parts.next().first()
	if l.waiters() > 0 && fs.before(l.first(), w) {
		return l.first()
	}
	return w
}

// before counts the units of those in l that came before seq.
func (l *level) before(seq uint64) int64 {
	units := l.fifo.before(seq)
	if l.parts != nil {
		for _, p := range l.parts.piles[byAge].parts {
			units += p.before(seq)
		}
	}
	return units
}

// each visits all waiters of the tree l, which may be nil, by priority.
func (l *level) each(f func(*waiter)) {
	if l == nil {
		return
	}
	l.below[0].each(f)
	l.fifo.each(f)
	if l.parts != nil {
		for _, p := range l.parts.piles[byAge].parts {
			p.each(f)
		}
	}
	l.below[1].each(f)
}

// ahead counts the units in the tree l, which may be nil, that go before one of that priority and place.
func (l *level) ahead(prio int32, seq uint64) int64 {
	units := l.above(prio)
	if at := l.find(prio); at != nil {
		units += at.before(seq)
	}
	return units
}

// above counts the units in the tree l, which may be nil, of higher priorities.
//
// It walks down from the root as a search does. At each level that goes before that priority, the level
// and all to its left go before too. In the picture at the top, for a newcomer of priority 0: at 5, 1 unit
// to the left and 2 in it. With the 1 in level 0 itself, which came before it, 4 units go first.
func (l *level) above(prio int32) (units int64) {
	for l != nil {
		switch {
		case prio > l.prio:
			l = l.below[0]
		case prio < l.prio:
			units += l.below[0].treeUnits() + l.all()
			l = l.below[1]
		default:
			return units + l.below[0].treeUnits()
		}
	}
	return units
}
