package usage

import (
	"encoding/binary"
	"math/bits"
)

// This file reads JSON as it passes, byte by byte, in constant memory. It does not decode a document: it walks
// the tree of places along with it, hands the values at places with a role to an event, and skips all else.
//
// An example with the place usage.prompt_tokens:
//
//	{"id": "x", "usage": {"prompt_tokens": 12, "more": {"usage": 1}}}
//
// The scanner enters the object at node 0 (the document). "id" has no node, so its value is skipped. "usage" has
// one: its object is entered, one level deeper. "prompt_tokens" has one with a role: its digits are kept in buf
// until the comma, and then given to the event. "more" has none: its object is skipped by counting brackets,
// without a look at the names in it.
//
// A scanner does not check all of the grammar, because a client that decodes the document will. It notices what
// would lead it astray on the levels that it has entered, and is broken then: its event does not count.

// maxText is the most bytes of a name, a number or a string that are kept.
const maxText = 512

// A state says what the next byte is.
type state uint8

const (
	atValue      state = iota // begins a value, or ends an empty array
	atKey                     // begins a name, or ends an object
	atColon                   // comes between a name and its value
	atNext                    // comes after a value
	inKey                     // in a name
	inString                  // in a string that is kept
	inLiteral                 // in a number, true, false or null
	inSkip                    // in an object or array that is skipped
	inSkipString              // in a string that is skipped
	complete                  // after the document
	broken                    // no JSON
)

// A level is an object or array that the scanner has entered, and its node.
type level struct {
	node  int16
	array bool
}

// A scanner reads one document. It must be reset first.
type scanner struct {
	tree    *tree
	event   event
	state   state
	escaped bool  // in a string: the byte before was a backslash
	node    int16 // of the value that comes next; 0: the document
	lost    bool  // the value that comes next has no node
	depth   int   // levels that were entered
	skipped int   // levels that are open within what is skipped
	kept    int   // bytes in buf, or how many would be there
	levels  [maxDepth + 2]level
	buf     [maxText]byte
}

// reset begins a new document.
func (s *scanner) reset() {
	s.event = silent
	s.state, s.escaped, s.lost = atValue, false, false
	s.node, s.depth, s.skipped, s.kept = 0, 0, 0, 0
}

// feed reads the next bytes of the document.
func (s *scanner) feed(p []byte) {
	for i := 0; i < len(p); {
		switch s.state {
		case inSkip:
			i = s.skip(p, i)
		case inSkipString, inString, inKey:
			i = s.text(p, i)
		case inLiteral:
			i = s.literal(p, i)
		case broken:
			return
		default:
			if c := p[i]; c != ' ' && c != '\n' && c != '\r' && c != '\t' {
				s.structure(c)
			}
			i++
		}
	}
}

// structure reads a byte outside of names and values.
func (s *scanner) structure(c byte) {
	switch s.state {
	case atValue:
		s.begin(c)
	case atKey:
		switch c {
		case '"':
			s.state, s.kept = inKey, 0
		case '}':
			s.leave(false)
		default:
			s.state = broken
		}
	case atColon:
		s.state = broken
		if c == ':' {
			s.state = atValue
		}
	case atNext:
		s.after(c)
	default: // something stands behind the document
		s.state = broken
	}
}

// begin reads the first byte of a value. It enters an object or array only if a place lies within it; the members
// of an array have the array's own node, because places do not name arrays.
func (s *scanner) begin(c byte) {
	n := &s.tree.nodes[s.node]
	enter := !s.lost && s.depth < len(s.levels) && n.first > 0
	switch c {
	case '{', '[':
		if !s.lost && n.role == mark {
			s.event.marked(n, false)
		}
		if !enter {
			s.skipped, s.state = 1, inSkip
			return
		}
		s.levels[s.depth] = level{s.node, c == '['}
		s.depth++
		s.state = atKey
		if c == '[' {
			s.state = atValue
		}
	case ']':
		s.leave(true)
	case '"':
		s.state, s.kept = inSkipString, 0
		if !s.lost && n.role.textual() {
			s.state = inString
		}
	case '}', ',', ':':
		s.state = broken
	default:
		s.state, s.kept = inLiteral, 1
		s.buf[0] = c
	}
}

// after reads the byte behind a value.
func (s *scanner) after(c byte) {
	top := s.levels[s.depth-1]
	switch {
	case c == ',' && top.array:
		s.state, s.node, s.lost = atValue, top.node, false
	case c == ',':
		s.state = atKey
	case c == '}', c == ']':
		s.leave(c == ']')
	default:
		s.state = broken
	}
}

