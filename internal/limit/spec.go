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
//	10 Requests / second     10/s
//	100/1m burst 20          100/m burst 20
//	60rpm burst 1            60/m burst 1
//	5000 per 60 min sliding  5000/h sliding
//	0.50/2s even             0.5/2s even
//
// In general, where case and spaces do not matter:
//
//	text  = unlimited | limit, limit, ...
//	limit = number [what] / time [kind] | number [what] per time [kind] | number rate [kind]
//	what  = r, q, req, request, call, query, unit, token, also in the plural
//	time  = [number] unit [number unit ...]
//	rate  = rps, rpm, rph, rpd, and the same with q or t
//	kind  = burst N | even | sliding | window
//
// The rate stays as it was given, units per time: 60/m even and 1/s even are the same limit and different texts, so
// that people find their own words again. The one rule is that nothing is accepted which means something else than
// it seems to. So numbers have no signs, no exponents, no hexadecimal digits and no infinity, and a time of a minute
// or longer needs a kind.

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

// leastKind is the shortest time that needs a kind. In 10/s a second is a unit of the rate. In 1000/h people think of an hour
// in which 1,000 units may go; a bucket would let one go every 3.6 s.
const leastKind = time.Minute

// noLimit is the text of no limits.
const noLimit = "unlimited"

