package learn

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

// heard is a learner that was told of one lane for each of the names, at zero.
func heard(names ...string) *Learner {
	l := New()
	for _, name := range names {
		l.Hear([]hint.Quota{named(name)}, 0, Place{Host: "a", Path: "/" + name, Sent: zero}, 0, zero)
	}
	return l
}

// The spread of round trips: the quickest counts, a slow one is forgotten in time.
func TestSpread(t *testing.T) {
	l := New()
	for _, c := range []struct{ trip, spread float64 }{
		{0, 0}, {-1, 0}, {0.256, 0}, {0.512, 0.256}, {0.256, 0.255}, {0.1, 0.511 - 0.411/256 - 0.1}, {0.9, 0.8}, {0.9, 0.8}, {0, 0.8},
	} {
		l.Trip(span(c.trip))
		if got := l.spread(); (got - span(c.spread)).Abs() > 2 {
			t.Errorf("after %v s: %v, want %v", c.trip, got, span(c.spread))
		}
	}
	if got := l.slack(told(1, 10)); got != 625*time.Millisecond {
		t.Errorf("%v matters of it for 10 s, want a sixteenth", got)
	}
	if got := l.slack(told(1, 100)); got != l.spread() {
		t.Errorf("%v matters of it for 100 s, want all", got)
	}
}

// A call of a lane pays all its quotas and the rate that was found, goes when all let it, and gives all back.
func TestLanePaysAllItsQuotas(t *testing.T) {
	l := New()
	a, b := told(10, 10), told(100, 60)
	l.Lanes = append(l.Lanes, &Lane{Quotas: []*ToldQuota{a, b}})
	l.Finder = &Finder{phase: holding, w: 10, since: zero, next: sec(1), hold: 5}
	a.next, b.next = sec(2), sec(3)
	for _, c := range []struct {
		change func()
		lane   uint8
		want   float64
	}{
		{func() {}, 1, 3},
		{func() { a.next = sec(4) }, 1, 4},
		{func() { l.Finder.next = sec(5) }, 1, 5},
		{func() {}, 0, 5},
		{func() { l.Finder.next = zero }, 0, 0.5},
	} {
		c.change()
		if got := l.Ready(c.lane, 1, sec(0.5), sec(0.5)); !got.Equal(sec(c.want)) {
			t.Errorf("lane %d: after %v, want %v", c.lane, got.Sub(zero), c.want)
		}
	}
	nexts := func() [3]time.Time { return [3]time.Time{a.next, b.next, l.Finder.next} }
	was := nexts()
	l.Take(1, 2, sec(0.6))
	if now := nexts(); now[0].Equal(was[0]) || now[1].Equal(was[1]) || now[2].Equal(was[2]) || a.Calls+b.Calls+l.Lanes[1].Out != 3 {
		t.Errorf("next %v, was %v; %d and %d calls, %d out", now, was, a.Calls, b.Calls, l.Lanes[1].Out)
	}
	l.Undo(1, 2, sec(0.6))
	if now := nexts(); now[0] != was[0] || now[1] != was[1] || now[2].Sub(sec(0.6)).Abs() > 10*time.Millisecond || a.Calls+b.Calls+l.Lanes[1].Out != 0 {
		t.Errorf("undone: next %v, was %v; %d and %d calls, %d out", now, was, a.Calls, b.Calls, l.Lanes[1].Out)
	}
	l.Take(1, 1, sec(0.6))
	if l.Landed(1, 1); a.Calls+b.Calls+l.Lanes[1].Out != 0 {
		t.Errorf("landed: %d and %d calls, %d out", a.Calls, b.Calls, l.Lanes[1].Out)
	}
	l.Finder = nil
	if got := l.Ready(0, 1, sec(0.5), sec(0.5)); !got.Equal(sec(0.5)) {
		t.Errorf("nothing holds it back: after %v", got.Sub(zero))
	}
	l.Take(1, 1, sec(0.6))
	l.Undo(1, 1, sec(0.6))
}

