package hint

import (
	"math"
	"net/http"
	"strings"
	"time"
)

const (
	maxWait = time.Duration(math.MaxInt64)
	day     = 24 * time.Hour

	// resolution is that of an HTTP date: the moment meant lies somewhere in the
	// second told, so only its end is surely late enough.
	resolution = time.Second

	// maxDate is more than any date takes, in bytes.
	maxDate = 64
)

// retryAfter returns the longest wait that the Retry-After fields of h tell, or 0.
func retryAfter(h http.Header, now time.Time) time.Duration {
	var longest time.Duration
	for _, v := range h["Retry-After"] {
		v = strings.Trim(v, " \t")
		wait, ok := parseSeconds(v)
		if !ok {
			wait = untilDate(v, h, now)
		}
		longest = max(longest, wait)
	}
	return longest
}

// parseSeconds reads 1*DIGIT [ "." 1*DIGIT ] as seconds and rounds up to the next
// nanosecond. It saturates: a number too large for a Duration is the longest one.
//
// The standard library's number parsers are not used because they also take +5,
// 0x10, 1_000, 1e3, NaN and Inf. The bound is checked before multiplying: 18446744074
// seconds, multiplied first, wrap around to a small positive wait, which no
// later check would find.
func parseSeconds(s string) (time.Duration, bool) {
	whole, frac, hasFrac := strings.Cut(s, ".")
	if !allDigits(whole) || hasFrac && !allDigits(frac) {
		return 0, false
	}
	const maxSeconds = int64(maxWait/time.Second) - 1 // leaves room for a fraction
	var seconds int64
	for _, c := range []byte(whole) {
		seconds = seconds*10 + int64(c-'0')
		if seconds > maxSeconds {
			return maxWait, true
		}
	}
	return time.Duration(seconds)*time.Second + fraction(frac), true
}

// fraction returns the digits behind the decimal point of a number of seconds as
// a Duration of at most one second, rounded up.
func fraction(digits string) time.Duration {
	var d time.Duration
	unit := time.Second
	for _, c := range []byte(digits) {
		if unit == 1 { // finer than a nanosecond
			if c != '0' {
				return d + 1
			}
			continue
		}
		unit /= 10
		d += time.Duration(c-'0') * unit
	}
	return d
}

func allDigits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

// untilDate returns the time from the moment of the response to the end of the
// second that s names. It is 0 if s is no date or has passed.
func untilDate(s string, h http.Header, now time.Time) time.Duration {
	t, ok := parseDate(s, now)
	if !ok {
		return 0
	}
	// Both dates come from one clock, so their difference is right even where that
	// clock is wrong. A Date that is far off is more likely a cached or a made-up
	// one than a clock.
	from := now
	if lines := h["Date"]; len(lines) > 0 {
		date, ok := parseDate(strings.Trim(lines[0], " \t"), now)
		if ok && date.Sub(now).Abs() <= day {
			from = date
		}
	}
	return max(0, t.Add(resolution).Sub(from)) // Sub saturates
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
