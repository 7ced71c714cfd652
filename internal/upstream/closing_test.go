package upstream

import (
	"net/url"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/gate"
	"github.com/go-throttle/throttle/internal/limit"
)

// failuresToClose is how many failures in a row close a gate.
const failuresToClose = 8

var zero = time.Unix(1e9, 0)

// at is the moment so many seconds after zero.
func at(s float64) time.Time { return zero.Add(span(s)) }

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

// echo closes the gate from now on for just that time, by a late answer to an attempt of an older epoch.
func echo(s *State, wait time.Duration, now time.Time) {
	s.Observe(&Answer{Outcome: Throttled, Status: 429, Epoch: s.Epoch() - 1, Cost: 1, Sent: now, Hint: hint.Hint{RetryAfter: wait}}, now)
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
	check("paused", s.Closing(at(1.5)), Closing{Cause: ForPause, Left: span(1.5), Floor: span(1.5), Count: 1})
	check("over, and nobody has asked", s.Closing(at(4)), Closing{Cause: ForPause, Over: true, Age: span(1), Count: 1})
	s.Ready(0, 1, at(4), at(4))
	check("open again", s.Closing(at(4)), Closing{Count: 1})
	s = failing()
	check("probing", s.Closing(at(0.1)), Closing{Cause: gate.ForFailures, Probing: true, Left: span(0.15), Age: span(0.1), Status: 503, Count: 1})
	if s.ProbeDue(at(0.2)) || !s.ProbeDue(at(0.25)) {
		t.Error("the first probe is not due after 250 ms")
	}
	s.Start(0, 1, at(0.25), at(0.25))
	check("a probe is out", s.Closing(at(0.5)), Closing{Cause: gate.ForFailures, Probing: true, Left: span(0.75), Age: span(0.5), Status: 503, Probes: 1, Count: 1})
	check("the next is due", s.Closing(at(3)), Closing{Cause: gate.ForFailures, Probing: true, Age: span(3), Status: 503, Probes: 1, Count: 1})
}

