package hint

import (
	"cmp"
	"net/http"
	"strings"
	"time"
)

const (
	maxQuotas = 16       // told per response
	maxFields = 32       // about limits, looked at per response
	maxBytes  = 8 << 10  // of their values
	maxName   = 64       // bytes of a quota's name or unit
	minKey    = 9        // bytes of a header field's name: Ratelimit
	maxKey    = 128      //
	month     = 30 * day // a month and a year of a quota's window need not be exact
	year      = 365 * day
)

// kind is what a field about a limit tells. The order is that in which the fields
// of one family are read.
type kind uint8

const (
	none       kind = iota
	policy          // RateLimit-Policy
	whole           // RateLimit
	limit           // ...-Limit, and so on
	remaining       //
	used            //
	reset           //
	resetAfter      //
	window          // X-RateLimit-Period, X-Rate-Limit-Interval
	name            // of the quota: RateLimit-Name, X-RateLimit-Resource
	bucket          // of the quota that the request fell under: X-RateLimit-Bucket
	scope           // X-RateLimit-Scope, X-RateLimit-Global
)

// kinds are the words of the name pattern.
var kinds = [...]struct {
	word string
	kind kind
}{
	{"limit", limit}, {"remaining", remaining}, {"reset", reset}, {"used", used},
}

// labels are words that say something about the quota of their prefix; they take no
// unit.
var labels = [...]struct {
	word string
	kind kind
}{
	{"policy", policy}, {"resource", name}, {"name", name}, {"group", name}, {"category", name},
	{"bucket", bucket}, {"scope", scope}, {"global", scope},
	{"period", window}, {"interval", window}, {"window", window},
}

// spans are the unit words that name a window.
var spans = [...]struct {
	word string
	d    time.Duration
}{
	{"second", time.Second}, {"minute", time.Minute}, {"hour", time.Hour}, {"day", day},
	{"hourly", time.Hour}, {"daily", day}, {"weekly", 7 * day}, {"monthly", month},
	{"week", 7 * day}, {"month", month}, {"year", year},
	{"persecond", time.Second}, {"perminute", time.Minute}, {"perhour", time.Hour}, {"perday", day},
}

// units are the common unit words in the lower case in which they are told.
var units = [...]string{"requests", "tokens", "input-tokens", "output-tokens", "complexity"}

// field is one header field about a limit. Fields of one prefix, unit and window
// describe one quota.
type field struct {
	key          string
	lines        []string
	prefix, unit string
	window       time.Duration
	kind         kind
	taken        bool // a row of the table has read it
}

// mayTell tells whether some field of h may be about a limit: whether its name has
// the letters that all of them have. Nearly every response is done after it.
//
// Looking for the rare m first, eight bytes at a time, costs next to nothing beside
// the steps of the map: no branch depends on the letters. Searching every name
// for all four makes these steps half as long again.
func mayTell(h http.Header) bool {
	for key := range h {
		if len(key) < minKey {
			continue
		}
		m := hasM(key[len(key)-8:])
		for i := 1; i < len(key)-8; i += 8 {
			m |= hasM(key[i:])
		}
		if m != 0 && strings.Contains(key, "imit") {
			return true
		}
	}
	return false
}

// hasM returns 0 if none of the first eight bytes of s is an m: it makes bytes that
// are m zero, and then looks for a zero byte.
func hasM(s string) uint64 {
	const ones = 0x0101010101010101
	_ = s[7]
	w := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
	w ^= 'm' * ones
	return (w - ones) &^ w & (0x80 * ones)
}

// decode reads the name of a field by the pattern
//
//	(prefix-)*rate-?limit-(unit-)?(limit|remaining|reset|used)(-unit)?
//
// and returns a field of kind none if it does not follow it.
func decode(key string) (f field) {
	if len(key) > maxKey {
		return f
	}
	start, end := findWord(key)
	if start < 0 {
		return f
	}
	f.key, f.prefix = key, key[:start]
	if end == len(key) {
		f.kind = whole
		return f
	}
	rest := key[end+1:]
	for _, l := range labels {
		if fold(rest, l.word) {
			f.kind = l.kind
			return f
		}
	}
	first, unit, _ := strings.Cut(rest, "-")
	if f.kind = kindOf(first); f.kind == none {
		i := strings.LastIndexByte(rest, '-')
		f.kind, unit = kindOf(rest[i+1:]), rest[:max(i, 0)]
	}
	f.setUnit(unit)
	return f
}

