package hint

import (
	"strings"
	"time"
)

// This file reads dates. Servers print them in more ways than there are layouts worth listing, but the parts of all look
// alike: a weekday or a month by name, a time with colons, numbers, a zone. So the parts are read in any order, and
// together they must be one date.

// A date is one that is being read.
type date struct {
	t    time.Time // in the end
	http bool      // one of RFC 9110 §5.6.7: by the name of its month, and of its zone if there is one

	s       string // what is still to be read
	over    bool   // what follows says nothing new
	month   int    // by name; 0: by number
	numbers [3]int // those that are not of the time, in order
	digits  [3]int // how many digits they have
	n       int
	timed   bool   // the time has been read
	hms     [3]int // hours, minutes and seconds
	half    int    // of the day: 1 before noon, 2 after it; 0: hours go up to 23
	nanos   time.Duration
	shifted bool // there was an offset from UTC
	offset  time.Duration
}

// parseDate reads a date, with its time. Without a zone it is in UTC. For example:
//
//	Sat, 10 Jan 2026 12:00:09 GMT    the three of RFC 9110 §5.6.7, also with UTC or an offset
//	Saturday, 10-Jan-26 12:00:09 GMT
//	Sat Jan 10 12:00:09 2026
//	2026-01-10T12:00:09.25+01:00     RFC 3339, also without seconds, zone or colons in it
//	2026-01-10 12:00:09 -0000        Ruby, Python
//	2026-01-10 12:00:09.25 +0000 UTC m=+0.1
//	Sat Jan 10 2026 12:00:09 GMT+0100 (Central European Standard Time)
//	01/10/2026 12:00:09 PM           day and month in the order that is nearer to now
//
// Zones by any other name are not read: which PST, or IST, is meant is not known.
func parseDate(s string, now time.Time) (date, bool) {
	if len(s) < len("1/1/26 1:00") || len(s) > maxTime {
		return date{}, false
	}
	d := date{s: s}
	for d.s != "" && !d.over {
		if !d.part() {
			return d, false
		}
	}
	return d, d.timed && d.n+min(d.month, 1) == 3 && d.join(now)
}

// part reads one part, or what stands between two, and reports whether it may stand there.
func (d *date) part() bool {
	switch c := d.s[0]; {
	case isDigit(c):
		return d.number()
	case isLetter(c):
		return d.word()
	case (c == '+' || c == '-') && d.timed && !d.shifted:
		return d.shift()
	case c == '(' || c == '[':
		d.over = d.timed
		return d.timed
	case c == ' ', c == ',', c == '-' && !d.timed, c == '/', c == '.' && !d.timed:
		d.s = d.s[1:]
		return true
	}
	return false
}

// take takes the digits from the front of d.s, up to nine of them.
func (d *date) take() string {
	n := 0
	for n < len(d.s) && n < 9 && isDigit(d.s[n]) {
		n++
	}
	word := d.s[:n]
	d.s = d.s[n:]
	return word
}

// number reads the time, or one of the numbers of the day.
func (d *date) number() bool {
	word := d.take()
	n := int(digits(word))
	if strings.HasPrefix(d.s, ":") {
		return !d.timed && d.time(n)
	}
	if d.n == len(d.numbers) {
		return false
	}
	d.numbers[d.n], d.digits[d.n] = n, len(word)
	d.n++
	return true
}

// time reads minutes, seconds and their fraction behind the hour.
func (d *date) time(hour int) bool {
	d.hms[0], d.timed = hour, true
	for i := 1; i < 3 && strings.HasPrefix(d.s, ":"); i++ {
		d.s = d.s[1:]
		word := d.take()
		if word == "" {
			return false
		}
		d.hms[i] = int(digits(word))
	}
	if len(d.s) > 1 && (d.s[0] == '.' || d.s[0] == ',') && isDigit(d.s[1]) {
		d.s = d.s[1:]
		d.nanos = fraction(d.take(), time.Second)
		for d.s != "" && isDigit(d.s[0]) {
			d.s = d.s[1:]
		}
	}
	return d.hms[0] < 24 && d.hms[1] < 60 && d.hms[2] <= 60 // a leap second
}

