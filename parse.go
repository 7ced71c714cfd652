package throttle

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/go-throttle/throttle/internal/limit"
)

// ParseLimit makes a Limiter from text as it stands in configuration files: units per time, then the kind.
//
//	10/s              a Bucket of 10 units per second, burst 1
//	100/1m burst 20   a Bucket of 100 units per minute, burst 20
//	5/s even          a Leaky: one unit every 200 ms
//	5000/h sliding    a SlidingWindow: at most 5,000 units in any hour
//	100/s window      a FixedWindow: 100 units per window of one second
//
// The time is a unit (ns, us, ms, s, m, h, d, or sec, second, min, minute, hour, day, also in the plural),
// with or without a number before it, or a [time.ParseDuration] text that may begin with whole days, as in
// 1d12h. Units are plain decimal numbers; only buckets and even spacing allow fractions. Mind the kind:
// 300/m is one unit every 200 ms, and "300/m sliding" lets all 300 go at once. An error names the part that
// is wrong and its value; ParseLimit never panics.
func ParseLimit(s string) (Limiter, error) {
	l, err := parseLimit(strings.Fields(s))
	if err != nil {
		return nil, fmt.Errorf("throttle: ParseLimit(%q): %w", s, err)
	}
	return l, nil
}

// parseLimit reads the words of a limit: units/time, then nothing or one of the kinds. It checks all that
// the constructors check, so they do not panic.
func parseLimit(words []string) (Limiter, error) {
	units, unit, ok := strings.Cut(strings.Join(words[:min(1, len(words))], ""), "/")
	if !ok {
		return nil, fmt.Errorf("%q is not units/time in one word, as in 10/s", units)
	}
	per, err := parsePer(unit)
	if err != nil {
		return nil, err
	}
	switch kind := words[1:]; {
	case len(kind) == 0, len(kind) == 2 && kind[0] == "burst", len(kind) == 1 && kind[0] == "even":
		limit, err := parseRate(units, per)
		burst := 1
		if err == nil && len(kind) == 2 {
			burst, err = parseCount("burst", kind[1])
		}
		if err != nil {
			return nil, err
		}
		if len(kind) == 1 {
			return NewLeaky(limit), nil
		}
		return NewBucket(limit, burst), nil
	case len(kind) == 1 && (kind[0] == "window" || kind[0] == "sliding"):
		n, err := parseCount("units", units)
		if err != nil {
			return nil, err
		}
		if kind[0] == "window" {
			return NewFixedWindow(n, per), nil
		}
		return NewSlidingWindow(n, per), nil
	}
	return nil, fmt.Errorf("kind %q is none of: burst N, even, sliding, window", strings.Join(words[1:], " "))
}

// parseCount reads a whole number of at least 1, without a sign.
func parseCount(field, s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || strings.Trim(s, "0123456789") != "" {
		return 0, fmt.Errorf("%s %q is not a whole number from 1 to %d", field, s, math.MaxInt)
	}
	return n, nil
}

// parseRate reads a plain decimal number of units and returns the rate in units per second. Of what
// strconv accepts, it rejects signs, exponents, hexadecimal numbers, Inf and NaN.
func parseRate(s string, per time.Duration) (rate.Limit, error) {
	units, err := strconv.ParseFloat(s, 64)
	if err != nil || units <= 0 || strings.Trim(s, "0123456789.") != "" {
		return 0, fmt.Errorf("units %q is not a plain number above 0", s)
	}
	limit := rate.Limit(units / per.Seconds())
	if limit == 0 || limit >= rate.Inf {
		return 0, fmt.Errorf("units %q in %v is a rate beyond what a float64 holds", s, per)
	}
	return limit, nil
}

// parsePer reads the time after the slash: an optional number of whole days, then a duration. A unit alone
// means one of it, so "m" becomes "1m", and "1d12h" becomes one day and "0s12h".
func parsePer(s string) (time.Duration, error) {
	n := len(s) - len(strings.TrimLeft(s, "0123456789."))
	text, days := cmp.Or(s[:n], "1")+short(s[n:]), int64(0)
	if before, rest, ok := strings.Cut(text, "d"); ok && strings.Trim(before, "0123456789") == "" {
		text = "0s" + rest
		days, _ = strconv.ParseInt(before, 10, 64) // out of range: the largest number, which is rejected below
	}
	const day = 24 * time.Hour
	per, err := time.ParseDuration(text)
	if err == nil && days <= int64(limit.Forever/day) {
		if per += time.Duration(days) * day; 0 < per && per <= limit.Forever {
			return per, nil
		}
	}
	return 0, fmt.Errorf("time %q is not a unit (ns, us, ms, s, m, h, d, or second, minute, hour, day) or a duration above 0 and up to 146 years, as in 1m30s or 1d12h", s)
}

// short returns the letter of a unit that is spelled out, and anything else unchanged.
func short(unit string) string {
	switch strings.TrimSuffix(unit, "s") {
	case "sec", "second":
		return "s"
	case "min", "minute":
		return "m"
	case "hour":
		return "h"
	case "day":
		return "d"
	}
	return unit
}
