package usage

import (
	"bytes"
	"math"
	"time"
)

// This file reads a body as it passes: JSON goes to one scanner; a stream is cut into lines, and those that begin
// with "data:" (WHATWG HTML, Server-sent events) have a document each. Nothing is kept of what has been read
// but the scanner's state, so it does not matter how the body is cut into pieces.
//
// Most lines of a stream are text of the answer. Those that are complete are searched for the words without
// which no document has anything to say, many lines at once, and only a line with such a word is scanned. The
// rest of a piece, without its line's end, is always scanned. Both ways come to the same result, because a
// scanner gets nothing from a line without these words.

// How much is read.
const (
	maxLine     = 64 << 10 // bytes of a line
	maxDocument = 1 << 20  // bytes of a JSON body
)

// lastWord is what OpenAI ends a stream with, as the data of a line.
const lastWord = "[DONE]"

// field is what lines with data begin with.
const field = "data:"

// A Watcher is an [io.Writer] that reads a body as it passes. It keeps none of it, and takes every byte without
// an error. [Watch] and [Parser.Watch] make one, in one allocation; a nil Watcher knows nothing.
//
// A Watcher is not safe for concurrent use.
type Watcher struct {
	kind    kind
	usage   Usage   // of the lines before
	refusal Refusal // what has been said first; the zero Refusal: none
	size    int     // bytes of a document
	line    int     // bytes of the line so far
	begun   int     // how many of them are those of field; -1: it is another line
	last    int     // how many of its data are those of lastWord, with a space before it; -1: it is other data
	spoken  bool    // the last line with data has said something
	scanner scanner
}

// Refusal is what a body says if the upstream has refused to go on for a limit, although the status was a
// success.
type Refusal struct {
	// Code is the code that says so, as the row has it: "rate_limit_exceeded", "THROTTLED".
	Code string

	// RetryAfter is how long not to send. 0: the body does not say. It is never negative.
	RetryAfter time.Duration

	// Overloaded means that the upstream is in trouble, whatever the rate of requests: Anthropic's
	// overloaded_error, which is a 529 before a stream has begun.
	Overloaded bool
}

// reset makes the Watcher ready for a body.
func (w *Watcher) reset(t *tree, k kind) {
	w.kind, w.usage = k, unknown
	w.scanner.tree = t
	w.scanner.reset()
}

// Write reads the next piece of the body, so that a Watcher can stand behind io.TeeReader. It returns len(p) and nil. The
// pieces may be cut anywhere.
func (w *Watcher) Write(p []byte) (int, error) {
	if w == nil {
		return len(p), nil
	}
	body := p
	if w.kind == guess {
		body = bytes.TrimLeft(p, " \t\r\n")
		w.size += len(p) - len(body)
		if len(body) > 0 {
			w.kind = stream
			if body[0] == '{' || body[0] == '[' {
				w.kind = document
			}
		}
	}
	switch w.kind {
	case document:
		if w.size += len(body); w.size > maxDocument {
			*w = Watcher{usage: unknown}
			break
		}
		w.scanner.feed(body)
	case stream:
		w.lines(body)
	}
	return len(p), nil
}

// An example, two pieces of a stream ("|" is where the first one ends):
//
//	data: {"choices":[...]}
//	data: {"choices":[...]}
//	data: {"cho|ices":[],"usage":{"prompt_tokens":19}}
//	data: [DONE]
//
// Of the first piece two lines are searched and found to say nothing, and the beginning of the third is scanned.
// Of the second the rest of that line is scanned, the document is complete and counts, and the search finds the
// last line, which makes it final.
//
// A line that follows one that has said something is scanned without a search, because streams that have numbers in one event
// often have them in all.

// lines reads the next piece of a stream: the rest of a line, complete lines, and the beginning of one.
func (w *Watcher) lines(p []byte) {
	rest := -1 // bytes behind the last line's end; -1: not looked for yet
	for len(p) > 0 {
		if w.line == 0 {
			if p[0] == '\n' { // between two events
				p = p[1:]
				continue
			}
			if !w.spoken {
				if rest < 0 {
					rest = len(p) - 1 - bytes.LastIndexByte(p, '\n')
				}
				if p = w.search(p, len(p)-rest); len(p) == 0 {
					return
				}
			}
		}
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			w.part(p)
			return
		}
		w.part(p[:end])
		w.end()
		p = p[end+1:]
	}
}

// search returns p without lines at its begin that cannot say anything. Those before p[whole] are complete.
func (w *Watcher) search(p []byte, whole int) []byte {
	at := w.scanner.tree.words.in(p[:whole])
	if at < 0 {
		return p[whole:]
	}
	return p[bytes.LastIndexByte(p[:at], '\n')+1:]
}

