package learn

import (
	"testing"
	"time"

	"github.com/go-throttle/throttle/hint"
)

// answer is a quota as an answer tells it; -1: not told.
func answer(limit, remaining int64, reset, window float64) hint.Quota {
	return hint.Quota{Limit: limit, Remaining: remaining, Reset: span(reset), Window: span(window)}
}

// What the first answer tells: how much is left until when, whether others have spent it, and what was sent
// before it.
func TestFirstTold(t *testing.T) {
	for name, c := range map[string]struct {
		told          hint.Quota
		before        float64
		size, window  float64
		left          float64
		until, shared float64 // 0: none
		next          float64
	}{
		"all told":                          {answer(100, 90, 10, 10), 4, 100, 10, 90, 10, 1.25, 0},
		"a short window":                    {answer(100, 90, 1, 1), 4, 100, 1, 90, 1, 0.125, 0},
		"a day":                             {answer(100, 90, 10, 86400), 4, 100, 86400, 90, 10, 2, 0},
		"longer than believed":              {answer(100, 90, 2*86400, 60), 4, 100, 60, 90, 86400, 2, 0},
		"over at once":                      {answer(100, 90, 0, 10), 4, 100, 10, 90, 0.01, 1.25, 0},
		"too short for a timer":             {answer(100, 90, 0.001, 0.001), 4, 100, 0.01, 90, 0.01, 0.125, 0},
		"no reset told":                     {answer(100, 90, -1e-9, 10), 4, 100, 10, 90, 0, 1.25, 0},
		"more than the limit":               {answer(100, 120, 10, 10), 4, 100, 10, 100, 10, 1.25, 0},
		"no limit told":                     {answer(-1, 90, 10, 10), 4, 90, 10, 90, 10, 1.25, 0},
		"nothing told but the end":          {answer(-1, 0, 10, 0), 4, 1, 9, 0, 10, 0.125, -10 / 16.0},
		"only a window":                     {answer(100, -1, -1e-9, 10), 4, 100, 10, 100, 0, 1.25, 0},
		"only a window, and its end":        {answer(100, -1, 5, 10), 4, 100, 10, 100, 5, 1.25, 0},
		"we have spent nearly all":          {answer(100, 0, 10, 10), 74, 100, 10, 0, 10, 10, 0},
		"no window":                         {answer(100, 90, 10, 0), 4, 100, 9, 90, 10, 0.125, -10 / 16.0},
		"no window, no time left":           {answer(100, 90, 0, 0), 4, 100, 0, 90, 0.01, 0.125, 0},
		"others have spent it":              {answer(100, 0, 10, 10), 4, 100, 10, 0, 10, 10, 0},
		"others have spent it, no end told": {answer(100, 0, -1e-9, 10), 4, 100, 10, 0, 0, 1.25, 0},
		"we have spent it":                  {answer(100, 0, 10, 10), 75, 100, 10, 0, 10, 1.25, 0},
		"one is left":                       {answer(100, 1, 10, 10), 4, 100, 10, 1, 10, 1.25, 0},
	} {
		q := &ToldQuota{Quota: hint.Quota{Limit: -1}, perCall: 1}
		q.hear(c.told, Place{Sent: sec(-0.05)}, zero, c.before, 0)
		var until time.Time
		if c.until > 0 {
			until = sec(c.until)
		}
		if q.size != c.size || q.window != span(c.window) || q.left != c.left || !q.until.Equal(until) || !q.began.Equal(zero) || !q.leftAt.Equal(zero) || q.answers != 0 {
			t.Errorf("%s: %v in %v, %v left at %v, from %v until %v", name, q.size, q.window, q.left, q.leftAt.Sub(zero), q.began.Sub(zero), q.until.Sub(zero))
		}
		if !q.shared.Equal(sec(c.shared)) || !q.next.Equal(sec(c.next)) || q.sent.sum(zero, time.Second) != c.before || q.seen || q.roll {
			t.Errorf("%s: shared until %v, next %v, %v sent, others seen %v, rolling %v",
				name, q.shared.Sub(zero), q.next.Sub(zero), q.sent.sum(zero, time.Second), q.seen, q.roll)
		}
	}
}

