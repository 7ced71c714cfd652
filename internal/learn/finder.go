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

	// A bucket that has filled up again hides that a probe is above its rate. So near the
	// rate that was found a probe creeps: what came back is spent at a few per cent of
	// it a second, and no second sees more than 1.05 of the limit.
	creepFrom    = 1.01  // of that rate, where a probe begins
	creepGrow    = 0.006 // a second
	creepMost    = 0.03  // and no further
	creepPays    = 0.02  // of that rate, which so is paid back on average
	creepSlack   = 0.05  // seconds of that rate, for what is not known exactly
	longestCreep = 8.0   // seconds
	creepLeast   = 20.0  // units per second: below, one unit is more than 1/20 of a second's
	firstSecond  = 1.02  // of that rate may be sent in the first second of a reopening
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

	bears  float64   // found between two refusals, at least: a probe creeps there; 0: not known
	creep  float64   // for how long it does, in seconds
	double float64   // seconds in which the first search doubles
	back   *comeback // nil unless the first refusal came in the first second of a reopening
}

// A FirstRefusal is what begins a search.
type FirstRefusal struct {
	Until  time.Time // for which the gate is closed
	Burst  float64   // units accepted before
	Window float64   // within so many seconds, a told pause included; +Inf: none was told
	Flow   float64   // units per second that the upstream has borne for longer; 0: not known

	// Of a reopening without a known limit that is younger than a second, else zero:
	Opened       time.Time
	Sent, Served int           // in it
	Srtt         time.Duration // smoothed round trip
}

// NewFinder starts from a first refusal.
func NewFinder(now time.Time, r FirstRefusal) *Finder {
	f := &Finder{
		from: max(rampStart, r.Flow), window: r.Window, pause: r.Until.Sub(now).Seconds(), since: r.Until, next: r.Until, lastCut: now,
		keep: 0.88, gain: 0.3, usual: 1, burst: r.Burst, refused: 1, double: rampDouble.Seconds(),
	}
	if !r.Opened.IsZero() {
		f.back = &comeback{began: r.Opened, sent: float64(r.Sent), before: r.Burst - float64(r.Served), closed: f.pause, srtt: r.Srtt}
		f.double = max(f.double, 3*r.Srtt.Seconds()) // else many are on their way when it is refused
	}
	f.suppose()
	return f
}

// NewFinderAt holds a rate that is thought to be about right, from when the gate opens.
func NewFinderAt(w float64, now, until time.Time) *Finder {
	f := NewFinder(now, FirstRefusal{Until: until, Window: math.Inf(1)})
	w = max(w, leastRate)
	f.phase, f.w, f.top, f.short = holding, w, w, true
	f.plan(0)
	return f
}

// Held is the rate that is held, or was before the probe that is under way.
func (f *Finder) Held() float64 { return f.w }

// Cuts is how often a refusal has lowered it.
func (f *Finder) Cuts() uint64 { return f.cuts }

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
		if f.bears > 0 { // what has come back since the last refusal, and the slack
			came := max(0, f.bears*now.Sub(f.lastCut).Seconds()-f.units)
			f.creep = min(longestCreep, (came/f.bears+creepSlack)/creepPays)
		}
		f.phase, f.since = probing, now
		if !f.short {
			f.usual += 0.3 * (f.refused - f.usual)
		}
		f.refused = 0
	}
	t := max(0, now.Sub(f.since))
	switch f.phase {
	case ramping:
		return f.from * math.Exp2(min(40, t.Seconds()/f.double))
	case probing:
		if f.bears > 0 {
			fast := max(0, t.Seconds()-f.creep) / probeDouble.Seconds()
			return max(f.w, creepFrom*f.bears) * math.Exp(min(creepGrow*t.Seconds(), creepMost)) * math.Exp2(min(40, fast))
		}
		return f.w * math.Exp2(min(40, t.Seconds()/probeDouble.Seconds()))
	}
	return f.w
}

// sentAt is the rate at which a call went at that moment.
func (f *Finder) sentAt(sent time.Time) float64 {
	if f.phase == probing && sent.Before(f.since) {
		return f.w
	}
	return f.Rate(sent)
}

// take counts a start of n units. A rate that nobody uses is not raised.
func (f *Finder) take(n int, at time.Time) {
	r := f.Rate(at)
	if f.back != nil {
		f.back.sent += float64(n)
	}
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

// Accept notes that a call of n units, sent then, has been served.
func (f *Finder) Accept(n int, sent time.Time, current bool) {
	f.units += float64(n)
	if !current && f.cuts == 0 && !f.accepted && (f.back == nil || f.back.rushed(sent)) {
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
	if f.back != nil && f.back.refused.IsZero() {
		f.back.refused = sent
	}
	rs := f.sentAt(sent)
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
	switch {
	case f.bears == 0:
	case !f.short: // creeping takes its time too
		f.hold = max(f.hold-creepSlack/creepPays, f.hold/4)
	case f.back != nil && f.back.left > 0:
		f.hold, f.back.left = f.back.left-cost, 0
	}
	f.hold = min(f.hold, max(longestHold, 5*cost))
}

// cut lowers the rate for a refusal of a call that went at rs.
func (f *Finder) cut(rs float64, now time.Time, told bool) {
	elapsed := max(1e-9, now.Sub(f.lastCut).Seconds())
	if f.phase == ramping {
		f.endRamp(rs, elapsed, now, told)
		return
	}
	acc := f.units / max(1e-9, elapsed-f.idle)
	was := f.bears
	f.bears = 0
	if !told && f.units >= 20 && acc >= creepLeast && (was > 0 || !f.short) { // the refused one came half a unit early, on average
		f.bears = acc * (1 + 0.5/f.units)
	}
	if f.phase == holding {
		f.lower(acc, now, told)
		return
	}
	if !f.short {
		f.good = f.w
		f.keep += f.gain * max(0, keepMost-f.keep)
		f.gain = min(0.3, 1.3*f.gain)
	}
	switch {
	case f.bears > 0 && acc < (1+creepMost)*was: // the limit is the old one, and what was above it is the burst
		f.w = max(0.5*f.w, keepMost*acc)
	case rs < f.w:
		f.w *= 0.98
	default:
		f.w = min(0.99*rs, max(f.w, f.keep*rs))
	}
	f.row, f.top, f.short = 0, f.w, false
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
