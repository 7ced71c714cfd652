// Package gate stops everyone: one refusal, or a row of failures, closes it for all calls of a key,
// once an event, and it lets the first ones through paced, or one by one where no limit is known.
//
// gate.go has its states and what time and calls do to them, report.go what answers do.
// Nothing here has a lock: the owner of a Gate guards it with its own, all but Alert, which is atomic.
package gate

import (
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/moment"
)

// The constants of the gate. ARCHITECTURE.md tells where they come from.
const (
	FailuresToClose = 8                      // counted failures in a row that close the gate
	firstProbe      = 250 * time.Millisecond // from a closing for failures to its first probe
	maxProbeGap     = 30 * time.Second       // longest time between two probes
	maxUntold       = 30 * time.Second       // longest closing that nobody told
	firstCalls      = 4                      // in flight to an upstream that has not answered yet
	firstPatience   = time.Second            // and no longer than this
	sampleEvery     = 16                     // one round trip in so many is measured, and the first so many

	// A call is expected to have its answer within the smoothed round trip and three deviations. With
	// exponential round trips, one leaves 80 % of an overloaded limit for calls that are answered in time,
	// two 90 %, three 96 %, four 98 %; each more turns away calls that would have been in time.
	deviations = 3
	leastDev   = time.Millisecond // a clock and a timer are no better
)

// A Cause says why a gate is closed.
type Cause string

const (
	Open      Cause = ""          // it is not
	Told      Cause = "told"      // the upstream told how long
	Throttled Cause = "throttled" // the upstream refused and did not say how long
	Failing   Cause = "failing"   // the upstream fails
	Paused    Cause = "paused"    // somebody on this side asked for it
)

// A Reopening is how a gate that was closed lets the first calls through.
type Reopening uint8

const (
	Reopened Reopening = iota // nothing is held back any more
	Paced                     // the limit is known: starts are spaced at its rate
	Counted                   // it is not: one in flight, and one more for each success; for every fourth above twice Flow
)

// A Gate stops all calls of a key at once, for what one of them has learned.
// Each attempt carries the epoch it was sent in; what an attempt of an older
// epoch reports is an echo of an event that is known already.
//
// All but Alert is guarded by its owner's lock.
type Gate struct {
	Alert    atomic.Bool // a success must be told to the gate too
	Listens  bool        // every answer must be, because something is learned from it
	Epoch    uint32
	Closings uint32        // begun or extended
	Srtt     time.Duration // smoothed round trip; 0: no sample yet
	Dev      time.Duration // its smoothed deviation
	Met      time.Duration // when the first call came, on its owner's clock; not used here
	*Trouble               // nil while nothing has ever gone wrong
}

// Trouble is the part of a gate that most keys never need.
type Trouble struct {
	Cause   Cause
	Until   time.Time     // closed until then; while probing: when the next probe is due
	Slack   time.Duration // jitter within Until
	Floor   time.Time     // what was told or asked for: Until is never earlier
	Since   time.Time     // when this closing began
	total   time.Duration // time spent closed before Since
	ExpelAt time.Time     // when the first of those waiting has spent its MaxPause; zero: nobody has one

	Probing  bool   // at Until, only one call goes, and its answer decides
	ProbeOut bool   // one is on its way
	Status   uint16 // of the last answer that closed the gate or kept it closed; 0: there was no answer
	Probes   uint32 // sent since Since

	row      int       // counted failures without a success between
	rowCall  uint64    // the call of the row's first failure
	rowMixed bool      // the row has failures of another call
	rowStart time.Time // when the row began

	untold      int    // closings without a told time since a success sent after one of them
	untoldEpoch uint32 // the epoch that the first of them began

	Mode    Reopening
	Next    time.Time // paced: when the next may start
	allowed int       // counted: how many may be in flight
	Flying  int       // counted: how many are
	Flow    float64   // counted: the rate that was served before the failures; 0: not known
	Grown   int       // counted: successes
	Opened  time.Time // counted: since when
	first   bool      // counted, until the first answer: nothing is known of the upstream; paced, until the first start
}

// Meet lets only firstCalls go until the first answer, or until firstPatience is
// over: an upstream of which nothing is known may tell of a limit at once.
func (g *Gate) Meet(now time.Time) {
	g.Trouble = &Trouble{Mode: Counted, allowed: firstCalls, first: true, Until: now.Add(firstPatience)}
	g.Watch()
}

// Sample reports whether the round trip of a call is to be measured, before which that many were sent.
func (g *Gate) Sample(sent uint64) bool { return sent < sampleEvery || sent%sampleEvery == 0 }

// AnswerTime is how long after its start a call is expected to have its answer; 0: nothing is known.
func (g *Gate) AnswerTime() time.Duration {
	if g.Srtt == 0 && g.Dev == 0 {
		return 0
	}
	return g.Srtt + max(leastDev, deviations*g.Dev)
}

// Closed reports whether the gate stops calls at now. A closing whose time is
// over and that needs no probe ends here: pace is the rate to reopen at.
func (g *Gate) Closed(now time.Time, pace rate.Limit) bool {
	if g.Trouble == nil || g.Cause == Open {
		return false
	}
	if g.Probing || now.Before(g.Until) {
		return true
	}
	g.reopen(g.Until, pace)
	return false
}

// reopen ends a closing as of at.
func (g *Gate) reopen(at time.Time, pace rate.Limit) {
	g.total += max(0, at.Sub(g.Since))
	g.Cause, g.Probing, g.ProbeOut = Open, false, false
	g.OpenPaced(at, pace)
}

