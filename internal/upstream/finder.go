package upstream

import (
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/limit"
)

// The constants of the finder. Each was chosen by TestFinder with THROTTLE_FULL=1, unless another test is named:
// 32 workers before limits of 10, 100 and 1,000/s, with and without Retry-After.
const (
	// The ramp begins at rampStart units a second, or at what was served for longEnough before, and doubles every
	// rampDouble: from 20 to 160 a second takes half a second (TestFinderShortRuns). It takes a round trip if that is
	// longer, or it would have grown too far when its first 429 comes back (TestRampOfLongTrips). In less than longEnough
	// a burst would count for a rate. rampKeep of the rate that it shows is held first: with 0.95, which is all of it but
	// for chance, 400 calls at 100/s take 1.8 times the ideal time, with 0.8 1.6 times.
	rampStart  = 20.0
	rampDouble = 160 * time.Millisecond
	longEnough = 2 * time.Second
	rampKeep   = 0.8

	// A probe raises the rate to w ÷ (1 − t/probeTime): twice as much after half of it, eight times after seven eighths.
	// It rises slowly at first, so few calls go above the limit. Of a limit that has become ten times as high 73 %
	// are used in the first 30 s, and 58 % where each doubling took 5 s (TestTenfoldLimitIsFound). At few units a second
	// it takes probeUnits at w instead, or one probe would spend a window of minutes, but at most slowProbe seconds. With 60
	// units and no such bound buckets of 5 per 5 s take 1.8 times the ideal time, not 1.2 (TestDiscordWithAKeyPerChannel).
	// From steepest times w on it is an exponential, which grows by e in a steepest-th of probeTime. Else all calls that wait
	// would go at once at the end of a probe, and of all requests to 3,000 random upstreams 1.0 % would be throttled, not 0.6.
	probeTime             = 7 * time.Second
	probeUnits, slowProbe = 30.0, 30.0
	steepest              = 8.0

	// A hold lasts until one more probe costs at most throttledShare of the units sent, but not more than longestHold
	// seconds for that, and until its closing costs at most closedShare of the time. With 0.055 of the time 0.69 % of
	// the calls are throttled under Retry-After 1, with 0.045 0.57 %. smooth is how fast it follows what probes cost.
	throttledShare = 0.01
	longestHold    = 120.0
	closedShare    = 0.045
	smooth         = 0.3

	// While less than half of the highest rate of late is held, the limit may come back soon: closings may cost twice
	// their share. That rate fades to bestFades of it with each probe. After a limit has fallen to a tenth and come
	// back, 55 % of it are used in the first 30 s under Retry-After 1 instead of 40 (TestTenfoldLimitIsFound).
	bestFades = 0.9

	// A rate is probably too low if it is below shortBelow of what was held before a row of cuts. Then its hold lasts for
	// shortHold round trips, or closings (TestFinderHalved).
	shortBelow = 0.75
	shortHold  = 5.0

	// The share of a throttled rate to keep is keepFirst, and grows by learn of what is missing to keepMost with each
	// probe. A cut of a hold lowers it to keepLoss of it, but not below keepLeast. No cut leaves more than keepMost of a
	// rate. If learn is 0.3 1.2 % are throttled, if it is 0.03 88.6 % of 1,000/s are used under Retry-After 1 instead of
	// 91; without keepLoss the rate stays at 60 % for long.
	keepFirst, keepLeast, keepMost = 0.88, 0.6, 0.985
	learn, keepLoss                = 0.07, 0.9

	// In an advertised pause a burst comes back, so what was accepted says little of the rate. A cut goes by cutUnits of
	// it then: by a twentieth if it was throttled after 80 units, say, but by no more than after enough units, a fifth.
	enough   = 20.0
	cutUnits = 4.0

	// leastRate is the lowest rate, in units a second: what is throttled at random would drive it to nothing.
	leastRate = 0.1
)

// A findPhase is what a finder does now.
type findPhase uint8

