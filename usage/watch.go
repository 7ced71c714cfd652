package usage

import "time"

// This file reads a body as it passes: JSON goes to one scanner, document by document, and stream.go and frames.go look for
// the documents of streams. Nothing is kept of what has been read but the scanner's state, so it does not matter how the body
// is cut into pieces, nor how long it is.

// byteOrderMark may stand at the begin of a body.
const byteOrderMark = "\xef\xbb\xbf"

// A Watcher is an [io.Writer] that reads a body as it passes. It keeps none of it, and takes every byte without
// an error. [Watch] and [Parser.Watch] make one, in one allocation; a nil Watcher knows nothing.
//
// A Watcher is not safe for concurrent use.
type Watcher struct {
	kind    kind
	usage   Usage   // of the documents before
	refusal Refusal // what has been said first; the zero Refusal: none
	mark    int     // how many bytes of byteOrderMark have come
	eol     byte    // what ends lines, \n or \r; 0: not known yet
	held    bool    // the first line has ended in \r, maybe
	line    int     // of the line so far: 0: nothing, 1: a \r, 2: more
	begun   int     // how many of its bytes are those of field; -1: it is another line
	last    int     // how many of its data are those of lastWord, with a space before it; -1: it is other data
	under   bool    // a document goes on in the event's next line
	spoken  bool    // the last document has said something
	frame   frame
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
		body = w.guess(p)
	}
	switch w.kind {
	case document, several:
		w.documents(body)
	case stream:
		w.lines(body)
	case frames:
		w.frames(body)
	}
	return len(p), nil
}

// guess looks for the first byte of the body that says how to read it, and returns p from there on.
func (w *Watcher) guess(p []byte) []byte {
	for i := range p {
		switch {
		case blank(p[i:i+1], 0) > 0:
		case w.mark < len(byteOrderMark) && p[i] == byteOrderMark[w.mark]:
			w.mark++
		default:
			if w.kind = stream; p[i]|0x20 == '{' { // or '['
				w.kind = document
			}
			return p[i:]
		}
	}
	return nil
}

// documents reads the next piece of a body of documents. Mostly it has one, and Ollama's and others' streams have one in
// each line.
func (w *Watcher) documents(p []byte) {
	for n := w.scanner.feed(p); n < len(p); n = w.scanner.feed(p) {
		w.kind, p = several, p[n:]
		w.add(&w.usage, &w.refusal)
		w.scanner.reset()
	}
}

// count counts the document that has ended.
func (w *Watcher) count() {
	w.spoken = w.add(&w.usage, &w.refusal)
	w.scanner.reset()
}

// said returns what has been said, including the document under way.
func (w *Watcher) said() (Usage, Refusal) {
	u, r := w.usage, w.refusal
	w.add(&u, &r)
	return u, r
}

// add adds what the document under way says, and reports whether there are numbers in it. One that is all of the body counts as
// far as it has come, one of several only when it is complete. A body that turns out not to be JSON has said nothing.
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
	case w.kind == stream && w.last > len(lastWord):
		u.Final = true
	case whole:
		if any = e.addTo(u); any {
			u.Final = u.Final || !e.open && (!e.needs || e.closes)
		}
	}
	if whole && r.Code == "" {
		*r = e.refusal()
	}
	return any
}

// addTo puts the event's numbers into u, and reports whether there were any. A number that the event does not
// have stays: Anthropic's stream says what was read in its first event, and what was written in its last. So does one of
// which it has 0: gateways write that where they do not know better.
func (e *event) addTo(u *Usage) (any bool) {
	any = e.put(input, &u.Input)
	any = e.put(output, &u.Output) || any
	any = e.put(cacheRead, &u.CacheRead) || any
	any = e.put(cacheWrite, &u.CacheWrite) || any
	any = e.put(reasoning, &u.Reasoning) || any
	any = e.put(total, &u.Total) || any
	return e.put(points, &u.Points) || any
}

// put puts a number into a field of a Usage, if the event has it.
func (e *event) put(r role, to *int64) bool {
	if e.said[r] && (e.counts[r] != 0 || *to <= 0) {
		*to = e.counts[r]
	}
	return e.said[r]
}

// refusal returns what the event says of a refusal; the zero Refusal: nothing. If a query wants 202 points
// where 118 are there and 50 come back in a second, the wait is 1.68 s: then the same query could go.
func (e *event) refusal() Refusal {
	code, wait := e.code, e.wait
	if code == "" && e.limited {
		code = e.worded
	}
	if code == "" || e.spent {
		return Refusal{}
	}
	if e.rate > 0 && e.wanted > e.available {
		wait = max(wait, seconds((e.wanted-max(0, e.available))/e.rate))
	}
	return Refusal{code, wait, e.overloaded}
}

// Usage returns what the body has said so far, and false if nothing is known. It may be called at any time.
func (w *Watcher) Usage() (Usage, bool) {
	if w == nil {
		return unknown, false
	}
	u, _ := w.said()
	known := u.Input >= 0 || u.Output >= 0 || u.CacheRead >= 0 || u.CacheWrite >= 0 || u.Reasoning >= 0 || u.Points >= 0 || u.Total >= 0
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
