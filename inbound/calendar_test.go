package inbound_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata"

	"github.com/go-throttle/throttle/inbound"
	"github.com/go-throttle/throttle/internal/race"
)

// zones change their clocks at night, at midnight, by half an hour, by a whole day, or never.
var zones = []string{
	"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "America/Sao_Paulo", "America/Havana", "Asia/Beirut", "Africa/Cairo",
	"Australia/Lord_Howe", "Pacific/Apia", "America/Asuncion", "Asia/Kathmandu",
}

// label is the period of a moment, as a calendar on the wall shows it.
func label(unit string, t time.Time) string {
	switch unit {
	case "month":
		return t.Format("2006-01")
	case "week":
		y, w := t.ISOWeek()
		return fmt.Sprint(y, w)
	case "day":
		return t.Format("2006-01-02")
	}
	return t.Format("2006-01-02 15 -0700") // an hour that comes twice has two offsets
}

// sleepUntil is for moments that are to come.
func sleepUntil(t time.Time) { time.Sleep(time.Until(t)) }

// TestCalendarPeriods: at any moment the wait for the next unit ends with the period, to the nanosecond, whatever the clocks of a
// zone do.
func TestCalendarPeriods(t *testing.T) {
	for _, unit := range []string{"hour", "day", "week", "month"} {
		for i := range race.Pick(1, 30) * len(zones) {
			name := zones[i%len(zones)]
			synctest.Test(t, func(t *testing.T) {
				zone, err := time.LoadLocation(name)
				if err != nil {
					t.Fatal(err)
				}
				r := rand.New(rand.NewPCG(45, uint64(i)))
				k := inbound.NewKeyed[int](1, "1/"+unit+" in "+name)
				for range 60 { // some decades
					if r.IntN(2) == 0 { // close to where the offset changes
						if _, end := time.Now().In(zone).ZoneBounds(); !end.IsZero() && time.Until(end) < 400*24*time.Hour {
							sleepUntil(end.Add(time.Duration(r.Int64N(int64(50*time.Hour))) - 25*time.Hour))
						}
					}
					time.Sleep(time.Duration(r.Int64N(int64(20 * 24 * time.Hour))))
					k.Forget(1)
					first, now := k.Take(1, 1), time.Now().In(zone)
					end := now.Add(k.Take(1, 1))
					if first != 0 || label(unit, end.Add(-1)) != label(unit, now) || label(unit, end) == label(unit, now) {
						t.Fatalf("1/%s in %s: from %v until %v", unit, name, now, end)
					}
					sleepUntil(end.Add(-1))
					if k.Allow(1, 1) {
						t.Fatalf("1/%s in %s: one more before %v", unit, name, end)
					}
					time.Sleep(time.Nanosecond)
					if k.Take(1, 1) != 0 {
						t.Fatalf("1/%s in %s: none at %v", unit, name, end)
					}
				}
			})
		}
	}
}

// TestCalendarFields: what clients see of a day that has 23 hours, and of one with 25.
func TestCalendarFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		berlin, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		l := inbound.Limit{Limits: []string{"3/day in Europe/Berlin", "100/month in UTC"}}
		h := l.Handler(ok)
		for _, c := range []struct {
			day   time.Time
			hours int
		}{
			{time.Date(2025, 3, 29, 0, 0, 0, 0, berlin), 24}, {time.Date(2025, 3, 30, 0, 0, 0, 0, berlin), 23},
			{time.Date(2025, 10, 25, 0, 0, 0, 0, berlin), 24}, {time.Date(2025, 10, 26, 0, 0, 0, 0, berlin), 25},
		} {
			sleepUntil(c.day.Add(time.Hour))
			for i := range 4 {
				w := get(h, alice)
				rest := fmt.Sprintf(`"d";r=%d;t=%d, "month"`, max(0, 2-i), (c.hours-1)*3600)
				if got := w.Header().Get("RateLimit"); w.Code != map[bool]int{true: 204, false: 429}[i < 3] || !strings.HasPrefix(got, rest) {
					t.Errorf("%v: %d %s, want %s", c.day, w.Code, got, rest)
				}
				if want := map[bool]string{false: "", true: itoa((c.hours - 1) * 3600)}[i == 3]; w.Header().Get("Retry-After") != want {
					t.Errorf("%v: Retry-After %s, want %s", c.day, w.Header().Get("Retry-After"), want)
				}
				if policy := w.Header().Get("RateLimit-Policy"); policy != `"d";q=3;w=86400, "month";q=100;w=2592000` {
					t.Error(policy)
				}
			}
		}
	})
}

