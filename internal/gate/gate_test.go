package gate

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/limit"
)

// A gateRun is a gate with a clock of its own, for scripts.
type gateRun struct {
	*testing.T
	Gate
	name  string
	start time.Time
	now   time.Time
	pace  rate.Limit
}

func newGateRun(t *testing.T, name string, pace rate.Limit) *gateRun {
	start := time.Unix(1_000_000, 0)
	return &gateRun{T: t, name: name, start: start, now: start, pace: pace}
}

// A gateStep is one event, and what is to be seen of the gate right after it.
type gateStep struct {
	at   time.Duration // since the start
	do   func(*gateRun)
	want func(*gateRun) string // "" if all is well
}

// Events.

func reports(o Outcome, epoch uint32, call uint64, wait, trip time.Duration) func(*gateRun) {
	return func(g *gateRun) {
		g.Observe(Report{Outcome: o, Epoch: epoch, Call: call, Wait: wait, Trip: trip}, g.now, g.pace)
	}
}
func succeeds(epoch uint32) func(*gateRun) { return reports(Success, epoch, 0, 0, 0) }
func throttledFor(epoch uint32, d time.Duration) func(*gateRun) {
	return reports(Throttled, epoch, 0, d, 0)
}
func throttles(epoch uint32, trip time.Duration) func(*gateRun) {
	return reports(Throttled, epoch, 0, 0, trip)
}
func fails(epoch uint32, call uint64) func(*gateRun) { return reports(Failure, epoch, call, 0, 0) }
func overloads(epoch uint32, call uint64) func(*gateRun) {
	return reports(Overloaded, epoch, call, 0, 80*ms)
}
func isNothing(epoch uint32) func(*gateRun) { return reports(Neutral, epoch, 0, 0, 0) }
func pauses(d time.Duration) func(*gateRun) {
	return func(g *gateRun) { g.Gate.Pause(d, g.now, g.pace) }
}
func resumes(g *gateRun) { g.Resume(g.now, g.pace) }
func goes(g *gateRun) {
	g.closed(g.now, g.pace) // as whoever asks whether it may
	g.Gate.Start(1, g.now, g.now, g.pace)
}
func nothing(*gateRun)           {}
func lineEmpties(g *gateRun)     { g.LineEmpty(g.now) }
func costs(n int) func(*gateRun) { return func(g *gateRun) { g.Gate.Start(n, g.now, g.now, g.pace) } }
func fail8(epoch uint32) func(*gateRun) {
	return func(g *gateRun) {
		for i := range uint64(8) {
			fails(epoch, i%2)(g)
		}
	}
}

// Expectations. The moment a call may pass lies in [lo, hi], counted from the start.

func until(lo, hi time.Duration, c Cause) func(*gateRun) string {
	return func(g *gateRun) string {
		at, ok := g.nextStart(g.now, g.pace)
		if d := at.Sub(g.start); !ok || d < lo || d > hi || g.cause != c {
			return fmt.Sprintf("passes at %v (%t), cause %q; want %v to %v, %q", d, ok, g.cause, lo, hi, c)
		}
		return ""
	}
}
func closedUntilThen(d time.Duration) func(*gateRun) string { return until(d, d, ForRetryAfter) }
func probeAt(d time.Duration) func(*gateRun) string {
	return func(g *gateRun) string {
		if why := until(d, d, g.cause)(g); why != "" || !g.probing || g.cause == Open {
			return fmt.Sprintf("no probe at %v: probing %t, cause %q: %s", d, g.probing, g.cause, why)
		}
		return ""
	}
}

// passes: the gate is open and nothing stops the next call.
func passes(g *gateRun) string {
	at, ok := g.nextStart(g.now, g.pace)
	if g.breaker != nil && g.cause != Open || !ok || at.After(g.now) {
		return fmt.Sprintf("does not pass: %v, %t", at.Sub(g.start), ok)
	}
	return ""
}

// spaced: open, but the next start is due then.
func spaced(d time.Duration) func(*gateRun) string { return until(d, d, Open) }

// full: open, but an answer has to come first.
func full(g *gateRun) string {
	if at, ok := g.nextStart(g.now, g.pace); ok || g.cause != Open {
		return fmt.Sprintf("passes at %v", at.Sub(g.start))
	}
	return ""
}

func inEpoch(e uint32, want func(*gateRun) string) func(*gateRun) string {
	return func(g *gateRun) string {
		if g.epoch != e {
			return fmt.Sprintf("epoch %d, want %d", g.epoch, e)
		}
		return want(g)
	}
}