// The size and the window follow what is told; a rate tells the window, and that it rolls.
func TestSizeAndWindow(t *testing.T) {
	rated := func(limit int64, rate float64) hint.Quota {
		return hint.Quota{Limit: limit, Remaining: 9, Reset: -1, Rate: rate}
	}
	for name, c := range map[string]struct {
		told         hint.Quota
		first        bool
		size, window float64
		roll         bool
	}{
		"a new limit":               {answer(50, 9, 1, 0), false, 50, 10, false},
		"a new window":              {answer(100, 9, 1, 20), false, 100, 20, false},
		"no limit":                  {answer(-1, 9, 1, 0), false, 100, 10, false},
		"a limit of one":            {answer(1, 9, 1, 0), false, 1, 10, false},
		"a rate and a limit of one": {rated(1, 50), false, 1, 0.02, true},
		"a rate of nothing":         {rated(0, 50), false, 100, 10, false},
		"a limit of nothing":        {answer(0, 9, 1, 0), false, 100, 10, false},
		"no limit, more remaining":  {answer(-1, 200, 1, 0), false, 200, 10, false},
		"no limit, at first":        {answer(-1, 9, 1, 0), true, 9, 10, false},
		"no limit, nothing":         {answer(-1, 0, 1, 0), true, 1, 10, false},
		"a rate":                    {rated(100, 50), false, 100, 2, true},
		"a slow rate":               {rated(100, 1e-9), false, 100, 86400, true},
		"a great rate":              {rated(100, 1e9), false, 100, 0.01, true},
		"a rate without a limit":    {rated(-1, 50), false, 100, 10, false},
		"no end":                    {answer(100, 9, 0, 0), true, 100, 0, false},
		"no end, later":             {answer(100, 9, 0, 0), false, 100, 10, false},
	} {
		q := told(100, 10)
		q.measure(&c.told, sec(1), c.first)
		if q.size != c.size || q.window != span(c.window) || q.roll != c.roll || q.began.Equal(sec(1)) != c.first {
			t.Errorf("%s: %v in %v, rolling %v, began %v", name, q.size, q.window, q.roll, q.began.Sub(zero))
		}
	}
}

// Others are there if less remains than own starts explain, one call in doubt, for two windows and at least
// for two seconds.
func TestOthersAreSeen(t *testing.T) {
	for name, c := range map[string]struct {
		q      func(q *ToldQuota)
		left   float64
		shared float64
	}{
		"own starts explain it":      {func(*ToldQuota) {}, 89, 0},
		"one less":                   {func(*ToldQuota) {}, 88, 23},
		"a short window":             {func(q *ToldQuota) { q.window = 500 * time.Millisecond }, 88, 5},
		"cost counted":               {func(q *ToldQuota) { q.Unit, q.perCall = "tokens", 5 }, 85, 0},
		"cost counted, less":         {func(q *ToldQuota) { q.Unit, q.perCall = "tokens", 5 }, 84, 23},
		"sent before, on a long way": {func(q *ToldQuota) { q.sent.add(5, sec(-8.7), q.window) }, 84, 0},
		"long before":                {func(q *ToldQuota) { *q = *told(100, 10); q.sent.add(10, sec(-12), q.window) }, 98, 23},
	} {
		q := with(told(100, 10), c.q)
		q.sent.add(10, sec(1.5), q.window)
		if name == "long before" {
			q.sent = tallyRing{}
			q.sent.add(10, sec(-12), q.window)
		}
		q.look(c.left, sec(2), sec(3), false)
		if q.seen != (c.shared > 0) || q.seen && !q.shared.Equal(sec(c.shared)) {
			t.Errorf("%s: seen %v, until %v, want %v", name, q.seen, q.shared.Sub(zero), span(c.shared))
		}
	}
}

