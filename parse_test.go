package throttle_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"regexp"
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
		"1/1m30s burst 1":   throttle.NewBucket(rate.Limit(1)/90, 1),
		"86400/d burst 2":   throttle.NewBucket(1, 2),
		"259200/1d48h even": throttle.NewLeaky(1),
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
		"100/min even":      throttle.NewLeaky(rate.Limit(100) / 60),
		"9/3mins sliding":   throttle.NewSlidingWindow(9, 3*time.Minute),
		"9/.5minute window": throttle.NewFixedWindow(9, 30*time.Second),
		"5000/hour sliding": throttle.NewSlidingWindow(5000, time.Hour),
		"5000/2hours even":  throttle.NewLeaky(rate.Limit(5000) / 7200),
		"7/day window":      throttle.NewFixedWindow(7, day),
		"7/2days window":    throttle.NewFixedWindow(7, 2*day),

		"100/minute burst 20": throttle.NewBucket(rate.Limit(100)/60, 20),

		"3/1d2h3m4s window": throttle.NewFixedWindow(3, day+2*time.Hour+3*time.Minute+4*time.Second),

		"10 rps":                           throttle.NewBucket(10, 1),
		"10rps":                            throttle.NewBucket(10, 1),
		"10 RPS":                           throttle.NewBucket(10, 1),
		"2.5 qps even":                     throttle.NewLeaky(2.5),
		"60rpm burst 5":                    throttle.NewBucket(1, 5),
		"40000 TPM window":                 throttle.NewFixedWindow(40000, time.Minute),
		"100rph sliding":                   throttle.NewSlidingWindow(100, time.Hour),
		"50 rpd window":                    throttle.NewFixedWindow(50, day),
		"10r/s":                            throttle.NewBucket(10, 1),
		"30r/m even":                       throttle.NewLeaky(0.5),
		"10 r/s burst 3":                   throttle.NewBucket(10, 3),
		"10 req/s":                         throttle.NewBucket(10, 1),
		"10req/sec":                        throttle.NewBucket(10, 1),
		"10 reqs / s":                      throttle.NewBucket(10, 1),
		"10 requests/second":               throttle.NewBucket(10, 1),
		"10 Requests Per Second":           throttle.NewBucket(10, 1),
		"10 calls per sec":                 throttle.NewBucket(10, 1),
		"1 request per second":             throttle.NewBucket(1, 1),
		"7 queries per second":             throttle.NewBucket(7, 1),
		"10 tokens per second":             throttle.NewBucket(10, 1),
		"100 per hour sliding":             throttle.NewSlidingWindow(100, time.Hour),
		"1 per 2 seconds":                  throttle.NewBucket(0.5, 1),
		"10 / s":                           throttle.NewBucket(10, 1),
		"10 /s":                            throttle.NewBucket(10, 1),
		"10/ s":                            throttle.NewBucket(10, 1),
		"10/Second":                        throttle.NewBucket(10, 1),
		"10/S Even":                        throttle.NewLeaky(10),
		"10 / 5 s":                         throttle.NewBucket(2, 1),
		"1/2 seconds":                      throttle.NewBucket(0.5, 1),
		"1 / 2 seconds burst 3":            throttle.NewBucket(0.5, 3),
		"100/59s":                          throttle.NewBucket(rate.Limit(100)/59, 1),
		"100 per 5 minutes sliding":        throttle.NewSlidingWindow(100, 5*time.Minute),
		"100 per 5minutes sliding":         throttle.NewSlidingWindow(100, 5*time.Minute),
		"100 requests per 5 min window":    throttle.NewFixedWindow(100, 5*time.Minute),
		"90 per 1 hour 30 minutes Burst 4": throttle.NewBucket(rate.Limit(1)/60, 4),
		"3/1day12h window":                 throttle.NewFixedWindow(3, day+12*time.Hour),
		"3/1.5d window":                    throttle.NewFixedWindow(3, day+12*time.Hour),
		"3/1 day window":                   throttle.NewFixedWindow(3, day),
		"3/w window":                       throttle.NewFixedWindow(3, 7*day),
		"3 per week sliding":               throttle.NewSlidingWindow(3, 7*day),
		"3/2weeks window":                  throttle.NewFixedWindow(3, 14*day),
		"3 per 2 Weeks window":             throttle.NewFixedWindow(3, 14*day),
		"9/3hrs sliding":                   throttle.NewSlidingWindow(9, 3*time.Hour),
		"1/100 milliseconds":               throttle.NewBucket(10, 1),
		"Unlimited":                        throttle.NewBucket(rate.Inf, 0),
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
		"10/12h1":                             `time "12h1" is not a unit (`,
		"10/Fortnight":                        `time "Fortnight" is not a unit (`,
		"10/month":                            `time "month" is not a unit (`,
		"10/1s0":                              `time "1s0" is not a unit (`,
		"10/1h.s":                             `time "1h.s" is not a unit (`,
		"10/s/s":                              `time "s/s" is not a unit (`,
		"1/2 per second":                      `time "2 per" is not a unit (`,
		"10 rpx":                              `time "x" is not a unit (`,
		"rps":                                 `units ""`,
		"10 k requests/s":                     `units "10 k requests"`,
		"1 000/s":                             `units "1 000"`,
		"10 apples/s":                         `units "10 apples"`,
		"req/s":                               `units ""`,
		"10/9000w":                            `time "9000w"`,
		"10/99999999999w":                     `time "99999999999w"`,
		"10/ss":                               `time "ss"`,
		"10/2000000h":                         `time "2000000h"`,
		"10/d1":                               `time "d1"`,
		"10/1d-1h":                            `time "1d-1h"`,
		"10/1dd":                              `time "1dd"`,
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
		"10 per fortnight":                `time "fortnight" is not a unit (`,
		"10 per":                          `"10 per" is not units/time, as in 10/s, 10 rps or 10 per second`,
		"1 every 2 seconds":               `"1 every 2 seconds" is not units/time, as in 10/s`,
		"100 a minute":                    `"100 a minute" is not units/time, as in 10/s`,
		"10 in a":                         `"10 in a" is not units/time, as in 10/s`,
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

