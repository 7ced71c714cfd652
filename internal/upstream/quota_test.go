package upstream

import (
	"math"
	"testing"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/limit"
)

// A window whose length is not advertised is found, whether its first call or the clock begins it, from
// resets in whole seconds, at the cost of a few throttled calls. One caller, one call at a time, each trip 2 ms.
func TestWindowIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		window          time.Duration
		clock, epoch    bool
		skewed          bool
		want            time.Duration
		throttled, from int
	}{
		"1 s, first call, epoch":          {window: time.Second, epoch: true, want: time.Second},
		"1 s, first call, epoch, skewed":  {window: time.Second, epoch: true, skewed: true, want: time.Second},
		"1 s, first call, delta":          {window: time.Second, want: time.Second},
		"1 s, clock, epoch":               {window: time.Second, clock: true, epoch: true, want: time.Second, throttled: 1},
		"2 s, first call, epoch":          {window: 2 * time.Second, epoch: true, want: 2 * time.Second, throttled: 1},
		"2 s, clock, epoch":               {window: 2 * time.Second, clock: true, epoch: true, want: 2 * time.Second, throttled: 2},
		"10 s, first call, epoch":         {window: 10 * time.Second, epoch: true, want: 10 * time.Second, throttled: 2},
		"10 s, first call, epoch, skewed": {window: 10 * time.Second, epoch: true, skewed: true, want: 10 * time.Second, throttled: 1},
		"10 s, clock, delta":              {window: 10 * time.Second, clock: true, want: 10 * time.Second, throttled: 2},
		"half a second":                   {window: time.Second / 2, epoch: true, want: time.Second},
	} {
		const size = 20
		start := time.Unix(1e9, 300e6)
		q := &quota{Quota: hint.Quota{Limit: -1}, perCall: 1}
		var end time.Time
		now, used, throttled := start, 0, 0
		for now.Before(start.Add(6 * c.window)) {
			if at := q.ready(1, now, now, 0); at.After(now) {
				now = at
				continue
			}
			sent := now
			if q.leftAt.IsZero() {
				sent = now.Add(-time.Millisecond)
			} else {
				q.take(1, now, 0)
			}
			now = now.Add(time.Millisecond)
			if !now.Before(end) {
				if used = 0; c.clock {
					end = now.Truncate(c.window).Add(c.window)
				} else {
					end = now.Add(c.window)
				}
			}
			no := used == size
			if used = min(size, used+1); no {
				throttled++
			}
			outcome := Success
			if no {
				outcome = Throttled
			}
			reset := end.Sub(now) + time.Second - 1
			switch reset = reset.Truncate(time.Second); {
			case c.skewed:
				reset = end.Add(time.Second - 1).Truncate(time.Second).Sub(now.Truncate(time.Second))
			case c.epoch:
				reset = end.Add(time.Second - 1).Truncate(time.Second).Sub(now)
			}
			now = now.Add(time.Millisecond)
			q.ended(1)
			q.observe(hint.Quota{Limit: size, Remaining: int64(size - used), Reset: reset}, &Answer{Sent: sent, Outcome: outcome}, now, 1)
			if no && q.found {
				q.found, q.longer = false, time.Second
			}
		}
		if q.window != c.want || throttled > c.throttled {
			t.Errorf("%s: window %v (found %v), %d throttled; want %v, at most %d", name, q.window, q.found, throttled, c.want, c.throttled)
		}
	}
}

// Own starts are counted over the whole span, also when it turns out to be longer than it seemed.
func TestTallyCoversASpanThatGrows(t *testing.T) {
	var r tallyRing
	at := time.Unix(1e9, 0)
	for i := range 60 {
		r.add(1, at, time.Duration(i+1)*time.Second)
		at = at.Add(time.Second)
	}
	if got := r.sum(at, time.Minute); got != 60 {
		t.Errorf("%v in the last minute, want 60", got)
	}
	if got := r.sum(at, 10*time.Second); got < 10 || got > 14 {
		t.Errorf("%v in the last 10 s, want 10 to 14: to a sixteenth of the longest span", got)
	}
	if got := r.sum(at.Add(2*time.Minute), time.Minute); got != 0 {
		t.Errorf("%v two minutes later, want 0", got)
	}
}

// What remains is shared out as r = (R − in flight − ½·others·age)/H, at the earliest at the pace of the
// limit if the window is advertised, at the latest after half of the time.
func TestSharedPace(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		left, others float64
		calls        int
		age, h       time.Duration
		window, want float64
	}{
		{left: 50, h: 5 * time.Second, want: 10},
		{left: 50, calls: 10, h: 5 * time.Second, want: 8},
		{left: 50, others: 20, age: time.Second, h: 5 * time.Second, want: 8},
		{left: 50, h: time.Second, want: 50},
		{left: 50, h: time.Second, window: 10, want: 10},            // no faster than limit / window
		{left: 1, h: 4 * time.Second, want: 0.5},                    // after half of the time
		{left: 0, calls: 3, h: 4 * time.Second, want: 0.5},          // never faster for being overdrawn
		{left: 50, h: -time.Second, want: 50000},                    // over: at once
		{left: 50, others: 200, age: time.Second, h: 5e9, want: .4}, // all gone to others
	} {
		q := &quota{perCall: 1, size: 100, left: c.left, leftAt: now.Add(-c.age), until: now.Add(c.h), others: c.others, shared: now.Add(time.Hour)}
		q.calls, q.units = c.calls, float64(c.calls)
		q.Window = time.Duration(c.window * 1e9)
		q.window = q.Window
		if got := q.pace(now, 0); math.Abs(got-c.want) > 1e-9*c.want {
			t.Errorf("%+v: %v a second", c, got)
		}
	}
}

// One who is alone starts no more in any window than the limit, also after a rest.
func TestAloneKeepsTheLimit(t *testing.T) {
	for _, window := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
		q := &quota{Quota: hint.Quota{Limit: 200, Window: window}, perCall: 1, size: 200, left: 200, window: window}
		now := time.Unix(1e9, 0)
		q.leftAt = now
		var starts []time.Time
		for _, rest := range []time.Duration{0, 2 * window, window / 3} {
			now = now.Add(rest)
			for end := now.Add(3 * window); now.Before(end); {
				if at := q.ready(1, now, now, 0); at.After(now) {
					now = at.Add(limit.MaxLate) // a late timer
					continue
				}
				q.take(1, now, 0)
				q.ended(1)
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

// A start that was not used is no answer: what others take, and what a call costs, is computed from those.
func TestUndoneStartIsNoAnswer(t *testing.T) {
	q := &quota{Quota: hint.Quota{Unit: "tokens", Limit: 1000, Remaining: 900}, size: 1000, left: 900, window: time.Minute, perCall: 50}
	now := time.Now()
	q.began, q.leftAt, q.until = now, now, now.Add(time.Minute)
	for range 2 {
		q.take(1, now, 0)
	}
	q.undo(1, now)
	q.ended(1)
	q.smooth(800, now.Add(time.Second))
	if want := 50 + (100.0-50)/8; math.Abs(q.perCall-want) > 1e-9 {
		t.Errorf("a call that took 100 units moves the estimate from 50 to %v, want %v", q.perCall, want)
	}
}
