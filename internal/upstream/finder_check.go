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
// it is as frequent, being slower has not helped: the search is put aside, and after a ramp all goes at full speed.
//
// The first evidence is what was in flight beside the first throttled call: a limit that is far exceeded throttles
// much of it (note).
//
// Example: one call of a hundred is throttled at random, 640/s are possible, 32 calls are in flight. Eleven beside the
// first throttled one are served, so the search is put aside at once. With two calls in flight the ramp ends, and the
// finder cuts what it holds again and again. With the second to fourth cut it is put aside. If the upstream then begins
// to throttle everything above 100/s, 16 of 20 calls are throttled instead of one of a hundred, and after about ten of
// them the search goes on.

// The constants of the check, chosen by TestRandomThrottlingHoldsNobodyBack and TestFinder with THROTTLE_FULL=1.
const (
	// rarer: under a limit, throttled answers are taken to be so many times rarer in a hold than above it.
	rarer = 8.0

	// The search is put aside when it is 50 times as likely that they are as frequent.
	sure = 4.0 // ln

	// Before the farCuts-th cut in a row a throttled call in a hold is evidence only if what is held is at most farAbove times
	// what was accepted since the last cut. Else it may be far above a limit, and cut after cut brings it there: of 4,000
	// random upstreams 438 are outside the bounds, 450 with twice as much, 461 with five times. Without farCuts 25 % fewer are
	// served where 0.2 % are throttled at random with Retry-After: 10, because closings count for the time.
	farCuts  = 3
	farAbove = 3.0

	// A search was put aside in vain if, after vainTrips round trips and vainThrottled throttled answers, at most vainGain
	// times as much is served as before and the odds to be throttled are more than vainOdds times as high. Without it
	// 447 of 4,000 random upstreams are outside the bounds instead of 436, with a vainGain of 1.5. If it was put aside at once, there is no
	// before: then those are the odds of what was in flight when another call was throttled, and of all other calls.
	vainTrips, vainThrottled = 5, 5
	vainGain, vainOdds       = 2.0, 2.0

	// What a call says that was in flight beside the first throttled one, ln: under a limit one in three of them is taken to
	// be throttled, at random hardly any. With 0.7 for either 35 % are throttled where 1,600/s are sent to a limit of
	// 1,000/s (TestFinder).
	besideServed, besideThrottled = 0.4, 3.2

	// Before the first probe one call in firstShare is supposed to be throttled above a hold.
	firstShare = 50.0

	// leastEvidence bounds what a long quiet hold counts for, so that random throttling which begins later is noticed
	// two events later at most.
	leastEvidence = -3.0

	// asideTime is how long a search is put aside. Then the next throttled answer begins another one, which needs
	// only two events.
	asideTime = 10 * time.Minute

	// In asideRamp the rate becomes 256 times as high as the one that was held; then nothing is held back. If all that
	// wait went at once, 6.4 % instead of 3.4 would be throttled where 100 workers meet a limit (TestBurstIsNotTakenForRandom).
	asideRamp = 8 * rampDouble
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

	// Since the evidence was last against it, or since the search was put aside.
	tally
	since time.Time // when the evidence was last against it; zero: never

	// While the search is aside.
	before     tally     // until then
	atOnce     bool      // by the calls beside the first throttled one alone, before any rate was held
	rateBefore float64   // at which calls were answered until then, in units a second; 0: not known
	stale      tally     // those of an older epoch, mostly in flight when another call was throttled
	until      time.Time // when it is over, and what is throttled at random forgotten
}

// A tally counts throttled answers, and the units of calls that were served.
type tally struct{ throttled, answered float64 }

// add counts an answer to a call of n units.
func (t *tally) add(n float64, throttled bool) {
	t.answered += n
	if throttled {
		t.throttled++
	}
}

// moreOften reports whether the odds to be throttled are more than vainOdds times those of other.
func (t tally) moreOften(other tally) bool {
	return t.throttled >= vainThrottled && t.throttled*other.answered > vainOdds*other.throttled*t.answered
}

