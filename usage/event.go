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
	counts [points + 1]int64 // by role; -1: unknown
	said   [points + 1]bool  // null says nothing, nonsense says unknown
	needs  bool              // it has a number that is closing only with a mark
	closes bool              // it has such a mark
	open   bool              // it says that the stream goes on

	code       string // of the refusal; "": none
	overloaded bool
	wait       time.Duration
	wanted     float64
	available  float64
	rate       float64

	capacity    int64 // of a request: the largest bound of its output; -1: none
	attachments int   // of a request: how many files are in it
	attached    int   // and how long they are, in bytes
}

// silent is the event of a document that says nothing.
var silent = event{counts: [points + 1]int64{-1, -1, -1, -1, -1, -1, -1}, capacity: -1}

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
	case input, output, cacheRead, cacheWrite, reasoning, points:
		e.count(n, up)
	case capacity:
		e.capacity = max(e.capacity, up)
	case wanted:
		e.wanted = exact
	case available:
		e.available = exact
	case rate:
		e.rate = exact
	case mark:
		e.marked(n, false)
	}
}

// count takes a number of Usage; -1: it makes no sense. A sum with such a number makes none either, whatever
// follows. Of a number that is not summed up the newest counts, so nonsense makes unknown what was known: it is
// not for us to guess which of the two is right.
func (e *event) count(n *node, v int64) {
	if r := n.role; n.sum && e.said[r] {
		if sum := e.counts[r] + v; v < 0 || e.counts[r] < 0 || sum < 0 {
			v = -1
		} else {
			v = sum
		}
	}
	e.counts[n.role], e.said[n.role] = v, true
	e.needs = e.needs || n.needs
}

// marked takes a value whose presence matters, and whether it is null.
func (e *event) marked(n *node, null bool) {
	e.closes = e.closes || n.closes && !null
	e.open = e.open || n.open && null
}

// text takes a string at node n: its first maxText bytes as they stand there, and how long it is.
func (e *event) text(n *node, b []byte, size int) {
	switch n.role {
	case mark:
		e.marked(n, false)
	case code:
		if i := slices.Index(n.codes.throttled, string(b)); i >= 0 {
			e.code, e.overloaded = n.codes.throttled[i], false
		} else if i := slices.Index(n.codes.overloaded, string(b)); i >= 0 && (e.code == "" || e.overloaded) {
			e.code, e.overloaded = n.codes.overloaded[i], true
		}
	case message:
		e.wait = max(e.wait, waitIn(b))
	case delay:
		e.wait = max(e.wait, duration(string(b)))
	case attachment:
		e.attachments, e.attached = e.attachments+1, e.attached+size
	}
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
