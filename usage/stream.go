package usage

import "bytes"

// This file cuts a stream into lines. Those that begin with "data:" (WHATWG HTML, 9.2, Server-sent events) have documents:
// mostly one each, and sometimes those of an event have one together.
//
// Most lines of a stream are text of the answer. Events that are complete are searched for the words without
// which no document has anything to say, many at once, and only an event with such a word is scanned. The
// rest of a piece, without its event's end, is always scanned. Both ways come to the same result, because a
// scanner gets nothing from an event without these words.

// lastWord is what OpenAI ends a stream with, as the data of a line.
const lastWord = "[DONE]"

// field is what lines with data begin with.
const field = "data:"

// An example, two pieces of a stream ("|" is where the first one ends):
//
//	data: {"choices":[...]}
//
//	data: {"choices":[...]}
//
//	data: {"cho|ices":[],"usage":{"prompt_tokens":19}}
//
//	data: [DONE]
//
// Of the first piece two events are searched and found to say nothing, and the beginning of the third is scanned.
// Of the second the rest of that line is scanned, the document is complete and counts, and the search finds the
// last line, which makes it final.
//
// An event that follows one that has said something is scanned without a search, because streams that have numbers in one event
// often have them in all.

// lines reads the next piece of a stream: the rest of a line, complete lines, and the beginning of one.
func (w *Watcher) lines(p []byte) {
	if w.eol == 0 && len(p) > 0 {
		p = w.first(p)
	}
	rest := -1 // bytes behind the last event's end; -1: not looked for yet
	for len(p) > 0 {
		if w.line == 0 {
			if p[0] == w.eol { // between two events
				w.between()
				p = p[1:]
				continue
			}
			if !w.spoken && !w.under {
				if rest < 0 {
					rest = len(p) - w.events(p)
				}
				if p = p[w.search(p[:max(0, len(p)-rest)]):]; len(p) == 0 {
					return
				}
			}
		}
		end := bytes.IndexByte(p, w.eol)
		if end < 0 {
			w.part(p)
			return
		}
		w.part(p[:end])
		w.end()
		p = p[end+1:]
	}
}

// first reads the first line until it is known which byte ends lines, and returns the rest of p. A \r does if no \n
// follows it.
func (w *Watcher) first(p []byte) []byte {
	if w.held {
		if w.held, w.eol = false, '\n'; p[0] != '\n' {
			w.eol = '\r'
			w.end()
			return p
		}
		w.part([]byte{'\r'})
		return p
	}
	i := bytes.IndexAny(p, "\r\n")
	switch {
	case i < 0:
		w.part(p)
		return nil
	case p[i] == '\r' && i == len(p)-1:
		w.held = true
		w.part(p[:i])
		return nil
	case p[i] == '\r' && p[i+1] != '\n':
		w.eol = '\r'
	default:
		w.eol = '\n'
	}
	return p
}

// events returns how many bytes of p are whole events: those before the end of the last empty line, which may have a \r.
func (w *Watcher) events(p []byte) int {
	for end := len(p); ; {
		end = bytes.LastIndexByte(p[:end], w.eol)
		before := end - 1
		if before >= 0 && p[before] == '\r' && w.eol == '\n' {
			before--
		}
		if before < 0 || p[before] == w.eol {
			return end + 1
		}
	}
}

// search returns how many bytes of whole events there are before the first that may say something.
func (w *Watcher) search(p []byte) int {
	at := w.scanner.tree.words.in(p)
	if at < 0 {
		return len(p)
	}
	return w.events(p[:at])
}

// part reads the next bytes of a line.
func (w *Watcher) part(p []byte) {
	if len(p) == 0 {
		return
	}
	if w.line++; w.line > 1 || p[0] != '\r' || len(p) > 1 {
		w.line = 2
	}
	if w.begun == 0 && len(p) >= len(field) && string(p[:len(field)]) == field {
		w.begun, p = len(field), p[len(field):]
	}
	for len(p) > 0 && w.begun >= 0 && w.begun < len(field) {
		if w.begun++; p[0] != field[w.begun-1] {
			w.begun = -1
		}
		p = p[1:]
	}
	if w.begun < 0 {
		return
	}
	for i := 0; i < len(p) && w.last >= 0; i++ {
		w.compare(p[i])
	}
	if n := w.scanner.feed(p); n < len(p) { // a document follows another one
		w.scanner.state = broken
	}
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

// end is the end of a line: its document counts if it is complete, and goes on in the event's next line if it has begun.
func (w *Watcher) end() {
	if w.begun == len(field) {
		s := &w.scanner
		if w.under = w.last <= len(lastWord) && s.under(); w.under {
			s.feed([]byte{'\n'})
		} else {
			w.count()
		}
	}
	if w.line <= 1 {
		w.between()
	}
	w.line, w.begun, w.last = 0, 0, 0
}

// between is the end of an event.
func (w *Watcher) between() {
	if w.under {
		w.under = false
		w.scanner.reset()
	}
}
