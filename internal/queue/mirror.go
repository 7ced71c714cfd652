package queue

import (
	"strings"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/hint"
)

// This file is about advertised quotas that mirror a meter, as what remains of "tokens" does the meter "tokens". A quota counts calls
// since it was advertised last, and others who draw on the same limit, but does not know what a call costs. The meter does.
//
// # What is counted where
//
//	held by calls in flight    in the meter; in the quota only what has started after the attempt whose answer advertised it, because
//	                           what others hold, and we before, is in what remains
//	taken by others            in the quota alone
//	the cost of the next call  in the meter what it holds; in the quota what calls have cost in the end, so that it is not spaced
//	                           as if nothing came back
//
// Example: 60,000 a minute, and calls that hold 1,000 and cost 600. An answer says that 20,000 remain, and 3 calls have started since:
// 20,000 − 3·600 are 18,200. Another 25 are in flight that started before; theirs has been subtracted by the upstream.
//
// # Races
//
// An answer is observed under the queue's lock. What was settled is read without a step that settles: a call that ends at the same
// moment counts in the next answer.

// settledCalls is how many attempts must be settled before what they cost says more than what they held.
const settledCalls = 8

// chargeOf is what a call is charged of an advertised quota on average, if it mirrors a meter; 0: it mirrors none. It does if the meter
// has its name or its unit, and if it is a sum that the meter is a part of: Anthropic's "tokens" stands for the tighter one of
// "input-tokens" and "output-tokens". Of several meters the one that has the name counts, then the one that has the unit, then the
// first. A quota of requests is counted by calls, whatever meters there are.
func (m *Meters) chargeOf(quota *hint.Quota) (charge float64) {
	if quota.Unit == "" || quota.Unit == "requests" || quota.Unit == "request" {
		return 0
	}
	best := 0
	for i := range m.each {
		fit := 0
		switch name := m.each[i].Name; {
		case m.each[i].Limits.Rate() == rate.Inf: // it holds nothing back
		case name == quota.Name:
			fit = 3
		case name == quota.Unit:
			fit = 2
		case strings.HasSuffix(name, "-"+quota.Unit):
			fit = 1
		}
		if fit > best {
			best, charge = fit, m.meanLocked(i)
		}
	}
	return charge
}

// meanLocked is what an attempt has cost of meter i on average.
func (m *Meters) meanLocked(i int) float64 {
	if n := m.done.Load(); n >= settledCalls {
		e := &m.ended[i]
		return float64(e.held.Load()-e.undone.Load()+e.off.Load()) / float64(n)
	}
	return m.usual[i]
}
