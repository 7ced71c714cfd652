package gate

import (
	"math"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

var zero = time.Unix(1e9, 0)

// at is the moment so many seconds after zero.
func at(s float64) time.Time { return zero.Add(time.Duration(math.Round(s * 1e9))) }

// mayGo reports whether a call may go at that moment.
func mayGo(g *Gate, now time.Time, pace rate.Limit) bool {
	then, ok := g.nextStart(now, pace)
	return ok && !then.After(now)
}

// An upstream that has not answered yet gets four calls, until its first answer or for a second; one that its
// caller has given up is no answer.
func TestFirstContact(t *testing.T) {
	meet := func() *Gate {
		g := new(Gate)
		g.FirstContact(zero)
		for i := range 4 {
			if !g.alert.Load() || !mayGo(g, at(0.1), rate.Inf) {
				t.Fatalf("call %d of the first four may not go", i+1)
			}
			g.Start(1, at(0.1), at(0.1), rate.Inf)
		}
		return g
	}
	g := meet()
	if then, ok := g.nextStart(at(0.1), rate.Inf); !ok || !then.Equal(at(1)) {
		t.Errorf("the fifth goes at %v, %v; want after 1 s", then.Sub(zero), ok)
	}
	if g.LineEmpty(at(0.2)); mayGo(g, at(0.2), rate.Inf) {
		t.Error("an empty line lets the fifth go")
	}
	g.Observe(Report{Outcome: Cancelled}, at(0.2), rate.Inf)
	if !mayGo(g, at(0.2), rate.Inf) {
		t.Error("one that was given up leaves no place")
	}
	g.Start(1, at(0.2), at(0.2), rate.Inf)
	if mayGo(g, at(0.2), rate.Inf) {
		t.Error("one that was given up counts for an answer")
	}
	for _, outcome := range []Outcome{Success, Neutral, Failure} {
		g := meet()
		g.Observe(Report{Outcome: outcome}, at(0.3), rate.Inf)
		for range 9 {
			if !mayGo(g, at(0.3), rate.Inf) {
				t.Errorf("outcome %d: not all may go after the first answer", outcome)
			}
			g.Start(1, at(0.3), at(0.3), rate.Inf)
		}
	}
	g = meet()
	if g.Observe(Report{Outcome: Throttled, Wait: time.Second}, at(0.3), 10); g.cause != ForRetryAfter {
		t.Errorf("throttled at first: closed for %q", g.cause)
	}
	if then, ok := g.nextStart(at(2), 10); !ok || then.After(at(2)) || g.mode != paced {
		t.Errorf("and reopened at %v, %v, in mode %d", then.Sub(zero), ok, g.mode)
	}
}

// While something is learned each answer is observed; else only where it would change something. When all is well
// again nothing is kept.
func TestAlert(t *testing.T) {
	g := new(Gate)
	if g.setAlert(); g.alert.Load() {
		t.Error("nothing is wrong and nothing is learned, and there is an alert")
	}
	g.observeAll = true
	if g.setAlert(); !g.alert.Load() {
		t.Error("something is learned, and there is no alert")
	}
	g.observeAll = false
	if g.Observe(Report{Outcome: Success}, zero, 10); g.breaker != nil {
		t.Error("a success makes a breaker")
	}
	if g.Observe(Report{Outcome: Neutral}, zero, 10); g.breaker != nil {
		t.Error("a neutral answer makes a breaker")
	}
	g.Observe(Report{Outcome: Failure, Call: 1}, zero, 10)
	if g.LineEmpty(zero); g.breaker == nil || !g.alert.Load() {
		t.Error("a failure is forgotten without a success")
	}
	g.Observe(Report{Outcome: Success}, zero, 10)
	if g.LineEmpty(zero); g.breaker != nil || g.alert.Load() {
		t.Error("a failure is kept after a success")
	}
	g.Observe(Report{Outcome: Throttled}, zero, 10)
	g.closed(at(1), 10)
	if g.LineEmpty(at(1)); g.breaker == nil || !g.alert.Load() {
		t.Error("a closing without a time is forgotten without a success")
	}
	g.Observe(Report{Outcome: Success, Epoch: g.epoch}, at(1), 10)
	if g.LineEmpty(at(1)); g.breaker != nil {
		t.Error("a closing without a time is kept after a success")
	}
	g.LineEmpty(at(1))
}

// A slow start grows by one for each success.
func TestReopeningGrows(t *testing.T) {
	g := &Gate{srtt: 100 * time.Millisecond, breaker: new(breaker)}
	g.open(zero, rate.Inf)
	for want := int32(2); want < 14; want++ {
		g.Start(1, zero, zero, rate.Inf)
		if g.Observe(Report{Outcome: Success}, zero, rate.Inf); g.allowed != want {
			t.Errorf("%d in flight after %d successes, want %d", g.allowed, want-1, want)
		}
	}
}

// A pause lasts as long as the longest that was asked for, whatever closed the gate before; what is advertised
// meanwhile does not shorten it.
func TestPauseHolds(t *testing.T) {
	g := new(Gate)
	if g.Pause(0, zero, 10); g.breaker != nil {
		t.Error("a pause of nothing closes the gate")
	}
	g.Pause(10*time.Second, zero, 10)
	g.Pause(5*time.Second, at(1), 10)
	if g.closings != 2 || g.epoch != 1 || g.cause != ForPause || !g.Reopens(at(1)).Equal(at(10)) {
		t.Errorf("%d closings, epoch %d, for %q until %v", g.closings, g.epoch, g.cause, g.Reopens(at(1)).Sub(zero))
	}
	g.Observe(Report{Outcome: Throttled, Epoch: 0, Wait: time.Second}, at(2), 10)
	if !g.Reopens(at(2)).Equal(at(10)) || !g.floor.Equal(at(10)) {
		t.Errorf("until %v, after what was advertised to an old call", g.Reopens(at(2)).Sub(zero))
	}
	if !g.closed(at(9.9), 10) || g.closed(at(10), 10) {
		t.Error("a pause of ten seconds does not last until then")
	}
	if got := g.Reopens(at(11)); !got.Equal(at(11)) || !new(Gate).Reopens(at(1)).Equal(at(1)) {
		t.Errorf("open: reopens at %v, want now", got.Sub(zero))
	}
	if g.closeUntil(ForThrottling, at(12), at(11)); !g.floor.IsZero() || !g.Reopens(at(20)).Equal(at(20)) {
		t.Errorf("the floor of a closing that is over stands: %v", g.floor.Sub(zero))
	}
	g = fail(t)
	g.Pause(10*time.Second, at(1), 10)
	if g.cause != ForFailures || !g.probing || !g.Reopens(at(1)).Equal(at(11)) || !g.floor.Equal(at(11)) {
		t.Errorf("paused while it fails: for %q, probing %v, until %v", g.cause, g.probing, g.Reopens(at(1)).Sub(zero))
	}
	g.Resume(at(2), 10)
	if !g.floor.IsZero() || g.closed(at(2), 10) {
		t.Error("resumed, and not open")
	}
}

// fail is a gate that eight failures of two calls have closed at zero.
func fail(t *testing.T) *Gate {
	g := new(Gate)
	for i := range failuresToClose {
		if stopped := g.Observe(Report{Outcome: Failure, Call: uint64(i / 4)}, zero, 10); stopped != (i == failuresToClose-1) {
			t.Fatalf("after %d failures it stopped: %v", i+1, stopped)
		}
	}
	if g.cause != ForFailures || !g.probing || g.epoch != 1 || !g.until.Equal(zero.Add(firstProbe)) {
		t.Fatalf("closed for %q until %v in epoch %d", g.cause, g.until.Sub(zero), g.epoch)
	}
	return g
}

// A probe's answer counts while it is awaited, and only then; whatever came in the meantime holds.
func TestProbeAnswers(t *testing.T) {
	probing := func() *Gate {
		g := fail(t)
		g.Start(1, at(1), at(1), 10)
		if !g.probeOut || !g.until.Equal(at(2)) {
			t.Fatalf("a probe is out: %v, the next at %v", g.probeOut, g.until.Sub(zero))
		}
		return g
	}
	g := probing()
	if stopped := g.Observe(Report{Outcome: Failure, Epoch: 1}, at(1.5), 10); stopped || g.probeOut || !g.until.Equal(at(1.75)) {
		t.Errorf("failed: stopped %v, the next at %v", stopped, g.until.Sub(zero))
	}
	if g.Observe(Report{Outcome: Failure, Epoch: 1}, at(1.6), 10); !g.until.Equal(at(1.75)) {
		t.Errorf("a failure that no probe met moves the next to %v", g.until.Sub(zero))
	}
	if g.Observe(Report{Outcome: Cancelled, Epoch: 1}, at(1.6), 10); !g.until.Equal(at(1.75)) {
		t.Errorf("one that was no probe, given up, moves the next to %v", g.until.Sub(zero))
	}
	g = probing()
	if g.Observe(Report{Outcome: Neutral, Epoch: 0}, at(1.5), 10); !g.probeOut || !g.until.Equal(at(2)) {
		t.Errorf("an old answer counts for the probe's: the next at %v", g.until.Sub(zero))
	}
	if g.Observe(Report{Outcome: Cancelled, Epoch: 0}, at(1.5), 10); !g.probeOut || !g.until.Equal(at(2)) {
		t.Errorf("an old call, given up, counts for the probe: the next at %v", g.until.Sub(zero))
	}
	if g.Observe(Report{Outcome: Neutral, Epoch: 1}, at(1.5), 10); g.probeOut || !g.until.Equal(at(1.75)) {
		t.Errorf("a neutral answer: the next at %v", g.until.Sub(zero))
	}
	g = probing()
	if g.Observe(Report{Outcome: Success, Epoch: 1}, at(1.5), 10); g.cause != Open || g.epoch != 2 || g.mode != paced || g.ClosedTime(at(9)) != 1500*time.Millisecond {
		t.Errorf("served: %q in epoch %d, mode %d, closed for %v", g.cause, g.epoch, g.mode, g.ClosedTime(at(9)))
	}
	g = probing()
	g.Pause(4*time.Second, at(1.2), 10)
	if g.Observe(Report{Outcome: Success, Epoch: 1}, at(1.5), 10); g.cause == Open || g.probing || g.probeOut || !g.until.Equal(at(5.2)) {
		t.Errorf("served in a pause: %q, probing %v, until %v", g.cause, g.probing, g.until.Sub(zero))
	}
	if g.closed(at(5.2), 10) {
		t.Error("and not open when it ends")
	}
}

// A stale throttled answer closes for the time that it advertises, if that is longer; without one it does nothing.
func TestStaleAnswers(t *testing.T) {
	g := &Gate{epoch: 3}
	if stopped := g.Observe(Report{Outcome: Throttled, Epoch: 2}, zero, 10); stopped || g.cause != Open {
		t.Errorf("without a time: stopped %v", stopped)
	}
	if stopped := g.Observe(Report{Outcome: Throttled, Epoch: 2, Wait: 5 * time.Second}, zero, 10); !stopped || g.cause != ForRetryAfter || g.epoch != 3 || !g.until.Equal(at(5)) {
		t.Errorf("with a time: stopped %v, until %v", stopped, g.until.Sub(zero))
	}
	if stopped := g.Observe(Report{Outcome: Throttled, Epoch: 2, Wait: time.Second}, zero, 10); stopped || !g.until.Equal(at(5)) || g.closings != 1 || !g.floor.Equal(at(5)) {
		t.Errorf("with less: stopped %v, until %v", stopped, g.until.Sub(zero))
	}
	if g.Observe(Report{Outcome: Throttled, Epoch: 2, Wait: 48 * time.Hour}, zero, 10); !g.probing || !g.until.Equal(at(86400)) {
		t.Errorf("with more than is believed: probing %v, until %v", g.probing, g.until.Sub(zero))
	}
	g = fail(t)
	if g.Observe(Report{Outcome: Throttled, Epoch: 0, Wait: 5 * time.Second}, zero, 10); !g.probing {
		t.Error("an outage needs no probe any more, because an old call was throttled")
	}
}

// Eight failures in a row close the gate, if they are of more than one call; a success begins the row anew.
func TestRowOfFailures(t *testing.T) {
	for name, c := range map[string]struct {
		calls  string // of the failures; "." is a success
		closed bool
	}{
		"two calls":             {"01000000", true},
		"one call":              {"00000000000000000000", false},
		"one, then another":     {"0000000000001", true},
		"seven":                 {"0101010", false},
		"a success between":     {"0101010.1010101", false},
		"mixed, then one":       {"0101010.00000000000", false},
		"closed and open again": {"01000000!0101010", false},
		"closed again":          {"01000000!01010101", true},
	} {
		g, now := new(Gate), zero
		for _, call := range c.calls {
			switch call {
			case '.':
				g.Observe(Report{Outcome: Success, Epoch: g.epoch}, now, 10)
			case '!':
				now = now.Add(time.Second)
				g.Start(1, now, now, 10)
				g.Observe(Report{Outcome: Success, Epoch: g.epoch}, now, 10)
			default:
				g.Observe(Report{Outcome: Failure, Epoch: g.epoch, Call: uint64(call)}, now, 10)
			}
		}
		if got := g.cause == ForFailures; got != c.closed {
			t.Errorf("%s: closed for %q", name, g.cause)
		}
	}
}

// Throttled answers without a time close for one unit's time, then for a round trip, then longer and by probes.
func TestThrottledWithoutATime(t *testing.T) {
	for name, c := range map[string]struct {
		srtt, trip time.Duration
		pace       rate.Limit
		wait       time.Duration
	}{
		"a rate":             {50 * time.Millisecond, 0, 20, 50 * time.Millisecond},
		"no rate":            {40 * time.Millisecond, 0, rate.Inf, 40 * time.Millisecond},
		"nothing measured":   {0, 30 * time.Millisecond, 0, 30 * time.Millisecond},
		"nothing to measure": {0, 0, 0, time.Millisecond},
	} {
		g := &Gate{srtt: c.srtt}
		if stopped := g.Observe(Report{Outcome: Throttled, Trip: c.trip}, zero, c.pace); !stopped || g.probing || g.until.Sub(zero) != c.wait || g.closings != 1 {
			t.Errorf("%s: stopped %v, until %v, want %v", name, stopped, g.until.Sub(zero), c.wait)
		}
	}
	g := &Gate{srtt: 40 * time.Millisecond}
	for i := range 3 {
		now := at(float64(i))
		if stopped := g.Observe(Report{Outcome: Throttled, Epoch: g.epoch}, now, 100); !stopped || g.probing != (i == 2) {
			t.Errorf("answer %d: stopped %v, probing %v", i+1, stopped, g.probing)
		}
	}
	g.Start(1, at(3), at(3), 100)
	if g.Observe(Report{Outcome: Failure, Epoch: g.epoch}, at(52), 100); !g.until.Equal(at(53)) {
		t.Errorf("the next probe at %v, want 53 s: 2 %% of the 50 s since the throttled answer", g.until.Sub(zero))
	}
}

// Each slow start begins with one call, whatever was in flight in the one before.
func TestReopeningBeginsWithOne(t *testing.T) {
	g := &Gate{breaker: new(breaker)}
	g.open(zero, rate.Inf)
	for range 3 {
		g.Start(1, zero, zero, rate.Inf)
	}
	g.Observe(Report{Outcome: Throttled, Epoch: g.epoch, Wait: time.Second}, zero, rate.Inf)
	if !mayGo(g, at(3), rate.Inf) {
		t.Error("nobody may go")
	}
	if g.Start(1, at(3), at(3), rate.Inf); mayGo(g, at(3), rate.Inf) {
		t.Error("two may go")
	}
}
