package upstream

import (
	"testing"
	"time"
	"unsafe"

	"github.com/go-throttle/throttle/hint"
)

// named is an answer's quota with a name, 90 of 100 left for 10 s.
func named(name string) hint.Quota {
	return hint.Quota{Name: name, Unit: "requests", Limit: 100, Remaining: 90, Reset: span(10), Window: span(10), Source: "Ratelimit"}
}

// advertise is an answer that advertises those quotas.
func advertise(l *learner, quotas []hint.Quota, id uint8, a Answer, before float64, now time.Time) (uint8, []Known) {
	a.Hint = hint.Hint{Quotas: quotas}
	id, news, _ := l.observe(id, &a, before, now)
	return id, news
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
	if got := l.scopes[2].quotas[0]; got.Window != maxWindow {
		t.Errorf("a month: %v", got.Window)
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
