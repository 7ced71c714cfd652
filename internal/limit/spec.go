package limit

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// This file reads limits from text, and writes them in their shortest form. The text that limiters have of
// themselves is in text.go. What is read can be written in several ways, and one is written:
//
//	10 per second         10/s
//	100/1m burst 20       100/m burst 20
//	60/minute burst 1     60/m
//	5000/60m sliding      5000/h sliding
//	0.50/2s even          0.5/2s even
//
// The rate stays as it was given, units per time: 60/m and 1/s are the same bucket and different texts, so
// that people find their own words again. The one rule on numbers is that none is accepted which means
// something else than it seems to: no signs, no exponents, no hexadecimal digits, no infinity.

// A Spec is one limit of a text.
//
//	100/1m burst 20   Units 100, Per 1 min, Burst 20
//	5/s even          Units 5, Per 1 s, Kind even, Burst 1
//	5000/h sliding    Units 5000, N 5000, Per 1 h, Kind sliding, Burst 1
//
// It is a value that passes between packages, so it has no methods for others. One that comes from ParseSpecs
// has been checked: Units, Per and Burst are above 0, and the rate fits a float64.
type Spec struct {
	Units float64
	N     int // units of a window; 0: it is not one
	Per   time.Duration
	Kind  string // "": a bucket; or even, sliding, window
	Burst int
}

// mostSpecs is how many limits a text may have: each call asks all of them, and each is sorted among the others.
const mostSpecs = 100

// ParseSpecs reads a text; nothing is "unlimited". An error names the part that is wrong and its value.
func ParseSpecs(text string) (all []Spec, err error) {
	if strings.TrimSpace(text) == "unlimited" {
		return nil, nil
	}
	if n := strings.Count(text, ",") + 1; n > mostSpecs {
		return nil, fmt.Errorf("%d limits in one text are more than %d", n, mostSpecs)
	}
	for part := range strings.SplitSeq(text, ",") {
		one, err := parseSpec(strings.Fields(part))
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// parseSpec reads the words of one limit: units/time or units per time, then nothing or one of the kinds.
// It checks all that the constructors check, so they do not panic.
func parseSpec(words []string) (l Spec, err error) {
	if len(words) > 2 && words[1] == "per" && !strings.Contains(words[0], "/") {
		words = append([]string{words[0] + "/" + words[2]}, words[3:]...)
	}
	units, unit, ok := strings.Cut(strings.Join(words[:min(1, len(words))], ""), "/")
	if !ok {
		return l, fmt.Errorf("%.100q is not units/time in one word, as in 10/s, or units per time", strings.Join(words, " "))
	}
	if l.Per, err = parsePer(unit); err != nil {
		return l, err
	}
	l.Burst = 1
	switch kind := words[1:]; {
	case len(kind) == 0:
		l.Units, err = parseUnits(units, l.Per)
	case len(kind) == 2 && kind[0] == "burst":
		if l.Units, err = parseUnits(units, l.Per); err == nil {
			l.Burst, err = parseCount("burst", kind[1])
		}
	case len(kind) == 1 && kind[0] == "even":
		l.Kind = "even"
		l.Units, err = parseUnits(units, l.Per)
	case len(kind) == 1 && (kind[0] == "window" || kind[0] == "sliding"):
		l.Kind = kind[0]
		if l.N, err = parseCount("units", units); err == nil && l.Per < shortestWindow {
			err = fmt.Errorf("time %.100q is shorter than a window may be, %v", unit, shortestWindow)
		}
		l.Units = float64(l.N)
	default:
		err = fmt.Errorf("kind %.100q is none of: burst N, even, sliding, window", strings.Join(kind, " "))
	}
	return l, err
}

// FormatSpecs is the limits in their shortest form, with commas between them. ParseSpecs reads it back to the same
// limits: FuzzParseLimit of the root keeps that. No limits give the empty text, which ParseSpecs does not read; the
// root writes unlimited for it.
func FormatSpecs(all []Spec) string {
	words := make([]string, len(all))
	for i, one := range all {
		words[i] = one.text()
	}
	return strings.Join(words, ", ")
}

// text is the limit in its shortest form. A burst of 1 is what a bucket has without a word, so it is left out.
// The words even, sliding and window end the text, and a bucket has none of them.
func (l Spec) text() string {
	units := strconv.FormatFloat(l.Units, 'f', -1, 64)
	if l.N > 0 {
		units = strconv.Itoa(l.N) // a float64 has not all of its digits
	}
	kind := l.Kind
	if l.Burst > 1 {
		kind = "burst " + strconv.Itoa(l.Burst)
	}
	return strings.TrimSpace(units + "/" + FormatPer(l.Per) + " " + kind)
}

// parseCount reads a whole number of at least 1, without a sign. It is for what is counted in whole units: the
// size of a window and the burst of a bucket. field says which, in the error.
func parseCount(field, s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || strings.Trim(s, "0123456789") != "" {
		return 0, fmt.Errorf("%s %.100q is not a whole number from 1 to %d", field, s, math.MaxInt)
	}
	return n, nil
}

// parseUnits reads a plain decimal number of units. Of what strconv accepts, it rejects signs, exponents,
// hexadecimal numbers, Inf and NaN, and a rate in units per second that a float64 does not hold.
func parseUnits(s string, per time.Duration) (float64, error) {
	units, err := strconv.ParseFloat(s, 64)
	if err != nil || units <= 0 || strings.Trim(s, "0123456789.") != "" {
		return 0, fmt.Errorf("units %.100q is not a plain number above 0", s)
	}
	if limit := rate.Limit(units / per.Seconds()); limit == 0 || limit >= rate.Inf {
		return 0, fmt.Errorf("units %.100q in %v is a rate beyond what a float64 holds", s, per)
	}
	return units, nil
}

// parsePer reads the time after the slash: an optional number of whole days, then a duration. A unit alone
// means one of it, so "m" becomes "1m", and "1d12h" becomes one day and "0s12h". Months and years have no fixed
// length, so they are not units.
func parsePer(s string) (time.Duration, error) {
	n := len(s) - len(strings.TrimLeft(s, "0123456789."))
	text, days := cmp.Or(s[:n], "1")+short(s[n:]), int64(0)
	if before, rest, ok := strings.Cut(text, "d"); ok && strings.Trim(before, "0123456789") == "" {
		text = "0s" + rest
		days, _ = strconv.ParseInt(before, 10, 64) // out of range: the largest number, which is rejected below
	}
	const day = 24 * time.Hour
	per, err := time.ParseDuration(text)
	if err == nil && days <= int64(Forever/day) {
		if per += time.Duration(days) * day; 0 < per && per <= Forever {
			return per, nil
		}
	}
	return 0, fmt.Errorf("time %.100q is not a unit (ns, us, ms, s, m, h, d, or second, minute, hour, day) or a duration above 0 and up to 146 years, as in 1m30s or 1d12h", s)
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
