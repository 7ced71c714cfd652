package upstream

import (
	"testing"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/limit"
)

// observes is what one attempt of that epoch has shown, which was sent at sent.
func observes(s *State, o Outcome, epoch uint32, retryAfter time.Duration, sent, now time.Time) {
	a := Answer{
		Outcome: o, Epoch: epoch, Call: uint64(sent.UnixNano()), Cost: 1, Sent: sent, Trip: now.Sub(sent), InFlight: 1,
		Hint: hint.Hint{Throttled: o == Throttled, RetryAfter: retryAfter},
	}
	s.Observe(&a, now)
}

// The late success of a probe that another one has overtaken is none of the reopening's: it lets no
// second call go earlier, neither in a slow start, nor in the ramp of an upstream of which no limit is known.
func TestLateProbeIsNoneOfTheReopening(t *testing.T) {
	for name, quotas := range map[string][]hint.Quota{
		"slow start": {{Limit: 5000, Remaining: 4000, Reset: time.Hour, Window: time.Hour}},
		"ramp":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			var s State
			s.Init(new(limit.Set))
			s.Start(0, 1, now, now)
			s.Observe(&Answer{Outcome: Success, Epoch: s.Epoch(), Cost: 1, Sent: now, InFlight: 1, Hint: hint.Hint{Quotas: quotas}}, now)
			for i := range failuresToClose {
				observes(&s, Failure, s.Epoch(), 0, now.Add(time.Duration(i)), now.Add(time.Second))
			}
			probe := func() (at time.Time, epoch uint32) {
				t.Helper()
				at, _, ok := s.Ready(0, 1, now, now)
				if !ok || !isClosed(&s, at) || !s.ProbeDue(at) {
					t.Fatalf("no probe is due at %v, %t", at, ok)
				}
				s.Start(0, 1, at, at)
				return at, s.Epoch()
			}
			now = now.Add(time.Second)
			first, firstEpoch := probe()
			now = first.Add(time.Minute)
			second, secondEpoch := probe()
			now = second.Add(time.Second)
			observes(&s, Success, secondEpoch, 0, second, now)
			if at, _, ok := s.Ready(0, 1, now, now); !ok || at.After(now) || isClosed(&s, now) {
				t.Fatal("the second probe's success does not open the gate")
			}
			s.Start(0, 1, now, now)
			before, _, wasOK := s.Ready(0, 1, now, now)
			observes(&s, Success, firstEpoch, 0, first, now)
			switch at, _, ok := s.Ready(0, 1, now, now); {
			case ok && !at.After(now):
				t.Error("the late answer to the first probe lets a second call go")
			case !at.Equal(before) || ok != wasOK:
				t.Errorf("the late answer to the first probe moves the second call by %v", at.Sub(before))
			}
		})
	}
}

// A late answer to an attempt sent before the closing, throttled and without a time, leaves the reopening
// paced at the rate that was found.
func TestStaleThrottlingLeavesTheReopeningPaced(t *testing.T) {
	sent := time.Now()
	var s State
	s.Init(new(limit.Set))
	stale := s.Epoch()
	for range 2 {
		s.Start(0, 1, sent, sent)
	}
	now := sent.Add(20 * time.Millisecond)
	observes(&s, Throttled, stale, time.Second, sent, now)
	if !isClosed(&s, now) {
		t.Fatal("not closed")
	}
	now = now.Add(2 * time.Second)
	spaced := func(when string) {
		t.Helper()
		at, _, ok := s.Ready(0, 1, now, now)
		if !ok || isClosed(&s, now) {
			t.Fatalf("%s: not open", when)
		}
		now = limit.Latest(now, at)
		s.Start(0, 1, now, now)
		if at, exact, ok := s.Ready(0, 1, now, now); !ok || !exact || !at.After(now) {
			t.Errorf("%s: the next call goes after %v (exact %t, known %t), want it spaced", when, at.Sub(now), exact, ok)
		}
	}
	spaced("at the reopening")
	observes(&s, Throttled, stale, 0, sent, now)
	spaced("after the stale answer")
}

// isClosed reports whether the gate is closed at now.
func isClosed(s *State, now time.Time) bool {
	c := s.Closing(now)
	return c.Cause != Open && !c.Over
}
