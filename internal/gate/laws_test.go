package gate

import (
	"testing"
	"time"

	"golang.org/x/time/rate"
)

var zero = time.Unix(1e9, 0)

// at is the moment so many seconds after zero.
func at(s float64) time.Time { return zero.Add(time.Duration(s * 1e9)) }

// mayGo tells whether a call may go at that moment.
func mayGo(g *Gate, now time.Time, pace rate.Limit) bool {
	then, ok := g.Moment(now, pace)
	return ok && !then.After(now)
}

// An upstream that has not answered yet gets four calls, until its first answer or for a second; one that its
// caller has given up is no answer.
func TestFirstContact(t *testing.T) {
	meet := func() *Gate {
		g := new(Gate)
		g.Meet(zero)
		for i := range 4 {
			if !g.Alert.Load() || !mayGo(g, at(0.1), rate.Inf) {
				t.Fatalf("call %d of the first four may not go", i+1)
			}
			g.Start(1, at(0.1), at(0.1), rate.Inf)
		}
		return g
	}
	g := meet()
	if then, ok := g.Moment(at(0.1), rate.Inf); !ok || !then.Equal(at(1)) {
		t.Errorf("the fifth goes at %v, %v; want after 1 s", then.Sub(zero), ok)
	}
	if g.LineEmpty(at(0.2)); mayGo(g, at(0.2), rate.Inf) {
		t.Error("an empty line lets the fifth go")
	}
	g.Learn(Report{Outcome: Cancelled}, at(0.2), rate.Inf)
	if !mayGo(g, at(0.2), rate.Inf) {
		t.Error("one that was given up leaves no place")
	}
	g.Start(1, at(0.2), at(0.2), rate.Inf)
	if mayGo(g, at(0.2), rate.Inf) {
		t.Error("one that was given up counts for an answer")
	}
	for _, outcome := range []Outcome{Success, Neutral, Failure} {
		g := meet()
		g.Learn(Report{Outcome: outcome}, at(0.3), rate.Inf)
		for range 9 {
			if !mayGo(g, at(0.3), rate.Inf) {
				t.Errorf("outcome %d: not all may go after the first answer", outcome)
			}
			g.Start(1, at(0.3), at(0.3), rate.Inf)
		}
	}
	g = meet()
	if g.Learn(Report{Outcome: Refusal, Told: time.Second}, at(0.3), 10); g.Cause != Told {
		t.Errorf("refused at first: closed for %q", g.Cause)
	}
	if then, ok := g.Moment(at(2), 10); !ok || then.After(at(2)) || g.Mode != Paced {
		t.Errorf("and reopened at %v, %v, in mode %d", then.Sub(zero), ok, g.Mode)
	}
}

// While somebody listens, each answer is told; else only where it would change something. When all is well
// again nothing is kept.
func TestWatchfulness(t *testing.T) {
	g := new(Gate)
	if g.Watch(); g.Alert.Load() {
		t.Error("nothing is wrong, and nobody listens")
	}
	g.Listens = true
	if g.Watch(); !g.Alert.Load() {
		t.Error("somebody listens")
	}
	g.Listens = false
	if g.Learn(Report{Outcome: Success}, zero, 10); g.Trouble != nil {
		t.Error("a success makes trouble")
	}
	if g.Learn(Report{Outcome: Neutral}, zero, 10); g.Trouble != nil {
		t.Error("a neutral answer makes trouble")
	}
	g.Learn(Report{Outcome: Failure, Call: 1}, zero, 10)
	if g.LineEmpty(zero); g.Trouble == nil || !g.Alert.Load() {
		t.Error("a failure is forgotten without a success")
	}
	g.Learn(Report{Outcome: Success}, zero, 10)
	if g.LineEmpty(zero); g.Trouble != nil || g.Alert.Load() {
		t.Error("a failure is kept after a success")
	}
	g.Learn(Report{Outcome: Refusal}, zero, 10)
	g.Closed(at(1), 10)
	if g.LineEmpty(at(1)); g.Trouble == nil || !g.Alert.Load() {
		t.Error("an untold refusal is forgotten without a success")
	}
	g.Learn(Report{Outcome: Success, Epoch: g.Epoch}, at(1), 10)
	if g.LineEmpty(at(1)); g.Trouble != nil {
		t.Error("an untold refusal is kept after a success")
	}
	g.LineEmpty(at(1))
}

