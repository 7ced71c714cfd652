package hint

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"
)

// This file reads the names of header fields: which of them are about limits, and what each says. For
// example, X-Ratelimit-Remaining-Tokens-Minute has the prefix "X-", the kind remaining, the unit "tokens"
// and the window one minute. Fields with the same prefix, unit and window are a family: they describe one
// quota, and quotas.go reads their values together.

// How much of one response is read, so that a hostile one costs little.
const (
	maxQuotas = 16      // quotas that are reported
	maxFields = 32      // fields about limits
	maxBytes  = 8 << 10 // bytes of their values
	maxName   = 64      // bytes of a quota's name or unit
	minKey    = 9       // bytes of a field's name: no shorter one is about limits (Ratelimit)
	maxKey    = 128     // bytes of a field's name: longer ones are ignored
)

// A month and a year, for quotas; they need not be exact.
const (
	month = 30 * day
	year  = 365 * day
)

// kind is what a field about a limit says. The fields of a family are read in this order, so that a later,
// more precise one finds what an earlier one said.
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
	info            // anything else: read if it describes a whole quota
)

// kinds are the words of the name pattern that say what a field is.
var kinds = [...]struct {
	word string
	kind kind
}{
	{"limit", limit}, {"remaining", remaining}, {"reset", reset}, {"used", used}, {"next", reset}, // Akamai's
	{"resets", reset}, {"resetat", reset}, {"resettime", reset}, {"resetafter", reset}, {"resetin", reset}, // Bitvavo's and others' in one word
}

// forms are words behind reset that say how its value is written, which the value itself shows.
var forms = [...]string{"at", "time", "date", "utc", "unix", "epoch", "timestamp", "seconds"}

// labels are the words that may stand in their place and say something else about the quota. No unit
// follows them.
var labels = [...]struct {
	word string
	kind kind
}{
	{"policy", policy}, {"resource", name}, {"name", name}, {"group", name}, {"category", name},
	{"bucket", bucket}, {"scope", scope}, {"global", scope},
	{"period", window}, {"interval", window}, {"window", window}, {"window-size", window},
}

// spans are the unit words that name a window: -Limit-Minute is a limit per minute.
var spans = [...]struct {
	word string
	d    time.Duration
}{
	{"second", time.Second}, {"minute", time.Minute}, {"hour", time.Hour}, {"day", day},
	{"hourly", time.Hour}, {"daily", day}, {"weekly", 7 * day}, {"monthly", month},
	{"week", 7 * day}, {"month", month}, {"year", year},
	{"persecond", time.Second}, {"perminute", time.Minute}, {"perhour", time.Hour}, {"perday", day},
	{"", time.Second}, {"s", time.Second}, {"sec", time.Second}, {"m", time.Minute}, {"min", time.Minute}, {"h", time.Hour}, {"d", day},
}

// spanWords of spans stand alone. Those behind need a number: 15m is a window, m is none.
const spanWords = 15

// units are the common units. A name that has one of them in any case gets this string, without an
// allocation.
var units = [...]string{"requests", "tokens", "input-tokens", "output-tokens", "complexity"}

// field is one header field about a limit, with its name taken apart.
type field struct {
	key          string   // the whole name
	lines        []string // the values
	prefix, unit string   // as they stand in the name
	window       time.Duration
	scale        time.Duration // the unit of its plain numbers; 0: by their size
	kind         kind
	taken        bool // a row of the table has read it
}