// Calls sit a closing through if nobody is unserved for too long by it. Nobody knows how long a gate probes.
func TestPatience(t *testing.T) {
	closed := func(d float64) *State {
		s := newState(100)
		echo(s, span(d), zero)
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
	unserved := func(s *State) *State { // closed from -20 s to -10 s, without a success since
		echo(s, span(10), at(-20))
		mayStart(s, zero)
		return s
	}
	again := func(d float64) *State {
		s := unserved(newState(100))
		echo(s, span(d), zero)
		return s
	}
	served := func(s *State, now float64) *State {
		s.Observe(&Answer{Outcome: Success, Sent: zero}, at(now))
		return s
	}
	probe := func(s *State, now float64) *State {
		s.Start(0, 1, at(now), at(now))
		return s
	}
	for name, c := range map[string]struct {
		s     *State
		most  float64
		scope uint8
		first bool
		now   float64
		wait  float64
		over  bool
	}{
		"open":                          {newState(100), 60, 0, true, 1, 0, false},
		"61 s more":                     {closed(61), 60, 0, false, 0, 61, true},
		"60 s more":                     {closed(60), 60, 0, false, 0, 60, false},
		"60.5 s more, by an echo":       {closed(60.5), 60, 0, false, 0, 60.5, false},
		"60.6 s more":                   {closed(60.6), 60, 0, false, 0, 60.6, true},
		"no bound":                      {closed(61), -1, 0, false, 0, 0, false},
		"45 s more, in a row":           {again(45), 60, 0, false, 0, 45, true},
		"40 s more, in a row":           {again(40), 60, 0, false, 0, 40, false},
		"45 s more, served between":     {served(again(45), 0), 60, 0, false, 0, 45, false},
		"open, in a row of 90 s":        {unserved(newState(100)), 60, 0, false, 70, 0, false},
		"probing":                       {failing(), 60, 0, false, 59, 0, false},
		"probing for 60 s":              {failing(), 60, 0, false, 60, 0, true},
		"probing for 60 s, the first":   {failing(), 60, 0, true, 60, 0, false},
		"the same, a probe is out":      {probe(failing(), 60), 60, 0, false, 60.5, 0.5, false},
		"the same, without an answer":   {probe(failing(), 60), 60, 0, false, 61, 0, true},
		"served before, heard of later": {served(failing(), 30), 60, 0, false, 89, 0, false},
		"the same, for 60 s since then": {served(failing(), 30), 60, 0, false, 90, 0, true},
		"a spent quota":                 {spent(), 40, 1, false, 0, 45, true},
		"a spent quota, 40 s of it":     {spent(), 40, 1, false, 5, 0, false},
		"another scope's":               {spent(), 40, 0, false, 0, 0, false},
		"paused by hand":                {paused(newState(100), 0, 3600), 60, 0, false, 0, 3600, false},
		"paused, 45 s more after that":  {paused(closed(145), 0, 100), 40, 0, false, 0, 145, true},
		"paused, 40 s more after that":  {paused(closed(140), 0, 100), 40, 0, false, 0, 140, false},
		"paused while probing":          {paused(failing(), 5, 3600), 60, 0, false, 6, 3599, false},
		"probing after a pause":         {paused(failing(), 5, 3600), 60, 0, false, 3659, 0, false},
		"probing for too long after it": {paused(failing(), 5, 3600), 60, 0, false, 3660, 0, true},
		"a pause and a spent quota":     {paused(spent(), 0, 10), 40, 1, false, 0, 10, false},
	} {
		wait, over := c.s.Patience(span(c.most), c.scope, c.first, at(c.now))
		if wait != span(c.wait) || over != c.over {
			t.Errorf("%s: %v, %v, want %v s, %v", name, wait, over, c.wait, c.over)
		}
	}
}

// Time in which nobody calls is no time in which nobody is served.
func TestIdleTimeIsNotUnserved(t *testing.T) {
	for _, c := range []struct {
		again float64 // another closing of a minute
		over  bool
	}{{3, true}, {32, true}, {33, false}, {3600, false}} {
		s := newState(100)
		echo(s, span(2), zero)
		mayStart(s, at(c.again))
		echo(s, span(60), at(c.again))
		if _, over := s.Patience(span(60), 0, false, at(c.again)); over != c.over {
			t.Errorf("closed again at %v s: over %t, want %t", c.again, over, c.over)
		}
	}
}

// A quota that is spent again and again serves nobody, as a closing does.
func TestQuotaThatServesNobody(t *testing.T) {
	s := newState(0)
	refuse := func(now float64) {
		h := hint.Hint{Throttled: true, Quotas: []hint.Quota{{Limit: 9, Remaining: 0, Reset: span(25), Window: span(30), Source: "X"}}}
		answers(s, Throttled, h, 1, at(now))
	}
	refuse(0)
	refuse(26)
	if _, over := s.Patience(span(60), 1, false, at(26)); over {
		t.Error("over after 26 s")
	}
	refuse(52)
	refuse(78)
	if _, over := s.Patience(span(60), 1, false, at(78)); !over {
		t.Error("nobody was served for 78 s, and that is not over")
	}
	answers(s, Success, hint.Hint{}, 1, at(79))
	if _, over := s.Patience(span(60), 1, false, at(79)); over {
		t.Error("over after a success")
	}
}

// Patience runs out on the way only while the gate probes, and not before a pause is over.
func TestPatienceEnds(t *testing.T) {
	s := failing()
	for _, c := range []struct{ most, want float64 }{{60, 60}, {0.5, 0.5}, {-1, 0}} {
		got := s.PatienceEnds(span(c.most), at(1))
		if c.want == 0 && !got.IsZero() || c.want > 0 && !got.Equal(at(c.want)) {
			t.Errorf("of %v s: %v, want %v s", c.most, got.Sub(zero), c.want)
		}
	}
	s.Pause(span(50), at(1))
	if got := s.PatienceEnds(span(60), at(1)); !got.Equal(at(110)) {
		t.Errorf("paused: %v, want 110 s", got.Sub(zero))
	}
	s.Resume(at(2))
	if got := s.PatienceEnds(span(60), at(2)); !got.IsZero() {
		t.Errorf("open: %v, want never", got.Sub(zero))
	}
	s = newState(100)
	if s.Pause(span(50), zero); !s.PatienceEnds(span(60), zero).IsZero() {
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

// The clock of closed time runs while the gate is closed for whatever cause. A pause by hand is what observers see while it
// lasts longest.
func TestClosedTime(t *testing.T) {
	s := failing() // at 0 s
	check := func(now, want float64, cause gate.Cause) {
		t.Helper()
		if got := s.ClosedTime(at(now)); got != span(want) {
			t.Errorf("at %v s: %v of closed time, want %v s", now, got, want)
		}
		if c := s.Closing(at(now)); c.Cause != cause {
			t.Errorf("at %v s: %q, want %q", now, c.Cause, cause)
		}
	}
	check(10, 10, gate.ForFailures)
	s.Pause(span(20), at(10))
	check(10, 10, ForPause)
	s.Pause(span(5), at(12)) // ends sooner: nothing
	s.Pause(span(30), at(20))
	check(49, 49, ForPause)
	check(50, 50, gate.ForFailures)
	s.Pause(span(10), at(75))
	s.Resume(at(80))
	check(90, 80, Open)
	echo(s, span(100), at(100))
	check(110, 90, ForRetryAfter)
	s.Pause(span(50), at(110)) // within the closing
	check(120, 100, ForRetryAfter)
	check(170, 150, ForRetryAfter)
	s.Ready(0, 1, at(300), at(300))
	check(300, 180, Open)
	if s.LineEmpty(at(300)); s.Calm() {
		t.Error("all is well although nobody was served")
	}
	answers(s, Success, hint.Hint{}, 1, at(301))
	if s.LineEmpty(at(302)); !s.Calm() {
		t.Error("all is not well after a success")
	}
	check(400, 180, Open) // the clock goes on where it was
}

// A route that is throttled with a time again and again waits alone. An answer to an attempt that was sent before its
// closing does not open it, whatever that advertises; the first one after it says where the route belongs.
func TestClosedRoute(t *testing.T) {
	s := newState(0)
	waits := func(path string, now time.Time) time.Duration {
		then, _, _ := s.Ready(s.Scope(&url.URL{Host: "a", Path: path}), 1, now, now)
		return max(0, then.Sub(now))
	}
	send := func(path string, now time.Time) (a Answer) {
		waits(path, now) // which opens the gate
		a = Answer{Scope: s.Scope(&url.URL{Host: "a", Path: path}), Epoch: s.Epoch(), Cost: 1, Sent: now, Host: "a", Path: path, InFlight: 1, WindowFactor: 4}
		a.Counted = s.Start(a.Scope, 1, now, now)
		return a
	}
	answer := func(a Answer, o Outcome, h hint.Hint, now time.Time) {
		a.Outcome, a.Hint = o, h
		s.Observe(&a, now)
	}
	throttled := hint.Hint{Throttled: true, RetryAfter: 10 * time.Second}
	for i := range 3 {
		begin := at(float64(100 * i))
		early := send("/x", begin)
		answer(send("/x", begin), Throttled, throttled, begin.Add(time.Second))
		x, y := waits("/x", begin.Add(time.Second)), waits("/y", begin.Add(time.Second))
		if x < 10*time.Second || (y > 0) != (i < 2) {
			t.Errorf("throttled %d times, /x waits for %v and /y for %v; want at least 10 s, and /y until the second", i+1, x, y)
		}
		if i == 2 {
			answer(early, Success, hint.Hint{Quotas: []hint.Quota{named("q")}}, begin.Add(2*time.Second))
			if x := waits("/x", begin.Add(2*time.Second)); x < 9*time.Second {
				t.Errorf("an answer to an attempt before the closing opens it: /x waits for %v", x)
			}
		}
		later := begin.Add(50 * time.Second)
		answer(send("/y", later), Success, hint.Hint{}, later)
	}
	after := at(300)
	answer(send("/x", after), Success, hint.Hint{Quotas: []hint.Quota{named("q")}}, after)
	if id := s.Scope(&url.URL{Host: "a", Path: "/x"}); !s.quotas.Any(id) {
		t.Errorf("the answer after the closing does not move /x: scope %d", id)
	}
}
