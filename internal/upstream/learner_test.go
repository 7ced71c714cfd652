package upstream

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/hint"
)

// named is an answer's quota with a name, 90 of 100 left for 10 s.
func named(name string) hint.Quota {
	return hint.Quota{Name: name, Unit: "requests", Limit: 100, Remaining: 90, Reset: span(10), Window: span(10), Source: "Ratelimit"}
}

// advertise is an answer that advertises those quotas.
func advertise(l *learner, quotas []hint.Quota, id uint8, a Answer, before float64, now time.Time) (uint8, []Known) {
	a.Hint = &hint.Hint{Quotas: quotas}
	return l.observe(id, &a, before, now)
}

// learnerOf is a learner of one scope for each of the names, advertised at zero.
func learnerOf(names ...string) *learner {
	l := newLearner()
	for _, name := range names {
		advertise(l, []hint.Quota{named(name)}, 0, Answer{Host: "a", Path: "/" + name, Sent: zero}, 0, zero)
	}
	return l
}

// The spread of round trips: the quickest counts, a slow one is forgotten in time.
func TestSpread(t *testing.T) {
	l := newLearner()
	for _, c := range []struct{ trip, spread float64 }{
		{0, 0}, {-1, 0}, {0.256, 0}, {0.512, 0.256}, {0.256, 0.255}, {0.1, 0.511 - 0.411/256 - 0.1}, {0.9, 0.8}, {0.9, 0.8}, {0, 0.8},
	} {
		l.trip(span(c.trip))
		if got := l.spread(); (got - span(c.spread)).Abs() > 2 {
			t.Errorf("after %v s: %v, want %v", c.trip, got, span(c.spread))
		}
	}
	if got := l.slack(advertised(1, 10)); got != 625*time.Millisecond {
		t.Errorf("%v matters of it for 10 s, want a sixteenth", got)
	}
	if got := l.slack(advertised(1, 100)); got != l.spread() {
		t.Errorf("%v matters of it for 100 s, want all", got)
	}
}

// A call of a scope pays all its quotas and the rate that was found, goes when all let it, and gives all back.
func TestScopePaysAllItsQuotas(t *testing.T) {
	l := newLearner()
	a, b := advertised(10, 10), advertised(100, 60)
	l.scopes = append(l.scopes, &scope{quotas: []*quota{a, b}})
	l.finder = &finder{phase: holding, w: 10, since: zero, next: at(1), hold: 5}
	a.next, b.next = at(2), at(3)
	for _, c := range []struct {
		change func()
		scope  uint8
		want   float64
	}{
		{func() {}, 1, 3},
		{func() { a.next = at(4) }, 1, 4},
		{func() { l.finder.next = at(5) }, 1, 5},
		{func() {}, 0, 5},
		{func() { l.finder.next = zero }, 0, 0.5},
	} {
		c.change()
		if got := l.ready(c.scope, 1, at(0.5), at(0.5)); !got.Equal(at(c.want)) {
			t.Errorf("scope %d: after %v, want %v", c.scope, got.Sub(zero), c.want)
		}
	}
	nexts := func() [3]time.Time { return [3]time.Time{a.next, b.next, l.finder.next} }
	was := nexts()
	l.take(1, 2, at(0.6))
	if now := nexts(); now[0].Equal(was[0]) || now[1].Equal(was[1]) || now[2].Equal(was[2]) || a.calls+b.calls+l.scopes[1].inFlight != 3 {
		t.Errorf("next %v, was %v; %d and %d calls, %d out", now, was, a.calls, b.calls, l.scopes[1].inFlight)
	}
	l.undo(1, 2, at(0.6))
	if now := nexts(); now[0] != was[0] || now[1] != was[1] || now[2].Sub(at(0.6)).Abs() > 10*time.Millisecond || a.calls+b.calls+l.scopes[1].inFlight != 0 {
		t.Errorf("undone: next %v, was %v; %d and %d calls, %d out", now, was, a.calls, b.calls, l.scopes[1].inFlight)
	}
	l.take(1, 1, at(0.6))
	if l.ended(1, 1); a.calls+b.calls+l.scopes[1].inFlight != 0 {
		t.Errorf("landed: %d and %d calls, %d out", a.calls, b.calls, l.scopes[1].inFlight)
	}
	l.finder = nil
	if got := l.ready(0, 1, at(0.5), at(0.5)); !got.Equal(at(0.5)) {
		t.Errorf("nothing holds it back: after %v", got.Sub(zero))
	}
	l.take(1, 1, at(0.6))
	l.undo(1, 1, at(0.6))
}