// TestGateScripts: epochs, closings, probes, reopenings. Times are drawn with jitter, so each script is
// played many times.
func TestGateScripts(t *testing.T) {
	const hour = time.Hour
	for _, s := range []struct {
		name  string
		pace  rate.Limit // 0: unknown
		steps []gateStep
	}{
		{"nothing has happened", 100, []gateStep{
			{0, nothing, passes}, {sec, succeeds(0), passes}, {sec, isNothing(0), passes}, {2 * sec, resumes, passes},
		}},
		{"a time: never earlier, at most x/20 later", 100, []gateStep{
			{0, throttledFor(0, 5*sec), inEpoch(1, until(5*sec, 5250*ms, ForRetryAfter))},
			{5*sec - 1, nothing, until(5*sec, 5250*ms, ForRetryAfter)},
			{5250 * ms, nothing, passes},
		}},
		{"a time: jitter of at most 1 s", 100, []gateStep{
			{0, throttledFor(0, hour), until(hour, hour+sec, ForRetryAfter)},
		}},
		{"a stale answer only extends", 100, []gateStep{
			{0, throttledFor(0, 5*sec), inEpoch(1, until(5*sec, 5250*ms, ForRetryAfter))},
			{sec, throttledFor(0, 3*sec), inEpoch(1, until(5*sec, 5250*ms, ForRetryAfter))},
			{2 * sec, throttledFor(0, 5*sec), inEpoch(1, closedUntilThen(7*sec))},
			{2 * sec, throttles(0, 50*ms), inEpoch(1, closedUntilThen(7*sec))},
			{2 * sec, succeeds(0), inEpoch(1, closedUntilThen(7*sec))},
			{2 * sec, fail8(0), inEpoch(1, closedUntilThen(7*sec))},
			{7 * sec, nothing, passes},
			{8 * sec, fail8(0), inEpoch(1, passes)},
			{8 * sec, throttles(0, 50*ms), inEpoch(1, passes)},
			{8 * sec, throttledFor(0, sec), inEpoch(1, closedUntilThen(9*sec))},
		}},
		{"each event its epoch", 100, []gateStep{
			{0, throttledFor(0, sec), inEpoch(1, until(sec, 1050*ms, ForRetryAfter))},
			{2 * sec, throttledFor(1, sec), inEpoch(2, until(3*sec, 3050*ms, ForRetryAfter))},
			{4 * sec, throttles(2, ms), inEpoch(3, until(4010*ms, 4010*ms, ForThrottling))},
			{5 * sec, fail8(3), inEpoch(4, probeAt(5250*ms))},
		}},
		{"no time, limit known: one unit's time, one round trip, then a random wait and a probe", 100, []gateStep{
			{0, throttles(0, 80*ms), inEpoch(1, until(10*ms, 10*ms, ForThrottling))},
			{sec, nothing, passes},
			{sec, throttles(1, 80*ms), inEpoch(2, until(1080*ms, 1080*ms, ForThrottling))},
			{2 * sec, nothing, passes},
			{2 * sec, throttles(2, 80*ms), inEpoch(3, until(2*sec+1, 2160*ms, ForThrottling))},
			{3 * sec, goes, probeAt(4 * sec)},
			{3 * sec, throttles(3, 80*ms), inEpoch(4, until(3*sec+1, 3320*ms, ForThrottling))},
			{4 * sec, goes, probeAt(5 * sec)},
			{4 * sec, throttles(4, 80*ms), inEpoch(5, until(4*sec+1, 4640*ms, ForThrottling))},
			{5 * sec, goes, probeAt(6 * sec)},
			{5 * sec, succeeds(4), probeAt(6 * sec)}, // sent after the first of the closings: k begins anew
			{5 * sec, throttles(5, 80*ms), inEpoch(6, until(5010*ms, 5010*ms, ForThrottling))},
		}},
		{"no time, limit unknown: one round trip", 0, []gateStep{
			{0, reports(Success, 0, 0, 0, 80*ms), passes}, // the sample
			{0, throttles(0, 880*ms), until(180*ms, 180*ms, ForThrottling)},
			{sec, throttles(1, 180*ms), until(1180*ms, 1180*ms, ForThrottling)},
		}},
		{"no time, no sample: the throttled one's own", rate.Inf, []gateStep{
			{0, throttles(0, 70*ms), until(70*ms, 70*ms, ForThrottling)},
		}},
		{"a success of before does not end the count", 100, []gateStep{
			{0, throttles(0, 80*ms), until(10*ms, 10*ms, ForThrottling)},
			{sec, succeeds(0), passes},
			{sec, throttles(1, 80*ms), until(1080*ms, 1080*ms, ForThrottling)},
			{2 * sec, succeeds(1), passes},
			{2 * sec, throttles(2, 80*ms), until(2010*ms, 2010*ms, ForThrottling)},
		}},
		{"eight failures of two calls", 100, []gateStep{
			{0, fails(0, 1), passes}, {1 * sec, fails(0, 1), passes}, {2 * sec, fails(0, 1), passes},
			{3 * sec, fails(0, 1), passes}, {4 * sec, fails(0, 1), passes}, {5 * sec, fails(0, 1), passes},
			{6 * sec, fails(0, 1), inEpoch(0, passes)},
			{7 * sec, fails(0, 2), inEpoch(1, probeAt(7250*ms))},
			{7100 * ms, fails(0, 3), probeAt(7250 * ms)},
			{7100 * ms, succeeds(0), probeAt(7250 * ms)}, // sent before
			{7250 * ms, goes, probeAt(8250 * ms)},
			{7260 * ms, succeeds(0), probeAt(8250 * ms)},
			{7260 * ms, succeeds(1), passes},
		}},
		{"failures of one call", 100, []gateStep{
			{0, fail8(9), passes}, // an epoch that never was
			{0, func(g *gateRun) {
				for range 20 {
					fails(0, 7)(g)
				}
			}, inEpoch(0, passes)},
			{sec, fails(0, 8), inEpoch(1, probeAt(1250*ms))},
		}},
		{"a success between", 100, []gateStep{
			{0, fails(0, 1), passes},
			{0, succeeds(0), passes},
			{0, func(g *gateRun) {
				for i := range uint64(7) {
					fails(0, i)(g)
				}
			}, inEpoch(0, passes)},
			{0, isNothing(0), passes},
			{0, fails(0, 9), inEpoch(1, probeAt(250*ms))},
		}},
		{"probes: 250 ms, 2 % of the age from the row's first failure, 30 s", 100, []gateStep{
			{0, fails(0, 1), passes},
			{5 * sec, fail8(0), probeAt(5250 * ms)},
			{5250 * ms, goes, probeAt(6250 * ms)},
			{6 * sec, fails(1, 1), probeAt(6250 * ms)},
			{10 * sec, goes, probeAt(11 * sec)},
			{10500 * ms, fails(1, 1), probeAt(10750 * ms)},
			{100 * sec, goes, probeAt(101 * sec)},
			{100 * sec, fails(1, 1), probeAt(102 * sec)},
			{1000 * sec, goes, probeAt(1001 * sec)},
			{1000 * sec, fails(1, 1), probeAt(1020 * sec)},
			{hour, goes, probeAt(hour + sec)},
			{hour, fails(1, 1), probeAt(hour + 30*sec)},
			{2 * hour, goes, probeAt(2*hour + sec)},
			{2 * hour, succeeds(1), passes},
		}},
		{"a probe has 3 round trips, 1 s at least", 100, []gateStep{
			{0, reports(Success, 0, 0, 0, 2*sec), passes},
			{0, fail8(0), probeAt(250 * ms)},
			{sec, goes, probeAt(7 * sec)},
			{7 * sec, goes, probeAt(13 * sec)},
			{8 * sec, reports(Neutral, 1, 1, 0, 0), probeAt(8250 * ms)}, // a 500: not well yet
			{9 * sec, goes, probeAt(15 * sec)},
			{9 * sec, reports(Cancelled, 1, 1, 0, 0), probeAt(9 * sec)}, // it has said nothing: the next may go
		}},
		{"and 10 s at most", 100, []gateStep{
			{0, reports(Success, 0, 0, 0, hour), passes},
			{0, fail8(0), probeAt(250 * ms)},
			{sec, goes, probeAt(11 * sec)},
		}},
		{"a probe that is throttled", 100, []gateStep{
			{0, fail8(0), probeAt(250 * ms)},
			{sec, goes, probeAt(2 * sec)},
			{1100 * ms, throttledFor(1, 20*sec), inEpoch(2, until(21100*ms, 22100*ms, ForRetryAfter))},
			{1100 * ms, succeeds(1), until(21100*ms, 22100*ms, ForRetryAfter)},
			{23 * sec, nothing, passes},
		}},
		{"after 24 h one probe, and every 24 h", 100, []gateStep{
			{0, throttledFor(0, 484289*hour), inEpoch(1, until(24*hour, 24*hour+sec, ForRetryAfter))},
			{25 * hour, nothing, until(24*hour, 24*hour+sec, ForRetryAfter)},
			{25 * hour, goes, probeAt(25*hour + sec)},
			{25*hour + ms, throttledFor(1, 1<<62), until(49*hour, 49*hour+2*sec, ForRetryAfter)},
			{50 * hour, goes, probeAt(50*hour + sec)},
			{50*hour + ms, succeeds(2), passes},
		}},
		{"exactly 24 h is believed", 100, []gateStep{
			{0, throttledFor(0, 24*hour), until(24*hour, 24*hour+sec, ForRetryAfter)},
			{24*hour + sec, nothing, passes},
		}},
		{"paced reopening", 100, []gateStep{
			{0, pauses(sec), until(sec, sec, ForPause)},
			{sec, nothing, spaced(sec)},
			{sec, goes, spaced(1010 * ms)},
			{1005 * ms, lineEmpties, spaced(1010 * ms)}, // its start is not paid yet
			{1010 * ms, goes, spaced(1020 * ms)},
			{1015 * ms, succeeds(0), spaced(1020 * ms)},
			{1020 * ms, costs(5), spaced(1070 * ms)},
			{1070 * ms, lineEmpties, passes},
			{1070 * ms, goes, passes}, // as before
		}},
		{"paced from when it opened, not from when it is asked", 100, []gateStep{
			{0, pauses(sec), until(sec, sec, ForPause)},
			{3 * sec, nothing, spaced(sec)},
			{3 * sec, goes, spaced(3010 * ms)},
		}},
		{"slow start", 0, []gateStep{
			{0, pauses(sec), inEpoch(1, until(sec, sec, ForPause))},
			{sec, nothing, passes},
			{sec, goes, full},
			{sec, lineEmpties, full},                    // no success yet
			{sec, succeeds(0), full},                    // sent before
			{sec, reports(Neutral, 1, 1, 0, 0), passes}, // neither more nor less
			{sec, goes, full},
			{2 * sec, succeeds(1), passes},
			{2 * sec, goes, passes},
			{2 * sec, goes, full},
			{2 * sec, fails(1, 1), passes},
			{2 * sec, goes, full},
			{2 * sec, succeeds(1), passes},
			{2 * sec, goes, passes},
			{2 * sec, goes, full},
			{3 * sec, lineEmpties, passes},
			{3 * sec, goes, passes},
		}},
		{"a throttled answer ends the slow start", rate.Inf, []gateStep{
			{0, throttledFor(0, sec), until(sec, 1050*ms, ForRetryAfter)},
			{2 * sec, nothing, passes},
			{2 * sec, goes, full},
			{2 * sec, throttledFor(1, sec), inEpoch(2, until(3*sec, 3050*ms, ForRetryAfter))},
			{4 * sec, goes, probeAt(5 * sec)}, // the second in a row
			{4 * sec, succeeds(1), probeAt(5 * sec)},
			{4 * sec, succeeds(2), inEpoch(3, passes)},
			{4 * sec, goes, full},
		}},
		{"from the second advertised closing in a row on one call goes first", 100, []gateStep{
			{0, throttledFor(0, sec), inEpoch(1, until(sec, 1050*ms, ForRetryAfter))},
			{2 * sec, goes, spaced(2010 * ms)},
			{2 * sec, goes, spaced(2020 * ms)},
			{2 * sec, throttledFor(1, sec), inEpoch(2, until(3*sec, 3050*ms, ForRetryAfter))},
			{2 * sec, throttledFor(1, 2*sec), inEpoch(2, probeAt(4*sec))}, // stale
			{5 * sec, goes, probeAt(6 * sec)},
			{5 * sec, throttledFor(2, sec), inEpoch(3, until(6*sec, 6050*ms, ForRetryAfter))},
			{7 * sec, goes, probeAt(8 * sec)},
			{7 * sec, fails(3, 1), probeAt(7250 * ms)}, // as after an outage
			{8 * sec, goes, probeAt(9 * sec)},
			{8 * sec, succeeds(3), inEpoch(4, passes)},
			{8 * sec, throttledFor(4, sec), until(9*sec, 9050*ms, ForRetryAfter)}, // a new row
			{10 * sec, nothing, passes},
		}},
		{"a success ends the row of advertised closings", 100, []gateStep{
			{0, throttledFor(0, sec), until(sec, 1050*ms, ForRetryAfter)},
			{2 * sec, goes, spaced(2010 * ms)},
			{2 * sec, succeeds(0), spaced(2010 * ms)}, // of before: it does not
			{2 * sec, succeeds(1), spaced(2010 * ms)},
			{3 * sec, throttledFor(1, sec), until(4*sec, 4050*ms, ForRetryAfter)},
			{5 * sec, goes, spaced(5010 * ms)},
			{5 * sec, goes, spaced(5020 * ms)},
		}},
		{"overloaded: a round trip of rest, once an epoch, and then as before", rate.Inf, []gateStep{
			{0, reports(Success, 0, 0, 0, 80*ms), passes},
			{0, overloads(0, 1), inEpoch(1, until(80*ms, 80*ms, ForThrottling))},
			{50 * ms, overloads(0, 2), inEpoch(1, until(80*ms, 80*ms, ForThrottling))},
			{60 * ms, succeeds(0), inEpoch(1, until(80*ms, 80*ms, ForThrottling))},
			{80 * ms, goes, passes},
			{80 * ms, goes, passes}, // no slow start
			{sec, overloads(1, 3), inEpoch(2, until(1080*ms, 1080*ms, ForThrottling))},
			{sec, throttledFor(2, sec), inEpoch(3, until(2*sec, 2050*ms, ForRetryAfter))},
			{3 * sec, goes, full},
		}},
		{"overloaded in a slow start", 0, []gateStep{
			{0, reports(Success, 0, 0, 0, 80*ms), passes},
			{0, throttledFor(0, sec), until(sec, 1050*ms, ForRetryAfter)},
			{2 * sec, goes, full},
			{2 * sec, succeeds(1), passes},
			{2 * sec, goes, passes},
			{2 * sec, goes, full},
			{2 * sec, overloads(1, 1), inEpoch(2, until(2080*ms, 2080*ms, ForThrottling))},
			{3 * sec, goes, passes},
			{3 * sec, goes, full},
			{3 * sec, succeeds(2), passes},
		}},
		{"overloaded in a paced reopening", 10, []gateStep{
			{0, reports(Success, 0, 0, 0, 80*ms), passes},
			{0, throttledFor(0, sec), until(sec, 1050*ms, ForRetryAfter)},
			{2 * sec, goes, spaced(2100 * ms)},
			{2 * sec, overloads(1, 1), inEpoch(2, until(2080*ms, 2080*ms, ForThrottling))},
			{2080 * ms, nothing, spaced(2100 * ms)},
			{2100 * ms, goes, spaced(2200 * ms)},
		}},
		{"overloaded answers and failures are one row", 100, []gateStep{
			{0, func(g *gateRun) {
				for i := range uint64(7) {
					g.now = g.start.Add(time.Duration(i) * sec)
					reports([]Outcome{Failure, Overloaded}[i%2], g.epoch, i, 0, 80*ms)(g)
					g.now = g.now.Add(500 * ms)
					g.closed(g.now, g.pace)
				}
			}, passes},
			{8 * sec, overloads(0, 8), inEpoch(4, probeAt(8250*ms))}, // brief closings do not make it stale
			{9 * sec, goes, probeAt(10 * sec)},
			{9 * sec, overloads(4, 9), inEpoch(4, probeAt(9250*ms))},
			{10 * sec, goes, probeAt(11 * sec)},
			{10 * sec, succeeds(4), passes},
		}},
		{"resume", 100, []gateStep{
			{0, throttledFor(0, hour), until(hour, hour+sec, ForRetryAfter)},
			{sec, resumes, spaced(sec)},
			{sec, goes, spaced(1010 * ms)},
			{2 * sec, pauses(sec), until(3*sec, 3*sec, ForPause)}, // not as long as advertised before
			{2 * sec, resumes, spaced(2 * sec)},
			{3 * sec, fail8(2), inEpoch(3, probeAt(3250*ms))},
			{3 * sec, resumes, spaced(3 * sec)},
		}},
		{"resume ends the count of closings without a time", 100, []gateStep{
			{0, throttles(0, 80*ms), until(10*ms, 10*ms, ForThrottling)},
			{0, resumes, spaced(0)},
			{sec, throttles(1, 80*ms), until(1010*ms, 1010*ms, ForThrottling)},
		}},
		{"pauses add up to the longest", 100, []gateStep{
			{0, throttledFor(0, 10*sec), until(10*sec, 10500*ms, ForRetryAfter)},
			{0, pauses(5 * sec), func(g *gateRun) string { return until(10*sec, 10500*ms, g.cause)(g) }},
			{0, pauses(20 * sec), until(20*sec, 20*sec, ForPause)},
			{0, pauses(-sec), until(20*sec, 20*sec, ForPause)},
			{0, throttledFor(1, 5*sec), inEpoch(2, until(20*sec, 20*sec, ForRetryAfter))},
		}},
		{"a pause holds the probe back", 100, []gateStep{
			{0, fail8(0), probeAt(250 * ms)},
			{0, pauses(sec), until(sec, sec, ForFailures)}, // which is what it waits for in the end
			{0, nothing, probeAt(sec)},
			{sec, goes, probeAt(2 * sec)},
			{sec, pauses(10 * sec), probeAt(11 * sec)},
			{sec, fails(1, 1), probeAt(11 * sec)},
			{sec, reports(Cancelled, 1, 1, 0, 0), probeAt(11 * sec)},
			{sec, throttles(1, ms), func(g *gateRun) string { return until(11*sec, 11*sec, ForThrottling)(g) }},
		}},
		{"and so does a pause while it is out", 100, []gateStep{
			{0, fail8(0), probeAt(250 * ms)},
			{sec, goes, probeAt(2 * sec)},
			{sec, pauses(10 * sec), probeAt(11 * sec)},
			{11 * sec, goes, probeAt(12 * sec)},
			{11 * sec, succeeds(1), passes},
		}},
		{"a pause that came while the probe was out outlasts its success", 100, []gateStep{
			{0, fail8(0), probeAt(250 * ms)},
			{sec, goes, probeAt(2 * sec)},
			{sec, pauses(10 * sec), probeAt(11 * sec)},
			{sec, succeeds(1), func(g *gateRun) string { return until(11*sec, 11*sec, g.cause)(g) }},
			{11 * sec, nothing, spaced(11 * sec)}, // no further probe
		}},
		{"and so does an advertised time", 100, []gateStep{
			{0, fail8(0), probeAt(250 * ms)},
			{sec, goes, probeAt(2 * sec)},
			{sec, throttledFor(0, 10*sec), inEpoch(1, func(g *gateRun) string { return until(11*sec, 11*sec, ForRetryAfter)(g) })},
			{sec, succeeds(1), closedUntilThen(11 * sec)},
			{11 * sec, nothing, spaced(11 * sec)},
		}},
		{"a pause is an epoch of its own", 0, []gateStep{
			{0, pauses(sec), inEpoch(1, until(sec, sec, ForPause))},
			{0, pauses(2 * sec), inEpoch(1, until(2*sec, 2*sec, ForPause))},
			{2 * sec, nothing, passes},
			{2 * sec, goes, full},
			{2 * sec, succeeds(0), full},
			{2 * sec, succeeds(1), passes},
			{2 * sec, pauses(sec), inEpoch(2, until(3*sec, 3*sec, ForPause))},
		}},
		{"jitter is of its own closing", 100, []gateStep{
			{0, throttledFor(0, 20*sec), func(g *gateRun) string {
				if want := g.Gate.until.Sub(g.start) - 20*sec; g.jitter != want {
					return fmt.Sprintf("slack %v, want %v", g.jitter, want)
				}
				return ""
			}},
			{0, throttledFor(1, sec), func(g *gateRun) string {
				if want := g.Gate.until.Sub(g.start) - 20*sec; g.jitter != want {
					return fmt.Sprintf("slack %v, want %v", g.jitter, want)
				}
				return ""
			}},
			{22 * sec, pauses(sec), func(g *gateRun) string { return map[bool]string{false: "slack left"}[g.jitter == 0] }},
		}},
	} {
		for range 50 {
			g := newGateRun(t, s.name, s.pace)
			for i, step := range s.steps {
				g.now = g.start.Add(step.at)
				step.do(g)
				if why := step.want(g); why != "" {
					t.Errorf("%s, step %d at %v: %s", s.name, i, step.at, why)
					break
				}
			}
			if t.Failed() {
				break
			}
		}
	}
}

