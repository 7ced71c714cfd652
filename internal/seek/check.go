package seek

import (
	"math"
	"time"
)

// This file asks of a search whether it helps: throttled answers have other causes than a rate, as a broken node. If events are as
// frequent in holds as above them, being slower has not helped: the share of the answers that were throttled is taken to be random,
// and the rate doubles until nothing is held back. From then on only more 429s than that are an event.
const (
	rarer         = 8.0              // times: under a limit, events in holds than above them
	firstShare    = 50.0             // calls above holds for one event, before the first probe
	moreFrequent  = 3.0              // times, the odds of a 429: then there are more than at random
	mostAtRandom  = 0.3              // of the answers
	vainThrottled = 5.0              // 429s, or more, that show that a share was not random
	settleOdds    = 4.0              // ln, 50 times as likely: being slower does not help; twice as much: there are more 429s than at random
	beside        = 10.0             // calls in flight beside a throttled one, and served, are as sure; one that was throttled outweighs rarer of them
	asideTime     = 10 * time.Minute // until a share is forgotten
)

// A check is what the throttled answers of a search say of their cause.
type check struct {
	evidence     float64   // ln of how much likelier it is that they are as frequent in holds as above
	higher       tally     // events and calls above holds
	since        tally     // answers since the evidence was last against it in a hold
	first, began time.Time // what was sent between them was in flight beside the throttled call that ended a ramp
	share        float64   // throttled at random, at most; 0: none
	excess       float64   // ln of how much likelier it is that more are
	run          float64   // throttled answers since that was last 0
	before       tally     // answers for which the share was taken for random
	held         tally     // answers in holds
	until        time.Time // when the share is forgotten
}

// A tally counts throttled answers, and the units of calls that were served.
type tally struct{ throttled, answered float64 }

// add counts an answer to a call of n units.
func (t *tally) add(n float64, throttled bool) {
	if t.answered += n; throttled {
		t.throttled++
	}
}

// mostShare is the share that is throttled at most: two deviations above what was seen, and three calls if none was.
func (t tally) mostShare() float64 {
	return (t.throttled + 2*math.Sqrt(t.throttled+1) + 1) / (t.throttled + t.answered + 1)
}

// note counts an answer, and reports whether the calls in flight beside the one that ended a ramp show that the search does not help.
func (c *check) note(n float64, throttled bool, sent time.Time) (pointless bool) {
	c.since.add(n, throttled)
	switch {
	case sent.After(c.began) || sent.Before(c.first):
		return false
	case throttled:
		c.evidence -= rarer * settleOdds / beside
		return false
	}
	c.evidence += settleOdds / beside
	return c.evidence >= settleOdds-1e-6
}

// above notes n calls above a hold; event: one of them was throttled.
func (c *check) above(n float64, event bool) {
	if c.higher.add(n, event); c.higher.throttled > 2*rarer {
		c.higher = tally{c.higher.throttled / 2, c.higher.answered / 2}
	}
}

// more is the evidence of a 429, and of a served call, for and against more than the share at random, ln.
func (c *check) more() (throttled, served float64) {
	times := moreFrequent / (1 + (moreFrequent-1)*c.share)
	return math.Log(times), math.Log((1 - c.share) / (1 - times*c.share))
}

// served notes n calls that were served: events as frequent in holds as above would be n·p, and n·p/rarer under a limit.
func (c *check) served(n float64, inHold, inRamp bool) {
	if c.share > 0 {
		_, served := c.more()
		if c.excess -= n * served; c.excess <= 0 {
			c.excess, c.run = 0, 0
		}
	}
	switch {
	case !inHold && !(inRamp && c.share > 0):
		c.above(n, false)
	case inHold:
		c.evidence = max(min(c.evidence, -settleOdds), c.evidence-n*(1-1/rarer)*c.higher.throttled/c.higher.answered)
		switch {
		case c.share == 0 && c.evidence <= 0:
			c.since = tally{}
		case c.share > 0:
			c.held.add(n, false)
			c.share = min(c.share, c.held.mostShare())
		}
	}
}

// excessive notes a throttled answer where a share is random, and reports whether there are more: Page's cumulative sum (Biometrika
// 41, 1954). All that is in flight is supposed to be served, because 429s mostly come back first.
func (c *check) excessive(inHold bool, inFlight float64) bool {
	throttled, served := c.more()
	c.excess, c.run = c.excess+throttled, c.run+1
	if inHold {
		c.held.add(0, true)
	}
	return c.excess-inFlight*served >= 2*settleOdds
}

// comeBack ends the time aside. known: the share that was random still is. If it is too large that shows in holds and probes.
func (c *check) comeBack(known bool) {
	if !known {
		c.share, c.evidence = 0, -settleOdds
	} else {
		c.higher = tally{1, max(firstShare, c.since.answered)} // events are rarer now
	}
}

// forget forgets what is random if that is old. Two events in holds are enough to know it again.
func (c *check) forget(now time.Time) {
	if c.share > 0 && now.After(c.until) {
		c.share, c.evidence = 0, settleOdds-2*math.Log(rarer)
	}
}

// oddsDoubled reports whether the odds to be throttled have doubled since the search was put aside.
func (c *check) oddsDoubled(inFlight float64) bool {
	return c.since.throttled >= vainThrottled && c.since.throttled*c.before.answered > 2*c.before.throttled*(c.since.answered+inFlight)
}
