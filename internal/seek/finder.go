package seek

import (
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/limit"
)

// The constants of the search, beside those of check.go and begin.go. docs/learning.md has the law in formulas.
const (
	rampStart      = 20.0 // of a ramp, if nothing is known
	leastRate      = 0.1
	usualBurst     = 0.1                    // seconds of a bucket's rate in its burst, if nothing is known of that
	leastWindow    = 80.0                   // of a first burst and the pause after it: it is taken for a window
	probeUnits     = 30.0                   // a probe takes these at the rate held, if that is longer than probeTime
	rampDouble     = 120 * time.Millisecond // in which a ramp doubles, or a round trip
	reopenDouble   = 500 * time.Millisecond // after an outage: what is throttled tells the rate, if it rises slowly
	fullSpeed      = 8.0                    // doublings, until a ramp holds nobody back
	probeTime      = 7 * time.Second        // in which a probe makes a rate seven times as high
	slowProbe      = 30 * time.Second       // at most, for probeUnits
	longestHold    = 300.0                  // seconds, for what a probe costs in units
	guessHold      = 5.0                    // closings, of the rate of a ramp
	throttledShare = 0.01                   // of the units, that probes may cost
	closedShare    = 0.045                  // of the time, that closings may cost
	keepFirst      = 0.88                   // of a throttled rate, to hold; what is less than that is certainly less
	keepMost       = 0.985                  // at most
	keepLeast      = 0.5                    // at least
	learn          = 0.07                   // of what is missing to keepMost, by each probe after a hold
	quarter        = 0.25                   // of what may be too high, to cut for each event in a row; of what a probe may gain, to risk
	threefold      = 3.0                    // times: what is missing to a configured rate, by a cut; a rate of what is accepted, which is not far above it
)

// A findPhase is what a finder does now: the rate doubles again and again, or stays, or rises slowly until something is throttled.
type findPhase uint8

const (
	ramping findPhase = iota
	holding
	probing
)

// A finder searches for a limit that is not advertised, or is lower than the configured one: only throttled answers show it.
type finder struct {
	phase           findPhase
	held            float64       // the rate that is held, units per second; where the ramp begins
	configured      float64       // the configured one; rate.Inf: none
	double          time.Duration // in which a ramp doubles the rate
	since           time.Time     // when the phase began, or the gate opened; later by the time that nobody used
	hold            float64       // how long it lasts, in seconds
	next            time.Time     // when the next call may start
	step            time.Duration // by which next was moved last
	keep            float64       // share of a throttled rate to keep
	cuts            int           // in a row, of holds
	guess           bool          // it is that of a ramp, or of cuts in a row
	span            float64       // seconds from the first burst to the end of its pause; rate.Inf: there was no pause, 0: no more of it comes
	burst           float64       // units of it that were accepted; negative: there was none
	period                        // since the last event
	last            [2]float64    // units accepted in the two holds before, if each was cut
	probed          float64       // units accepted when the probe began
	throttled, cost float64       // answers since the last probe began, and between the two before
	check           check         // whether all this helps
}

// A period is what has come since an event.
type period struct {
	began       time.Time
	units, idle float64       // accepted; seconds in which nobody used the rate
	closed      time.Duration // what the gate's clock of closed time showed at its beginning
	accepted    bool          // something was that had been sent in it
}

// rates are what has been accepted a second: in all, and while the gate was open. A limit lies between them: it is low if the
// closed time was part of a window, and high if a burst came back meanwhile.
func (p *period) rates(now time.Time, clock time.Duration) (low, high float64) {
	all := now.Sub(p.began).Seconds() - p.idle
	return p.units / max(1e-9, all), p.units / max(1e-9, all-(clock-p.closed).Seconds())
}