// A counted reopening grows by one for each success, above twice what was served before by one for each fourth.
func TestReopeningGrows(t *testing.T) {
	for _, c := range []struct {
		flow float64
		want []int
	}{
		{0, []int{2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}},
		{20, []int{2, 3, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7}},
	} {
		g := &Gate{Srtt: 100 * time.Millisecond, Trouble: &Trouble{Flow: c.flow}}
		g.OpenPaced(zero, rate.Inf)
		for i, want := range c.want {
			g.Start(1, zero, zero, rate.Inf)
			if g.Learn(Report{Outcome: Success}, zero, rate.Inf); g.allowed != want {
				t.Errorf("flow %v: %d in flight after %d successes, want %d", c.flow, g.allowed, i+1, want)
			}
		}
	}
}

// A pause lasts as long as the longest that was asked for, whatever closed the gate before; what is told
// meanwhile does not shorten it.
func TestPauseHolds(t *testing.T) {
	g := new(Gate)
	if g.Pause(0, zero, 10); g.Trouble != nil {
		t.Error("a pause of nothing closes the gate")
	}
	g.Pause(10*time.Second, zero, 10)
	g.Pause(5*time.Second, at(1), 10)
	if g.Closings != 2 || g.Epoch != 1 || g.Cause != Paused || !g.Reopens(at(1)).Equal(at(10)) {
		t.Errorf("%d closings, epoch %d, for %q until %v", g.Closings, g.Epoch, g.Cause, g.Reopens(at(1)).Sub(zero))
	}
	g.Learn(Report{Outcome: Refusal, Epoch: 0, Told: time.Second}, at(2), 10)
	if !g.Reopens(at(2)).Equal(at(10)) || !g.Floor.Equal(at(10)) {
		t.Errorf("until %v, after what an old call was told", g.Reopens(at(2)).Sub(zero))
	}
	if !g.Closed(at(9.9), 10) || g.Closed(at(10), 10) {
		t.Error("a pause of ten seconds does not last until then")
	}
	if got := g.Reopens(at(11)); !got.Equal(at(11)) || !new(Gate).Reopens(at(1)).Equal(at(1)) {
		t.Errorf("open: reopens at %v, want now", got.Sub(zero))
	}
	if g.Shut(Throttled, at(12), at(11)); !g.Floor.IsZero() || !g.Reopens(at(20)).Equal(at(20)) {
		t.Errorf("the floor of a closing that is over stands: %v", g.Floor.Sub(zero))
	}
	g = fail(t)
	g.Pause(10*time.Second, at(1), 10)
	if g.Cause != Failing || !g.Probing || !g.Reopens(at(1)).Equal(at(11)) || !g.Floor.Equal(at(11)) {
		t.Errorf("paused while it fails: for %q, probing %v, until %v", g.Cause, g.Probing, g.Reopens(at(1)).Sub(zero))
	}
	g.Resume(at(2), 10)
	if !g.Floor.IsZero() || g.Closed(at(2), 10) {
		t.Error("resumed, and not open")
	}
}

// fail is a gate that eight failures of two calls have closed at zero.
func fail(t *testing.T) *Gate {
	g := new(Gate)
	for i := range FailuresToClose {
		if stopped := g.Learn(Report{Outcome: Failure, Call: uint64(i / 4)}, zero, 10); stopped != (i == FailuresToClose-1) {
			t.Fatalf("after %d failures it stopped: %v", i+1, stopped)
		}
	}
	if g.Cause != Failing || !g.Probing || g.Epoch != 1 || !g.Until.Equal(zero.Add(firstProbe)) {
		t.Fatalf("closed for %q until %v in epoch %d", g.Cause, g.Until.Sub(zero), g.Epoch)
	}
	return g
}

