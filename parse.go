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

// A Limit is a limit as text, for configuration files, flags and environment variables: units per time,
// then the kind. Several, separated by commas, all hold.
//
//	10/s              a Bucket of 10 units per second, burst 1
//	100/1m burst 20   a Bucket of 100 units per minute, burst 20
//	5/s even          a Leaky: one unit every 200 ms
//	5000/h sliding    a SlidingWindow: at most 5,000 units in any hour
//	100/s window      a FixedWindow: 100 units per window of one second
//	10/s, 1000/h      both
//	unlimited         no limit
//
// The time is a unit (ns, us, ms, s, m, h, d, or sec, second, min, minute, hour, day, also in the plural),
// with or without a number before it, or a [time.ParseDuration] text that may begin with whole days, as in
// 1d12h. "10 per second" is another way to write 10/second. Units are plain decimal numbers; only buckets
// and even spacing allow fractions. Mind the kind: 300/m is one unit every 200 ms, and "300/m sliding" lets
// all 300 go at once.
//
// A Limit is a value: two of the same limit in the same words are equal. The zero Limit is "unlimited".
type Limit struct{ text string } // in its shortest form; "": unlimited

// unlimited is the text of the zero Limit.
const unlimited = "unlimited"

// UnmarshalText implements [encoding.TextUnmarshaler], so that JSON, YAML and [flag.TextVar] read a Limit.
// An error names the part that is wrong and its value, and leaves l as it is. The empty text is an error.
func (l *Limit) UnmarshalText(text []byte) error {
	all, err := parseLimits(string(text))
	if err != nil {
		return fmt.Errorf("throttle: Limit %q: %w", text, err)
	}
	*l = newLimit(all)
	return nil
}

// newLimit writes limits in their shortest form.
func newLimit(all []limitSpec) Limit {
	words := make([]string, len(all))
	for i, one := range all {
		words[i] = one.String()
	}
	return Limit{strings.Join(words, ", ")}
}

// MarshalText implements [encoding.TextMarshaler]; the error is always nil.
func (l Limit) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// String returns the limit in its shortest form, as in "100/m burst 20".
func (l Limit) String() string { return cmp.Or(l.text, unlimited) }

// New makes a limiter of its own at each call. That of the zero Limit lets everything go.
func (l Limit) New() Limiter {
	all, _ := parseLimits(l.String()) // what UnmarshalText has accepted
	limiters := make([]Limiter, len(all))
	for i, one := range all {
		limiters[i] = one.limiter()
	}
	if len(limiters) == 0 {
		return NewBucket(rate.Inf, 0)
	}
	return All(limiters...)
}

// ParseLimit makes a limiter from the text of a [Limit]. An error names the part that is wrong and its
// value; ParseLimit never panics.
func ParseLimit(s string) (Limiter, error) {
	all, err := parseLimits(s)
	if err != nil {
		return nil, fmt.Errorf("throttle: ParseLimit(%q): %w", s, err)
	}
	return newLimit(all).New(), nil
}

// A limitSpec is one limit of a text.
type limitSpec struct {
	units float64
	n     int // units of a window
	per   time.Duration
	kind  string // "": a bucket
	burst int
}

// parseLimits reads a text; nothing is "unlimited".
func parseLimits(text string) (all []limitSpec, err error) {
	if strings.TrimSpace(text) == unlimited {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		one, err := parseLimit(strings.Fields(part))
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// parseLimit reads the words of one limit: units/time or units per time, then nothing or one of the kinds.
// It checks all that the constructors check, so they do not panic.
func parseLimit(words []string) (l limitSpec, err error) {
	if len(words) > 2 && words[1] == "per" && !strings.Contains(words[0], "/") {
		words = append([]string{words[0] + "/" + words[2]}, words[3:]...)
	}
	units, unit, ok := strings.Cut(strings.Join(words[:min(1, len(words))], ""), "/")
	if !ok {
		return l, fmt.Errorf("%q is not units/time in one word, as in 10/s, or units per time", units)
	}
	if l.per, err = parsePer(unit); err != nil {
		return l, err
	}
	l.burst = 1
	switch kind := words[1:]; {
	case len(kind) == 0:
		l.units, err = parseUnits(units, l.per)
	case len(kind) == 2 && kind[0] == "burst":
		if l.units, err = parseUnits(units, l.per); err == nil {
			l.burst, err = parseCount("burst", kind[1])
		}
	case len(kind) == 1 && kind[0] == "even":
		l.kind = "even"
		l.units, err = parseUnits(units, l.per)
	case len(kind) == 1 && (kind[0] == "window" || kind[0] == "sliding"):
		l.kind = kind[0]
		l.n, err = parseCount("units", units)
		l.units = float64(l.n)
	default:
		err = fmt.Errorf("kind %q is none of: burst N, even, sliding, window", strings.Join(kind, " "))
	}
	return l, err
}

// limiter makes the limiter.
func (l limitSpec) limiter() Limiter {
	limit := rate.Limit(l.units / l.per.Seconds())
	switch l.kind {
	case "even":
		return NewLeaky(limit)
	case "window":
		return NewFixedWindow(l.n, l.per)
	case "sliding":
		return NewSlidingWindow(l.n, l.per)
	}
	return NewBucket(limit, l.burst)
}

// String is the limit in its shortest form.
func (l limitSpec) String() string {
	units := strconv.FormatFloat(l.units, 'f', -1, 64)
	if l.n > 0 {
		units = strconv.Itoa(l.n) // a float64 has not all of its digits
	}
	kind := l.kind
	if l.burst > 1 {
		kind = "burst " + strconv.Itoa(l.burst)
	}
	return strings.TrimSpace(units + "/" + limit.FormatPer(l.per) + " " + kind)
}

// parseCount reads a whole number of at least 1, without a sign.
func parseCount(field, s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || strings.Trim(s, "0123456789") != "" {
		return 0, fmt.Errorf("%s %q is not a whole number from 1 to %d", field, s, math.MaxInt)
	}
	return n, nil
}

// parseUnits reads a plain decimal number of units. Of what strconv accepts, it rejects signs, exponents,
// hexadecimal numbers, Inf and NaN, and a rate in units per second that a float64 does not hold.
func parseUnits(s string, per time.Duration) (float64, error) {
	units, err := strconv.ParseFloat(s, 64)
	if err != nil || units <= 0 || strings.Trim(s, "0123456789.") != "" {
		return 0, fmt.Errorf("units %q is not a plain number above 0", s)
	}
	if limit := rate.Limit(units / per.Seconds()); limit == 0 || limit >= rate.Inf {
		return 0, fmt.Errorf("units %q in %v is a rate beyond what a float64 holds", s, per)
	}
	return units, nil
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
