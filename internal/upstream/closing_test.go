package upstream

import (
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/limit"
)

// newState is a state at zero whose calls pay a bucket of that rate; 0: they pay nothing.
func newState(pace rate.Limit) *State {
	s, limits := new(State), new(limit.Set)
	if pace > 0 {
		b := new(limit.Bucket)
		b.Init("test", pace, 1)
		limits.Join(b)
	}
	s.Init(limits)
	return s
}

// answers observes an attempt of the current epoch.
func answers(s *State, o Outcome, h hint.Hint, call uint64, now time.Time) Observation {
	return s.Observe(&Answer{Outcome: o, Status: 503, Epoch: s.Epoch(), Call: call, Cost: 1, Sent: now, Hint: h}, now)
}

// failing is a state whose gate eight failures have closed at zero.
func failing() *State {
	s := newState(100)
	for i := range uint64(failuresToClose) {
		answers(s, Failure, hint.Hint{}, i, zero)
	}
	return s
}

// A closing has a cause, an end or a probe, and says when it is over.
func TestClosing(t *testing.T) {
	check := func(name string, got, want Closing) {
		t.Helper()
		if got != want {
			t.Errorf("%s:\n%+v, want\n%+v", name, got, want)
		}
	}
	s := newState(100)
	check("open", s.Closing(at(1)), Closing{})
	s.Pause(2*time.Second, at(1))
	check("paused", s.Closing(at(1.5)), Closing{Cause: ForPause, Left: span(1.5), Count: 1})
	check("over, and nobody has asked", s.Closing(at(4)), Closing{Cause: ForPause, Over: true, Age: span(1), Count: 1})
	s.Ready(0, 1, at(4), at(4))
	check("open again", s.Closing(at(4)), Closing{Count: 1})
	s = failing()
	check("probing", s.Closing(at(0.1)), Closing{Cause: ForFailures, Probing: true, Left: span(0.15), Age: span(0.1), Status: 503, Count: 1})
	if s.ProbeDue(at(0.2)) || !s.ProbeDue(at(0.25)) {
		t.Error("the first probe is not due after 250 ms")
	}
	s.Start(0, 1, at(0.25), at(0.25))
	check("a probe is out", s.Closing(at(0.5)), Closing{Cause: ForFailures, Probing: true, Left: span(0.75), Age: span(0.5), Status: 503, Probes: 1, Count: 1})
	check("the next is due", s.Closing(at(3)), Closing{Cause: ForFailures, Probing: true, Age: span(3), Status: 503, Probes: 1, Count: 1})
}

// A call sits a closing through if it may wait that long in all. Nobody knows how long a gate probes.
func TestPatience(t *testing.T) {
	closed := func(d float64) *State {
		s := newState(100)
		s.gate.closeUntil(ForRetryAfter, at(d), zero)
		return s
	}
	paused := func(s *State, from, d float64) *State {
		s.Pause(span(d), at(from))
		return s
	}
	spent := func() *State {
		s := newState(100)
		answers(s, Success, hint.Hint{Quotas: []hint.Quota{{Limit: 9, Remaining: 0, Reset: span(45), Window: span(60), Source: "X"}}}, 1, zero)
		return s
	}
	for name, c := range map[string]struct {
		s               *State
		most, spent     float64
		scope           uint8
		arriving, alone bool
		now             float64
		wait            float64
		over            bool
	}{
		"open":                           {newState(100), 60, 99, 0, true, true, 1, 0, false},
		"45 s more":                      {closed(45), 60, 20, 0, false, false, 0, 45, true},
		"40 s more":                      {closed(40), 60, 20, 0, false, false, 0, 40, false},
		"40.5 s more, by an echo":        {closed(40.5), 60, 20, 0, false, false, 0, 40.5, false},
		"40.6 s more":                    {closed(40.6), 60, 20, 0, false, false, 0, 40.6, true},
		"no bound":                       {closed(45), -1, 20, 0, false, false, 0, 0, false},
		"probing, in line":               {failing(), 60, 59, 0, false, false, 70, 0, false},
		"probing, all spent":             {failing(), 60, 60, 0, false, false, 70, 0, true},
		"probing, arrives":               {failing(), 60, 0, 0, true, false, 60, 0, false},
		"probing for too long, arrives":  {failing(), 60, 0, 0, true, false, 61, 0, true},
		"probing for too long, is alone": {failing(), 60, 0, 0, true, true, 61, 0, false},
		"a spent quota":                  {spent(), 60, 20, 1, false, false, 0, 45, true},
		"a spent quota, 40 s of it":      {spent(), 60, 20, 1, false, false, 5, 0, false},
		"another scope's":                {spent(), 60, 20, 0, false, false, 0, 0, false},
		"paused by hand":                 {paused(newState(100), 0, 3600), 60, 61, 0, true, false, 0, 3600, false},
		"paused, 45 s more after that":   {paused(closed(145), 0, 100), 60, 20, 0, false, false, 0, 145, true},
		"paused, 40 s more after that":   {paused(closed(140), 0, 100), 60, 20, 0, false, false, 0, 140, false},
		"paused while probing":           {paused(failing(), 5, 3600), 60, 59, 0, true, false, 6, 3599, false},
		"probing after a pause":          {paused(failing(), 5, 3600), 60, 0, 0, true, false, 3660, 0, false},
		"probing for too long after it":  {paused(failing(), 5, 3600), 60, 0, 0, true, false, 3661, 0, true},
		"a pause and a spent quota":      {paused(spent(), 0, 10), 60, 20, 1, false, false, 0, 10, false},
	} {
		wait, over := c.s.Patience(span(c.most), span(c.spent), c.scope, c.arriving, c.alone, at(c.now))
		if wait != span(c.wait) || over != c.over {
			t.Errorf("%s: %v, %v, want %v s, %v", name, wait, over, c.wait, c.over)
		}
	}
}

