package upstream

import (
	"math"
	"testing"
	"time"

	"github.com/go-throttle/throttle/hint"
	"github.com/go-throttle/throttle/internal/limit"
)

// span is so many seconds.
func span(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

// answer is a quota as an answer advertises it; -1: not advertised.
func answer(limit, remaining int64, reset, window float64) hint.Quota {
	return hint.Quota{Limit: limit, Remaining: remaining, Reset: span(reset), Window: span(window)}
}

// advertised is a quota whose window is advertised, at zero with everything left.
func advertised(limit int64, window float64) *quota {
	size := float64(limit)
	return &quota{Quota: hint.Quota{Limit: limit, Remaining: limit, Window: span(window)}, perCall: 1,
		size: size, left: size, leftAt: zero, began: zero, until: at(window), window: span(window)}
}

func with(q *quota, change func(*quota)) *quota {
	change(q)
	return q
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
				if at := q.ready(1, now, now, 0, true); at.After(now) {
					now = at.Add(limit.MaxLate) // a late timer
					continue
				}
				q.take(1, now, 0, true)
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
