package gate

import (
	"cmp"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/limit"
)

// This file is what a gate makes of the answers to attempts. Two examples, with round trips of 20 ms.
//
// A stray 429 without a time, 100/s configured, ten calls in flight in epoch 0:
//
//	0 ms    the first 429: closed for one unit's time, until 10 ms, and epoch 1
//	5 ms    another 429, of epoch 0: the same event, nothing changes
//	6 ms    a success of epoch 0: the gate stays closed
//	10 ms   the time is over: open, paced, the next calls go at 10, 20, 30 ms ...
//	30 ms   a success of epoch 1: the row of closings without a time is over
//
// An outage of 20 s, noticed by eight failures at once:
//
//	0 s     the eighth failure in a row: closed, probing, epoch 1; a probe is due at 0.25 s
//	0.25 s  the probe goes; it fails at 0.27 s, so the next one is due 250 ms later, at 0.52 s
//	15 s    a probe fails, so the next one is due 2 % of 15 s later, at 15.3 s
//	19.9 s  the last one that fails: the next is due at 20.3 s
//	20.3 s  the probe goes; it succeeds at 20.32 s: open, epoch 2, 0.3 s after the end of the outage

// A Report is what one attempt shows the gate.
type Report struct {
	Outcome   Outcome
	Epoch     uint32        // in which it was sent
	Call      uint64        // which call it belongs to
	Status    uint16        // of the answer; 0: there was none
	Wait      time.Duration // Throttled: the advertised time not to send; 0: none
	Trip      time.Duration // its round trip; 0: not measured
	Cut       bool          // the caller's deadline ended it: the round trip would have been longer
	Late      time.Duration // how long after its receipt it is observed
	Random    bool          // Throttled: calls are throttled at random, as far as is known
	Held      bool          // Success: it was throttled, and holds others back than the gate,
	HeldUntil time.Time     // until then
	Failures  int           // in a row, that close the gate; 0: failuresToClose
	Served    float64       // units a second that were answered so far; 0: not known
}

// Observe takes in a report and returns whether a closing began or grew. An answer that would change nothing
// does not even make the breaker. Otherwise a closing whose time is over ends first, so that the answer meets the gate
// as the calls at this moment would. What the answer does then depends on whether it is stale: a stale failure
// and a stale neutral answer do nothing at all, unless nothing but brief closings came since.
func (g *Gate) Observe(r Report, now time.Time, pace rate.Limit) (stopped bool) {
	before, current, recent := g.epoch, r.Epoch == g.epoch, g.recent(r.Epoch)
	stopped = g.observe(r, now, pace)
	if g.breaker != nil && g.unserved.Equal(now) { // for those that wait it begins now
		g.unserved = now.Add(r.Late)
	}
	if r.Held {
		g.holds(r.HeldUntil, now)
	}
	g.checkAnswer(before, current || recent && r.Outcome >= Neutral && r.Outcome < Throttled)
	return stopped
}

// observe is Observe but for what holds beside the gate.
func (g *Gate) observe(r Report, now time.Time, pace rate.Limit) (stopped bool) {
	g.measure(r.Outcome, r.Trip, r.Cut)
	r.Outcome = g.count500s(r)
	if r.Outcome <= Neutral && !g.unsettled() {
		return false
	}
	if g.breaker == nil {
		g.breaker = new(breaker)
	}
	g.Settle(now, pace)
	defer g.setAlert()
	current, recent := r.Epoch == g.epoch, g.recent(r.Epoch)
	g.ended(r, current)
	switch r.Outcome {
	case Success:
		g.succeed(r, now, pace)
		if r.Held {
			break
		}
		g.unserved = time.Time{}
		if g.cause != Open && g.cause != ForPause { // it was sent before the closing
			g.servesNobody(g.until, now)
		}
	case Cancelled:
		switch {
		case g.cause == ForFailures && 0 < r.Status && r.Status < 500: // final for its own call, but the upstream is back
			g.succeed(r, now, pace)
		case current && g.probeOut: // it was the probe: the next is due at once
			g.probeAt(now)
		}
	case Neutral:
		if current && g.cause != Open {
			g.probeFailed(now)
		}
	case Failure:
		return recent && g.failed(r, now)
	case Overloaded:
		return recent && g.overloaded(r, current, now)
	case Throttled:
		return g.throttle(r, current, now, pace)
	}
	return false
}

// count500s counts 500s in a row and returns the outcome of the report: a failure if it is one 500 too many. Any other
// answer ends the row, stale ones too; an attempt without an answer does not.
//
// Example: 40 deliveries to an endpoint that answers 500. The first 32 answers are neutral, and the next eight are a row
// of failures, which closes the gate. A 404 at the tenth answer would have begun the count anew.
func (g *Gate) count500s(r Report) Outcome {
	switch {
	case r.Outcome == Neutral && r.Status >= 500:
		if g.breaker == nil {
			g.breaker = new(breaker)
		}
		if g.row500++; g.row500 > ErrorsToCount {
			g.row500--
			return Failure
		}
	case g.breaker != nil && (r.Status != 0 || r.Outcome == Success):
		g.row500 = 0
	}
	return r.Outcome
}

