package upstream

import (
	"math"
	"net/url"
	"testing"
	"time"
	"unsafe"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/limit"
)

// span is so many seconds.
func span(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

// named is an answer's quota with a name, 90 of 100 left for 10 s.
func named(name string) hint.Quota {
	return hint.Quota{Name: name, Unit: "requests", Limit: 100, Remaining: 90, Reset: span(10), Window: span(10), Source: "Ratelimit"}
}

// A told is a State that has calls answered, all by one route.
type told struct {
	*State
	factor  float64 // WindowFactor
	outcome Outcome // of the next answers
}

func newTold() *told { return &told{newState(0), 4, Success} }

// says lets an answer to a call of that moment advertise those quotas, and returns what is new to
// observers.
func (s *told) says(now time.Time, quotas ...hint.Quota) []Known {
	sent := now
	now = now.Add(time.Microsecond)
	scope := s.Scope(&url.URL{Host: "a", Path: "/x"})
	a := Answer{Outcome: s.outcome, Known: now.Sub(zero), Counted: s.Start(scope, 1, sent, sent), Scope: scope, Epoch: s.Epoch(), Cost: 1, Sent: sent, Host: "a", Path: "/x", InFlight: 1, WindowFactor: s.factor}
	a.Hint.Quotas, s.outcome = quotas, Success
	return s.Observe(&a, now).News
}

// ready is when the next call may go.
func (s *told) ready(now time.Time) time.Duration {
	at, _, _ := s.Ready(s.Scope(&url.URL{Host: "a", Path: "/x"}), 1, now, now)
	return at.Sub(now)
}

// One who is alone starts no more in any short window than the limit, also after a rest, and hardly less.
func TestAloneKeepsTheLimit(t *testing.T) {
	for _, window := range []time.Duration{time.Second, 2 * time.Second} {
		s, now := newTold(), zero
		q := hint.Quota{Limit: 200, Remaining: -1, Reset: -1, Window: window}
		s.says(now, q)
		var starts []time.Time
		for _, rest := range []time.Duration{5 * window, 2 * window, window / 3} {
			now = now.Add(rest)
			for end := now.Add(3 * window); now.Before(end); {
				if wait := s.ready(now); wait > 0 {
					now = now.Add(wait + limit.MaxLate) // a late timer
					continue
				}
				s.says(now, q)
				starts = append(starts, now)
			}
		}
		most, from := 0, 0
		for i, at := range starts {
			for !starts[from].After(at.Add(-window)) {
				from++
			}
			most = max(most, i-from+1)
		}
		if most > 200 || len(starts) < 1700 {
			t.Errorf("window of %v: %d in one, %d in all; want at most 200, about 1800", window, most, len(starts))
		}
	}
}

// Quotas of nothing, without an end, or advertised without being enforced are not kept.
func TestUsefulQuotas(t *testing.T) {
	answer := func(limit, remaining int64, reset, window float64) hint.Quota {
		return hint.Quota{Limit: limit, Remaining: remaining, Reset: span(reset), Window: span(window)}
	}
	for name, c := range map[string]struct {
		advertised hint.Quota
		want       bool
	}{
		"all advertised":                {answer(100, 90, 10, 10), true},
		"not enforced":                  {hint.Quota{Limit: 100, Remaining: 90, Reset: 10e9, Source: "Beta-Ratelimit"}, false},
		"an end":                        {answer(100, 90, 10, 0), true},
		"a window":                      {answer(100, 90, -1e-9, 10), true},
		"a rate":                        {hint.Quota{Limit: 100, Remaining: 90, Reset: -1, Rate: 1}, true},
		"no end":                        {answer(100, 90, -1e-9, 0), false},
		"an end that is now":            {answer(100, 90, 0, 0), false},
		"remaining alone":               {answer(-1, 90, 10, 0), true},
		"none left, of no known window": {answer(100, 0, 10, 0), true},
		"nothing remaining":             {answer(-1, 0, 10, 0), true},
		"nothing remaining, no end":     {answer(-1, 0, 0, 10), false},
		"of nothing":                    {answer(0, 0, 0, 10), false},
		"one remains":                   {answer(0, 1, 0, 10), true},
		"a limit of one, none left":     {answer(1, 0, 0, 10), true},
		"a policy":                      {answer(100, -1, -1e-9, 10), true},
		"a policy for one":              {answer(1, -1, -1e-9, 10), true},
		"a policy with a rate":          {hint.Quota{Limit: 100, Remaining: -1, Reset: -1, Rate: 1}, true},
		"a policy for nothing":          {answer(0, -1, 10, 10), false},
		"a limit and its end":           {answer(100, -1, 10, 0), false},
	} {
		s := newTold()
		if s.says(zero, c.advertised); len(s.Learned(zero)) > 0 != c.want {
			t.Errorf("%s: %v", name, s.Learned(zero))
		}
	}
}

// Observers hear of each quota once, and again if its limit or its header field has changed.
func TestNewsOfQuotas(t *testing.T) {
	s := newTold()
	other := func(change func(*hint.Quota)) hint.Quota {
		q := named("x")
		change(&q)
		return q
	}
	for i, c := range []struct {
		quotas []hint.Quota
		news   int
	}{
		{[]hint.Quota{named("x")}, 1},
		{[]hint.Quota{named("x")}, 0},
		{nil, 0},
		{[]hint.Quota{other(func(q *hint.Quota) { q.Limit = 50 })}, 1},
		{[]hint.Quota{other(func(q *hint.Quota) { q.Source = "X-Ratelimit" })}, 1},
		{[]hint.Quota{named("x"), named("y")}, 2}, // x is as it was again
		{[]hint.Quota{named("y"), named("x")}, 0},
		{[]hint.Quota{other(func(q *hint.Quota) { q.Unit = "tokens" })}, 1},
		{[]hint.Quota{other(func(q *hint.Quota) { q.Window = span(20) })}, 1},
	} {
		if news := s.says(at(float64(i)/10), c.quotas...); len(news) != c.news {
			t.Errorf("%d: %+v, want %d", i, news, c.news)
		}
	}
	if l := s.Learned(at(1)); len(l) != 4 {
		t.Errorf("%+v are known, want x, y, x in tokens and x per 20 s", l)
	}
}

// A window longer than a month is not believed; what is kept of an answer shares no memory with it.
func TestWhatIsKeptOfAnAnswer(t *testing.T) {
	const month = 31 * 24 * time.Hour
	for window, want := range map[time.Duration]time.Duration{month: month, month + 1: 0} {
		s, q := newTold(), named("x")
		q.Window = window
		s.says(zero, q)
		k := s.Learned(zero)[0]
		if k.Window != want {
			t.Errorf("a window of %v is kept as %v", window, k.Window)
		}
		for i, kept := range [][2]string{{k.Name, q.Name}, {k.Unit, q.Unit}, {k.Source, q.Source}} {
			if kept[0] != kept[1] || unsafe.StringData(kept[0]) == unsafe.StringData(kept[1]) {
				t.Errorf("%d: %q is kept in place of %q, or with its memory", i, kept[0], kept[1])
			}
		}
		s.says(at(1), q)
		if unsafe.StringData(s.Learned(at(1))[0].Source) != unsafe.StringData(k.Source) {
			t.Error("what is advertised again is kept again")
		}
	}
}

// One answer that advertises a quota among many that do not is outvoted by the next, as soon as its reset is over. If
// another one repeats it, it holds until it was not repeated for ten seconds.
func TestASingleAnswerIsOutvoted(t *testing.T) {
	page := hint.Quota{Limit: 1, Remaining: 0, Reset: span(1), Source: "X-Ratelimit"}
	s, now := newTold(), zero
	for range 10 {
		now = now.Add(time.Second)
		s.says(now)
	}
	s.says(now, page)
	if wait := s.ready(now); wait < 900*time.Millisecond || wait > 1100*time.Millisecond {
		t.Errorf("advertised 1 s: the next call may go in %v", wait)
	}
	now = now.Add(2 * time.Second)
	s.says(now)
	if now = now.Add(time.Millisecond); s.ready(now) > 0 || len(s.Learned(now)) > 0 {
		t.Errorf("a silent answer later in %v: %+v", s.ready(now), s.Learned(now))
	}
	s.says(now.Add(time.Second), page)
	s.says(now.Add(2*time.Second), page)
	s.says(now.Add(4 * time.Second))
	if l := s.Learned(now.Add(11 * time.Second)); len(l) != 1 {
		t.Errorf("repeated, nine seconds later: %+v", l)
	}
	if l := s.Learned(now.Add(13 * time.Second)); len(l) != 0 {
		t.Errorf("repeated, eleven seconds later: %+v", l)
	}
}

// A quota that is advertised again soon after it lapsed is kept for twice as long each time, up to a minute. With another limit,
// or after a minute, it is kept as the first time.
func TestAQuotaThatComesBackIsKept(t *testing.T) {
	s, now := newTold(), zero
	for _, c := range []struct{ gap, kept, limit float64 }{
		{0, 10, 3}, {15, 20, 3}, {25, 40, 3}, {30, 40, 3}, {45, 60, 3}, {59, 60, 3}, {62, 10, 3}, {15, 20, 3}, {25, 10, 4},
	} {
		now = now.Add(span(c.gap))
		s.says(now, hint.Quota{Limit: int64(c.limit), Remaining: 2, Reset: span(5), Window: span(5), Source: "Ratelimit"})
		s.says(now.Add(time.Second))
		if before, after := s.Learned(now.Add(span(c.kept-0.5))), s.Learned(now.Add(span(c.kept+0.5))); len(before) != 1 || len(after) != 0 {
			t.Errorf("%v s after the last time: kept for another time than %v s: %+v, %+v", c.gap, c.kept, before, after)
		}
	}
}

// A page that allows much less than what was served between two of them is outvoted each time.
func TestALieIsOutvotedAgain(t *testing.T) {
	s, now := newTold(), zero
	for range 5 {
		for range 100 {
			now = now.Add(10 * time.Millisecond)
			s.says(now)
		}
		s.says(now, hint.Quota{Limit: 1, Remaining: 0, Reset: span(1), Source: "X-Ratelimit"})
		now = now.Add(2 * time.Second)
		s.says(now)
		if now = now.Add(time.Millisecond); s.ready(now) > 0 {
			t.Fatalf("the next call may go in %v", s.ready(now))
		}
	}
}

// What only throttled answers advertise holds for some windows. Then it allows more and more, and is forgotten: the
// upstream has long stopped to throttle anything.
func TestWhatThrottledAnswersAdvertiseGoesStepByStep(t *testing.T) {
	s, now := newTold(), zero
	const size, window = 20, 10 * time.Second
	for range size {
		s.says(now)
	}
	for range 2 { // of one alone TestOneRefusalIsOutvoted
		s.outcome = Throttled
		s.says(now, hint.Quota{Limit: size, Remaining: 0, Reset: window, Window: window, Source: "Ratelimit"})
	}
	var windows []int
	for range 12 {
		now = now.Add(window)
		n := 0
		for at := now; n < 1000; n++ {
			if at = at.Add(s.ready(at)); at.Sub(now) >= window {
				break
			}
			s.says(at)
			at = at.Add(time.Millisecond)
		}
		windows = append(windows, n)
	}
	for i, n := range windows {
		if i < 2 && n > size+1 || i == 4 && (n <= size || n > 2*size) || i > 0 && n < windows[i-1]-1 || i == 11 && n < 1000 {
			t.Errorf("%v start in the windows after it; want %d, then more, then all", windows, size)
			break
		}
	}
}

// What is predicted for the last of a backlog is when it starts, within a twentieth, if nobody else comes.
func TestPredictionUnderAQuota(t *testing.T) {
	for _, c := range []struct {
		limit  int64
		window float64
		factor float64
	}{{100, 1, 4}, {1000, 10, 4}, {100, 60, 4}, {6000, 60, 4}, {5000, 3600, 4}, {5000, 3600, 1}, {20, 3600, 4}} {
		for _, backlog := range []int64{10, 70, 300, 3000} {
			for _, used := range []int64{0, c.limit / 3, c.limit} {
				s, begin := newTold(), zero
				left, end := c.limit-used, begin.Add(span(c.window))
				advert := func() hint.Quota {
					return hint.Quota{Unit: "requests", Limit: c.limit, Remaining: left, Window: span(c.window), Reset: end.Sub(begin)}
				}
				s.factor = c.factor
				s.says(begin, advert())
				if c.window <= 1 { // others are taken to be there at first
					begin = begin.Add(span(5*c.window + 0.1))
					left, end = c.limit, begin.Add(span(c.window))
				}
				start := begin
				predicted := s.Predict(s.Scope(&url.URL{Host: "a", Path: "/x"}), Before{All: backlog - 1, Scope: backlog - 1}, 1, begin).Sub(start)
				for i := backlog; i > 0; {
					if wait := s.ready(begin); wait > 0 {
						begin = begin.Add(wait)
						continue
					}
					for ; !begin.Before(end); end = end.Add(span(c.window)) {
						left = c.limit
					}
					left--
					s.says(begin, advert())
					begin = begin.Add(time.Microsecond)
					i--
				}
				took := begin.Sub(start)
				if off := (predicted - took).Abs(); off > took/20+span(c.window/float64(c.limit)) {
					t.Errorf("%d per %v s, factor %v, %d used: %d calls take %v, predicted %v", c.limit, c.window, c.factor, used, backlog, took, predicted)
				}
			}
		}
	}
}

// A window whose end moves on with each call is perhaps a bucket. What is left of it is foreseen, and what comes after is
// not. An end that is only rounded does not move.
func TestMovingEndIsNotForeseen(t *testing.T) {
	for step, moves := range map[time.Duration]bool{0: false, 900 * time.Millisecond: false, 3 * time.Second: true} {
		s, now := newTold(), zero
		for i := range int64(5) {
			reset := time.Minute - now.Sub(zero) + time.Duration(i%2)*step
			s.says(now, hint.Quota{Limit: 20, Remaining: 19 - i, Reset: reset, Window: time.Minute})
			now = now.Add(time.Second)
		}
		scope := s.LatestScope()
		for calls, known := range map[int64]bool{1: true, 15: true, 16: !moves, 1000: !moves} {
			if got := s.Foreseeable(scope, calls, now); got != known {
				t.Errorf("the end moves by %v: %d calls are foreseen: %v, want %v", step, calls, got, known)
			}
		}
	}
}

// An answer that advertises a known quota allocates one copy of what it says, which is sorted, and nothing else.
func TestAdvertisedQuotaAllocations(t *testing.T) {
	s, now := newState(0), zero
	advertised := []hint.Quota{{Name: "a", Limit: 1000, Remaining: 900, Reset: time.Minute, Window: time.Minute, Source: "RateLimit"}}
	u := &url.URL{Host: "h"}
	answer := func() {
		now = now.Add(100 * time.Millisecond)
		counted := s.Start(s.Scope(u), 1, now, now)
		s.Observe(&Answer{Outcome: Success, Counted: counted, Epoch: s.Epoch(), Cost: 1, Sent: now, Trip: time.Millisecond, Host: "h", InFlight: 1,
			WindowFactor: 4, Hint: hint.Hint{Quotas: advertised}}, now.Add(time.Millisecond))
	}
	answer()
	if n := testing.AllocsPerRun(1000, answer); n > 1 {
		t.Errorf("%v allocations for an answer", n)
	}
}
