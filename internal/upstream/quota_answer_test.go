package upstream

import (
	"testing"
	"time"

	"github.com/go-throttle/throttle/hint"
)

// answer is a quota as an answer advertises it; -1: not advertised.
func answer(limit, remaining int64, reset, window float64) hint.Quota {
	return hint.Quota{Limit: limit, Remaining: remaining, Reset: span(reset), Window: span(window)}
}

// What the first answer says: how much is left until when, whether others have spent it, and what was sent
// before it.
func TestFirstAdvertised(t *testing.T) {
	for name, c := range map[string]struct {
		advertised    hint.Quota
		before        float64
		size, window  float64
		left          float64
		until, shared float64 // 0: none
		next          float64
	}{
		"all advertised":                          {answer(100, 90, 10, 10), 4, 100, 10, 90, 10, 1.25, 0},
		"a short window":                          {answer(100, 90, 1, 1), 4, 100, 1, 90, 1, 0.125, 0},
		"a day":                                   {answer(100, 90, 10, 86400), 4, 100, 86400, 90, 10, 2, 0},
		"longer than believed":                    {answer(100, 90, 2*86400, 60), 4, 100, 60, 90, 86400, 2, 0},
		"over at once":                            {answer(100, 90, 0, 10), 4, 100, 10, 90, 0.01, 1.25, 0},
		"too short for a timer":                   {answer(100, 90, 0.001, 0.001), 4, 100, 0.01, 90, 0.01, 0.125, 0},
		"no reset advertised":                     {answer(100, 90, -1e-9, 10), 4, 100, 10, 90, 0, 1.25, 0},
		"more than the limit":                     {answer(100, 120, 10, 10), 4, 100, 10, 100, 10, 1.25, 0},
		"no limit advertised":                     {answer(-1, 90, 10, 10), 4, 90, 10, 90, 10, 1.25, 0},
		"nothing advertised but the end":          {answer(-1, 0, 10, 0), 4, 1, 9, 0, 10, 0.125, -10 / 16.0},
		"only a window":                           {answer(100, -1, -1e-9, 10), 4, 100, 10, 100, 0, 1.25, 0},
		"only a window, and its end":              {answer(100, -1, 5, 10), 4, 100, 10, 100, 5, 1.25, 0},
		"we have spent nearly all":                {answer(100, 0, 10, 10), 74, 100, 10, 0, 10, 10, 0},
		"no window":                               {answer(100, 90, 10, 0), 4, 100, 9, 90, 10, 0.125, -10 / 16.0},
		"no window, no time left":                 {answer(100, 90, 0, 0), 4, 100, 0, 90, 0.01, 0.125, 0},
		"others have spent it":                    {answer(100, 0, 10, 10), 4, 100, 10, 0, 10, 10, 0},
		"others have spent it, no end advertised": {answer(100, 0, -1e-9, 10), 4, 100, 10, 0, 0, 1.25, 0},
		"we have spent it":                        {answer(100, 0, 10, 10), 75, 100, 10, 0, 10, 1.25, 0},
		"one is left":                             {answer(100, 1, 10, 10), 4, 100, 10, 1, 10, 1.25, 0},
	} {
		q := &quota{Quota: hint.Quota{Limit: -1}, perCall: 1}
		q.observe(c.advertised, &Answer{Sent: at(-0.05)}, zero, c.before)
		var until time.Time
		if c.until > 0 {
			until = at(c.until)
		}
		if q.size != c.size || q.window != span(c.window) || q.left != c.left || !q.until.Equal(until) || !q.began.Equal(zero) || !q.leftAt.Equal(zero) || q.answers != 0 {
			t.Errorf("%s: %v in %v, %v left at %v, from %v until %v", name, q.size, q.window, q.left, q.leftAt.Sub(zero), q.began.Sub(zero), q.until.Sub(zero))
		}
		if !q.shared.Equal(at(c.shared)) || !q.next.Equal(at(c.next)) || q.sent.sum(zero, time.Second) != c.before || q.seen || q.rolling {
			t.Errorf("%s: shared until %v, next %v, %v sent, others seen %v, rolling %v",
				name, q.shared.Sub(zero), q.next.Sub(zero), q.sent.sum(zero, time.Second), q.seen, q.rolling)
		}
	}
}

