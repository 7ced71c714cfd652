package upstream

import (
	"testing"
	"time"

	"github.com/go-throttle/throttle/hint"
)

// A window whose length is not advertised is guessed a second less than the longest, and found once it cannot be
// longer.
func TestGuess(t *testing.T) {
	day := 86400.0
	for name, c := range map[string]struct {
		q               func(q *quota)
		resets          []float64
		window, longest float64
		found           bool
	}{
		"half a second":          {func(*quota) {}, []float64{0.5}, 0.5, 0.5, false},
		"half a second and more": {func(*quota) {}, []float64{0.5, 0.7}, 0.7, 0.7, false},
		"half a second and less": {func(*quota) {}, []float64{0.5, 0.4}, 0.5, 0.5, false},
		"nothing":                {func(*quota) {}, []float64{0.001}, 0.01, 0.001, false},
		"a second":               {func(*quota) {}, []float64{1}, 1, 1, true},
		"less than two":          {func(*quota) {}, []float64{1.9}, 1, 1.9, false},
		"two seconds":            {func(*quota) {}, []float64{2}, 1, 2, false},
		"ten seconds":            {func(*quota) {}, []float64{10}, 9, 10, false},
		"ten, found":             {func(q *quota) { q.window, q.longest, q.found = 10e9, 10e9, true }, []float64{9.7}, 10, 10, true},
		"longer, in the second":  {func(q *quota) { q.window, q.longest, q.found = 9e9, 10e9, true }, []float64{10.5}, 9, 10.5, true},
		"longer than was found":  {func(q *quota) { q.window, q.longest, q.found = 9e9, 10e9, true }, []float64{12}, 11, 12, false},
		"as long as the longest": {func(q *quota) { q.window, q.longest = 10e9, 10e9 }, []float64{3}, 10, 10, true},
		"maybe longer":           {func(q *quota) { q.window, q.longest, q.longer = 10e9, 10e9, time.Second }, []float64{3}, 10, 10, false},
		"not longer":             {func(q *quota) { q.window, q.longest, q.longer = 11e9, 10e9, time.Second }, []float64{3}, 11, 10, true},
		"rolling":                {func(q *quota) { q.rolling = true }, []float64{10.7}, 10, 10.7, false},
		"rolling, less later":    {func(q *quota) { q.rolling = true }, []float64{10.7, 3}, 10, 10.7, false},
		"rolling, short":         {func(q *quota) { q.rolling = true }, []float64{0.3}, 0.3, 0.3, false},
		"rolling, of nothing":    {func(q *quota) { q.rolling = true }, []float64{0.001}, 0.01, 0.001, false},
		"rolling, found":         {func(q *quota) { q.rolling, q.window, q.longest, q.found = true, 5e9, 5e9, true }, []float64{3}, 5, 5, true},
		"longer than believed":   {func(*quota) {}, []float64{day}, 0, 0, false},
		"nearly":                 {func(*quota) {}, []float64{day - 1}, day - 2, day - 1, false},
		"no reset":               {func(*quota) {}, []float64{-1e-9}, 0, 0, false},
		"advertised":             {func(q *quota) { q.Window, q.window = 5e9, 5e9 }, []float64{10}, 5, 0, false},
		"advertised by a rate":   {func(q *quota) { q.Rate, q.window = 1, 5e9 }, []float64{10}, 5, 0, false},
	} {
		q := with(&quota{perCall: 1}, c.q)
		for _, reset := range c.resets {
			q.guess(span(reset))
		}
		if q.window != span(c.window) || q.longest != span(c.longest) || q.found != c.found {
			t.Errorf("%s: window %v, longest reset %v, found %v; want %v, %v, %v", name, q.window, q.longest, q.found, c.window, c.longest, c.found)
		}
	}
	if advertised(1, 1).sure() != true || guessed(1, 1, 1).sure() || with(guessed(1, 1, 1), func(q *quota) { q.Rate = 1 }).sure() != true {
		t.Error("a window is sure if it is advertised, or if its rate is")
	}
}

