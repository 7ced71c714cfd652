package throttle

import "time"

const tallySlots = 32 // of a tallyRing, in a span

// A tallyRing counts units by time, to 1/32 of the span that is asked for.
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
	if w := max(1, window/tallySlots); r.last.IsZero() || w != r.width {
		if r.last.IsZero() || w > 2*r.width || w < r.width/2 { // what was counted is put into the newest slot
			total := float32(0)
			for _, s := range r.slots {
				total += s
			}
			*r = tallyRing{width: w, last: at}
			r.slots[0] = total
		}
	}
	r.move(at)
	r.slots[r.head] += float32(units)
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
	if r.last.IsZero() {
		return 0
	}
	from := now.Add(-span)
	for i := range r.slots {
		if begun := r.last.Add(-time.Duration(i) * r.width); begun.Add(r.width).Before(from) {
			break
		}
		units += float64(r.slots[(r.head-i+len(r.slots))%len(r.slots)])
	}
	return units
}