// A lane is spent until the last of its spent quotas ends.
func TestSpentLane(t *testing.T) {
	l := New()
	a, b := told(10, 10), told(100, 60)
	l.Lanes = append(l.Lanes, &Lane{Quotas: []*ToldQuota{b, a}})
	if got := l.Spent(1, sec(1)); !got.IsZero() {
		t.Errorf("spent until %v", got)
	}
	a.left = 0
	if got := l.Spent(1, sec(1)); !got.Equal(sec(10)) {
		t.Errorf("one: until %v, want 10 s", got.Sub(zero))
	}
	b.left = 0
	if got := l.Spent(1, sec(1)); !got.Equal(sec(60)) {
		t.Errorf("both: until %v, want 60 s", got.Sub(zero))
	}
	if got := l.Spent(0, sec(1)); !got.IsZero() {
		t.Errorf("another lane: until %v", got)
	}
}

// A prediction reckons with those of its own lane at its quotas, with all at the rate that was found.
func TestPredictionOfALane(t *testing.T) {
	l := New()
	l.Lanes = append(l.Lanes, &Lane{Quotas: []*ToldQuota{with(told(100, 10), func(q *ToldQuota) { q.shared = sec(99) }), told(1e6, 1)}})
	for _, c := range []struct {
		next   float64
		before Before
		want   float64
	}{
		{-1, Before{Lane: 50, All: 70}, 6}, {0, Before{Lane: 50, All: 70}, 8}, {3, Before{Lane: 50, All: 70}, 10},
		{0, Before{Shared: 99}, 1}, {0, Before{Lane: 80, All: 70}, 9}, {0, Before{All: 1 << 40}, 3601},
	} {
		if l.Finder = nil; c.next >= 0 {
			l.Finder = &Finder{phase: holding, w: 10, since: zero, next: sec(c.next), hold: 99}
		}
		if got := l.After(1, sec(1), c.before, 1); got.Sub(sec(c.want)).Abs() > time.Microsecond {
			t.Errorf("%+v: after %v, want %v", c, got.Sub(zero), c.want)
		}
	}
}

