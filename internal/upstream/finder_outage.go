package upstream

import (
	"math"
	"time"
)

// An outage is the reopening of a gate after one, without a known limit, that met the first throttled answer.
// Until then calls spent the burst that had come back while the gate was closed, on top of the limit. The rest
// of the first second pays it back: it is held so low that the second sees 1.02 (firstSecond) of the rate in all.
type outage struct {
	began       time.Time
	sent        float64       // units, since it began
	before      float64       // units served before it
	throttledAt time.Time     // when the throttled call was sent
	closed      float64       // seconds for which its answer closed the gate again
	srtt        time.Duration // smoothed round trip
	left        float64       // seconds of the first one, to pay that burst back; 0: none
}

// inBurst reports whether a call sent then belongs to the burst that met the first throttled answer. Calls that
// are sent together arrive in any order, so an eighth of a round trip later still counts.
func (b *outage) inBurst(sent time.Time) bool { return !sent.After(b.throttledAt.Add(b.srtt / 8)) }

// endRamp ends the ramp: the second throttled answer has come, to a call that went at rs. est is the limit as far
// as it is known: what was accepted since the first one over the time since, or, after an advertised pause in which
// the burst came back, what is left of that without the burst. The finder holds 95 % of est, and not more than 70 %
// of rs. After an outage est may be exact; then the rest of the first second pays the burst back.
func (f *finder) endRamp(rs, elapsed float64, now time.Time, advertised bool) {
	est := f.units / elapsed
	if advertised { // the burst came back in the pause
		ramped := max(1e-9, now.Sub(f.since).Seconds())
		est = max((f.units-min(f.burst, f.units/2))/ramped, min(f.burst/max(1e-9, f.pause), f.units/ramped), crossed(rs, f.burst, f.double))
	}
	f.w, f.short = min(0.7*rs, 0.95*est), true
	f.throttled = 1 // the first burst says nothing of what a probe costs
	if b := f.outage; b != nil && !advertised {
		f.w = max(f.w, min(f.from/2, 0.7*rs)) // what was served before says more than a few units
		left := 1 - now.Sub(b.began).Seconds()
		if est = (f.units + 0.5) / elapsed; left > 0 && est >= creepLeast && b.exact(est, f) {
			f.measured, b.left = est, left
			f.w = min(max(0.5*est, (firstSecond*est-b.sent)/left), creepFrom*est)
		}
	}
}

// exact reports whether est, what was accepted between the first two throttled answers over the time between
// them, is the rate of a bucket that was empty at both and never full between. It is if far less than the
// burst spent before the first of them came back in the closing and in the ramp below est.
func (b *outage) exact(est float64, f *finder) bool {
	came := est * (b.closed + f.idle) // idle: timers were late
	if est > f.from {
		came += f.double / math.Ln2 * (est*math.Log(est/f.from) - est + f.from)
	}
	burst := f.burst - b.before - est*max(0, b.throttledAt.Sub(b.began).Seconds()-b.closed)
	return 2*came+1 <= burst
}

// crossed is the rate of a token bucket that a ramp to the rate rs has emptied of burst units: those sent above
// that rate. With τ the time in which the ramp grows by e, burst = τ·(rs − rate − rate·ln(rs/rate)), which falls as
// the rate rises; so the rate is found by halving. Example: τ = 0.23 s (doubling in 160 ms), rs = 160/s and a burst
// of 3: about 100/s.
func crossed(rs, burst, double float64) float64 {
	tau := double / math.Ln2
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
