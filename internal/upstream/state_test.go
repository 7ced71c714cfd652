package upstream

import (
	"math/rand/v2"
	"net/url"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/gate"
)

// mayStart reports whether a call of scope 0 may start at once.
func mayStart(s *State, now time.Time) bool {
	then, _, ok := s.Ready(0, 1, now, now)
	return ok && !then.After(now)
}

// A state is calm until something goes wrong or is learned, and again when all is well.
func TestCalm(t *testing.T) {
	s := newState(100)
	if !s.Calm() || s.Alert() || s.Scopes() != 0 || s.Scope(&url.URL{Host: "a", Path: "/"}) != 0 || s.Learned(zero) != nil || !s.Idle(zero) {
		t.Error("a new state is not calm")
	}
	if s.Start(0, 1, zero, zero) {
		t.Error("a start is counted although nothing is learned")
	}
	answers(s, Throttled, hint.Hint{}, 1, zero)
	if s.Calm() || !s.Alert() || mayStart(s, at(0.009)) || s.Idle(at(0.009)) {
		t.Error("throttled, and not closed for one unit's time")
	}
	if then, exact, ok := s.Ready(0, 1, at(0.01), at(0.01)); !ok || !exact || !then.Equal(at(0.01)) {
		t.Errorf("open at %v: %v, %v", then.Sub(zero), exact, ok)
	}
	s.Start(0, 1, at(0.01), at(0.01))
	if then, exact, _ := s.Ready(0, 1, at(0.01), at(0.01)); !exact || !then.Equal(at(0.02)) {
		t.Errorf("the second call at %v, %v; want 20 ms", then.Sub(zero), exact)
	}
	answers(s, Success, hint.Hint{}, 2, at(0.015))
	if s.LineEmpty(at(0.03)); !s.Calm() || s.Alert() || !s.Idle(at(0.03)) {
		t.Error("all is well, and the state is not calm")
	}
	if sent, throttled := s.Counts(); sent != 2 || throttled != 1 {
		t.Errorf("%d sent, %d throttled, want 2, 1", sent, throttled)
	}
}

// Measure is Observe of a plain success, or it declines: two states that see the same answers, one of them by Measure
// where it can, say the same of calls ever after.
func TestMeasureIsObserve(t *testing.T) {
	type says struct {
		trip          RoundTrip
		answer        time.Duration
		calm, alert   bool
		ready         time.Time
		exact, starts bool
	}
	measured := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		a, b, now := newState(rate.Limit(seed%2*100)), newState(rate.Limit(seed%2*100)), zero
		for step := range 60 {
			now = now.Add(span(r.ExpFloat64() / 50))
			for inA, inB := false, false; !inA || !inB; now = now.Add(span(0.01)) {
				inA, inB = mayStart(a, now), mayStart(b, now) // both are asked, because to ask may end a closing
			}
			start := func(s *State) bool { return s.Start(0, 1, now, now) }
			answer := Answer{Outcome: Success, Counted: start(a), Epoch: a.Epoch(), Call: uint64(step), Cost: 1, Sent: now, Trip: span(0.001 + r.Float64()/10), InFlight: 1}
			if start(b); r.IntN(12) == 0 {
				answer.Outcome = Outcome(r.IntN(int(Throttled) + 1))
			}
			now = now.Add(answer.Trip)
			a.Observe(&answer, now)
			if answer.Outcome == Success && b.Measure(answer.Trip) {
				measured++
			} else {
				b.Observe(&answer, now)
			}
			view := func(s *State) (v says) {
				v.trip, v.answer, v.calm, v.alert = s.RoundTrip(), s.AnswerTime(), s.Calm(), s.Alert()
				v.ready, v.exact, v.starts = s.Ready(0, 1, now, now)
				return v
			}
			if va, vb := view(a), view(b); va != vb {
				t.Fatalf("seed %d, step %d: observed %+v, measured %+v", seed, step, va, vb)
			}
		}
	}
	if measured < 300 {
		t.Errorf("%d answers of 18,000 were measured alone", measured)
	}
}

