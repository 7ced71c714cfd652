package line

// A fifo is calls in the order of arrival. Newcomers are linked to each other: to put one in, or take one out, touches two
// others, where a heap of 100,000 reads thirty. Those who come back to an older place, as retries do, are in a heap.
// The zero value is empty.
//
// An example: calls 3 and 6 have gone, and 7, 8 and 9 wait. Call 3 is throttled and comes back: it is in the heap, and
// first.
type fifo[W any] struct {
	head, tail *Call[W]
	late       places[*Call[W]] // by Seq; each knows its place
	units      int64
	count      int
}

// first is the one who came first; nil: there is none.
func (f *fifo[W]) first() *Call[W] {
	if len(f.late) > 0 && (f.head == nil || f.late[0].Seq < f.head.Seq) {
		return f.late[0]
	}
	return f.head
}

// put puts c in.
func (f *fifo[W]) put(c *Call[W]) {
	f.count++
	f.units += int64(c.Cost)
	switch {
	case f.tail == nil:
		f.head, f.tail = c, c
	case f.tail.Seq < c.Seq:
		c.prev, f.tail.next, f.tail = f.tail, c, c
	default:
		f.late.put(c)
	}
}

// take takes c out, which is in.
func (f *fifo[W]) take(c *Call[W]) {
	f.count--
	f.units -= int64(c.Cost)
	if c.place > 0 {
		f.late.take(c)
		return
	}
	if c.prev == nil {
		f.head = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		f.tail = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
}

// before counts the units of those in f that came before seq. A newcomer is behind all of them, which needs no walk.
func (f *fifo[W]) before(seq uint64) (units int64) {
	for _, c := range f.late {
		if c.Seq < seq {
			units += int64(c.Cost)
		}
	}
	if f.tail == nil || f.tail.Seq < seq {
		units = f.units
		for _, c := range f.late {
			if c.Seq >= seq {
				units -= int64(c.Cost)
			}
		}
		return units
	}
	for c := f.head; c != nil && c.Seq < seq; c = c.next {
		units += int64(c.Cost)
	}
	return units
}

// each visits all who are in, until visit says no.
func (f *fifo[W]) each(visit func(*Call[W]) bool) bool {
	for _, c := range f.late {
		if !visit(c) {
			return false
		}
	}
	for c := f.head; c != nil; c = c.next {
		if !visit(c) {
			return false
		}
	}
	return true
}

func (c *Call[W]) before(o *Call[W]) bool { return c.Seq < o.Seq }
func (c *Call[W]) at() *int32             { return &c.place }

// A placed thing stands in one heap at a time, and knows where.
type placed[T any] interface {
	before(T) bool
	at() *int32 // its place, counted from 1; 0: it is in none
}

// places is a heap of them. container/heap would ask for each comparison through an interface.
type places[T placed[T]] []T

// put puts t in, or in its place if it is in already.
func (h *places[T]) put(t T) {
	if *t.at() == 0 {
		*h = append(*h, t)
		*t.at() = int32(len(*h))
	}
	h.sift(t)
}

// take takes t out, if it is in.
func (h *places[T]) take(t T) {
	at := int(*t.at()) - 1
	if at < 0 {
		return
	}
	last := len(*h) - 1
	moved := (*h)[last]
	var none T
	(*h)[last], *h = none, (*h)[:last]
	*t.at() = 0
	if at < last {
		(*h)[at], *moved.at() = moved, int32(at)+1
		h.sift(moved)
	}
}

// sift puts t, which is in, in its place.
func (h places[T]) sift(t T) {
	i := int(*t.at()) - 1
	for i > 0 && t.before(h[(i-1)/2]) {
		i = h.move((i-1)/2, i)
	}
	for below := 2*i + 1; below < len(h); below = 2*i + 1 {
		if below+1 < len(h) && h[below+1].before(h[below]) {
			below++
		}
		if !h[below].before(t) {
			break
		}
		i = h.move(below, i)
	}
	h[i], *t.at() = t, int32(i)+1
}

// move puts what is in one place into another, and returns the first.
func (h places[T]) move(from, to int) int {
	h[to] = h[from]
	*h[to].at() = int32(to) + 1
	return from
}

// byTurn orders by virtual time, and then by arrival.
func byTurn(start, other float64, seq, otherSeq uint64) bool {
	return start < other || start == other && seq < otherSeq
}