// newFinder ramps up from a rate when the gate opens, or holds it. clock is that of closed time.
func newFinder(phase findPhase, held, configured float64, now, until time.Time, clock time.Duration) *finder {
	f := &finder{
		phase: phase, held: max(held, leastRate), configured: configured, double: rampDouble, since: until, next: until,
		keep: keepFirst, cost: 1, guess: true, period: period{began: now, closed: clock}, check: check{higher: tally{1, firstShare}},
	}
	f.plan(max(until.Sub(now).Seconds(), 1/f.held))
	return f
}

// aside reports whether the finder holds nobody back: throttled answers come at random, as far as is known.
func (f *finder) aside() bool { return f.phase == ramping && f.check.share > 0 }

// over reports whether the search has ended: nothing was throttled in all of a ramp, or for a hold's time at the configured rate.
func (f *finder) over(now time.Time) bool {
	f.check.forget(now)
	r := f.rate(now)
	return !f.aside() && r >= f.configured && (f.phase != probing || now.Sub(f.since).Seconds() >= f.hold)
}

// rate is the rate at which calls may start at now, in units per second. It begins the probe when the hold is over.
func (f *finder) rate(now time.Time) float64 {
	if hold := time.Duration(f.hold * 1e9); f.phase == holding && now.Sub(f.since) >= hold {
		if f.phase, f.since = probing, now; !f.guess {
			f.cost = f.throttled
		}
		f.throttled, f.probed = 0, f.units
	}
	t := float64(max(0, limit.Earliest(now, f.next.Add(limit.MaxLate)).Sub(f.since))) // a rate that nobody uses is not raised
	switch f.phase {
	case ramping:
		if x := t / float64(f.double); x <= fullSpeed {
			return f.held * math.Exp2(x)
		}
		return float64(rate.Inf)
	case probing:
		x := t / max(float64(probeTime), min(float64(slowProbe), probeUnits/f.held*1e9))
		return min(float64(rate.Inf), f.held*math.Exp(x+x*x))
	}
	return f.held
}

// take counts a start of n units. Only the time in which calls wait for the rate counts for a ramp or a probe.
func (f *finder) take(n int, at time.Time) {
	r := f.rate(at)
	if r == float64(rate.Inf) {
		return
	}
	if idle := at.Sub(f.next); idle > limit.MaxLate {
		if f.idle += (idle - limit.MaxLate).Seconds(); f.phase != holding && r < f.configured {
			f.since = limit.Earliest(f.since.Add(idle+f.step), at)
		}
	}
	f.step = limit.UnitTime(n, rate.Limit(r))
	f.next = limit.Latest(f.next, at.Add(-limit.MaxLate)).Add(f.step)
}

// undo takes back the last start.
func (f *finder) undo() { f.next, f.step = f.next.Add(-f.step), 0 }

// resume lets the next call start now. The hold was planned for a pause that is cut short.
func (f *finder) resume(now time.Time) {
	f.since, f.next = limit.Earliest(f.since, now), limit.Earliest(f.next, now)
	f.plan(1 / f.held)
}

// plan sets how long to hold. cost is the seconds of the next closing. Example: at 100/s, with one throttled answer a probe and 20
// ms, 1 s; with an advertised second 22 s; and beside 104/s, where little can be gained, 117 s.
func (f *finder) plan(cost float64) {
	if f.guess {
		f.hold = min(guessHold*cost, longestHold)
		return
	}
	f.hold = max(min(max(1, f.cost)/(throttledShare*f.held), longestHold), cost/closedShare)
	f.hold = min(limit.MaxBelief.Seconds(), f.hold*max(1, closedShare/(quarter*max(1e-3, 1-f.held/f.configured))))
}

