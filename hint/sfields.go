package hint

import "strings"

// The RateLimit fields are structured fields (RFC 9651): a list of items with
// parameters, or in one draft a dictionary. scanner reads what occurs in them and
// nothing else of RFC 9651: no inner lists, no dates, no display strings.

// form is how the item of a list member is written.
type form uint8

const (
	other  form = iota // a byte sequence or a boolean
	number             // 100
	text               // "default" or default
	entry              // limit=100, of a dictionary
)

// item is one member of a list or dictionary. What is not told is -1 or "".
type item struct {
	name, unit string // a string or token, or the parameter name; qu
	n          int64  // a number; the value of a dictionary entry
	q, w, r, t int64  // parameters
	form       form
	part       bool // n was more or less: it had a fraction, or was negative
}

// size returns n as the size of a quota. -1: one below zero means none, and one
// below a unit is not one of zero.
func (it *item) size() int64 {
	if it.part && it.n == 0 {
		return -1
	}
	return it.n
}

// items are the members of a field, as far as they are kept.
type items struct {
	all [maxQuotas]item
	n   int
}

// read reads the lines of a field. If any of them is malformed it is as if the
// field had not been sent: that is the drafts' rule. Loose numbers are those of the
// fields that came before the standard: negative ones are 0, those of more than 15
// digits are allowed, and n:w stands for n;w=w.
func (l *items) read(lines []string, loose bool) bool {
	l.n = 0
	for _, line := range lines {
		s := scanner{s: trim(line), loose: loose}
		for s.i < len(s.s) && !s.bad {
			if l.n < maxQuotas {
				s.member(&l.all[l.n])
				l.n++
			} else {
				var rest item
				s.member(&rest)
			}
			s.comma()
		}
		if s.bad {
			l.n = 0
			return false
		}
	}
	return l.n > 0
}

// scanner reads one line. Once bad, it stays so.
type scanner struct {
	s     string
	i     int
	loose bool
	bad   bool
}

// peek returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	if s.i < len(s.s) {
		return s.s[s.i]
	}
	return 0
}

// skip moves over c if it is next.
func (s *scanner) skip(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.i++
	return true
}

// space moves over blanks.
func (s *scanner) space() {
	for s.skip(' ') || s.skip('\t') {
	}
}

// comma moves over what stands between two members. A trailing one is an error.
func (s *scanner) comma() {
	s.space()
	if s.i == len(s.s) || s.bad {
		return
	}
	if !s.skip(',') {
		s.bad = true
	}
	s.space()
	s.bad = s.bad || s.i == len(s.s)
}

// member reads an item or a dictionary entry, with its parameters.
func (s *scanner) member(it *item) {
	*it = item{n: -1, q: -1, w: -1, r: -1, t: -1}
	it.form, it.name, it.n, it.part = s.bare()
	if it.form == text && s.peek() == '=' {
		s.bad = s.bad || !isKey(it.name)
		s.i++
		var f form
		f, _, it.n, it.part = s.bare()
		s.bad = s.bad || f != number
		it.form = entry
	}
	if it.form == number && s.loose && s.skip(':') {
		_, _, it.w, _ = s.bare()
	}
	for !s.bad && s.skip(';') {
		s.param(it)
	}
}

// param reads a parameter. Of several with one name the last counts.
func (s *scanner) param(it *item) {
	s.space()
	key := s.run(isKeyByte)
	s.bad = s.bad || !isKey(key)
	f, str, n, part := other, "", int64(-1), false // without a value it is a boolean
	if s.skip('=') {
		f, str, n, part = s.bare()
	}
	var to *int64
	switch key {
	case "q":
		to = &it.q
	case "w", "window": // window: draft-polli-ratelimit-headers, and so Whoop
		to = &it.w
	case "r":
		to = &it.r
	case "t":
		to = &it.t
	case "qu":
		it.unit = str
		s.bad = s.bad || f != text
		return
	case "name":
		if it.form == number {
			it.name = str
		}
		return
	default:
		return
	}
	*to = n
	s.bad = s.bad || f != number || part
}

// bare reads a bare item: what it is, its text or its number, and whether the
// number was cut.
func (s *scanner) bare() (f form, str string, n int64, part bool) {
	switch c := s.peek(); {
	case c == '"':
		return text, s.quoted(), -1, false
	case c == '-' || '0' <= c && c <= '9':
		n, part = s.number()
		return number, "", n, part
	case c == '*' || isLetter(c):
		return text, s.run(isTokenByte), -1, false
	case c == ':': // bytes; the drafts' own samples are not strict base64
		s.i++
		s.run(isBase64Byte)
		s.bad = s.bad || !s.skip(':')
	case c == '?':
		s.i++
		s.bad = s.bad || !s.skip('0') && !s.skip('1')
	default:
		s.bad = true
	}
	return other, "", -1, false
}

// number reads an integer, or a decimal rounded down; a negative one is 0, and one
// of more than 64 bits is -1, as if it had not been told.
func (s *scanner) number() (n int64, part bool) {
	minus := s.skip('-')
	whole := s.run(isDigit)
	frac := ""
	if s.skip('.') {
		frac = s.run(isDigit)
		s.bad = s.bad || frac == ""
	}
	s.bad = s.bad || whole == "" || !s.loose && (minus || len(whole)+len(frac) > 15)
	if minus {
		return 0, true
	}
	return amount(whole), strings.Trim(frac, "0") != ""
}

// quoted reads a string. It is part of the field unless it holds an escape.
func (s *scanner) quoted() string {
	s.i++
	from, escaped := s.i, false
	for ; s.i < len(s.s); s.i++ {
		switch c := s.s[s.i]; {
		case c == '"':
			str := s.s[from:s.i]
			s.i++
			if escaped {
				str = unescape(str)
			}
			return str
		case c == '\\':
			s.i++
			if next := s.peek(); next != '"' && next != '\\' {
				s.bad = true
				return ""
			}
			escaped = true
		case c < ' ' || c > '~':
			s.bad = true
			return ""
		}
	}
	s.bad = true
	return ""
}

// unescape takes the backslashes out of a string that was checked.
func unescape(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		}
		b = append(b, s[i])
	}
	return string(b)
}

// run returns the bytes from here on that are of one kind, and moves over them.
func (s *scanner) run(is func(byte) bool) string {
	from := s.i
	for s.i < len(s.s) && is(s.s[s.i]) {
		s.i++
	}
	return s.s[from:s.i]
}

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLower(c byte) bool  { return 'a' <= c && c <= 'z' }
func isLetter(c byte) bool { return isLower(c | 0x20) }

// isTokenByte tells whether c can stand in a token behind its first letter.
func isTokenByte(c byte) bool {
	return isLetter(c) || isDigit(c) || c > 0 && strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}

func isBase64Byte(c byte) bool {
	return isLetter(c) || isDigit(c) || c == '+' || c == '/' || c == '='
}

func isKeyByte(c byte) bool {
	return isLower(c) || isDigit(c) || c == '_' || c == '-' || c == '.' || c == '*'
}

// isKey tells whether s can name a parameter or a dictionary entry.
func isKey(s string) bool {
	if s == "" || s[0] != '*' && !isLower(s[0]) {
		return false
	}
	for i := range len(s) {
		if !isKeyByte(s[i]) {
			return false
		}
	}
	return true
}
