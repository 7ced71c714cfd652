// Package meter learns what calls cost of a limit in a unit of its own, where the upstream does not hold the most that they may
// cost. To hold that would leave much of the limit unused: calls that may be answered with 4,096 tokens get 200 in the
// middle.
//
// # What is held
//
//	the cap    what the caller says of the request, while fewer than 30 calls are known, and at most ever
//	learned    what 95 of 100 calls cost at most, of the last 256 with a cap of the same power of two
//	the lead   of a stream: what a call is charged in 10 s on average, if that is less
//
// Only what an answer says at its end is learned, or a caller: of an answer that was cut it is not known what it would have
// cost.
package meter

import (
	"math"
	"math/bits"
	"slices"
	"time"
)

const (
	learnedOf   = 256              // calls
	learnedFrom = 30               // of them
	learnedEach = 8                // calls, after which it is looked up again what most of them cost
	learnedMost = 0.95             // of them cost at most what is held
	leadTime    = 10 * time.Second // what is charged in it is held of a stream
	leadFrom    = 4                // streams, after which that is known
	learnFade   = 1.0 / 64         // of each sum goes with the next call
)

// A Learner knows what calls have cost of a meter. Its methods take sums of a few products, and now and then a sort of 256
// numbers. The zero value knows nothing.
type Learner struct {
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

// Hold is how much a call is to hold with that cap.
func (l *Learner) Hold(limit int, streams bool) int {
	n := limit
	if c := l.by[bits.Len32(uint32(limit))]; c != nil && c.usual > 0 {
		n = min(n, c.usual)
	}
	if streams && l.n >= leadFrom && l.sums.seconds > 0 {
		n = min(n, int(math.Ceil(l.sums.units/l.sums.seconds*leadTime.Seconds())))
	}
	return n
}

// Note takes in that a call with that cap has cost n units in that time, and how long its body was.
func (l *Learner) Note(limit, n int, took time.Duration, read Length) {
	c := &l.by[bits.Len32(uint32(limit))]
	if *c == nil {
		*c = new(costs)
	}
	(*c).note(n)
	s, units, b, e := &l.sums, float64(n), float64(read.Bytes), float64(read.Events)
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

// A Length is that of a body so far. An event of a stream ends with an empty line.
type Length struct{ Bytes, Events int64 }

// Passed is how much has been used by a call when so much of its body was read: bytes and events each have a price, by the least
// squares of what calls have cost. A ridge keeps the prices sensible where all events are of one length.
//
// Example: an event is 150 bytes and 4 for each unit. A byte costs ¼, and an event −37½: one of 350 bytes is 50 units.
func (l *Learner) Passed(read Length) int {
	s := &l.sums
	if s.bb == 0 || l.n < leadFrom {
		return 0
	}
	bb, ee := s.bb*(1+ridge), s.ee*(1+ridge)
	byByte, byEvent := s.unitsByB/s.bb, 0.0
	if det := bb*ee - s.be*s.be; s.ee > 0 && det > 0 {
		byByte, byEvent = (s.unitsByB*ee-s.unitsByE*s.be)/det, (s.unitsByE*bb-s.unitsByB*s.be)/det
	}
	return int(max(0, min(byByte*float64(read.Bytes)+byEvent*float64(read.Events), math.MaxInt32)))
}

// ridge is how much larger the sums of squares are taken to be.
const ridge = 1e-4