// A Sight is what an answer shows, and what others know by then.
type Sight struct {
	Throttled       bool          // otherwise it is a success
	Units, InFlight float64       // of its call, and of the others under way
	Sent, Now       time.Time     // when its attempt started, and when it came
	Reopens         time.Time     // when the gate opens
	Current         bool          // sent in the epoch that was current before the answer
	Paused          bool          // somebody has closed the gate by hand for longer
	Wait            time.Duration // for which the upstream wants to be left alone; 0: it has not said
	Clock, Trip     time.Duration // of closed time; smoothed round trip
	Configured      rate.Limit    // rate.Inf: none is
	Limited         bool          // a limit is configured or advertised
	Known           time.Duration // how long ago the first call of the key came
	Served, Rate    float64       // attempts that were served so far; in a second, 0: not known
}

// accept notes that a call has been served.
func (f *finder) accept(a *Sight) {
	if f.check.note(a.Units, false, a.Sent) && !f.aside() {
		f.putAside(a, limit.Latest(a.Now, f.since))
	}
	if a.Sent.After(f.began) {
		f.check.served(a.Units, f.phase == holding, f.phase == ramping)
		f.accepted = true
	} else if f.span > 0 {
		f.suppose(a.Units)
		return
	}
	f.units += a.Units
	f.accepted = f.accepted || a.Current
}

// suppose notes n units of the first burst, which may show a window. Example: 100 in 5 ms and a pause of a second: 98/s are held.
func (f *finder) suppose(n float64) {
	f.burst += n
	if w := keepMost * f.burst / f.span; w >= leastWindow {
		f.phase, f.held, f.hold = holding, w, min(guessHold*f.span, longestHold)
	}
}

// throttle notes a throttled answer, and reports whether it has cut the rate. Only an event does.
func (f *finder) throttle(a *Sight) (cut bool) {
	f.check.note(0, true, a.Sent)
	if !f.event(a) {
		until := a.Reopens
		if f.span > 0 && f.phase == holding { // what was throttled may count in the next window (HAProxy)
			until = until.Add(time.Duration(min(quarter, f.throttled/(f.throttled+f.burst)) * f.span * 1e9))
		}
		if closed := until.Sub(limit.Latest(a.Now, f.next)); closed > 0 && f.rate(a.Now) < float64(rate.Inf) {
			f.since, f.next, f.step = f.since.Add(closed), until, 0
		}
		return false
	}
	if f.phase == holding && f.pointless(a) {
		f.putAside(a, a.Reopens)
		return false
	}
	if f.last = [2]float64{f.units, f.last[0]}; f.phase != holding {
		f.last = [2]float64{}
		f.check.above(0, true)
	}
	f.cut(a)
	f.phase, f.since, f.span = holding, a.Reopens, 0
	f.period = period{began: a.Now, closed: a.Clock}
	f.plan(max(a.Reopens.Sub(a.Now).Seconds(), a.Trip.Seconds(), 1/f.held))
	f.next = limit.Latest(f.next, a.Reopens)
	return true
}

// event reports whether a throttled answer begins an event: it was sent since the last one, and something was accepted since. Where
// some are throttled at random, it takes so many that their share does not explain them.
func (f *finder) event(a *Sight) bool {
	c := &f.check
	if c.share == 0 {
		f.throttled++
		return a.Current && f.accepted
	}
	low, _ := f.rates(a.Now, a.Clock)
	vain := f.phase == ramping && low <= 2*f.held && c.oddsDoubled(a.InFlight) // being faster has gained nothing
	if !a.Sent.After(f.began) || !c.excessive(f.phase == holding, a.InFlight) && !vain {
		return false
	}
	f.throttled += c.run
	c.run, c.excess = 0, 0
	return f.accepted
}

// pointless notes an event in a hold, and reports whether the search does not help. It is evidence if a limit would not throttle what is
// held now: about so much is accepted in all, or more was at a higher rate.
func (f *finder) pointless(a *Sight) bool {
	low, _ := f.rates(a.Now, a.Clock)
	far := threefold
	if a.Wait > 0 {
		far = 1 / keepFirst
	}
	if f.units >= keepFirst*max(f.last[0], f.last[1]) && f.held > far*low {
		return false
	}
	f.check.evidence = max(f.check.evidence, -settleOdds) + math.Log(rarer)
	return f.check.evidence >= settleOdds
}