// Quotas of nothing, without an end or told without being enforced are not kept.
func TestUsefulQuotas(t *testing.T) {
	for name, c := range map[string]struct {
		told hint.Quota
		want bool
	}{
		"all told":                      {answer(100, 90, 10, 10), true},
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
		if got := Useful(&c.told); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The quotas that an answer tells are its lane; the same again find it, and each is told to observers once.
func TestLanesOfAnswers(t *testing.T) {
	l := heard("x")
	place := Place{Host: "a", Path: "/x", Sent: sec(1)}
	if len(l.Lanes) != 2 || len(l.Lanes[1].Quotas) != 1 {
		t.Fatalf("%d lanes", len(l.Lanes))
	}
	if id, news := l.Hear(nil, 1, place, 0, sec(1)); id != 1 || news != nil {
		t.Errorf("an answer that tells nothing: lane %d, %v", id, news)
	}
	if id, news := l.Hear([]hint.Quota{answer(100, 90, -1, 0)}, 1, place, 0, sec(1)); id != 1 || news != nil {
		t.Errorf("nothing of use: lane %d, %v", id, news)
	}
	if id, news := l.Hear([]hint.Quota{named("x")}, 1, place, 0, sec(1)); id != 1 || news != nil {
		t.Errorf("the same again: lane %d, %v", id, news)
	}
	if id, news := l.Hear([]hint.Quota{answer(100, 90, -1, 0), named("x")}, 0, place, 0, sec(1)); id != 1 || news != nil {
		t.Errorf("the same to a call that paid nothing: lane %d, %v", id, news)
	}
	for name, change := range map[string]func(*hint.Quota){
		"limit":  func(t *hint.Quota) { t.Limit = 50 },
		"source": func(t *hint.Quota) { t.Source = "X-Ratelimit" },
	} {
		q := named("x")
		change(&q)
		id, news := l.Hear([]hint.Quota{q}, 1, place, 0, sec(1))
		if id != 1 || len(news) != 1 || news[0].Limit != q.Limit || news[0].Source != q.Source || news[0].Name != "x" {
			t.Errorf("a new %s: lane %d, %+v", name, id, news)
		}
		l.Hear([]hint.Quota{named("x")}, 1, place, 0, sec(1))
	}
	one := l.Lanes[1].Quotas[0]
	id, news := l.Hear([]hint.Quota{named("x"), named("y")}, 1, place, 0, sec(1))
	if id != 2 || len(news) != 1 || news[0].Name != "y" || l.Lanes[2].Quotas[0] != one {
		t.Errorf("one more quota: lane %d, %+v", id, news)
	}
	for i, change := range []func(*hint.Quota){
		func(t *hint.Quota) { t.Unit = "tokens" }, func(t *hint.Quota) { t.Window = span(20) }, func(t *hint.Quota) { t.Name = "z" },
	} {
		q := named("x")
		if change(&q); l.Lanes[1].matches([]hint.Quota{q}) {
			t.Errorf("%d: another quota is taken for the same", i)
		}
	}
	if !l.Lanes[2].matches([]hint.Quota{named("x"), named("y")}) || l.Lanes[2].matches([]hint.Quota{named("y"), named("x")}) {
		t.Error("a lane is of its quotas in their order")
	}
}

// A window longer than a month is not believed; what is kept of an answer shares no memory with it.
func TestWhatIsKeptOfAnAnswer(t *testing.T) {
	l := New()
	q := named("x")
	q.Window = maxWindow + 1
	l.Hear([]hint.Quota{q}, 0, Place{Host: "a", Sent: zero}, 7, zero)
	got := l.Lanes[1].Quotas[0]
	if got.Window != 0 || got.named != 0 || got.Limit != 100 || got.perCall != 1 {
		t.Errorf("%+v", got)
	}
	q.Name, q.Window = "y", maxWindow
	l.Hear([]hint.Quota{q}, 0, Place{Host: "a", Sent: zero}, 7, zero)
	for i, kept := range [][2]string{{l.Lanes[2].Quotas[0].Name, q.Name}, {l.Lanes[2].Quotas[0].Unit, q.Unit}, {l.Lanes[2].Quotas[0].Source, q.Source}} {
		if kept[0] != kept[1] || unsafe.StringData(kept[0]) == unsafe.StringData(kept[1]) {
			t.Errorf("%d: %q is kept in place of %q, or with its memory", i, kept[0], kept[1])
		}
	}
	source := l.Lanes[2].Quotas[0].Source
	l.Hear([]hint.Quota{q}, 2, Place{Host: "a", Sent: zero}, 7, zero)
	if unsafe.StringData(l.Lanes[2].Quotas[0].Source) != unsafe.StringData(source) {
		t.Error("what is told again is kept again")
	}
	if got := l.Lanes[2].Quotas[0]; got.Window != maxWindow || got.sent.sum(zero, 0) != 7 {
		t.Errorf("a month: %v, sent before %v", got.Window, got.sent.sum(zero, 0))
	}
}

// Sixteen lanes are kept; then the one told of least recently is replaced, with what was known of its routes;
// one in flight is not, and where all are nothing is learned.
func TestLanesAreReplaced(t *testing.T) {
	l := New()
	for i := range MaxLanes - 1 {
		name := fmt.Sprint("q", i)
		l.Hear([]hint.Quota{named(name)}, 0, Place{Host: "a", Path: "/" + name, Sent: zero}, 0, sec(float64(i)))
	}
	if len(l.Lanes) != MaxLanes {
		t.Fatalf("%d lanes", len(l.Lanes))
	}
	l.Lanes[1].Out = 1
	l.Hear([]hint.Quota{named("q1")}, 2, Place{Host: "a", Path: "/q1", Sent: sec(20)}, 0, sec(20))
	id, _ := l.Hear([]hint.Quota{named("new")}, 0, Place{Host: "a", Path: "/new", Sent: sec(21)}, 0, sec(21))
	if id != 3 || len(l.Lanes) != MaxLanes || l.Lanes[3].Quotas[0].Name != "new" {
		t.Errorf("lane %d is replaced, want 3: the oldest that is not in flight", id)
	}
	if got := l.LaneOf("a", "/new"); got != 3 {
		t.Errorf("its route falls under lane %d", got)
	}
	if got := l.LaneOf("a", "/q2"); got != 0 {
		t.Errorf("a route of the lane that was replaced falls under lane %d", got)
	}
	if got := l.LaneOf("a", "/q1"); got != 2 {
		t.Errorf("another route falls under lane %d, want 2", got)
	}
	for _, a := range l.Lanes {
		a.Out = 1
	}
	if id, news := l.Hear([]hint.Quota{named("more")}, 3, Place{Host: "a", Path: "/more", Sent: sec(22)}, 0, sec(22)); id != 0 || news != nil || l.LaneOf("a", "/more") != 0 {
		t.Errorf("no room: lane %d, %v", id, news)
	}
}

// A lane was heard of when the last of its quotas was.
func TestLaneIsAsOldAsItsLastQuota(t *testing.T) {
	a := &Lane{Quotas: []*ToldQuota{told(1, 1), told(1, 1), told(1, 1)}}
	a.Quotas[1].leftAt = sec(5)
	if got := a.heard(); !got.Equal(sec(5)) {
		t.Errorf("heard of after %v, want 5 s", got.Sub(zero))
	}
}

// A refusal shuts the quota that it is about, and leaves the gate open; one that tells a time and no quota is
// the gate's.
func TestShut(t *testing.T) {
	quotas := []hint.Quota{named("x")}
	for name, c := range map[string]struct {
		q    func(q *ToldQuota)
		hint hint.Hint
		done bool
		shut float64 // 0: not
	}{
		"a time":                        {func(*ToldQuota) {}, hint.Hint{RetryAfter: 5e9, Quotas: quotas}, false, 0},
		"a time, nothing left":          {func(q *ToldQuota) { q.left = 0 }, hint.Hint{RetryAfter: 5e9, Quotas: quotas}, false, 0},
		"a time and a quota":            {func(*ToldQuota) {}, hint.Hint{RetryAfter: 5e9, Scope: "x", Quotas: quotas}, true, 6},
		"a time and another quota":      {func(*ToldQuota) {}, hint.Hint{RetryAfter: 5e9, Scope: "y", Quotas: quotas}, false, 0},
		"shut for longer":               {func(q *ToldQuota) { q.shut = sec(60) }, hint.Hint{RetryAfter: 5e9, Scope: "x", Quotas: quotas}, true, 60},
		"no time, something left":       {func(*ToldQuota) {}, hint.Hint{Quotas: quotas}, false, 0},
		"no time, one left":             {func(q *ToldQuota) { q.left = 1 }, hint.Hint{Quotas: quotas}, false, 0},
		"no time, nothing left":         {func(q *ToldQuota) { q.left = 0 }, hint.Hint{Quotas: quotas}, true, 10},
		"nothing left, shut for longer": {func(q *ToldQuota) { q.left, q.shut = 0, sec(60) }, hint.Hint{Quotas: quotas}, true, 60},
		"nothing left, over":            {func(q *ToldQuota) { q.left, q.until = 0, sec(1) }, hint.Hint{Quotas: quotas}, false, 0},
		"nothing left, nothing told":    {func(q *ToldQuota) { q.left = 0 }, hint.Hint{}, false, 0},
		"no time, that quota":           {func(*ToldQuota) {}, hint.Hint{Scope: "x", Quotas: quotas}, true, 10},
		"rolling":                       {func(q *ToldQuota) { q.left, q.roll = 0, true }, hint.Hint{Quotas: quotas}, true, 1.2},
		"rolling, shut for longer":      {func(q *ToldQuota) { q.left, q.roll, q.shut = 0, true, sec(60) }, hint.Hint{Quotas: quotas}, true, 60},
	} {
		l := heard("x")
		q := with(l.Lanes[1].Quotas[0], c.q)
		done := l.Shut(1, &c.hint, sec(1))
		shut := q.shut.Sub(sec(c.shut)) // up to a twentieth later, where it is told to all
		if jitter := span(0.25); done != c.done || q.shut.IsZero() != (c.shut == 0) || c.shut > 0 && (shut < 0 || shut > jitter || c.shut != 6 && shut > 0) {
			t.Errorf("%s: the gate may stay open: %v; shut until %v", name, done, q.shut.Sub(zero))
		}
	}
	l := heard("x")
	q := l.Lanes[1].Quotas[0]
	if l.Shut(1, &hint.Hint{RetryAfter: 1}, sec(1)); q.doubt != 0 {
		t.Error("a window that is told is doubted")
	}
	q.found = true
	if l.Shut(1, &hint.Hint{RetryAfter: 1}, sec(1)); q.found || q.doubt != time.Second {
		t.Errorf("after a refusal a found window is still found: %v, in doubt by %v", q.found, q.doubt)
	}
}

// Resume lets one call of each quota go at once, and the rate that was found.
func TestResumeLetsOneGo(t *testing.T) {
	l := heard("x", "y")
	for i, q := range []*ToldQuota{l.Lanes[1].Quotas[0], l.Lanes[2].Quotas[0]} {
		q.shut, q.next, q.left = sec(60), sec(50), float64(i)*7
	}
	l.Lanes[2].Quotas[0].next = sec(0.5)
	l.Finder = &Finder{since: sec(30), next: sec(40)}
	l.Resume(sec(1))
	x, y := l.Lanes[1].Quotas[0], l.Lanes[2].Quotas[0]
	if !x.shut.IsZero() || !x.next.Equal(sec(1)) || x.left != 1 || !y.next.Equal(sec(0.5)) || y.left != 7 {
		t.Errorf("%v and %v left, next after %v and %v, shut until %v", x.left, y.left, x.next.Sub(zero), y.next.Sub(zero), x.shut)
	}
	if !l.Finder.since.Equal(sec(1)) || !l.Finder.next.Equal(sec(1)) {
		t.Errorf("the rate that was found: from %v, next after %v", l.Finder.since.Sub(zero), l.Finder.next.Sub(zero))
	}
	l.Finder.since, l.Finder.next = sec(0.3), sec(0.4)
	if l.Resume(sec(2)); !l.Finder.since.Equal(sec(0.3)) || !l.Finder.next.Equal(sec(0.4)) {
		t.Errorf("it was open: from %v, next after %v", l.Finder.since.Sub(zero), l.Finder.next.Sub(zero))
	}
	l.Finder = nil
	l.Resume(sec(2))
}

// A refusal is foretold by a quota of its lane of which less than one is left, or that is shut.
func TestForetoldRefusal(t *testing.T) {
	for _, c := range []struct {
		left, shut float64
		want       bool
	}{{90, 0, false}, {1, 0, false}, {0.9, 0, true}, {90, 2, true}, {90, 1, false}} {
		l := heard("x")
		q := l.Lanes[1].Quotas[0]
		q.left, q.shut = c.left, sec(c.shut)
		if got := l.Explains(1, sec(1)); got != c.want || l.Explains(0, sec(1)) {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// What observers see: each quota once, as it is now, and the rate that was found.
func TestWhatObserversSee(t *testing.T) {
	l := heard("x")
	l.Hear([]hint.Quota{named("x"), named("y")}, 1, Place{Host: "a", Path: "/both", Sent: zero}, 0, zero)
	x, y := l.Lanes[1].Quotas[0], l.Lanes[2].Quotas[1]
	x.shared, y.shared = sec(99), time.Time{}
	x.left, x.shut = 45.9, sec(12)
	y.Remaining, y.until = -1, time.Time{}
	l.Finder = &Finder{phase: holding, w: 7, hold: 99, since: zero}
	want := []Known{
		{Name: "x", Unit: "requests", Source: "Ratelimit", Limit: 100, Remaining: 45, Reset: span(11), Window: span(10), Rate: 5.1},
		{Name: "y", Unit: "requests", Source: "Ratelimit", Limit: 100, Remaining: -1, Reset: -1, Window: span(10), Rate: 100 / 10.01},
		{Source: "refusals", Limit: -1, Remaining: -1, Reset: -1, Rate: 7},
	}
	got := l.All(sec(1))
	for i := range got {
		if near(float64(got[i].Rate), float64(want[i].Rate)) {
			want[i].Rate = got[i].Rate
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	x.left, x.until, x.shut = -3, sec(0.5), time.Time{}
	if got := x.view(sec(1), 0); got.Remaining != 0 || got.Reset != 0 {
		t.Errorf("overdrawn: %+v", got)
	}
	for left, want := range map[float64]int64{1 << 62: 1 << 62, 1 << 63: 1<<63 - 1024, math.MaxFloat64: 1<<63 - 1024} {
		big := &ToldQuota{Quota: hint.Quota{Limit: math.MaxInt64, Remaining: math.MaxInt64}, size: left, left: left, leftAt: sec(0), perCall: 1}
		if got := big.view(sec(1), 0).Remaining; got != want {
			t.Errorf("%v left are shown as %d, want %d", left, got, want)
		}
	}
	x.Remaining = 0
	if got := told(100, 1).view(sec(1), 0); got.Rate != rate.Inf || x.view(sec(1), 0).Remaining != 0 {
		t.Errorf("alone and short: %+v; nothing remaining: %+v", got, x.view(sec(1), 0))
	}
	l.Finder = nil
	if got := l.All(sec(11))[0]; got.Remaining != 100 || strings.Contains(got.Name, "y") {
		t.Errorf("in the next window: %+v", got)
	}
}