// A probe's answer counts while it is awaited, and only then; whatever came in the meantime holds.
func TestProbeAnswers(t *testing.T) {
	probing := func() *Gate {
		g := fail(t)
		g.Start(1, at(1), at(1), 10)
		if !g.ProbeOut || !g.Until.Equal(at(2)) {
			t.Fatalf("a probe is out: %v, the next at %v", g.ProbeOut, g.Until.Sub(zero))
		}
		return g
	}
	g := probing()
	if stopped := g.Learn(Report{Outcome: Failure, Epoch: 1}, at(1.5), 10); stopped || g.ProbeOut || !g.Until.Equal(at(1.75)) {
		t.Errorf("failed: stopped %v, the next at %v", stopped, g.Until.Sub(zero))
	}
	if g.Learn(Report{Outcome: Failure, Epoch: 1}, at(1.6), 10); !g.Until.Equal(at(1.75)) {
		t.Errorf("a failure that no probe met moves the next to %v", g.Until.Sub(zero))
	}
	if g.Learn(Report{Outcome: Cancelled, Epoch: 1}, at(1.6), 10); !g.Until.Equal(at(1.75)) {
		t.Errorf("one that was no probe, given up, moves the next to %v", g.Until.Sub(zero))
	}
	g = probing()
	if g.Learn(Report{Outcome: Neutral, Epoch: 0}, at(1.5), 10); !g.ProbeOut || !g.Until.Equal(at(2)) {
		t.Errorf("an old answer counts for the probe's: the next at %v", g.Until.Sub(zero))
	}
	if g.Learn(Report{Outcome: Cancelled, Epoch: 0}, at(1.5), 10); !g.ProbeOut || !g.Until.Equal(at(2)) {
		t.Errorf("an old call, given up, counts for the probe: the next at %v", g.Until.Sub(zero))
	}
	if g.Learn(Report{Outcome: Neutral, Epoch: 1}, at(1.5), 10); g.ProbeOut || !g.Until.Equal(at(1.75)) {
		t.Errorf("a neutral answer: the next at %v", g.Until.Sub(zero))
	}
	g = probing()
	if g.Learn(Report{Outcome: Success, Epoch: 1}, at(1.5), 10); g.Cause != Open || g.Epoch != 2 || g.Mode != Paced || g.ClosedTime(at(9)) != 1500*time.Millisecond {
		t.Errorf("served: %q in epoch %d, mode %d, closed for %v", g.Cause, g.Epoch, g.Mode, g.ClosedTime(at(9)))
	}
	g = probing()
	g.Pause(4*time.Second, at(1.2), 10)
	if g.Learn(Report{Outcome: Success, Epoch: 1}, at(1.5), 10); g.Cause == Open || g.Probing || g.ProbeOut || !g.Until.Equal(at(5.2)) {
		t.Errorf("served in a pause: %q, probing %v, until %v", g.Cause, g.Probing, g.Until.Sub(zero))
	}
	if g.Closed(at(5.2), 10) {
		t.Error("and not open when it ends")
	}
}