// What an answer changes: within a window the least remaining and the earliest end count; an answer of the
// window before changes nothing; more before the end makes a rolling quota, at it a new window.
func TestTell(t *testing.T) {
	type state struct {
		left, leftAt, began, until float64
		roll, fresh                bool
	}
	same := state{50, 2, 0, 10, false, false}
	turned := func(q *ToldQuota) { q.left, q.fresh = 100, true }
	for name, c := range map[string]struct {
		q                 func(q *ToldQuota)
		left, until, sent float64
		want              state
	}{
		"less":                             {func(*ToldQuota) {}, 40, 10, 1.5, state{40, 3, 0, 10, false, false}},
		"as much":                          {func(*ToldQuota) {}, 50, 10, 1.5, state{50, 3, 0, 10, false, false}},
		"one more, out of order":           {func(*ToldQuota) {}, 51, 10, 2.5, same},
		"more, sent before":                {func(*ToldQuota) {}, 60, 10, 1.5, same},
		"an earlier end":                   {func(*ToldQuota) {}, 51, 9, 1.5, state{50, 2, 0, 9, false, false}},
		"a later end":                      {func(*ToldQuota) {}, 40, 11, 1.5, state{40, 3, 0, 10, false, false}},
		"no end":                           {func(*ToldQuota) {}, 40, 0, 1.5, state{40, 3, 0, 10, false, false}},
		"the first end":                    {func(q *ToldQuota) { q.until = time.Time{} }, 40, 11, 1.5, state{40, 3, 0, 11, false, false}},
		"sent as the window began":         {func(q *ToldQuota) { q.began = sec(1.5) }, 40, 10, 1.5, state{40, 3, 1.5, 10, false, false}},
		"two more":                         {func(*ToldQuota) {}, 52, 10, 2.5, state{52, 3, 0, 10, true, false}},
		"more, sent as the last was told":  {func(*ToldQuota) {}, 60, 10, 2, same},
		"little, not the first":            {func(q *ToldQuota) { q.began = sec(2) }, 20, 10, 2.5, state{20, 3, 2, 10, false, false}},
		"of the window before":             {func(q *ToldQuota) { q.began = sec(1.6) }, 40, 9, 1.5, state{50, 2, 1.6, 10, false, false}},
		"more, long before the end":        {func(*ToldQuota) {}, 60, 10, 2.5, state{60, 3, 0, 10, true, false}},
		"much more, long before the end":   {func(*ToldQuota) {}, 75, 12, 2.5, state{75, 3, 2.5, 12, false, false}},
		"more, shortly before the end":     {func(q *ToldQuota) { q.until = sec(4.1) }, 60, 12, 2.5, state{60, 3, 2.5, 12, false, false}},
		"more, 1.1 s before the end":       {func(q *ToldQuota) { q.until = sec(4.11) }, 60, 12, 2.5, state{60, 3, 0, 4.11, true, false}},
		"more, no end known":               {func(q *ToldQuota) { q.until = time.Time{} }, 60, 12, 2.5, state{60, 3, 2.5, 12, false, false}},
		"the first of a window":            {turned, 60, 12, 2.5, state{60, 3, 0, 12, false, false}},
		"the first: all":                   {turned, 100, 12, 2.5, state{100, 3, 0, 12, false, false}},
		"the first: little":                {func(q *ToldQuota) { turned(q); q.began = sec(2) }, 24, 12, 2.5, state{24, 3, 2, 10, true, true}},
		"the first: a quarter":             {func(q *ToldQuota) { turned(q); q.began = sec(2) }, 25, 12, 2.5, state{25, 3, 2, 12, false, false}},
		"the first: little, late":          {func(q *ToldQuota) { turned(q); q.began = sec(1.75) }, 24, 12, 2.5, state{24, 3, 1.75, 12, false, false}},
		"the first: little, of 3 s":        {func(q *ToldQuota) { turned(q); q.window, q.began = 3e9, sec(2.8) }, 24, 12, 2.9, state{24, 3, 2.8, 10, true, true}},
		"the first: little, short, alone":  {func(q *ToldQuota) { turned(q); q.window, q.began = 2e9, sec(2.8) }, 24, 12, 2.9, state{24, 3, 2.8, 12, false, false}},
		"the first: little, short, shared": {func(q *ToldQuota) { turned(q); q.window, q.began, q.shared = 2e9, sec(2.8), sec(9) }, 24, 12, 2.9, state{24, 3, 2.8, 10, true, true}},
		"rolling: more":                    {func(q *ToldQuota) { q.roll = true }, 60, 12, 2.5, state{60, 3, 0, 10, true, false}},
		"rolling: more, a late timer":      {func(q *ToldQuota) { q.roll = true }, 60, 12, 1.995, state{60, 3, 0, 10, true, false}},
		"rolling: more, sent before":       {func(q *ToldQuota) { q.roll = true }, 60, 12, 1.99, state{50, 2, 0, 10, true, false}},
		"rolling: as much, sent before":    {func(q *ToldQuota) { q.roll = true }, 50, 12, 1.5, state{50, 2, 0, 10, true, false}},
		"rolling: less, sent before":       {func(q *ToldQuota) { q.roll = true }, 40, 12, 1.5, state{40, 3, 0, 10, true, false}},
	} {
		q := with(told(100, 10), func(q *ToldQuota) { q.left, q.leftAt, q.answers = 50, sec(2), 5; c.q(q) })
		var until time.Time
		if c.until > 0 {
			until = sec(c.until)
		}
		q.tell(c.left, until, sec(c.sent), sec(3))
		got := state{q.left, q.leftAt.Sub(zero).Seconds(), q.began.Sub(zero).Seconds(), q.until.Sub(zero).Seconds(), q.roll, q.fresh}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if c.want.left == 40 && c.want.leftAt == 3 && !got.roll && q.others != 5 {
			t.Errorf("%s: others take %v a second, want 5", name, q.others)
		}
		if moved := got.leftAt == 3 && !got.roll; moved != (q.answers == 0) {
			t.Errorf("%s: %v answers are left to explain what is told next", name, q.answers)
		}
	}
}

