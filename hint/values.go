package hint

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// This file reads numbers and times. Every function saturates or reports failure; none returns a negative
// span, and none trusts that a value is short.

const (
	maxWait = time.Duration(math.MaxInt64)
	day     = 24 * time.Hour

	// resolution is that of an HTTP date.
	resolution = time.Second

	// maxDate is longer than any date, in bytes.
	maxDate = 64

	// epochFrom tells a span from a moment: no server asks for a wait of 31 years, and no clock stands in
	// September 2001.
	epochFrom = 1e9 * time.Second
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
// Without a Date, the second of now takes its place. If t lies in that second, the wait is one second, as no
// date can say less.
func (c clock) until(t time.Time) time.Duration {
	from, known := c.date()
	if !c.order {
		if off := c.now.Sub(from); !known || off >= 0 && off < resolution {
			from = c.now
		}
		return max(0, t.Sub(from)) // Sub saturates
	}
	if !known {
		from = c.now.Truncate(resolution)
	}
	if t.Before(from) {
		return 0
	}
	return max(resolution, t.Sub(from))
}

// date returns the Date of the response, and whether it is near enough to now to be trusted.
func (c clock) date() (time.Time, bool) {
	lines := c.header["Date"]
	if len(lines) == 0 {
		return time.Time{}, false
	}
	date, ok := parseDate(trim(lines[0]), c.now)
	return date, ok && c.now.Sub(date).Abs() <= day
}

// reset reads the end of a window, in whatever form, as the time until then:
//
//	60, 1768046460, 1768046460000    a plain number, in unit; unit 0: by its size, see number
//	6m0s                             a Go duration
//	2026-01-10T12:01:00Z             RFC 3339
//	Sat, 10 Jan 2026 12:01:00 GMT    an HTTP date
//
// Of a list of numbers, the first counts.
func (c clock) reset(s string, unit time.Duration) (time.Duration, bool) {
	s = trim(s)
	first, _, _ := strings.Cut(s, ",")
	first, _, _ = strings.Cut(first, ";")
	switch first = trim(first); {
	case isDecimal(first):
		return c.number(first, unit)
	case isSpan(s):
		d, err := time.ParseDuration(s)
		return d, err == nil
	}
	if t, ok := parseISO(s); ok {
		return c.until(t), true
	}
	t, ok := parseDate(s, c.now)
	if !c.order {
		t = t.Add(resolution) // a window that ends within that second
	}
	return c.until(t), ok
}

// number reads a plain number as a span or a moment. If unit is 0, its size says which: below 1e9 it is
// seconds, below 1e11 seconds since 1970, and above that milliseconds since 1970. Moments after the year
// 2262, where a Duration ends, are ignored.
//
//	60               60 s
//	1768046460       12:01:00 on 10 January 2026
//	1768046460000    the same moment
//
// The size does not show that a span is in milliseconds. It is read so only if a Retry-After of the same
// response confirms it: with Retry-After: 4, a reset of 4000 is 4 s.
func (c clock) number(s string, unit time.Duration) (time.Duration, bool) {
	guess := unit == 0
	if guess {
		whole, _, _ := strings.Cut(s, ".")
		if unit = time.Second; digits(whole) >= 1e11 {
			unit = time.Millisecond
		}
	}
	d, ok := parseDecimal(s, unit)
	switch {
	case !ok || d == maxWait:
		return 0, false
	case d >= c.firstMoment():
		return c.until(time.Unix(0, int64(d))), true
	case guess && c.wait > 0 && d >= 1000*time.Second && !near(d, c.wait, 2*time.Second) && near(d/1000, c.wait, time.Second):
		return d / 1000, true
	}
	return d, true
}

// firstMoment is the smallest number of seconds that is a moment and not a span. That is 1e9, but the clock of
// a testing/synctest bubble begins at 946684800, the year 2000: there it is yesterday's moment.
func (c clock) firstMoment() time.Duration {
	const bubble = 946684800
	if now := c.now.Unix(); bubble <= now && now < int64(epochFrom/time.Second) {
		return time.Duration(now)*time.Second - day
	}
	return epochFrom
}

// near reports whether a and b are no further apart than within.
func near(a, b, within time.Duration) bool { return (a - b).Abs() <= within }

// isSpan reports whether s looks like a Go duration that is not negative: 6m0s, 20ms. Whether it is one,
// time.ParseDuration says.
func isSpan(s string) bool {
	if s == "" || len(s) > maxDate || s[0] < '0' || s[0] > '9' {
		return false
	}
	last := s[len(s)-1]
	return (last == 's' || last == 'm' || last == 'h') && !strings.ContainsAny(s, " -:,")
}

// parseISO reads an RFC 3339 time, with or without seconds. Its length and two of its bytes rule out most
// other values before time.Parse has to.
func parseISO(s string) (time.Time, bool) {
	if len(s) < 16 || len(s) > maxDate || s[4] != '-' || s[10] != 'T' {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t, err = time.Parse("2006-01-02T15:04Z07:00", s)
	}
	return t, err == nil
}

// parseDate reads the three date forms of RFC 9110 §5.6.7. http.ParseTime does not do: it takes any zone
// name in the second form and gives it the offset that it has on this machine, and it rejects UTC and days
// of one digit.
func parseDate(s string, now time.Time) (time.Time, bool) {
	if len(s) > maxDate {
		return time.Time{}, false
	}
	if utc, ok := strings.CutSuffix(s, " UTC"); ok {
		s = utc + " GMT"
	}
	for _, layout := range [...]string{
		"Mon, 2 Jan 2006 15:04:05 GMT", // IMF-fixdate
		time.ANSIC,                     // asctime
	} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	t, err := time.Parse("Monday, 2-Jan-06 15:04:05 GMT", s) // RFC 850
	if err != nil {
		return time.Time{}, false
	}
	return fullYear(t, now), true
}

// fullYear moves t, whose year had two digits, by centuries until t lies within 50 years of now. RFC 9110
// §5.6.7 takes a date that appears to be more than 50 years ahead as one in the past.
func fullYear(t, now time.Time) time.Time {
	t = t.AddDate((now.Year()/100-t.Year()/100)*100, 0, 0)
	switch {
	case t.After(now.AddDate(50, 0, 0)):
		return t.AddDate(-100, 0, 0)
	case t.Before(now.AddDate(-50, 0, 0)):
		return t.AddDate(100, 0, 0)
	}
	return t
}