// The first calls are careful if there is no limit of ours, and if the table is full.
func TestFirstContactOfAState(t *testing.T) {
	s := newState(0)
	for s.FirstContact(false, zero); mayStart(s, zero); {
		s.Start(0, 1, zero, zero)
	}
	if sent, _ := s.Counts(); sent != 4 {
		t.Errorf("%d calls without an answer, want 4", sent)
	}
	s = newState(100)
	if s.FirstContact(false, zero); !s.Calm() {
		t.Error("a configured limit is enough, and the state is not calm")
	}
	s.FirstContact(true, zero)
	s.Start(0, 1, zero, zero)
	if then, exact, ok := s.Ready(0, 1, zero, zero); !ok || !exact || !then.Equal(at(0.01)) {
		t.Errorf("with a full table the second call at %v, %v, %v; want 10 ms", then.Sub(zero), exact, ok)
	}
}

// A throttled answer that its quota explains closes the quota and not the gate, and starts no search; any other
// closes the gate and starts one.
func TestThrottledAnswers(t *testing.T) {
	quota := hint.Quota{Name: "q", Unit: "requests", Limit: 9, Remaining: 0, Reset: span(8), Window: span(60), Source: "X"}
	for name, c := range map[string]struct {
		h      hint.Hint
		cause  gate.Cause
		wait   float64
		finder bool
	}{
		"explained":       {hint.Hint{Quotas: []hint.Quota{quota}}, Open, 8, false},
		"with a time":     {hint.Hint{RetryAfter: span(2), Quotas: []hint.Quota{quota}}, ForRetryAfter, 2, false},
		"for that quota":  {hint.Hint{RetryAfter: span(2), Scope: "q", Quotas: []hint.Quota{quota}}, Open, 2, false},
		"not explained":   {hint.Hint{}, gate.ForThrottling, 0, true},
		"a time, nothing": {hint.Hint{RetryAfter: span(2)}, ForRetryAfter, 2, true},
	} {
		s := newState(0)
		counted := s.Start(0, 1, zero, zero)
		o := s.Observe(&Answer{Outcome: Throttled, Status: 429, Counted: counted, Cost: 1, Sent: zero, Hint: c.h, Host: "a", Path: "/x", InFlight: 1}, at(0.05))
		if got := s.Closing(at(0.05)).Cause; got != c.cause || o.Wait != span(c.wait) || !o.Stopped {
			t.Errorf("%s: closed for %q, want %q; wait %v, stopped %v", name, got, c.cause, o.Wait, o.Stopped)
		}
		if got := s.search().On(); got != c.finder {
			t.Errorf("%s: a search: %v", name, got)
		}
		if moved := len(c.h.Quotas) > 0; o.Moved != moved || moved && (o.Scope != 1 || s.Scope(&url.URL{Host: "a", Path: "/x"}) != 1 || s.Scopes() != 2) {
			t.Errorf("%s: moved %v to scope %d of %d", name, o.Moved, o.Scope, s.Scopes())
		}
	}
}

// Until the first answer every round trip is measured, then one in sixteen.
func TestRoundTripOfAState(t *testing.T) {
	s := newState(100)
	measured := func() (n int) {
		for range 64 {
			if s.RoundTrip().Measure {
				n++
			}
			s.Start(0, 1, zero, zero)
		}
		return n
	}
	if n := measured(); n != 64 {
		t.Errorf("%d of 64 are measured before the first answer", n)
	}
	if got := s.RoundTrip(); got.Smoothed != 0 || s.AnswerTime() != 0 {
		t.Errorf("%+v without a sample", got)
	}
	s.Finish(s.Epoch(), span(0.08), false, zero)
	if n := measured(); n != 4 {
		t.Errorf("%d of 64 are measured after it, want 4", n)
	}
	if got := s.RoundTrip(); got.Smoothed != span(0.08) || s.AnswerTime() != span(0.08+3*0.04) {
		t.Errorf("%+v after 80 ms", got)
	}
}

// A start that was not used is taken back in gate, quotas and count.
func TestUndoOfAState(t *testing.T) {
	s := newState(0)
	answers(s, Success, hint.Hint{Quotas: []hint.Quota{named("q")}}, 1, zero)
	s.Pause(span(1), zero)
	then, _, _ := s.Ready(1, 1, at(1), at(1))
	epoch := s.Epoch()
	counted := s.Start(1, 1, at(1), at(1))
	if !counted {
		t.Error("not counted")
	}
	s.Undo(epoch, 1, counted, 1, at(1), at(1))
	if again, _, ok := s.Ready(1, 1, at(1), at(1)); !ok || !again.Equal(then) {
		t.Errorf("ready at %v, %v; want %v as before", again.Sub(zero), ok, then.Sub(zero))
	}
	if sent, _ := s.Counts(); sent != 0 {
		t.Errorf("%d sent", sent)
	}
}