// setUnit splits the unit part of a name into unit and window.
func (f *field) setUnit(unit string) {
	if f.kind == reset {
		first, rest, _ := strings.Cut(unit, "-")
		switch {
		case fold(first, "after"):
			f.kind, unit = resetAfter, rest
		case fold(unit, "at"), fold(unit, "time"):
			unit = ""
		case fold(unit, "ms"): // a span or a moment: only a table can tell
			f.kind = none
		}
	}
	i := strings.LastIndexByte(unit, '-')
	if f.window = windowOf(unit[i+1:]); f.window > 0 {
		unit = unit[:max(i, 0)]
	}
	f.unit = unit
}

// findWord returns where "ratelimit" or "rate-limit" begins and ends in key, as a
// word of its own, in whatever case; -1 if it does not occur.
func findWord(key string) (start, end int) {
	for i := 0; i < len(key); {
		n := 0
		switch rest := key[i:]; {
		case len(rest) >= 9 && fold(rest[:9], "ratelimit"):
			n = 9
		case len(rest) >= 10 && fold(rest[:10], "rate-limit"):
			n = 10
		}
		if n > 0 && (i+n == len(key) || key[i+n] == '-') {
			return i, i + n
		}
		next := strings.IndexByte(key[i:], '-')
		if next < 0 {
			break
		}
		i += next + 1
	}
	return -1, -1
}

// fold tells whether two ASCII words are equal but for their case.
func fold(a, b string) bool { return len(a) == len(b) && strings.EqualFold(a, b) }

// kindOf returns what a word of the pattern means, none if it is not one.
func kindOf(word string) kind {
	for _, k := range kinds {
		if fold(word, k.word) {
			return k.kind
		}
	}
	return none
}

// windowOf returns the window that a unit word names, 0 if it names none.
func windowOf(word string) time.Duration {
	for _, s := range spans {
		if fold(word, s.word) {
			return s.d
		}
	}
	return 0
}

// unitName returns the unit part of a name in lower case.
func unitName(s string) string {
	if fold(s, "req") { // Mistral
		return units[0]
	}
	for _, u := range units {
		if fold(s, u) {
			return u
		}
	}
	return strings.ToLower(short(s))
}

// short cuts a name to a length that can be kept.
func short(s string) string { return s[:min(len(s), maxName)] }

// fields are the fields of a response that are about limits, in order. A map has
// none, and every call is to find the same quotas in the same order; so that what
// is over the bound does not depend on luck, the last ones in order are left out.
type fields struct {
	all [maxFields]field
	n   int
}

// collect finds the fields of h that follow the pattern.
func (l *fields) collect(h http.Header) {
	for key, lines := range h {
		if len(key) < minKey || !strings.Contains(key, "imit") {
			continue
		}
		f := decode(key)
		if f.kind == none {
			continue
		}
		f.lines = lines
		l.insert(&f)
	}
}

// insert puts f where it belongs. What would be behind the last place is left out,
// and what was there falls out.
func (l *fields) insert(f *field) {
	i := l.n
	for i > 0 && f.before(&l.all[i-1]) {
		i--
	}
	if i == maxFields {
		return
	}
	l.n = min(l.n+1, maxFields)
	copy(l.all[i+1:l.n], l.all[i:])
	l.all[i] = *f
}

// before orders fields: RateLimit before X-RateLimit before the other prefixes,
// then by unit and window, then by kind.
func (f *field) before(g *field) bool {
	return cmp.Or(
		f.rank()-g.rank(),
		strings.Compare(f.prefix, g.prefix),
		strings.Compare(f.unit, g.unit),
		cmp.Compare(f.window, g.window),
		cmp.Compare(f.kind, g.kind),
		strings.Compare(f.key, g.key),
	) < 0
}

// rank returns how much is to be believed of fields with the prefix.
func (f *field) rank() int {
	switch f.prefix {
	case "":
		return 0
	case "X-":
		return 1
	}
	return 2
}

// family tells whether f and g describe the same quota.
func (f *field) family(g *field) bool {
	return f.prefix == g.prefix && f.unit == g.unit && f.window == g.window
}
