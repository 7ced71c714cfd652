package queue

import (
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"
)

// This file learns what calls cost of a meter, where the upstream does not hold the most that they may cost. To hold that
// would leave much of the limit unused: calls that may be answered with 4,096 tokens get 200 in the middle.
//
// # What is held
//
//	the cap    what Meter.Hold says of the request, while fewer than 30 calls are known, and at most ever
//	learned    what 95 of 100 calls cost at most, of the last 256 with a cap of the same power of two
//	the lead   with Streams: what a call is charged in 10 s on average, if that is less
//
// Only what an answer says at its end is learned, or a Bill: of an answer that was cut it is not known what it would have cost.
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
// A learner has a lock of its own, the last of all, because settlements take none of the queue's. A Pass and the settlement decide
// under Meters.mu which comes first: what Pass charges before it is corrected by it, and after it Pass charges nothing.

const (
	learnedOf   = 256              // calls
	learnedFrom = 30               // of them
	learnedEach = 8                // calls, after which it is looked up again what most of them cost
	learnedMost = 0.95             // of them cost at most what is held
	leadTime    = 10 * time.Second // what is charged in it is held of a stream
	leadFrom    = 4                // streams, after which that is known
	chargeEach  = 8                // parts of the lead are charged at once
	learnFade   = 1.0 / 64         // of each sum goes with the next call
)

// A learner knows what calls have cost of a meter. Each attempt looks at it twice, when it is to hold something and when its answer has
// ended, and each piece of a stream once more, so its lock is held for sums of a few products, and now and then for a sort of
// 256 numbers.
type learner struct {
	mu   sync.Mutex
	by   [33]*costs // the caps, by the number of their bits
	n    int        // streams
	sums struct {   // of the last calls
		units, seconds                 float64
		bb, be, ee, unitsByB, unitsByE float64 // products of bytes, events and units
	}
}

// costs are those of calls with about the same cap.
type costs struct {
	ring  [learnedOf]int32
	n     int // calls so far
	usual int // what most of them cost at most; 0: not known
}

// note takes in what one more call has cost. Example: 30 calls cost 10, 20, 30 and so on to 300. 95 of 100 of them are
// 28.5, so it is the 29th that counts, 290.
func (c *costs) note(n int) {
	c.ring[c.n%learnedOf] = int32(min(n, math.MaxInt32))
	if c.n++; c.n < learnedFrom || c.n%learnedEach != 0 && c.n > learnedFrom {
		return
	}
	sorted := c.ring
	known := sorted[:min(c.n, learnedOf)]
	slices.Sort(known)
	c.usual = int(known[int(math.Ceil(learnedMost*float64(len(known))))-1])
}

// hold is how much a call is to hold with that cap.
func (l *learner) hold(limit int, streams bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := limit
	if c := l.by[bits.Len32(uint32(limit))]; c != nil && c.usual > 0 {
		n = min(n, c.usual)
	}
	if streams && l.n >= leadFrom && l.sums.seconds > 0 {
		n = min(n, int(math.Ceil(l.sums.units/l.sums.seconds*leadTime.Seconds())))
	}
	return n
}

// note takes in that a call with that cap has cost n units in that time, and how long its body was.
func (l *learner) note(limit, n int, took time.Duration, read length) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &l.by[bits.Len32(uint32(limit))]
	if *c == nil {
		*c = new(costs)
	}
	(*c).note(n)
	s, units, b, e := &l.sums, float64(n), float64(read.bytes), float64(read.events)
	for _, sum := range []struct {
		of   *float64
		more float64
	}{{&s.units, units}, {&s.seconds, took.Seconds()}, {&s.bb, b * b}, {&s.be, b * e}, {&s.ee, e * e}, {&s.unitsByB, units * b}, {&s.unitsByE, units * e}} {
		*sum.of += sum.more - *sum.of*learnFade
	}
	if b > 0 {
		l.n++
	}
}

// A length is that of a body so far. An event of a stream ends with an empty line.
type length struct{ bytes, events int64 }

// passed is how much has been used by a call when so much of its body was read: bytes and events each have a price, by the least
// squares of what calls have cost. A ridge keeps the prices sensible where all events are of one length.
//
// Example: an event is 150 bytes and 4 for each unit. A byte costs ¼, and an event −37½: one of 350 bytes is 50 units.
func (l *learner) passed(read length) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.sums
	if s.bb == 0 || l.n < leadFrom {
		return 0
	}
	bb, ee := s.bb*(1+ridge), s.ee*(1+ridge)
	byByte, byEvent := s.unitsByB/s.bb, 0.0
	if det := bb*ee - s.be*s.be; s.ee > 0 && det > 0 {
		byByte, byEvent = (s.unitsByB*ee-s.unitsByE*s.be)/det, (s.unitsByE*bb-s.unitsByB*s.be)/det
	}
	return int(max(0, min(byByte*float64(read.bytes)+byEvent*float64(read.events), math.MaxInt32)))
}

// ridge is how much larger the sums of squares are taken to be.
const ridge = 1e-4

// A claim is what is known of one meter of an attempt, beside what it holds, if that is learned.
type claim struct {
	limit int  // the cap
	given bool // by the caller: nothing else is held
	more  int  // charged above what is held, while the body passed; under Meters.mu
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
			n := m.learners[i].hold(c.limit, one.Streams)
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
		if charged, due := h.pass(i, length{int64(bytes), int64(events)}); due > charged {
			one.Limits.Settle(h.taken, charged, due)
		}
		bytes, events = 0, 0 // counted
	}
}

// pass is Pass of meter i under Meters.mu. It returns what was charged, and what is to be from now on.
func (h *Holds) pass(i int, more length) (charged, due int) {
	h.meters.mu.Lock()
	defer h.meters.mu.Unlock()
	h.read.bytes, h.read.events = h.read.bytes+more.bytes, h.read.events+more.events
	if h.open&(1<<i) == 0 {
		return 0, 0
	}
	c, held := &h.claims[i], h.Held(i)
	charged = held + c.more
	due = min(held+h.meters.learners[i].passed(h.read), c.limit)
	if due-charged < held/chargeEach+1 && due < c.limit {
		return charged, charged
	}
	c.more = max(c.more, due-held)
	return charged, held + c.more
}
