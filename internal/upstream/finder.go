package upstream

import (
	"math"
	"time"

	"github.com/go-throttle/throttle/internal/limit"
)

// The constants of the finder, found by simulation; docs/decisions.md has what they reach.
const (
	// The ramp begins at rampStart units a second, or at what was served for longEnough before, and doubles every
	// rampDouble: from 20 to 160 a second takes half a second. In less than longEnough a burst would count for a
	// rate.
	rampStart  = 20.0
	rampDouble = 160 * time.Millisecond
	longEnough = 2 * time.Second

	// probeDouble is the time in which a probe doubles the rate. It rises slowly at first, so few calls go above
	// the limit, and a limit that has doubled is still found within seconds.
	probeDouble = 5 * time.Second

	// A hold lasts until one more probe costs at most throttledShare of the units sent, and its closing at most
	// closedShare of the time; at most longestHold seconds.
	throttledShare = 0.01
	closedShare    = 0.045
	longestHold    = 120.0

	// keepMost is the share of a throttled rate that may be kept at most, keepWindow that of the rate of a window
	// which the first throttled answer suggests.
	keepMost   = 0.985
	keepWindow = 0.95

	// leastRate is the lowest rate, in units per second: what is throttled at random would drive it to nothing.
	leastRate = 0.1

	// A bucket that has filled up again hides that a probe is above its rate. So near the rate that was found a
	// probe creeps: what came back is spent at a few per cent of it a second, and no second sees more than 1.05 of
	// the limit.
	creepFrom    = 1.01  // of that rate, where a probe begins
	creepGrow    = 0.006 // a second
	creepMost    = 0.03  // and no further
	creepPays    = 0.02  // of that rate, on average: so fast a probe spends what came back
	creepSlack   = 0.05  // seconds of that rate, for what is not known exactly
	longestCreep = 8.0   // seconds
	creepLeast   = 20.0  // units per second: below, one unit is more than 1/20 of a second's
	firstSecond  = 1.02  // of that rate may be sent in the first second of a reopening
)

// A findPhase is what a finder does now.
type findPhase uint8

const (
	ramping findPhase = iota // from the first throttled answer to the second: the rate doubles again and again
	holding                  // the rate stays
	probing                  // it rises slowly, until an answer is throttled
)

// A finder searches for a limit that is not advertised: only throttled answers show it. It begins with the
// first of them; before that there is none. It holds a rate for a time that grows with what throttled answers
// cost, then raises it until one comes again, and keeps a learned share of the rate at which it came.
//
//	ramping ── throttled ──▶ holding ── the hold is over ──▶ probing
//	                          ▲  │ ▲                           │
//	                          │  └─┘ throttled: cut            │ throttled: cut
//	                          └────────────────────────────────┘
//
// Example: a limit of 100/s. The ramp begins at 20/s and is throttled at 160/s. About 100/s were accepted
// meanwhile; 95 % of that are held for half a second. The probe, which would double the rate in 5 s, is throttled
// at 110/s; the finder holds 0.88 of that, 97/s, for longer, and a larger share once probes have shown that it can.
//
// The law is our own; simulation has chosen it and its constants.
type finder struct {
	phase findPhase
	w     float64       // the rate that is held, units per second
	since time.Time     // when the phase began; a hold counts from the reopening
	hold  float64       // how long it lasts, in seconds
	next  time.Time     // when the next call may start
	step  time.Duration // by which next was moved last

	// What earlier cuts have taught.
	keep, gain float64 // share of a throttled rate to keep, and how fast that grows
	good, top  float64 // the last rate held in full; the rate before a row of cuts
	row        int     // cuts in short order
	short      bool    // w is far below top: it is probably too low, so the hold is short

	// What has come since the last cut, or before the first.
	from      float64 // the rate at which the ramp begins
	burst     float64 // accepted at once before the first throttled answer
	window    float64 // within so many seconds, the advertised pause included; +Inf: none was advertised
	pause     float64 // the last closing, in seconds
	units     float64 // accepted since the last cut
	current   float64 // accepted in this epoch
	idle      float64 // seconds in which nobody used the rate, since the last cut
	throttled float64 // answers since the last probe
	usual     float64 // the same between two probes, smoothed
	lastCut   time.Time
	accepted  bool   // something was, since the last cut
	cuts      uint64 // how often a throttled answer has lowered the rate

	// Near a rate that is known well.
	measured float64 // the rate between two throttled answers: a probe creeps there; 0: not known
	creep    float64 // for how long it does, in seconds
	double   float64 // seconds in which the first search doubles
	outage   *outage // nil unless the first throttled answer came in the first second of a reopening
}

// A firstThrottle is the throttled answer that begins a search, and what came before it.
type firstThrottle struct {
	until      time.Time // for which the gate is closed
	burst      float64   // units accepted before
	window     float64   // within so many seconds, the advertised pause included; +Inf: none was advertised
	servedRate float64   // units per second that were served for longer; 0: not known

	// Of a reopening without a known limit that is younger than a second, else zero:
	opened       time.Time
	sent, served int           // in it
	srtt         time.Duration // smoothed round trip
}

// newFinder starts from a first throttled answer.
func newFinder(now time.Time, r firstThrottle) *finder {
	f := &finder{
		from: max(rampStart, r.servedRate), window: r.window, pause: r.until.Sub(now).Seconds(), since: r.until, next: r.until, lastCut: now,
		keep: 0.88, gain: 0.3, usual: 1, burst: r.burst, throttled: 1, double: rampDouble.Seconds(),
	}
	if !r.opened.IsZero() {
		f.outage = &outage{began: r.opened, sent: float64(r.sent), before: r.burst - float64(r.served), closed: f.pause, srtt: r.srtt}
		f.double = max(f.double, 3*r.srtt.Seconds()) // otherwise many are on their way when it is throttled
	}
	f.suppose()
	return f
}