// cut lowers the rate for an event.
func (f *finder) cut(a *Sight) {
	rs := min(f.rate(a.Sent), f.configured)
	low, high := f.rates(a.Now, a.Clock)
	if f.check.share > 0 {
		low = high // what is throttled at random closes the gate too
	}
	switch f.phase {
	case ramping:
		w := keepFirst * min(rs, low)
		switch {
		case rs == float64(rate.Inf): // nothing was held back, so what was accepted may be all that was wanted
			w = max(w, min(rampStart, f.held))
		case f.aside(): // it goes on where it was
			w = max(w, f.held)
			f.check.comeBack(f.units >= probeUnits && f.check.share < mostAtRandom)
		default:
			if f.check.first, f.check.began = a.Sent, a.Now; f.burst < 0 || a.Wait > 0 {
				w = max(w, f.limitOfRamp(rs))
			}
		}
		f.held, f.cuts, f.guess, f.throttled, f.cost = w, 0, true, 0, 1
	case holding:
		if f.cuts++; a.Now.Sub(f.since).Seconds() > f.hold/2 {
			f.cuts = 0
		}
		w := keepMost * min(f.held, low)
		if a.Wait > 0 {
			w = min(keepMost*min(f.held, high), f.held-quarter*float64(min(f.cuts, 2))*(f.held-low))
			if f.configured < float64(rate.Inf) {
				w = max(w, f.configured-threefold*(f.configured-f.held))
			}
		}
		if f.held = max(w, f.held/2); f.cuts < 2 {
			f.keep = max(keepLeast, f.keep*keepFirst)
		} else { // the limit has fallen: that is not what a probe costs
			f.guess, f.throttled = f.guess || a.Wait <= 0, 0
		}
	case probing:
		if !f.guess {
			f.keep += learn * (keepMost - f.keep)
		}
		f.held, f.cuts, f.guess = min(keepMost*rs, max(f.held, f.keep*rs)), 0, false
		if f.check.share > 0 { // the hold may have been too high without a sign of it
			f.held = min(f.held, max(low, keepFirst*(f.units-f.probed)/max(1e-9, a.Now.Sub(f.since).Seconds())))
		}
	}
	f.held = max(f.held, leastRate)
}

// limitOfRamp is the rate to hold after a ramp that was throttled at rs. A bucket's burst b had come back before, and was spent above its
// limit x: b = τ·(rs − x − x·ln(rs/x)), with τ the time in which the ramp grows by e. Example: 10 units, τ = 0.17 s, 240/s: 100/s.
func (f *finder) limitOfRamp(rs float64) float64 {
	perTau := math.Ln2 / f.double.Seconds()
	if f.burst < 0 {
		return keepFirst * rs / (1 + math.Sqrt(2*usualBurst*perTau))
	}
	b, third := f.burst*perTau/rs, f.burst*perTau/rs/3 // of the equation's series, to the cubic term
	return keepMost * rs * max(0, 1+third-math.Sqrt(third*third+2*b))
}

// putAside takes what was throttled for random: the rate grows until nothing is held back, or more is throttled than that.
func (f *finder) putAside(a *Sight, until time.Time) {
	c := &f.check
	c.since.throttled = max(1, c.since.throttled)
	*c = check{before: c.since, share: min(mostAtRandom, max(c.share, c.since.mostShare())), higher: c.higher, until: a.Now.Add(asideTime)}
	f.phase, f.since, f.next, f.step, f.span = ramping, until, until, 0, 0
	f.period = period{began: a.Now, closed: a.Clock}
	f.double = max(rampDouble, limit.UnitTime(1, rate.Limit(f.held)))
}

// likelyRandom reports whether a throttled answer is most likely one of those at random.
func (f *finder) likelyRandom() bool { return f.check.share > 0 && (f.phase == ramping || f.accepted) }