// The rate of others is what own answers do not explain, smoothed over 0.3 s and nothing below one in 2 s;
// where only the upstream counts, the drop is what a call takes, smoothed over eight.
func TestOthersAreSmoothed(t *testing.T) {
	for name, c := range map[string]struct {
		q            func(q *ToldQuota)
		left, at     float64
		others, each float64
	}{
		"others":                {func(*ToldQuota) {}, 42, 0.15, 20, 1},
		"after a while":         {func(*ToldQuota) {}, 40, 1, 8, 1},
		"own ones alone":        {func(q *ToldQuota) { q.others = 10 }, 48, 0.15, 5, 1},
		"fewer than own ones":   {func(q *ToldQuota) { q.others = 10 }, 50, 0.15, 5, 1},
		"nearly none":           {func(q *ToldQuota) { q.others = 0.9 }, 48, 0.15, 0, 1},
		"one in two seconds":    {func(q *ToldQuota) { q.others = 1 }, 48, 0.15, 0.5, 1},
		"in no time":            {func(q *ToldQuota) { q.others = 10 }, 40, 0, 10, 1},
		"tokens":                {func(q *ToldQuota) { q.Unit, q.perCall, q.others = "tokens", 2, 10 }, 34, 1, 10, 3.75},
		"tokens, one":           {func(q *ToldQuota) { q.Unit, q.perCall, q.answers = "tokens", 2, 1 }, 46, 1, 0, 2.75},
		"tokens, none":          {func(q *ToldQuota) { q.Unit, q.perCall, q.answers = "tokens", 0.001, 1 }, 50, 1, 0, 0.001},
		"tokens, none answered": {func(q *ToldQuota) { q.Unit, q.perCall, q.answers = "tokens", 2, 0 }, 44, 0.15, 20, 2},
	} {
		q := with(told(100, 10), func(q *ToldQuota) { q.left, q.answers = 50, 2; c.q(q) })
		q.smooth(c.left, sec(c.at))
		if !near(q.others, c.others) || !near(q.perCall, c.each) {
			t.Errorf("%s: others %v a second, %v a call; want %v, %v", name, q.others, q.perCall, c.others, c.each)
		}
	}
}

// Where remaining is not told, each answer takes one, unless nothing but time would give it back: a rolling
// quota, one whose end is not told.
func TestRemainingNotTold(t *testing.T) {
	q := told(100, 10)
	q.shared = sec(99)
	q.hear(answer(100, -1, 9, 10), Place{Sent: sec(0.9)}, sec(1), 0, 0)
	if q.left != 99 {
		t.Errorf("%v left, want 99", q.left)
	}
	q.until = time.Time{}
	q.hear(answer(100, -1, -1e-9, 10), Place{Sent: sec(1.4)}, sec(1.5), 0, 0)
	if q.left != 99 {
		t.Errorf("no end told: %v left, want 99", q.left)
	}
	q.until = sec(10)
	q.roll = true
	q.hear(answer(100, -1, 9, 10), Place{Sent: sec(1.9)}, sec(2), 0, 0)
	if q.left != 99 {
		t.Errorf("rolling: %v left, want 99", q.left)
	}
	q.roll = false
	q.left = 0.5
	if q.hear(answer(100, -1, 8, 10), Place{Sent: sec(2.9)}, sec(3), 0, 0); q.left != 0 {
		t.Errorf("%v left, want 0", q.left)
	}
	q.left = 50
	if q.hear(answer(100, 0, 8, 10), Place{Sent: sec(3.9)}, sec(4), 0, 0); q.left != 0 {
		t.Errorf("nothing is left: %v", q.left)
	}
	q.hear(answer(100, 500, 9, 10), Place{Sent: sec(2.9)}, sec(12), 0, 0)
	if q.left != 100 || q.Remaining != 500 || !q.began.Equal(sec(10)) {
		t.Errorf("in a new window: %v left, told %v, began %v", q.left, q.Remaining, q.began.Sub(zero))
	}
}
