package usage

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file takes the values that a scanner finds at places with a role, and makes sense of them: numbers that
// may be nonsense, waits in an error's text, and marks of a stream's end. What does not make sense is unknown,
// and never an error, because a client must get its body whatever stands in it.

// An event is what one document says.
//
// An example is Anthropic's last word, {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage":
// {"output_tokens": 55}}: the count of output is 55, it needs a mark to be final, and the stop_reason is one.
type event struct {
	counts [total + 1]int64 // by role; -1: unknown
	said   [total + 1]bool  // null says nothing, nonsense says unknown
	needs  bool             // it has a number that is closing only with a mark
	closes bool             // it has such a mark
	open   bool             // it says that the stream goes on

	code       string // of the refusal; "": none
	overloaded bool
	worded     string // a code that counts only if the text speaks of a limit
	limited    bool   // it does
	spent      bool   // the account has nothing left
	wait       time.Duration
	wanted     float64
	available  float64
	rate       float64

	bound       int64 // of a request: the largest bound of its output; -1: none
	answers     int64 // how many answers it asks for, to each prompt
	prompts     int64 // how many prompts it has that are answered one by one
	attachments int   // how many files are in it
	attached    int   // and how long they are, in bytes
}

// silent is the event of a document that says nothing.
var silent = event{counts: [total + 1]int64{-1, -1, -1, -1, -1, -1, -1, -1}, bound: -1}

// literal takes a number, or a word such as null, at node n. b is empty if it is too long to be kept.
func (e *event) literal(n *node, b []byte) {
	switch string(b) {
	case "null":
		e.marked(n, true)
	case "true", "false":
		e.marked(n, false)
	default:
		e.number(n, whole(b), number(b))
	}
}

// number takes a number at node n, rounded up and as it is.
func (e *event) number(n *node, up int64, exact float64) {
	switch n.role {
	case input, output, cacheRead, cacheWrite, reasoning, points, total:
		e.count(n, up)
	case bound:
		e.bound = max(e.bound, up)
	case answers:
		e.answers = max(e.answers, up)
	case wanted:
		e.wanted = exact
	case available:
		e.available = exact
	case rate:
		e.rate = exact
	case code:
		var digits [20]byte
		e.refuse(n.codes, strconv.AppendInt(digits[:0], up, 10))
	case delay:
		e.wait = max(e.wait, seconds(exact))
	case mark:
		e.marked(n, false)
	}
}

// count takes a number of Usage; -1: it makes no sense. A sum with such a number makes none either, whatever
// follows. Of a number that is not summed up the newest counts, so nonsense makes unknown what was known: it is
// not for us to guess which of the two is right. But 0 is no news after more.
func (e *event) count(n *node, v int64) {
	r := n.role
	switch said := e.said[r]; {
	case said && (n.weak || v == 0 && e.counts[r] > 0 && !n.sum):
		return
	case said && n.sum:
		if sum := e.counts[r] + v; v < 0 || e.counts[r] < 0 || sum < 0 {
			v = -1
		} else {
			v = sum
		}
	}
	e.counts[r], e.said[r] = v, true
	e.needs = e.needs || n.needs
}

// marked takes a value whose presence matters, and whether it is null.
func (e *event) marked(n *node, null bool) {
	e.closes = e.closes || n.closes && !null
	e.open = e.open || n.open && null
}

// text takes a string at node n: its first maxText bytes as they stand there.
func (e *event) text(n *node, b []byte) {
	switch n.role {
	case mark:
		e.marked(n, string(b) == "null") // as DashScope writes it
	case code:
		e.refuse(n.codes, b)
	case message:
		e.wait = max(e.wait, waitIn(b))
		e.limited = e.limited || speaksOfLimit(b)
	case delay:
		e.wait = max(e.wait, duration(string(b)), seconds(number(b)))
	}
}

// refuse takes the code of an error. Of several that of a limit counts.
func (e *event) refuse(c *codes, b []byte) {
	e.spent = e.spent || slices.Contains(spent, string(b))
	switch {
	case among(c.throttled, b):
		e.code, e.overloaded = string(b), false
	case among(c.worded, b):
		e.worded = string(b)
	case among(c.overloaded, b) && (e.code == "" || e.overloaded):
		e.code, e.overloaded = string(b), true
	}
}