// TestGateJitter: an advertised wait's jitter fills its range.
func TestGateJitter(t *testing.T) {
	var least, most time.Duration = 1 << 62, 0
	for range 2000 {
		g := newGateRun(t, "", 100)
		throttledFor(0, 10*sec)(g)
		d := g.Gate.until.Sub(g.start) - 10*sec
		least, most = min(least, d), max(most, d)
	}
	if least < 0 || least > 20*ms || most >= 500*ms || most < 480*ms {
		t.Errorf("jitter from %v to %v, want 0 to 500ms", least, most)
	}
	least, most = 1<<62, 0
	for range 2000 { // k = 10: 1 s · 2^8 is above 30 s
		g := newGateRun(t, "", 100)
		for k := range uint32(10) {
			throttles(k, sec)(g)
		}
		d := g.Gate.until.Sub(g.start)
		least, most = min(least, d), max(most, d)
	}
	if least < 0 || most > 30*sec || most < 29*sec {
		t.Errorf("waits from %v to %v, want up to 30 s", least, most)
	}
}

// TestGateClosedTime: that clock runs only while the gate is closed.
func TestGateClosedTime(t *testing.T) {
	g := newGateRun(t, "", 100)
	at := func(d time.Duration, do func(*gateRun), want time.Duration) {
		t.Helper()
		g.now = g.start.Add(d)
		before := g.ClosedTime(g.now)
		do(g)
		if after := g.ClosedTime(g.now); before != after || after != want {
			t.Errorf("at %v: %v before, %v after, want %v", d, before, after, want)
		}
	}
	closes := func(d time.Duration) func(*gateRun) {
		return func(g *gateRun) { g.hold(ForRetryAfter, g.now.Add(d), g.now, g.pace) }
	}
	look := func(g *gateRun) { g.closed(g.now, g.pace) }
	at(0, nothing, 0)
	at(10*sec, closes(5*sec), 0)
	at(12*sec, nothing, 2*sec)
	at(13*sec, closes(5*sec), 3*sec)
	at(17*sec, closes(sec), 7*sec)
	at(20*sec, nothing, 8*sec) // over at 18 s
	at(21*sec, look, 8*sec)
	at(30*sec, fail8(1), 8*sec)
	at(40*sec, goes, 18*sec)
	at(50*sec, succeeds(2), 28*sec)
	at(60*sec, nothing, 28*sec)
	at(60*sec, closes(5*sec), 28*sec)
	at(61*sec, resumes, 29*sec)
	at(70*sec, nothing, 29*sec)
	at(80*sec, closes(5*sec), 29*sec)
	at(90*sec, closes(5*sec), 34*sec) // nobody has looked since the last one's end
	at(100*sec, resumes, 39*sec)
	at(110*sec, closes(5*sec), 39*sec)
	at(120*sec, throttledFor(4, 10*sec), 44*sec) // a stale answer
	at(130*sec, nothing, 54*sec)
}