// A scope is spent until the last of its spent quotas ends.
func TestSpentScope(t *testing.T) {
	l := newLearner()
	a, b := advertised(10, 10), advertised(100, 60)
	l.scopes = append(l.scopes, &scope{quotas: []*quota{b, a}})
	if got := l.spent(1, at(1)); !got.IsZero() {
		t.Errorf("spent until %v", got)
	}
	a.left = 0
	if got := l.spent(1, at(1)); !got.Equal(at(10)) {
		t.Errorf("one: until %v, want 10 s", got.Sub(zero))
	}
	b.left = 0
	if got := l.spent(1, at(1)); !got.Equal(at(60)) {
		t.Errorf("both: until %v, want 60 s", got.Sub(zero))
	}
	if got := l.spent(0, at(1)); !got.IsZero() {
		t.Errorf("another scope: until %v", got)
	}
}

// A prediction counts those of its own scope at its quotas, and all at the rate that was found.
func TestPredictionOfAScope(t *testing.T) {
	l := newLearner()
	l.scopes = append(l.scopes, &scope{quotas: []*quota{with(advertised(100, 10), func(q *quota) { q.shared = at(99) }), advertised(1e6, 1)}})
	for _, c := range []struct {
		next   float64
		before Before
		want   float64
	}{
		{-1, Before{Scope: 50, All: 70}, 6}, {0, Before{Scope: 50, All: 70}, 8}, {3, Before{Scope: 50, All: 70}, 10},
		{0, Before{Shared: 99}, 1}, {0, Before{Scope: 80, All: 70}, 9}, {0, Before{All: 1 << 40}, 3601},
	} {
		if l.finder = nil; c.next >= 0 {
			l.finder = &finder{phase: holding, w: 10, since: zero, next: at(c.next), hold: 99}
		}
		if got := l.after(1, at(1), c.before, 1); got.Sub(at(c.want)).Abs() > time.Microsecond {
			t.Errorf("%+v: after %v, want %v", c, got.Sub(zero), c.want)
		}
	}
}