// Patience runs out on the way only while the gate probes, and not before a pause is over.
func TestPatienceEnds(t *testing.T) {
	s := failing()
	for _, c := range []struct{ most, spent, want float64 }{{60, 20, 41}, {60, 70, 1}, {-1, 0, 0}} {
		got := s.PatienceEnds(span(c.most), span(c.spent), at(1))
		if c.want == 0 && !got.IsZero() || c.want > 0 && !got.Equal(at(c.want)) {
			t.Errorf("%v of %v s spent: %v, want %v s", c.spent, c.most, got.Sub(zero), c.want)
		}
	}
	s.Pause(span(50), at(1))
	if got := s.PatienceEnds(span(60), span(20), at(1)); !got.Equal(at(91)) {
		t.Errorf("paused: %v, want 91 s", got.Sub(zero))
	}
	s.Resume(at(2))
	if got := s.PatienceEnds(span(60), span(20), at(2)); !got.IsZero() {
		t.Errorf("open: %v, want never", got.Sub(zero))
	}
	s = newState(100)
	if s.Pause(span(50), zero); !s.PatienceEnds(span(60), span(20), zero).IsZero() {
		t.Error("a closing until a known moment is weighed as a whole")
	}
}

// Behind a closing calls start at the limit's pace, in order.
func TestPredict(t *testing.T) {
	s := newState(100)
	if got := s.Predict(0, Before{All: 50}, 1, at(1)); !got.Equal(at(1)) {
		t.Errorf("calm: %v, want at once", got.Sub(zero))
	}
	s.Pause(span(2), zero)
	if got := s.Predict(0, Before{All: 50}, 1, zero); !got.Equal(at(2.5)) {
		t.Errorf("closed for 2 s: %v, want 2.5 s", got.Sub(zero))
	}
	s.Ready(0, 1, at(2), at(2))
	s.Start(0, 1, at(2), at(2))
	if got := s.Predict(0, Before{All: 50}, 1, at(2)); !got.Equal(at(2.51)) {
		t.Errorf("after the first start: %v, want 2.51 s", got.Sub(zero))
	}
}

// A pause by hand does not cost calls their patience, however it lies with closings of the upstream's, and is what
// observers see while it lasts longest.
func TestClosedTimeWithoutPauses(t *testing.T) {
	s := failing() // at 0 s
	check := func(now, want float64, cause Cause) {
		t.Helper()
		if got := s.ClosedTime(at(now)); got != span(want) {
			t.Errorf("at %v s: %v of closed time, want %v s", now, got, want)
		}
		if c := s.Closing(at(now)); c.Cause != cause {
			t.Errorf("at %v s: %q, want %q", now, c.Cause, cause)
		}
	}
	check(10, 10, ForFailures)
	s.Pause(span(20), at(10))
	check(10, 10, ForPause)
	s.Pause(span(5), at(12)) // ends sooner: nothing
	s.Pause(span(30), at(20))
	check(49, 10, ForPause)
	check(50, 10, ForFailures)
	check(51, 11, ForFailures)
	s.Pause(span(10), at(60))
	check(75, 25, ForFailures)
	s.Pause(span(10), at(75))
	s.Resume(at(80))
	check(90, 25, Open)
	s.gate.closeUntil(ForRetryAfter, at(200), at(100))
	check(110, 35, ForRetryAfter)
	s.Pause(span(50), at(110)) // within the closing
	check(120, 35, ForRetryAfter)
	check(170, 45, ForRetryAfter)
	s.Ready(0, 1, at(300), at(300))
	check(300, 75, Open)
}
