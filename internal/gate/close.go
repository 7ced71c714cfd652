package gate

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/limit"
)

// This file begins and ends closings. Every closing has one of two ends:
//
//   - a moment: until is over, and whoever looks at the gate next reopens it, as of that moment (settle);
//   - an answer: probing is set, and the success of the probe that went at until reopens it (succeed).
//
// Resume is the third, by hand. How long the upstream has served nobody counts from the first closing after a success, over
// reopenings, without the time for which somebody on this side has paused the gate: what calls wait for then is not the
// upstream's doing, and they need no patience for it. Example: failures close the gate at 0 s, and somebody pauses it from
// 10 s to 10 min. At 11 min nobody has been served for 70 s.

// closeUntil begins a closing, or makes the one that there is last until then too, and reports whether
// until decides when it ends. An advertised time becomes the floor: nothing that comes later, such as the
// success of a probe, opens the gate before it. A closing ends whatever reopening was under way. Example: closed
// until 10 s; closeUntil 7 s changes the cause and returns false, closeUntil 12 s makes it 12 s and returns
// true.
func (g *Gate) closeUntil(c Cause, until, now time.Time) (longest bool) {
	if g.breaker == nil {
		g.breaker = new(breaker)
	}
	if g.cause == Open {
		g.since, g.moved, g.pausedUntil, g.until, g.floor, g.probes = now, 0, now, now, time.Time{}, 0
	}
	if longest = until.After(g.until); longest {
		g.jitter = 0
	}
	if c == ForRetryAfter {
		g.floor = limit.Latest(g.floor, until)
	}
	g.until = limit.Latest(limit.Latest(g.until, until), g.floor)
	if c != ForPause {
		g.servesNobody(g.until, now)
	}
	g.cause, g.brief, g.briefs, g.mode, g.probeOut, g.unstarted = c, false, 0, reopened, false, false
	if c != ForFailures {
		g.failures = 0
	}
	g.closings++
	g.setAlert()
	return longest
}

// servesNobody notes that the upstream serves nobody until then. Time in which nobody called does not count. Example:
// closings without a success from 0 s to 5 s, and one at 20 s, are a row of 20 s; one at 10 min begins a new row.
func (g *Gate) servesNobody(until, now time.Time) {
	if g.unserved.IsZero() || now.Sub(g.unserved)-g.unservedFor > maxProbeGap {
		g.unserved, g.unservedFor = limit.Latest(now, g.pausedUntil), 0
	}
	g.unservedFor = max(g.unservedFor, until.Sub(g.unserved))
}

// holds notes that a throttled answer holds calls back until then by other means than a closing.
func (g *Gate) holds(until, now time.Time) {
	if g.breaker == nil {
		g.breaker = new(breaker)
	}
	g.servesNobody(until, now)
	g.setAlert()
}

// closeBriefly closes an open gate until then, for an upstream that is overloaded. The row of failures goes on, the
// closing is not counted, because it bounds no retries, and reopen finds the reopening that was under way. Example:
// a slow start with three of four calls in flight is closed for 20 ms. Then four may be in flight, beside those that
// have no answer yet.
func (g *Gate) closeBriefly(until, now time.Time) {
	g.cause, g.brief, g.since, g.moved, g.pausedUntil = ForThrottling, true, now, 0, now
	g.until, g.floor, g.jitter, g.probes = until, time.Time{}, 0, 0
	g.inFlight = 0
	g.setAlert()
}

// closed reports whether the gate stops calls at now. pace is the rate to reopen at if the closing is
// over, in units per second; 0 or rate.Inf: not known.
func (g *Gate) closed(now time.Time, pace rate.Limit) bool {
	g.Settle(now, pace)
	return g.breaker != nil && g.cause != Open
}

