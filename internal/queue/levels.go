package queue

import (
	"container/heap"
	"math"
	"slices"
)

// A Level is the waiters of one priority and scope. Those who came in order stand in a queue: to put
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
type Level struct {
	prio  int32
	begin int32 // the Index of the waiter in queue[0]; it wraps around at 2^31
	gaps  int   // in queue
	units int64
	queue []*Waiter // by Seq, nil where one has left; never in queue[0]
	late  []*Waiter // a heap by Seq; their Index is -2 and below
	last  uint64    // the latest Seq that ever came

	below  [2]*Level // the trees of higher and of lower priorities; nil: none
	total  int64     // units in the whole tree
	oldest *Waiter   // of the whole tree
}

// with puts w into the tree l and returns the new tree.
func (l *Level) with(w *Waiter) *Level {
	switch {
	case l == nil:
		l = &Level{prio: w.Prio}
		l.put(w)
	case w.Prio == l.prio:
		l.put(w)
	default:
		side := l.side(w.Prio)
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
func (l *Level) without(w *Waiter) *Level {
	if w.Prio != l.prio {
		side := l.side(w.Prio)
		l.below[side] = l.below[side].without(w)
	} else if l.take(w); len(l.queue)+len(l.late) == 0 {
		return join(l.below[0], l.below[1])
	}
	l.sum()
	return l
}

// join makes one tree of two; all of a goes before all of b.
func join(a, b *Level) *Level {
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
func (l *Level) side(prio int32) int {
	if prio > l.prio {
		return 0
	}
	return 1
}

// weight looks random: it is the end of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom
// Number Generators, 2014).
func (l *Level) weight() uint64 {
	x := uint64(uint32(l.prio)) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// sum renews what l knows of its tree.
func (l *Level) sum() {
	l.total, l.oldest = l.units, l.first()
	for _, b := range l.below {
		if b != nil {
			l.total += b.total
			if b.oldest.Seq < l.oldest.Seq {
				l.oldest = b.oldest
			}
		}
	}
}

// treeUnits are the units in the tree l, which may be nil.
func (l *Level) treeUnits() int64 {
	if l == nil {
		return 0
	}
	return l.total
}

// highest is the level of the highest priority.
func (l *Level) highest() *Level {
	for l.below[0] != nil {
		l = l.below[0]
	}
	return l
}

// put puts w into its level.
func (l *Level) put(w *Waiter) {
	l.units += int64(w.Cost)
	if w.Seq > l.last {
		l.last = w.Seq
		w.Index = (l.begin + int32(len(l.queue))) & math.MaxInt32
		l.queue = append(l.queue, w)
	} else {
		heap.Push(l, w)
	}
}

// take takes w out of its level.
func (l *Level) take(w *Waiter) {
	l.units -= int64(w.Cost)
	if w.Index < 0 {
		heap.Remove(l, -2-int(w.Index))
	} else {
		l.unqueue(w)
	}
}

// unqueue takes w out of the queue, and the gaps that are then the first; all of them
// when they are the most.
func (l *Level) unqueue(w *Waiter) {
	l.queue[(w.Index-l.begin)&math.MaxInt32] = nil
	w.Index = -1
	l.gaps++
	for len(l.queue) > 0 && l.queue[0] == nil {
		l.queue = l.queue[1:]
		l.begin = (l.begin + 1) & math.MaxInt32
		l.gaps--
	}
	if l.gaps > len(l.queue)/2 {
		l.queue, l.gaps = slices.DeleteFunc(l.queue, func(w *Waiter) bool { return w == nil }), 0
		for i, w := range l.queue {
			w.Index = (l.begin + int32(i)) & math.MaxInt32
		}
	}
}

// first is the one who came first.
func (l *Level) first() *Waiter {
	if len(l.queue) == 0 || len(l.late) > 0 && l.late[0].Seq < l.queue[0].Seq {
		return l.late[0]
	}
	return l.queue[0]
}

// before counts the units of those in l that came before seq.
func (l *Level) before(seq uint64) (units int64) {
	if seq > l.last {
		return l.units
	}
	for _, w := range l.queue { // one that comes back to its old place: few are before it
		if w != nil {
			if w.Seq >= seq {
				break
			}
			units += int64(w.Cost)
		}
	}
	for _, w := range l.late {
		if w.Seq < seq {
			units += int64(w.Cost)
		}
	}
	return units
}

// each visits all waiters of the tree l, which may be nil, by priority.
func (l *Level) each(f func(*Waiter)) {
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
func (l *Level) ahead(prio int32, seq uint64) (units int64) {
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

func (l *Level) Len() int           { return len(l.late) }
func (l *Level) Less(i, j int) bool { return l.late[i].Seq < l.late[j].Seq }

func (l *Level) Swap(i, j int) {
	l.late[i], l.late[j] = l.late[j], l.late[i]
	l.late[i].Index, l.late[j].Index = int32(-2-i), int32(-2-j)
}

func (l *Level) Push(w any) {
	w.(*Waiter).Index = int32(-2 - len(l.late))
	l.late = append(l.late, w.(*Waiter))
}

func (l *Level) Pop() any {
	last := len(l.late) - 1
	w := l.late[last]
	w.Index, l.late[last], l.late = -1, nil, l.late[:last]
	return w
}
