package learn

import (
	"math"
	"time"

	"github.com/go-throttle/throttle/internal/moment"
)

// The constants of the finder, found by simulation; ARCHITECTURE.md tells what they reach.
const (
	rampStart    = 20.0                   // units per second with which the first search begins
	rampDouble   = 160 * time.Millisecond // in which it doubles
	probeDouble  = 5 * time.Second        // in which a probe doubles
	refusalShare = 0.01                   // refusals wanted per unit sent, at most
	closedShare  = 0.045                  // of the time that closings may take
	keepMost     = 0.985                  // of the refused rate that may be kept
	keepWindow   = 0.95                   // of a window's rate that the first refusal suggests
	leastRate    = 0.1                    // units per second: less is the gate's to hold back
	longestHold  = 120.0                  // seconds
	LongEnough   = 2 * time.Second        // in which a burst does not count for a rate
)

type findPhase uint8

const (
	ramping findPhase = iota // from the first refusal to the second
	holding
	probing
)

// A Finder looks for a limit that only refusals tell of. It holds a rate for a
// time that grows with what refusals cost, then raises it until it is refused
// again, and keeps a learned share of the rate that was refused. What it does
// before the first refusal is nothing: it does not exist.
//
// The law is our own; simulation has chosen it and its constants.
type Finder struct {
	phase findPhase
	w     float64   // the rate that is held, units per second
	since time.Time // when the phase began; a hold counts from the reopening
	hold  float64   // how long it lasts, in seconds
	next  time.Time // the next start
	step  time.Duration

	keep, gain float64 // share of a refused rate to keep, and how fast that grows
	good, top  float64 // the last rate held in full; the rate before a row of cuts
	row        int     // cuts in short order
	short      bool    // w is far below top

	from     float64 // the rate at which the first search begins
	burst    float64 // accepted at once before the first refusal
	window   float64 // within so many seconds, a told pause included; +Inf: none was told
	pause    float64 // the last closing, in seconds
	units    float64 // accepted since the last cut
	current  float64 // of them, in this epoch
	idle     float64 // seconds in which nobody used the rate, since the last cut
	refused  float64 // since the last probe
	usual    float64 // refused between two probes, smoothed
	lastCut  time.Time
	accepted bool // something was, since the last cut
	cuts     uint64
}

// NewFinder starts from a first refusal, for which the gate is closed until then. burst
// had been accepted within window, which includes the pause that was told; flow is what
// the upstream has borne for longer, 0 if that is not known.
func NewFinder(now, until time.Time, burst, window, flow float64) *Finder {
	f := &Finder{from: max(rampStart, flow), window: window, pause: until.Sub(now).Seconds(), since: until, next: until, lastCut: now, keep: 0.88, gain: 0.3, usual: 1, burst: burst, refused: 1}
	f.suppose()
	return f
}

// suppose makes a plateau of what was accepted before the first refusal, if that is
// more than a bucket's burst is likely to be: it is taken for a window, as long as the
// time it took and the pause that was told.
func (f *Finder) suppose() {
	if w := keepWindow * f.burst / f.window; w >= 4*rampStart {
		f.phase, f.w, f.top, f.hold, f.short = holding, w, w, 5*f.pause, true
	}
}

// Rate is the rate at which calls may start at now.
func (f *Finder) Rate(now time.Time) float64 {
	if hold := time.Duration(f.hold * 1e9); f.phase == holding && now.Sub(f.since) >= hold {
		f.phase, f.since = probing, now
		if !f.short {
			f.usual += 0.3 * (f.refused - f.usual)
		}
		f.refused = 0
	}
	t := max(0, now.Sub(f.since))
	switch f.phase {
	case ramping:
		return f.from * math.Exp2(min(40, t.Seconds()/rampDouble.Seconds()))
	case probing:
		return f.w * math.Exp2(min(40, t.Seconds()/probeDouble.Seconds()))
	}
	return f.w
}

// take counts a start of n units. A rate that nobody uses is not raised.
func (f *Finder) take(n int, at time.Time) {
	r := f.Rate(at)
	if idle := at.Sub(f.next); idle > moment.MaxLate {
		f.idle += idle.Seconds()
		if f.phase != holding {
			f.since = moment.Earliest(f.since.Add(idle), at)
		}
	}
	f.step = time.Duration(min(float64(n)/r*1e9, float64(time.Hour)))
	f.next = moment.Latest(f.next, at.Add(-moment.MaxLate)).Add(f.step)
}

