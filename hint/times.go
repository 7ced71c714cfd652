package hint

import (
	"strings"
	"time"
)

// This file reads the time that a field names, a span or a moment, in whatever form. One reader serves all fields:
// Retry-After and its kin, the ends of windows, and their lengths. Dates are in dates.go.

// epochFrom tells a span from a moment: no server asks for a wait of 31 years, and no clock stands in
// September 2001.
const epochFrom = 1e9 * time.Second

// read returns the time from now until what s names:
//
//	1768046409                       a moment since 1970, in s, ms, µs or ns; see moment
//	9, 9.5                           a span in unit; unit 0: seconds
//	9s, 9 seconds, PT9S, 00:00:09    a span in words; see parseSpan
//	Sat, 10 Jan 2026 12:00:09 GMT    a date; see parseDate
//
// The value may stand in quotation marks, as in JSON, and parameters behind it are passed over. What is anything else,
// or negative, is not read.
func (c clock) read(s string, unit time.Duration) (time.Duration, bool) {
	s, _, _ = strings.Cut(s, ";")
	s = trim(s)
	if n := len(s) - 1; n > 0 && s[0] == '"' && s[n] == '"' {
		s = s[1:n]
	}
	if s == "" || len(s) > maxTime {
		return 0, false
	}
	if isDecimal(s) {
		if t, ok := c.moment(s, unit); ok {
			return c.until(t), true
		}
		return c.span(s, unit)
	}
	if d, ok := parseSpan(s); ok {
		return d, d < maxWait || c.order
	}
	d, ok := parseDate(s, c.now)
	if !ok {
		return 0, false
	}
	if d.http && !c.order {
		d.t = d.t.Add(resolution) // a window that ends within that second
	}
	return c.until(d.t), true
}

// next reads the first time of a list, and returns what follows it. A list is what a proxy makes of several lines. Dates
// have commas too:
//
//	9, 9
//	Sat, 10 Jan 2026 12:00:09 GMT, Sat, 10 Jan 2026 12:00:09 GMT
func (c clock) next(s string, unit time.Duration) (d time.Duration, rest string, ok bool) {
	one, rest, more := strings.Cut(s, ",")
	if d, ok = c.read(one, unit); !ok && more {
		two, after, _ := strings.Cut(rest, ",")
		if d, ok = c.read(s[:len(one)+1+len(two)], unit); ok {
			rest = after
		}
	}
	return d, rest, ok
}

// reset reads the end or the length of a window. Of a list the first that can be read counts.
func (c clock) reset(s string, unit time.Duration) (d time.Duration, ok bool) {
	for i := 0; i < maxQuotas && s != "" && !ok; i++ {
		d, s, ok = c.next(s, unit)
	}
	return d, ok
}

// longest returns the longest of the waits in lines and their lists; ok reports whether any could be read. Proxies add
// lines of their own, and to wait for the longest is never too short. At most maxQuotas of them are looked at.
func (c clock) longest(lines []string, unit time.Duration) (longest time.Duration, ok bool) {
	n := 0
	for _, s := range lines {
		for more := true; more && n < maxQuotas; n++ {
			var d time.Duration
			var read bool
			d, s, read = c.next(s, unit)
			longest, ok, more = max(longest, d), ok || read, s != ""
		}
	}
	return longest, ok
}

// moment reads a plain number as a moment since 1970: in seconds, milliseconds, microseconds or nanoseconds, whichever
// brings it between September 2001 and 2262, where a Duration ends. It is that of one of them at most:
//
//	1768046409             seconds
//	1768046409000          milliseconds
//	1768046409000000       microseconds
//	1768046409000000000    nanoseconds
//
// It is a moment if it would be 31 years as a span in unit (0: seconds), or if the moment is within a day of the server's
// clock. So 1768046409 in a field in milliseconds is a moment too on that day, and 20 days 11 h on any other.
func (c clock) moment(s string, unit time.Duration) (t time.Time, ok bool) {
	if len(s) < 9 { // no moment is so short
		return t, false
	}
	first := c.firstMoment()
	for u := time.Second; u > 0; u /= 1000 {
		d, _ := parseDecimal(s, u)
		if d < first || d == maxWait {
			continue
		}
		t = time.Unix(0, int64(d))
		span, _ := parseDecimal(s, orElse(unit, time.Second, 0))
		return t, span >= first || t.Sub(c.server()).Abs() <= day
	}
	return t, false
}

// span reads a plain number as a span in unit (0: seconds). An order that is too long is the longest Duration; a window
// that never ends is not read.
//
// The size does not show that a span is in milliseconds. It is read so only if a Retry-After of the same
// response confirms it: with Retry-After: 4, a reset of 4000 is 4 s.
func (c clock) span(s string, unit time.Duration) (time.Duration, bool) {
	d, _ := parseDecimal(s, orElse(unit, time.Second, 0))
	switch {
	case d == maxWait:
		return d, c.order
	case unit == 0 && c.wait > 0 && d >= 1000*time.Second && !near(d, c.wait, 2*time.Second) && near(d/1000, c.wait, time.Second):
		return d / 1000, true
	}
	return d, true
}