// part reads the next bytes of a line.
func (w *Watcher) part(p []byte) {
	w.line = min(w.line+len(p), maxLine+1) // and no more, so that it cannot overflow
	if w.begun == 0 && len(p) >= len(field) && string(p[:len(field)]) == field {
		w.begun, p = len(field), p[len(field):]
	}
	for len(p) > 0 && w.begun >= 0 && w.begun < len(field) {
		if w.begun++; p[0] != field[w.begun-1] {
			w.begun = -1
		}
		p = p[1:]
	}
	if w.begun < 0 || w.line > maxLine {
		return
	}
	for i := 0; i < len(p) && w.last >= 0; i++ {
		w.compare(p[i])
	}
	w.scanner.feed(p)
}

// compare compares the next byte of a line's data with lastWord, which a space may precede and a \r may follow.
func (w *Watcher) compare(c byte) {
	switch n := w.last; {
	case n == 0 && c == ' ':
		w.last = 1
	case n == 0 && c == lastWord[0]:
		w.last = 2
	case n > 0 && n <= len(lastWord) && c == lastWord[n-1]:
		w.last++
	case n != len(lastWord)+1 || c != '\r':
		w.last = -1
	}
}

// end is the end of a line: its document counts if it is complete. A document that goes on in the next line does
// not, although the standard allows it: no API here sends one, and lines could not be searched one by one.
func (w *Watcher) end() {
	if w.begun > 0 {
		w.spoken = w.add(&w.usage, &w.refusal)
		w.scanner.reset()
	}
	w.line, w.begun, w.last = 0, 0, 0
}

// said returns what has been said, including the document under way.
func (w *Watcher) said() (Usage, Refusal) {
	u, r := w.usage, w.refusal
	w.add(&u, &r)
	return u, r
}

// add adds what the document under way says, and reports whether there are numbers in it. A JSON body counts as far as it has
// come, a line only when its document is complete. A body that turns out not to be JSON has said nothing.
func (w *Watcher) add(u *Usage, r *Refusal) (any bool) {
	e, whole := &w.scanner.event, w.scanner.state == complete
	switch {
	case w.kind == document:
		if w.scanner.state == broken {
			*u, *r = unknown, Refusal{}
			return false
		}
		any = e.addTo(u)
		u.Final = whole
	case w.kind != stream, w.line > maxLine:
		return false
	case w.last > len(lastWord):
		u.Final = true
	case whole:
		if any = e.addTo(u); any {
			u.Final = u.Final || !e.open && (!e.needs || e.closes)
		}
	}
	if whole && r.Code == "" && e.code != "" {
		*r = e.refusal()
	}
	return any
}

// addTo puts the event's numbers into u, and reports whether there were any. A number that the event does not
// have stays: Anthropic's stream says what was read in its first event, and what was written in its last.
func (e *event) addTo(u *Usage) (any bool) {
	any = e.put(input, &u.Input)
	any = e.put(output, &u.Output) || any
	any = e.put(cacheRead, &u.CacheRead) || any
	any = e.put(cacheWrite, &u.CacheWrite) || any
	any = e.put(reasoning, &u.Reasoning) || any
	return e.put(points, &u.Points) || any
}

// put puts a number into a field of a Usage, if the event has it.
func (e *event) put(r role, to *int64) bool {
	if e.said[r] {
		*to = e.counts[r]
	}
	return e.said[r]
}

// refusal returns what the event, which has a code, says of a refusal. If a query wants 202 points
// where 118 are there and 50 come back in a second, the wait is 1.68 s: then the same query could go. The
// longest wait is 146 years, so that no sum with it overflows.
func (e *event) refusal() Refusal {
	wait := e.wait
	if e.rate > 0 && e.wanted > e.available {
		s := (e.wanted - max(0, e.available)) / e.rate * float64(time.Second)
		wait = max(wait, time.Duration(math.Ceil(min(s, 1<<62))))
	}
	return Refusal{e.code, wait, e.overloaded}
}

// Usage returns what the body has said so far, and false if nothing is known. It may be called at any time.
func (w *Watcher) Usage() (Usage, bool) {
	if w == nil {
		return unknown, false
	}
	u, _ := w.said()
	known := u.Input >= 0 || u.Output >= 0 || u.CacheRead >= 0 || u.CacheWrite >= 0 || u.Reasoning >= 0 || u.Points >= 0
	if !known {
		return unknown, false
	}
	return u, true
}

// Refusal returns the first refusal that the body has reported so far, and false if there is none. It may be
// called at any time, and is cheap enough to be called after each Write.
func (w *Watcher) Refusal() (Refusal, bool) {
	if w == nil {
		return Refusal{}, false
	}
	_, r := w.said()
	return r, r.Code != ""
}
