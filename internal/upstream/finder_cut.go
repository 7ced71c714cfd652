package upstream

import (
	"math"
	"time"
)

// This file is what a finder makes of a throttled answer: the new rate, and how long to hold it.

// plan says how long to hold, if a throttled answer closes the gate for cost seconds: so long that probing costs
// at most throttledShare of what is sent, and closedShare of the time. Example: at 100/s, with one throttled answer
// a probe that closes the gate for 90 ms, max(1/(0.01·100), 0.09/0.045) = 2 s. After a deep cut the hold is
// short, because the rate is probably too low.
func (f *finder) plan(cost float64) {
	f.hold = max(max(1, f.usual)/(throttledShare*f.w), cost/closedShare)
	if f.short {
		f.hold = max(0.5, min(10/f.w, 10), 5*cost)
	}
	switch {
	case f.measured == 0:
	case !f.short: // creeping takes its time too
		f.hold = max(f.hold-creepSlack/creepPays, f.hold/4)
	case f.outage != nil && f.outage.left > 0:
		f.hold, f.outage.left = f.outage.left-cost, 0
	}
	f.hold = min(f.hold, max(longestHold, 5*cost))
}

// cut lowers the rate for a throttled call that went at rs. advertised: its answer named a time.
//
// A ramp ends by endRamp, a hold is lowered by lower. A probe has found the limit between the rate that was held
// and rs: the finder holds a share of rs, because a burst lets a probe overshoot. That share (keep) grows with each
// full hold between two probes, and shrinks with each cut of a hold.
func (f *finder) cut(rs float64, now time.Time, advertised bool) {
	elapsed := max(1e-9, now.Sub(f.lastCut).Seconds())
	if f.phase == ramping {
		f.endRamp(rs, elapsed, now, advertised)
		return
	}
	acc := f.units / max(1e-9, elapsed-f.idle) // without the time in which nobody used the rate
	was := f.measured
	f.measured = 0
	if !advertised && f.units >= 20 && acc >= creepLeast && (was > 0 || !f.short) { // the throttled one came half a unit early, on average
		f.measured = acc * (1 + 0.5/f.units)
	}
	if f.phase == holding {
		f.lower(acc, now, advertised)
		return
	}
	if !f.short {
		f.good = f.w
		f.keep += f.gain * max(0, keepMost-f.keep)
		f.gain = min(0.3, 1.3*f.gain)
	}
	switch {
	case f.measured > 0 && acc < (1+creepMost)*was: // the limit is the old one, and what was above it is the burst
		f.w = max(0.5*f.w, keepMost*acc)
	case rs < f.w:
		f.w *= 0.98
	default:
		f.w = min(0.99*rs, max(f.w, f.keep*rs))
	}
	f.row, f.top, f.short = 0, f.w, false
}

// lower cuts a rate that was held: acc is the rate that has been accepted since the last cut. Without an
// advertised time two throttled answers bracket the true rate, so acc is close to it. With one, what was
// accepted also counts the burst that came back in the pause; the rate goes down by a share that grows when
// cuts follow each other.
func (f *finder) lower(acc float64, now time.Time, advertised bool) {
	if held := now.Sub(f.since).Seconds(); held < f.hold/2 || f.short {
		f.row = min(f.row+1, 3)
	} else {
		f.row, f.top = 0, f.w
	}
	// e is the share to go down by: a twentieth, say, if it was throttled after 80 units, more after fewer.
	var w float64
	if !advertised && f.units >= 20 {
		w = min(max(keepMost*acc, 0.5*f.w), 0.99*f.w)
	} else {
		e := min(0.4, min(max(4/f.current, 0.01), 0.2)*math.Exp2(float64(f.row)))
		w = min(0.99*f.w, max(f.w*(1-e), 0.98*acc))
	}
	if f.row == 1 && f.good < f.w { // back to the last rate that was held
		w = min(0.995*f.w, max(w, f.good))
	}
	if f.row > 1 {
		f.good = 0
	}
	if f.row <= 1 {
		f.keep = max(0.6, f.keep*max(0.9, w/f.w))
	}
	f.gain = max(0.03, f.gain/2)
	f.short = w < 0.75*f.top
	f.w = w
}