// ParseSpecs reads a text; nothing is unlimited. An error names the part that is wrong and its value.
func ParseSpecs(text string) (all []Spec, err error) {
	if strings.EqualFold(strings.TrimSpace(text), noLimit) {
		return nil, nil
	}
	if n := strings.Count(text, ",") + 1; n > mostSpecs {
		return nil, fmt.Errorf("%d limits in one text are more than %d", n, mostSpecs)
	}
	for part := range strings.SplitSeq(text, ",") {
		one, err := parseSpec(strings.Join(strings.Fields(part), " "))
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// parseSpec reads one limit: units, time and kind, or no kind. It checks all that the constructors check, so they do not
// panic.
func parseSpec(text string) (l Spec, err error) {
	units, rest, ok := cutUnits(text)
	if !ok {
		return l, fmt.Errorf("%.100q is not units/time, as in 10/s, 10 rps or 10 per second", text)
	}
	per, kind := cutTime(strings.Fields(rest))
	if l.Per, err = parsePer(per); err != nil {
		return l, err
	}
	l.Burst = 1
	switch {
	case len(kind) == 0:
		if l.Units, err = parseUnits(units, l.Per); err == nil && l.Per >= leastKind {
			err = l.needsKind(text)
		}
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
			err = fmt.Errorf("time %.100q is shorter than a window may be, %v", per, shortestWindow)
		}
		l.Units = float64(l.N)
	default:
		err = fmt.Errorf("kind %.100q is none of: burst N, even, sliding, window", strings.Join(kind, " "))
	}
	return l, err
}

// cutUnits finds the units of a limit, and returns the rest. Examples:
//
//	10 / s even              10, s even
//	10 req/s                 10, s
//	100 per 5 minutes even   100, 5 minutes even
//	10rps burst 5            10, s burst 5
func cutUnits(text string) (units, rest string, ok bool) {
	low, end, next := lower(text), strings.IndexByte(text, '/'), 1
	after := strings.TrimLeft(low, numbers+" ")
	if word, kind, _ := strings.Cut(after, " "); len(word) == 3 && strings.Contains("rqt", word[:1]) && word[1] == 'p' {
		return strings.TrimSpace(text[:len(text)-len(after)]), word[2:] + " " + kind, true // requests, queries or tokens per
	}
	if i := strings.Index(low, " per "); i >= 0 && (end < 0 || i < end) {
		end, next = i, len(" per ")
	}
	if end < 0 {
		return "", "", false
	}
	units = strings.TrimSpace(text[:end])
	what := strings.TrimLeft(units, numbers+" ")
	switch strings.TrimSuffix(lower(what), "s") {
	case "r", "q", "req", "request", "call", "query", "querie", "unit", "token":
		units = strings.TrimSpace(strings.TrimSuffix(units, what))
	}
	return units, text[end+next:], true
}

// numbers are the bytes of plain decimal numbers.
const numbers = "0123456789."

// lower returns s with ASCII letters in lower case. It has the length of s, whatever else is in there.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// cutTime finds the words that belong to a time: the first one, whatever follows a bare number, and further numbers. Of
// "1 hour 30 minutes sliding" these are the first four.
func cutTime(words []string) (per string, kind []string) {
	n := min(1, len(words))
	for n < len(words) && (strings.Trim(words[n-1], numbers) == "" || strings.Contains(numbers, words[n][:1])) {
		n++
	}
	return strings.Join(words[:n], " "), strings.Fields(lower(strings.Join(words[n:], " ")))
}

// needsKind is the error of a text that ends after a time which needs a kind. It shows what may be meant, for 100/60s:
//
//	100/60s burst 10   ten at once, then one every 600 ms
//	100/60s even       one every 600 ms
//	100/60s sliding    at most 100 in any such time
//	100/60s window     all 100 at once, in each
func (l Spec) needsKind(text string) error {
	text = fmt.Sprintf("%.80s", text)
	gap := time.Duration(min(float64(l.Per)/l.Units, float64(Forever)))
	each := FormatPer(gap.Round(max(1, min(gap, time.Second)/100)))
	if !strings.Contains(numbers, each[:1]) {
		each = "1" + each
	}
	burst := max(1, int(min(l.Units/10, 1e6)))
	windows := "; sliding and window need whole units"
	if whole := strconv.FormatFloat(l.Units, 'f', -1, 64); !strings.Contains(whole, ".") {
		windows = fmt.Sprintf(", %q (at most %s in any such time) or %q (all %[2]s at once, in each)", text+" sliding", whole, text+" window")
	}
	return fmt.Errorf("%q needs a kind: %q (%d at once, then one every %s), %q (one every %[4]s)%[6]s", text, fmt.Sprintf("%s burst %d", text, burst), burst, each, text+" even", windows)
}

// FormatSpecs is the limits in their shortest form, with commas between them. ParseSpecs reads it back to the same
// limits: FuzzParseLimit of the root keeps that.
func FormatSpecs(all []Spec) string {
	if len(all) == 0 {
		return noLimit
	}
	words := make([]string, len(all))
	for i, one := range all {
		words[i] = one.text()
	}
	return strings.Join(words, ", ")
}

// text is the limit in its shortest form. The words even, sliding and window end the text, and a bucket has none of them.
func (l Spec) text() string {
	units := strconv.FormatFloat(l.Units, 'f', -1, 64)
	if l.N > 0 {
		units = strconv.Itoa(l.N) // a float64 has not all of its digits
	}
	kind := burstText(l.Burst, l.Per)
	if l.Kind != "" {
		kind = " " + l.Kind
	}
	return units + "/" + FormatPer(l.Per) + kind
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
	if err != nil || units <= 0 || strings.Trim(s, numbers) != "" {
		return 0, fmt.Errorf("units %.100q is not a plain number above 0", s)
	}
	if limit := rate.Limit(units / per.Seconds()); limit == 0 || limit >= rate.Inf {
		return 0, fmt.Errorf("units %.100q in %v is a rate beyond what a float64 holds", s, per)
	}
	return units, nil
}

// parsePer reads a time: numbers, each with a unit. The first number may be missing, so "m" means "1m". Months and years have
// no fixed length, so they are not units. Examples:
//
//	m, minute, 60s, .5 min 30 s      1 m
//	1d12h, 1 day 12 hours, 1.5d      36 h
func parsePer(s string) (per time.Duration, err error) {
	text := lower(strings.ReplaceAll(s, " ", ""))
	for first := true; err == nil && (first || text != ""); first = false {
		n := len(text) - len(strings.TrimLeft(text, numbers))
		number, unit := text[:n], text[n:]
		if end := strings.IndexAny(unit, numbers); end >= 0 {
			unit = unit[:end]
		}
		text = text[n+len(unit):]
		if first {
			number = cmp.Or(number, "1")
		}
		var one time.Duration
		one, err = parsePart(number, unit)
		per = min(per+one, Forever+1) // neither is more than Forever
	}
	if err != nil || per <= 0 || per > Forever {
		return 0, fmt.Errorf("time %.100q is not a unit (ns, us, ms, s, m, h, d, w, or second, minute, hour, day, week) or a duration above 0 and up to 146 years, as in 1m30s or 1d12h", s)
	}
	return per, nil
}

// parsePart reads one number and its unit, up to Forever.
func parsePart(number, unit string) (time.Duration, error) {
	unit, times := short(unit), time.Duration(1)
	switch unit {
	case "":
		return 0, fmt.Errorf("%q has no unit", number)
	case "d":
		unit, times = "h", 24
	case "w":
		unit, times = "h", 7*24
	}
	one, err := time.ParseDuration(number + unit)
	if err == nil && one > Forever/times {
		err = fmt.Errorf("%q is too long", number)
	}
	return one * times, err
}

// short returns the letters of a unit that is spelled out, and anything else unchanged.
func short(unit string) string {
	switch strings.TrimSuffix(unit, "s") {
	case "millisecond":
		return "ms"
	case "sec", "second":
		return "s"
	case "min", "minute":
		return "m"
	case "hr", "hour":
		return "h"
	case "day":
		return "d"
	case "week":
		return "w"
	}
	return unit
}