// newFinderAt holds a rate that is thought to be about right, from when the gate opens.
func newFinderAt(w float64, now, until time.Time) *finder {
	f := newFinder(now, firstThrottle{until: until, window: math.Inf(1)})
	w = max(w, leastRate)
	f.phase, f.w, f.top, f.short = holding, w, w, true
	f.plan(0)
	return f
}

// held is the rate that is held, or was before the probe that is under way.
func (f *finder) held() float64 { return f.w }

// cutCount is how often a throttled answer has lowered it.
func (f *finder) cutCount() uint64 { return f.cuts }

// suppose holds what was accepted before the first throttled answer, if that is more than a bucket's burst is
// likely to be. It is taken for a window, as long as the time it took and the advertised pause: 100 calls
// in 0.2 s and a pause of 0.8 s make 95 % of 100 a second.
func (f *finder) suppose() {
	if w := keepWindow * f.burst / f.window; w >= 4*rampStart {
		f.phase, f.w, f.top, f.hold, f.short = holding, w, w, 5*f.pause, true
	}
}

// rate is the rate at which calls may start at now, in units per second. It begins the probe when the hold is
// over.
func (f *finder) rate(now time.Time) float64 {
	if hold := time.Duration(f.hold * 1e9); f.phase == holding && now.Sub(f.since) >= hold {
		if f.measured > 0 { // what has come back since the last throttled answer, and the slack
			came := max(0, f.measured*now.Sub(f.lastCut).Seconds()-f.units)
			f.creep = min(longestCreep, (came/f.measured+creepSlack)/creepPays)
		}
		f.phase, f.since = probing, now
		if !f.short {
			f.usual += 0.3 * (f.throttled - f.usual)
		}
		f.throttled = 0
	}
	t := max(0, now.Sub(f.since))
	switch f.phase {
	case ramping:
		return f.from * math.Exp2(min(40, t.Seconds()/f.double))
	case probing:
		if f.measured > 0 {
			fast := max(0, t.Seconds()-f.creep) / probeDouble.Seconds()
			return max(f.w, creepFrom*f.measured) * math.Exp(min(creepGrow*t.Seconds(), creepMost)) * math.Exp2(min(40, fast))
		}
		return f.w * math.Exp2(min(40, t.Seconds()/probeDouble.Seconds()))
	}
	return f.w
}

// sentAt is the rate at which a call went at that moment.
func (f *finder) sentAt(sent time.Time) float64 {
	if f.phase == probing && sent.Before(f.since) {
		return f.w
	}
	return f.rate(sent)
}

// take counts a start of n units, and moves the next one by their time at the rate. A rate that nobody uses is not
// raised: the time in which nobody asked does not count for the ramp or the probe.
func (f *finder) take(n int, at time.Time) {
	r := f.rate(at)
	if f.outage != nil {
		f.outage.sent += float64(n)
	}
	if idle := at.Sub(f.next); idle > limit.MaxLate {
		f.idle += idle.Seconds()
		if f.phase != holding {
			f.since = limit.Earliest(f.since.Add(idle), at)
		}
	}
	f.step = time.Duration(min(float64(n)/r*1e9, float64(time.Hour)))
	f.next = limit.Latest(f.next, at.Add(-limit.MaxLate)).Add(f.step)
}

// undo takes back the last start.
func (f *finder) undo() { f.next, f.step = f.next.Add(-f.step), 0 }

// accept notes that a call of n units, sent then, has been served. What was sent before the first throttled answer
// and served after it belongs to the burst that met it, and says nothing of the rate since.
func (f *finder) accept(n int, sent time.Time, current bool) {
	f.units += float64(n)
	if !current && f.cuts == 0 && !f.accepted && (f.outage == nil || f.outage.inBurst(sent)) {
		f.burst += float64(n)
		f.units -= float64(n)
		f.suppose()
	}
	if current {
		f.current += float64(n)
		f.accepted = true
	}
}

// throttle notes a throttled answer to a call sent at sent, for which the gate is closed until then.
// advertised: the answer named that time. Only an answer of the current epoch may cut the rate, and only if the
// event is a new one: something was accepted since the last cut, and that is not just over. Example: held at 100/s,
// with round trips of 20 ms, another answer of an event comes up to max(4·20 ms, 3/100 s) = 80 ms after the cut.
func (f *finder) throttle(sent, now, until time.Time, current, advertised bool, srtt time.Duration) (cut bool) {
	f.throttled++
	if f.outage != nil && f.outage.throttledAt.IsZero() {
		f.outage.throttledAt = sent
	}
	rs := f.sentAt(sent)
	if current {
		since := now.Sub(f.lastCut)
		same := !f.accepted || !advertised && f.phase == holding && since.Seconds() < max(4*srtt.Seconds(), 3/f.w)
		if !same {
			f.cut(rs, now, advertised)
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
	f.next = limit.Latest(f.next, until.Add(f.weight()))
	return cut
}

// weight is how much longer than the advertised pause the first burst counts at an upstream that takes the last
// window for part of this one, and counts what it throttles, as HAProxy does: previous·(1 − elapsed/window)
// + current.
func (f *finder) weight() time.Duration {
	if f.phase != holding || f.cuts > 0 {
		return 0
	}
	return time.Duration(min(0.25, f.throttled/(f.throttled+f.burst)) * f.pause * 1e9)
}
