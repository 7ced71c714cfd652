package seek

import (
	"testing"
	"time"

	"golang.org/x/time/rate"
)

// Of the rate that is held beside a limit of ours observers hear at first, then of a lower one a minute later at the earliest, and of a
// higher one when it has lasted for ten minutes. Alone, without a rate that is held, is the highest.
func TestToldRate(t *testing.T) {
	var heard told
	for _, c := range []struct {
		at   time.Duration
		held rate.Limit
		want bool
	}{
		{0, rate.Inf, false}, // as ever
		{1 * time.Second, 9.9, true},
		{2 * time.Second, 5, false},
		{60 * time.Second, 5, false},
		{61 * time.Second, 5, true},
		{3 * time.Minute, 4.8, false}, // 4 % less
		{4 * time.Minute, 5.2, false},
		{5 * time.Minute, 6, false}, // higher from here
		{14 * time.Minute, 5.5, false},
		{15 * time.Minute, 7, true},
		{16 * time.Minute, rate.Inf, false},
		{25 * time.Minute, 6.9, false},
		{26 * time.Minute, rate.Inf, false},
		{35 * time.Minute, rate.Inf, false},
		{36 * time.Minute, rate.Inf, true},
		{56 * time.Minute, rate.Inf, false},
		{57 * time.Minute, 9.9, true},
	} {
		if got := heard.isNews(c.held, time.Unix(1e9, 0).Add(c.at)); got != c.want {
			t.Errorf("%v/s at %v: news is %v, want %v", c.held, c.at, got, c.want)
		}
	}
}
