package usage

import (
	"testing"
	"time"
	_ "time/tzdata"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func TestNextDay(t *testing.T) {
	for _, c := range []struct{ zone, at, want string }{
		{"UTC", "2026-06-01T12:00:00Z", "2026-06-02T00:00:00Z"},
		{"America/Los_Angeles", "2026-06-01T12:00:00Z", "2026-06-02T07:00:00Z"},
		{"America/Los_Angeles", "2026-06-02T06:59:59Z", "2026-06-02T07:00:00Z"},
		{"America/Los_Angeles", "2026-06-02T07:00:00Z", "2026-06-03T07:00:00Z"},
		{"America/Los_Angeles", "2026-03-08T08:00:00Z", "2026-03-09T07:00:00Z"}, // 23 hours
		{"America/Los_Angeles", "2026-11-01T07:00:00Z", "2026-11-02T08:00:00Z"}, // 25 hours
		{"Europe/Berlin", "2026-03-29T00:30:00Z", "2026-03-29T22:00:00Z"},
		{"Australia/Lord_Howe", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z"}, // 24.5 hours
		{"Asia/Kathmandu", "2026-01-01T00:00:00Z", "2026-01-01T18:15:00Z"},
		{"America/Sao_Paulo", "2018-11-03T12:00:00Z", "2018-11-04T03:00:00Z"}, // 24:00 became 1:00
		{"America/Sao_Paulo", "2018-02-17T12:00:00Z", "2018-02-18T03:00:00Z"}, // 24:00 became 23:00
		{"Asia/Beirut", "2025-03-29T12:00:00Z", "2025-03-29T22:00:00Z"},       // 24:00 became 1:00
		{"America/Havana", "2025-11-01T12:00:00Z", "2025-11-02T04:00:00Z"},    // 1:00 became 0:00: midnight twice
		{"Pacific/Apia", "2011-12-29T20:00:00Z", "2011-12-30T10:00:00Z"},      // a day was skipped
	} {
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		if got := NextDay(at, zone(t, c.zone)).UTC().Format(time.RFC3339); got != c.want {
			t.Errorf("%s, %s: %s, want %s", c.zone, c.at, got, c.want)
		}
	}
	at := time.Date(2026, 6, 1, 23, 0, 0, 0, time.FixedZone("", -3*60*60))
	if got, want := NextDay(at, nil), time.Date(2026, 6, 3, 0, 0, 0, 0, time.UTC); !got.Equal(want) {
		t.Errorf("nil: %v, want %v", got, want)
	}
}

// In any zone and any hour of the years around now, the next day is the first minute with another date.
func TestNextDayOfAllHours(t *testing.T) {
	for _, name := range []string{"UTC", "America/Los_Angeles", "Europe/London", "Australia/Lord_Howe", "America/Havana", "Asia/Beirut",
		"America/Santiago", "Africa/Cairo", "Asia/Gaza", "America/Asuncion", "America/Sao_Paulo", "Pacific/Apia"} {
		loc := zone(t, name)
		from := time.Date(2010, 1, 1, 0, 17, 0, 0, time.UTC)
		for at := from; at.Before(from.AddDate(16, 0, 0)); at = at.Add(5 * time.Hour) {
			next := NextDay(at, loc)
			if length := next.Sub(at); length <= 0 || length > 49*time.Hour {
				t.Fatalf("%s, %v: %v, %v later", name, at, next, length)
			}
			if last := next.Add(-1).In(loc); !sameDay(last, at.In(loc)) || sameDay(next.In(loc), at.In(loc)) {
				t.Fatalf("%s, %v: %v, but the moment before is %v", name, at.In(loc), next.In(loc), last)
			}
		}
	}
}
