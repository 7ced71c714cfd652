package queue

import (
	"time"

	"github.com/go-throttle/throttle/internal/meter"
)

// This file is what an attempt holds of meters that learn what calls cost, see package meter, and what it is charged of them
// while its body passes.
//
// # What is charged as it streams
//
// With Streams the rest is charged as the body passes: each byte at what bytes have cost on average, so much ahead of what was read
// as was held, but never more than the cap. The last word of the answer corrects it.
//
// Example: 100 bytes of a stream cost 10 units, 30 units a second, and 300 are held of a cap of 4,096. After 5 s 1,500 bytes have come,
// which are 150 units: 450 are charged now. At its end, after 12 s, the answer says 400 units, and 210 of 610 come back.
//
// # Races
//
// A Pass and the settlement decide under Meters.mu which comes first: what Pass charges before it is corrected by it, and after
// it Pass charges nothing.

// chargeEach is how many parts of the lead are charged at once.
const chargeEach = 8

// A claim is what is known of one meter of an attempt, beside what it holds, if that is learned.
type claim struct {
	limit int  // the cap
	given bool // by the caller: nothing else is held
	more  int  // charged above what is held, while the body passed; under Meters.mu
}

// learned is what a call is to hold of meter i, of which it may cost that much.
func (m *Meters) learned(i, limit int) (n int) {
	m.count(func() { n = m.learners[i].Hold(limit, m.each[i].Streams) })
	return n
}

// renewLocked prepares the attempt to be asked whether it may go: what it is to hold is what is known by now, because it may have stood
// in line for long, and what calls hold in flight is kept out of what the meter earns, see limit.Set.Reserve: as much of
// it as calls use in the end.
func (h *Holds) renewLocked(now time.Time) {
	m := h.meters
	for i, one := range m.each {
		if m.learners[i] == nil {
			continue
		}
		if c := &h.claims[i]; !c.given {
			n := m.learned(i, c.limit)
			if h.waits {
				m.waiting[i] += int64(n - h.amounts[1+i])
			}
			h.amounts[1+i] = n
		}
		e, _ := m.settled(i)
		held := float64(m.held[i] - e.held)
		if e.held > 0 && !one.Streams {
			held *= min(1, float64(e.cost())/float64(e.held))
		}
		one.Limits.Reserve(now, int64(held))
	}
}

// Pass notes that so many bytes and events more of the attempt's body were read, and charges what they have used of meters that Streams.
// It charges in steps of an eighth of what is held, so that those who wait are not looked at for each event.
func (h *Holds) Pass(bytes, events int) {
	if h.claims == nil {
		return
	}
	for i, one := range h.meters.each {
		if h.meters.learners[i] == nil || !one.Streams {
			continue
		}
		if charged, due := h.pass(i, meter.Length{Bytes: int64(bytes), Events: int64(events)}); due > charged {
			one.Limits.Settle(h.taken, charged, due)
		}
		bytes, events = 0, 0 // counted
	}
}

// pass is Pass of meter i under Meters.mu. It returns what was charged, and what is to be from now on.
func (h *Holds) pass(i int, more meter.Length) (charged, due int) {
	h.meters.mu.Lock()
	defer h.meters.mu.Unlock()
	h.read.Bytes, h.read.Events = h.read.Bytes+more.Bytes, h.read.Events+more.Events
	if h.open&(1<<i) == 0 {
		return 0, 0
	}
	c, held := &h.claims[i], h.Held(i)
	charged = held + c.more
	due = min(held+h.meters.learners[i].Passed(h.read), c.limit)
	if due-charged < held/chargeEach+1 && due < c.limit {
		return charged, charged
	}
	c.more = max(c.more, due-held)
	return charged, held + c.more
}
