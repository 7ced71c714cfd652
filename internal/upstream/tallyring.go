package upstream

import "time"

// tallySlots is into how many slots the longest span is divided, at least.
const tallySlots = 32

// A tallyRing counts units by time, to 1/16 of the longest span that is asked for: a ring of slots, each of
// which counts what came within width. Example: for spans of 3.2 s a slot is 100 ms wide. For spans of 5 s
// each two slots become one of 200 ms.
type tallyRing struct {
	slots [tallySlots + 2]float32 // units
	width time.Duration           // of a slot
	last  time.Time               // when the newest slot began
	head  int                     // its place
}

// add counts units at at, for spans of window. A window that has become longer makes the slots wider; what was
// counted stays. Negative units take back a start.
func (r *tallyRing) add(units float64, at time.Time, window time.Duration) {
	if window <= 0 {
		window = noWindowGiven
	}
	w := max(1, window/tallySlots)
	if r.last.IsZero() {
		r.width, r.last = w, at
	}
	for r.width < w {
		r.widen()
	}
	r.move(at)
	r.slots[r.head] += float32(units)
}

// widen makes each two slots one, the newest with the one before it.
func (r *tallyRing) widen() {
	wide := tallyRing{width: 2 * r.width, last: r.last.Add(-r.width)}
	for i := range r.slots {
		wide.slots[(len(wide.slots)-i/2)%len(wide.slots)] += r.slots[(r.head-i+len(r.slots))%len(r.slots)]
	}
	*r = wide
}

// move makes the slot of now the newest, and empties those in between.
func (r *tallyRing) move(now time.Time) {
	n := now.Sub(r.last) / r.width
	for range min(n, time.Duration(len(r.slots))) {
		r.head = (r.head + 1) % len(r.slots)
		r.slots[r.head] = 0
	}
	if n > 0 {
		r.last = r.last.Add(n * r.width)
	}
}

// sum is the units counted in the span before now, rounded up to whole slots. It errs by counting too
// many: with too few of our own starts, others would be seen where there are none.
func (r *tallyRing) sum(now time.Time, span time.Duration) (units float64) {
	from := now.Add(-span)
	for i := range r.slots {
		if begun := r.last.Add(-time.Duration(i) * r.width); begun.Add(r.width).Before(from) {
			break
		}
		units += float64(r.slots[(r.head-i+len(r.slots))%len(r.slots)])
	}
	return units
}
