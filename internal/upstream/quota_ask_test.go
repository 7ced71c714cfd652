package upstream

import (
	"net/url"
	"testing"
	"time"

	"github.com/go-throttle/throttle/hint"
)

// An asking is a State whose quota was spent by an answer that wants calls again in 30 s, while the reset is in 50 minutes.
type asking struct {
	*State
	scope uint8
	late  [2]Answer // to calls that were sent with the one that was refused
}

func newAsking() *asking {
	a := &asking{State: newState(0)}
	first := a.starts(zero)
	a.late = [2]Answer{a.starts(zero), a.starts(zero)}
	a.answers(first, Throttled, zero, 30, 0)
	a.scope = a.Scope(&url.URL{Host: "a", Path: "/x"})
	return a
}

// starts sends a call.
func (a *asking) starts(now time.Time) (sent Answer) {
	a.Ready(a.scope, 1, now, now) // opens a gate whose time is over
	return Answer{Counted: a.Start(a.scope, 1, now, now), Scope: a.scope, Epoch: a.Epoch(), Cost: 1, Sent: now, Host: "a", Path: "/x", InFlight: 1, WindowFactor: 4, Dated: true}
}

// answers answers a call: with a Retry-After if wait is above 0, and what remains if left is not negative.
func (a *asking) answers(sent Answer, outcome Outcome, now time.Time, wait, left float64) {
	sent.Outcome, sent.Hint.RetryAfter = outcome, span(wait)
	if left >= 0 {
		sent.Hint.Quotas = []hint.Quota{{Limit: 5000, Remaining: int64(left), Reset: at(3000).Sub(now), Source: "Ratelimit"}}
	}
	a.Observe(&sent, now)
}

// wait is how long the quota holds a call of n units.
func (a *asking) wait(n int, now time.Time) time.Duration {
	return a.quotas.Ready(a.scope, n, now, now).Sub(now)
}

// One call asks at the time of the Retry-After, and the others wait for its answer. If that does not come, or says nothing of the
// quota, the next one asks.
func TestOneCallAsks(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(a *asking, asks Answer)
		wait float64 // of the next call; 2960: until the reset
	}{
		"something is left":   {func(a *asking, asks Answer) { a.answers(asks, Success, at(40), 0, 4000) }, 0},
		"refused":             {func(a *asking, asks Answer) { a.answers(asks, Throttled, at(40), 30, 0) }, 2960},
		"served the last":     {func(a *asking, asks Answer) { a.answers(asks, Success, at(40), 0, 0) }, 2960},
		"refused in silence":  {func(a *asking, asks Answer) { a.answers(asks, Throttled, at(40), 0, -1) }, 0},
		"served in silence":   {func(a *asking, asks Answer) { a.answers(asks, Success, at(40), 0, -1) }, 0},
		"a 502":               {func(a *asking, asks Answer) { a.answers(asks, Failure, at(40), 0, -1) }, 0},
		"a 529":               {func(a *asking, asks Answer) { a.answers(asks, Overloaded, at(40), 0, -1) }, 0},
		"cancelled":           {func(a *asking, asks Answer) { a.answers(asks, Cancelled, at(40), 0, -1) }, 0},
		"never sent":          {func(a *asking, asks Answer) { a.Undo(asks.Epoch, asks.Scope, true, 1, asks.Sent, at(40)) }, 0},
		"an operator resumes": {func(a *asking, asks Answer) { a.Resume(at(40)) }, 0},
	} {
		a := newAsking()
		if w := a.wait(1, at(10)); w != 20*time.Second {
			t.Errorf("%s: the first call is to go in %v, want 20 s", name, w)
		}
		asks := a.starts(at(31.5))
		for _, n := range []int{1, 5} {
			if w := a.wait(n, at(32)); w < span(2960) || !a.SpentUntil(a.scope, at(32)).IsZero() {
				t.Errorf("%s: while one asks another may go in %v; spent until %v", name, w, a.SpentUntil(a.scope, at(32)))
			}
		}
		if c.end(a, asks); a.wait(1, at(40)) != span(c.wait) {
			t.Errorf("%s: then the next may go in %v, want %v s", name, a.wait(1, at(40)), c.wait)
		}
		if w := a.wait(1, at(3000.1)); w > 0 {
			t.Errorf("%s: after the reset the next may go in %v", name, w)
		}
	}
}

// Answers to calls that were sent before say nothing against the call that asks, and bring no second one.
func TestLateAnswersBesideOneThatAsks(t *testing.T) {
	for name, late := range map[string]float64{"spent": 0, "a rest": 3} {
		a := newAsking()
		asks := a.starts(at(31.5))
		a.answers(a.late[0], Throttled, at(32), 30, late)
		if w := a.wait(1, at(62.5)); w < 2900*time.Second {
			t.Errorf("%s: another asks in %v although one does", name, w)
		}
		a.answers(asks, Success, at(70), 0, 4000)
		a.answers(a.late[1], Throttled, at(71), 30, 0)
		if w := a.wait(1, at(72)); w > 0 {
			t.Errorf("%s: what was sent before holds the next for %v", name, w)
		}
	}
}

// Of two quotas that are spent each has its own answer; a call asks both.
func TestOneCallAsksTwoQuotas(t *testing.T) {
	s := &asking{State: newState(0)}
	both := func(sent Answer, outcome Outcome, now time.Time, wait, minute, hour float64) {
		sent.Outcome, sent.Hint.RetryAfter = outcome, span(wait)
		sent.Hint.Quotas = []hint.Quota{
			{Name: "m", Limit: 100, Remaining: int64(minute), Window: time.Minute, Reset: time.Minute, Source: "Ratelimit"},
			{Name: "h", Limit: 5000, Remaining: int64(hour), Window: time.Hour, Reset: at(3000).Sub(now), Source: "Ratelimit"},
		}
		s.Observe(&sent, now)
	}
	both(s.starts(zero), Throttled, zero, 30, 0, 0)
	s.scope = s.Scope(&url.URL{Host: "a", Path: "/x"})
	asks := s.starts(at(31.5))
	both(asks, Success, at(32), 0, 50, 0)
	if w := s.wait(1, at(33)); w != span(2967) {
		t.Errorf("the hour has nothing, and the next call may go in %v", w)
	}
}

// A reset of an hour and more in an answer without a Date may be of a wrong clock: a call asks after one, two, four minutes. With a Date
// nobody asks.
func TestFarResetIsAsked(t *testing.T) {
	for _, dated := range []bool{false, true} {
		s := &asking{State: newState(0)}
		refused := func(now time.Time) {
			sent := s.starts(now)
			sent.Outcome, sent.Dated = Throttled, dated
			sent.Hint.Quotas = []hint.Quota{{Limit: 10, Remaining: 0, Reset: at(10800).Sub(now), Source: "X-Ratelimit"}}
			s.Observe(&sent, now)
			s.scope = s.Scope(&url.URL{Host: "a", Path: "/x"})
		}
		now := zero
		for _, want := range []float64{60, 120, 240, 480} {
			if refused(now); dated {
				want = 10800
			}
			if w := s.wait(1, now); w != span(want) {
				t.Fatalf("dated %v: the next is to ask in %v, want %v s", dated, w, want)
			}
			if dated {
				break
			}
			now = now.Add(span(want))
		}
	}
}
