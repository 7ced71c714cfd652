package hint

import (
	"testing"
	"time"
)

// Windows that the names of fields name, in all the forms that are known. TestWindowWithoutReset of internal/lab has where they are from.
func TestWindowsInNames(t *testing.T) {
	for key, want := range map[string]field{
		"X-Ratelimit-Limit-300":                   {kind: limit, window: 300 * time.Second},
		"X-Ratelimit-Remaining-15m":               {kind: remaining, window: 15 * time.Minute},
		"X-Ratelimit-Remaining-5min":              {kind: remaining, window: 5 * time.Minute},
		"X-Ratelimit-Limit-24hour":                {kind: limit, window: day},
		"X-Ratelimit-Limit-7d":                    {kind: limit, window: 7 * day},
		"X-Ratelimit-Remaining-Monthly":           {kind: remaining, window: month},
		"X-Rate-Limit-Daily":                      {kind: limit, window: day},
		"X-Daily-Ratelimit-Token-Remaining":       {kind: remaining, window: day, unit: "Token"},
		"X-Hourly-Ratelimit-Limit":                {kind: limit, window: time.Hour},
		"X-Ratelimit-Limit-M":                     {kind: limit, unit: "M"},
		"X-Ratelimit-Limit-99999999999999999999d": {kind: limit, unit: "99999999999999999999d"},
		"X-Ratelimit-Limit-2year":                 {kind: limit, unit: "2year"},
		"X-Ratelimit-Tier":                        {kind: info, unit: "Tier"},
	} {
		if f := decode(key); f.kind != want.kind || f.window != want.window || f.unit != want.unit {
			t.Errorf("%s: kind %v, window %v, unit %q; want %v, %v, %q", key, f.kind, f.window, f.unit, want.kind, want.window, want.unit)
		}
	}
	for value, want := range map[string]time.Duration{"60": time.Minute, "5m": 5 * time.Minute, "day": day, "minute": time.Minute, "1d": day, "soon": 0} {
		r := reader{}
		d := draft{q: unset}
		r.field(&d, &field{kind: window, lines: []string{value}})
		if d.q.Window != want {
			t.Errorf("a window of %q is read as %v, want %v", value, d.q.Window, want)
		}
	}
}