// The size and the window follow what is advertised; a rate says the window, and that it rolls.
func TestSizeAndWindow(t *testing.T) {
	rated := func(limit int64, rate float64) hint.Quota {
		return hint.Quota{Limit: limit, Remaining: 9, Reset: -1, Rate: rate}
	}
	for name, c := range map[string]struct {
		advertised   hint.Quota
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
		q := advertised(100, 10)
		q.measure(&c.advertised, at(1), c.first)
		if q.size != c.size || q.window != span(c.window) || q.rolling != c.roll || q.began.Equal(at(1)) != c.first {
			t.Errorf("%s: %v in %v, rolling %v, began %v", name, q.size, q.window, q.rolling, q.began.Sub(zero))
		}
	}
}

// Others are there if less remains than own starts explain, give or take one call, for two windows and at least
// for two seconds.
func TestOthersAreSeen(t *testing.T) {
	for name, c := range map[string]struct {
		q      func(q *quota)
		left   float64
		shared float64
	}{
		"own starts explain it":      {func(*quota) {}, 89, 0},
		"one less":                   {func(*quota) {}, 88, 23},
		"a short window":             {func(q *quota) { q.window = 500 * time.Millisecond }, 88, 5},
		"cost counted":               {func(q *quota) { q.Unit, q.perCall = "tokens", 5 }, 85, 0},
		"cost counted, less":         {func(q *quota) { q.Unit, q.perCall = "tokens", 5 }, 84, 23},
		"sent before, on a long way": {func(q *quota) { q.sent.add(5, at(-8.7), q.window) }, 84, 0},
		"long before":                {func(q *quota) { *q = *advertised(100, 10); q.sent.add(10, at(-12), q.window) }, 98, 23},
	} {
		q := with(advertised(100, 10), c.q)
		q.sent.add(10, at(1.5), q.window)
		if name == "long before" {
			q.sent = tallyRing{}
			q.sent.add(10, at(-12), q.window)
		}
		q.detectOthers(c.left, at(2), at(3), false)
		if q.seen != (c.shared > 0) || q.seen && !q.shared.Equal(at(c.shared)) {
			t.Errorf("%s: seen %v, until %v, want %v", name, q.seen, q.shared.Sub(zero), span(c.shared))
		}
	}
}

