package queue

import (
	"container/heap"
	"math"
	"slices"
)

// A level is the waiters of one priority and scope. Those who came in order stand in a queue: to put
// one in or take the first out touches no other waiter, where a heap of 100,000 reads thirty. Only
// those who came back to an older place, as retries do, are in a heap.
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
	prio  int32
	begin int32 // the index of the waiter in queue[0]; it wraps around at 2^31
	gaps  int   // in queue
	units int64
	queue []*waiter // by seq, nil where one has left; never in queue[0]
	late  []*waiter // a heap by seq; their index is -2 and below
	last  uint64    // the latest seq that ever came

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
	} else if l.take(w); len(l.queue)+len(l.late) == 0 {
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
	l.total, l.oldest = l.units, l.first()
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

// put puts w into its level.
//
// A call is late if a later one has been here before. An example: calls 3 and 6 stood in this level and
// have gone, so last is 6. Call 3 is throttled and comes back, at its old place: it goes to the heap.
// Call 7 is new and goes to the queue. Turns are 3, then 7.
func (l *level) put(w *waiter) {
	l.units += int64(w.cost)
	if w.seq > l.last {
		l.last = w.seq
		// begin counts all that have left the front. So an index stays right when the queue moves on:
		// it is counted from the first waiter that ever came, not from queue[0].
		w.index = (l.begin + int32(len(l.queue))) & math.MaxInt32
		l.queue = append(l.queue, w)
	} else {
		heap.Push(l, w)
	}
}

// take takes w out of its level.
func (l *level) take(w *waiter) {
	l.units -= int64(w.cost)
	if w.index < 0 {
		heap.Remove(l, -2-int(w.index))
	} else {
		l.unqueue(w)
	}
}

// unqueue takes w out of the queue, and the gaps that are then the first; all of them
// when they are the most.
//
// An example: the indexes 41, 42, 43 with a gap at 42. When 41 leaves, 42 goes with it: begin is 43.
// Taking out one in the middle costs the same as one in front. Closing up moves n waiters only after n
// have left, which makes one move for each that leaves.
func (l *level) unqueue(w *waiter) {
	l.queue[(w.index-l.begin)&math.MaxInt32] = nil
	w.index = -1
	l.gaps++
	for len(l.queue) > 0 && l.queue[0] == nil {
		l.queue = l.queue[1:]
		l.begin = (l.begin + 1) & math.MaxInt32
		l.gaps--
	}
	if l.gaps > len(l.queue)/2 {
		l.queue, l.gaps = slices.DeleteFunc(l.queue, func(w *waiter) bool { return w == nil }), 0
		for i, w := range l.queue {
			w.index = (l.begin + int32(i)) & math.MaxInt32
		}
	}
}

// first is the one who came first.
// There is one: an empty level is taken out of its tree. queue[0] is never a gap, and late[0] is the
// least of its heap, so two are compared.
func (l *level) first() *waiter {
	if len(l.queue) == 0 || len(l.late) > 0 && l.late[0].seq < l.queue[0].seq {
		return l.late[0]
	}
	return l.queue[0]
}

// before counts the units of those in l that came before seq.
// A newcomer is behind all of them, which needs no count. Only a call that comes back to an older place
// makes it go through the level.
func (l *level) before(seq uint64) (units int64) {
	if seq > l.last {
		return l.units
	}
	for _, w := range l.queue { // one that comes back to its old place: few are before it
		if w != nil {
			if w.seq >= seq {
				break
			}
			units += int64(w.cost)
		}
	}
	for _, w := range l.late {
		if w.seq < seq {
			units += int64(w.cost)
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
	for _, w := range l.queue {
		if w != nil {
			f(w)
		}
	}
	for _, w := range l.late {
		f(w)
	}
	l.below[1].each(f)
}

// ahead counts the units in the tree l, which may be nil, that go before one of that priority and place.
//
// It walks down from the root as a search does. At each level that goes before that priority, the level
// and all to its left go before too. In the picture at the top, a newcomer of priority 0: at 5, 1 unit
// to the left and 2 in it; at 0, 1 in it: 4 units go first.
func (l *level) ahead(prio int32, seq uint64) (units int64) {
	for l != nil {
		switch {
		case prio > l.prio:
			l = l.below[0]
		case prio < l.prio:
			units += l.below[0].treeUnits() + l.units
			l = l.below[1]
		default:
			return units + l.below[0].treeUnits() + l.before(seq)
		}
	}
	return units
}

// What container/heap needs.

// The heap is late. A waiter's index there is -2 minus its place, so the sign says where a waiter
// stands: 0 and above in the queue, -1 nowhere, -2 the top of the heap, -3 and -4 its children.
func (l *level) Len() int           { return len(l.late) }
func (l *level) Less(i, j int) bool { return l.late[i].seq < l.late[j].seq }

func (l *level) Swap(i, j int) {
	l.late[i], l.late[j] = l.late[j], l.late[i]
	l.late[i].index, l.late[j].index = int32(-2-i), int32(-2-j)
}

func (l *level) Push(w any) {
	w.(*waiter).index = int32(-2 - len(l.late))
	l.late = append(l.late, w.(*waiter))
}

func (l *level) Pop() any {
	last := len(l.late) - 1
	w := l.late[last]
	w.index, l.late[last], l.late = -1, nil, l.late[:last]
	return w
}