// TestGateRoundTrip smooths as TCP does, and failures do not count.
func TestGateRoundTrip(t *testing.T) {
	g := newGateRun(t, "", 100)
	for _, s := range []struct {
		o          Outcome
		trip, want time.Duration
	}{
		{Failure, sec, 0}, {Neutral, sec, 0}, {Success, 80 * ms, 80 * ms}, {Success, 0, 80 * ms},
		{Success, 160 * ms, 90 * ms}, {Throttled, 10 * ms, 80 * ms}, {Failure, time.Hour, 80 * ms},
	} {
		if reports(s.o, 0, 0, 0, s.trip)(g); g.srtt != s.want {
			t.Errorf("outcome %d of %v: %v, want %v", s.o, s.trip, g.srtt, s.want)
		}
	}
}

// TestGateUndo: a start that was not used leaves no trace.
func TestGateUndo(t *testing.T) {
	g := newGateRun(t, "paced", 100)
	pauses(sec)(g)
	g.now = g.start.Add(sec)
	g.closed(g.now, g.pace)
	costs(3)(g)
	g.Undo(1, 3, g.now, g.pace)
	if why := passes(g); why != "" {
		t.Error("paced:", why)
	}
	g = newGateRun(t, "counted", 0)
	pauses(sec)(g)
	g.now = g.start.Add(sec)
	g.closed(g.now, g.pace)
	goes(g)
	g.Undo(1, 1, g.now, g.pace)
	if why := passes(g); why != "" {
		t.Error("counted:", why)
	}
	g = newGateRun(t, "probe", 0)
	fail8(0)(g)
	g.now = g.start.Add(sec)
	goes(g)
	g.Undo(1, 1, g.now, g.pace)
	if why := probeAt(sec)(g); why != "" {
		t.Error("probe:", why)
	}
	goes(g)
	pauses(10 * sec)(g)
	g.Undo(1, 1, g.now, g.pace)
	if why := probeAt(11 * sec)(g); why != "" {
		t.Error("probe, then a pause:", why)
	}
	g = newGateRun(t, "probe", 0)
	fail8(0)(g)
	g.now = g.start.Add(sec)
	goes(g)
	g.Undo(0, 1, g.now, g.pace) // of before
	if why := probeAt(2 * sec)(g); why != "" {
		t.Error("probe:", why)
	}
}

