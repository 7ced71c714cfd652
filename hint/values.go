package hint

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// This file reads numbers, and turns moments into spans. Every function saturates or reports failure; none returns
// a negative span, and none trusts that a value is short.

const (
	maxWait = time.Duration(math.MaxInt64)
	day     = 24 * time.Hour

	// resolution is that of an HTTP date.
	resolution = time.Second

	// maxTime is longer than any date or span, in bytes.
	maxTime = 128
)

// parseDecimal reads 1*DIGIT [ "." 1*DIGIT ] as a number of units, rounded up to the next nanosecond. A
// number too large for a Duration becomes the longest one. In seconds:
//
//	120             2 m
//	0.0000000001    1 ns
//	9223372037      the longest Duration, 292 years
//
// It does not use the number parsers of the standard library, which also take +5, 0x10, 1_000, 1e3, NaN and
// Inf. The bound is checked before the multiplication: 18446744074 seconds, multiplied first, wrap around to
// 0.29 s, which no later check would notice.
func parseDecimal(s string, unit time.Duration) (time.Duration, bool) {
	if !isDecimal(s) {
		return 0, false
	}
	whole, frac, _ := strings.Cut(s, ".")
	n := digits(whole)
	if n > int64(maxWait/unit)-1 { // one unit less, as a fraction may follow
		return maxWait, true
	}
	return time.Duration(n)*unit + fraction(frac, unit), true
}

// fraction returns the digits behind the decimal point as a Duration of at most one unit. It rounds up, so
// that no wait ends early: if the digits below a nanosecond are not all 0, they count as one more.
func fraction(digits string, unit time.Duration) time.Duration {
	var d time.Duration
	for _, c := range []byte(digits) {
		if unit < 10 { // finer than a nanosecond
			if c != '0' {
				return d + unit
			}
			continue
		}
		unit /= 10
		d += time.Duration(c-'0') * unit
	}
	return d
}

// digits returns the number that decimal digits stand for, or the largest int64 if it is too large.
func digits(s string) int64 {
	var n int64
	for _, c := range []byte(s) {
		if n > (math.MaxInt64-9)/10 {
			return math.MaxInt64
		}
		n = n*10 + int64(c-'0')
	}
	return n
}

// amount returns the number of units that decimal digits stand for. A number beyond 64 bits is -1, unknown:
// it means "no limit" and not a number.
func amount(s string) int64 {
	if len(s) < 19 { // always fits
		return digits(s)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// allDigits reports whether s is ASCII digits, and not empty.
func allDigits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

// isDecimal reports whether s is digits, with or without a decimal fraction.
func isDecimal(s string) bool {
	whole, frac, hasFrac := strings.Cut(s, ".")
	return allDigits(whole) && (!hasFrac || allDigits(frac))
}

// parseRate reads a decimal number of units per second. isDecimal leaves nothing of what ParseFloat would
// accept beside it.
func parseRate(s string) (float64, bool) {
	s = trim(s)
	if len(s) > 32 || !isDecimal(s) {
		return 0, false
	}
	rate, err := strconv.ParseFloat(s, 64)
	return rate, err == nil
}

// trim removes the blanks and tabs that RFC 9110 allows around a field's value.
func trim(s string) string { return strings.Trim(s, " \t") }

// clock turns the times in a response into spans from now.
type clock struct {
	now    time.Time     // by the local clock, when the response was received
	header http.Header   // its Date is the server's clock
	wait   time.Duration // of the response's Retry-After; 0: none. See number
	order  bool          // a moment is one before which nothing may be sent. See until
}

// until returns the time from now, when the response was received, to t; 0 if t has passed.
//
// t and Date come from one clock, so their difference is right even if that clock is wrong. A Date that is
// far off comes from a cache or is made up, so it is ignored. If Date is the second in which now lies, the
// two clocks agree as far as can be seen, and now is the finer one.
//
// That is not safe enough for a moment before which nothing may be sent (c.order): two clocks that show the
// same second may still be nearly a second apart. The server's clock showed the beginning of the second in
// Date, or later. So t − Date is the shortest wait that certainly reaches t, and it ends less than a second
// after t. For example, Date 12:00:00 and t 12:00:05 mean 5 s, though the server may have meant 4.1 s.
// Without a Date, the second of now takes its place.
//
// A t that lies in the second of Date has not passed: Date is in whole seconds, and most moments are too. An
// order then means one second, as no date can say less, and a window ends with that second. For example, Date
// 12:00:00, a reset of 12:00:00 and a now of 12:00:00.3 mean 0.7 s.
func (c clock) until(t time.Time) time.Duration {
	from, known := c.date()
	if !known {
		from = c.now.Truncate(resolution)
	}
	wait := t.Sub(from) // saturates
	if wait < 0 {
		return 0
	}
	if c.order {
		return max(resolution, wait)
	}
	if off := c.now.Sub(from); off >= 0 && off < resolution {
		if wait -= off; wait <= 0 {
			wait = resolution - off
		}
	}
	return orElse(wait, resolution, 0)
}

// date returns the Date of the response, and whether it is near enough to now to be trusted.
func (c clock) date() (time.Time, bool) {
	lines := c.header["Date"]
	if len(lines) == 0 {
		return time.Time{}, false
	}
	d, ok := parseDate(trim(lines[0]), c.now)
	return d.t, ok && c.now.Sub(d.t).Abs() <= day
}

// server returns the server's clock as far as it is known: Date, or now.
func (c clock) server() time.Time {
	if date, ok := c.date(); ok {
		return date
	}
	return c.now
}

// near reports whether a and b are no further apart than within.
func near(a, b, within time.Duration) bool { return (a - b).Abs() <= within }