// recent reports whether nothing but brief closings came since that epoch: what is sent to an upstream that has become
// overloaded meanwhile still shows whether it fails.
func (g *Gate) recent(epoch uint32) bool {
	return epoch == g.epoch || g.breaker != nil && g.epoch-epoch <= g.briefs
}

// ended takes an attempt out of those in flight, ends first contact by any answer, and remembers the status that ErrPaused
// will name: "503, 3 probes in 4s". An attempt of an older epoch is not one of those in flight that the reopening counts.
func (g *Gate) ended(r Report, current bool) {
	switch {
	case g.mode == meeting && r.Outcome != Cancelled:
		g.mode, g.inFlight = reopened, 0
	case (g.mode == slowStart || g.mode == meeting) && current:
		g.inFlight = max(0, g.inFlight-1)
	}
	if r.Outcome >= Overloaded || current && (r.Outcome > Cancelled || r.Outcome == Cancelled && r.Status != 0) {
		g.status = r.Status
	}
}

// succeed notes a success. It ends a row of failures, lets one more call be in flight in a slow start, and opens a gate whose
// probe it answers.
func (g *Gate) succeed(r Report, now time.Time, pace rate.Limit) {
	if r.Epoch >= g.rowEpoch {
		g.advertised, g.unadvertised = 0, 0
	}
	g.rowEnds(now)
	if r.Epoch != g.epoch {
		return
	}
	if g.mode == slowStart {
		g.allowed++
	}
	switch {
	case g.cause == Open || !g.probing:
	case g.floor.After(now): // a pause or an advertised time that came while the probe was out holds
		g.probing, g.probeOut, g.until = false, false, g.floor
	default:
		g.epoch++ // another probe may still be out: it is none of the reopening's calls
		g.reopen(now, pace)
	}
}

// rowEnds notes that a success has ended a row of failures, of any length. Example: of 100 answers in 0.1 s 75 are 503s, at random.
// Soon a row of ten has been among them, so 60 in a row close the gate; after 30 successes 24 do, and after 70 eight. A row
// that has closed the gate ends with a probe's success, or one that was sent before, and counts too.
func (g *Gate) rowEnds(now time.Time) {
	g.longest -= g.longest / rowFades
	if g.failuresMixed && now.Sub(g.outageSince) < rowLasts {
		g.longest = max(g.longest, float32(min(g.failures, rowMost)))
	}
	if g.longest*rowFactor <= failuresToClose {
		g.longest = 0
	}
	g.failures, g.failuresMixed = 0, false
}

// probeFailed plans the next probe if the last one was still awaited: the older the outage, the later. At
// 5 s of age it goes 250 ms later, at 100 s 2 s, and from 25 minutes on 30 s.
func (g *Gate) probeFailed(now time.Time) {
	if g.probing && g.probeOut {
		g.probeAt(now.Add(min(max(now.Sub(g.outageSince)/probeDivisor, firstProbe), maxProbeGap)))
	}
}

// failed notes a recent failure and reports whether it closes the gate: the eighth in a row, a later one after long rows that
// successes have ended, or the one that Retry.Failures says, does if they are of two calls at least. One call's own retries say
// little of the upstream: its request may be what the upstream fails at. While the gate is closed, the failure is the probe's,
// and plans the next.
//
// Example: of 100 calls at once 40 failed in a row, so 240 failures in a row close the gate. At one call a second that would
// take four minutes; but a row that lasts for 6 s closes it as well, from its eighth failure on. Of the time between two
// failures a second counts at most, because a row may go on in the next batch.
func (g *Gate) failed(r Report, now time.Time) (stopped bool) {
	if g.cause != Open && !g.brief {
		g.probeFailed(now)
		return false
	}
	if g.failures == 0 {
		g.failureCall, g.failuresMixed, g.outageSince, g.lasted = r.Call, false, now, 0
	} else {
		g.lasted += min(now.Sub(g.failedAt), rowLasts) // between two batches nobody calls
	}
	g.failedAt = now
	g.failures++
	g.failuresMixed = g.failuresMixed || r.Call != g.failureCall
	most := failuresToClose
	if g.lasted < rowFactor*rowLasts {
		most = max(most, int(rowFactor*g.longest))
	}
	if most = cmp.Or(r.Failures, most); int(g.failures) < most || !g.failuresMixed && most > 1 {
		return false
	}
	g.epoch++
	g.closeUntil(ForFailures, now.Add(firstProbe), now)
	g.probing, g.servedRate = true, float32(r.Served)
	return true
}

