package queue

import (
	"container/heap"
	"math"
)

// chunkLen is how many places a chunk of a fifo has. With one slice for all, a line of 20,000
// would hold up to 25 bytes a waiter, because a slice grows by a quarter and is copied.
const chunkLen = 64

// A fifo is waiters in the order of their seq. Those who came in order stand in places: to
// put one in or take the first out touches no other waiter, where a heap of 100,000 reads
// thirty. Only those who came back to an older place, as retries do, are in a heap. The zero
// value is empty.
//
// The places are in chunks, so that a fifo grows and shrinks by 64 places, whatever its
// length. Place 0 is chunks[0][head]. An example with chunks of 4, a gap at x, and head 2:
//
//	chunks    [- - 41 x] [43 44 45 46] [47]
//	place          0  1    2  3  4  5    6
type fifo struct {
	begin  int32 // the index of the waiter in place 0; it wraps around at 2^31
	head   int32 // see above
	places int32 // with the gaps
	gaps   int32 // places whose waiter has left; never place 0
	units  int64
	chunks [][]*waiter // each of chunkLen, but for the last
	late   []*waiter   // a heap by seq; their index is -2 and below
	last   uint64      // the latest seq that ever came
}

// waiters counts those in f.
func (f *fifo) waiters() int { return int(f.places-f.gaps) + len(f.late) }

// at is the waiter in a place; nil: it has left.
func (f *fifo) at(place int32) **waiter {
	place += f.head
	return &f.chunks[place/chunkLen][place%chunkLen]
}

// put puts w in.
//
// A call is late if a later one has been here before. An example: calls 3 and 6 stood in this
// fifo and have gone, so last is 6. Call 3 is throttled and comes back, at its old place: it
// goes to the heap. Call 7 is new and goes to the places. Turns are 3, then 7.
func (f *fifo) put(w *waiter) {
	f.units += int64(w.cost)
	if w.seq > f.last {
		f.last = w.seq
		f.push(w)
	} else {
		heap.Push(f, w)
	}
}

// push puts w in the next place.
//
// begin counts all that have left the front. So an index stays right when the places move on:
// it is counted from the first waiter that ever came, not from place 0.
func (f *fifo) push(w *waiter) {
	w.index = (f.begin + f.places) & math.MaxInt32
	end := len(f.chunks) - 1
	switch {
	case end < 0: // most are short, so the first chunk grows as any slice does
		f.chunks = append(f.chunks, nil)
		end++
	case len(f.chunks[end]) == chunkLen:
		f.chunks = append(f.chunks, make([]*waiter, 0, chunkLen))
		end++
	}
	f.chunks[end] = append(f.chunks[end], w)
	f.places++
}

// take takes w out, which is in.
func (f *fifo) take(w *waiter) {
	f.units -= int64(w.cost)
	if w.index < 0 {
		heap.Remove(f, -2-int(w.index))
	} else {
		f.vacate(w)
	}
}

// vacate takes w out of its place, with the gaps that are then the first; all of them when
// they are the most.
//
// An example: the indexes 41, 42, 43 with a gap at 42. When 41 leaves, 42 goes with it: begin
// is 43. Taking out one in the middle costs the same as one in front. Closing up moves n
// waiters only after n have left, which makes one move for each that leaves.
func (f *fifo) vacate(w *waiter) {
	*f.at((w.index - f.begin) & math.MaxInt32) = nil
	w.index = -1
	f.gaps++
	for f.places > 0 && *f.at(0) == nil {
		f.begin = (f.begin + 1) & math.MaxInt32
		f.places--
		f.gaps--
		if f.head++; int(f.head) == len(f.chunks[0]) {
			f.chunks, f.head = f.chunks[1:], 0
		}
	}
	if f.gaps > f.places/2 {
		old := *f
		f.chunks, f.head, f.places, f.gaps = nil, 0, 0, 0
		for i := range old.places {
			if w := *old.at(i); w != nil {
				f.push(w)
			}
		}
	}
}

// first is the one who came first. There is one: place 0 is never a gap, and late[0] is the
// least of its heap, so two are compared.
func (f *fifo) first() *waiter {
	if f.places == 0 {
		return f.late[0]
	}
	w := *f.at(0)
	if len(f.late) > 0 && f.late[0].seq < w.seq {
		return f.late[0]
	}
	return w
}

// before counts the units of those in f that came before seq. A newcomer is behind all of
// them, which needs no count. Only a call that comes back to an older place makes it go
// through the fifo.
func (f *fifo) before(seq uint64) (units int64) {
	if seq > f.last {
		return f.units
	}
	for i := range f.places { // one that comes back to its old place: few are before it
		if w := *f.at(i); w != nil {
			if w.seq >= seq {
				break
			}
			units += int64(w.cost)
		}
	}
	for _, w := range f.late {
		if w.seq < seq {
			units += int64(w.cost)
		}
	}
	return units
}

// each visits all who are in.
func (f *fifo) each(visit func(*waiter)) {
	for i := range f.places {
		if w := *f.at(i); w != nil {
			visit(w)
		}
	}
	for _, w := range f.late {
		visit(w)
	}
}

// What container/heap needs.

// The heap is late. A waiter's index there is -2 minus its place, so the sign says where a
// waiter stands: 0 and above in the places, -1 nowhere, -2 the top of the heap, -3 and -4 its
// children.
func (f *fifo) Len() int           { return len(f.late) }
func (f *fifo) Less(i, j int) bool { return f.late[i].seq < f.late[j].seq }

func (f *fifo) Swap(i, j int) {
	f.late[i], f.late[j] = f.late[j], f.late[i]
	f.late[i].index, f.late[j].index = int32(-2-i), int32(-2-j)
}

func (f *fifo) Push(w any) {
	w.(*waiter).index = int32(-2 - len(f.late))
	f.late = append(f.late, w.(*waiter))
}

func (f *fifo) Pop() any {
	last := len(f.late) - 1
	w := f.late[last]
	w.index, f.late[last], f.late = -1, nil, f.late[:last]
	return w
}
