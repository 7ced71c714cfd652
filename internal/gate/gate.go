// Package gate stops all calls of a key for what one of them has met, and lets them in again slowly.
//
//	gate.go     the Gate: what it is
//	answer.go   what it makes of the answers to attempts
//	close.go    how closings begin and end
//	start.go    which calls it lets go
//	trip.go     how long round trips take
//	seen.go     what others see of it
//
// Nothing here reads a clock or has a lock: moments are given by the caller, who guards a Gate with a lock of its own. The rate to reopen at
// is given too, as pace; 0 or rate.Inf: it is not known.
package gate

import (
	"sync/atomic"
	"time"
)

// The constants of the gate. All were chosen by simulation in virtual time, 32 workers unless said.
const (
	// failuresToClose is how many counted failures in a row close the gate. In a brown-out of 30 % random
	// failures five in a row close it six to ten times a minute, eight never; an outage then costs up to 5
	// more attempts.
	failuresToClose = 8

	// rowFactor: failures close the gate once there are six times as many in a row as in a row that a success has ended lately,
	// because an upstream that turns most requests away, having more to do than it can, fails in long rows and is not out.
	// With three of four turned away at random the gate closes 1 time in 200,000 answers, and 5,000 times without this; an
	// outage that begins then costs some 50 attempts more. A row fades by a 32nd with each success. One that has lasted for
	// rowLasts was an outage, and does not count; so one that lasts six times as long closes the gate, however few its calls are.
	// None counts as more than rowMost: who serves one in a hundred is out.
	rowFactor = 6
	rowFades  = 32
	rowMost   = 64
	rowLasts  = time.Second

	// ErrorsToCount is how many 500s in a row, without any other answer, make those after them count as failures. One
	// alone may well be the fault of one request. An endpoint that answers 500 to everything for an hour gets 400 to 500
	// attempts for 40 deliveries then, and 9,800 if a 500 never counts.
	ErrorsToCount = 32

	// firstProbe is the time from a closing for failures to its first probe, and the least between two:
	// nobody notices it.
	firstProbe = 250 * time.Millisecond

	// probeDivisor: a failed probe is followed by the next one after the outage's age divided by this, 2 %.
	// To drain the backlog of a load of 60 % in 1.05 × the ideal time, a recovery may be noticed at most 3 % of
	// the outage's length late.
	probeDivisor = 50

	// rowDivisor: in a row of advertised times a probe waits for at least the row's age divided by this, at most
	// maxProbeGap. Of 300 per five minutes that are throttled with Retry-After: 1, 12 % of the requests are throttled,
	// and 48 % if each second is tried (TestRetryAfterAgainAndAgain).
	rowDivisor = 8

	// maxProbeGap is the longest time between two probes.
	maxProbeGap = 30 * time.Second

	// maxUnadvertised is the longest closing for throttled answers that advertise no time.
	maxUnadvertised = 30 * time.Second

	// firstCalls may be in flight to an upstream that has not answered yet, for at most firstPatience. Of 32
	// workers that meet a fresh quota of 10, none is throttled with four calls in flight, up to 7 with eight,
	// up to 31 without a bound; at most a round trip is lost.
	firstCalls    = 4
	firstPatience = time.Second
)

// An Outcome is what an attempt says of the upstream.
type Outcome uint8

// The outcomes, in an order that observe relies on.
const (
	// Success: an answer that is none of those below, such as a 200 or a 404. The upstream works.
	Success Outcome = iota
	// Cancelled: by the caller, or final for its own call, as a 501. It says nothing of the upstream, but a probe that ends so
	// has not been answered.
	Cancelled
	// Neutral: a 500, or a status that stands for one; a certificate, a URL. It does not count, but it does not open a gate
	// either. A 500 is a failure if nothing else has come for ErrorsToCount answers.
	Neutral
	// Failure: a 502, 503 or 504, or a status that stands for one, or no answer.
	Failure
	// Overloaded: a 529 or 418 without a time. The upstream has refused the attempt for a trouble of its own, which
	// says nothing of our rate.
	Overloaded
	// Throttled: the upstream has refused the attempt for a limit.
	Throttled
)

