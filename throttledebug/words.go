package throttledebug

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// This file turns values into words, the same for the page without script and for the events. The words are English, as
// the errors of the library are, and short, because a row has 14 of them.

// none stands for a value that there is not.
const none = "–"

// count is a whole number with commas: 12,345. It is done by hand because package fmt does not, and every language has
// its own way; the page is in English.
func count(n uint64) string {
	text := strconv.FormatUint(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// decimal is a number of units: one digit after the point below 100, none above, and a true minus sign, which is as wide
// as a plus. 3.04 is 3, 99.96 is 100, −12.25 is −12.2, and 12345.6 is 12,346.
func decimal(x float64) string {
	sign := ""
	if x < 0 {
		sign, x = "−", -x
	}
	switch {
	case x >= 1e15:
		return sign + strconv.FormatFloat(x, 'g', 3, 64)
	case x >= 99.95:
		return sign + count(uint64(x+0.5))
	}
	return sign + strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0")
}

// pace is a rate in the unit in which it is at least 1: 10/s, 30/min, 5/h. A rate that rounds to 1 counts as 1, so that
// 0.99999/s, which is how 1/s may come back from a division, is 1/s and not 60/min.
func pace(perSecond float64) string {
	for _, unit := range []struct {
		seconds float64
		name    string
	}{{1, "/s"}, {60, "/min"}, {3600, "/h"}} {
		if x := perSecond * unit.seconds; x >= 0.9995 {
			return decimal(x) + unit.name
		}
	}
	return decimal(perSecond*86400) + "/d"
}

// known is a value as text, or none if it is not there. No limiter and a bucket that is used up look different: – and 0.
func known(text func(float64) string, of func() (float64, bool)) string {
	if x, ok := of(); ok && !math.IsNaN(x) {
		return text(x)
	}
	return none
}

// span is a time with two digits or two units: 0.4 s, 12 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. More digits would change
// faster than anybody reads. A time that is short but not over is 0.1 s, so that it is not taken for none.
func span(d time.Duration) string {
	switch {
	case d <= 0:
		return none
	case d < 10*time.Second:
		return strconv.FormatFloat(max(d.Seconds(), 0.1), 'f', 1, 64) + " s"
	case d < 59500*time.Millisecond:
		return d.Round(time.Second).String()[:2] + " s"
	}
	two := func(large, small time.Duration, names ...string) string {
		d := d.Round(small)
		text := count(uint64(d/large)) + " " + names[0]
		if rest := d % large / small; rest > 0 {
			text += " " + strconv.FormatInt(int64(rest), 10) + " " + names[1]
		}
		return text
	}
	switch {
	case d < time.Hour-time.Second/2:
		return two(time.Minute, time.Second, "min", "s")
	case d < 24*time.Hour-time.Minute/2:
		return two(time.Hour, time.Minute, "h", "min")
	}
	return two(24*time.Hour, time.Hour, "d", "h")
}

// quoted is s as it is shown, and as a query names it: what does not print is escaped, as by strconv.Quote. So a line
// break is \n, what would turn the direction of the text is \u202e, and two keys that differ look different.
func quoted(s string) string {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			q := strconv.Quote(s)
			return q[1 : len(q)-1]
		}
	}
	return s
}

// unquoted is the inverse: "a\\nb" in a query finds the key that has a line break. What cannot be the result of quoted is taken as it is, because people type queries.
func unquoted(s string) string {
	if text, err := strconv.Unquote(`"` + s + `"`); err == nil {
		return text
	}
	return s
}

// short is quoted, cut for a line of the details: upstreams name their quotas, and callers their flows, at any length.
func short(s string) string { return cut(quoted(s), 80) }

// cut is text, at most so many characters of it.
func cut(text string, most int) string {
	q := []rune(text)
	if len(q) <= most {
		return text
	}
	return string(q[:most-1]) + "…"
}

// meaning says in words what a reason is; see throttle.Event. A word that is more precise than this page knows has the
// meaning of its kind: "gate:holiday" is the closed gate. "": not even the kind is known.
func meaning(reason string) string {
	kind, which, _ := strings.Cut(reason, ":")
	if text, ok := meanings[reason]; ok {
		return text
	}
	if kind == "meter" && which != "" {
		return "the meter " + short(which)
	}
	return meanings[kind]
}

// meanings are the reasons of throttle.Event. Each completes the sentence "The first call in line waits for".
var meanings = map[string]string{
	"limit":              "the limit of its key",
	"limit:shared":       "the limit that all keys share",
	"limit:advertised":   "a quota that responses advertise",
	"limit:found":        "a rate found because the upstream throttles",
	"in-flight:found":    "a call in flight to end: the upstream throttles more than so many",
	"gate":               "the closed gate",
	"gate:retry-after":   "the time that the upstream has asked for",
	"gate:throttled":     "a pause after a throttled attempt",
	"gate:failing":       "the upstream to recover",
	"gate:paused":        "the end of a pause by hand",
	"gate:reopening":     "its turn: the gate lets the first calls through one by one",
	"gate:first-contact": "the first answer of an upstream that nothing is known of",
	"slot":               "a call in flight to end",
	"in-flight:load":     "a call in flight to end, because the load allows no more",
	"order":              "the calls before it",
	"store":              "the answer of a fleet's store",
}