// What an answer changes: within a window the least remaining and the earliest end count; an answer of the
// window before changes nothing; more before the end makes a rolling quota, at it a new window.
func TestTakeRemaining(t *testing.T) {
	type state struct {
		left, leftAt, began, until float64
		roll, fresh                bool
	}
	same := state{50, 2, 0, 10, false, false}
	turned := func(q *quota) { q.left, q.fresh = 100, true }
	for name, c := range map[string]struct {
		q                 func(q *quota)
		left, until, sent float64
		want              state
	}{
		"less":                             {func(*quota) {}, 40, 10, 1.5, state{40, 3, 0, 10, false, false}},
		"as much":                          {func(*quota) {}, 50, 10, 1.5, state{50, 3, 0, 10, false, false}},
		"one more, out of order":           {func(*quota) {}, 51, 10, 2.5, same},
		"more, sent before":                {func(*quota) {}, 60, 10, 1.5, same},
		"an earlier end":                   {func(*quota) {}, 51, 9, 1.5, state{50, 2, 0, 9, false, false}},
		"a later end":                      {func(*quota) {}, 40, 11, 1.5, state{40, 3, 0, 10, false, false}},
		"no end":                           {func(*quota) {}, 40, 0, 1.5, state{40, 3, 0, 10, false, false}},
		"the first end":                    {func(q *quota) { q.until = time.Time{} }, 40, 11, 1.5, state{40, 3, 0, 11, false, false}},
		"sent as the window began":         {func(q *quota) { q.began = at(1.5) }, 40, 10, 1.5, state{40, 3, 1.5, 10, false, false}},
		"two more":                         {func(*quota) {}, 52, 10, 2.5, state{52, 3, 0, 10, true, false}},
		"more, sent as the last came":      {func(*quota) {}, 60, 10, 2, same},
		"little, not the first":            {func(q *quota) { q.began = at(2) }, 20, 10, 2.5, state{20, 3, 2, 10, false, false}},
		"of the window before":             {func(q *quota) { q.began = at(1.6) }, 40, 9, 1.5, state{50, 2, 1.6, 10, false, false}},
		"more, long before the end":        {func(*quota) {}, 60, 10, 2.5, state{60, 3, 0, 10, true, false}},
		"much more, long before the end":   {func(*quota) {}, 75, 12, 2.5, state{75, 3, 2.5, 12, false, false}},
		"more, shortly before the end":     {func(q *quota) { q.until = at(4.1) }, 60, 12, 2.5, state{60, 3, 2.5, 12, false, false}},
		"more, 1.1 s before the end":       {func(q *quota) { q.until = at(4.11) }, 60, 12, 2.5, state{60, 3, 0, 4.11, true, false}},
		"more, no end known":               {func(q *quota) { q.until = time.Time{} }, 60, 12, 2.5, state{60, 3, 2.5, 12, false, false}},
		"the first of a window":            {turned, 60, 12, 2.5, state{60, 3, 0, 12, false, false}},
		"the first: all":                   {turned, 100, 12, 2.5, state{100, 3, 0, 12, false, false}},
		"the first: little":                {func(q *quota) { turned(q); q.began = at(2) }, 24, 12, 2.5, state{24, 3, 2, 10, true, true}},
		"the first: a quarter":             {func(q *quota) { turned(q); q.began = at(2) }, 25, 12, 2.5, state{25, 3, 2, 12, false, false}},
		"the first: little, late":          {func(q *quota) { turned(q); q.began = at(1.75) }, 24, 12, 2.5, state{24, 3, 1.75, 12, false, false}},
		"the first: little, of 3 s":        {func(q *quota) { turned(q); q.window, q.began = 3e9, at(2.8) }, 24, 12, 2.9, state{24, 3, 2.8, 10, true, true}},
		"the first: little, short, alone":  {func(q *quota) { turned(q); q.window, q.began = 2e9, at(2.8) }, 24, 12, 2.9, state{24, 3, 2.8, 12, false, false}},
		"the first: little, short, shared": {func(q *quota) { turned(q); q.window, q.began, q.shared = 2e9, at(2.8), at(9) }, 24, 12, 2.9, state{24, 3, 2.8, 10, true, true}},
		"rolling: more":                    {func(q *quota) { q.rolling = true }, 60, 12, 2.5, state{60, 3, 0, 10, true, false}},
		"rolling: more, a late timer":      {func(q *quota) { q.rolling = true }, 60, 12, 1.995, state{60, 3, 0, 10, true, false}},
		"rolling: more, sent before":       {func(q *quota) { q.rolling = true }, 60, 12, 1.99, state{50, 2, 0, 10, true, false}},
		"rolling: as much, sent before":    {func(q *quota) { q.rolling = true }, 50, 12, 1.5, state{50, 2, 0, 10, true, false}},
		"rolling: less, sent before":       {func(q *quota) { q.rolling = true }, 40, 12, 1.5, state{40, 3, 0, 10, true, false}},
	} {
		q := with(advertised(100, 10), func(q *quota) { q.left, q.leftAt, q.answers = 50, at(2), 5; c.q(q) })
		var until time.Time
		if c.until > 0 {
			until = at(c.until)
		}
		q.takeRemaining(c.left, until, at(c.sent), at(3))
		got := state{q.left, q.leftAt.Sub(zero).Seconds(), q.began.Sub(zero).Seconds(), q.until.Sub(zero).Seconds(), q.rolling, q.fresh}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if c.want.left == 40 && c.want.leftAt == 3 && !got.roll && q.others != 5 {
			t.Errorf("%s: others take %v a second, want 5", name, q.others)
		}
		if moved := got.leftAt == 3 && !got.roll; moved != (q.answers == 0) {
			t.Errorf("%s: %v answers are left to explain what comes next", name, q.answers)
		}
	}
}