// A Cause says why a gate is closed. Its text is what users see.
type Cause string

// The causes.
const (
	// Open: it is not closed.
	Open Cause = ""
	// ForRetryAfter: the upstream has throttled a call, or failed, and advertised how long not to send.
	ForRetryAfter Cause = "retry-after"
	// ForThrottling: the upstream has throttled a call, or said that it is overloaded, and advertised no time.
	ForThrottling Cause = "throttled"
	// ForFailures: failuresToClose attempts in a row have failed.
	ForFailures Cause = "failing"
	// ForPause: somebody on this side asked for it.
	ForPause Cause = "paused"
)

// A reopening is how an open gate lets the first calls through.
type reopening uint8

const (
	// reopened: nothing is held back any more.
	reopened reopening = iota
	// paced: the limit is known, and starts are spaced at its rate.
	paced
	// slowStart: it is not, so one call may be in flight, and one more for each success.
	slowStart
	// meeting is first contact: firstCalls may be in flight, until the first answer.
	meeting
)

// A Gate stops all calls of a key for what one of them has met, and lets them in again slowly: a circuit
// breaker and a pause in one.
//
//	open ── throttled, or paused ─────────────▶ closed ── its time is over ──▶ open: paced or slow start
//	 └───── 8 failures in a row, or more,                                          ▲
//	        the third throttled answer in a row that names no time,                │
//	        the second that names one ────────▶ probing ── the probe succeeds ─────┘
//	                                             │   ▲
//	                                             └───┘ the probe fails: another one, later
//
// Closed, nobody goes before the moment until. Probing is closed too, but at that moment one call goes, the
// probe, and its answer decides. A closed gate also probes after 24 hours (limit.MaxBelief), whatever
// time was advertised.
//
// # Epochs
//
// An answer of the current epoch that closes the gate begins the next epoch, and so does the success of a probe
// and a pause of an open gate. Each attempt carries the epoch in which it was sent.
// Example: ten calls are in flight in epoch 0 when the limit is reached. The first 429 closes the gate for
// its Retry-After of 2 s and begins epoch 1. The nine others are stale answers, to attempts of epoch 0: they
// belong to the event that is known already. They begin no epoch, cut no rate and count as no failure;
// one that advertises 3 s makes the closing as long as that, or closes the gate if it is open again. A success of epoch 0 does not open the gate,
// because it says nothing of the time after the event.
//
// # Reopening
//
// A gate that just opened would let all waiting calls go at once, and earn the next 429. Where the limit is
// known the reopening is paced: closed until 1 s and 100/s known, calls start at 1.00, 1.01, 1.02 s and so on.
// Otherwise it is a slow start: one call goes; its success lets two be in flight, the next one three. Both
// end when the line has been empty, see lineEmpty. The limiters are never drained for it.
//
// After a brief closing the gate is as it was before, because an upstream that is overloaded for a moment says
// nothing of our rate (closeBriefly).
//
// All but Alert is guarded by the lock of its owner.
type Gate struct {
	alert      atomic.Bool   // a success must be observed too, see setAlert
	observeAll bool          // every answer must be, because something is learned from it
	epoch      uint32        // events so far
	closings   uint32        // closings begun or extended so far
	srtt       time.Duration // smoothed round trip; 0: no sample yet
	dev        time.Duration // its smoothed deviation
	total      time.Duration // how long it was closed, before the closing that there is now
	*breaker                 // nil while nothing has ever gone wrong
}