// Quotas of nothing, without an end, or advertised without being enforced are not kept.
func TestUsefulQuotas(t *testing.T) {
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
		if got := useful(&c.advertised); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The quotas that an answer advertises are its scope; the same again find it, and observers see each once.
func TestScopesOfAnswers(t *testing.T) {
	l := learnerOf("x")
	place := Answer{Host: "a", Path: "/x", Sent: at(1)}
	if len(l.scopes) != 2 || len(l.scopes[1].quotas) != 1 {
		t.Fatalf("%d scopes", len(l.scopes))
	}
	if id, news := advertise(l, nil, 1, place, 0, at(1)); id != 1 || news != nil {
		t.Errorf("an answer that advertises nothing: scope %d, %v", id, news)
	}
	if id, news := advertise(l, []hint.Quota{answer(100, 90, -1, 0)}, 1, place, 0, at(1)); id != 1 || news != nil {
		t.Errorf("nothing useful: scope %d, %v", id, news)
	}
	if id, news := advertise(l, []hint.Quota{named("x")}, 1, place, 0, at(1)); id != 1 || news != nil {
		t.Errorf("the same again: scope %d, %v", id, news)
	}
	if id, news := advertise(l, []hint.Quota{answer(100, 90, -1, 0), named("x")}, 0, place, 0, at(1)); id != 1 || news != nil {
		t.Errorf("the same to a call that paid nothing: scope %d, %v", id, news)
	}
	for name, change := range map[string]func(*hint.Quota){
		"limit":  func(t *hint.Quota) { t.Limit = 50 },
		"source": func(t *hint.Quota) { t.Source = "X-Ratelimit" },
	} {
		q := named("x")
		change(&q)
		id, news := advertise(l, []hint.Quota{q}, 1, place, 0, at(1))
		if id != 1 || len(news) != 1 || news[0].Limit != q.Limit || news[0].Source != q.Source || news[0].Name != "x" {
			t.Errorf("a new %s: scope %d, %+v", name, id, news)
		}
		advertise(l, []hint.Quota{named("x")}, 1, place, 0, at(1))
	}
	one := l.scopes[1].quotas[0]
	id, news := advertise(l, []hint.Quota{named("x"), named("y")}, 1, place, 0, at(1))
	if id != 2 || len(news) != 1 || news[0].Name != "y" || l.scopes[2].quotas[0] != one {
		t.Errorf("one more quota: scope %d, %+v", id, news)
	}
	for i, change := range []func(*hint.Quota){
		func(t *hint.Quota) { t.Unit = "tokens" }, func(t *hint.Quota) { t.Window = span(20) }, func(t *hint.Quota) { t.Name = "z" },
	} {
		q := named("x")
		if change(&q); l.scopes[1].matches([]hint.Quota{q}) {
			t.Errorf("%d: another quota is taken for the same", i)
		}
	}
	if !l.scopes[2].matches([]hint.Quota{named("x"), named("y")}) || l.scopes[2].matches([]hint.Quota{named("y"), named("x")}) {
		t.Error("a scope is of its quotas in their order")
	}
}

// A window longer than a month is not believed; what is kept of an answer shares no memory with it.
func TestWhatIsKeptOfAnAnswer(t *testing.T) {
	l := newLearner()
	q := named("x")
	q.Window = maxWindow + 1
	advertise(l, []hint.Quota{q}, 0, Answer{Host: "a", Sent: zero}, 7, zero)
	got := l.scopes[1].quotas[0]
	if got.Window != 0 || got.named != 0 || got.Limit != 100 || got.perCall != 1 {
		t.Errorf("%+v", got)
	}
	q.Name, q.Window = "y", maxWindow
	advertise(l, []hint.Quota{q}, 0, Answer{Host: "a", Sent: zero}, 7, zero)
	for i, kept := range [][2]string{{l.scopes[2].quotas[0].Name, q.Name}, {l.scopes[2].quotas[0].Unit, q.Unit}, {l.scopes[2].quotas[0].Source, q.Source}} {
		if kept[0] != kept[1] || unsafe.StringData(kept[0]) == unsafe.StringData(kept[1]) {
			t.Errorf("%d: %q is kept in place of %q, or with its memory", i, kept[0], kept[1])
		}
	}
	source := l.scopes[2].quotas[0].Source
	advertise(l, []hint.Quota{q}, 2, Answer{Host: "a", Sent: zero}, 7, zero)
	if unsafe.StringData(l.scopes[2].quotas[0].Source) != unsafe.StringData(source) {
		t.Error("what is advertised again is kept again")
	}
	if got := l.scopes[2].quotas[0]; got.Window != maxWindow || got.sent.sum(zero, 0) != 7 {
		t.Errorf("a month: %v, sent before %v", got.Window, got.sent.sum(zero, 0))
	}
}

// Sixteen scopes are kept; then the one that was advertised least recently is replaced, with what was known of its routes;
// one in flight is not, and where all are nothing is learned.
func TestScopesAreReplaced(t *testing.T) {
	l := newLearner()
	for i := range MaxScopes - 1 {
		name := fmt.Sprint("q", i)
		advertise(l, []hint.Quota{named(name)}, 0, Answer{Host: "a", Path: "/" + name, Sent: zero}, 0, at(float64(i)))
	}
	if len(l.scopes) != MaxScopes {
		t.Fatalf("%d scopes", len(l.scopes))
	}
	l.scopes[1].inFlight = 1
	advertise(l, []hint.Quota{named("q1")}, 2, Answer{Host: "a", Path: "/q1", Sent: at(20)}, 0, at(20))
	id, _ := advertise(l, []hint.Quota{named("new")}, 0, Answer{Host: "a", Path: "/new", Sent: at(21)}, 0, at(21))
	if id != 3 || len(l.scopes) != MaxScopes || l.scopes[3].quotas[0].Name != "new" {
		t.Errorf("scope %d is replaced, want 3: the oldest that is not in flight", id)
	}
	if got := l.scopeOf("a", "/new"); got != 3 {
		t.Errorf("its route falls under scope %d", got)
	}
	if got := l.scopeOf("a", "/q2"); got != 0 {
		t.Errorf("a route of the scope that was replaced falls under scope %d", got)
	}
	if got := l.scopeOf("a", "/q1"); got != 2 {
		t.Errorf("another route falls under scope %d, want 2", got)
	}
	for _, a := range l.scopes {
		a.inFlight = 1
	}
	if id, news := advertise(l, []hint.Quota{named("more")}, 3, Answer{Host: "a", Path: "/more", Sent: at(22)}, 0, at(22)); id != 0 || news != nil || l.scopeOf("a", "/more") != 0 {
		t.Errorf("no place: scope %d, %v", id, news)
	}
}

// A scope was advertised last when one of its quotas was.
func TestScopeIsAsOldAsItsLastQuota(t *testing.T) {
	a := &scope{quotas: []*quota{advertised(1, 1), advertised(1, 1), advertised(1, 1)}}
	a.quotas[1].leftAt = at(5)
	if got := a.lastAdvertised(); !got.Equal(at(5)) {
		t.Errorf("advertised after %v, want 5 s", got.Sub(zero))
	}
}

// A throttled answer closes the quota that it is about, and leaves the gate open; one with a time and no quota is
// the gate's.
func TestQuotasAreClosed(t *testing.T) {
	quotas := []hint.Quota{named("x")}
	for name, c := range map[string]struct {
		q      func(q *quota)
		hint   hint.Hint
		done   bool
		closed float64 // 0: not closed
	}{
		"a time":                          {func(*quota) {}, hint.Hint{RetryAfter: 5e9, Quotas: quotas}, false, 0},
		"a time, nothing left":            {func(q *quota) { q.left = 0 }, hint.Hint{RetryAfter: 5e9, Quotas: quotas}, false, 0},
		"a time and a quota":              {func(*quota) {}, hint.Hint{RetryAfter: 5e9, Scope: "x", Quotas: quotas}, true, 6},
		"a time and another quota":        {func(*quota) {}, hint.Hint{RetryAfter: 5e9, Scope: "y", Quotas: quotas}, false, 0},
		"closed for longer":               {func(q *quota) { q.closedUntil = at(60) }, hint.Hint{RetryAfter: 5e9, Scope: "x", Quotas: quotas}, true, 60},
		"no time, something left":         {func(*quota) {}, hint.Hint{Quotas: quotas}, false, 0},
		"no time, one left":               {func(q *quota) { q.left = 1 }, hint.Hint{Quotas: quotas}, false, 0},
		"no time, nothing left":           {func(q *quota) { q.left = 0 }, hint.Hint{Quotas: quotas}, true, 10},
		"nothing left, closed for longer": {func(q *quota) { q.left, q.closedUntil = 0, at(60) }, hint.Hint{Quotas: quotas}, true, 60},
		"nothing left, over":              {func(q *quota) { q.left, q.until = 0, at(1) }, hint.Hint{Quotas: quotas}, false, 0},
		"nothing left, not advertised":    {func(q *quota) { q.left = 0 }, hint.Hint{}, false, 0},
		"no time, that quota":             {func(*quota) {}, hint.Hint{Scope: "x", Quotas: quotas}, true, 10},
		"rolling":                         {func(q *quota) { q.left, q.rolling = 0, true }, hint.Hint{Quotas: quotas}, true, 1.2},
		"rolling, closed for longer":      {func(q *quota) { q.left, q.rolling, q.closedUntil = 0, true, at(60) }, hint.Hint{Quotas: quotas}, true, 60},
	} {
		l := learnerOf("x")
		q := with(l.scopes[1].quotas[0], c.q)
		done := l.closeQuotas(1, &c.hint, at(1))
		late := q.closedUntil.Sub(at(c.closed)) // up to a twentieth later, where all get the same
		if jitter := span(0.25); done != c.done || q.closedUntil.IsZero() != (c.closed == 0) || c.closed > 0 && (late < 0 || late > jitter || c.closed != 6 && late > 0) {
			t.Errorf("%s: the gate may stay open: %v; closed until %v", name, done, q.closedUntil.Sub(zero))
		}
	}
	l := learnerOf("x")
	q := l.scopes[1].quotas[0]
	if l.closeQuotas(1, &hint.Hint{RetryAfter: 1}, at(1)); q.longer != 0 {
		t.Error("a window that is advertised is in question")
	}
	q.found = true
	if l.closeQuotas(1, &hint.Hint{RetryAfter: 1}, at(1)); q.found || q.longer != time.Second {
		t.Errorf("after a throttled answer a found window is still found: %v, longer by %v", q.found, q.longer)
	}
}

// Resume lets one call of each quota go at once, and the rate that was found.
func TestResumeLetsOneGo(t *testing.T) {
	l := learnerOf("x", "y")
	for i, q := range []*quota{l.scopes[1].quotas[0], l.scopes[2].quotas[0]} {
		q.closedUntil, q.next, q.left = at(60), at(50), float64(i)*7
	}
	l.scopes[2].quotas[0].next = at(0.5)
	l.finder = &finder{since: at(30), next: at(40)}
	l.resume(at(1))
	x, y := l.scopes[1].quotas[0], l.scopes[2].quotas[0]
	if !x.closedUntil.IsZero() || !x.next.Equal(at(1)) || x.left != 1 || !y.next.Equal(at(0.5)) || y.left != 7 {
		t.Errorf("%v and %v left, next after %v and %v, closed until %v", x.left, y.left, x.next.Sub(zero), y.next.Sub(zero), x.closedUntil)
	}
	if !l.finder.since.Equal(at(1)) || !l.finder.next.Equal(at(1)) {
		t.Errorf("the rate that was found: from %v, next after %v", l.finder.since.Sub(zero), l.finder.next.Sub(zero))
	}
	l.finder.since, l.finder.next = at(0.3), at(0.4)
	if l.resume(at(2)); !l.finder.since.Equal(at(0.3)) || !l.finder.next.Equal(at(0.4)) {
		t.Errorf("it was open: from %v, next after %v", l.finder.since.Sub(zero), l.finder.next.Sub(zero))
	}
	l.finder = nil
	l.resume(at(2))
}

// A quota explains a throttled answer if less than one is left of it, or if it is closed.
func TestExplainedThrottling(t *testing.T) {
	for _, c := range []struct {
		left, closed float64
		want         bool
	}{{90, 0, false}, {1, 0, false}, {0.9, 0, true}, {90, 2, true}, {90, 1, false}} {
		l := learnerOf("x")
		q := l.scopes[1].quotas[0]
		q.left, q.closedUntil = c.left, at(c.closed)
		if got := l.explains(1, at(1)); got != c.want || l.explains(0, at(1)) {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// What observers see: each quota once, as it is now, and the rate that was found.
func TestWhatObserversSee(t *testing.T) {
	l := learnerOf("x")
	advertise(l, []hint.Quota{named("x"), named("y")}, 1, Answer{Host: "a", Path: "/both", Sent: zero}, 0, zero)
	x, y := l.scopes[1].quotas[0], l.scopes[2].quotas[1]
	x.shared, y.shared = at(99), time.Time{}
	x.left, x.closedUntil = 45.9, at(12)
	y.Remaining, y.until = -1, time.Time{}
	l.finder = &finder{phase: holding, w: 7, hold: 99, since: zero}
	want := []Known{
		{Name: "x", Unit: "requests", Source: "Ratelimit", Limit: 100, Remaining: 45, Reset: span(11), Window: span(10), Rate: 5.1},
		{Name: "y", Unit: "requests", Source: "Ratelimit", Limit: 100, Remaining: -1, Reset: -1, Window: span(10), Rate: 100 / 10.01},
		{Source: "refusals", Limit: -1, Remaining: -1, Reset: -1, Rate: 7},
	}
	got := l.known(at(1))
	for i := range got {
		if near(float64(got[i].Rate), float64(want[i].Rate)) {
			want[i].Rate = got[i].Rate
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	x.left, x.until, x.closedUntil = -3, at(0.5), time.Time{}
	if got := x.view(at(1), 0); got.Remaining != 0 || got.Reset != 0 {
		t.Errorf("overdrawn: %+v", got)
	}
	for left, want := range map[float64]int64{1 << 62: 1 << 62, 1 << 63: 1<<63 - 1024, math.MaxFloat64: 1<<63 - 1024} {
		big := &quota{Quota: hint.Quota{Limit: math.MaxInt64, Remaining: math.MaxInt64}, size: left, left: left, leftAt: at(0), perCall: 1}
		if got := big.view(at(1), 0).Remaining; got != want {
			t.Errorf("%v left are shown as %d, want %d", left, got, want)
		}
	}
	x.Remaining = 0
	if got := advertised(100, 1).view(at(1), 0); got.Rate != rate.Inf || x.view(at(1), 0).Remaining != 0 {
		t.Errorf("alone and short: %+v; nothing remaining: %+v", got, x.view(at(1), 0))
	}
	l.finder = nil
	if got := l.known(at(11))[0]; got.Remaining != 100 || strings.Contains(got.Name, "y") {
		t.Errorf("in the next window: %+v", got)
	}
}