// One call asks whether a guessed window is over: where none is in flight, nobody else is seen, and the guess
// ends before the advertised reset.
func TestOneCallAsks(t *testing.T) {
	for name, c := range map[string]struct {
		q    func(q *quota)
		want bool
	}{
		"guessed":            {func(*quota) {}, true},
		"a call is out":      {func(q *quota) { q.calls = 1 }, false},
		"advertised":         {func(q *quota) { q.Window = q.window }, false},
		"found":              {func(q *quota) { q.found = true }, false},
		"shared":             {func(q *quota) { q.shared = at(9) }, false},
		"the reset is first": {func(q *quota) { q.until = at(9.1) }, false},
		"the reset is later": {func(q *quota) { q.until = at(9.2) }, true},
	} {
		q := with(guessed(100, 9, 10), c.q)
		if got := q.asks(at(1), span(0.1)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	q := guessed(100, 9, 10)
	q.began = at(2)
	if got := q.due(span(0.1)); !got.Equal(at(11.1)) {
		t.Errorf("due after %v, want 11.1 s", got.Sub(zero))
	}
}

// If the call that asked is served the window is found; if it is throttled the guess grows by a second, as far
// as the longest reset, and what it may be longer, reach.
func TestAnswerToTheCallThatAsked(t *testing.T) {
	for name, c := range map[string]struct {
		q           func(q *quota)
		throttled   bool
		sent        float64
		window      float64
		found, over bool
	}{
		"served":                  {func(*quota) {}, false, 9, 9, true, true},
		"throttled":               {func(*quota) {}, true, 9, 10, false, true},
		"throttled, no longer":    {func(q *quota) { q.window = 10e9 }, true, 9, 10, false, true},
		"throttled, maybe longer": {func(q *quota) { q.window, q.longer = 10e9, time.Second }, true, 9, 11, false, true},
		"throttled, rounded":      {func(q *quota) { q.window, q.longest = 9.5e9, 9.7e9 }, true, 9, 10, false, true},
		"throttled, too long":     {func(q *quota) { q.window = 11e9 }, true, 9, 11, false, true},
		"another's, before":       {func(*quota) {}, false, 8.9, 9, false, false},
		"nobody asked":            {func(q *quota) { q.asked = time.Time{} }, false, 9, 9, false, true},
		"the reset came":          {func(q *quota) { q.began = at(9.5) }, false, 9, 9, false, true},
		"as it turned":            {func(q *quota) { q.began = at(9) }, false, 9, 9, true, true},
	} {
		q := with(guessed(100, 9, 10), func(q *quota) { q.asked = at(9); c.q(q) })
		q.answered(c.throttled, at(c.sent))
		if q.window != span(c.window) || q.found != c.found || q.asked.IsZero() != c.over {
			t.Errorf("%s: window %v, found %v, asked %v", name, q.window, q.found, q.asked)
		}
	}
}

// observe calls answered too: the answer to the call that asked is taken in before what it advertises.
func TestObservingTheAnswer(t *testing.T) {
	q := guessed(100, 9, 10)
	q.left, q.asked = 0, at(9)
	q.observe(hint.Quota{Limit: 100, Remaining: 99, Reset: span(10)}, &Answer{Sent: at(9)}, at(9.1), 0)
	if !q.found || q.window != span(9) || q.left != 99 {
		t.Errorf("found %v: window %v, %v left", q.found, q.window, q.left)
	}
}

// Own units are counted in slots of a 32nd of the span: what is older is not counted, what undoes takes away.
func TestTally(t *testing.T) {
	var r tallyRing
	if got := r.sum(zero, time.Hour); got != 0 {
		t.Errorf("%v of nothing", got)
	}
	r.add(3, zero, 32*time.Second)
	r.add(2, at(0.9), 32*time.Second)
	r.add(1, at(1), 32*time.Second)
	r.add(-2, at(0.9), 32*time.Second) // undone: taken from the newest
	for _, c := range []struct{ now, span, want float64 }{
		{1, 32, 4}, {1, 0, 4}, {2, 1, 4}, {2.1, 1, -1}, {2, 0, -1}, {2.1, 0, 0}, {33, 32, 4}, {33.1, 32, -1}, {34.1, 32, 0},
	} {
		if got := r.sum(at(c.now), span(c.span)); got != c.want {
			t.Errorf("%v in the %v s before %v, want %v", got, c.span, c.now, c.want)
		}
	}
	if r.width != time.Second || !r.last.Equal(at(1)) {
		t.Errorf("slots of %v, the newest from %v", r.width, r.last.Sub(zero))
	}
	var long tallyRing
	if long.add(1, zero, 0); long.width != noWindowGiven/tallySlots {
		t.Errorf("no window: slots of %v, want a 32nd of a minute", long.width)
	}
	var tiny tallyRing
	last := r.last
	if r.add(1, at(-10), 32*time.Second); !r.last.Equal(last) {
		t.Errorf("what is counted late moves the newest slot from %v to %v", last.Sub(zero), r.last.Sub(zero))
	}
	if tiny.add(1, zero, 1); tiny.width != 1 || tiny.sum(zero, 1) != 1 {
		t.Errorf("a window of 1 ns: slots of %v", tiny.width)
	}
}

// Slots that grow keep what is in them, where it was, and the ring goes round.
func TestTallyGrowsAndGoesRound(t *testing.T) {
	var r tallyRing
	for i := range 10 {
		r.add(float64(i), at(float64(i)), 32*time.Second)
	}
	r.add(0, at(9), 64*time.Second)
	if r.width != 2*time.Second {
		t.Errorf("slots of %v, want 2 s", r.width)
	}
	for _, c := range []struct{ span, want float64 }{{0, 17}, {2, 30}, {3.9, 30}, {4, 39}, {100, 45}} {
		if got := r.sum(at(10), span(c.span)); got != c.want {
			t.Errorf("%v in %v s, want %v", got, c.span, c.want)
		}
	}
	for i := 10; i < 300; i++ {
		r.add(1, at(float64(i)), 64*time.Second)
	}
	if got := r.sum(at(299), 64*time.Second); got < 64 || got > 68 {
		t.Errorf("%v in 64 s of one a second", got)
	}
	if r.add(1, at(10_000), 64*time.Second); r.sum(at(10_000), 64*time.Second) != 1 {
		t.Errorf("%v after a long rest, want 1", r.sum(at(10_000), 64*time.Second))
	}
}