// FuzzGate plays random events and checks what must hold of any: nothing passes before the advertised
// time, one probe at a time unless its time is over, counts never negative, the closed-time clock never
// back. Two bytes are an event: what, and how much.
func FuzzGate(f *testing.F) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 7))
		script := make([]byte, 400)
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		f.Add(script, uint16(seed%3*50))
	}
	f.Fuzz(func(t *testing.T, script []byte, pace uint16) {
		g := newGateRun(t, "", rate.Limit(pace))
		if pace > 60_000 {
			g.pace = rate.Inf
		}
		newGateFuzz(g).run(script)
	})
}

// A gateFuzz is the caller of a gate: it sends calls that the gate lets pass and reports on them later.
type gateFuzz struct {
	*gateRun
	out   []Report  // calls sent and not answered
	floor time.Time // nothing passes before
	probe time.Time // the probe that is out has time until then; zero: none is out
	calls uint64
}

func newGateFuzz(g *gateRun) *gateFuzz { return &gateFuzz{gateRun: g} }

func (g *gateFuzz) run(script []byte) {
	for i := 0; i+1 < len(script); i += 2 {
		what, much := script[i], script[i+1]
		clock := g.ClosedTime(g.now)
		switch what % 8 {
		case 0, 1:
			g.send()
		case 2, 3, 4:
			g.answer(int(what)/8, much)
		case 5:
			d := time.Duration(much) * 40 * ms
			g.now = g.now.Add(d)
			if more := g.ClosedTime(g.now) - clock; more < 0 || more > d {
				g.Fatalf("step %d: the closed-time clock went from %v by %v in %v", i/2, clock, more, d)
			}
			clock = g.ClosedTime(g.now)
		case 6:
			switch d := time.Duration(much) * 10 * ms; {
			case what < 32:
				g.Gate.Pause(d, g.now, g.pace)
				g.floor = limit.Latest(g.floor, g.now.Add(d))
			case what < 40:
				g.Resume(g.now, g.pace)
				g.floor, g.probe = time.Time{}, time.Time{}
			}
		case 7:
			if len(g.out) == 0 { // as the queue does, when nobody waits
				g.LineEmpty(g.now)
				clock = g.ClosedTime(g.now) // the clock may begin anew
			}
		}
		if got := g.ClosedTime(g.now); got != clock {
			g.Fatalf("step %d (%d, %d): the closed-time clock jumped from %v to %v", i/2, what, much, clock, got)
		}
		if g.breaker != nil && (g.inFlight < 0 || g.failures < 0 || g.longest < 0 || g.total < 0) {
			g.Fatalf("step %d: %+v", i/2, *g.breaker)
		}
		if alert := g.breaker != nil && (g.cause != Open || g.mode == slowStart || g.failures > 0 || g.longest > 0 || g.advertised+g.unadvertised > 0 || !g.unserved.IsZero()); alert != g.alert.Load() {
			g.Fatalf("step %d: alert %t, want %t", i/2, g.alert.Load(), alert)
		}
	}
}

