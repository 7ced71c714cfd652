package gate

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/moment"
)

// A Report is what one attempt tells the gate.
type Report struct {
	Outcome Outcome
	Epoch   uint32        // when it was sent
	Call    uint64        // which call it belongs to
	Status  uint16        // of the answer; 0: there was none
	Told    time.Duration // refusal: how long to wait; 0: not told
	Trip    time.Duration // its round trip; 0: not measured
	Cut     bool          // the caller's deadline ended it: the round trip would have been longer
}

// An Outcome is what an attempt says of the upstream.
type Outcome uint8

const (
	Success   Outcome = iota // an answer that is none of those below
	Cancelled                // by the caller, or final for its own call: says nothing of the upstream
	Neutral                  // nothing that counts: a 500, a certificate, a URL
	Failure                  // a 502, 503 or 504, or no answer
	Refusal                  // for a limit
)

// Learn takes a report in and reports whether a closing began or grew.
func (g *Gate) Learn(r Report, now time.Time, pace rate.Limit) (stopped bool) {
	g.measure(r)
	if r.Outcome <= Neutral && !g.wary() {
		return false
	}
	if g.Trouble == nil {
		g.Trouble = new(Trouble)
	}
	g.Closed(now, pace) // ends a closing that is over
	defer g.Watch()
	current := r.Epoch == g.Epoch
	if g.Mode == Counted && current {
		g.Flying = max(0, g.Flying-1)
	}
	if g.first && r.Outcome != Cancelled {
		g.first, g.Mode, g.Flying = false, Reopened, 0
	}
	if r.Outcome == Refusal || current && (r.Outcome > Cancelled || r.Outcome == Cancelled && r.Status != 0) {
		g.Status = r.Status
	}
	switch r.Outcome {
	case Success:
		g.succeed(r, now, pace)
	case Cancelled:
		if g.Cause == Failing && 0 < r.Status && r.Status < 500 { // final for its own call, but the upstream is back
			g.succeed(r, now, pace)
		} else if current && g.ProbeOut { // it was the probe: the next is due at once
			g.probeAt(now)
		}
	case Neutral:
		if current && g.Cause != Open {
			g.probeFailed(now)
		}
	case Failure:
		return current && g.failed(r, now)
	case Refusal:
		return g.refuse(r, current, now, pace)
	}
	return false
}

// measure smooths the round trip and its deviation as TCP does (RFC 6298, alpha 1/8, beta 1/4). A
// failure's is no measure of the upstream at work. An attempt that its caller's deadline has cut off
// shows that the deviation is larger, and says nothing else: where a line is as long as the callers'
// deadlines, an upstream that becomes slower would not answer a single call in time any more.
func (g *Gate) measure(r Report) {
	switch off := (r.Trip - g.Srtt).Abs(); {
	case r.Trip <= 0:
	case r.Cut:
		if r.Trip > g.Srtt+g.Dev {
			g.Dev += (off - g.Dev) / 4
		}
	case r.Outcome != Success && r.Outcome != Refusal:
	case g.Srtt == 0:
		g.Srtt, g.Dev = r.Trip, r.Trip/2
	default:
		g.Dev += (off - g.Dev) / 4
		g.Srtt += (r.Trip - g.Srtt) / 8
	}
}

func (g *Gate) succeed(r Report, now time.Time, pace rate.Limit) {
	if g.untold > 0 && r.Epoch >= g.untoldEpoch {
		g.untold = 0
	}
	if g.Cause == Open {
		g.row = 0
	}
	if r.Epoch != g.Epoch {
		return
	}
	if g.Mode == Counted {
		if g.Grown++; g.Grown%4 == 0 || g.Flow == 0 || float64(g.allowed) < 2*g.Flow*g.Srtt.Seconds() {
			g.allowed++ // slower above what it has borne before
		}
	}
	switch {
	case g.Cause == Open || !g.Probing:
	case g.Floor.After(now): // a pause or a told time that came while the probe was out holds
		g.Probing, g.ProbeOut, g.Until = false, false, g.Floor
	default:
		g.Epoch++ // another probe may still be out: it is none of the reopening's calls
		g.reopen(now, pace)
	}
}

// probeFailed plans the next probe, if the last one was still awaited: the
// older the outage, the later.
func (g *Gate) probeFailed(now time.Time) {
	if g.Probing && g.ProbeOut {
		g.probeAt(now.Add(min(max(now.Sub(g.rowStart)/50, firstProbe), maxProbeGap)))
	}
}

// failed notes a failure of the current epoch.
func (g *Gate) failed(r Report, now time.Time) (stopped bool) {
	if g.Cause != Open {
		g.probeFailed(now)
		return false
	}
	if g.row == 0 {
		g.rowCall, g.rowMixed, g.rowStart = r.Call, false, now
	}
	g.row++
	g.rowMixed = g.rowMixed || r.Call != g.rowCall
	if g.row < FailuresToClose || !g.rowMixed {
		return false
	}
	g.Epoch++
	g.Shut(Failing, now.Add(firstProbe), now)
	g.Probing = true
	return true
}

// refuse notes a refusal. One of an older epoch is an echo: it extends the
// closing by what it was told, and changes nothing else.
func (g *Gate) refuse(r Report, current bool, now time.Time, pace rate.Limit) (stopped bool) {
	wait := min(r.Told, moment.MaxBelief)
	if !current {
		if wait <= 0 {
			return false
		}
		if until := now.Add(wait); g.Cause != Open && !until.After(g.Until) {
			g.Floor = moment.Latest(g.Floor, until) // a probe that is out may open it earlier
			return false
		}
		g.Probing = g.Probing || r.Told > moment.MaxBelief
		g.Shut(Told, now.Add(wait), now)
		return true
	}
	g.Epoch++
	if g.Probing { // Until was the probe's time, and it has been used
		g.probeAt(now)
	}
	if wait > 0 {
		g.Probing = r.Told > moment.MaxBelief
		x := moment.Jittered(wait)
		j := x - wait
		if until := now.Add(x); g.Shut(Told, until, now) {
			g.Slack = j
		}
		return true
	}
	if g.untold++; g.untold == 1 {
		g.untoldEpoch = g.Epoch
	}
	g.Probing = g.untold >= 3
	g.Shut(Throttled, now.Add(g.untoldWait(r.Trip, pace)), now)
	g.rowStart = now
	return true
}

// untoldWait is how long to close for a refusal that told no time. A stray one
// hardly costs throughput; those that follow without a success back off with
// full jitter.
func (g *Gate) untoldWait(trip time.Duration, pace rate.Limit) time.Duration {
	srtt := g.Srtt
	if srtt <= 0 {
		srtt = max(trip, time.Millisecond)
	}
	switch {
	case g.untold == 1 && pace > 0 && pace != rate.Inf:
		return moment.UnitTime(1, pace)
	case g.untold <= 2:
		return srtt
	}
	ceiling := maxUntold
	if k := g.untold - 2; k < 32 && srtt < maxUntold>>k {
		ceiling = srtt << k
	}
	return 1 + moment.Jitter(ceiling)
}

// Reopens is when the gate opens as far as is known, now if it is open.
func (g *Gate) Reopens(now time.Time) time.Time {
	if g.Trouble == nil || g.Cause == Open {
		return now
	}
	return moment.Latest(g.Until, now)
}
