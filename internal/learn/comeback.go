package learn

import (
	"math"
	"time"
)

// A comeback is the reopening of a gate, without a known limit, that met the first
// refusal: until then it spent the burst that had come back while the gate was closed,
// on top of the limit.
type comeback struct {
	began   time.Time
	sent    float64   // since then
	before  float64   // served before it
	refused time.Time // when that was sent
	closed  float64   // seconds for which it closed the gate again
	srtt    time.Duration
	left    float64 // seconds of its first one, to pay that burst back; 0: none
}

// rushed reports whether a call sent then belongs to what met the first refusal. Calls that are sent
// together arrive in any order.
func (b *comeback) rushed(sent time.Time) bool { return !sent.After(b.refused.Add(b.srtt / 8)) }

// endRamp ends the first search: the second refusal has come.
func (f *Finder) endRamp(rs, elapsed float64, now time.Time, told bool) {
	est := f.units / elapsed
	if told { // the burst came back in the pause
		ramped := max(1e-9, now.Sub(f.since).Seconds())
		est = max((f.units-min(f.burst, f.units/2))/ramped, min(f.burst/max(1e-9, f.pause), f.units/ramped), crossed(rs, f.burst, f.double))
	}
	f.w, f.short = min(0.7*rs, 0.95*est), true
	f.refused = 1 // the first rush says nothing of what a probe costs
	if b := f.back; b != nil && !told {
		f.w = max(f.w, min(f.from/2, 0.7*rs)) // a few units say less than what was borne before
		left := 1 - now.Sub(b.began).Seconds()
		if est = (f.units + 0.5) / elapsed; left > 0 && est >= creepLeast && b.exact(est, f) {
			f.bears, b.left = est, left
			f.w = min(max(0.5*est, (firstSecond*est-b.sent)/left), creepFrom*est)
		}
	}
}

// exact reports whether est, what was accepted between the first two refusals over the time
// between them, is the rate of a bucket that was empty at both and never full between: far
// less than the burst spent before the first came back in the closing and in the ramp below est.
func (b *comeback) exact(est float64, f *Finder) bool {
	came := est * (b.closed + f.idle) // idle: timers were late
	if est > f.from {
		came += f.double / math.Ln2 * (est*math.Log(est/f.from) - est + f.from)
	}
	burst := f.burst - b.before - est*max(0, b.refused.Sub(b.began).Seconds()-b.closed)
	return 2*came+1 <= burst
}

// crossed is the rate of a token bucket that a ramp to the rate rs has emptied of
// burst units: those sent above that rate. With τ the time of the ramp's growth by e,
// burst = τ·(rs − rate − rate·ln(rs/rate)), which falls as the rate rises.
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
