package throttle_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle"
)

func TestParseLimit(t *testing.T) {
	synctest.Test(t, testParseLimit)
}

func testParseLimit(t *testing.T) {
	const day = 24 * time.Hour
	for s, want := range map[string]throttle.Limiter{
		"10/s":              throttle.NewBucket(10, 1),
		"  10/s ":           throttle.NewBucket(10, 1),
		"0.5/s":             throttle.NewBucket(0.5, 1),
		"100/1m burst 20":   throttle.NewBucket(rate.Limit(100)/60, 20),
		"100/m  burst  20":  throttle.NewBucket(rate.Limit(100)/60, 20),
		"1/100ms":           throttle.NewBucket(10, 1),
		"1/1m30s":           throttle.NewBucket(rate.Limit(1)/90, 1),
		"86400/d":           throttle.NewBucket(1, 1),
		"259200/1d48h":      throttle.NewBucket(1, 1),
		"5/s even":          throttle.NewLeaky(5),
		"2.5/s even":        throttle.NewLeaky(2.5),
		"5000/h sliding":    throttle.NewSlidingWindow(5000, time.Hour),
		"7/2d sliding":      throttle.NewSlidingWindow(7, 2*day),
		"7/.5h sliding":     throttle.NewSlidingWindow(7, 30*time.Minute),
		"100/s window":      throttle.NewFixedWindow(100, time.Second),
		"100/250us window":  throttle.NewFixedWindow(100, 250*time.Microsecond),
		"100/250µs window":  throttle.NewFixedWindow(100, 250*time.Microsecond),
		"3/ns window":       throttle.NewFixedWindow(3, 1),
		"10/second":         throttle.NewBucket(10, 1),
		"10/sec even":       throttle.NewLeaky(10),
		"60/30seconds":      throttle.NewBucket(2, 1),
		"5/2secs":           throttle.NewBucket(2.5, 1),
		"100/min":           throttle.NewBucket(rate.Limit(100)/60, 1),
		"9/3mins sliding":   throttle.NewSlidingWindow(9, 3*time.Minute),
		"9/.5minute window": throttle.NewFixedWindow(9, 30*time.Second),
		"5000/hour sliding": throttle.NewSlidingWindow(5000, time.Hour),
		"5000/2hours":       throttle.NewBucket(rate.Limit(5000)/7200, 1),
		"7/day window":      throttle.NewFixedWindow(7, day),
		"7/2days window":    throttle.NewFixedWindow(7, 2*day),

		"100/minute burst 20": throttle.NewBucket(rate.Limit(100)/60, 20),

		"3/1d2h3m4s window": throttle.NewFixedWindow(3, day+2*time.Hour+3*time.Minute+4*time.Second),
	} {
		got, err := throttle.ParseLimit(s)
		if err != nil {
			t.Errorf("%q: %v", s, err)
			continue
		}
		if g, w := describe(got), describe(want); g != w {
			t.Errorf("%q is %s, want %s", s, g, w)
		}
	}
	for s, want := range map[string]string{
		"":                                    "units/time",
		"10":                                  `"10"`,
		"s/10":                                `time "10"`,
		"/s":                                  `units ""`,
		"10/":                                 `time ""`,
		"10/q":                                `time "q"`,
		"10/0s":                               `time "0s"`,
		"10/-1s":                              `time "-1s"`,
		"10/+1s":                              `time "+1s"`,
		"10/1":                                `time "1"`,
		"10/fortnight":                        `time "fortnight" is not a unit (`,
		"10/hundred":                          `time "hundred" is not a unit (`,
		"10/seconds2":                         `time "seconds2" is not a unit (`,
		"10/1day12h":                          `time "1day12h" is not a unit (`,
		"10/1 day":                            `time "1" is not a unit (`,
		"10/Second":                           `time "Second" is not a unit (`,
		"10/ss":                               `time "ss"`,
		"10/2000000h":                         `time "2000000h"`,
		"10/d1":                               `time "d1"`,
		"10/1d-1h":                            `time "1d-1h"`,
		"10/1dd":                              `time "1dd"`,
		"10/1.5d":                             `time "1.5d"`,
		"10/999999999999h":                    `time "999999999999h"`,
		"10/99999999d":                        `time "99999999d"`,
		"10/53375d2000000h":                   `time "53375d2000000h"`,
		"10/NaN":                              `time "NaN"`,
		"0/s":                                 `units "0"`,
		"-1/s":                                `units "-1"`,
		"+1/s":                                `units "+1"`,
		"NaN/s":                               `units "NaN"`,
		"Inf/s":                               `units "Inf"`,
		"1e3/s":                               `units "1e3"`,
		"0x10/s":                              `units "0x10"`,
		"1_000/s":                             `units "1_000"`,
		"1.2.3/s":                             `units "1.2.3"`,
		"./s":                                 `units "."`,
		strings.Repeat("9", 400) + "/s":       `units "999`,
		strings.Repeat("9", 308) + "/ns even": `units "999`,
		"0." + strings.Repeat("0", 320) + "1/100d":      `units "0.000`,
		"0." + strings.Repeat("0", 321) + "9/100d even": `units "0.000`,
		"10/s burst":                      `kind "burst"`,
		"10/s burst 0":                    `burst "0"`,
		"10/s burst -5":                   `burst "-5"`,
		"10/s burst +5":                   `burst "+5"`,
		"10/s burst 1.5":                  `burst "1.5"`,
		"10/s burst 99999999999999999999": `burst "99999999999999999999"`,
		"10/s burst 5 even":               `kind "burst 5 even"`,
		"10/s smooth":                     `kind "smooth"`,
		"10/s even sliding":               `kind "even sliding"`,
		"1.5/s window":                    `units "1.5"`,
		"0/s sliding":                     `units "0"`,
		"99999999999999999999/s window":   `units "99999999999999999999"`,
		"10 / s":                          `"10" is not units/time in one word, as in 10/s`,
		"10 per second":                   `"10" is not units/time in one word, as in 10/s`,
		"10/s per key":                    `kind "per key" is none of: burst N, even, sliding, window`,
		"10/s burst=5":                    `kind "burst=5" is none of: burst N, even, sliding, window`,
	} {
		l, err := throttle.ParseLimit(s)
		if err == nil {
			t.Errorf("%q gives %s, want an error", s, describe(l))
		} else if !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "throttle: ParseLimit(") {
			t.Errorf("%q: %q does not name %s", s, err, want)
		}
	}
}