// send lets a call go if the gate does.
func (g *gateFuzz) send() {
	at, ok := g.nextStart(g.now, g.pace)
	if !ok || at.After(g.now) {
		return
	}
	if g.now.Before(g.floor) {
		g.Fatalf("one passes %v before the advertised time", g.floor.Sub(g.now))
	}
	if g.breaker != nil && g.cause != Open {
		if !g.probing {
			g.Fatalf("one passes a closed gate (%s)", g.cause)
		}
		if g.now.Before(g.probe) {
			g.Fatalf("a second probe, %v early", g.probe.Sub(g.now))
		}
		g.probe = g.now.Add(min(max(3*g.srtt, time.Second), 10*time.Second))
	} else {
		g.probe = time.Time{}
	}
	n := 1 + int(g.calls%3)
	g.Gate.Start(n, g.now, g.now, g.pace)
	g.calls++
	g.out = append(g.out, Report{Epoch: g.epoch, Call: g.calls / 2})
}

// answer ends one of the calls that are out.
func (g *gateFuzz) answer(which int, much byte) {
	if len(g.out) == 0 {
		return
	}
	which %= len(g.out)
	r := g.out[which]
	g.out[which] = g.out[len(g.out)-1]
	g.out = g.out[:len(g.out)-1]
	r.Trip = time.Duration(much/4) * ms
	switch r.Outcome = Outcome(much % 6); {
	case r.Outcome == Throttled && much >= 240:
		r.Wait = 1 << 62
	case r.Outcome == Throttled && much >= 128:
		r.Wait = time.Duration(much) * 10 * ms
	}
	epoch := g.epoch
	g.Observe(r, g.now, g.pace)
	if r.Epoch == epoch {
		g.probe = time.Time{} // answered
	}
	if r.Wait > 0 {
		g.floor = limit.Latest(g.floor, g.now.Add(min(r.Wait, limit.MaxBelief)))
	}
}

