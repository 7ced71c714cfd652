package upstream

import (
	"testing"
	"time"

	"golang.org/x/time/rate"
)

// Of the rate that is held beside a limit of ours observers hear at first, and then once a minute at most, if it is another one; and when
// the limit of ours has held alone for ten minutes.
func TestToldRate(t *testing.T) {
	var told toldRate
	for _, c := range []struct {
		at   time.Duration
		held rate.Limit
		want bool
	}{
		{0, rate.Inf, false}, // the limit of ours holds alone, as ever
		{1 * time.Second, 9.9, true},
		{2 * time.Second, 5, false}, // a minute is not over
		{60 * time.Second, 5, false},
		{61 * time.Second, 5, true},
		{3 * time.Minute, 5.2, false}, // 4 %
		{4 * time.Minute, 4.8, false},
		{5 * time.Minute, 5.3, true},
		{6 * time.Minute, rate.Inf, false}, // a probe may have gone above it
		{15 * time.Minute, 5.3, false},
		{16 * time.Minute, rate.Inf, false},
		{25 * time.Minute, rate.Inf, false},
		{26 * time.Minute, rate.Inf, true},
		{27 * time.Minute, rate.Inf, false},
		{28 * time.Minute, 9.9, true},
	} {
		if got := told.isNews(c.held, time.Unix(1e9, 0).Add(c.at)); got != c.want {
			t.Errorf("%v/s at %v: news is %v, want %v", c.held, c.at, got, c.want)
		}
	}
}
