package gate

import (
	"testing"
	"time"
)

// An attempt that its caller's deadline has cut off took longer than that. It must never make the gate
// expect answers sooner.
func TestHostileCutNeverLowersTheEstimate(t *testing.T) {
	g := &Gate{Srtt: 100 * time.Millisecond, Dev: 100 * time.Millisecond}
	before := g.AnswerTime()
	for range 10 {
		g.measure(Report{Outcome: Cancelled, Trip: 110 * time.Millisecond, Cut: true})
	}
	if after := g.AnswerTime(); after < before {
		t.Errorf("answers are expected within %v after ten calls that had none in 110 ms, %v before", after, before)
	}
}