// Settle ends a closing whose time is over, if it needs no probe. No timer does: whoever looks at the gate
// next settles it, as of the moment at which it opened.
func (g *Gate) Settle(now time.Time, pace rate.Limit) {
	if g.breaker != nil && g.cause != Open && !g.probing && !now.Before(g.until) {
		g.reopen(g.until, pace)
	}
}

// reopen ends a closing as of at, whatever it was for.
func (g *Gate) reopen(at time.Time, pace rate.Limit) {
	g.total += max(0, at.Sub(g.since)+g.moved)
	if g.probing && pace == Unpaced { // a probe's success says little
		pace = 0
	}
	g.cause, g.probing, g.probeOut = Open, false, false
	if !g.brief {
		g.open(at, pace)
		return
	}
	g.brief, g.next = false, limit.Latest(g.next, at)
	g.setAlert()
}

// unpaced is the pace of a reopening that holds nobody back.
const Unpaced rate.Limit = -1

// open lets the first calls through from at on: paced at that rate, or by slow start if it is not known.
func (g *Gate) open(at time.Time, pace rate.Limit) {
	g.mode, g.next, g.unstarted, g.failures = paced, at, false, 0
	switch {
	case pace == Unpaced:
		g.mode = reopened
	case pace <= 0 || pace == rate.Inf:
		g.mode, g.allowed, g.inFlight = slowStart, 1, 0
	}
	g.setAlert()
}

// probeAt plans the next probe, which never goes before the floor. The last one is no longer awaited: a failure
// that comes now is not taken for its answer.
func (g *Gate) probeAt(t time.Time) {
	g.probeOut = false
	g.until = limit.Latest(t, g.floor)
}

// Pause closes the gate for at least d. It begins an epoch if the gate is open, because what was sent before
// says nothing of the time after. A gate that waits for a probe's answer keeps its cause and goes on probing
// after the pause, and so does a gate that is closed for longer.
func (g *Gate) Pause(d time.Duration, now time.Time, pace rate.Limit) {
	if d <= 0 {
		return
	}
	until := now.Add(min(d, 1<<62))
	g.hold(ForPause, until, now, pace)
	if from := limit.Latest(now, g.pausedUntil); until.After(from) {
		d := until.Sub(from)
		if g.since, g.moved = g.since.Add(d), g.moved+d; !g.unserved.IsZero() {
			g.unserved = g.unserved.Add(d)
		}
		g.pausedUntil = until
	}
}

// HoldUntil closes the gate for a time that the upstream has advertised, but not to a call of this gate, and reports
// whether the gate did not know it. The jitter is its own: the keys of a host do not begin again at one moment.
func (g *Gate) HoldUntil(until time.Time, status uint16, now time.Time, pace rate.Limit) (longer bool) {
	if !until.After(now) || g.closed(now, pace) && !until.After(g.floor) {
		return false
	}
	jittered := now.Add(limit.Jittered(until.Sub(now)))
	if g.hold(ForRetryAfter, jittered, now, pace) {
		g.jitter = jittered.Sub(until)
	}
	g.status = status
	return true
}

// hold closes the gate until then for a reason that no answer to a call of its own has shown, and reports whether that
// decides when the closing ends.
func (g *Gate) hold(c Cause, until, now time.Time, pace rate.Limit) (longest bool) {
	if !g.closed(now, pace) {
		g.epoch++
	} else if g.probing || c == ForPause && !until.After(g.until) {
		c = g.cause
	}
	longest = g.closeUntil(c, until, now)
	g.floor = limit.Latest(g.floor, until)
	return longest
}

// Resume ends any closing now. The row of closings begins anew, so that the next one without a time is short
// again. It lets the first calls in paced, or by slow start: somebody who resumes a gate by hand may be wrong.
func (g *Gate) Resume(now time.Time, pace rate.Limit) {
	if !g.closed(now, pace) {
		return
	}
	g.floor, g.unserved, g.advertised, g.unadvertised = time.Time{}, time.Time{}, 0, 0
	g.reopen(now, pace)
}
