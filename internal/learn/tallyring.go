package learn

import "time"

const tallySlots = 32 // of a tallyRing, in a span

// A tallyRing counts units by time, to 1/16 of the longest span that is asked for.
type tallyRing struct {
	slots [tallySlots + 2]float32
	width time.Duration
	last  time.Time // when the newest slot began
	head  int
}

// add counts units at at, for spans of window.
func (r *tallyRing) add(units float64, at time.Time, window time.Duration) {
	if window <= 0 {
		window = noWindowTold
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

// widen makes each two slots one.
func (r *tallyRing) widen() {
	wide := tallyRing{width: 2 * r.width, last: r.last.Add(-r.width)}
	for i := range r.slots {
		wide.slots[(len(wide.slots)-i/2)%len(wide.slots)] += r.slots[(r.head-i+len(r.slots))%len(r.slots)]
	}
	*r = wide
}

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

// sum is the units counted in the span before now, rounded up to whole slots.
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
