package throttle

import (
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// The constants of the gate. ARCHITECTURE.md tells where they come from.
const (
	failuresToClose = 8                      // counted failures in a row that close the gate
	firstProbe      = 250 * time.Millisecond // from a closing for failures to its first probe
	maxProbeGap     = 30 * time.Second       // longest time between two probes
	maxUntold       = 30 * time.Second       // longest closing that nobody told
	firstCalls      = 4                      // in flight to an upstream that has not answered yet
	firstPatience   = time.Second            // and no longer than this
	sampleEvery     = 16                     // one round trip in so many is measured
)

// A cause says why a gate is closed.
type cause string

const (
	open      cause = ""
	told      cause = "told"      // the upstream told how long
	throttled cause = "throttled" // the upstream refused and did not say how long
	failing   cause = "failing"   // the upstream fails
	paused    cause = "paused"    // Queue.Pause
)

// How a gate that was closed lets the first calls through.
type reopening uint8

const (
	reopened reopening = iota
	paced              // the limit is known: starts are spaced at its rate
	counted            // it is not: one in flight, and one more for each success; for every fourth above twice the flow
)

// A gate stops all calls of a key at once, for what one of them has learned.
// Each attempt carries the epoch it was sent in; what an attempt of an older
// epoch reports is an echo of an event that is known already.
//
// All but alert is guarded by the queue's lock.
type gate struct {
	alert    atomic.Bool // a success must be told to the gate too
	listens  bool        // always, because something is learned from it
	epoch    uint32
	closings uint32        // begun or extended
	srtt     time.Duration // smoothed round trip; 0: no sample yet
	met      time.Duration // when the first call came, since the room's base
	*trouble               // nil while nothing has ever gone wrong
}

// trouble is the part of a gate that most keys never need.
type trouble struct {
	cause   cause
	until   time.Time     // closed until then; while probing: when the next probe is due
	slack   time.Duration // jitter within until
	floor   time.Time     // what was told or asked for: until is never earlier
	since   time.Time     // when this closing began
	total   time.Duration // time spent closed before since
	expelAt time.Time     // when the first of those waiting has spent its MaxPause; zero: nobody has one

	probing bool // at until, only one call goes, and its answer decides
	probe   bool // one is on its way

	row      int       // counted failures without a success between
	rowCall  uint64    // the call of the row's first failure
	rowMixed bool      // the row has failures of another call
	rowStart time.Time // when the row began

	untold      int    // closings without a told time since a success sent after one of them
	untoldEpoch uint32 // the epoch that the first of them began

	mode    reopening
	next    time.Time // paced: when the next may start
	allowed int       // counted: how many may be in flight
	flying  int       // counted: how many are
	flow    float64   // counted: the rate that was served before the failures; 0: not known
	grown   int       // counted: successes
	first   bool      // counted, until the first answer: nothing is known of the upstream
}

// meet lets only firstCalls go until the first answer, or until firstPatience is
// over: an upstream of which nothing is known may tell of a limit at once.
func (g *gate) meet(now time.Time) {
	g.trouble = &trouble{mode: counted, allowed: firstCalls, first: true, until: now.Add(firstPatience)}
	g.watch()
}

// closed reports whether the gate stops calls at now. A closing whose time is
// over and that needs no probe ends here: pace is the rate to reopen at.
func (g *gate) closed(now time.Time, pace rate.Limit) bool {
	if g.trouble == nil || g.cause == open {
		return false
	}
	if g.probing || now.Before(g.until) {
		return true
	}
	g.reopen(g.until, pace)
	return false
}

// reopen ends a closing as of at.
func (g *gate) reopen(at time.Time, pace rate.Limit) {
	g.total += max(0, at.Sub(g.since))
	g.cause, g.probing, g.probe = open, false, false
	g.row = 0
	g.openPaced(at, pace)
}

func (g *gate) openPaced(at time.Time, pace rate.Limit) {
	g.mode, g.next, g.first = paced, at, false
	if pace <= 0 || pace == rate.Inf {
		g.mode, g.allowed, g.flying = counted, 1, 0
	}
	g.watch()
}

// close begins a closing, or makes the one that there is last until then too,
// and reports whether until decides when it ends.
func (g *gate) close(c cause, until, now time.Time) (longest bool) {
	if g.trouble == nil {
		g.trouble = new(trouble)
	}
	if g.cause == open {
		g.since, g.until, g.floor = now, now, time.Time{}
	}
	if longest = until.After(g.until); longest {
		g.slack = 0
	}
	if c == told || c == paused {
		g.floor = latest(g.floor, until)
	}
	g.until = latest(latest(g.until, until), g.floor)
	g.cause, g.mode, g.probe, g.row, g.first = c, reopened, false, 0, false
	g.closings++
	g.watch()
	return longest
}

// probeAt plans the next probe.
func (g *gate) probeAt(t time.Time) {
	g.probe = false
	g.until = latest(t, g.floor)
}

// watch sets the flag that makes answers come to the gate.
func (g *gate) watch() {
	g.alert.Store(g.listens || g.wary())
}

// wary reports whether a success would change the gate.
func (g *gate) wary() bool {
	return g.trouble != nil && (g.cause != open || g.mode == counted || g.untold > 0 || g.row > 0)
}

// moment returns when the next call may pass; ok is false if that depends on
// an answer that is still out. The gate is either open or probing, or until
// lies ahead.
func (g *gate) moment(now time.Time, pace rate.Limit) (at time.Time, ok bool) {
	switch {
	case g.closed(now, pace):
		return g.until, true
	case g.trouble == nil:
		return time.Time{}, true
	case g.mode == paced:
		return g.next, true
	case g.first && g.flying >= g.allowed:
		return g.until, true
	case g.mode == counted && g.flying >= g.allowed:
		return time.Time{}, false
	}
	return time.Time{}, true
}

// start notes that a call of n units goes as of at. While the gate is probing,
// that call is the probe, and the next is due when this one has had its time.
func (g *gate) start(n int, at, now time.Time, pace rate.Limit) {
	switch {
	case g.trouble == nil:
	case g.cause != open:
		g.probe = true
		g.until = now.Add(min(max(3*g.srtt, time.Second), 10*time.Second))
	case g.mode == paced:
		if at.After(g.next) {
			g.next = at
		}
		g.next = g.next.Add(unitTime(n, pace))
	case g.mode == counted:
		g.flying++
	}
}

// undo takes back a start in that epoch that was not used.
func (g *gate) undo(epoch uint32, n int, now time.Time, pace rate.Limit) {
	switch {
	case g.trouble == nil || epoch != g.epoch:
	case g.cause != open:
		g.probeAt(now)
	case g.mode == paced:
		g.next = g.next.Add(-unitTime(n, pace))
	case g.mode == counted:
		g.flying--
	}
}

// lineEmpty is told when a call arrives and nobody waits, or the last one has
// gone: the reopening is over. A paced one only when its last start is paid, a
// counted one only after a success, else those who arrive one by one would pass.
func (g *gate) lineEmpty(now time.Time) {
	if g.trouble == nil || g.cause != open || g.mode == paced && now.Before(g.next) || g.mode == counted && g.allowed == 1 || g.first {
		return
	}
	g.mode, g.flying = reopened, 0
	if g.untold == 0 && g.row == 0 {
		g.trouble = nil // all is well again
	}
	g.watch()
}

// closedTime is a clock that runs only while the gate is closed.
func (g *gate) closedTime(now time.Time) time.Duration {
	switch {
	case g.trouble == nil:
		return 0
	case g.cause == open:
		return g.total
	case !g.probing && now.After(g.until):
		now = g.until
	}
	return g.total + max(0, now.Sub(g.since))
}

// pause closes the gate for at least d.
func (g *gate) pause(d time.Duration, now time.Time, pace rate.Limit) {
	if d <= 0 {
		return
	}
	c := paused
	if !g.closed(now, pace) {
		g.epoch++ // what was sent before says nothing of the time after
	} else if g.probing {
		c = g.cause // what it waits for stays: a probe's answer
	}
	until := now.Add(min(d, 1<<62))
	g.close(c, until, now)
	g.floor = latest(g.floor, until)
	g.until = latest(g.until, g.floor)
}

// resume ends any closing now.
func (g *gate) resume(now time.Time, pace rate.Limit) {
	if !g.closed(now, pace) {
		return
	}
	g.floor, g.untold = time.Time{}, 0
	g.reopen(now, pace)
}
