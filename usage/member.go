package usage

// This file reads what stands in one piece, as nearly all does: members with their names and values, and what is skipped. If a
// piece ends within a name or a value, or something rare comes, it leaves a state from which the scanner goes on by the byte.
//
// It costs about 18 instructions for each byte of a small event, and is bound by their number alone: what is written out
// here, rather than called, gains more than it looks.

// members reads members of objects, as long as they stand in p: a name, a colon and at most one space, a value, and what closes or
// a comma. It stops where that ends, and feed goes on from there.
//
// An example: of {"id":"x","usage": {"prompt_tokens":12},"n": 1} it reads all but the first byte and the last two.
func (s *scanner) members(p []byte, i int) int {
	for i < len(p) && p[i] == '"' {
		i++
		n := near(p, i)
		if n >= nearby || p[i+n-1] == '\\' {
			n = closing(p, i) - i
		}
		end := i + n
		at := end + 2
		if at+1 >= len(p) || p[end+1] != ':' {
			s.state, s.kept = inKey, 0
			return i
		}
		if p[at] == ' ' {
			at++
		}
		if s.name(p[i:end]); s.lost && s.tree.any > 0 {
			s.anywhere(p[i:end])
		}
		// A comma follows a member of an object, or an object in an array: that is for structure.
		for i = s.value(p, at); s.state == atNext && i < len(p) && (p[i] == '}' || p[i] == ']'); i++ {
			s.leave(p[i] == ']')
		}
		if s.state == atNext && i < len(p) && p[i] == ',' && !s.levels[s.depth-1].array {
			s.state = atKey
			i = blank(p, i+1)
		}
		if s.state != atKey {
			return i
		}
	}
	if i < len(p) {
		return s.structure(p, i)
	}
	return i
}

// value reads the value that begins at p[i], as far as that can be done at once.
func (s *scanner) value(p []byte, i int) int {
	switch c := p[i]; {
	case c-'0' < 10:
		s.state, s.kept = inLiteral, 0
		return s.literal(p, i)
	case c == '"' && s.lost: // as most strings are
		i++
		n := near(p, i)
		if n >= nearby || p[i+n-1] == '\\' {
			n = closing(p, i) - i
		}
		if i+n < len(p) {
			s.done()
			return i + n + 1
		}
		s.state, s.kept = inSkipString, 0
		return i
	case c|0x20 == '{': // or '['
		if s.open(c == '['); s.state == inSkip {
			return s.skip(p, i+1)
		}
		return i + 1
	}
	s.state = atValue
	return s.structure(p, i)
}

// skip reads on in an object or array that is skipped: it counts brackets, and goes over strings. Of what stands between strings it looks
// at one byte at a time, and at eight where that is a number.
func (s *scanner) skip(p []byte, i int) int {
	for i < len(p) {
		c := p[i]
		i++
		switch {
		case c == '"':
			n := near(p, i)
			if n >= nearby || p[i+n-1] == '\\' {
				s.state, s.kept = inSkipString, 0
				if i = s.text(p, i); s.state != inSkip { // its end is in the next piece
					return i
				}
				continue
			}
			i += n + 1
		case c == ',', c == ':':
			if i < len(p) && p[i] == ' ' {
				i++
			}
		case c|0x20 == '{': // or '['
			s.skipped++
		case c|0x20 == '}':
			if s.skipped--; s.skipped == 0 {
				s.done()
				return i
			}
		default:
			i = bracket(p, i)
		}
	}
	return i
}