// describe writes a limiter down so that two can be compared, and uses it up. Time must stand still.
func describe(l throttle.Limiter) string {
	switch l := l.(type) {
	case *throttle.Bucket:
		return fmt.Sprintf("Bucket %.9g burst %d", float64(l.Limit()), l.Burst())
	case *throttle.Leaky:
		return fmt.Sprintf("Leaky %.9g", float64(l.Limit()))
	}
	n := int(left(l)) // of a window
	if wait, err := l.Take(context.Background(), n); wait != 0 || err != nil {
		return fmt.Sprintf("%T that does not give its %d units: %v, %v", l, n, wait, err)
	}
	per, err := l.Take(context.Background(), 1)
	return fmt.Sprintf("%T of %d per %v, %v", l, n, per, err)
}

// Whatever the text, ParseLimit does not panic, and what it returns is a limit that works.
func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{"10/s", "100/1m burst 20", "5000/h sliding", "100/s window", "5/s even", "0.5/1d12h", "1/ns even", "NaN/s", "1/9999999d", "0x1p-2/s", " /", "1/µs burst 1", "1/1h1h", "10/second", "100/minute burst 20", "7/2days window", "1/hundred"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := throttle.ParseLimit(text)
		if err != nil {
			if l != nil || !strings.HasPrefix(err.Error(), "throttle: ParseLimit(") {
				t.Fatalf("%q: %v, %v", text, l, err)
			}
			return
		}
		if s := throttle.NewQueue(l, throttle.QueueOptions{}).Stats(); !(s.Limit > 0 && s.Limit < rate.Inf) || s.Tokens < 1 {
			t.Fatalf("%q: %+v", text, s)
		}
		for range 3 {
			if wait, err := l.Take(context.Background(), 1); wait < 0 || err != nil {
				t.Fatalf("%q: Take(1) = %v, %v", text, wait, err)
			}
		}
	})
}
