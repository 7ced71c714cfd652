package gate

import "time"

// This file is about how long round trips take.

const (
	// sampleEvery: one round trip in so many is measured, and all until the first is known. A measured one has to be
	// observed, under the lock; the others end without it unless something is wrong.
	sampleEvery = 16

	// A call is expected to have its answer within the smoothed round trip and so many deviations. With
	// exponential round trips, one leaves 80 % of an overloaded limit for calls that are answered in time,
	// two 90 %, three 96 %, four 98 %; each more turns away calls that would have been in time.
	deviations = 3

	// leastDev is the least deviation that counts: a clock and a timer are no better.
	leastDev = time.Millisecond
)

// SmoothedTrip is an average of the latest round trips; 0: nothing is known.
func (g *Gate) SmoothedTrip() time.Duration { return g.srtt }

// Sample reports whether the round trip of a call is to be measured, before which that many were sent. A
// call that has waited is measured in any case, so an overloaded upstream is known well.
func (g *Gate) Sample(sent uint64) bool { return g.srtt == 0 || sent%sampleEvery == 0 }

// AnswerTime is how long after its start a call is expected to have its answer; 0: nothing is known. With a
// round trip of 50 ms and a deviation of 10 ms that is 80 ms.
func (g *Gate) AnswerTime() time.Duration {
	if g.srtt == 0 && g.dev == 0 {
		return 0
	}
	return g.srtt + max(leastDev, deviations*g.dev)
}

// Measure takes in the round trip of a success that need not be observed.
func (g *Gate) Measure(trip time.Duration) { g.measure(Success, trip, false) }

// measure smooths the round trip and its deviation as TCP does (RFC 6298, alpha 1/8, beta 1/4): with 80 ms smoothed, a trip
// of 120 ms makes it 85. A failure's is no measure of the upstream at work. An attempt that its caller's deadline has cut
// off shows that the deviation is larger, and says nothing else. It has to say that much: where the line is as long as the
// callers' deadlines, an upstream that becomes slower would not answer a single call in time any more.
func (g *Gate) measure(o Outcome, trip time.Duration, cut bool) {
	switch off := (trip - g.srtt).Abs(); {
	case trip <= 0:
	case cut:
		if trip > g.srtt+g.dev {
			g.dev += (off - g.dev) / 4
		}
	case o != Success && o != Throttled:
	case g.srtt == 0:
		g.srtt, g.dev = trip, trip/2
	default:
		g.dev += (off - g.dev) / 4
		g.srtt += (trip - g.srtt) / 8
	}
}

// roundTrip is the smoothed round trip. Before the first sample it is that of the attempt at hand.
func (g *Gate) roundTrip(trip time.Duration) time.Duration {
	if g.srtt <= 0 {
		return max(trip, time.Millisecond)
	}
	return g.srtt
}