// TestCalendarDebts: a charge above the limit fills the periods that follow, and what goes back late does not count.
func TestCalendarDebts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it begins at midnight, 2000-01-01
		k := inbound.NewKeyed[string](0, "10/day in UTC")
		time.Sleep(20 * time.Hour)
		r := k.Reserve("a", 4)
		k.Adjust("a", 21)
		for _, left := range []int{0, 0, 5, 10} {
			if got := k.Tokens("a"); got != left {
				t.Errorf("%v: %d are left, want %d", time.Now(), got, left)
			}
			if wait := k.Take("a", 6); left == 0 && k.Tokens("a") == 0 && wait > 0 && wait != time.Until(time.Date(2000, 1, 4, 0, 0, 0, 0, time.UTC)) {
				t.Errorf("%v: the wait is %v", time.Now(), wait)
			}
			if left == 10 {
				break
			}
			time.Sleep(24 * time.Hour)
		}
		r.Settle(0) // of the first day
		if got := k.Tokens("a"); got != 4 {
			t.Errorf("%d are left, want 4", got)
		}
		k.Adjust("a", -3)
		if got := k.Tokens("a"); got != 7 {
			t.Errorf("%d are left, want 7", got)
		}
		if wait := k.Take("a", 11); wait >= 0 {
			t.Errorf("a cost above a day: %v", wait)
		}
		if err := k.SetLimits("20/day in UTC"); err != nil || k.Tokens("a") != 17 {
			t.Errorf("%v, %d are left of 20", err, k.Tokens("a"))
		}
		if err := k.SetLimits("12/day in Asia/Tokyo"); err != nil || k.Tokens("a") != 9 {
			t.Errorf("%v, %d are left of 12", err, k.Tokens("a"))
		}
		k.Adjust("a", math.MaxInt)
		if wait := k.Take("a", 1); wait < 300*24*time.Hour || wait > 400*24*time.Hour {
			t.Errorf("the longest debt is %v", wait)
		}
	})
}

func TestCalendarIsRead(t *testing.T) {
	for _, limit := range []string{"5/day in UTC", "5 / Week in Europe/Berlin", "1000 requests per day in America/New_York", "7/month IN UTC", "5/h in UTC, 4/1m even"} {
		inbound.NewKeyed[int](0, limit)
	}
	for limit, says := range map[string]string{
		"5/24h in UTC": "24h", "5/day in Nowhere/Town": "Nowhere/Town", "0/day in UTC": "units", "5.5/day in UTC": "units",
		"5/day in": "", "5/day UTC": "", "in UTC": "in", "5/year in UTC": "year", "5/day window in UTC": "window", "x/day in UTC": "units",
	} {
		if got := recovered(func() { inbound.NewKeyed[int](0, limit) }); !strings.HasPrefix(got, "throttle: inbound.NewKeyed: ") || !strings.Contains(got, says) {
			t.Errorf("%s: %q", limit, got)
		}
	}
}

// TestCalendarBackOverTheFirst: clocks that go back over midnight into the last day of a month, or a week, do not begin the old one
// again.
func TestCalendarBackOverTheFirst(t *testing.T) {
	for _, c := range []struct{ unit, at, until string }{
		{"month", "2009-11-01T02:31:30Z", "2009-12-01T03:30:00Z"}, // 0:01 was followed by 23:01
		{"month", "2009-11-01T03:20:00Z", "2009-12-01T03:30:00Z"},
		{"day", "2009-11-01T03:20:00Z", "2009-11-02T03:30:00Z"},
	} {
		synctest.Test(t, func(t *testing.T) {
			at, _ := time.Parse(time.RFC3339, c.at)
			until, _ := time.Parse(time.RFC3339, c.until)
			k := inbound.NewKeyed[int](1, "1/"+c.unit+" in America/St_Johns")
			sleepUntil(at)
			first, wait := k.Take(1, 1), k.Take(1, 1)
			if first != 0 || wait != until.Sub(at) {
				t.Errorf("1/%s at %v: %v, and %v for one more, want 0 and %v", c.unit, c.at, first, wait, until.Sub(at))
			}
		})
	}
}
