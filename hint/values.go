package hint

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	maxWait = time.Duration(math.MaxInt64)
	day     = 24 * time.Hour

	// resolution is that of an HTTP date.
	resolution = time.Second

	// maxDate is more than any date takes, in bytes.
	maxDate = 64

	// epochFrom tells a span from a moment: no server asks a client to come back in
	// 31 years, and no clock stands at September 2001.
	epochFrom = 1e9 * time.Second
)

// parseDecimal reads 1*DIGIT [ "." 1*DIGIT ] as a number of units, which is
// positive, and rounds up to the next nanosecond. It saturates: a number too
// large for a Duration is the longest one.
//
// The standard library's number parsers are not used because they also take +5,
// 0x10, 1_000, 1e3, NaN and Inf. The bound is checked before multiplying: 18446744074
// seconds, multiplied first, wrap around to a small positive wait, which no
// later check would find.
func parseDecimal(s string, unit time.Duration) (time.Duration, bool) {
	if !isDecimal(s) {
		return 0, false
	}
	whole, frac, _ := strings.Cut(s, ".")
	n := digits(whole)
	if n > int64(maxWait/unit)-1 { // leaves room for a fraction
		return maxWait, true
	}
	return time.Duration(n)*unit + fraction(frac, unit), true
}

// fraction returns the digits behind the decimal point of a number of units as
// a Duration of at most one unit, rounded up.
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

// digits returns the number that decimal digits write, or the largest one.
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

// amount returns the number of units that decimal digits write. -1: more than 64 bits hold,
// which stands for no limit at all rather than for a number.
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

func allDigits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

// isDecimal tells whether s is digits with or without a decimal fraction.
func isDecimal(s string) bool {
	whole, frac, hasFrac := strings.Cut(s, ".")
	return allDigits(whole) && (!hasFrac || allDigits(frac))
}

// parseRate reads a decimal number of units per second.
func parseRate(s string) (float64, bool) {
	s = trim(s)
	if len(s) > 32 || !isDecimal(s) {
		return 0, false
	}
	rate, err := strconv.ParseFloat(s, 64)
	return rate, err == nil
}

func trim(s string) string { return strings.Trim(s, " \t") }

// clock is what times are read against.
type clock struct {
	now    time.Time   // of the local clock, when the response came
	header http.Header // whose Date is the server's clock
	wait   time.Duration
	order  bool // a moment is one not to send before, see until
}

// until returns the time from the moment of the response to t, or 0 if t has
// passed.
//
// Both t and Date come from one clock, so their difference is right even where
// that clock is wrong. A Date that is far off is more likely a cached or a made-up
// one than a clock. Where Date is the second that now lies in, the two clocks
// agree as far as can be seen, and now is the finer one.
//
// That is not safe enough for a time not to send before (c.order): two clocks that
// show the same second may still be nearly a second apart. When the response comes,
// the server's clock shows the beginning of the second in Date, or later. So
// t - Date is the shortest wait that surely reaches t, and it ends less than a second
// after t. Without a Date, the second of now stands in for it. If t lies in that
// second, the wait is one second, because no date could say less.
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

// date returns the Date of the response, if it is near enough to now to be believed.
func (c clock) date() (time.Time, bool) {
	lines := c.header["Date"]
	if len(lines) == 0 {
		return time.Time{}, false
	}
	date, ok := parseDate(trim(lines[0]), c.now)
	return date, ok && c.now.Sub(date).Abs() <= day
}

// reset reads a told end of a window, in whatever form, as the time until then. A
// plain number is a number of units; unit 0: by its size. Of a list the first
// member counts.
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
		t = t.Add(resolution) // the window ends within that second
	}
	return c.until(t), ok
}

// number reads a plain number as a span or a moment, by its size: below 1e9 it is
// seconds, below 1e11 the second since 1970, above that the millisecond. A moment
// after the year 2262, where a Duration ends, is none.
//
// A span in milliseconds cannot be seen from its size. It is believed to be one
// only if a Retry-After in the same response says so: if the number means that
// wait in milliseconds, and not in seconds.
func (c clock) number(s string, unit time.Duration) (time.Duration, bool) {
	told := unit > 0
	if !told {
		whole, _, _ := strings.Cut(s, ".")
		if unit = time.Second; digits(whole) >= 1e11 {
			unit = time.Millisecond
		}
	}
	d, ok := parseDecimal(s, unit)
	switch {
	case !ok || d == maxWait:
		return 0, false
	case d >= epochFrom:
		return c.until(time.Unix(0, int64(d))), true
	case !told && c.wait > 0 && d >= 1000*time.Second && !near(d, c.wait, 2*time.Second) && near(d/1000, c.wait, time.Second):
		return d / 1000, true
	}
	return d, true
}

func near(a, b, within time.Duration) bool { return (a - b).Abs() <= within }

// isSpan tells whether s can be a Go duration that is not negative: 6m0s, 20ms.
func isSpan(s string) bool {
	if s == "" || len(s) > maxDate || s[0] < '0' || s[0] > '9' {
		return false
	}
	last := s[len(s)-1]
	return (last == 's' || last == 'm' || last == 'h') && !strings.ContainsAny(s, " -:,")
}

// parseISO reads an RFC 3339 time, also without its seconds.
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

// parseDate reads the three date forms of RFC 9110 §5.6.7. http.ParseTime would
// take any zone name in the second form and give it the offset it has on this
// machine, and it rejects UTC and days of one digit.
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

// fullYear moves t, whose year was told with two digits, by centuries until it
// lies within 50 years of now: RFC 9110 §5.6.7 wants a year that appears to be more
// than 50 years ahead to be taken as past.
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
