package hint

import "strings"

// The RateLimit fields are structured fields (RFC 9651): a list of items with parameters, as in
//
//	"burst";q=10;w=1, "daily";q=1000;w=86400
//
// or in one draft a dictionary. scanner reads the parts of RFC 9651 that occur in them, and no others: no
// inner lists, no dates, no display strings. The same scanner reads the lists of the older fields.

// form is how a member of a list is written.
type form uint8

const (
	other  form = iota // a byte sequence or a boolean
	number             // 100
	text               // "default" or default
	entry              // limit=100, of a dictionary
)

// item is one member of a list or dictionary. Unknown parts are -1 or "". For example:
//
//	"daily";r=12;t=3600    form text, name "daily", r 12, t 3600
//	10;w=1                 form number, n 10, w 1
//	limit=100              form entry, name "limit", n 100
type item struct {
	name, unit string // the string or token itself, or the parameter name; the parameter qu
	n          int64  // the number, or the value of a dictionary entry
	q, w, r, t int64  // the parameters of these names
	form       form
	part       bool // n is rounded: the number had a fraction, or was negative
}

// size returns n as the size of a quota; -1: unknown. A negative size means that there is no limit, and a
// size between 0 and 1 is not one of 0.
func (it *item) size() int64 {
	if it.part && it.n == 0 {
		return -1
	}
	return it.n
}

// items are the members of a field, the first maxQuotas of them. They are an array, so that reading a field
// allocates nothing.
type items struct {
	all [maxQuotas]item
	n   int
}

// read reads the lines of a field and reports whether they have members. If one line is malformed, the whole
// field counts as not sent: that is the drafts' rule (RFC 9651 §4.2).
//
// loose is for the fields that are older than the standard. Their servers print what they like:
//
//	-1                      no units: 0
//	18446744073709551615    more than 15 digits, as good as no limit
//	100:60                  100 in 60 seconds, as 100;w=60
func (l *items) read(lines []string, loose bool) bool {
	l.n = 0
	for _, line := range lines {
		s := scanner{s: trim(line), loose: loose}
		for s.i < len(s.s) && !s.bad {
			if l.n < maxQuotas {
				s.member(&l.all[l.n])
				l.n++
			} else {
				var beyond item // read, because it may be malformed
				s.member(&beyond)
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

// scanner reads one line from left to right. A malformed line sets bad, which stays set; the methods go on
// then, so only loops and the final result have to look at it.
type scanner struct {
	s     string
	i     int // the next byte
	loose bool
	bad   bool
}

// peek returns the next byte; 0 at the end.
func (s *scanner) peek() byte {
	if s.i < len(s.s) {
		return s.s[s.i]
	}
	return 0
}

// skip moves over the next byte if it is c, and reports whether it was.
func (s *scanner) skip(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.i++
	return true
}

// space moves over blanks and tabs.
func (s *scanner) space() {
	for s.skip(' ') || s.skip('\t') {
	}
}

// comma moves over the comma between two members. A trailing comma is malformed.
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

// member reads an item or a dictionary entry with its parameters: 100;w=60, "daily";r=5, or limit=100.
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

// param reads a parameter behind its semicolon. Unknown ones are read and ignored; if a name occurs twice,
// the last counts. q is a quota's size, w its window in seconds, qu its unit, r what remains, and t the
// seconds until the window ends. Numbers must be whole and not negative.
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

// bare reads an item without parameters. It returns its form, its text or its number, and whether the
// number was rounded.
func (s *scanner) bare() (f form, str string, n int64, part bool) {
	switch c := s.peek(); {
	case c == '"':
		return text, s.quoted(), -1, false
	case c == '-' || '0' <= c && c <= '9':
		n, part = s.number()
		return number, "", n, part
	case c == '*' || isLetter(c):
		return text, s.run(isTokenByte), -1, false
	case c == ':': // bytes, not checked: the drafts' own samples are not strict base64
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

// number reads an integer, or a decimal and rounds it down. A negative number becomes 0. One of more than 64
// bits becomes -1, unknown. RFC 9651 allows 15 digits; older fields have whatever their servers print, so
// there only the grammar counts.
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

// quoted reads a string in quotation marks. It shares the field's memory unless it holds an escape.
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

// unescape removes the escaping backslashes from a string that quoted has checked.
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

// run moves over the bytes for which is returns true, and returns them.
func (s *scanner) run(is func(byte) bool) string {
	from := s.i
	for s.i < len(s.s) && is(s.s[s.i]) {
		s.i++
	}
	return s.s[from:s.i]
}

// The sets of bytes that RFC 9651 names. isLetter takes capitals too: bit 0x20 is all that differs.

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLower(c byte) bool  { return 'a' <= c && c <= 'z' }
func isLetter(c byte) bool { return isLower(c | 0x20) }

// isTokenByte reports whether c may stand in a token, behind the first byte.
func isTokenByte(c byte) bool {
	return isLetter(c) || isDigit(c) || c > 0 && strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}

func isBase64Byte(c byte) bool {
	return isLetter(c) || isDigit(c) || c == '+' || c == '/' || c == '='
}

func isKeyByte(c byte) bool {
	return isLower(c) || isDigit(c) || c == '_' || c == '-' || c == '.' || c == '*'
}

// isKey reports whether s may name a parameter or a dictionary entry.
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
