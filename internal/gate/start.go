package gate

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/limit"
)

// This file says which calls a gate lets go, and notes those that do.

// FirstContact lets only firstCalls go until the first answer, or for firstPatience: an upstream that
// is not known may advertise a limit at once. Only an answer shows that it has none, and a call that its caller has
// given up has none.
func (g *Gate) FirstContact(now time.Time) {
	g.breaker = &breaker{mode: meeting, allowed: firstCalls, firstUntil: now.Add(firstPatience)}
	g.setAlert()
}

// BeginPaced makes a new gate open paced: one call goes at once, those after it at that rate. If none has
// gone when that one's time is over, nothing is held back any more. At 100/s the first call may come within
// 10 ms.
func (g *Gate) BeginPaced(now time.Time, pace rate.Limit) {
	g.breaker = &breaker{firstUntil: now.Add(limit.UnitTime(1, pace))}
	g.open(now, pace)
	g.unstarted = g.mode == paced
}

// nextStart returns when the next call may pass; ok is false if that depends on an answer that is still
// out. pace is the rate to reopen at, see closed.
func (g *Gate) nextStart(now time.Time, pace rate.Limit) (at time.Time, ok bool) {
	switch {
	case g.closed(now, pace):
		return g.until, true
	case g.breaker == nil:
		return time.Time{}, true
	case g.mode == paced:
		return g.next, true
	case g.mode == meeting && g.inFlight >= g.allowed:
		return g.firstUntil, true
	case g.mode == slowStart && g.inFlight >= g.allowed:
		return time.Time{}, false
	}
	return time.Time{}, true
}

// Ready is nextStart, and exact if that moment follows from the pace.
func (g *Gate) Ready(now time.Time, pace rate.Limit) (at time.Time, exact, ok bool) {
	at, ok = g.nextStart(now, pace)
	return at, g.breaker != nil && g.mode == paced, ok
}

// ProbeDue reports whether the next call to start is the probe whose answer may open the gate.
func (g *Gate) ProbeDue(now time.Time) bool {
	return g.breaker != nil && g.probing && !g.until.After(now)
}

// Idle reports whether a new gate would behave the same: it is open, and its reopening is over or has nobody in flight. A paced
// reopening must end first.
func (g *Gate) Idle(now time.Time, pace rate.Limit) bool {
	if g.closed(now, pace) {
		return false
	}
	g.LineEmpty(now)
	return g.breaker == nil || g.mode != paced && g.inFlight == 0
}

// Start notes that a call of n units goes as of at. While the gate is probing that call is the probe, and
// the next one is due when this one has had its time: three round trips, 1 s to 10 s. Paced, the next start
// is n units' time later. A start that comes late is not caught up with: at 100/s, after starts at 1.00 and
// 1.05 s the next one is due at 1.06 s.
func (g *Gate) Start(n int, at, now time.Time, pace rate.Limit) {
	g.checkStart(now)
	switch {
	case g.breaker == nil:
	case g.cause != Open:
		g.probeOut = true
		g.probes++
		g.until = now.Add(min(max(3*g.srtt, time.Second), 10*time.Second))
	case g.mode == paced:
		g.unstarted = false
		if at.After(g.next) {
			g.next = at
		}
		g.next = g.next.Add(limit.UnitTime(n, pace))
	case g.mode == slowStart, g.mode == meeting:
		g.inFlight++
	}
}

// Undo takes back a start in that epoch that was not used. A probe that did not go is due again at once.
func (g *Gate) Undo(epoch uint32, n int, now time.Time, pace rate.Limit) {
	switch {
	case g.breaker == nil || epoch != g.epoch:
	case g.cause != Open:
		g.probeAt(now)
		g.probes -= min(g.probes, 1)
	case g.mode == paced:
		g.next = g.next.Add(-limit.UnitTime(n, pace))
	case g.mode == slowStart, g.mode == meeting:
		g.inFlight--
	}
}

// LineEmpty ends the reopening. It is called when a call arrives and nobody waits, or the last one has
// gone. A paced reopening ends only when its last start is paid, and a slow start only after a success:
// otherwise calls that arrive one by one would all pass, and a full burst with them. First contact ends
// with an answer alone. Example: paced at 100/s, the last call starts at 1.020 s; one that arrives at 1.025 s
// is held until 1.030 s, and one that arrives after that ends the reopening.
func (g *Gate) LineEmpty(now time.Time) {
	switch {
	case g.breaker == nil || g.cause != Open,
		g.mode == paced && now.Before(g.next),
		g.mode == slowStart && g.allowed == 1,
		g.mode == meeting,
		g.unstarted && now.Before(g.firstUntil):
		return
	}
	g.mode, g.inFlight, g.unstarted = reopened, 0, false
	if !g.inRow() {
		g.breaker = nil // all is well again
	}
	g.setAlert()
}