// OpenPaced lets the first calls through from at on at that rate, or one by one if it is none.
func (g *Gate) OpenPaced(at time.Time, pace rate.Limit) {
	g.Mode, g.Next, g.first = Paced, at, false
	if pace <= 0 || pace == rate.Inf {
		g.Mode, g.allowed, g.Flying, g.Grown, g.Opened = Counted, 1, 0, 0, at
	}
	g.Watch()
}

// Begin makes a new gate open paced: one call goes at now or later, those after it at that rate. If
// none has gone when that one's time is over, nothing is held back any more.
func (g *Gate) Begin(now time.Time, pace rate.Limit) {
	g.Trouble = &Trouble{Until: now.Add(moment.UnitTime(1, pace))}
	g.OpenPaced(now, pace)
	g.first = g.Mode == Paced
}

// Shut begins a closing, or makes the one that there is last until then too,
// and reports whether until decides when it ends.
func (g *Gate) Shut(c Cause, until, now time.Time) (longest bool) {
	if g.Trouble == nil {
		g.Trouble = new(Trouble)
	}
	if g.Cause == Open {
		g.Since, g.Until, g.Floor, g.Probes = now, now, time.Time{}, 0
	}
	if longest = until.After(g.Until); longest {
		g.Slack = 0
	}
	if c == Told {
		g.Floor = moment.Latest(g.Floor, until)
	}
	g.Until = moment.Latest(moment.Latest(g.Until, until), g.Floor)
	g.Cause, g.Mode, g.ProbeOut, g.row, g.first = c, Reopened, false, 0, false
	g.Closings++
	g.Watch()
	return longest
}

// probeAt plans the next probe.
func (g *Gate) probeAt(t time.Time) {
	g.ProbeOut = false
	g.Until = moment.Latest(t, g.Floor)
}

// Watch sets Alert as things stand: whether a success must come to the gate.
func (g *Gate) Watch() {
	g.Alert.Store(g.Listens || g.wary())
}

// wary reports whether a success would change the gate.
func (g *Gate) wary() bool {
	return g.Trouble != nil && (g.Cause != Open || g.Mode == Counted || g.untold > 0 || g.row > 0)
}

// Moment returns when the next call may pass; ok is false if that depends on
// an answer that is still out. The gate is either open or probing, or Until
// lies ahead.
func (g *Gate) Moment(now time.Time, pace rate.Limit) (at time.Time, ok bool) {
	switch {
	case g.Closed(now, pace):
		return g.Until, true
	case g.Trouble == nil:
		return time.Time{}, true
	case g.Mode == Paced:
		return g.Next, true
	case g.first && g.Flying >= g.allowed:
		return g.Until, true
	case g.Mode == Counted && g.Flying >= g.allowed:
		return time.Time{}, false
	}
	return time.Time{}, true
}

// Start notes that a call of n units goes as of at. While the gate is probing,
// that call is the probe, and the next is due when this one has had its time.
func (g *Gate) Start(n int, at, now time.Time, pace rate.Limit) {
	switch {
	case g.Trouble == nil:
	case g.Cause != Open:
		g.ProbeOut = true
		g.Probes++
		g.Until = now.Add(min(max(3*g.Srtt, time.Second), 10*time.Second))
	case g.Mode == Paced:
		g.first = false
		if at.After(g.Next) {
			g.Next = at
		}
		g.Next = g.Next.Add(moment.UnitTime(n, pace))
	case g.Mode == Counted:
		g.Flying++
	}
}

// Undo takes back a start in that epoch that was not used.
func (g *Gate) Undo(epoch uint32, n int, now time.Time, pace rate.Limit) {
	switch {
	case g.Trouble == nil || epoch != g.Epoch:
	case g.Cause != Open:
		g.probeAt(now)
		g.Probes -= min(g.Probes, 1)
	case g.Mode == Paced:
		g.Next = g.Next.Add(-moment.UnitTime(n, pace))
	case g.Mode == Counted:
		g.Flying--
	}
}

// LineEmpty is told when a call arrives and nobody waits, or the last one has
// gone: the reopening is over. A paced one only when its last start is paid, a
// counted one only after a success, else those who arrive one by one would pass.
func (g *Gate) LineEmpty(now time.Time) {
	switch {
	case g.Trouble == nil || g.Cause != Open,
		g.Mode == Paced && now.Before(g.Next),
		g.Mode == Counted && g.allowed == 1,
		g.first && (g.Mode == Counted || now.Before(g.Until)):
		return
	}
	g.Mode, g.Flying, g.first = Reopened, 0, false
	if g.untold == 0 && g.row == 0 {
		g.Trouble = nil // all is well again
	}
	g.Watch()
}

// ClosedTime is a clock that runs only while the gate is closed.
func (g *Gate) ClosedTime(now time.Time) time.Duration {
	switch {
	case g.Trouble == nil:
		return 0
	case g.Cause == Open:
		return g.total
	case !g.Probing && now.After(g.Until):
		now = g.Until
	}
	return g.total + max(0, now.Sub(g.Since))
}

// Pause closes the gate for at least d.
func (g *Gate) Pause(d time.Duration, now time.Time, pace rate.Limit) {
	if d <= 0 {
		return
	}
	c := Paused
	if !g.Closed(now, pace) {
		g.Epoch++ // what was sent before says nothing of the time after
	} else if g.Probing {
		c = g.Cause // what it waits for stays: a probe's answer
	}
	until := now.Add(min(d, 1<<62))
	g.Shut(c, until, now)
	g.Floor = moment.Latest(g.Floor, until)
}

// Resume ends any closing now.
func (g *Gate) Resume(now time.Time, pace rate.Limit) {
	if !g.Closed(now, pace) {
		return
	}
	g.Floor, g.untold = time.Time{}, 0
	g.reopen(now, pace)
}
