package upstream

import (
	"math"
	"testing"
	"time"

	"github.com/go-throttle/throttle/hint"
)

// span is so many seconds.
func span(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

// advertised is a quota whose window is advertised, at zero with everything left.
func advertised(limit int64, window float64) *quota {
	size := float64(limit)
	return &quota{Quota: hint.Quota{Limit: limit, Remaining: limit, Window: span(window)}, perCall: 1,
		size: size, left: size, leftAt: zero, began: zero, until: at(window), window: span(window)}
}

// guessed is the same where only resets say something of the window.
func guessed(limit int64, window, longest float64) *quota {
	q := advertised(limit, window)
	q.Window, q.longest, q.until = 0, span(longest), at(longest)
	return q
}

func with(q *quota, change func(*quota)) *quota {
	change(q)
	return q
}

func near(a, b float64) bool {
	return a == b || math.Abs(a-b) < 1e-9*math.Abs(b)
}

// A call takes one request, its own cost where no unit is advertised, and what is learned where only the
// upstream can count.
func TestWeightOfACall(t *testing.T) {
	for unit, want := range map[string]float64{"requests": 1, "request": 1, "": 3, "tokens": 50} {
		q := &quota{Quota: hint.Quota{Unit: unit}, perCall: 50}
		if got := q.weight(3); got != want {
			t.Errorf("unit %q: %v, want %v", unit, got, want)
		}
		if got := q.counted(); got != (unit == "tokens") {
			t.Errorf("unit %q: counted by the upstream alone: %v", unit, got)
		}
	}
}

// What may be sent is what was advertised, less those in flight, with what a rolling quota has given back
// since, or less half of what others have taken since.
func TestRemaining(t *testing.T) {
	for name, c := range map[string]struct {
		q    func(q *quota)
		want float64
	}{
		"advertised":                        {func(q *quota) {}, 50},
		"in flight":                         {func(q *quota) { q.calls, q.units = 2, 10 }, 40},
		"in flight, of unknown cost":        {func(q *quota) { q.Unit, q.perCall, q.calls, q.units = "tokens", 5, 3, 99 }, 35},
		"others":                            {func(q *quota) { q.shared, q.others = at(9), 10 }, 40},
		"others, no longer there":           {func(q *quota) { q.shared, q.others = at(2), 10 }, 50},
		"rolling":                           {func(q *quota) { q.rolling = true }, 70},
		"rolling, full again":               {func(q *quota) { q.rolling, q.left = true, 95 }, 100},
		"rolling, full but those out":       {func(q *quota) { q.rolling, q.left, q.units = true, 95, 10 }, 90},
		"rolling, in no known time":         {func(q *quota) { q.rolling, q.window = true, 0 }, 50},
		"rolling, in no known time, others": {func(q *quota) { q.rolling, q.window, q.shared, q.others = true, 0, at(9), 10 }, 40},
	} {
		q := with(advertised(100, 10), func(q *quota) { q.left = 50; c.q(q) })
		if got := q.remaining(at(2)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A window turns at its advertised end; one that nobody was there for is not waited out again; a rolling quota
// and one without an end never turn.
func TestWindowTurns(t *testing.T) {
	for name, c := range map[string]struct {
		q            func(q *quota)
		now          float64
		turned       bool
		began, until time.Time
	}{
		"before the end":       {func(*quota) {}, 9.9, false, zero, at(10)},
		"at the end":           {func(*quota) {}, 10, true, at(10), at(20)},
		"later":                {func(*quota) {}, 13, true, at(10), at(20)},
		"after a whole window": {func(*quota) {}, 20, true, at(20), at(30)},
		"of no known length":   {func(q *quota) { q.window = 0 }, 13, true, at(10), time.Time{}},
		"rolling":              {func(q *quota) { q.rolling = true }, 13, false, zero, at(10)},
		"no end advertised":    {func(q *quota) { q.until = time.Time{} }, 13, false, zero, time.Time{}},
	} {
		q := with(advertised(100, 10), func(q *quota) { q.left, q.answers = 7, 5; c.q(q) })
		q.turn(at(c.now))
		left, leftAt, answers := 7.0, zero, 5.0
		if c.turned {
			left, leftAt, answers = 100, at(c.now), 0
		}
		if q.fresh != c.turned || q.left != left || !q.leftAt.Equal(leftAt) || q.answers != answers || !q.began.Equal(c.began) || !q.until.Equal(c.until) {
			t.Errorf("%s: fresh %v, %v left at %v, %v answers, from %v until %v", name, q.fresh, q.left, q.leftAt, q.answers, q.began, q.until)
		}
	}
}

// One who is alone may go by his own starts, unless it is not known how fast a rolling quota gives back.
func TestAloneOrShared(t *testing.T) {
	for name, c := range map[string]struct {
		q          func(q *quota)
		alone, own bool
	}{
		"advertised":               {func(*quota) {}, true, true},
		"shared no longer":         {func(q *quota) { q.shared = at(1) }, true, true},
		"shared":                   {func(q *quota) { q.shared = at(1.1) }, false, false},
		"no window":                {func(q *quota) { q.window = 0 }, false, false},
		"a limit of one":           {func(q *quota) { q.Limit = 1 }, true, true},
		"no limit":                 {func(q *quota) { q.Limit = 0 }, false, false},
		"counted by the upstream":  {func(q *quota) { q.Unit = "tokens" }, false, false},
		"window guessed":           {func(q *quota) { q.Window = 0 }, true, true},
		"rolling":                  {func(q *quota) { q.rolling = true }, true, true},
		"rolling, window guessed":  {func(q *quota) { q.rolling, q.Window = true, 0 }, true, false},
		"rolling, rate advertised": {func(q *quota) { q.rolling, q.Window, q.Rate = true, 0, 10 }, true, true},
		"rolling, window found":    {func(q *quota) { q.rolling, q.Window, q.found = true, 0, true }, true, true},
	} {
		q := with(advertised(100, 10), c.q)
		if alone, own := q.alone(at(1)), q.own(at(1)); alone != c.alone || own != c.own {
			t.Errorf("%s: alone %v, by own starts %v; want %v, %v", name, alone, own, c.alone, c.own)
		}
	}
}

// When a call may go: within what remains while others are there or the window is a guess, within one's
// own starts while one is alone.
func TestReady(t *testing.T) {
	logged := func(q *quota) { // three of three, 100 ms apart
		*q = *advertised(3, 1)
		q.until = at(5)
		for i := range 3 {
			q.count(1, at(float64(i)/10))
		}
	}
	spent := func(q *quota) { *q = *advertised(100, 2); q.until, q.left = at(8), 0 }
	for name, c := range map[string]struct {
		q    func(q *quota)
		n    int
		want float64
	}{
		"something left":                          {func(*quota) {}, 1, 1},
		"spaced":                                  {func(q *quota) { q.next = at(3) }, 1, 3},
		"closed":                                  {func(q *quota) { q.closedUntil = at(3) }, 1, 3},
		"shared":                                  {func(q *quota) { q.shared, q.next = at(9), at(3) }, 1, 3},
		"shared, just enough":                     {func(q *quota) { q.shared, q.left = at(9), 5 }, 5, 1},
		"shared, one less":                        {func(q *quota) { q.shared, q.left = at(9), 4 }, 5, 10},
		"shared, closed for longer":               {func(q *quota) { q.shared, q.left, q.closedUntil = at(9), 4, at(12) }, 5, 12},
		"shared, more than there is":              {func(q *quota) { q.shared = at(9) }, 500, 1},
		"alone, advertised, all used":             {func(q *quota) { q.left = 0; q.count(100, at(0.5)) }, 1, 1},
		"the window has turned":                   {func(q *quota) { q.shared, q.left, q.until = at(9), 0, at(1) }, 1, 1},
		"guessed, enough":                         {func(q *quota) { *q = *guessed(100, 5, 10); q.next = at(2) }, 1, 2},
		"guessed, spent, one asks":                {func(q *quota) { *q = *guessed(100, 5, 10); q.left = 0; q.count(100, zero) }, 1, 5.1},
		"guessed, spent, one is out":              {func(q *quota) { *q = *guessed(100, 5, 10); q.left, q.calls = 0, 1 }, 1, 10},
		"short: the oldest leaves":                {logged, 1, 1.1},
		"short: two leave":                        {logged, 2, 1.2},
		"short: as many as there are":             {logged, 9, 1.3},
		"short: shared":                           {func(q *quota) { logged(q); q.shared, q.next = at(9), at(1.01) }, 1, 1.01},
		"short, closed":                           {func(q *quota) { logged(q); q.closedUntil = at(3) }, 1, 3},
		"guessed, spent, closed":                  {func(q *quota) { *q = *guessed(100, 5, 10); q.left, q.closedUntil = 0, at(7); q.count(100, zero) }, 1, 7},
		"one was left when we came":               {func(q *quota) { spent(q); q.left = 1 }, 1, 1},
		"spent before we came, no end advertised": {func(q *quota) { spent(q); q.until = time.Time{} }, 1, 1},
		"spent before we came":                    {spent, 1, 8},
		"spent before we came, closed":            {func(q *quota) { spent(q); q.closedUntil = at(9) }, 1, 9},
		"spent, own calls are out":                {func(q *quota) { spent(q); q.calls = 1 }, 1, 1},
		"spent by ourselves":                      {func(q *quota) { spent(q); q.count(1, at(0.5)) }, 1, 1},
		"spent, and over":                         {func(q *quota) { spent(q); q.until = at(0.5) }, 1, 1},
		"spent, but rolling":                      {func(q *quota) { spent(q); q.rolling = true }, 1, 1},
		"rolling, guessed, nothing, none out":     {func(q *quota) { *q = *guessed(100, 10, 10); q.rolling, q.left, q.leftAt = true, 0, at(0.95) }, 1, 1.15},
	} {
		q := with(advertised(100, 10), c.q)
		if got := q.ready(c.n, at(1), at(1), span(0.1)); !got.Equal(at(c.want)) {
			t.Errorf("%s: after %v, want %v", name, got.Sub(zero), span(c.want))
		}
	}
}

// When units are there again, as far as is known.
func TestRefill(t *testing.T) {
	for name, c := range map[string]struct {
		q    func(q *quota)
		want float64
	}{
		"at the advertised end":               {func(q *quota) {}, 10},
		"rolling: asked again":                {func(q *quota) { q.rolling = true }, 0.2},
		"rolling: as it gives back":           {func(q *quota) { q.rolling, q.calls = true, 1 }, 1 + 3.9},
		"rolling: not in no time":             {func(q *quota) { q.rolling, q.calls, q.left = true, 1, 39.999 }, 1.001},
		"rolling: of no known length":         {func(q *quota) { q.rolling, q.calls, q.window = true, 1, 0 }, 10},
		"no end advertised: a call is out":    {func(q *quota) { q.calls, q.until = 1, time.Time{} }, 2},
		"no end advertised: after the window": {func(q *quota) { q.until = time.Time{} }, 10},
		"nothing advertised: after a second":  {func(q *quota) { q.until, q.window = time.Time{}, 0 }, 1},
	} {
		q := with(advertised(100, 10), func(q *quota) { q.left = 1; c.q(q) })
		if got := q.refill(50, at(1)); got.Sub(at(c.want)).Abs() > time.Microsecond {
			t.Errorf("%s: after %v, want %v", name, got.Sub(zero), span(c.want))
		}
	}
}

// The pace of one who is alone, of a rolling quota and of one whose end is not advertised.
func TestPace(t *testing.T) {
	for name, c := range map[string]struct {
		q    func(q *quota)
		want float64
	}{
		"alone, short":                   {func(q *quota) { *q = *advertised(100, 2) }, math.Inf(1)},
		"alone, short, too many":         {func(q *quota) { *q = *advertised(5000, 2) }, 5000 / 2.11},
		"alone, long":                    {func(q *quota) {}, 100 / 10.11},
		"alone, rolling, guessed":        {func(q *quota) { q.rolling, q.Window, q.left = true, 0, 50; q.leftAt = at(1) }, 100 / 10.11 * 1.5},
		"alone, rolling, guessed, spent": {func(q *quota) { q.rolling, q.Window, q.left, q.calls, q.units = true, 0, 0, 9, 9; q.leftAt = at(1) }, 100 / 10.11},
		"rolling, half left":             {func(q *quota) { q.rolling, q.shared, q.Window, q.left, q.leftAt = true, at(9), 0, 50, at(1) }, 10},
		"rolling, of no known length": {func(q *quota) {
			q.rolling, q.shared, q.Window, q.window, q.left = true, at(9), 0, 0, 45
			q.leftAt = at(1)
		}, 5},
		"rolling, full":                 {func(q *quota) { q.rolling, q.shared, q.Window, q.leftAt = true, at(9), 0, at(1) }, 100 / 1e-3},
		"shared, advertised, short":     {func(q *quota) { *q = *advertised(100, 2); q.shared = at(9) }, 100},
		"shared, advertised, above 2 s": {func(q *quota) { *q = *advertised(100, 3); q.shared, q.until = at(9), at(1.5) }, 100 / 3.0},
		"shared, advertised, slower":    {func(q *quota) { q.shared, q.left = at(9), 45 }, 5},
		"shared, no end advertised":     {func(q *quota) { q.shared, q.until = at(9), time.Time{} }, 100 / 10.11},
		"shared, nothing advertised":    {func(q *quota) { q.until, q.window = time.Time{}, 0 }, math.Inf(1)},
	} {
		q := with(advertised(100, 10), c.q)
		if got := q.pace(at(1), min(span(0.1), q.window)); !near(got, c.want) {
			t.Errorf("%s: %v a second, want %v", name, got, c.want)
		}
	}
}

// The next start is spaced from the last, with at most 1/100 of the window and 10 ms of unused time caught
// up with; with a sixteenth of it while the window is a guess, nobody else is seen and a quarter is left.
func TestSpacing(t *testing.T) {
	even := 1 / (100 / 10.01) // seconds for a unit
	for name, c := range map[string]struct {
		q          func(q *quota)
		n          int
		want, step float64
	}{
		"after a rest":        {func(*quota) {}, 1, 5 - 0.01 + even, even},
		"three units":         {func(*quota) {}, 3, 5 - 0.01 + 3*even, 3 * even},
		"one after the other": {func(q *quota) { q.next = at(5.5) }, 1, 5.5 + even, even},
		"short":               {func(q *quota) { *q = *advertised(100, 2) }, 1, 0, 0},
		"short, 1/100":        {func(q *quota) { *q = *advertised(5000, 0.5); q.until = at(9) }, 1, 5 - 0.005 + 0.505/5000, 0.505 / 5000},
		"shared, guessed":     {func(q *quota) { q.Window, q.shared = 0, at(9) }, 1, 5 - 0.625 + 0.05, 0.05},
		"shared, seen":        {func(q *quota) { q.Window, q.shared, q.seen = 0, at(9), true }, 1, 5 - 0.01 + 0.05, 0.05},
		"seen, now alone":     {func(q *quota) { q.Window, q.seen = 0, true }, 1, 5 - 0.625 + even, even},
		"guessed, most used":  {func(q *quota) { q.Window, q.shared = 0, at(9); q.sent.add(74.5, at(1), q.window) }, 1, 5 - 0.01 + 0.05, 0.05},
		"guessed, 3/4 used":   {func(q *quota) { q.Window, q.shared = 0, at(9); q.sent.add(74, at(1), q.window) }, 1, 5 - 0.625 + 0.05, 0.05},
		"far off":             {func(q *quota) { q.size, q.window, q.Window = 1, 31*24*time.Hour, 31*24*time.Hour }, 1, 5 - 0.01 + 86400, 86400},
	} {
		q := with(advertised(100, 10), c.q)
		q.take(c.n, at(5), 0)
		if c.want == 0 && !q.next.IsZero() || c.want != 0 && q.next.Sub(at(c.want)).Abs() > 2 || (q.step-span(c.step)).Abs() > 2 {
			t.Errorf("%s: next after %v, by %v; want %v, %v", name, q.next.Sub(zero), q.step, span(c.want), span(c.step))
		}
		if q.calls != 1 || q.units != float64(c.n) || q.sent.sum(at(5), time.Second) != float64(c.n) {
			t.Errorf("%s: %d calls, %v units in flight, %v sent", name, q.calls, q.units, q.sent.sum(at(5), time.Second))
		}
	}
}

// A start that is undone leaves nothing behind: neither in flight, nor in the window, nor in the spacing.
func TestUndo(t *testing.T) {
	for name, make := range map[string]func() *quota{
		"short": func() *quota { return advertised(100, 2) },
		"long":  func() *quota { return advertised(100, 10) },
	} {
		q := make()
		q.until = at(20)
		q.take(2, at(4), 0)
		next, logged := q.next, len(q.log)
		q.take(3, at(5), 0)
		q.undo(3, at(5))
		if q.calls != 1 || q.units != 2 || q.answers != 0 || q.sentInWindow(at(5)) != 2 || len(q.log) != logged || q.sum != 2*float64(logged) {
			t.Errorf("%s: %d calls, %v units in flight, %v answers, %v sent, %d of %v remembered",
				name, q.calls, q.units, q.answers, q.sentInWindow(at(5)), len(q.log), q.sum)
		}
		if step := span(3 * 10.01 / 100); name == "long" && !q.next.Equal(at(5-0.01)) && !q.next.Equal(next) {
			t.Errorf("%s: next %v, was %v, step %v", name, q.next.Sub(zero), next.Sub(zero), step)
		}
		was := q.next
		if q.undo(2, at(4)); q.next != was || q.calls != 0 || q.units != 0 || q.sum != 0 {
			t.Errorf("%s: only the last start gives its place back: next %v, was %v", name, q.next.Sub(zero), was.Sub(zero))
		}
	}
	q := advertised(100, 2)
	for i := range 3 {
		q.take(1+i, at(float64(i)/2), 0)
	}
	if q.undo(2, at(0.5)); len(q.log) != 2 || q.sum != 4 || q.log[0].units != 1 || q.log[1].units != 3 {
		t.Errorf("undone in the midst: %v of %v remembered, want that of 1 and that of 3", q.log, q.sum)
	}
	q = advertised(100, 10)
	q.take(1, at(1), 0)
	q.window = time.Second
	q.take(1, at(2), 0)
	if next := q.next; next.IsZero() {
		t.Error("a long window is not spaced")
	} else if q.undo(1, at(2)); q.next != next {
		t.Errorf("a start that was not spaced gives back %v", next.Sub(q.next))
	}
	q = guessed(1, 5, 10)
	q.left = 0.5
	if q.take(3, at(6), 0); !q.asked.Equal(at(6)) {
		t.Fatalf("asked at %v", q.asked)
	}
	full := guessed(1, 5, 10)
	if full.take(3, at(6), 0); !full.asked.IsZero() {
		t.Error("a call that costs more than the limit asks, though all of it is left")
	}
	if q.undo(1, at(5)); q.asked.IsZero() {
		t.Error("another call that was not made ends the asking")
	}
	if q.undo(1, at(6)); !q.asked.IsZero() {
		t.Error("a call that was not made still asks")
	}
}

// A call that lands is no longer in flight, and was answered; more landings than starts are nothing.
func TestLanded(t *testing.T) {
	q := advertised(100, 10)
	q.take(2, at(1), 0)
	q.take(3, at(1), 0)
	if q.ended(2); q.calls != 1 || q.units != 3 || q.answers != 2 {
		t.Errorf("%d calls, %v units, %v answers; want 1, 3, 2", q.calls, q.units, q.answers)
	}
	if q.ended(1); q.calls != 0 || q.units != 0 || q.answers != 3 {
		t.Errorf("the last: %d calls, %v units, %v answers; want 0, 0, 3", q.calls, q.units, q.answers)
	}
	q.calls, q.units = 2, 1
	if q.ended(3); q.calls != 1 || q.units != 0 {
		t.Errorf("%d calls, %v units; want 1, 0", q.calls, q.units)
	}
	q.ended(1)
	if q.ended(1); q.calls != 0 {
		t.Errorf("%d calls", q.calls)
	}
}

// A quota is spent while it is closed, and if its end is advertised and less than one is left of it.
func TestSpent(t *testing.T) {
	for name, c := range map[string]struct {
		q    func(q *quota)
		want float64
	}{
		"something left":        {func(*quota) {}, -1},
		"nothing left":          {func(q *quota) { q.left = 0.5 }, 10},
		"one left":              {func(q *quota) { q.left = 1 }, -1},
		"all in flight":         {func(q *quota) { q.left, q.units = 5, 5 }, -1},
		"closed":                {func(q *quota) { q.closedUntil = at(3) }, 3},
		"closed no longer":      {func(q *quota) { q.closedUntil = at(1) }, -1},
		"rolling":               {func(q *quota) { q.left, q.rolling, q.window = 0, true, time.Hour }, -1},
		"no end advertised":     {func(q *quota) { q.left, q.until = 0, time.Time{} }, -1},
		"alone, short":          {func(q *quota) { *q = *advertised(100, 2); q.left = 0 }, -1},
		"shared, short":         {func(q *quota) { *q = *advertised(100, 2); q.left, q.shared = 0, at(9) }, 2},
		"the window has turned": {func(q *quota) { q.left, q.until = 0, at(1) }, -1},
	} {
		q := with(advertised(100, 10), c.q)
		until := q.spent(at(1))
		if until.IsZero() != (c.want < 0) || c.want > 0 && !until.Equal(at(c.want)) {
			t.Errorf("%s: until %v, want %v", name, until.Sub(zero), span(c.want))
		}
	}
}

// What is predicted for a call: the spacing of those before it, the turns of the window that they need.
func TestPrediction(t *testing.T) {
	for name, c := range map[string]struct {
		q     func(q *quota)
		ahead int64
		want  float64
	}{
		"at once":                         {func(q *quota) { *q = *advertised(100, 2) }, 0, 1},
		"closed":                          {func(q *quota) { *q = *advertised(100, 2); q.closedUntil = at(1.5) }, 0, 1.5},
		"spaced":                          {func(q *quota) { q.shared = at(9) }, 50, 1 + 50/(100/10.0)},
		"spaced from the next":            {func(q *quota) { q.shared, q.next = at(9), at(2) }, 50, 2 + 50/(100/10.0)},
		"all that is left":                {func(q *quota) { *q = *advertised(100, 2) }, 99, 1},
		"one more than is left":           {func(q *quota) { *q = *advertised(100, 2) }, 100, 2},
		"two windows":                     {func(q *quota) { *q = *advertised(100, 2) }, 199, 2},
		"three windows":                   {func(q *quota) { *q = *advertised(100, 2) }, 200, 4},
		"within a guess":                  {func(q *quota) { *q = *guessed(100, 2, 10) }, 0, 1},
		"alone again":                     {func(q *quota) { *q = *advertised(100, 2); q.next = at(5) }, 0, 1},
		"closed for longer":               {func(q *quota) { *q = *advertised(100, 2); q.closedUntil = at(5) }, 100, 5},
		"spaced, counted by the upstream": {func(q *quota) { q.Unit, q.perCall, q.shared = "tokens", 2, at(9) }, 25, 6},
		"rolling":                         {func(q *quota) { *q = *advertised(100, 2); q.rolling = true }, 200, 1},
		"no end advertised":               {func(q *quota) { *q = *advertised(100, 2); q.until = time.Time{} }, 200, 1},
		"counted by the upstream":         {func(q *quota) { *q = *advertised(100, 2); q.Unit, q.perCall, q.shared = "tokens", 10, at(9) }, 20, 4},
		"no further than a day":           {func(q *quota) { *q = *advertised(100, 2) }, 1e12, 2 + 86400},
		"nor spaced":                      {func(q *quota) { q.until = time.Time{} }, 1e12, 1 + 86400},
	} {
		q := with(advertised(100, 10), c.q)
		if got := q.after(at(1), c.ahead, 1, 0); got.Sub(at(c.want)).Abs() > time.Microsecond {
			t.Errorf("%s: after %v, want %v", name, got.Sub(zero), span(c.want))
		}
	}
}

// Of starts that are remembered one by one, those older than a window and the spread are forgotten.
func TestStartsAreForgottenAfterAWindow(t *testing.T) {
	q := advertised(100, 2)
	for i := range 3 {
		q.count(0.1, at(float64(i)))
	}
	if q.trim(at(2.09), span(0.1)); len(q.log) != 3 {
		t.Errorf("%d remembered after 2.09 s, want 3", len(q.log))
	}
	if q.trim(at(2.1), span(0.1)); len(q.log) != 2 || !near(q.sum, 0.2) {
		t.Errorf("%d remembered after 2.1 s, %v units; want 2, 0.2", len(q.log), q.sum)
	}
	if q.trim(at(9), span(0.1)); len(q.log) != 0 || q.sum != 0 {
		t.Errorf("%d remembered after 9 s, %v units; want none", len(q.log), q.sum)
	}
	if q.count(1, at(9)); len(q.log) != 1 {
		t.Errorf("%d remembered, want 1", len(q.log))
	}
	q.size = maxLog + 1
	if q.count(1, at(9)); q.log != nil || q.sum != 0 {
		t.Errorf("%d of %v remembered where there are too many", len(q.log), q.sum)
	}
}

// Starts are remembered one by one where the window is at most 2 s and of at most 4096.
func TestWhatIsRememberedOneByOne(t *testing.T) {
	for _, c := range []struct {
		limit  int64
		window float64
		want   bool
	}{{4096, 2, true}, {4097, 2, false}, {4096, 2.001, false}} {
		if got := advertised(c.limit, c.window).logs(); got != c.want {
			t.Errorf("%d in %v s: %v", c.limit, c.window, got)
		}
	}
}

// A turn that a waiting call finds is there for the pace of the next.
func TestReadyTurnsTheWindow(t *testing.T) {
	q := advertised(100, 10)
	q.left, q.shared = 0, at(99)
	if q.ready(1, at(12), at(12), 0); q.left != 100 || !q.until.Equal(at(20)) {
		t.Errorf("%v left until %v, want 100 until 20s", q.left, q.until.Sub(zero))
	}
}

// Own starts are counted over the window, or the longest that it may be.
func TestSpanOfAWindow(t *testing.T) {
	for _, c := range [][3]float64{{5, 0, 5}, {5, 10, 10}, {10, 5, 10}} {
		if got := guessed(100, c[0], c[1]).span(); got != span(c[2]) {
			t.Errorf("window %v, longest reset %v: %v", c[0], c[1], got)
		}
	}
}