// A stale answer advertises a time that ends before the next probe is due. The success of a probe that is out
// already does not open the gate before.
func TestProbeOpensNotBeforeAStaleAnswersTime(t *testing.T) {
	var g Gate
	now := time.Now()
	g.breaker = new(breaker)
	g.epoch = 1
	g.closeUntil(ForFailures, now, now)
	g.probing = true
	g.Start(1, now, now, 0)
	g.Observe(Report{Outcome: Throttled, Epoch: 0, Wait: time.Second / 2}, now, 0)
	g.Observe(Report{Outcome: Success, Epoch: 1}, now.Add(time.Second/10), 0)
	if at, ok := g.nextStart(now.Add(time.Second/10), 0); !ok || at.Before(now.Add(time.Second/2)) {
		t.Errorf("the gate opens %v after 500 ms were advertised: %v", at.Sub(now), ok)
	}
	if _, ok := g.nextStart(now.Add(time.Second), 0); !ok || g.cause != Open {
		t.Error("and it does not open then")
	}
}

const (
	ms  = time.Millisecond
	sec = time.Second
)

// An attempt that its caller's deadline has cut off took longer than that. It must never make the gate
// expect answers sooner.
func TestCutNeverLowersTheTimeToAnswer(t *testing.T) {
	g := &Gate{srtt: 100 * time.Millisecond, dev: 100 * time.Millisecond}
	before := g.AnswerTime()
	for range 10 {
		g.measure(Cancelled, 110*time.Millisecond, true)
	}
	if after := g.AnswerTime(); after < before {
		t.Errorf("answers are expected within %v after ten calls that had none in 110 ms, %v before", after, before)
	}
}
