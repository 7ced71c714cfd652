package hint

import (
	"strings"
	"time"
)

// This file reads fields that describe a whole quota, in the words of a standard or in any others.

// whole reads a RateLimit field. Its drafts have three forms:
//
//	"daily";r=12;t=3600               a list of quotas (draft 08 and later)
//	limit=10, remaining=5, reset=1    a dictionary that describes one quota (draft 07)
//	700                               a limit alone (X-Rate-Limit)
//
// A field with a prefix has not heard of the drafts: if it does not follow their grammar, pairs are read all the same, and
// so is JSON in any field.
func (r *reader) whole(d *draft, f *field) {
	v := trim(f.lines[0])
	if v != "" && isDigit(v[0]) && f.kind == whole {
		r.limit(d, f)
		return
	}
	var l items
	if strict := l.read(f.lines, false); v != "" && (v[0] == '{' || f.kind == info || !strict && f.prefix != "") {
		r.pairs(d, f, v)
		return
	}
	for i := range l.n {
		switch it := &l.all[i]; it.form {
		case entry:
			for _, line := range f.lines {
				r.pairs(d, f, line)
			}
			return
		case text:
			r.policy(d.policies.find(it.name), it, f.key)
		}
	}
}

// pairs reads names and values, of one quota, as JSON writes them or a list:
//
//	{"name":"General","period":60,"limit":1000,"remaining":999,"until":"2026-01-10T12:01:00Z"}
//	total=100; remaining=99; resets=41
//
// A name means what the name of a field would mean. Names that mean nothing are passed over; if the value is not made of
// pairs, nothing is read from there on.
func (r *reader) pairs(d *draft, f *field, s string) {
	if !strings.ContainsAny(s, ":=") {
		return // without an allocation
	}
	var name, value string
	var ok bool
	g := field{key: f.key, lines: make([]string, 1)}
	for range maxFields {
		s = strings.TrimLeft(s, " \t{},;&")
		if name, s, ok = word(s, ":="); !ok || s == "" || s[0] != ':' && s[0] != '=' {
			return
		}
		if value, s, ok = word(strings.TrimLeft(s[1:], " "), ",;&}"); !ok || value == "" || value[0] == '{' || value[0] == '[' {
			return
		}
		g.kind, g.scale, g.lines[0] = pairKind(name), 0, value
		if n := len(name) - 2; g.kind == none && n > 0 && isMilli(name[n:]) {
			g.kind, g.scale = pairKind(name[:n]), time.Millisecond
		}
		if g.kind != none {
			r.part(d, &g)
		}
	}
}

// word reads a string in quotation marks, or what stands before one of the bytes in ends.
func word(s, ends string) (word, rest string, ok bool) {
	if s != "" && (s[0] == '"' || s[0] == '\'') {
		word, rest, ok = strings.Cut(s[1:], s[:1])
		return word, strings.TrimLeft(rest, " "), ok
	}
	n := strings.IndexAny(s, ends)
	if n < 0 {
		n = len(s)
	}
	return trim(s[:n]), s[n:], n > 0
}

// pairWords are what the names of pairs begin with.
var pairWords = [...]struct {
	word string
	kind kind
}{
	{"limit", limit}, {"max", limit}, {"total", limit}, {"quota", limit},
	{"remaining", remaining}, {"left", remaining}, {"available", remaining}, {"used", used},
	{"resets", reset}, {"reset", reset}, {"until", reset}, {"expires", reset}, {"retry", reset},
	{"period", window}, {"window", window}, {"interval", window}, {"name", name},
}

// pairKind returns what the name of a pair means: reset_at, resetTime and resets are all a reset.
func pairKind(s string) kind {
	for _, w := range pairWords {
		n := len(w.word)
		if len(s) < n || !fold(s[:n], w.word) {
			continue
		}
		tail := strings.Trim(s[n:], "_-")
		for _, link := range [...]string{"in", "after"} {
			if len(tail) >= len(link) && fold(tail[:len(link)], link) {
				tail = strings.Trim(tail[len(link):], "_-")
			}
		}
		if tail == "" || isForm(tail) {
			return w.kind
		}
	}
	return none
}

// unlimited reports whether the value of a limit says that there is none.
func unlimited(s string) bool {
	s = trim(s)
	for _, w := range [...]string{"unlimited", "infinite", "infinity", "inf", "none", "no-limit"} {
		if fold(s, w) {
			return true
		}
	}
	return strings.HasPrefix(s, "-")
}