// A time of a minute or longer needs a kind. The error offers all that may be meant, in the words of the text, and each
// of these can be read.
func TestLimitNeedsKind(t *testing.T) {
	for _, text := range []string{
		"1000/h", "100/60s", "100/1m", "5/m", "1/m", "100/min", "7 per day", "60rpm", "60 RPM", "10 / 1 Hour", "30r/m",
		"100 requests per 5 minutes", "100 calls per hour", "3/w", "1/90s", "12345678/2d", "0.5/h", "2.5 per minute", "1/146d",
	} {
		_, err := throttle.ParseLimit("3/s, " + text)
		if err == nil {
			t.Errorf("%q is read", text)
			continue
		}
		_, offers, _ := strings.Cut(err.Error(), fmt.Sprintf("%q needs a kind: ", text))
		kinds := []string{" burst ", " even", " sliding", " window"}
		for i, offer := range regexp.MustCompile(`"[^"]*"`).FindAllString(offers, -1) {
			offer = strings.Trim(offer, `"`)
			if _, err := throttle.ParseLimit(offer); err != nil || !strings.HasPrefix(offer, text+kinds[i]) {
				t.Errorf("%q: offers %q: %v", text, offer, err)
			}
			kinds[i] = ""
		}
		switch left := strings.Join(kinds, ""); {
		case strings.Contains(text, "."):
			if left != " sliding window" || !strings.HasSuffix(err.Error(), "; sliding and window need whole units") {
				t.Errorf("%q: %v", text, err)
			}
		case left != "":
			t.Errorf("%q: not offered:%s: %v", text, left, err)
		}
	}
	_, err := throttle.ParseLimit("1000/h")
	want := `throttle: ParseLimit("1000/h"): "1000/h" needs a kind: "1000/h burst 100" (100 at once, then one every 3.6s), ` +
		`"1000/h even" (one every 3.6s), "1000/h sliding" (at most 1000 in any such time) or "1000/h window" (all 1000 at once, in each)`
	if fmt.Sprint(err) != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// Whatever the length of a text, it is read or rejected soon, and an error is no longer than what one reads.
func TestHugeLimitText(t *testing.T) {
	const much = 1 << 17
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
	if l, err := throttle.ParseLimit(strings.Repeat("10/s,", 99) + "1/h even"); err != nil || l == nil {
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
		"60 RPM burst 1":          "60/m burst 1",
		"10/59s burst 1":          "10/59s",
		"3 per 7 days window":     "3/w window",
		"3/2 weeks window":        "3/14d window",
		"2 per 100 ms, 9/d even, 1000 per hour sliding": "2/100ms, 9/d even, 1000/h sliding",
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
		"100/1m burst 20":           "100/m burst 20",
		"10/s, 1000/h even":         "10/s, 1000/h burst 1",
		"1000/h even, 10/s":         "1000/h burst 1, 10/s",
		"2/100ms":                   "20/s",
		"5/s even":                  "5/s even",
		"0.3/s":                     "18/m burst 1",
		"60/m even":                 "1/s even",
		"90/m even":                 "90/m even",
		"100/90s window":            "100/1m30s window",
		"100/s window, 9/d burst 2": "100/s window, 9/d burst 2",
		"unlimited":                 "unlimited",
		"1/7d burst 1":              "1/w burst 1",
		"1/9d burst 1":              "0.000001286008230452675/s",
		"3/h sliding, 3/s":          "3/h sliding, 3/s",
		"3/s, 5/s, 7/s, 5/s, 1/m window, 9/2s, 2/h sliding, 8/s": "3/s, 5/s, 7/s, 5/s, 1/m window, 270/m burst 1, 2/h sliding, 8/s",
		"1000/2d even, 3/99h even":                               "",
	} {
		l, err := throttle.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(l)
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
	if err := json.Unmarshal([]byte(`{"API": "10/s burst 3", "Bulk": "2/s, 100/h even"}`), &config); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(config)
	if want := `{"API":"10/s burst 3","Bulk":"2/s, 100/h even","None":"unlimited"}`; err != nil || string(out) != want {
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

// An absent limit is not one that says "unlimited", though both limit nothing.
func TestLimitIsZero(t *testing.T) {
	type config struct {
		API throttle.Limit `json:",omitzero"`
	}
	for text, want := range map[string]bool{`{}`: true, `{"API": null}`: true, `{"API": "unlimited"}`: false, `{"API": " Unlimited "}`: false, `{"API": "10/s"}`: false} {
		var c, again config
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			t.Fatal(err)
		}
		if c.API.IsZero() != want || want != (c.API == throttle.Limit{}) {
			t.Errorf("%s: %#v, zero %v", text, c.API, c.API.IsZero())
		}
		out, err := json.Marshal(c)
		if err != nil || strings.Contains(string(out), "API") == want || json.Unmarshal(out, &again) != nil || again != c {
			t.Errorf("%s is written as %s, %v, and read as %v", text, out, err, again)
		}
		if text != `{"API": "10/s"}` && (c.API.String() != "unlimited" || c.API.New().(*throttle.Bucket).Limit() != rate.Inf) {
			t.Errorf("%s limits something: %v", text, c.API)
		}
	}
	var l throttle.Limit
	if err := l.UnmarshalText(nil); err == nil || !l.IsZero() {
		t.Errorf("an empty text gives %v, %v", l, err)
	}
}

// A LimiterVar, and limiters that are joined, print what they are made of in the order in which it was named.
func TestLimitersPrintInOrder(t *testing.T) {
	var v throttle.LimiterVar
	a, b, c := throttle.NewBucket(1, 3), throttle.NewFixedWindow(2, time.Minute), throttle.NewSlidingWindow(3, time.Second)
	for range 20 { // ranks are random
		for _, l := range []struct {
			all  throttle.Limiter
			want string
		}{
			{throttle.All(c, a, b), "3/s sliding, 1/s burst 3, 2/m window"},
			{throttle.All(b, throttle.All(c, a), b), "2/m window, 3/s sliding, 1/s burst 3"},
			{throttle.All(c, &v, b), "3/s sliding, 1/s burst 3, 2/m window"},
			{throttle.All(&v, c), "1/s burst 3, 2/m window, 3/s sliding"},
		} {
			if v.Set(throttle.All(a, b)); fmt.Sprint(l.all) != l.want {
				t.Errorf("%v, want %s", l.all, l.want)
			}
		}
		if v.Set(throttle.All(c, b, a)); v.String() != "3/s sliding, 2/m window, 1/s burst 3" {
			t.Error(v.String())
		}
		a, b, c = throttle.NewBucket(1, 3), throttle.NewFixedWindow(2, time.Minute), throttle.NewSlidingWindow(3, time.Second)
	}
}

// Whatever the text, ParseLimit does not panic, and what it returns is a limit that works and prints itself.
func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{"10/s", "100/1m burst 20", "5000/h sliding", "100/s window", "5/s even", "0.5/1d12h", "1/ns even", "NaN/s", "1/9999999d", "0x1p-2/s", " /", "1/µs burst 1", "1/1h1h", "10/second", "100/minute burst 20", "7/2days window", "1/hundred", "10/s, 1000/h", "10 per second", "unlimited", "10RPS", "100 per 5 minutes sliding", "1/2 seconds", "3/w window", "1000/h", "0.5/h", "7 per day burst 2", "1/1 hour 30 minutes even"} {
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