// A refusal of an older epoch closes for what it was told, if that is longer; it has no say without a time.
func TestEchoes(t *testing.T) {
	g := &Gate{Epoch: 3}
	if stopped := g.Learn(Report{Outcome: Refusal, Epoch: 2}, zero, 10); stopped || g.Cause != Open {
		t.Errorf("without a time: stopped %v", stopped)
	}
	if stopped := g.Learn(Report{Outcome: Refusal, Epoch: 2, Told: 5 * time.Second}, zero, 10); !stopped || g.Cause != Told || g.Epoch != 3 || !g.Until.Equal(at(5)) {
		t.Errorf("with a time: stopped %v, until %v", stopped, g.Until.Sub(zero))
	}
	if stopped := g.Learn(Report{Outcome: Refusal, Epoch: 2, Told: time.Second}, zero, 10); stopped || !g.Until.Equal(at(5)) || g.Closings != 1 || !g.Floor.Equal(at(5)) {
		t.Errorf("with less: stopped %v, until %v", stopped, g.Until.Sub(zero))
	}
	if g.Learn(Report{Outcome: Refusal, Epoch: 2, Told: 48 * time.Hour}, zero, 10); !g.Probing || !g.Until.Equal(at(86400)) {
		t.Errorf("with more than is believed: probing %v, until %v", g.Probing, g.Until.Sub(zero))
	}
	g = fail(t)
	if g.Learn(Report{Outcome: Refusal, Epoch: 0, Told: 5 * time.Second}, zero, 10); !g.Probing {
		t.Error("an outage needs no probe any more, because an old call was refused")
	}
}

// Eight failures in a row close the gate, if they are of more than one call; a success begins the row anew.
func TestRowOfFailures(t *testing.T) {
	for name, c := range map[string]struct {
		calls string // of the failures; "." is a success
		shut  bool
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
		g := new(Gate)
		for _, call := range c.calls {
			switch call {
			case '.':
				g.Learn(Report{Outcome: Success, Epoch: g.Epoch}, zero, 10)
			case '!':
				g.Start(1, at(1), at(1), 10)
				g.Learn(Report{Outcome: Success, Epoch: g.Epoch}, at(1), 10)
			default:
				g.Learn(Report{Outcome: Failure, Epoch: g.Epoch, Call: uint64(call)}, at(1), 10)
			}
		}
		if got := g.Cause == Failing; got != c.shut {
			t.Errorf("%s: closed for %q", name, g.Cause)
		}
	}
}

// Refusals that tell no time close for one unit's time, then for a round trip, then longer and by probes.
func TestUntoldRefusals(t *testing.T) {
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
		g := &Gate{Srtt: c.srtt}
		if stopped := g.Learn(Report{Outcome: Refusal, Trip: c.trip}, zero, c.pace); !stopped || g.Probing || g.Until.Sub(zero) != c.wait || g.Closings != 1 {
			t.Errorf("%s: stopped %v, until %v, want %v", name, stopped, g.Until.Sub(zero), c.wait)
		}
	}
	g := &Gate{Srtt: 40 * time.Millisecond}
	for i := range 3 {
		now := at(float64(i))
		if stopped := g.Learn(Report{Outcome: Refusal, Epoch: g.Epoch}, now, 100); !stopped || g.Probing != (i == 2) {
			t.Errorf("refusal %d: stopped %v, probing %v", i+1, stopped, g.Probing)
		}
	}
	g.Start(1, at(3), at(3), 100)
	if g.Learn(Report{Outcome: Failure, Epoch: g.Epoch}, at(52), 100); !g.Until.Equal(at(53)) {
		t.Errorf("the next probe at %v, want 53 s: 2 %% of the 50 s since the refusal", g.Until.Sub(zero))
	}
}

// Each counted reopening begins with one call, whatever was in flight in the one before.
func TestReopeningBeginsWithOne(t *testing.T) {
	g := &Gate{Trouble: new(Trouble)}
	g.OpenPaced(zero, rate.Inf)
	for range 3 {
		g.Start(1, zero, zero, rate.Inf)
	}
	g.Learn(Report{Outcome: Refusal, Epoch: g.Epoch, Told: time.Second}, zero, rate.Inf)
	if !mayGo(g, at(3), rate.Inf) {
		t.Error("nobody may go")
	}
	if g.Start(1, at(3), at(3), rate.Inf); mayGo(g, at(3), rate.Inf) {
		t.Error("two may go")
	}
}