// overloaded notes that the upstream is in trouble, and reports whether that closes the gate for failures: it counts
// as one. Otherwise the gate is closed for one round trip, once an epoch, so that the upstream need not turn away all
// that is sent meanwhile, and reopens as it was.
//
// Example: every 20th answer is a 529, whatever the rate; 8 workers, round trips of 20 ms. 50 ms of calls, 20 ms of
// rest, and so on: more than 200/s. A slow start after each rest would leave 190/s.
func (g *Gate) overloaded(r Report, current bool, now time.Time) (stopped bool) {
	if g.failed(r, now) {
		return true
	}
	if current && g.cause == Open {
		g.epoch++
		g.briefs++
		g.closeBriefly(now.Add(g.roundTrip(r.Trip)), now)
	}
	return false
}

// throttle closes the gate for a throttled answer, and begins an epoch: for the advertised time and its
// jitter, or else for unadvertisedWait.
//
// What is advertised is believed, so all go after it, unless it is longer than limit.MaxBelief, or the last such closing
// was followed by no success either: calls that all went again, second by second, would spend their attempts. Then a probe
// goes, and the longer the row has gone on, the later (rowDivisor); its age counts from the last time for which nobody
// asked for more than maxProbeGap. A probe also goes from the third closing without a time on, because a time that was
// drawn at random says nothing of the upstream. Example: an upstream is down for 7 s and answers 503 with Retry-After: 1.
// One call after the other tries it, seven in all, and each of them once; in an outage of a minute 24 do. Where calls are
// throttled at random, 429s in a row say no more than the first: it is noticed elsewhere if they become more frequent.
func (g *Gate) throttle(r Report, current bool, now time.Time, pace rate.Limit) (stopped bool) {
	if !current {
		return g.throttleStale(r, now)
	}
	g.epoch++
	silent := now.Sub(g.until)
	if g.probing { // until was the probe's time, and it has been used
		g.probeAt(now)
	}
	if g.advertised+g.unadvertised == 0 {
		g.rowEpoch = g.epoch
	}
	if wait := min(r.Wait, limit.MaxBelief); wait > 0 {
		if g.advertised++; g.advertised == 1 || silent > maxProbeGap {
			g.outageSince = now
		}
		row := g.advertised >= 2 && !r.Random
		if g.probing = row || r.Wait > limit.MaxBelief; row {
			wait = max(wait, min(now.Sub(g.outageSince)/rowDivisor, maxProbeGap))
		}
		jittered := limit.Jittered(wait)
		if g.closeUntil(ForRetryAfter, now.Add(jittered), now) {
			g.jitter = jittered - wait
		}
		return true
	}
	g.unadvertised++
	row := int(g.unadvertised)
	if r.Random {
		row = 1
	}
	g.probing = row >= 3
	g.closeUntil(ForThrottling, now.Add(g.unadvertisedWait(row, r.Trip, pace)), now)
	g.outageSince = now
	return true
}

// throttleStale takes in a throttled answer of an older epoch. It extends the closing by the time that it
// advertises, without jitter, and changes nothing else; without a time it says nothing new. Example: closed until
// 5.2 s in epoch 1; at 1 s Retry-After: 5 of epoch 0 makes it 6 s, still in epoch 1. It closes an open gate
// too: the upstream has named a moment before which it wants no calls.
func (g *Gate) throttleStale(r Report, now time.Time) (stopped bool) {
	wait := min(r.Wait, limit.MaxBelief)
	if wait <= 0 {
		return false
	}
	until := now.Add(wait)
	if g.cause != Open && !until.After(g.until) {
		g.floor = limit.Latest(g.floor, until) // a probe that is out might open the gate earlier
		return false
	}
	g.probing = g.probing || r.Wait > limit.MaxBelief
	g.closeUntil(ForRetryAfter, until, now)
	return true
}

// unadvertisedWait is how long to close for a throttled answer without a time, by its place in a row. Example, with 100/s known
// and round trips of 80 ms: the first closing in a row lasts for one unit's time, 10 ms; the second for a
// round trip, 80 ms; the third up to 160 ms, the fourth up to 320, then up to 30 s, at random. Where the
// limit is not known the first one lasts for a round trip too.
//
// The first is so short because it is mostly a stray one, two units that came closer to each other on the
// way. At 1,000/s with a burst of 10 and delays that vary by 22.5 ms, 99.3 % of the limit is used by it,
// 91.7 % if it lasts for a round trip, and 83.5 % with a probe.
func (g *Gate) unadvertisedWait(row int, trip time.Duration, pace rate.Limit) time.Duration {
	srtt := g.roundTrip(trip)
	switch {
	case row == 1 && pace > 0 && pace != rate.Inf:
		return limit.UnitTime(1, pace)
	case row <= 2:
		return srtt
	}
	ceiling := maxUnadvertised
	if k := row - 2; k < 32 && srtt < maxUnadvertised>>k {
		ceiling = srtt << k
	}
	return 1 + limit.Jitter(ceiling)
}