// mentionsLimit reports whether some field of h may be about a limit: whether its name has the letters
// "imit", as all of them do. For nearly every response that is all that Parse does.
//
// It looks for the m first, eight bytes at a time, because m is rare and no branch depends on the letters:
// that costs next to nothing beside the steps through the map. Searching each name for all four letters
// makes a step half as long again.
func mentionsLimit(h http.Header) bool {
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

// hasM returns 0 if none of the first eight bytes of s is an m. The XOR turns each m into a zero byte, and
// only if there is one does (w − 0x01…01) &^ w have the top bit of some byte set.
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
// and returns a field of kind none if the name does not have the first words of it, or info if it has no others. The unit
// may stand on either side of the kind, and may name a window:
//
//	Ratelimit                                 whole
//	Ratelimit-Policy                          policy
//	X-Rate-Limit-Remaining                    remaining, prefix "X-"
//	X-Ratelimit-Reset-After                   resetAfter, prefix "X-"
//	X-Ratelimit-Reset-Ms                      reset in milliseconds, prefix "X-"
//	Zendesk-Ratelimit-Tickets-Index           info, prefix "Zendesk-", unit "Tickets-Index"
//	Anthropic-Ratelimit-Input-Tokens-Limit    limit, prefix "Anthropic-", unit "Input-Tokens"
//	X-Ratelimit-Limit-Tokens-Minute           limit, prefix "X-", unit "Tokens", window 1 m
//	X-Ratelimit-Remaining-15m                 remaining, prefix "X-", window 15 m
//	X-Rate-Limit-Daily                        limit, prefix "X-", window a day
//	X-Daily-Ratelimit-Limit                   limit, prefix "X-Daily-", window a day
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
	if f.kind == none {
		if f.kind, unit = limit, rest; windowOf(rest) == 0 {
			f.kind, f.unit = info, rest
			return f
		}
	}
	if f.setUnit(unit); f.window == 0 && start > 0 {
		before := key[:start-1]
		f.window = windowOf(before[strings.LastIndexByte(before, '-')+1:])
	}
	return f
}

// setUnit splits the unit part of a name into unit and window: "tokens-minute" is a unit and a window,
// "minute" a window alone. Behind reset, other words may stand.
func (f *field) setUnit(unit string) {
	if f.kind == reset && unit != "" {
		first, rest, _ := strings.Cut(unit, "-")
		switch {
		case fold(first, "after"), fold(first, "in"):
			f.kind, f.scale, unit = resetAfter, time.Second, rest
		case isMilli(unit):
			f.scale, unit = time.Millisecond, ""
		case isForm(unit):
			unit = ""
		}
	}
	i := strings.LastIndexByte(unit, '-')
	if f.window = windowOf(unit[i+1:]); f.window > 0 {
		unit = unit[:max(i, 0)]
	}
	f.unit = unit
}

// findWord returns where "ratelimit" or "rate-limit" begins and ends in key, as a word of its own and in
// whatever case; -1 if it does not occur. A word ends at a hyphen: Ratelimiter is another word.
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

// fold reports whether two ASCII words are equal but for their case. Most differ in length, which is
// cheaper to see.
func fold(a, b string) bool { return len(a) == len(b) && strings.EqualFold(a, b) }

// kindOf returns the kind that a word of the pattern means; none if it is not such a word.
func kindOf(word string) kind {
	for _, k := range kinds {
		if fold(word, k.word) {
			return k.kind
		}
	}
	return none
}

// isForm reports whether a word behind reset says how the value is written.
func isForm(word string) bool {
	return slices.ContainsFunc(forms[:], func(w string) bool { return fold(word, w) })
}

// unitName returns the unit part of a name in lower case. Mistral's "req" means requests.
func unitName(s string) string {
	if fold(s, "req") {
		return units[0]
	}
	for _, u := range units {
		if fold(s, u) {
			return u
		}
	}
	return strings.ToLower(short(s))
}

// short cuts a name to a length that is safe to keep.
func short(s string) string { return s[:min(len(s), maxName)] }

// fields are the fields of a response that are about limits, sorted. A map has no order, but every call has
// to find the same quotas in the same order. If there are more than maxFields, the last in order are left
// out, so that what is left out does not depend on luck either.
type fields struct {
	all [maxFields]field
	n   int
}

// collect finds and sorts the fields of h that follow the pattern. The test for "imit" is that of
// mentionsLimit, and spares most names the pattern.
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

// insert puts f into its place. If l is full, the last field in order is dropped, which may be f.
// The list is short, so insertion sort is the cheapest.
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

// before is the order of fields: RateLimit, then X-RateLimit, then other prefixes; within these by unit and
// window, so that families stand together, and then by kind. The name itself comes last: Ratelimit-Name and
// Ratelimit-Resource have the same kind.
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

// rank orders prefixes by how far their fields can be trusted: the standard's, the convention's, others.
func (f *field) rank() int {
	switch f.prefix {
	case "":
		return 0
	case "X-":
		return 1
	}
	return 2
}

// family reports whether f and g describe the same quota.
func (f *field) family(g *field) bool {
	return f.prefix == g.prefix && f.unit == g.unit && f.window == g.window
}
