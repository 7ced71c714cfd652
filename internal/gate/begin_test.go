package gate

import (
	"testing"
	"time"
)

// A new gate of a full table: one call at once, then paced, until that is paid for.
func TestBeginPaced(t *testing.T) {
	begins := func(g *gateRun) { g.BeginPaced(g.now, g.pace) }
	for _, s := range []struct {
		name  string
		steps []gateStep
	}{
		{"one at once", []gateStep{
			{0, begins, passes},
			{0, lineEmpties, passes}, // it has just been made
			{0, goes, spaced(10 * ms)},
			{5 * ms, lineEmpties, spaced(10 * ms)},
			{10 * ms, goes, spaced(20 * ms)},
			{20 * ms, lineEmpties, passes},
			{20 * ms, goes, passes}, // as before
		}},
		{"the first call comes late", []gateStep{
			{0, begins, passes}, {9 * ms, lineEmpties, passes}, {9 * ms, goes, spaced(19 * ms)},
		}},
		{"or not at all", []gateStep{
			{0, begins, passes}, {10 * ms, lineEmpties, passes}, {10 * ms, goes, passes},
		}},
		{"and is throttled", []gateStep{
			{0, begins, passes}, {0, goes, spaced(10 * ms)}, {ms, throttledFor(0, sec), until(1001*ms, 1051*ms, ForRetryAfter)}, {2 * sec, nothing, passes},
		}},
		{"closed before it goes", []gateStep{
			{0, begins, passes}, {0, pauses(sec), until(sec, sec, ForPause)}, {sec, nothing, spaced(sec)}, {sec, goes, spaced(1010 * ms)}, {1010 * ms, lineEmpties, passes},
		}},
	} {
		g := newGateRun(t, s.name, 100)
		for i, step := range s.steps {
			g.now = g.start.Add(step.at)
			step.do(g)
			if why := step.want(g); why != "" {
				t.Errorf("%s, step %d at %v: %s", s.name, i, step.at, why)
				break
			}
		}
	}
	g := newGateRun(t, "unknown", 0)
	begins(g)
	if g.now = g.now.Add(time.Minute); passes(g) != "" {
		t.Error("the first call does not pass")
	}
	if goes(g); full(g) != "" {
		t.Error("a second call passes before the first has an answer")
	}
}