// shift reads an offset from UTC: +0100, +01:00, +01.
func (d *date) shift() bool {
	minus := d.s[0] == '-'
	d.s = d.s[1:]
	word := d.take()
	n := int(digits(word))
	switch {
	case len(word) == 4:
		n = n/100*60 + n%100
	case len(word) > 2 || word == "":
		return false
	default:
		if n *= 60; strings.HasPrefix(d.s, ":") {
			d.s = d.s[1:]
			n += int(digits(d.take()))
		}
	}
	if d.offset = time.Duration(n) * time.Minute; minus {
		d.offset = -d.offset
	}
	d.shifted = true
	return n <= 24*60
}

// word reads the name of a weekday, which says nothing new, of a month, or of UTC. Behind an offset, a zone has a name
// too, which need not be known.
func (d *date) word() bool {
	n := 0
	for n < len(d.s) && isLetter(d.s[n]) {
		n++
	}
	word := d.s[:n]
	d.s = d.s[n:]
	switch {
	case fold(word, "T") && d.n+min(d.month, 1) == 3, nameIn(word, "sunmontuewedthufrisat") > 0:
	case fold(word, "Z"), fold(word, "GMT"), fold(word, "UTC"):
	case fold(word, "AM"):
		d.half = 1
	case fold(word, "PM"):
		d.half = 2
	case d.shifted:
		d.over = true
	default:
		named := d.month > 0
		d.month = nameIn(word, "janfebmaraprmayjunjulaugsepoctnovdec")
		return d.month > 0 && !named
	}
	return true
}

// nameIn returns the place, from 1, of a name among names of three small letters; 0: it is not there. The name may be
// longer, and in capitals.
func nameIn(name, names string) int {
	if len(name) < 3 {
		return 0
	}
	a, b, c := name[0]|0x20, name[1]|0x20, name[2]|0x20
	for i := 0; i < len(names); i += 3 {
		if names[i] == a && names[i+1] == b && names[i+2] == c {
			return i/3 + 1
		}
	}
	return 0
}

// join makes a moment of the parts, and reports whether they are one.
func (d *date) join(now time.Time) bool {
	a, b, c := d.numbers[0], d.numbers[1], d.numbers[2]
	switch {
	case d.month > 0:
		d.http = !d.shifted
		return d.set(b, d.digits[1], d.month, a, now)
	case d.digits[0] == 4:
		return d.set(a, 4, b, c, now)
	}
	other := *d
	monthFirst := d.set(c, d.digits[2], a, b, now)
	if other.set(c, d.digits[2], b, a, now) && (!monthFirst || other.t.Sub(now).Abs() < d.t.Sub(now).Abs()) {
		*d = other
		return true
	}
	return monthFirst
}

// set makes a moment of a day and the time, and reports whether there is such a day.
func (d *date) set(year, digits, month, dayOf int, now time.Time) bool {
	if digits != 2 && digits != 4 || dayOf < 1 || month < 1 || month > 12 {
		return false
	}
	hour := d.hms[0]
	if d.half > 0 {
		if hour < 1 || hour > 12 {
			return false
		}
		hour = hour%12 + (d.half-1)*12
	}
	if digits == 2 {
		year += now.UTC().Year() / 100 * 100
	}
	d.t = time.Date(year, time.Month(month), dayOf, hour, d.hms[1], d.hms[2], int(d.nanos), time.UTC)
	if d.t = d.t.Add(-d.offset); digits == 2 {
		d.t = century(d.t, now)
	}
	return dayOf <= 28 || dayOf <= time.Date(year, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day() // the last of the month
}

// century moves t, whose year had two digits, by centuries until t lies within 50 years of now. RFC 9110
// §5.6.7 takes a date that appears to be more than 50 years ahead as one in the past.
func century(t, now time.Time) time.Time {
	switch {
	case t.After(now.AddDate(50, 0, 0)):
		return t.AddDate(-100, 0, 0)
	case t.Before(now.AddDate(-50, 0, 0)):
		return t.AddDate(100, 0, 0)
	}
	return t
}