// The rate of others is what own answers do not explain, smoothed over 0.3 s and nothing below one in 2 s;
// where only the upstream counts, the drop is what a call takes, smoothed over eight.
func TestOthersAreSmoothed(t *testing.T) {
	for name, c := range map[string]struct {
		q            func(q *quota)
		left, at     float64
		others, each float64
	}{
		"others":                {func(*quota) {}, 42, 0.15, 20, 1},
		"after a while":         {func(*quota) {}, 40, 1, 8, 1},
		"own ones alone":        {func(q *quota) { q.others = 10 }, 48, 0.15, 5, 1},
		"fewer than own ones":   {func(q *quota) { q.others = 10 }, 50, 0.15, 5, 1},
		"nearly none":           {func(q *quota) { q.others = 0.9 }, 48, 0.15, 0, 1},
		"one in two seconds":    {func(q *quota) { q.others = 1 }, 48, 0.15, 0.5, 1},
		"in no time":            {func(q *quota) { q.others = 10 }, 40, 0, 10, 1},
		"tokens":                {func(q *quota) { q.Unit, q.perCall, q.others = "tokens", 2, 10 }, 34, 1, 10, 3.75},
		"tokens, one":           {func(q *quota) { q.Unit, q.perCall, q.answers = "tokens", 2, 1 }, 46, 1, 0, 2.75},
		"tokens, none":          {func(q *quota) { q.Unit, q.perCall, q.answers = "tokens", 0.001, 1 }, 50, 1, 0, 0.001},
		"tokens, none answered": {func(q *quota) { q.Unit, q.perCall, q.answers = "tokens", 2, 0 }, 44, 0.15, 20, 2},
	} {
		q := with(advertised(100, 10), func(q *quota) { q.left, q.answers = 50, 2; c.q(q) })
		q.smooth(c.left, at(c.at))
		if !near(q.others, c.others) || !near(q.perCall, c.each) {
			t.Errorf("%s: others %v a second, %v a call; want %v, %v", name, q.others, q.perCall, c.others, c.each)
		}
	}
}

// Where remaining is not advertised, each answer takes one, unless nothing but time would give it back: a rolling
// quota, one whose end is not advertised.
func TestRemainingNotAdvertised(t *testing.T) {
	q := advertised(100, 10)
	q.shared = at(99)
	q.observe(answer(100, -1, 9, 10), &Answer{Sent: at(0.9)}, at(1), 0)
	if q.left != 99 {
		t.Errorf("%v left, want 99", q.left)
	}
	q.until = time.Time{}
	q.observe(answer(100, -1, -1e-9, 10), &Answer{Sent: at(1.4)}, at(1.5), 0)
	if q.left != 99 {
		t.Errorf("no end advertised: %v left, want 99", q.left)
	}
	q.until = at(10)
	q.rolling = true
	q.observe(answer(100, -1, 9, 10), &Answer{Sent: at(1.9)}, at(2), 0)
	if q.left != 99 {
		t.Errorf("rolling: %v left, want 99", q.left)
	}
	q.rolling = false
	q.left = 0.5
	if q.observe(answer(100, -1, 8, 10), &Answer{Sent: at(2.9)}, at(3), 0); q.left != 0 {
		t.Errorf("%v left, want 0", q.left)
	}
	q.left = 50
	if q.observe(answer(100, 0, 8, 10), &Answer{Sent: at(3.9)}, at(4), 0); q.left != 0 {
		t.Errorf("nothing is left: %v", q.left)
	}
	q.observe(answer(100, 500, 9, 10), &Answer{Sent: at(2.9)}, at(12), 0)
	if q.left != 100 || q.Remaining != 500 || !q.began.Equal(at(10)) {
		t.Errorf("in a new window: %v left, advertised %v, began %v", q.left, q.Remaining, q.began.Sub(zero))
	}
}