// among reports whether b is one of the codes, or begins as one that ends in *.
func among(codes []string, b []byte) bool {
	if len(b) == 0 || len(b) > maxName {
		return false
	}
	return slices.ContainsFunc(codes, func(c string) bool {
		begin, found := strings.CutSuffix(c, "*")
		return c == string(b) || found && len(b) >= len(begin) && strings.EqualFold(begin, string(b[:len(begin)]))
	})
}

// string takes a string of a request at node n: its first maxText bytes, how long it is, and whether it is base64 alone.
//
// It is a file if it stands where only files stand and does not read like a text; if it is a data URL; or, but for text,
// if it is base64 and so long that as a text it would cost more than a file.
func (e *event) string(n *node, b []byte, size int, coded bool) {
	if n.role == prompts {
		e.prompts++
	}
	if n.role == attachment && size > 0 && bytes.IndexByte(b, ' ') < 0 || isDataURL(b) ||
		coded && n.role != prose && n.role != prompts && size > tokensByFile*bytesByToken {
		e.attachments, e.attached = e.attachments+1, e.attached+size
	}
}

// isDataURL reports whether a string begins as a URL of RFC 2397: "data:image/png;base64,iVBOR".
func isDataURL(b []byte) bool {
	media, _, found := bytes.Cut(b, []byte(","))
	return found && len(media) > 5 && strings.EqualFold(string(media[:5]), "data:") && bytes.IndexByte(media, ' ') < 0
}

// speaksOfLimit reports whether the text of an error is about a limit of requests or of tokens.
func speaksOfLimit(text []byte) bool {
	s := strings.ToLower(string(text))
	return strings.Contains(s, "limit") || strings.Contains(s, "too many") || strings.Contains(s, "throttl")
}

// seconds returns a wait; 0: it is negative. The longest is 146 years, so that no sum with it overflows.
func seconds(s float64) time.Duration {
	return time.Duration(math.Ceil(max(0, min(s*float64(time.Second), 1<<62))))
}

// whole returns the number in b, rounded up, so that 0.5 capacity units cost 1; -1 if it is negative, beyond 64 bits or no number.
func whole(b []byte) int64 {
	if n, err := strconv.ParseInt(string(b), 10, 64); err == nil && b[0] != '+' {
		return max(-1, n)
	}
	if f := math.Ceil(number(b)); f >= 0 && f < 1<<63 && !math.Signbit(f) {
		return int64(f)
	}
	return -1
}

// number returns the number in b; -1 if it is none, by the grammar of JSON, or beyond a float's range.
func number(b []byte) float64 {
	if len(b) == 0 || len(bytes.Trim(b, "0123456789+-.eE")) > 0 || b[0] == '+' || b[0] == '.' {
		return -1
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil {
		return -1
	}
	return f
}

// waitIn returns the wait that an error's text asks for; 0: none. OpenAI says "Please try again in 1m2.5s.",
// Azure "Please retry after 20 seconds.". Other words between "in" and the time, as in "in about 5s", are not
// understood: then the refusal has no time, and the caller's own rules for that case hold.
func waitIn(text []byte) time.Duration {
	s := strings.ToLower(string(text))
	for _, before := range [...]string{"try again in ", "retry after ", "retry in "} {
		_, rest, found := strings.Cut(s, before)
		if !found {
			continue
		}
		first, rest, _ := strings.Cut(rest, " ")
		unit, _, _ := strings.Cut(rest, " ")
		for _, word := range [...]struct{ begin, in string }{{"second", "s"}, {"minute", "m"}, {"hour", "h"}, {"ms", "ms"}} {
			if d := duration(first + word.in); d > 0 && strings.HasPrefix(unit, word.begin) {
				return d
			}
		}
		if d := duration(strings.TrimRight(first, ".,;:!)\"\\")); d > 0 {
			return d
		}
	}
	return 0
}

// duration reads a duration in Go's form, such as "39s" or "1m2.5s"; 0: it is none, or negative.
func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0
	}
	return max(0, d)
}