// leave ends the innermost level: an array or an object.
func (s *scanner) leave(array bool) {
	if s.depth == 0 || s.levels[s.depth-1].array != array {
		s.state = broken
		return
	}
	s.depth--
	s.done()
}

// done ends a value: an object has ended, for example, and a comma may come.
func (s *scanner) done() {
	s.state = atNext
	if s.depth == 0 {
		s.state = complete
	}
}

// text reads on in a name or a string from p[i] on, and returns where it stopped. A byte behind a backslash is
// part of the text, whatever it is.
func (s *scanner) text(p []byte, i int) int {
	from := i
	if s.escaped {
		s.escaped = false
		i++
	}
	for i = special(p, i); i < len(p) && p[i] == '\\'; i = special(p, i) {
		if i += 2; i > len(p) {
			s.escaped = true
			i = len(p)
		}
	}
	s.keep(p[from:i])
	if i == len(p) {
		return i
	}
	s.quote()
	return i + 1
}

// quote ends a name or a string.
func (s *scanner) quote() {
	switch n := &s.tree.nodes[s.node]; {
	case s.state == inKey:
		s.state, s.lost = atColon, true
		if s.kept <= maxName {
			s.node = s.tree.find(s.levels[s.depth-1].node, s.buf[:s.kept])
			s.lost = s.node == 0
		}
	case s.skipped > 0:
		s.state = inSkip
	case s.state == inSkipString && !s.lost:
		s.event.text(n, nil, s.kept)
		s.done()
	case s.state == inSkipString:
		s.done()
	default:
		s.event.text(n, s.buf[:min(s.kept, maxText)], s.kept)
		s.done()
	}
}

// keep adds to buf what fits, and counts the rest. What is skipped is only counted.
func (s *scanner) keep(p []byte) {
	if s.kept < maxText && s.state != inSkipString {
		copy(s.buf[s.kept:], p)
	}
	s.kept += len(p)
}

// literal reads on in a number or a word such as null. It ends at the byte behind it, so a number that was cut off
// does not count: 12 may be the beginning of 1200.
func (s *scanner) literal(p []byte, i int) int {
	from := i
	for ; i < len(p); i++ {
		switch p[i] {
		case ',', '}', ']', ' ', '\n', '\r', '\t', ':', '"', '{', '[':
			s.keep(p[from:i])
			if s.kept > maxText {
				s.kept = 0
			}
			if !s.lost {
				s.event.literal(&s.tree.nodes[s.node], s.buf[:s.kept])
			}
			s.done()
			return i
		}
	}
	s.keep(p[from:])
	return i
}

// skip reads on in an object or array that is skipped: it counts brackets, and goes over strings.
func (s *scanner) skip(p []byte, i int) int {
	for i = bracket(p, i); i < len(p); i = bracket(p, i+1) {
		switch p[i] {
		case '"':
			if end := special(p, i+1); end < len(p) && p[end] == '"' {
				i = end
				continue
			}
			s.state = inSkipString // with an escape, or its end is in the next piece
			return i + 1
		case '{', '[':
			s.skipped++
		default:
			if s.skipped--; s.skipped == 0 {
				s.done()
				return i + 1
			}
		}
	}
	return i
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// zero marks the bytes of v that are 0 (v^('"'*ones) has a 0 where v has a quote) by their highest bit, the first of them for certain ("Bit Twiddling
// Hacks", Determine if a word has a zero byte).
func zero(v uint64) uint64 { return (v - ones) &^ v & highs }

// special returns where the first quote or backslash stands in p from i on; len(p) if there is none. It looks at
// eight bytes at a time.
func special(p []byte, i int) int {
	for ; len(p)-i >= 8; i += 8 {
		v := binary.LittleEndian.Uint64(p[i:])
		if found := zero(v^('"'*ones)) | zero(v^('\\'*ones)); found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(p); i++ {
		if p[i] == '"' || p[i] == '\\' {
			break
		}
	}
	return i
}

// bracket returns where the first quote or bracket stands in p from i on, as special does. A bracket and the
// brace of its kind differ in one bit, so setting it makes two comparisons enough for four.
func bracket(p []byte, i int) int {
	for ; len(p)-i >= 8; i += 8 {
		v := binary.LittleEndian.Uint64(p[i:])
		w := v | 0x20*ones
		if found := zero(v^('"'*ones)) | zero(w^('{'*ones)) | zero(w^('}'*ones)); found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(p); i++ {
		switch p[i] {
		case '"', '{', '}', '[', ']':
			return i
		}
	}
	return i
}
