package upstream

import (
	"math"
	"time"
)

// This file asks of a search whether it helps: throttled answers have other causes than a rate.
//
//	a limit of so much a second   answers are throttled above it, hardly ever below
//	at random, a broken node say  as often at any rate
//
// So what is throttled while a rate is held is weighed against what is throttled above it, in ramps and probes. If
// it is as frequent, being slower has not helped: the search is put aside, and all goes at full speed.
//
// The first evidence is what was in flight beside the first throttled call: a limit that is far exceeded throttles
// nearly all of it (note).
//
// Example: one call of a hundred is throttled at random, 640/s are possible, 32 calls are in flight. Ten more of those
// beside the first throttled one are served than throttled, so the search is put aside at once. With two calls in flight
// the ramp ends, and the finder cuts what it holds again and again. With the fourth to sixth cut it is put aside. If the
// upstream then begins to throttle everything above 100/s, 16 of 20 calls are throttled instead of one of a
// hundred, and after about ten of them the search goes on.

// The constants of the check, chosen by TestRandomThrottlingHoldsNobodyBack and TestFinder with THROTTLE_FULL=1.
const (
	// rarer: under a limit, throttled answers are taken to be so many times rarer in a hold than above it.
	rarer = 8.0

	// The search is put aside when it is 1,000 times as likely that they are as frequent, and comes back when it is
	// 10,000 times as likely that their odds are moreFrequent times as high as before.
	sure, surer  = 6.9, 9.2 // ln
	moreFrequent = 3.0

	// No more than mostAtRandom of the answers are taken to be throttled at random. With few answers a limit that is
	// exceeded by half looked like that, and 70 % were throttled until it was over (TestRandomUpstreams).
	mostAtRandom = 0.4

	// beside is what one call says that was in flight beside the first throttled one, ln: under a limit one in two of
	// them is taken to be throttled (TestRandomThrottlingIsSeenAtOnce).
	beside = 0.7

	// Before the first probe one call in firstShare is supposed to be throttled above a hold.
	firstShare = 50.0

	// leastEvidence bounds what a long quiet hold counts for, so that random throttling which begins later is noticed
	// two events later at most.
	leastEvidence = -3.0

	// asideTime is how long a search is put aside. Then the next throttled answer begins another one, which needs
	// only two events.
	asideTime = 10 * time.Minute
)

// A check is what the throttled answers of a search say of their cause.
type check struct {
	evidence float64 // ln of how much likelier it is that they are as frequent in holds as above
	events   float64 // throttled events above holds, one supposed before the first
	calls    float64 // answered above holds
	wrong    float64 // how often the search was put aside and came back

	// A quarter of a round trip after the first throttled call was sent, and when its answer came, with which the search
	// began; zero beside a known limit, which is not far exceeded.
	first, began time.Time

	// Since the evidence was last against it, or while the search is aside.
	throttled, answered float64
	share               float64   // aside: of answers that are throttled at random, at most
	excess              float64   // aside: ln of how much likelier it is that they have become more frequent
	until               time.Time // aside: when it is over
}

// newCheck knows nothing.
func newCheck() check { return check{events: 1, calls: firstShare} }

// again is the check of a search that begins after another one was rightly put aside.
func (c check) again() check {
	return check{events: c.events, calls: c.calls, evidence: sure - 2*math.Log(rarer)}
}

// begin notes the first throttled call, whose answer came now, after served others. What was sent within the first quarter of its
// round trip does not count: it may have overtaken that call on the way.
func (c *check) begin(sent, now time.Time, served float64) {
	c.first, c.began, c.answered = sent.Add(now.Sub(sent)/4), now, served
}

// note counts an answer to a call that was sent then, and reports whether what was in flight beside the first throttled
// call shows that the search does not help.
func (c *check) note(n float64, throttled bool, sent time.Time) (pointless bool) {
	early := !sent.After(c.began)
	if c.evidence <= 0 && !early {
		c.throttled, c.answered = 0, 0
	}
	c.answered += n
	if throttled {
		c.throttled++
	}
	switch {
	case !early || sent.Before(c.first):
		return false
	case throttled:
		c.evidence -= beside
		return false
	}
	c.evidence += beside
	return c.evidence >= sure
}

// above notes n calls above a hold; event: one of them was throttled. After 2·rarer events all
// count half.
func (c *check) above(n float64, event bool) {
	c.calls += n
	if event {
		if c.events++; c.events > 2*rarer {
			c.events, c.calls = c.events/2, c.calls/2
		}
	}
}

// served notes n calls that were served in a hold. Were throttled answers as frequent as above, n·p of them would
// be expected, and n·p/8 under a limit.
func (c *check) served(n float64) {
	if less := c.evidence - n*(1-1/rarer)*c.events/c.calls; less > leastEvidence {
		c.evidence = less
	}
}

// pointless notes a throttled event in a hold, and reports whether the search does not help.
func (c *check) pointless() bool {
	c.evidence += math.Log(rarer)
	return c.evidence >= sure && c.throttled <= mostAtRandom*(c.throttled+c.answered)
}

// putAside begins the time aside. What was throttled so far may be few answers, so a share that is two deviations
// above it counts.
func (c *check) putAside(now time.Time) {
	n := max(1, c.throttled)
	c.share = min((n+2*math.Sqrt(n))/(n+c.answered), mostAtRandom)
	c.until, c.excess = now.Add(asideTime), 0
}

// worse notes an answer while the search is aside, and reports whether so many are throttled that being faster has
// made it worse. It is Page's cumulative sum (Biometrika 41, 1954).
func (c *check) worse(n float64, throttled bool) bool {
	more := moreFrequent * c.share / (1 + (moreFrequent-1)*c.share)
	if throttled {
		c.excess += math.Log(more / c.share)
	} else {
		c.excess = max(0, c.excess-n*math.Log((1-c.share)/(1-more)))
	}
	if c.excess < surer {
		return false
	}
	c.wrong++
	c.evidence = -sure * c.wrong
	return true
}