// seconds reads the whole seconds of a structured field as a span or a moment.
func (c clock) seconds(n int64) time.Duration {
	if d := seconds(n); d >= c.firstMoment() && d < maxWait {
		return c.until(time.Unix(n, 0))
	}
	return seconds(n)
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

// spanUnits are the units of spans in words, beside the windows that names have (see spans).
var spanUnits = [...]struct {
	word string
	d    time.Duration
}{
	{"s", time.Second}, {"ms", time.Millisecond}, {"m", time.Minute}, {"h", time.Hour}, {"d", day}, {"w", 7 * day},
	{"sec", time.Second}, {"min", time.Minute}, {"hr", time.Hour}, {"msec", time.Millisecond}, {"milli", time.Millisecond},
	{"millisecond", time.Millisecond}, {"us", time.Microsecond}, {"µs", time.Microsecond}, {"μs", time.Microsecond},
	{"microsecond", time.Microsecond}, {"ns", time.Nanosecond}, {"nanosecond", time.Nanosecond},
}

// spanUnit returns the length of a unit, in whatever case and number; 0: it is none.
func spanUnit(word string) time.Duration {
	for range 2 {
		for i := range spanUnits {
			if u := &spanUnits[i]; word == u.word || fold(word, u.word) {
				return u.d
			}
		}
		if d := windowOf(word); d > 0 {
			return d
		}
		if n := len(word) - 1; n > 1 && word[n]|0x20 == 's' {
			word = word[:n]
		}
	}
	return 0
}

// windowOf returns the window that a unit word names; 0 if it is another word, which is then a unit, or a
// part of one. A number may stand before it: 15m, 24hour. A number alone is in seconds (Kong).
func windowOf(word string) time.Duration {
	name := strings.TrimLeft(word, "0123456789")
	n, known := time.Duration(1), spans[:spanWords]
	if count := word[:len(word)-len(name)]; count != "" {
		n, known = time.Duration(digits(count)), spans[:]
	}
	for _, s := range known {
		if fold(name, s.word) && n <= year/s.d {
			return n * s.d
		}
	}
	return 0
}

// parseSpan reads a span in words:
//
//	1m30s, 500ms, 833.333ms                  Go
//	9 s, 9 seconds, 1 minute 30 seconds      people
//	PT1M30S, P1DT12H                         ISO 8601, but for months and years, whose length varies
//	00:01:30, 0:01:30.5, 1.12:00:00          .NET, Python
func parseSpan(s string) (time.Duration, bool) {
	switch {
	case isDigit(s[0]):
		if d, ok := parseWords(s); ok {
			return d, true
		}
		return parseClock(s)
	case s[0] == 'P':
		days, rest, _ := strings.Cut(s[1:], "T") // M is a minute behind it
		d, ok := parseWords(days)
		e, also := parseWords(rest)
		return plus(d, e), (ok || days == "") && (also || rest == "") && s != "P" && d%day == 0
	}
	return 0, false
}

// parseWords reads numbers, each with its unit behind it.
func parseWords(text string) (total time.Duration, ok bool) {
	for s := (scanner{s: text}); s.i < len(text); s.space() {
		number := s.run(inNumber)
		s.space()
		unit := spanUnit(s.run(inUnit))
		d, read := parseDecimal(number, max(1, unit))
		if !read || unit == 0 {
			return 0, false
		}
		total, ok = plus(total, d), true
	}
	return total, ok
}

func inNumber(c byte) bool { return isDigit(c) || c == '.' }
func inUnit(c byte) bool   { return !inNumber(c) && c != ' ' }

// parseClock reads hours, minutes and seconds, and days before them.
func parseClock(s string) (time.Duration, bool) {
	hours, rest, _ := strings.Cut(s, ":")
	minutes, secs, _ := strings.Cut(rest, ":")
	days, h, ok := strings.Cut(hours, ".")
	if !ok {
		days, h = "0", hours
	}
	if !allDigits(days) || !allDigits(h) || !allDigits(minutes) {
		return 0, false
	}
	total, ok := parseDecimal(secs, time.Second)
	for _, part := range [...]struct {
		n    string
		unit time.Duration
	}{{days, day}, {h, time.Hour}, {minutes, time.Minute}} {
		d, _ := parseDecimal(part.n, part.unit)
		total = plus(total, d)
	}
	return total, ok
}

// plus adds two spans, and saturates.
func plus(a, b time.Duration) time.Duration {
	if b > maxWait-a {
		return maxWait
	}
	return a + b
}
