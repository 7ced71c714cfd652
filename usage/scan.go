package usage

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

// What is kept.
const (
	maxText   = 512     // bytes of a name, a number or a string
	maxLevels = 32      // objects and arrays around a value: a place's, or those around a file in a request
	maxSize   = 1 << 30 // what is longer counts as that long
)

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
	coded   bool  // the string that is kept has nothing that base64 does not have
	framed  bool  // documents are of a binary stream
	levels  [maxLevels]level
	buf     [maxText]byte
}

// reset begins a new document.
func (s *scanner) reset() {
	s.event = silent
	s.state, s.escaped, s.lost = atValue, false, false
	s.node, s.depth, s.skipped, s.kept = 0, 0, 0, 0
}

// feed reads the next bytes of the document. It returns how many: all, or those before the document that follows it.
func (s *scanner) feed(p []byte) int {
	for i := 0; i < len(p); {
		switch s.state {
		case atKey:
			i = s.members(p, i)
		case inSkip:
			i = s.skip(p, i)
		case inSkipString, inString, inKey:
			i = s.text(p, i)
		case inLiteral:
			i = s.literal(p, i)
		case atValue:
			if i = blank(p, i); i < len(p) {
				i = s.value(p, i)
			}
		case complete:
			if i = blank(p, i); i < len(p) && p[i]|0x20 == '{' { // or '['
				return i
			} else if i < len(p) {
				s.state = broken
			}
		case broken:
			return len(p)
		default:
			i = s.structure(p, i)
		}
	}
	return len(p)
}

// under reports whether a document is under way.
func (s *scanner) under() bool {
	return s.state != complete && s.state != broken && (s.depth > 0 || s.state != atValue)
}

// structure reads a byte outside of names and values, and returns where it stopped: behind that byte, or before it if a number
// or a word begins.
func (s *scanner) structure(p []byte, i int) int {
	c := p[i]
	switch {
	case c == ' ', c == '\n', c == '\r', c == '\t':
	case s.state == atValue:
		if s.begin(c); s.state == inLiteral {
			return i
		}
	case s.state == atKey && c == '"':
		s.state, s.kept = inKey, 0
	case s.state == atKey && c == '}':
		s.leave(false)
	case s.state == atColon && c == ':':
		s.state = atValue
	case s.state == atNext:
		s.after(c)
	default: // a name without quotes, for example
		s.state = broken
	}
	return i + 1
}

// begin reads the first byte of a value.
func (s *scanner) begin(c byte) {
	switch c {
	case '{', '[':
		s.open(c == '[')
	case ']':
		s.leave(true)
	case '"':
		s.state, s.kept, s.coded = inSkipString, 0, true
		if !s.lost && (s.tree.any > 0 || s.tree.nodes[s.node].role.textual()) {
			s.state = inString
		}
	case '}', ',', ':':
		s.state = broken
	default:
		s.state, s.kept = inLiteral, 0
	}
}

// open begins an object or array. It enters only what a place lies within; the members of an array have the array's
// own node, because places do not name arrays.
func (s *scanner) open(array bool) {
	n := &s.tree.nodes[s.node]
	if !s.lost && n.role == mark {
		s.event.marked(n, false)
	}
	if s.lost || !n.inner && s.tree.any == 0 || s.depth == len(s.levels) {
		s.skipped, s.state = 1, inSkip
		return
	}
	s.levels[s.depth] = level{n.same, array}
	s.depth++
	s.state = atKey
	if array {
		s.state = atValue
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
	end := closing(p, i)
	if s.tree.any > 0 && s.state == inString {
		s.coded = s.coded && base64Alone(p[from:end])
	}
	if end < len(p) {
		s.quote(s.whole(p[from:end]))
		return end + 1
	}
	s.keep(p[from:])
	s.escaped = escaped(p[i:])
	return end
}

// whole returns what was kept and b, which ends it: at most maxText bytes of both. Mostly b is all.
func (s *scanner) whole(b []byte) []byte {
	if s.kept == 0 {
		s.kept = len(b)
		return b[:min(len(b), maxText)]
	}
	s.keep(b)
	return s.buf[:min(s.kept, maxText)]
}

// name takes the name of a member.
func (s *scanner) name(b []byte) {
	s.node = s.tree.find(s.levels[s.depth-1].node, b)
	s.lost = s.node == 0
}

// anywhere takes a name that is lost, if it is one of a request: then its value counts wherever it stands.
func (s *scanner) anywhere(b []byte) {
	if s.tree.any == 0 {
		return
	}
	if s.lost, s.node = false, s.tree.find(s.tree.any, b); s.node == 0 {
		s.node = s.tree.any
	}
}

// quote ends a name or a string, whose first bytes are b.
func (s *scanner) quote(b []byte) {
	switch {
	case s.state == inKey:
		s.state = atColon
		if s.name(b); s.lost {
			s.anywhere(b)
		}
	case s.skipped > 0:
		s.state = inSkip
	default:
		if s.state == inString {
			s.string(&s.tree.nodes[s.node], b)
		}
		s.done()
	}
}

// string takes a string at node n that is kept, whose first bytes are b.
func (s *scanner) string(n *node, b []byte) {
	switch {
	case s.tree.any > 0:
		s.event.string(n, b, s.kept, s.coded)
	case n.role == wrapped:
		s.unwrap(b)
	default:
		s.event.text(n, b)
	}
}

// keep adds to buf what fits, and counts the rest. What is skipped is only counted.
func (s *scanner) keep(p []byte) {
	if s.kept < maxText && s.state != inSkipString {
		copy(s.buf[s.kept:], p)
	}
	s.kept = min(s.kept+len(p), maxSize)
}

// literal reads on in a number or a word such as null. It ends at the byte behind it, so a number that was cut off
// does not count: 12 may be the beginning of 1200. Up to 18 digits, which fit in 64 bits, are added up on the way.
func (s *scanner) literal(p []byte, i int) int {
	from, n := i, int64(0)
	for ; i < len(p) && p[i]-'0' < 10; i++ {
		n = 10*n + int64(p[i]-'0')
	}
	if s.kept == 0 && i > from && i-from <= 18 && i < len(p) && (p[i] == ',' || p[i] == '}') { // as nearly all are
		if !s.lost {
			s.event.number(&s.tree.nodes[s.node], n, float64(n))
		}
		s.done()
		return i
	}
	for ; i < len(p); i++ {
		switch p[i] {
		case ',', '}', ']', ' ', '\n', '\r', '\t', ':', '"', '{', '[':
			if b := s.whole(p[from:i]); !s.lost && s.kept <= maxText {
				s.event.literal(&s.tree.nodes[s.node], b)
			} else if !s.lost {
				s.event.literal(&s.tree.nodes[s.node], nil)
			}
			s.done()
			return i
		}
	}
	s.keep(p[from:])
	return i
}
