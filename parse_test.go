package throttle_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
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
		"3/100us window":    throttle.NewFixedWindow(3, 100*time.Microsecond),
		"3/ns":              throttle.NewBucket(3e9, 1),
		"10/second":         throttle.NewBucket(10, 1),
		"10 per second":     throttle.NewBucket(10, 1),
		"unlimited":         throttle.NewBucket(rate.Inf, 0),
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
		"3/ns window":                     `time "ns" is shorter than a window may be, 100µs`,
		"3/99us sliding":                  `time "99us" is shorter than a window may be, 100µs`,
		"0/s sliding":                     `units "0"`,
		"99999999999999999999/s window":   `units "99999999999999999999"`,
		"10 / s":                          `"10 / s" is not units/time in one word, as in 10/s`,
		"10 per fortnight":                `time "fortnight" is not a unit (`,
		"10 per":                          `"10 per" is not units/time in one word, as in 10/s`,
		"100 a minute":                    `"100 a minute" is not units/time in one word, as in 10/s, or units per time`,
		"10/s, ":                          `"" is not units/time`,
		"10/s, 5/q":                       `time "q"`,
		"10/s, unlimited":                 `"unlimited" is not units/time`,
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

// Whatever the length of a text, it is read or rejected soon, and an error is no longer than what one reads.
func TestHugeLimitText(t *testing.T) {
	const much = 1 << 20
	for name, text := range map[string]string{
		"one word":       strings.Repeat("x", much),
		"bytes":          strings.Repeat("\xff\n", much) + "/s",
		"units":          strings.Repeat("9", much) + "/s",
		"a time":         "1/" + strings.Repeat("9", much),
		"a burst":        "1/s burst " + strings.Repeat("9", much),
		"kinds":          "10/s " + strings.Repeat("burst ", much),
		"many":           strings.Repeat("10/s, ", much) + "1/h",
		"a few too many": strings.Repeat("10/s,", 100) + "1/h",
	} {
		var l throttle.Limit
		_, err := throttle.ParseLimit(text)
		again := l.UnmarshalText([]byte(text))
		for _, err := range []error{err, again} {
			if err == nil || !strings.HasPrefix(err.Error(), "throttle: ") || len(err.Error()) > 1000 {
				t.Errorf("%s: %.2000v", name, err)
			}
		}
	}
	if l, err := throttle.ParseLimit(strings.Repeat("10/s,", 99) + "1/h"); err != nil || l == nil {
		t.Errorf("100 limits: %v", err)
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

// A Limit has one shortest form, which it prints, which it reads as the same Limit, and which its limiters
// print.
func TestLimitText(t *testing.T) {
	for text, want := range map[string]string{
		"unlimited":               "unlimited",
		" 10/1s ":                 "10/s",
		"10 per second":           "10/s",
		"010.50/sec":              "10.5/s",
		"100/60s burst 20":        "100/m burst 20",
		"7/2days sliding":         "7/2d sliding",
		"7/36h sliding":           "7/1d12h sliding",
		"9/3mins window":          "9/3m window",
		"3/24h0m1s window":        "3/1d1s window",
		"3/1ms window":            "3/1ms window",
		"10/s,1000/hour  sliding": "10/s, 1000/h sliding",
		"5/s even , 2/100ms":      "5/s even, 2/100ms",
	} {
		var l, again throttle.Limit
		if err := l.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if err := again.UnmarshalText([]byte(l.String())); l.String() != want || err != nil || again != l {
			t.Errorf("%q prints %q and reads as %q, %v; want %q", text, l, again, err, want)
		}
	}
	for text, want := range map[string]string{
		"100/1m burst 20":     "100/m burst 20",
		"10/s, 1000/h":        "10/s, 1000/h",
		"2/100ms":             "20/s",
		"5/s even":            "5/s even",
		"0.3/s":               "18/m",
		"100/90s window":      "100/1m30s window",
		"100/s window, 9/d":   "9/d, 100/s window",
		"unlimited":           "unlimited",
		"1/7d":                "0.0000016534391534391535/s",
		"3/h sliding, 3/s":    "3/s, 3/h sliding",
		"1000/2d even, 3/99h": "",
	} {
		l, err := throttle.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(l)
		if parts := strings.Split(got, ", "); len(parts) == 2 && want != "" && got != want { // in the order of random ranks
			got = parts[1] + ", " + parts[0]
		}
		if want != "" && got != want {
			t.Errorf("%q makes a limiter that prints %q, want %q", text, got, want)
		}
		if _, err := throttle.ParseLimit(got); err != nil {
			t.Errorf("%q makes a limiter that prints %q: %v", text, got, err)
		}
	}
}

// A Limit is what JSON and flags make of a text, and each New is a limiter of its own.
func TestLimitInConfiguration(t *testing.T) {
	var config struct {
		API, Bulk, None throttle.Limit
	}
	if err := json.Unmarshal([]byte(`{"API": "10/s burst 3", "Bulk": "2/s, 100/h"}`), &config); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(config)
	if want := `{"API":"10/s burst 3","Bulk":"2/s, 100/h","None":"unlimited"}`; err != nil || string(out) != want {
		t.Errorf("%s, %v; want %s", out, err, want)
	}
	err = json.Unmarshal([]byte(`{"API": ""}`), &config)
	if err == nil || !strings.Contains(err.Error(), `throttle: Limit "": "" is not units/time`) || config.API.String() != "10/s burst 3" {
		t.Errorf("an empty text: %v, and the limit is %v", err, config.API)
	}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var l throttle.Limit
	flags.TextVar(&l, "limit", throttle.Limit{}, "")
	if err := flags.Parse([]string{"-limit", "3/h window"}); err != nil || l.String() != "3/h window" {
		t.Errorf("a flag: %v, %v", l, err)
	}
	if err := flags.Parse([]string{"-limit", "3/fortnight"}); err == nil || !strings.Contains(err.Error(), `time "fortnight"`) {
		t.Errorf("a flag of nonsense: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		one, other := l.New(), l.New()
		one.Take(t.Context(), 3)
		if wait, _ := other.Take(t.Context(), 3); wait != 0 {
			t.Errorf("two limiters of one Limit share their units: %v", wait)
		}
		if wait, _ := (throttle.Limit{}).New().Take(t.Context(), math.MaxInt); wait != 0 {
			t.Errorf("the zero Limit makes a limiter that waits for %v", wait)
		}
	})
}

// Whatever the text, ParseLimit does not panic, and what it returns is a limit that works and prints itself.
func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{"10/s", "100/1m burst 20", "5000/h sliding", "100/s window", "5/s even", "0.5/1d12h", "1/ns even", "NaN/s", "1/9999999d", "0x1p-2/s", " /", "1/µs burst 1", "1/1h1h", "10/second", "100/minute burst 20", "7/2days window", "1/hundred", "10/s, 1000/h", "10 per second", "unlimited"} {
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
		if s := throttle.NewQueue(l, throttle.QueueOptions{}).Stats(); !(s.Limit > 0) || s.Tokens < 1 {
			t.Fatalf("%q: %+v", text, s)
		}
		var limit, again throttle.Limit
		if err := limit.UnmarshalText([]byte(text)); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if err := again.UnmarshalText([]byte(limit.String())); err != nil || again != limit {
			t.Fatalf("%q prints %q and reads as %q: %v", text, limit, again, err)
		}
		for range 3 {
			if wait, err := l.Take(context.Background(), 1); wait < 0 || err != nil {
				t.Fatalf("%q: Take(1) = %v, %v", text, wait, err)
			}
		}
	})
}