func (f *Finder) undo() { f.next, f.step = f.next.Add(-f.step), 0 }

// Accept notes that a call of n units has been served.
func (f *Finder) Accept(n int, current bool) {
	f.units += float64(n)
	if !current && f.cuts == 0 && !f.accepted { // of the first rush
		f.burst += float64(n)
		f.units -= float64(n)
		f.suppose()
	}
	if current {
		f.current += float64(n)
		f.accepted = true
	}
}

// Refuse notes a refusal of a call sent at sent, for which the gate is closed
// until then. Only one of the current epoch may cut the rate, and only if the
// event is a new one.
func (f *Finder) Refuse(sent, now, until time.Time, current, told bool, srtt time.Duration) (cut bool) {
	f.refused++
	rs := f.Rate(sent)
	if current {
		since := now.Sub(f.lastCut)
		same := !f.accepted || !told && f.phase == holding && since.Seconds() < max(4*srtt.Seconds(), 3/f.w)
		if !same {
			f.cut(rs, now, told)
			f.w = max(f.w, leastRate)
			f.plan(max(until.Sub(now).Seconds(), srtt.Seconds(), 1/f.w))
			f.phase, f.lastCut, f.units, f.idle, f.accepted = holding, now, 0, 0, false
			f.cuts++
		}
		f.current = 0
		f.pause = until.Sub(now).Seconds()
		cut = !same
	}
	if until.After(now) && f.phase != probing {
		f.since = until
	}
	f.next = moment.Latest(f.next, until.Add(f.weight()))
	return cut
}

// weight is how much longer than the told pause the first rush is felt by an upstream
// that takes the last window for part of this one, and counts what it refuses
// as HAProxy does: it reckons previous·(1 − elapsed/window) + current.
func (f *Finder) weight() time.Duration {
	if f.phase != holding || f.cuts > 0 {
		return 0
	}
	return time.Duration(min(0.25, f.refused/(f.refused+f.burst)) * f.pause * 1e9)
}

// plan says how long to hold, where a refusal closes the gate for cost seconds.
func (f *Finder) plan(cost float64) {
	f.hold = max(max(1, f.usual)/(refusalShare*f.w), cost/closedShare)
	if f.short {
		f.hold = max(0.5, min(10/f.w, 10), 5*cost)
	}
	f.hold = min(f.hold, max(longestHold, 5*cost))
}

// cut lowers the rate for a refusal of a call that went at rs.
func (f *Finder) cut(rs float64, now time.Time, told bool) {
	elapsed := max(1e-9, now.Sub(f.lastCut).Seconds())
	switch f.phase {
	case ramping:
		est := f.units / elapsed
		if told { // the burst came back in the pause
			ramped := max(1e-9, now.Sub(f.since).Seconds())
			est = max((f.units-min(f.burst, f.units/2))/ramped, min(f.burst/max(1e-9, f.pause), f.units/ramped), crossed(rs, f.burst))
		}
		f.w, f.short = min(0.7*rs, 0.95*est), true
		f.refused = 1 // the first rush says nothing of what a probe costs
	case holding:
		f.lower(f.units/max(1e-9, elapsed-f.idle), now, told)
	case probing:
		if !f.short {
			f.good = f.w
			f.keep += f.gain * max(0, keepMost-f.keep)
			f.gain = min(0.3, 1.3*f.gain)
		}
		if rs < f.w {
			f.w *= 0.98
		} else {
			f.w = min(0.99*rs, max(f.w, f.keep*rs))
		}
		f.row, f.top, f.short = 0, f.w, false
	}
}

// crossed is the rate of a token bucket that a ramp to the rate rs has emptied of
// burst units: those sent above that rate. With τ the time of the ramp's growth by e,
// burst = τ·(rs − rate − rate·ln(rs/rate)), which falls as the rate rises.
func crossed(rs, burst float64) float64 {
	tau := rampDouble.Seconds() / math.Ln2
	low, high := 0.0, rs
	for range 30 {
		if mid := (low + high) / 2; tau*(rs-mid-mid*math.Log(rs/mid)) > burst {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// lower cuts a rate that was held: acc is the rate that has been accepted since
// the last cut.
func (f *Finder) lower(acc float64, now time.Time, told bool) {
	if held := now.Sub(f.since).Seconds(); held < f.hold/2 || f.short {
		f.row = min(f.row+1, 3)
	} else {
		f.row, f.top = 0, f.w
	}
	var w float64
	if !told && f.units >= 20 { // two refusals bracket the true rate
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