// A breaker is the part of a gate that most keys never need. With cause Open it says how the gate
// reopens.
type breaker struct {
	// The closing. Example: at 0 s Retry-After: 10 comes, made 10.3 s by jitter. until and floor are 10.3 s, jitter
	// 0.3 s, since 0 s. At 2 s somebody pauses the gate for 20 s: until and floor are 22 s, and jitter is 0.
	until       time.Time     // the next call, which is a probe while probing, may go then
	jitter      time.Duration // the part of until that is our own jitter
	floor       time.Time     // the latest advertised or asked-for end: until is never earlier
	since       time.Time     // when this closing began, moved on by the time that was paused by hand
	moved       time.Duration // by how much
	pausedUntil time.Time     // the end of the latest pause by hand; if there was none, when this closing began

	// Nobody has been served since the first closing after the last success, moved on as since is; zero: the last answer was a
	// success. MaxPause counts from here. The latest closing ends so long after that, as far as is known.
	unserved    time.Time
	unservedFor time.Duration

	cause  Cause
	brief  bool   // for an overloaded answer: it reopens as it was
	status uint16 // of the last answer that closed the gate or kept it closed; 0: there was no answer

	// The probes.
	probes   uint32 // sent since the closing began
	probing  bool   // at until only one call goes, and its answer decides
	probeOut bool   // a probe is on its way

	// The row of failures that may close the gate. Probes are spaced by the age of outageSince, the moment of its
	// first failure, of the first closing in a row with an advertised time, or of the latest one without.
	failuresMixed bool    // there are some of another call than the first
	row500        uint8   // 500s since any other answer, at most ErrorsToCount
	briefs        uint32  // brief closings since the last other one: their epochs are no reason not to count a failure
	failureCall   uint64  // the call of the first of the counted ones
	longest       float32 // row of failures that a success has ended, less what has faded of it; 0: none that counts
	outageSince   time.Time
	failedAt      time.Time     // the latest failure of the row
	lasted        time.Duration // the row, but of the time between two failures rowLasts at most
	failures      int32         // counted, without a success between

	// The row of closings for throttled answers. It ends with a success that was sent after the first of them: one
	// that was sent before says nothing of the time since.
	advertised   int32  // closings in it whose time was advertised
	unadvertised int32  // and whose was not
	rowEpoch     uint32 // the epoch that the first of them began

	// The reopening.
	mode       reopening
	unstarted  bool      // paced from birth, and no call has started yet
	allowed    int32     // slowStart, meeting: how many calls may be in flight
	inFlight   int32     // how many are
	servedRate float32   // units a second that were answered before the failures; 0: not known
	next       time.Time // paced: when the next call may start
	firstUntil time.Time // meeting or unstarted: when that ends, whatever has come
}

// Calm reports whether the gate holds nobody back: nothing has gone wrong since all was well.
func (g *Gate) Calm() bool { return g.breaker == nil }

// Busy reports whether the gate is not calm, or all is observed.
func (g *Gate) Busy() bool { return g.breaker != nil || g.observeAll }

// Epoch is what an attempt that starts now carries, so that its answer can be recognised as stale.
func (g *Gate) Epoch() uint32 { return g.epoch }

// Alert reports whether even an ordinary success must be observed. It needs no lock.
func (g *Gate) Alert() bool { return g.alert.Load() }

// ObserveAll makes Alert true from now on, because something is learned from every answer.
func (g *Gate) ObserveAll() {
	g.observeAll = true
	g.setAlert()
}

// setAlert sets alert as things stand. While it is not set, ordinary successes need not be observed at all,
// and take no lock.
func (g *Gate) setAlert() {
	g.alert.Store(g.observeAll || g.unsettled())
}

// unsettled reports whether a success would change the gate.
func (g *Gate) unsettled() bool {
	return g.breaker != nil && (g.cause != Open || g.mode == slowStart || g.mode == meeting || g.inRow())
}

// inRow reports whether a row of failures, of 500s or of closings has begun, which the next success ends, or
// that one which has ended still counts.
func (b *breaker) inRow() bool {
	return b.failures > 0 || b.longest > 0 || b.row500 > 0 || b.advertised > 0 || b.unadvertised > 0 || !b.unserved.IsZero()
}
