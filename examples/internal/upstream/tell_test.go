package upstream

import (
	"net/http"
	"testing"
	"time"
)

func TestTell(t *testing.T) {
	start := time.Unix(1_700_000_000, 500_000_000)
	limit := Limit{Rate: 10, Burst: 20}
	for _, step := range []struct {
		passed int // requests before
		after  time.Duration
		left   string
		whole  string // in seconds
		reset  string
	}{
		{0, 0, "20", "0", "1700000001"},
		{1, 0, "19", "1", "1700000001"},
		{20, 0, "0", "2", "1700000003"},
		{20, 99 * time.Millisecond, "0", "2", "1700000003"},
		{20, 100 * time.Millisecond, "1", "2", "1700000003"},
		{20, time.Second, "10", "1", "1700000003"},
		{20, time.Hour, "20", "0", "1700003601"},
	} {
		g := newGCRA(limit.Rate, limit.Burst)
		for range step.passed {
			if !g.admit(start) {
				t.Fatalf("%+v: refused", step)
			}
		}
		for tell, want := range map[Tell]map[string]string{
			TellNothing: {},
			TellRateLimit: {
				"RateLimit-Policy": `"default";q=20;w=2`,
				"RateLimit":        `"default";r=` + step.left + `;t=` + step.whole,
			},
			TellXRateLimit: {"X-RateLimit-Limit": "20", "X-RateLimit-Remaining": step.left, "X-RateLimit-Reset": step.reset},
		} {
			limit.Tell = tell
			header := make(http.Header)
			limit.tell(header, &g, start.Add(step.after))
			for name, value := range want {
				if got := header.Get(name); got != value {
					t.Errorf("%+v: %s is %q, want %q", step, name, got, value)
				}
			}
			if len(header) != len(want) {
				t.Errorf("%+v: %s tells %v", step, tell, header)
			}
		}
	}
}