// mostShare is the share that is throttled at most: two deviations, and more, above what was seen.
func (t tally) mostShare(more float64) float64 {
	return (t.throttled + 2*math.Sqrt(t.throttled) + more) / (t.throttled + t.answered + more)
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
// call shows that the search does not help. current: it was sent since the last event.
func (c *check) note(n float64, throttled, current bool, sent, now time.Time) (pointless bool) {
	early := !sent.After(c.began)
	if c.evidence <= 0 && !early {
		c.tally, c.since = tally{}, now
	}
	if c.add(n, throttled); !current {
		c.stale.add(n, throttled)
	}
	switch {
	case !early || sent.Before(c.first):
		return false
	case throttled:
		c.evidence -= besideThrottled
		return false
	}
	c.evidence += besideServed
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

// pointless notes a throttled event in a hold, after so many cuts in a row, and reports whether the search does not help.
// accepted is the rate since the last cut.
func (c *check) pointless(row int, held, accepted float64) bool {
	if row < farCuts && held > farAbove*accepted {
		return false
	}
	// Bounded, or what was in flight beside the first throttled call would outweigh all that comes later.
	c.evidence = max(c.evidence, leastEvidence-surer*c.wrong) + math.Log(rarer)
	if c.throttled > mostAtRandom*(c.throttled+c.answered) { // few answers before a limit that is exceeded by half look so
		return c.evidence >= sure+math.Log(rarer)
	}
	return c.evidence >= sure
}

// putAside begins the time aside, and returns the share that is throttled at random, at most.
func (c *check) putAside(now time.Time, atOnce bool) (share float64) {
	c.throttled = max(1, c.throttled)
	share = min(c.tally.mostShare(0), mostAtRandom)
	c.before, c.tally, c.stale = c.tally, tally{}, tally{}
	c.atOnce, c.rateBefore, c.until = atOnce, 0, now.Add(asideTime)
	if !c.since.IsZero() {
		c.rateBefore = c.before.answered / max(1e-3, now.Sub(c.since).Seconds())
	}
	return share
}

// inVain reports whether the search has been put aside in vain: that has lasted so long, and calls were answered at that rate.
func (c *check) inVain(lasted, srtt time.Duration, rate float64) bool {
	if c.atOnce {
		return c.stale.moreOften(tally{c.throttled - c.stale.throttled, c.answered - c.stale.answered})
	}
	return c.rateBefore > 0 && lasted > vainTrips*srtt && rate <= vainGain*c.rateBefore && c.moreOften(c.before)
}

// comeBack ends the time aside. Each time that it was wrong makes it harder to be so again, but for a search that was put
// aside at once: nothing has been tried yet. right: there is a limit, but the share that is throttled at random is known.
func (c *check) comeBack(right bool) {
	if !c.atOnce && !right {
		c.wrong++
	}
	c.evidence = -surer * c.wrong
	if right {
		c.evidence += leastEvidence
	}
}

// putAside ends the search until it turns out to be needed, from when the gate opens.
func (f *finder) putAside(now, until time.Time, atOnce bool) {
	f.random.putAside(f.check.putAside(now, atOnce))
	f.phase, f.since, f.next, f.step, f.units, f.lastCut, f.idle = aside, until, until, 0, 0, now, 0
	f.double = rampDouble
}

// over reports whether the finder was put aside, and that time is over.
func (f *finder) over(now time.Time) bool { return f.phase == aside && now.After(f.check.until) }

// goOnSearching goes on with the search where it was put aside, from when the gate opens.
func (f *finder) goOnSearching(now, until time.Time, srtt time.Duration) {
	if acc := f.acceptedRate(now); f.check.atOnce { // no rate has been held yet
		f.w = max(f.w, acc)
		f.top, f.random = f.w, atRandom{}
	} else {
		f.random.comeBack(f.check.tally, f.units >= enough && f.check.rateBefore > 0 && acc > vainGain*f.check.rateBefore)
	}
	f.check.comeBack(f.random.share > 0)
	f.throttled, f.usual, f.row, f.next = 1, 1, 0, until
	f.begin(now, until, srtt)
	f.since = until
}