const (
	ramping findPhase = iota // from the first throttled answer to the second: the rate doubles again and again
	holding                  // the rate stays
	probing                  // it rises slowly, until an answer is throttled
	aside                    // being slower has not helped: the rate doubles again and again, then nothing is held back
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
// meanwhile; 80 % of that are held for five round trips. The probe, which would double the rate in 3.5 s, is throttled
// at 110/s; the finder holds 0.88 of that, 97/s, for longer, and a larger share once probes have shown that it can.
//
// The law is our own; simulation has chosen it and its constants.
type finder struct {
	phase  findPhase
	w      float64       // the rate that is held, units per second; where the ramp begins
	double time.Duration // in which a ramp doubles it
	since  time.Time     // when the phase began, or the gate opened; later by the time that nobody used
	hold   float64       // how long it lasts, in seconds
	next   time.Time     // when the next call may start
	step   time.Duration // by which next was moved last

	// What earlier cuts have taught.
	keep      float64 // share of a throttled rate to keep
	best      float64 // the highest rate that was held lately
	good, top float64 // the last rate held in full; the rate before a row of cuts
	row       int     // cuts in short order
	short     bool    // w is far below top: it is probably too low, so the hold is short

	// What has come since the last cut, or before the first.
	burst     float64 // accepted before the first throttled answer
	units     float64 // accepted since the last cut
	idle      float64 // seconds in which nobody used the rate, since the last cut
	throttled float64 // answers since the last probe
	usual     float64 // the same between two probes, smoothed
	lastCut   time.Time
	accepted  bool // something was, since the last cut
	reported  bool // observers know of a rate

	check  check    // whether all this helps
	random atRandom // what is throttled whatever the rate
}

// newFinder ramps up from w when the gate opens, or holds it.
func newFinder(phase findPhase, w float64, now, until time.Time) *finder {
	f := &finder{
		phase: phase, w: max(w, leastRate), double: rampDouble, since: until, next: until, lastCut: now,
		keep: keepFirst, throttled: 1, usual: 1, check: newCheck(),
	}
	f.top, f.best, f.short = f.w, f.w, true
	f.plan(0)
	return f
}

// rate is the rate at which calls may start at now, in units per second. It begins the probe when the hold is
// over.
func (f *finder) rate(now time.Time) float64 {
	if hold := time.Duration(f.hold * 1e9); f.phase == holding && now.Sub(f.since) >= hold {
		f.phase, f.since = probing, now
		if !f.short {
			f.usual += smooth * (f.throttled - f.usual)
		}
		f.throttled = 0
	}
	t := float64(max(0, now.Sub(f.since)))
	if f.phase == aside && t > float64(asideRamp) {
		return float64(rate.Inf)
	}
	switch f.phase {
	case ramping, aside:
		return f.w * math.Exp2(min(40, t/float64(f.double)))
	case probing:
		x := t / max(float64(probeTime), min(slowProbe, probeUnits/f.w)*1e9)
		y := min(x, 1-1/steepest)
		return f.w / (1 - y) * math.Exp(min(40, steepest*(x-y)))
	}
	return f.w
}

// take counts a start of n units, and moves the next one by their time at the rate. A rate that nobody uses is not
// raised: the time in which nobody asked does not count for the ramp or the probe. A ramp to aside may end in it.
func (f *finder) take(n int, at time.Time) {
	r := f.rate(at)
	if r == float64(rate.Inf) {
		return
	}
	if idle := at.Sub(f.next); idle > limit.MaxLate {
		f.idle += idle.Seconds()
		if f.phase != holding {
			f.since = limit.Earliest(f.since.Add(idle), at)
		}
	}
	if f.step = limit.UnitTime(n, rate.Limit(r)); f.phase == aside {
		f.step = min(f.step, f.since.Add(asideRamp).Sub(at))
	}
	f.next = limit.Latest(f.next, at.Add(-limit.MaxLate)).Add(f.step)
}

// undo takes back the last start.
func (f *finder) undo() { f.next, f.step = f.next.Add(-f.step), 0 }

// resume lets the next call start now. A hold may have been planned for a pause that is cut short.
func (f *finder) resume(now time.Time) {
	f.idle = max(0, f.idle-max(0, f.next.Sub(now).Seconds())) // closed time that does not come
	f.since, f.next, f.hold = limit.Earliest(f.since, now), limit.Earliest(f.next, now), min(f.hold, longestHold)
}

// accept notes that a call of n units, sent then, has been served.
func (f *finder) accept(n float64, sent, now time.Time, current bool) {
	if f.check.note(n, false, current, sent, now) && f.phase != aside {
		f.putAside(now, limit.Latest(now, f.since), f.phase == ramping)
	}
	if f.phase == aside || sent.After(f.lastCut) {
		f.random.note(n, false, f.phase == holding, 0)
	}
	switch {
	case f.phase == aside:
	case f.phase != holding && !sent.Before(f.since):
		f.check.above(n, false)
	case f.phase == holding && current:
		f.check.served(n)
	}
	// What was sent before the first throttled answer is the burst that met it. What was sent after it counts, also in a
	// later epoch: throttled answers mostly come back sooner than served ones, and the ramp would never end.
	if f.phase == ramping && !sent.After(f.lastCut) {
		f.burst += n
		return
	}
	f.units += n
	f.accepted = f.accepted || current || sent.After(f.lastCut)
}

// throttle notes a throttled answer to a call sent at sent, for which the gate is closed until then. advertised: the answer
// named that time. Only an event may cut the rate, and only a new one: something was accepted since the last cut.
func (f *finder) throttle(sent, now, until time.Time, current, advertised bool, srtt time.Duration, inFlight float64) (cut bool) {
	f.check.note(0, true, current, sent, now)
	if f.phase == aside {
		if f.random.note(0, true, false, inFlight) || f.check.inVain(now.Sub(f.lastCut), srtt, f.acceptedRate(now)) {
			f.goOnSearching(now, until, srtt)
		} else if f.rate(now) < float64(rate.Inf) {
			f.closed(now, until) // or all calls would go at once when the gate opens
		}
		return false
	}
	event := f.event(sent, now, current, inFlight)
	switch cut = event && f.accepted; {
	case !event && f.random.share > 0:
		f.idle += f.closed(now, until)
		return false
	case cut && f.phase == holding && f.check.pointless(f.row, f.w, f.acceptedRate(now)):
		f.putAside(now, until, false)
		return false
	case cut:
		f.cut(f.throttledAt(sent), now, advertised)
		f.begin(now, until, srtt)
	}
	if until.After(now) {
		f.since = until
	}
	f.next = limit.Latest(f.next, until)
	return cut
}

// closed lets the next call start when the gate opens, and returns how many seconds that is: they do not count for the phase.
func (f *finder) closed(now, until time.Time) (seconds float64) {
	closed := max(0, until.Sub(limit.Latest(now, f.next)))
	if closed > 0 {
		f.since, f.next, f.step = f.since.Add(closed), until, 0
	}
	return closed.Seconds()
}

// begin begins a hold when the gate opens.
func (f *finder) begin(now, until time.Time, srtt time.Duration) {
	f.plan(max(until.Sub(now).Seconds(), srtt.Seconds(), 1/f.w))
	f.phase, f.since, f.lastCut, f.units, f.idle, f.accepted = holding, now, now, 0, 0, false
	f.random.excess, f.random.run = 0, 0
}

// plan sets how long to hold: cost is the time that the next throttled answer costs. At 100/s, with one throttled
// answer a probe and 20 ms, until a probe costs 1 % of the units: 1 s. With an advertised second, until closings cost
// 4.5 % of the time: 22 s. A hold that is probably too low lasts for shortHold of these costs.
func (f *finder) plan(cost float64) {
	if f.short {
		f.hold = shortHold * cost
		return
	}
	if f.w < f.best/2 {
		cost /= 2
	}
	f.hold = max(min(max(1, f.usual)/(throttledShare*f.w), longestHold), cost/closedShare)
}

// cut lowers the rate for a throttled call that went at rs. advertised: its answer named a time.
//
// A ramp ends at rampKeep of what was accepted in it. After an advertised pause that holds too little: for most of the
// time the gate was closed. There the rate x follows from the burst that had come back and was spent above it:
// burst = τ·(rs − x)²/2x, about, with τ the time in which the ramp grows by e. Example: a burst of 10, τ = 0.23 s and
// a call that went at 205/s: 102/s.
//
// A probe has found the limit between the rate that was held and rs: the finder holds a share of rs, because a burst
// lets a probe overshoot. That share (keep) grows with each full hold between two probes, and shrinks with each cut
// of a hold. Where some calls are throttled at random, a hold above the limit may go unnoticed. Then the probe shows that
// less was accepted than that explains, so it is a cut of the hold.
func (f *finder) cut(rs float64, now time.Time, advertised bool) {
	acc := f.acceptedRate(now)
	if f.phase != holding {
		f.check.above(0, true)
	}
	if share := f.random.share; share > 0 && f.phase == probing && acc < keepMost*(1-share)*f.w {
		f.phase, f.since = holding, now.Add(-time.Duration(f.hold*1e9)) // all of it
	}
	switch f.phase {
	case ramping:
		if advertised {
			c := math.Sqrt(2 * f.burst * math.Ln2 / f.double.Seconds())
			x := (math.Sqrt(c*c+4*rs) - c) / 2
			acc = max(acc, x*x)
		}
		f.w, f.short, f.throttled = rampKeep*min(rs, acc), true, 1 // the first burst says nothing of what a probe costs
	case holding:
		f.lower(acc, now, advertised)
	case probing:
		if !f.short {
			f.good = f.w
			f.keep += learn * max(0, keepMost-f.keep)
		}
		f.w = min(keepMost*rs, max(f.w, f.keep*rs))
		f.row, f.top, f.short = 0, f.w, false
		f.best = max(f.w, f.best*bestFades)
	}
	f.w = max(f.w, leastRate)
}

// acceptedRate is what was accepted since the last cut, in units a second, without the time in which nobody used the rate.
func (f *finder) acceptedRate(now time.Time) float64 {
	return f.units / max(1e-9, now.Sub(f.lastCut).Seconds()-f.idle)
}

// lower cuts a rate that was held: acc is the rate that has been accepted since the last cut. Without an
// advertised time two throttled answers bracket the true rate, so acc is close to it. With one, what was
// accepted also counts the burst that came back in the pause; the rate goes down by a share that grows when
// cuts follow each other.
func (f *finder) lower(acc float64, now time.Time, advertised bool) {
	if held := now.Sub(f.since).Seconds(); held < f.hold/2 {
		f.row = min(f.row+1, 10) // 2^10 times the first share is all
	} else {
		f.row, f.top = 0, f.w
	}
	most := 0.5 // to go down by
	if advertised {
		most = min(most, cutUnits/max(enough, f.units)*math.Exp2(float64(f.row)))
	}
	w := min(keepMost*f.w, max(keepMost*acc, (1-most)*f.w))
	switch f.row {
	case 0:
	case 1: // back to the last rate that was held
		w = min(keepMost*f.w, max(w, f.good))
	default:
		f.good = 0
	}
	if f.row <= 1 {
		f.keep = max(keepLeast, f.keep*keepLoss)
	}
	f.w, f.short = w, w < shortBelow*f.top
}
